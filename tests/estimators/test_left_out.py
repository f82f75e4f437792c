"""Every method after every ``nan_policy``: samples that are left out have rows of NaN, and are counted."""

import inspect
import json
import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

from command import run
from tpca import TensorCCA, TensorPCA, TpcaError, load, open_stream
from tpca.errors import SampleError

N = 60
HOLED = [3, 10]  # samples with a missing entry
rng = np.random.default_rng(0)
DOSE = rng.standard_normal(N)
CLASSES = np.array(["a", "b", "c"])[np.arange(N) % 3]
PATTERN = np.multiply.outer([2.0, 1.0, -1.0], [1.0, 1.0, -1.0, 0.0])
NOISE = rng.standard_normal((N, 3, 4))
GAIN = rng.standard_normal(N)


def question(target):
    """Samples, and y, of a kind of question."""
    if target == "mean":
        return NOISE + PATTERN, None
    if target == "variance":
        return NOISE + 2 * GAIN[:, None, None] * PATTERN, None
    if target == "classes":
        return NOISE + (CLASSES == "b")[:, None, None] * PATTERN, CLASSES
    return NOISE + DOSE[:, None, None] * PATTERN, DOSE


def holed(X, places=HOLED):
    X = X.copy()
    X[places, 0, 1] = np.nan
    return X


POLICIES = [
    *((target, "least_squares", "raise") for target in ("mean", "effect", "classes")),
    *((target, "least_squares", "omit") for target in ("mean", "effect", "classes")),
    *((target, "least_squares", "zero") for target in ("mean", "effect")),
    ("variance", "auto", "raise"),
    ("variance", "auto", "omit"),
    ("mean", "race", "raise"),
    ("mean", "race", "omit"),
]


@pytest.mark.parametrize(("target", "solver", "policy"), POLICIES)
def test_every_method_works_after_every_policy(target, solver, policy, tmp_path):
    whole, y = question(target)
    X = whole if policy == "raise" else holed(whole)
    left_out = HOLED if policy == "omit" else []
    estimator = TensorPCA(
        target="effect" if target == "classes" else target, solver=solver, nan_policy=policy, random_state=0
    )
    scores = estimator.fit_transform(X, y)
    assert (estimator.n_samples_seen_, estimator.n_skipped_) == (N - len(left_out), len(left_out))
    assert scores.shape == (N, 1)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(scores[:, 0])), left_out)
    np.testing.assert_array_equal(estimator.transform(X), scores)
    if policy == "omit":  # rows are those of the samples given
        complete = np.delete(np.arange(N), left_out)
        np.testing.assert_allclose(scores[complete], estimator.transform(whole)[complete], rtol=1e-12)

    score = estimator.score(X, y)
    assert (score.n_samples, score.n_skipped) == (N - len(left_out), len(left_out))
    assert ("left out" in repr(score)) == (policy == "omit")
    assert repr(pickle.loads(pickle.dumps(score))) == repr(score)
    used = np.delete(np.arange(N), left_out)
    alone = estimator.score(X[used], None if y is None else y[used])
    assert float(score) == pytest.approx(float(alone), rel=1e-9)
    assert score.standard_error == pytest.approx(alone.standard_error, rel=1e-9)

    plt.close(estimator.plot(X, y))
    plt.close(estimator.plot())
    page = estimator.report(tmp_path / "page.html", X, y).read_text()
    assert ("2 samples have no score" in page) == (policy == "omit")
    assert ("2 left out" in estimator.summary()) == (policy == "omit")
    assert estimator.inverse_transform(scores).shape == (N, 3, 4)
    estimator.save(tmp_path / "r")
    stored = load(tmp_path / "r")
    np.testing.assert_array_equal(stored.transform(X), scores)
    assert repr(stored.score(X, y)) == repr(score)
    plt.close(stored.plot(scores, y))
    estimator.result_.to_xarray()
    estimator.result_.methods()


def test_no_public_method_is_forgotten():
    """All that estimators do with samples is used above."""
    taking_samples = set()
    for name, method in inspect.getmembers(TensorPCA, inspect.isfunction):
        if not name.startswith("_") and "X" in inspect.signature(method).parameters:
            taking_samples.add(name)
    others = {"fit", "partial_fit", "set_score_request"}
    assert taking_samples - others == {"fit_transform", "inverse_transform", "plot", "report", "score", "transform"}


@pytest.mark.parametrize("policy", ["raise", "omit"])
def test_every_method_of_views_works_after_every_policy(policy, tmp_path):
    views_rng = np.random.default_rng(1)
    shared = views_rng.standard_normal(200)
    views = [np.outer(shared, views_rng.standard_normal(4)) + views_rng.standard_normal((200, 4)) for _ in range(2)]
    left_out = []
    if policy == "omit":
        views[0][5, 1] = views[1][9, 0] = np.nan
        left_out = [5, 9]
    cca = TensorCCA(nan_policy=policy, random_state=0)
    scores = cca.fit_transform(views)
    assert (cca.n_samples_seen_, cca.n_skipped_) == (200 - len(left_out), len(left_out))
    for view_scores in scores:
        assert view_scores.shape == (200, 1)
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(view_scores[:, 0])), left_out)
    score = cca.score(views)
    assert (score.n_samples, score.n_skipped) == (200 - len(left_out), len(left_out))
    whole = [np.delete(view, left_out, axis=0) for view in views]
    assert float(score) == pytest.approx(float(cca.score(whole)), rel=1e-9)
    plt.close(cca.plot(views))
    cca.report(tmp_path / "page.html", views)
    predicted = cca.predict([views[0], None])[1]
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(predicted[:, 0])), left_out[:1])
    rebuilt = cca.inverse_transform(scores)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(rebuilt[0][:, 0])), left_out)
    cca.save(tmp_path / "r")
    np.testing.assert_array_equal(load(tmp_path / "r").transform(views)[0], scores[0])


