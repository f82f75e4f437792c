"""What newcomers tried and met a traceback or a wrong answer: now it works, or one line says the way out."""

import json

import numpy as np
import pytest
import scipy.io
import xarray
from sklearn.exceptions import ConvergenceWarning

from command import line, run
from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorCCA, TensorPCA, open_views
from tpca.errors import OutputError, SampleError, SolverError, StreamError, StreamWarning

TRUTH = SpikedTensor.random((4, 5, 3), 3.0, random_state=1)
X = next(iter(TRUTH.stream(random_state=2, batch_size=60)))


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, "omit"),
        ({}, "zero"),
        ({"solver": "race"}, "omit"),
        ({"target": "variance"}, "omit"),
        ({"target": "effect"}, "omit"),
        ({"target": "effect"}, "zero"),
    ],
    ids=str,
)
def test_no_samples_at_all_are_no_verdict(policy, options):
    with pytest.raises(StreamError, match=r"60 of them, were left out because of NaN or Inf.*nan_policy.*--nan-policy"):
        TensorPCA(nan_policy=policy, **options).fit(
            np.full_like(X, np.nan), np.arange(60) % 2 if options.get("target") == "effect" else None
        )


def test_what_to_do_about_nan_is_told_as_the_command_spells_it(tmp_path):
    np.save(tmp_path / "d.npy", np.where(np.arange(60)[:, None, None, None] == 3, np.nan, X))
    assert "--nan-policy" in line(run("fit", "d.npy", "--out", "o", cwd=tmp_path))
    np.save(tmp_path / "none.npy", np.full_like(X, np.nan))
    refused = run("fit", "none.npy", "--out", "o", "--nan-policy", "omit", cwd=tmp_path)
    assert "--nan-policy zero" in line(refused)
    assert not (tmp_path / "o" / "result.json").exists()


def test_files_as_newcomers_have_them(tmp_path):
    np.savez(tmp_path / "d.npz", x=X)
    scipy.io.savemat(tmp_path / "d.mat", {"x": X})
    expected = TensorPCA(random_state=0).fit(X).strengths_
    for name in ("d.npz", "d.mat"):
        assert TensorPCA(random_state=0).fit(tmp_path / name).strengths_ == expected
    np.savetxt(tmp_path / "d.csv", X.reshape(60, -1), delimiter=",")
    assert "numpy.loadtxt" in line(run("fit", "d.csv", "--out", "o", cwd=tmp_path))


