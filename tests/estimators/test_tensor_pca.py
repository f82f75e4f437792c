"""TensorPCA keeps scikit-learn's conventions, and fit, partial_fit and streams agree."""

import pickle
import re

import numpy as np
import pandas
import pytest
import xarray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import naive
from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorPCA, TpcaError, load, open_stream
from tpca.errors import MemoryBudgetError, SampleError, SolverError, StreamError
from tpca.solvers.least_squares.solver import LeastSquares

TRUTH = SpikedTensor.random((6, 5, 4), 2.0, random_state=1)
DATA = next(iter(TRUTH.stream(random_state=2, batch_size=200)))
NOISE = np.random.default_rng(5).standard_normal((120, 6, 5, 4))


def bits(pca):
    """All that a fit says, as bytes."""
    arrays = [*pca.components_, *pca.standard_errors_, pca.strengths_, pca.strength_intervals_, pca.p_values_]
    arrays += [pca.null_distribution_, pca.entry_p_values_]
    return [None if one is None else np.asarray(one).tobytes() for one in arrays]


@pytest.mark.parametrize("solver", ["auto", "least_squares", "race"])
def test_a_fit_has_all_attributes_and_a_definite_sign(solver):
    pca = TensorPCA(solver=solver, random_state=0).fit(DATA)
    assert [c.shape for c in pca.components_] == [(1, 6), (1, 5), (1, 4)]
    assert all(abs(np.linalg.norm(c) - 1) < 1e-12 for c in pca.components_)
    # Squared error (d-1)/(λ²N) = 0.6 %: an overlap below 0.95 is more than ten standard errors away.
    assert min(TRUTH.overlaps(pca.components_)) > 0.95
    assert all(c[0, np.argmax(np.abs(c))] > 0 for c in pca.components_[:-1])
    assert pca.score(DATA) > 0
    assert abs(pca.strengths_[0] - 2) < 8 / np.sqrt(200)
    assert pca.strength_intervals_[0, 0] <= pca.strengths_[0] <= pca.strength_intervals_[0, 1]
    assert (pca.n_samples_seen_, pca.n_skipped_, pca.n_features_in_, pca.shape_in_) == (200, 0, 120, (6, 5, 4))
    assert [e.shape for e in pca.standard_errors_] == [(1, 6), (1, 5), (1, 4)]
    assert pca.solver_ == ("race" if solver == "race" else "least_squares")
    assert list(pca.get_feature_names_out()) == ["tensorpca0"]
    assert (pca.verdict_, pca.found_, pca.significant_.tolist()) == ("signal", True, [True])
    assert bits(TensorPCA(solver=solver, random_state=0).fit(DATA)) == bits(pca)


def test_transform_score_and_inverse():
    pca = TensorPCA(random_state=0).fit(DATA[:100])
    scores = pca.transform(DATA[100:])
    direct = np.einsum("nabc,a,b,c->n", DATA[100:], *(vectors := [v[0] for v in pca.components_]))
    np.testing.assert_allclose(scores[:, 0], direct, rtol=1e-10)
    score = pca.score(DATA[100:])
    np.testing.assert_allclose([score, score.standard_error], [direct.mean(), direct.std(ddof=1) / 10], rtol=1e-10)
    assert pickle.loads(pickle.dumps(score)).standard_error == score.standard_error
    back = pca.inverse_transform(scores)
    np.testing.assert_allclose(back[3], direct[3] * np.einsum("a,b,c->abc", *vectors), rtol=1e-9)
    # Of the samples that were fitted the score is the fit's own length, which the strength is a little less than.
    assert float(pca.score(DATA[:100])) == pytest.approx(pca.result_.components[0].length)
    assert float(pca.score(DATA[:100])) >= pca.strengths_[0]


def test_the_score_of_an_effect_is_the_slope_of_scores_and_that_of_variation_their_variance(rng):
    y = rng.standard_normal(200)
    X = NOISE.repeat(2, axis=0)[:200] + np.multiply.outer(y, TRUTH.signal())
    pca = TensorPCA(target="effect", random_state=0).fit(X, y)
    slope = np.polyfit(y, pca.transform(X)[:, 0], 1)[0]
    assert float(pca.score(X, y)) == pytest.approx(slope)
    assert slope == pytest.approx(pca.result_.components[0].length)
    X = NOISE + np.multiply.outer(2 * rng.standard_normal(120), TRUTH.signal())
    pca = TensorPCA(2, target="variance", random_state=0).fit(X)
    assert float(pca.score(X)) == pytest.approx(pca.transform(X).var(axis=0, ddof=1).sum())
    np.testing.assert_allclose(pca.explained_variance_[0], pca.transform(X)[:, 0].var(ddof=1), rtol=1e-9)