def test_scores_lie_where_the_samples_do_whatever_form_these_have(tmp_path):
    whole, _ = question("mean")
    X = holed(whole)
    np.save(tmp_path / "x.npy", X)
    pca = TensorPCA(nan_policy="omit", random_state=0).fit(X)
    expected = pca.transform(X)
    shuffled = open_stream(X, nan_policy="omit", shuffle=True, random_state=1)
    for samples in (tmp_path / "x.npy", list(X), open_stream(X, nan_policy="omit"), shuffled):
        np.testing.assert_array_equal(pca.transform(samples), expected)
    labelled = xarray.DataArray(X, dims=("trial", "a", "b"), coords={"trial": np.arange(N) * 10})
    scores = TensorPCA(nan_policy="omit", random_state=0).fit_transform(labelled)
    np.testing.assert_array_equal(scores.trial[np.isnan(scores[:, 0])], [30, 100])
    parts = TensorPCA(nan_policy="omit", random_state=0).partial_fit(X[:20]).partial_fit(X[20:])
    np.testing.assert_allclose(parts.transform(X), expected, rtol=1e-9)


def test_what_a_stream_does_about_missing_entries_is_its_own_matter():
    whole, _ = question("mean")
    pca = TensorPCA(nan_policy="omit", random_state=0).fit(holed(whole))
    assert not np.isnan(pca.transform(open_stream(whole))).any()
    with pytest.raises(TpcaError, match="sample 3"):
        pca.transform(open_stream(holed(whole)))
    plain = TensorPCA(random_state=0).fit(whole)
    with pytest.raises(SampleError, match="sample 3"):
        plain.transform(holed(whole))
    assert plain.score(open_stream(holed(whole), nan_policy="omit")).n_skipped == 2


@pytest.mark.parametrize("target", ["mean", "effect", "variance"])
def test_where_nothing_is_left_there_is_no_score(target):
    X, y = question(target)
    pca = TensorPCA(target=target, nan_policy="omit", random_state=0).fit(X, y)
    nothing = np.full_like(X, np.nan)
    assert np.isnan(pca.transform(nothing)).all()
    with pytest.raises(SampleError, match="60"):
        pca.score(nothing, y)
    with pytest.raises(SampleError, match="60"):
        pca.plot(nothing, y)


def test_a_sample_without_any_observed_entry_has_no_score():
    X, _ = question("mean")
    X = holed(X)
    X[7] = np.nan
    pca = TensorPCA(nan_policy="zero", random_state=0).fit(X)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(pca.transform(X)[:, 0])), [7])
    assert (pca.score(X).n_samples, pca.score(X).n_skipped) == (59, 1)


@pytest.mark.parametrize("target", ["mean", "effect", "classes", "variance"])
def test_a_line_says_so_where_more_than_a_tenth_was_left_out(target):
    X, y = question(target)
    fitted = "effect" if target == "classes" else target
    for count, told in ((6, False), (9, True)):
        pca = TensorPCA(target=fitted, nan_policy="omit", random_state=0).fit(holed(X, range(count)), y)
        lines = [line for line in pca.result_.advice if "left out" in line]
        assert bool(lines) == told
    assert "9 of 60" in lines[0]
    assert "15 %" in lines[0]
    assert ('nan_policy="zero"' in lines[0]) == (target in ("mean", "effect"))
    assert lines[0].split(".")[0] in " ".join(pca.summary().split())


def test_the_line_stands_for_views_and_for_batches_that_were_handed_in():
    views_rng = np.random.default_rng(2)
    views = [views_rng.standard_normal((100, 3)) for _ in range(2)]
    views[0][:20] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cca = TensorCCA(nan_policy="omit", random_state=0).fit(views)
    assert any("20 of 100" in line for line in cca.result_.advice)
    X, _ = question("mean")
    pca = TensorPCA(nan_policy="omit", random_state=0).partial_fit(holed(X, range(12)))
    assert any("12 of 60" in line for line in pca.result_.advice)


def test_the_command_counts_what_it_used(tmp_path):
    X, y = question("effect")
    np.save(tmp_path / "x.npy", holed(X))
    np.save(tmp_path / "y.npy", y)
    fit = ("fit", "x.npy", "--y", "y.npy", "--nan-policy", "omit", "--out", "r", "--report", "r.html", "--json")
    done = run(*fit, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["n_samples"], told["n_skipped"]) == (58, 2)
    assert "2 samples have no score" in (tmp_path / "r.html").read_text()
    told = json.loads(run("score", "x.npy", "r", "--y", "y.npy", "--json", cwd=tmp_path).stdout)
    assert (told["samples"], told["left_out"]) == (58, 2)
    assert "58 samples, 2 left out" in run("score", "x.npy", "r", "--y", "y.npy", cwd=tmp_path).stdout
    done = run("report", "r", "--out", "again.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 samples have no score" in (tmp_path / "again.html").read_text()