def test_reports_make_no_folders(tmp_path):
    np.save(tmp_path / "d.npy", X)
    nowhere = ("cannot write", "there is no folder", "make it first")
    refused = line(run("fit", "d.npy", "--out", "o", "--report", "no/x.html", cwd=tmp_path))
    assert all(word in refused for word in nowhere)
    assert [place.name for place in tmp_path.iterdir()] == ["d.npy"]
    assert run("fit", "d.npy", "--out", "o", "--report", "o/x.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "o" / "x.html").is_file()
    assert all(word in line(run("report", "o", "--out", "no/x.html", cwd=tmp_path)) for word in nowhere)
    with pytest.raises(OutputError, match="there is no folder"):
        TensorPCA(random_state=0).fit(X).report(tmp_path / "no" / "x.html")
    assert not (tmp_path / "no").exists()


def test_three_views_with_a_symmetric_factor_say_why_nothing_is_found():
    """The third moment of a symmetric factor is zero however many rows there are: two views at a time show it."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((600, 1))
    views = [2 * shared * rng.standard_normal(d) + rng.standard_normal((600, d)) for d in (4, 5, 3)]
    with pytest.warns(ConvergenceWarning, match="symmetric"):
        TensorCCA(random_state=0).fit(views)


@pytest.mark.parametrize("n", [2, 5])
def test_too_few_samples_say_that_they_could_have_proven_nothing(n):
    pca = TensorPCA(random_state=0).fit(X[:n])
    assert pca.verdict_ == "not tested"
    assert f"Not tested: {n} " in str(pca.summary())
    with pytest.raises(StreamError, match=r"two samples.*got 1"):
        pca.fit(X[:1])


def test_as_many_samples_as_are_needed_can_prove_something():
    """Six samples have 32 flips, of which one is the data: p = 1/32; five have 16."""
    noise = np.random.default_rng(0).standard_normal((6, 4, 5, 3))
    assert TensorPCA(random_state=0).fit(noise + 100).found_
    assert not TensorPCA(random_state=0).fit(noise[:5] + 100).found_


LAST = np.moveaxis(X, 0, -1)  # (4, 5, 3, 60)


def test_samples_along_the_last_axis():
    way_out = r"axis 3 is 60 long: if the samples lie along it, give dim=3 \(tpca: --dim 3\)"
    with pytest.warns(StreamWarning, match=f"are 4, of shape .*{way_out}"):
        TensorPCA(random_state=0).fit(LAST)
    for target in ("effect", "mean"):  # y says where the samples are, also where it is not used
        with pytest.raises(SampleError, match=f"y must have a row for every sample, got 60, .* are 4; {way_out}"):
            TensorPCA(target=target).fit(LAST, np.arange(60) % 2)
    with pytest.raises(SampleError, match="groups must have a row for every sample, got 60"):
        TensorPCA().fit(LAST, groups=np.arange(60) // 6)
    named = xarray.DataArray(LAST, dims=("row", "column", "time", "trial"))
    with pytest.raises(SampleError, match=r"axis 'trial' is 60 long: .* dim='trial' \(tpca: --dim trial"):
        TensorPCA(target="effect").fit(named, np.arange(60) % 2)
    with pytest.raises(SampleError, match="y must have a row for every sample, 60 of them, got 59"):
        TensorPCA(target="effect").fit(LAST, np.arange(59), dim=3)
    assert TensorPCA(random_state=0).fit(LAST, dim=3).strengths_ == TensorPCA(random_state=0).fit(X).strengths_


def test_a_list_of_numbers_is_no_set_of_samples():
    with pytest.raises(SampleError, match=r"got \(3600,\); reshape it"):
        TensorPCA().fit(X.ravel())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n", [2, 3])
def test_variation_of_few_samples_stays_within_the_range_of_floats(n):
    """Along most patterns a few samples vary by rounding only; in units of that, steps overflowed, and some crashed."""
    rng = np.random.default_rng(n)
    for dims in ((3, 15), (4, 5, 3), (2, 2)):
        amplitude = rng.standard_normal((n, *[1] * len(dims)))
        for data in (rng.standard_normal((n, *dims)), amplitude * np.ones(dims)):
            TensorPCA(target="variance", n_resamples=99, random_state=0).fit(data)


def test_the_command_speaks_of_its_own_options(tmp_path):
    y = np.where(np.arange(60) % 2, "a", "b")
    np.savez(tmp_path / "d.npz", X=X, y=y)
    np.save(tmp_path / "last.npy", LAST)
    effect = ("--target", "effect", "--out", "o")
    assert "needs --y, a number or a label" in line(run("fit", "d.npz::X", *effect, cwd=tmp_path))
    assert "say which: d.npz::y" in line(run("fit", "d.npz::X", *effect, "--y", "d.npz", cwd=tmp_path))
    assert "has no array 'z'; it holds 'X', 'y'" in line(
        run("fit", "d.npz::X", *effect, "--y", "d.npz::z", cwd=tmp_path)
    )
    assert "(tpca: --dim 3)" in line(run("fit", "last.npy", *effect, "--y", "d.npz::y", cwd=tmp_path))
    assert run("fit", "d.npz::X", *effect, "--y", "d.npz::y", cwd=tmp_path).returncode == 3


def test_an_effect_is_scored_by_its_slope(tmp_path):
    rng = np.random.default_rng(3)
    y, z = rng.choice(["a", "b"], 200), rng.choice(["a", "b", "c"], 200)
    samples = rng.standard_normal((200, 4, 5, 3))
    samples[y == "b"] += 1
    samples[z == "c"] += 2
    np.savez(tmp_path / "d.npz", X=samples, y=y, z=z)
    for name, told in (("y", y), ("z", z)):
        assert run("fit", "d.npz::X", "--y", f"d.npz::{name}", "--out", name, cwd=tmp_path).returncode == 0
        expected = TensorPCA(target="effect", random_state=0).fit(samples, told).score(samples, told)
        scored = run("score", "d.npz::X", name, "--y", f"d.npz::{name}", "--json", cwd=tmp_path)
        found = json.loads(scored.stdout)
        np.testing.assert_allclose([found["score"], found["standard_error"]], [expected, expected.standard_error])
    assert "'c'" in line(run("score", "d.npz::X", "y", "--y", "d.npz::z", cwd=tmp_path))  # a label nobody fitted


WRONG = {
    "confidence": ["0.9", None, [0.9], True, 95],
    "memory_limit": [[1], {}, True, "much"],
    "checkpoint_every": ["often", None, [1], -1.0, float("nan")],
    "callbacks": [5, [5], "print", print],
}
VIEWS = [np.random.default_rng(i).standard_normal((50, 3)) for i in range(3)]
TAKEN = {  # who takes which of these options, and what is fitted
    RaceSolver: (WRONG, lambda solver: solver),
    TensorPCA: (("confidence", "memory_limit"), lambda pca: pca.fit(X)),
    TensorCCA: (("confidence", "memory_limit", "callbacks"), lambda cca: cca.fit(VIEWS)),
}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, (names, _) in TAKEN.items() for name in names for value in WRONG[name]],
)
def test_options_of_a_wrong_type_are_named(kind, name, value):
    with pytest.raises(SolverError, match=rf"^{name} must "):
        TAKEN[kind][1](kind(**{name: value}))


def test_solvers_of_samples_refuse_views():
    views = open_views([np.ones((50, 3)), np.ones((50, 4))])
    for fit in (RaceSolver().run, PaperSolver(strength=1.0).run, TensorPCA().fit):
        with pytest.raises(SampleError, match="views are no samples of a tensor: TensorCCA fits views"):
            fit(views)


@pytest.mark.parametrize("name", ["y", "nuisance", "sample_weight", "groups"])
def test_what_is_masked_is_not_taken_for_its_fill(name):
    told = {"y": np.arange(60.0), name: np.ma.masked_array(np.arange(60.0) % 7, mask=np.arange(60) == 4)}
    pca = TensorPCA(target="effect")
    with pytest.raises(SampleError, match=rf"{name} is masked for sample 4; give its value, or leave the sample out"):
        pca.fit(X, told.pop("y"), **told)
    whole = np.ma.masked_array(np.arange(60.0) % 7, mask=False)
    samples = X * np.asarray(whole)[:, None, None, None]
    np.testing.assert_array_equal(pca.fit(samples, whole).components_[0], pca.fit(samples, whole.data).components_[0])
