"""What newcomers tried and met a traceback or a wrong answer: now it works, or one line says the way out."""

import json

import numpy as np
import pytest
import scipy.io
import xarray
from sklearn.exceptions import ConvergenceWarning

from command import run
from tpca import RaceSolver, SpikedTensor, TensorCCA, TensorPCA
from tpca.errors import OutputError, SampleError, SolverError, StreamError, StreamWarning

TRUTH = SpikedTensor.random((4, 5, 3), 3.0, random_state=1)
X = next(iter(TRUTH.stream(random_state=2, batch_size=60)))


def line(done):
    """The one line that a refused command writes."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tpca: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("policy", ["omit", "zero"])
@pytest.mark.parametrize("options", [{}, {"solver": "race"}, {"target": "variance"}, {"target": "effect"}], ids=str)
def test_no_samples_at_all_are_no_verdict(policy, options):
    with pytest.raises(StreamError, match="all samples were left out, because of NaN or Inf; look at the data"):
        TensorPCA(nan_policy=policy, **options).fit(
            np.full_like(X, np.nan), np.arange(60) % 2 if "target" in options else None
        )


def test_what_to_do_about_nan_is_told_as_the_command_spells_it(tmp_path):
    np.save(tmp_path / "d.npy", np.where(np.arange(60)[:, None, None, None] == 3, np.nan, X))
    assert "--nan-policy" in line(run("fit", "d.npy", "--out", "o", cwd=tmp_path))
    np.save(tmp_path / "none.npy", np.full_like(X, np.nan))
    refused = run("fit", "none.npy", "--out", "o", "--nan-policy", "omit", cwd=tmp_path)
    assert "--nan-policy zero" in line(refused)
    assert not (tmp_path / "o" / "recovery.json").exists()


@pytest.mark.parametrize("solver", ["mean", "race", "auto"])
def test_zeros_are_refused(solver):
    with pytest.raises(StreamError, match="all samples are the same"):
        TensorPCA(solver).fit(np.zeros_like(X))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"solver": RaceSolver}, r"got the class RaceSolver; make one of it: RaceSolver\(\)"),
        ({"n_components": 2.5}, "n_components must be a whole number of at least 1, got 2.5"),
    ],
    ids=str,
)
def test_options_that_are_nearly_right(options, says):
    with pytest.raises(SolverError, match=says):
        TensorPCA(**options).fit(X)


def test_samples_that_no_disk_holds(tmp_path):
    assert "take 8e+04 PB" in line(run("generate", "--order", "8", "--dim", "100", "--out", "g.npy", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_another_result_is_not_replaced_in_silence(tmp_path):
    for name, data in (("a", X), ("b", X[:40])):
        np.save(tmp_path / f"{name}.npy", data)
    assert run("fit", "a.npy", "--out", "o", cwd=tmp_path).returncode == 0
    kept = (tmp_path / "o" / "recovery.json").read_bytes()
    assert "--overwrite" in line(run("fit", "b.npy", "--out", "o", cwd=tmp_path))
    assert (tmp_path / "o" / "recovery.json").read_bytes() == kept
    assert run("fit", "b.npy", "--out", "o", "--overwrite", cwd=tmp_path).returncode == 0


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
    for slip in (
        ("fit", "d.npy", "--out", "o", "--report", "no/x.html"),
        ("plan", "--dims", "9,9", "--plot", "no/x.png"),
    ):
        assert all(word in line(run(*slip, cwd=tmp_path)) for word in nowhere)
    assert [place.name for place in tmp_path.iterdir()] == ["d.npy"]
    assert run("fit", "d.npy", "--out", "o", "--report", "o/x.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "o" / "x.html").is_file()
    assert all(word in line(run("report", "o", "--out", "no/x.html", cwd=tmp_path)) for word in nowhere)
    with pytest.raises(OutputError, match="there is no folder"):
        TensorPCA(random_state=0).fit(X).report(tmp_path / "no" / "x.html")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("make", [list, tuple, iter], ids=lambda make: make.__name__)
def test_a_list_or_generator_of_samples_is_stacked_with_a_note(make):
    """Samples of order 3 were taken for batches of samples of order 2, and fitted with a wrong answer."""
    with pytest.warns(StreamWarning, match=r'taken for single samples of that shape.* say items="batches"'):
        pca = TensorPCA(random_state=0).fit(make(X))
    assert pca.shape_in_ == (4, 5, 3)
    assert np.min(TRUTH.overlaps(pca.components_)) > 0.9
    assert TensorPCA(items="samples", random_state=0).fit(make(X)).shape_in_ == (4, 5, 3)


def test_three_views_with_a_symmetric_factor_say_why_nothing_is_found():
    """The third moment of a symmetric factor is zero however many rows there are: two views at a time show it."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((600, 1))
    views = [2 * shared * rng.standard_normal(d) + rng.standard_normal((600, d)) for d in (4, 5, 3)]
    with pytest.warns(ConvergenceWarning, match="symmetric"):
        TensorCCA(random_state=0).fit(views)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(
    ("options", "least"), [({}, 6), ({"solver": "race"}, 12), ({"target": "variance"}, 30)], ids=str
)
def test_too_few_samples_say_that_they_could_have_proven_nothing(n, options, least):
    with pytest.warns(ConvergenceWarning, match=f"Fewer than {least} samples can prove nothing at confidence 0.95"):
        pca = TensorPCA(random_state=0, **options).fit(X[:n])
    assert not pca.found_
    assert f"fewer than {least} samples can prove nothing" in pca.summary().headline
    assert pca.summary().about.startswith("1 sample of 4 × 5 × 3" if n == 1 else f"{n} samples of ")