# Samples that are handed in ------------------------------------------------------------------------------------------


def told(target, n, rng):
    """What goes with every sample."""
    labels = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    return {
        "mean": {},
        "effect": {"y": rng.standard_normal(n), "nuisance": rng.standard_normal(n)},
        "labels": {"y": labels},
        "groups": {"groups": rng.integers(0, 8, n)},
        "weights": {"sample_weight": rng.uniform(0.5, 2, n)},
        "variance": {},
    }[target]


TARGETS = {"effect": "effect", "labels": "effect", "variance": "variance"}


@pytest.mark.parametrize("target", ["mean", "effect", "labels", "groups", "weights", "variance"])
def test_partial_fit_goes_on_after_looks_and_pickles_with_the_same_bits(target, rng):
    X, known = DATA[:100], told(target, 100, rng)
    options = {"target": TARGETS.get(target, "mean"), "random_state": 0, "n_resamples": 49}
    classes = {"classes": ["a", "b", "c"]} if target == "labels" else {}
    parts, plain = TensorPCA(**options), TensorPCA(**options)
    for i, some in enumerate(np.array_split(np.arange(100), [3, 20, 21, 60])):
        own = {name: column[some] for name, column in known.items()}
        plain.partial_fit(X[some], **own, **(classes if i == 0 else {}))
        parts.partial_fit(X[some], **own, **(classes if i == 0 else {}))
        if i in (1, 3):
            assert np.isfinite(parts.strengths_).all()  # a look
            parts = pickle.loads(pickle.dumps(parts))
    assert bits(parts) == bits(plain)
    whole = TensorPCA(**options).fit(X, known.pop("y", None), **known)
    np.testing.assert_allclose(parts.result_.components[0].length, whole.result_.components[0].length, rtol=1e-9)
    for mine, theirs in zip(parts.components_, whole.components_, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)
    assert parts.n_samples_seen_ == 100


@pytest.mark.parametrize("options", [{}, {"dependence": None}, {"dependence": 4}], ids=str)
def test_units_of_later_batches_count(options):
    """Of 15 batches of 8 samples: 30 groups of 4; 120 samples; 30 units of 4 neighbours."""
    parts, groups = TensorPCA(random_state=0, n_resamples=99, **options), np.arange(120) // 4
    for i in range(0, 120, 8):
        parts.partial_fit(DATA[i : i + 8], groups=None if options else groups[i : i + 8])
    whole = TensorPCA(random_state=0, n_resamples=99, **options).fit(DATA[:120], groups=None if options else groups)
    assert parts.result_.n_units == whole.result_.n_units == (120 if options == {"dependence": None} else 30)
    np.testing.assert_allclose(parts.null_distribution_, whole.null_distribution_, rtol=1e-9)
    assert parts.found_


@pytest.mark.parametrize("target", ["mean", "variance"])
@pytest.mark.parametrize("cuts", [[], [1], [50, 51, 99], [7, 14, 21, 28, 35]])
def test_partial_fit_has_the_bits_of_an_iterable_of_the_same_batches(target, cuts):
    batches = np.split(DATA[:100], cuts)
    options = {"target": target, "random_state": 0, "n_resamples": 49}
    whole = TensorPCA(**options).fit(open_stream(iter(batches), items="batches"))
    parts = TensorPCA(**options)
    for batch in batches:
        parts.partial_fit(batch)
    assert bits(parts) == bits(whole)


