"""Patterns orthogonal to a constant, or to given vectors, along a mode: as if the samples had been projected first."""

import json
import warnings

import numpy as np
import pytest
import xarray
from scipy import sparse, stats

from command import run
from tpca import MeanSolver, RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.engines import DaskEngine, LawEngine
from tpca.errors import SolverError, TpcaError
from tpca.tensors import Basis

DIMS, N = (6, 7, 5), 240
RNG = np.random.default_rng(11)
ARTEFACTS = RNG.standard_normal((2, 6))
TIME, CHANNEL = Basis.beside(np.ones((1, 7))), Basis.beside(ARTEFACTS)


def unit(vector):
    return vector / np.linalg.norm(vector)


TRUTH = (unit(CHANNEL.up(RNG.standard_normal(4))), unit(TIME.up(RNG.standard_normal(6))), unit(RNG.standard_normal(5)))
SAMPLES = 1.5 * np.einsum("i,j,k->ijk", *TRUTH) + RNG.standard_normal((N, *DIMS))
OFFSETS = 30 * RNG.standard_normal((N, 6, 1, 5))  # of every sample another one, along the second mode
ASKED = {"center_modes": (1,), "project": {0: ARTEFACTS}}


def fit(samples, solver="mean", **options):
    """A fit whose warnings are of no interest here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TensorPCA(solver, random_state=3, **options).fit(samples)


def close(a, b, tol=1e-9):
    """Two fits of the same data say the same."""
    assert a.verdict_ == b.verdict_
    np.testing.assert_allclose(a.strengths_, b.strengths_, rtol=tol)
    np.testing.assert_allclose(a.strength_intervals_, b.strength_intervals_, rtol=tol)
    for name in ("components_", "standard_errors_"):
        for own, other in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_allclose(own, other, atol=tol)


@pytest.mark.parametrize("solver", ["mean", "race"])
@pytest.mark.parametrize("whiten", [None, "modes"])
def test_a_fit_is_that_of_projected_samples(solver, whiten):
    found = fit(SAMPLES, solver, whiten=whiten, **ASKED)
    plain = fit(CHANNEL.down(TIME.down(SAMPLES, 2), 1), solver, whiten=whiten)
    assert plain.shape_in_ == (4, 6, 5)
    assert found.n_components_ == plain.n_components_ == 1
    np.testing.assert_allclose(found.strengths_, plain.strengths_, rtol=1e-9)
    np.testing.assert_allclose(found.strength_intervals_, plain.strength_intervals_, rtol=1e-9)
    np.testing.assert_allclose(found.p_values_, plain.p_values_, rtol=1e-9)
    np.testing.assert_allclose(found.noise_variance_, plain.noise_variance_, rtol=1e-9)
    for basis, own, small in zip((CHANNEL, TIME), found.components_, plain.components_, strict=False):
        np.testing.assert_allclose(np.abs(basis.down(own) @ small.T), 1, atol=1e-9)
    assert abs(found.components_[1].sum()) < 1e-12
    np.testing.assert_allclose(found.components_[0] @ ARTEFACTS.T, 0, atol=1e-12)
    for own, small in zip(found.standard_errors_, plain.standard_errors_, strict=True):
        np.testing.assert_allclose(np.sum(own**2), np.sum(small**2), rtol=0.05)  # none is lost on the way
    assert min(abs(float(v @ own[0])) for v, own in zip(TRUTH, found.components_, strict=True)) > 0.95
    assert [c.shape for c in found.noise_covariances_] == [(6, 6), (7, 7), (5, 5)]
    assert found.transform(SAMPLES).shape == (N, 1)


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_offsets_change_nothing(solver):
    """Whatever is constant along the mode, of every sample something else."""
    close(fit(SAMPLES, solver, **ASKED), fit(SAMPLES + OFFSETS, solver, **ASKED))


@pytest.mark.parametrize("solver", ["mean", "race"])
def test_pieces_files_and_checkpoints_change_nothing(solver, tmp_path):
    samples = SAMPLES + OFFSETS
    np.save(tmp_path / "d.npy", samples)
    whole = fit(iter([samples[:100], samples[100:]]), solver, items="batches", **ASKED)
    pieces = TensorPCA(solver, random_state=3, items="batches", **ASKED)
    pieces.partial_fit(samples[:100]).partial_fit(samples[100:])
    close(pieces, whole)
    stored = fit(tmp_path / "d.npy", solver, checkpoint=tmp_path / "kept", **ASKED)
    again = fit(tmp_path / "d.npy", solver, checkpoint=tmp_path / "kept", resume=True, **ASKED)
    close(stored, again, 1e-15)
    with pytest.raises(TpcaError, match="was made with center_modes"):
        fit(tmp_path / "d.npy", solver, checkpoint=tmp_path / "kept", resume=True, center_modes=(0,))


@pytest.mark.slow
def test_sparse_samples_are_contracted_as_they_are():
    dense = np.where(RNG.random((N, 6, 7)) < 0.5, SAMPLES[..., 0], 0.0) + 2 * np.outer(TRUTH[0], TRUTH[1])
    options = {"memory_limit": "1MB", "center_modes": (1,), "clip": None}
    close(fit(dense, "race", **options), fit([sparse.coo_array(one) for one in dense], "race", **options), 1e-6)


@pytest.mark.slow
def test_workers_get_the_same_bits(tmp_path):
    from distributed import Client, LocalCluster

    np.save(tmp_path / "d.npy", SAMPLES + OFFSETS)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        for solver in ("mean", "race"):
            here = fit(tmp_path / "d.npy", solver, **ASKED)
            close(fit(DaskEngine(client, tmp_path / "d.npy"), solver, **ASKED), here, 1e-15)


def test_the_law_of_a_mean_is_projected_too():
    truth = SpikedTensor(tuple(TRUTH), 1.5)
    recovery = MeanSolver(center_modes=(1,), max_samples=300).run(LawEngine(truth, max_samples=300, random_state=1))
    assert recovery.found
    assert abs(recovery.vectors[1].sum()) < 1e-12


def test_names_of_modes():
    named = xarray.DataArray(SAMPLES + OFFSETS, dims=("trial", "channel", "time", "band"))
    close(fit(named, center_modes="time"), fit(SAMPLES, center_modes=[np.int64(1)]))
    close(fit(named, center_modes=("1",)), fit(SAMPLES, center_modes=(1,)))
    with pytest.raises(SolverError, match=r"'times', which .* their modes are 'channel', 'time', 'band', or 0 to 2"):
        fit(named, center_modes=("times",))
    assert fit(named, center_modes="time").recovery_.labels.modes == ("channel", "time", "band")


@pytest.mark.parametrize("labels", [2, 3])
def test_effects_are_projected_too(labels):
    """Contrasts of three labels have one more mode than the samples; names and numbers mean the samples' own."""
    y = np.arange(N) % labels
    named = xarray.DataArray(
        SAMPLES * (y - y.mean())[:, None, None, None] + OFFSETS, dims=("trial", "channel", "time", "band")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = TensorPCA(target="effect", random_state=0, center_modes=("time",)).fit(named, y.astype(str))
    assert found.n_components_ == 1
    assert abs(found.components_[1].sum()) < 1e-12
    assert abs(float(found.components_[1][0] @ TRUTH[1])) > 0.9


def test_the_command_centres(tmp_path):
    np.save(tmp_path / "d.npy", SAMPLES + OFFSETS)
    done = run("fit", "d.npy", "--center-modes", "1", "--out", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["found"]
    with np.load(tmp_path / "r" / "vectors.npz") as vectors:
        assert any(abs(vectors[name].sum()) < 1e-12 for name in vectors.files if vectors[name].shape[-1] == 7)
    refused = run("fit", "d.npy", "--center-modes", "time", "--out", "x", cwd=tmp_path)
    assert refused.returncode == 2
    assert "they have no names" in refused.stderr


@pytest.mark.slow
def test_a_report_on_projected_samples_has_the_checks_of_the_fit(tmp_path):
    np.save(tmp_path / "d.npy", SAMPLES + OFFSETS)
    done = run("fit", "d.npy", "--center-modes", "1", "--out", "r", "--report", "r.html", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the fit is of projected samples" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"center_modes": (3,)}, r"center_modes names mode 3, which .*; give a number from 0 to 2\."),
        ({"center_modes": ("time",)}, r"mode 'time', which .* \(they have no names\); give a number from 0 to 2"),
        ({"center_modes": (1.5,)}, r"must be names or numbers of modes, .* got \(1.5,\)"),
        ({"project": [1, 2]}, r"project must be a dict .*, got list"),
        ({"project": {0: np.ones((2, 5))}}, r"project\[0\] must have vectors of length 6 .* got shape \(2, 5\)"),
        ({"project": {0: [1, 2, np.nan, 0, 0, 0]}}, r"project\[0\] .* finite numbers, got nan at entry 2 of row 0"),
        ({"project": {0: np.ones((1, 2, 6))}}, r"vectors as rows, of finite numbers, got shape \(1, 2, 6\)"),
        ({"project": {0: [["a"]]}}, r"vectors as rows, of finite numbers, got list"),
        ({"project": {2: np.eye(5)}}, r"mode 2 has 5 entries and is projected beside 5 .* give fewer vectors"),
    ],
)
def test_what_cannot_be_projected_is_refused(options, said):
    for solver in ("mean", "race"):
        with pytest.raises(SolverError, match=said):
            fit(SAMPLES, solver, **options)


def test_a_solver_by_itself_projects_too():
    for solver in (MeanSolver(center_modes=(1,)), RaceSolver(center_modes=(1,))):
        seen = []
        solver.callbacks = (seen.append,)
        recovery = solver.run(open_stream(SAMPLES + OFFSETS))
        assert recovery.found
        assert [v.shape for v in recovery.vectors] == [(6,), (7,), (5,)]
        told = [one["vectors"] for one in seen if one.get("vectors") is not None]
        assert told
        assert all(v.shape == (d,) for vectors in told for v, d in zip(vectors, DIMS, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["mean", "race"])
def test_offsets_raise_no_false_alarms(solver):
    """Pure noise under huge offsets: at most 5 % are claimed.

    100 runs; more than 12 of them have a chance of 0.15 % where 5 % is the truth.
    """
    most = int(stats.binom.ppf(0.998, 100, 0.05))
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng([9, seed])
        samples = rng.standard_normal((60, 4, 5, 4)) + 1e3 * (1 + rng.standard_normal((60, 4, 1, 4)))
        alarms += fit(samples, solver, center_modes=(1,)).n_components_
    assert alarms <= most