def test_as_many_samples_as_are_needed_can_prove_something():
    """The numbers that messages give are the least ones: strong signals are found with as many, and none with fewer."""
    rng = np.random.default_rng(0)
    noise, amplitude = rng.standard_normal((30, 4, 5, 3)), 100 * rng.standard_normal((30, 1, 1, 1))
    assert TensorPCA(random_state=0).fit(noise[:6] + 100).found_
    assert TensorPCA(target="variance", random_state=0).fit(noise + amplitude).found_
    for few, options in ((noise[:5] + 100, {}), ((noise + amplitude)[:29], {"target": "variance"})):
        with pytest.warns(ConvergenceWarning, match="can prove nothing"):
            assert not TensorPCA(random_state=0, **options).fit(few).found_
    with pytest.warns(ConvergenceWarning, match="Fewer than 12 samples"):  # of which nobody knows how many will come
        TensorPCA(items="samples", random_state=0).fit(iter(X[:9]))
    with pytest.warns(ConvergenceWarning, match="Fewer than 6 blocks of samples"):
        TensorPCA(target="effect", random_state=0).fit(X[:5], np.arange(5) % 2)


LAST = np.moveaxis(X, 0, -1)  # (4, 5, 3, 60)


def test_samples_along_the_last_axis():
    way_out = r"axis 3 is 60 long: if the samples lie along it, give sample_dim=3 \(tpca: --sample-dim 3\)"
    with pytest.warns(ConvergenceWarning), pytest.warns(StreamWarning, match=f"are 4, of shape .*{way_out}"):
        TensorPCA(random_state=0).fit(LAST)
    for options in (
        {"target": "effect"},
        {"target": "mean"},
    ):  # y says where the samples are, also where it is not used
        with pytest.raises(SampleError, match=f"y must have a row for every sample, got 60, .* are 4; {way_out}"):
            TensorPCA(**options).fit(LAST, np.arange(60) % 2)
    with pytest.raises(SampleError, match="groups must have a row for every sample, got 60"):
        TensorPCA().fit(LAST, groups=np.arange(60) // 6)
    named = xarray.DataArray(LAST, dims=("row", "column", "time", "trial"))
    with pytest.raises(SampleError, match=r"axis 'trial' is 60 long: .* sample_dim='trial' \(tpca: --sample-dim trial"):
        TensorPCA(target="effect").fit(named, np.arange(60) % 2)
    with pytest.raises(SampleError, match="y must have a row for every sample, 60 of them, got 59"):
        TensorPCA(target="effect").fit(LAST, np.arange(59), sample_dim=3)
    assert TensorPCA(random_state=0).fit(LAST, sample_dim=3).strengths_ == TensorPCA(random_state=0).fit(X).strengths_


def test_a_plain_table_is_told_where_to_go():
    with pytest.raises(
        SampleError, match=r"got \(60, 60\); .*X.reshape\(60, d_1, d_2\).*scikit-learn's PCA, tpca.Mome"
    ):
        TensorPCA().fit(X.reshape(60, -1))
    with pytest.raises(SampleError, match=r"got \(3600,\); reshape it to \(n, d_1, d_2\)"):
        TensorPCA().fit(X.ravel())


@pytest.mark.parametrize("options", [{}, {"target": "variance"}, {"target": "effect"}], ids=str)
def test_samples_that_are_all_the_same_are_refused(options):
    """Contrasts of such samples are rounding, of which 7 fits of 60 made a signal."""
    for scale in (1.0, 1e-3, 777.7):
        same = np.broadcast_to(scale * np.random.default_rng(1).standard_normal((4, 5)), (100, 4, 5))
        with pytest.raises(StreamError, match="all samples are the same"):
            TensorPCA(**options, random_state=0).fit(same, np.random.default_rng(2).standard_normal(100))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e60])