def test_a_batch_that_is_refused_leaves_no_trace_and_labels_must_be_known():
    holed = DATA[100:110].copy()
    holed[7, 0, 0] = np.nan
    pca, whole = TensorPCA(random_state=0).partial_fit(DATA[:100]), TensorPCA(random_state=0).partial_fit(DATA[:100])
    with pytest.raises(SampleError, match="sample 7 contains NaN"):
        pca.partial_fit(holed)
    with pytest.raises(SampleError, match="as in the first batch"):
        pca.partial_fit(DATA[:5, :5])
    assert bits(pca.partial_fit(DATA[100:])) == bits(whole.partial_fit(DATA[100:]))
    pca = TensorPCA(target="effect", random_state=0)
    with pytest.raises(SampleError, match=r"classes=\['a', 'b'\]"):
        pca.partial_fit(DATA[:4], ["a", "b", "a", "b"])
    pca.partial_fit(DATA[:4], ["a", "b", "a", "b"], classes=["a", "b"])
    with pytest.raises(SampleError, match="label 'c'; known are 'a', 'b'"):
        pca.partial_fit(DATA[4:6], ["a", "c"])
    pca.partial_fit(DATA[4:8], ["a", "a", "a", "b"])
    assert pca.n_samples_seen_ == 8
    for y, classes in (([1.0] * 9, None), (["a"] * 9, "ab"), (list("abababaab"), "abc")):  # a look before y differs
        pca = TensorPCA(target="effect", random_state=0).partial_fit(DATA[:9], y, classes=classes)
        with pytest.raises(SampleError, match="y is constant in the samples that were used"):
            _ = pca.p_values_


# Shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["least_squares", "race"])
@pytest.mark.parametrize("X", [NOISE, NOISE[:3], DATA], ids=["noise", "three samples", "signal"])
def test_shapes_never_depend_on_the_verdict(solver, X):
    pca = TensorPCA(2, solver=solver, random_state=0, confidence=0.99999, n_resamples="auto").fit(X)
    assert [v.shape for v in pca.components_] == [v.shape for v in pca.standard_errors_] == [(2, 6), (2, 5), (2, 4)]
    assert (pca.strengths_.shape, pca.strength_intervals_.shape, pca.p_values_.shape) == ((2,), (2, 2), (2,))
    assert pca.significant_.shape == (2,)
    assert pca.transform(X).shape == (len(X), 2)
    assert list(pca.get_feature_names_out()) == ["tensorpca0", "tensorpca1"]
    assert pca.inverse_transform(np.zeros((3, 2))).shape == (3, 6, 5, 4)
    with pytest.raises(SampleError, match=r"scores must have shape \(n, 2\), got \(3, 1\)"):
        pca.inverse_transform(np.ones((3, 1)))


@pytest.mark.parametrize("target", ["mean", "effect", "variance"])
def test_rows_that_cannot_be_had_are_zeros(target, rng):
    """Matrices of 2 × 3 have two components; a third is asked for."""
    X, y = rng.standard_normal((40, 2, 3)) + 1, rng.standard_normal(40)
    count = 3 if target != "variance" else 8
    pca = TensorPCA(count, target=target, random_state=0).fit(X, y if target == "effect" else None)
    assert [v.shape for v in pca.components_] == [(count, 2), (count, 3)]
    assert all((v[-1] == 0).all() for v in pca.components_)
    assert (pca.strengths_[-1], pca.p_values_[-1], pca.significant_[-1]) == (0, 1, False)
    assert np.isfinite(pca.transform(X)).all()


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("target", ["mean", "effect", "variance"])
def test_samples_of_every_order(order, target, rng):
    """A pattern of ten times the noise, in all entries: no flip but its own mirror image comes near it."""
    dims = (3, 2, 2, 3, 2, 2, 2, 2)[:order] if order > 1 else (7,)
    pattern = naive.outer_product([rng.choice([-1.0, 1.0], d) / np.sqrt(d) for d in dims])
    y = rng.standard_normal(40)
    X = rng.standard_normal((40, *dims)) + 10 * (pattern if target == "mean" else np.multiply.outer(y, pattern))
    pca = TensorPCA(target=target, random_state=0, n_resamples=49, dependence=None)
    pca.fit(X, y if target == "effect" else None)
    assert pca.p_values_[0] <= 2 / 50
    assert pca.found_
    found = naive.outer_product([v[0] for v in pca.components_])
    assert abs(np.vdot(found, pattern)) > 0.95


