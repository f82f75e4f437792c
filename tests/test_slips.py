"""What newcomers tried and met a traceback or a wrong answer: now it works, or one line says the way out."""

import numpy as np
import pytest
import scipy.io
from sklearn.exceptions import ConvergenceWarning

from command import run
from tpca import RaceSolver, SpikedTensor, TensorCCA, TensorPCA
from tpca.errors import OutputError, SolverError, StreamError, StreamWarning

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