@pytest.mark.parametrize("n", [2, 3, 8, 11, 16])
def test_variation_of_few_samples_stays_within_the_range_of_floats(n, scale):
    """Along most patterns a few samples vary by rounding only; in units of that, steps overflowed, and some crashed."""
    rng = np.random.default_rng(n)
    for dims in ((4, 5), (3, 15), (4, 5, 3), (2, 2)):
        amplitude = rng.standard_normal((n, *[1] * len(dims)))
        for data in (rng.standard_normal((n, *dims)), amplitude * np.ones(dims)):
            TensorPCA(target="variance", n_components=1 + (n > 8), random_state=0).fit(scale * data)


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
    assert "(tpca: --sample-dim 3)" in line(run("fit", "last.npy", *effect, "--y", "d.npz::y", cwd=tmp_path))
    assert run("fit", "d.npz::X", *effect, "--y", "d.npz::y", cwd=tmp_path).returncode == 3


def test_an_effect_is_scored_by_its_slope(tmp_path):
    rng = np.random.default_rng(3)
    y, z = rng.choice(["a", "b"], 200), rng.choice(["a", "b", "c"], 200)
    samples = rng.standard_normal((200, 4, 5, 3))
    samples[y == "b"] += 1
    samples[z == "c"] += 2
    np.savez(tmp_path / "d.npz", X=samples, y=y, z=z)
    for name, told in (("y", y), ("z", z)):
        fitted = ("--target", "effect", "--y", f"d.npz::{name}", "--out", name)
        done = run("fit", "d.npz::X", *fitted, cwd=tmp_path)
        assert done.returncode == 0
        assert "p at most" in done.stdout
        pca = TensorPCA(target="effect", random_state=0).fit(samples, told)
        expected = pca.score(samples, told)
        scored = run("score", "d.npz::X", name, "--y", f"d.npz::{name}", "--json", cwd=tmp_path)
        found = json.loads(scored.stdout)
        np.testing.assert_allclose(found["slopes"] + found["standard_errors"], [expected, expected.standard_error])
    assert "the result is the effect of b - a: the score is the slope on --y" in line(
        run("score", "d.npz::X", "y", cwd=tmp_path)
    )
    assert "has the effect between 3 labels" in line(run("score", "d.npz::X", "y", "--y", "d.npz::z", cwd=tmp_path))
    assert run("fit", "d.npz::X", "--out", "m", cwd=tmp_path).returncode == 0
    assert "--y is for a fit with --target effect" in line(
        run("score", "d.npz::X", "m", "--y", "d.npz::y", cwd=tmp_path)
    )


def test_a_plan_has_one_memory_and_explains_what_is_there(tmp_path):
    """Without a limit the mean was recommended, and not possible in the memory of another solver, at once."""
    told = " ".join(run("plan", "--order", "3", "--dim", "20", cwd=tmp_path).stdout.split())
    assert "Use MeanSolver: the mean of all samples fits into memory: it needs 1.13 MB, and takes 1.2 MB of" in told
    assert "but on this machine" not in told
    assert "S·K·N" not in told  # a narrow screen has no room for that column