@pytest.mark.parametrize("target", ["mean", "effect", "variance"])
def test_the_form_of_samples_changes_no_more_than_their_digits(target, rng):
    X = (rng.random((60, 8, 7)) < 0.2) * rng.exponential(1.0, (60, 8, 7))
    y = rng.standard_normal(60) if target == "effect" else None
    sparse = [csr_array(one) for one in X]
    wide, narrow, few = (
        TensorPCA(target=target, random_state=0, n_resamples=49).fit(one, y)
        for one in (X, X.astype(np.float32), sparse)
    )
    np.testing.assert_allclose(narrow.strengths_, wide.strengths_, rtol=1e-5)
    for a, b in zip(narrow.components_, wide.components_, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    np.testing.assert_allclose(few.strengths_, wide.strengths_, rtol=1e-9)
    np.testing.assert_allclose(few.strength_intervals_, wide.strength_intervals_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(few.transform(sparse), wide.transform(X), atol=1e-7)


# Conventions ---------------------------------------------------------------------------------------------------------


def test_clones_pipelines_frames_and_cross_validation_also_on_folds_without_a_signal():
    pca = TensorPCA(3, memory_limit="1MB", preprocess=np.tanh, random_state=3)
    twin = clone(pca.set_params(whiten=None))
    assert twin.get_params() == pca.get_params()
    assert "memory_limit='1MB'" in repr(pca)
    assert clone(TensorPCA(solver=PaperSolver(strength=2.0))).solver.strength == 2.0
    assert clone(TensorPCA(random_state=0).fit(DATA[:20])).get_params()["random_state"] == 0
    target = TensorPCA(random_state=0).fit(DATA).transform(DATA)[:, 0] + 1.0
    pipe = make_pipeline(TensorPCA(random_state=0), LinearRegression()).fit(DATA, target)
    assert pipe.score(DATA, target) > 0.99
    pca = TensorPCA(2, random_state=0).set_output(transform="pandas").fit(DATA)
    frame = pca.transform(DATA)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["tensorpca0", "tensorpca1"]
    assert cross_val_score(TensorPCA(random_state=0), DATA, cv=3).min() > 1.5
    assert np.isfinite(cross_val_score(TensorPCA(2, random_state=0), NOISE, cv=4)).all()
    grid = {"n_components": [1, 2], "whiten": ["auto", None, "modes"]}
    search = GridSearchCV(TensorPCA(random_state=0, n_resamples=49), grid, cv=3).fit(NOISE)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    y = np.random.default_rng(0).standard_normal(120)
    slopes = cross_val_score(TensorPCA(target="effect", random_state=0, n_resamples=49), NOISE, y, cv=3)
    assert np.isfinite(slopes).all()


def test_labelled_samples_keep_their_names():
    named = xarray.DataArray(DATA, dims=("trial", "a", "b", "c"), coords={"a": list("uvwxyz"), "trial": np.arange(200)})
    turned = named.transpose("a", "trial", "b", "c")
    pca, plain = TensorPCA(random_state=0).fit(turned, dim="trial"), TensorPCA(random_state=0).fit(DATA)
    assert bits(pca) == bits(plain)
    scores = pca.transform(turned)
    assert scores.dims == ("trial", "component")
    np.testing.assert_array_equal(scores.values, plain.transform(DATA))
    with pytest.raises(TpcaError, match="entry 0 of 'a' is 'z', expected 'u'"):
        pca.transform(turned.isel(a=[5, 4, 3, 2, 1, 0]))


@pytest.mark.parametrize("state", [0, np.random.default_rng(1), np.random.RandomState(2), None])
def test_the_seed_moves_p_and_not_the_estimate(state):
    pca, other = TensorPCA(random_state=state).fit(DATA), TensorPCA(random_state=77).fit(DATA)
    assert bits(pca)[:8] == bits(other)[:8]


@pytest.mark.parametrize("solver", ["least_squares", "race"])
def test_batches_may_come_as_arrays_of_any_layout_and_as_lists(solver):
    """All but the first are known to be like the first, whatever holds them."""
    plain = TensorPCA(solver=solver, random_state=0)
    mixed = TensorPCA(solver=solver, random_state=0)
    forms = [np.asarray, np.asfortranarray, lambda batch: batch[::-1][::-1], lambda batch: batch.tolist()]
    for number, batch in enumerate(np.split(DATA, 20)):
        plain.partial_fit(batch)
        mixed.partial_fit(forms[number % len(forms)](batch))
    assert bits(mixed) == bits(plain)


@pytest.mark.parametrize("solver", ["least_squares", "race"])
def test_a_batch_that_is_not_like_the_first_is_refused_and_leaves_no_trace(solver):
    pca, whole = (TensorPCA(solver=solver, random_state=0).partial_fit(DATA[:100]) for _ in range(2))
    with_nan = DATA[100:103].copy()
    with_nan[1, 2, 3, 1] = np.inf
    for batch, says in (
        (DATA[100:, :5], r"shape \(6, 5, 4\).*got"),
        (DATA[100], r"samples must|shape \(6, 5, 4\)"),
        (DATA[:0], "the stream is empty"),
        (DATA[100:].astype(np.float32), "expected float64 NumPy, got float32 NumPy; convert"),
        (DATA[100:] * 1j, "real numbers, got dtype complex128"),
        (with_nan, "sample 1 contains NaN or Inf"),
        (np.ma.masked_greater(DATA[100:], 2.0), "masked arrays would lose their mask"),
    ):
        with pytest.raises(TpcaError, match=says):
            pca.partial_fit(batch)
    assert bits(pca.partial_fit(DATA[100:])) == bits(whole.partial_fit(DATA[100:]))


def test_entries_too_large_for_their_squares_are_no_missing_ones():
    large = np.float32(1e25) * DATA.astype(np.float32)
    pca = TensorPCA(random_state=0).partial_fit(large[:100]).partial_fit(large[100:])
    small = TensorPCA(random_state=0).partial_fit(DATA.astype(np.float32))
    np.testing.assert_allclose(pca.strengths_, 1e25 * small.strengths_, rtol=1e-3)
    large[150, 0, 0, 0] = np.nan
    with pytest.raises(SampleError, match="sample 50 contains NaN or Inf"):
        pca.partial_fit(large[100:])


def test_a_function_of_ones_own_is_applied_everywhere():
    def halved(batch):
        return batch / 2

    pca = TensorPCA(preprocess=halved, random_state=0).fit(DATA)
    plain = TensorPCA(random_state=0).fit(DATA / 2)
    assert bits(pca) == bits(plain)
    np.testing.assert_array_equal(pca.transform(DATA), plain.transform(DATA / 2))
    assert float(pca.score(DATA)) == float(plain.score(DATA / 2))
    parts = TensorPCA(preprocess=halved, random_state=0).partial_fit(DATA[:50]).partial_fit(DATA[50:])
    assert bits(parts) == bits(TensorPCA(random_state=0).partial_fit(DATA[:50] / 2).partial_fit(DATA[50:] / 2))


def test_nan_policies():
    data = DATA.copy()
    data[[3, 77], 0, 0, 0] = np.nan
    with pytest.raises(SampleError, match="sample 3"):
        TensorPCA(random_state=0).fit(data)
    skipped = TensorPCA(random_state=0, nan_policy="omit").fit(data)
    assert (skipped.n_samples_seen_, skipped.n_skipped_) == (198, 2)
    filled = TensorPCA(random_state=0, nan_policy="zero").fit(data)
    assert (filled.n_samples_seen_, filled.n_skipped_) == (200, 0)
    parts = TensorPCA(random_state=0, nan_policy="omit").partial_fit(data[:100]).partial_fit(data[100:])
    assert parts.n_skipped_ == 2


def test_the_solver_is_chosen_and_named(capsys):
    small = TensorPCA(random_state=0, verbose=1).fit(DATA)
    assert capsys.readouterr().out.splitlines()[0] == f"[TensorPCA] solver least_squares: {small.solver_reason_}"
    assert "fit into memory" in small.solver_reason_
    tight = TensorPCA(random_state=0, memory_limit=14_000).fit(DATA)
    assert tight.solver_ == "race"
    assert "the memory is 14 kB" in tight.solver_reason_
    assert "the memory is 14 kB" in str(tight.summary())
    asked = TensorPCA(solver="race", random_state=0).fit(DATA)
    assert bits(asked) != bits(small)
    assert not any("Solved by the race" in line for line in [*asked.result_.advice, *small.result_.advice])
    assert TensorPCA(random_state=0, memory_limit=14_000).partial_fit(DATA).solver_ == "race"
    assert TensorPCA(solver=RaceSolver(random_state=4)).fit(DATA).solver_ == "race"
    assert TensorPCA(random_state=0).fit(TRUTH.stream(random_state=3)).solver_ == "race"
    bounded = TensorPCA(random_state=0, max_samples=100).fit(TRUTH.stream(random_state=3))
    assert (bounded.solver_, bounded.n_samples_seen_) == ("least_squares", 100)
    with pytest.raises(TpcaError, match="memory"):  # an effect is nothing for the race
        TensorPCA(target="effect", memory_limit=14_000).fit(DATA, np.arange(200.0))
    given = TensorPCA(solver=LeastSquares(random_state=0)).fit(DATA)
    assert bits(given) == bits(TensorPCA(random_state=0).fit(DATA))


SMALL = {"memory_limit": 14_000, "random_state": 0}
NUMBERS = np.random.default_rng(8).standard_normal(len(DATA))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (SMALL, r"the sums of 24 units .* take 64.3 kB, the memory is 14 kB; raise memory_limit to 65 kB to use"),
        ({**SMALL, "target": "effect"}, r"take 88.3 kB, the memory is 14 kB; raise memory_limit to 89 kB to use"),
        ({"random_state": 0}, "the samples never end, .* give max_samples to use least squares"),
    ],
    ids=["mean", "effect", "endless"],
)
def test_a_line_says_why_the_race_was_taken(options, says, tmp_path):
    data = DATA if "memory_limit" in options else TRUTH.stream(random_state=3)
    pca = TensorPCA(**options).fit(data, NUMBERS if "target" in options else None)
    (line,) = [line for line in pca.result_.advice if line.startswith("Solved by the race, not least squares: ")]
    assert re.search(says, line)
    assert line in " ".join(str(pca.summary()).split())
    assert line in load(pca.save(tmp_path / "saved")).advice
    fed = TensorPCA(**{**options, "target": "mean"}).partial_fit(DATA)
    assert fed.solver_ == ("race" if "memory_limit" in options else "least_squares")
    assert any("Solved by the race" in line for line in fed.result_.advice) == (fed.solver_ == "race")


def test_the_memory_that_a_line_asks_for_is_enough():
    for options in ({}, {"target": "effect"}, {"target": "effect", "dependence": None}):
        asked = None if not options else NUMBERS
        small = TensorPCA(**SMALL, **options).fit(DATA, asked)
        needed = re.search("raise memory_limit to (.*) to use", small.result_.advice[-1])[1]
        assert TensorPCA(memory_limit=needed, random_state=0, **options).fit(DATA, asked).solver_ == "least_squares"


@pytest.mark.parametrize("dependence", [None, 4])
def test_what_dependence_says_holds_for_the_race_too(dependence):
    pca = TensorPCA(**SMALL, dependence=dependence, whiten=None).fit(DATA)
    asked = TensorPCA(solver=RaceSolver(memory_limit=14_000, groups=dependence or 1, max_passes="auto", random_state=0))
    assert bits(pca) == bits(asked.fit(DATA))


ONLY_LEAST_SQUARES = [
    ({"n_resamples": 99, "whiten": "modes"}, {}, "or leave out n_resamples=99 and whiten='modes', and the race"),
    ({"n_components": "auto"}, {}, "or leave out n_components='auto', and the race"),
    ({}, {"sample_weight": np.ones(200), "groups": np.arange(200) // 4}, "or leave out sample_weight and groups, and"),
    ({"nan_policy": "zero"}, {}, "or use nan_policy='omit', and the race"),
    ({"target": "effect"}, {"y": NUMBERS, "nuisance": NUMBERS**2}, "or leave out nuisance, and the race"),
    ({"target": "effect"}, {"y": np.c_[NUMBERS, NUMBERS**2]}, "or give one number or two labels for every sample, and"),
    ({"target": "effect"}, {"y": ["a", "b", "c", "d"] * 50}, "or give one number or two labels for every sample, and"),
    ({"target": "effect", "dependence": 3}, {"y": NUMBERS}, "or leave out dependence=3, and the race"),
]


@pytest.mark.parametrize(("options", "given", "says"), ONLY_LEAST_SQUARES, ids=str)
def test_where_only_least_squares_has_what_was_asked_the_error_is_of_memory(options, given, says):
    with pytest.raises(MemoryBudgetError, match=rf"the memory is 14 kB; raise memory_limit to \d+ kB, {says}") as told:
        TensorPCA(**SMALL, **options).fit(DATA, **given)
    assert str(told.value).count(";") == 1
    needed = re.search("raise memory_limit to (.*?), or", str(told.value))[1]
    assert TensorPCA(**{**SMALL, **options, "memory_limit": needed}).fit(DATA, **given).solver_ == "least_squares"


def test_effects_that_are_handed_in_and_samples_of_one_axis_are_nothing_for_the_race():
    with pytest.raises(MemoryBudgetError, match="or give all samples to fit at once, and the race"):
        TensorPCA(target="effect", **SMALL).partial_fit(DATA, NUMBERS)
    with pytest.raises(MemoryBudgetError, match="or give samples of two axes or more, and the race"):
        TensorPCA(**SMALL).fit(DATA.reshape(200, -1))
    with pytest.raises(SolverError, match=r"never end.*; give max_samples, or leave out n_resamples=99, and the race"):
        TensorPCA(n_resamples=99).fit(TRUTH.stream(random_state=3))


@pytest.mark.parametrize("memory_limit", [None, 60_000])
def test_variation_tells_its_progress(memory_limit, capsys):
    """In one pass, and in many where the memory holds neither the samples nor their second moment."""
    TensorPCA(target="variance", random_state=0, verbose=2, memory_limit=memory_limit).fit(DATA)
    lines = capsys.readouterr().out.splitlines()
    assert any("samples  moments" in line for line in lines)
    assert any("samples  directions" in line for line in lines) == (memory_limit is not None)


# What is refused -----------------------------------------------------------------------------------------------------


def test_before_a_fit_there_is_nothing_and_samples_of_other_shapes_are_refused():
    with pytest.raises(NotFittedError):
        TensorPCA().transform(DATA)
    assert not hasattr(TensorPCA(), "components_")
    with pytest.raises(SampleError, match=r"\(6, 5, 4\), got \(5, 4\)"):
        TensorPCA(random_state=0).fit(DATA).transform(DATA[:, 0])
    with pytest.raises(SolverError, match="partial_fit needs solver='least_squares', 'race' or 'auto'"):
        TensorPCA(solver="paper").partial_fit(DATA)


OPTIONS = [
    ({"solver": "best"}, "solver must be 'auto', 'least_squares', 'race' or 'paper', got 'best'"),
    ({"solver": RaceSolver}, r"got the class RaceSolver; make one: RaceSolver\(\)"),
    ({"solver": "paper", "memory_limit": "1MB"}, "memory_limit='1MB' means nothing to solver='paper'"),
    ({"solver": "race", "dependence": None}, "dependence=None means nothing to solver='race'"),
    ({"solver": RaceSolver(), "confidence": 0.9}, "confidence means nothing beside .*; give it to that RaceSolver"),
    ({"target": "median"}, "target must be 'mean', 'effect' or 'variance', got 'median'"),
    ({"target": "variance", "solver": "race"}, "solver='race' means nothing to target='variance'"),
    *(({"n_components": n}, f"n_components must be a whole number of at least 1 or 'auto', got {n}") for n in (0, 2.5)),
    ({"confidence": 95}, "confidence must lie strictly between 0 and 1, got 95"),
    ({"n_resamples": 3}, "n_resamples must be a whole number of at least 19 or 'auto', got 3"),
    ({"whiten": "full"}, "whiten must be 'auto', 'modes' or None, got 'full'"),
    ({"dependence": 0}, "dependence must be a whole number of at least 1, 'auto' or None, got 0"),
    *(({name: np.array([0.9, 0.95])}, rf"{name} must .*, got array\(\[0.9 , 0.95\]\)") for name in (
        "n_components", "target", "solver", "confidence", "n_resamples", "whiten", "dependence", "memory_limit",
        "max_samples", "random_state",
    )),
]  # fmt: skip


N = len(DATA)
HALVES = np.repeat(["a", "b"], N // 2)
TOLD = "is constant, or the nuisances and other columns determine it"
BAD = {
    "another length": ({"y": np.arange(N - 1.0)}, "y must have a row for every sample, 200 of them, got 199"),
    "no y": ({}, "target='effect' needs y"),
    "constant y": ({"y": np.ones(N)}, "y is 1 for all 200 samples"),
    "one of two columns constant": ({"y": np.eye(2)[np.zeros(N, int)]}, "column 0 of y is 1 for all"),
    "determined": ({"y": np.arange(N) * 2.0 + 1, "nuisance": np.arange(N)}, f"y {TOLD}"),
    "one label": ({"y": ["a"] * N}, "y has one label, 'a', for all 200 samples"),
    "no label": ({"y": ["a", None] * (N // 2)}, "y has no label for sample 1"),
    "a label each": ({"y": [f"s{i}" for i in range(N)]}, "y has 200 labels for 200 samples"),
    "NaN": ({"y": np.where(np.arange(N) == 5, np.nan, np.arange(N))}, "y is NaN or Inf for sample 5"),
    "masked": ({"y": np.ma.masked_equal(np.arange(N), 7)}, "y is masked for sample 7"),
    "complex": ({"y": np.arange(N) * 1j}, "y must be real numbers, got complex128"),
    "times": ({"y": np.arange(N).astype("datetime64[D]")}, "y must be numbers, got times"),
    "nuisance of another length": ({"y": HALVES, "nuisance": np.arange(3.0)}, "nuisance must have a row for every"),
    "groups as floats": ({"y": HALVES, "groups": np.arange(N) / 2}, "groups must be labels or whole numbers"),
    "groups of another length": ({"y": HALVES, "groups": np.arange(3)}, "groups must have a row for every"),
    "negative weights": ({"y": HALVES, "sample_weight": np.arange(N) - 1.0}, "sample_weight must be .*got -1"),
    "zero weights": ({"y": HALVES, "sample_weight": np.zeros(N)}, "sample_weight must be .*not all zero, got 0"),
    "weight of one side": ({"y": HALVES, "sample_weight": (HALVES == "a") * 1.0}, f"y .*{TOLD}"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_conditions_are_refused_in_a_sentence_before_anything_is_read(name):
    given, says = BAD[name]
    with pytest.raises(SampleError, match=says) as told:
        TensorPCA(target="effect").fit(DATA, **given)
    assert "\n" not in str(told.value)


REFUSED = [
    *((SolverError, says, options, {}) for options, says in OPTIONS),
    (SampleError, "nuisance is for target='effect', not for target='mean'", {}, {"nuisance": np.arange(N)}),
    (SampleError, "target='variance' takes no groups", {"target": "variance"}, {"groups": np.arange(N)}),
    (SampleError, "target='variance' takes no sample_weight", {"target": "variance"}, {"sample_weight": np.ones(N)}),
    *((SampleError, r"preprocess must keep the shape \(\d+, 6, 5, 4\), gave", {"preprocess": cut}, {})
      for cut in (lambda x: x[:, :2], lambda x: x[:1])),
    (StreamError, "preprocess must be a function of a batch of samples, got 3", {"preprocess": 3}, {}),
    (SolverError, "checkpoint must be a folder, as text or as a path, got 1", {}, {"checkpoint": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("error", "says", "options", "given"), REFUSED)
def test_bad_options_and_what_does_not_go_together_are_refused(error, says, options, given):
    with pytest.raises(error, match=says):
        TensorPCA(**options).fit(DATA, **given)


@pytest.mark.parametrize("options", [{}, {"target": "variance"}, {"target": "effect"}], ids=str)
def test_samples_that_are_all_the_same_or_fewer_than_two_are_refused(options):
    """Contrasts of such samples are rounding, of which 7 fits of 60 made a signal."""
    for scale in (0.0, 1.0, 777.7):
        same = np.broadcast_to(scale * np.random.default_rng(1).standard_normal((4, 5)), (100, 4, 5))
        with pytest.raises(StreamError, match=r"all samples are the same.*give samples that differ"):
            TensorPCA(**options, random_state=0).fit(same, np.random.default_rng(2).standard_normal(100))
    for count in (0, 1):
        with pytest.raises((SampleError, StreamError)) as told:
            TensorPCA(**options).fit(
                DATA[:count], np.arange(count * 1.0) if options.get("target") == "effect" else None
            )
        assert "\n" not in str(told.value)
