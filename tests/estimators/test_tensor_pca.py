"""TensorPCA keeps scikit-learn's conventions, and fit, partial_fit and streams agree."""

import pickle

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorPCA, open_stream
from tpca.errors import SampleError, SolverError, StreamError
from tpca.estimators import Score
from tpca.solvers.recovery import StopReason
from tpca.tensors import SlabBatch

TRUTH = SpikedTensor.random((6, 5, 4), 2.0, random_state=1)
DATA = next(iter(TRUTH.stream(random_state=2, batch_size=400)))


@pytest.mark.parametrize("solver", ["auto", "mean", "race"])
def test_a_fit_has_all_attributes_and_a_definite_sign(solver):
    pca = TensorPCA(solver, random_state=0).fit(DATA)
    assert [c.shape for c in pca.components_] == [(1, 6), (1, 5), (1, 4)]
    assert all(abs(np.linalg.norm(c) - 1) < 1e-12 for c in pca.components_)
    # Squared error (d-1)/(λ²N) = 0.3 %: an overlap below 0.95 is more than ten standard errors away.
    assert min(TRUTH.overlaps(pca.components_)) > 0.95
    assert all(c[0, np.argmax(np.abs(c))] > 0 for c in pca.components_[:-1])
    assert pca.score(DATA) > 0
    assert pca.strengths_.shape == pca.p_values_.shape == (1,)
    assert abs(pca.strengths_[0] - 2) < 8 / np.sqrt(400)
    assert pca.strength_intervals_.shape == (1, 2)
    assert pca.strength_intervals_[0, 0] <= pca.strengths_[0] <= pca.strength_intervals_[0, 1]
    # σ² rests on thousands of entries (mean) or hundreds (race): standard error below √(2/200) = 0.1.
    assert abs(pca.noise_variance_ - 1) < 0.5
    assert (pca.n_samples_seen_, pca.n_skipped_, pca.n_components_, pca.shape_in_) == (400, 0, 1, (6, 5, 4))
    assert pca.stop_reason_ is StopReason.STREAM_ENDED
    assert [e.shape for e in pca.standard_errors_] == [(1, 6), (1, 5), (1, 4)]
    assert pca.history_[-1]["phase"] == ("refinement" if solver == "race" else "fit")
    assert pca.solver_ == ("race" if solver == "race" else "mean")
    assert list(pca.get_feature_names_out()) == ["tensorpca0"]
    again = TensorPCA(solver, random_state=0).fit(DATA)
    assert all(np.array_equal(a, b) for a, b in zip(pca.components_, again.components_, strict=True))


def test_transform_score_and_inverse():
    pca = TensorPCA(random_state=0).fit(DATA[:300])
    scores = pca.transform(DATA[300:])
    vectors = [v[0] for v in pca.components_]
    direct = np.einsum("nabc,a,b,c->n", DATA[300:], *vectors)
    np.testing.assert_allclose(scores[:, 0], direct, rtol=1e-10)
    score = pca.score(DATA[300:])
    assert isinstance(score, float)
    np.testing.assert_allclose([score, score.standard_error], [direct.mean(), direct.std(ddof=1) / 10], rtol=1e-10)
    assert "±" in repr(score)
    assert pickle.loads(pickle.dumps(score)).standard_error == score.standard_error
    assert isinstance(score, Score)
    back = pca.inverse_transform(scores)
    np.testing.assert_allclose(back[3], direct[3] * np.einsum("a,b,c->abc", *vectors), rtol=1e-9)
    narrow = pca.transform(DATA[300:].astype(np.float32))
    np.testing.assert_allclose(narrow, scores, rtol=1e-3, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["auto", "race"]), st.lists(st.integers(1, 399), max_size=12), st.sets(st.integers(0, 12)))
def test_partial_fit_is_fit_on_the_same_batches(solver, cuts, looks):
    batches = [b for b in np.split(DATA, sorted(cuts)) if len(b)]
    whole = TensorPCA(solver, random_state=0, items="batches").fit(iter(batches))
    parts = TensorPCA(solver, random_state=0, items="batches")
    for i, batch in enumerate(batches):
        parts.partial_fit(batch)
        if i in looks:
            assert np.isfinite(parts.components_[0]).all()
    assert all(np.array_equal(a, b) for a, b in zip(whole.components_, parts.components_, strict=True))
    assert np.array_equal(whole.strengths_, parts.strengths_)
    assert whole.history_ == parts.history_
    at_once = TensorPCA(solver, random_state=0, max_passes=1).fit(DATA)
    for a, b in zip(whole.components_, at_once.components_, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("solver", ["auto", "race"])
def test_batches_of_one_and_pickles_in_the_middle(solver):
    whole = TensorPCA(solver, random_state=0).fit(iter(DATA[:120, None]))
    parts = TensorPCA(solver, random_state=0)
    for i, sample in enumerate(DATA[:120]):
        parts.partial_fit(sample[None])
        if i % 40 == 7:
            parts = pickle.loads(pickle.dumps(parts))
    assert all(np.array_equal(a, b) for a, b in zip(whole.components_, parts.components_, strict=True))
    fitted = pickle.loads(pickle.dumps(whole))
    np.testing.assert_array_equal(fitted.transform(DATA[:3]), whole.transform(DATA[:3]))


def test_clone_parameters_pipeline_and_cross_validation():
    pca = TensorPCA(memory_limit="1MB", n_components=2, random_state=3)
    twin = clone(pca.set_params(tol=0.1))
    assert twin.get_params() == pca.get_params()
    assert "memory_limit='1MB'" in repr(pca)
    target = TensorPCA(random_state=0).fit(DATA).transform(DATA)[:, 0] + 1.0
    pipe = make_pipeline(TensorPCA(random_state=0), LinearRegression()).fit(DATA, target)
    assert pipe.score(DATA, target) > 0.99
    assert cross_val_score(TensorPCA(random_state=0), DATA, cv=3).min() > 1.5


@pytest.mark.parametrize("solver", ["auto", "race"])
def test_every_source_gives_the_same_fit(tmp_path, solver):
    np.save(tmp_path / "d.npy", DATA)
    store = zarr.open_array(tmp_path / "d.zarr", mode="w", shape=DATA.shape, chunks=(50, 6, 5, 4), dtype="f8")
    store[:] = DATA
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["x"] = DATA
    first = TensorPCA(solver, random_state=0).fit(DATA)
    for source in (tmp_path / "d.npy", str(tmp_path / "d.zarr"), f"{tmp_path}/d.h5::/x", open_stream(DATA)):
        other = TensorPCA(solver, random_state=0).fit(source)
        for a, b in zip(first.components_, other.components_, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("state", [0, np.random.default_rng(1), np.random.RandomState(2), None])
def test_random_states(state):
    assert TensorPCA(random_state=state).fit(DATA).n_components_ == 1


def test_not_fitted_no_signal_and_constant():
    with pytest.raises(NotFittedError):
        TensorPCA().transform(DATA)
    with pytest.raises(AttributeError):
        _ = TensorPCA().components_
    noise = np.random.default_rng(0).standard_normal((100, 6, 5, 4))
    with pytest.warns(ConvergenceWarning, match="No signal"):
        pca = TensorPCA(random_state=0).fit(noise)
    assert np.isnan(pca.recovery_.strength)
    assert [len(v) for v in pca.recovery_.vectors] == [6, 5, 4]  # the guess
    assert pca.n_components_ == 0
    with pytest.raises(StreamError, match="all samples are the same"):
        TensorPCA(random_state=0).fit(np.ones((30, 4, 3)))


def test_bad_shapes_and_options_are_named():
    pca = TensorPCA(random_state=0).fit(DATA)
    with pytest.raises(SampleError, match=r"\(6, 5, 4\), got \(5, 4\)"):
        pca.transform(DATA[:, 0])
    with pytest.raises(SampleError, match=r"scores must have shape \(n, 1\)"):
        pca.inverse_transform(np.ones((2, 3)))
    with pytest.raises(SampleError, match="as in the first batch"):
        TensorPCA(items="batches").partial_fit(DATA[:5]).partial_fit(DATA[:5, :5])
    with pytest.raises(SolverError, match="solver must be"):
        TensorPCA(solver="best").fit(DATA)
    with pytest.raises(SolverError, match=r"memory_limit='1MB' means nothing to solver='paper'; .*'race'"):
        TensorPCA(solver="paper", memory_limit="1MB").fit(DATA)
    with pytest.raises(SolverError, match="partial_fit needs solver='race'"):
        TensorPCA(solver="paper", items="batches").partial_fit(DATA)
    with pytest.raises(SolverError, match="n_components must be a whole number of at least 1, got 0"):
        TensorPCA(n_components=0).fit(DATA)
    with pytest.raises(SolverError, match="max_passes must be a whole number of at least 1 or 'auto', got 0"):
        TensorPCA(max_passes=0).fit(DATA)
    with pytest.raises(SolverError, match=r"tol=0\.1 means nothing to solver='mean'"):
        TensorPCA(solver="mean", tol=0.1).fit(DATA)
    for option, says in (({"max_passes": 3}, "max_passes=3"), ({"confidence": 0.9}, "confidence=0.9")):
        with pytest.raises(SolverError, match=f"{says} means nothing beside .*; give it to that RaceSolver"):
            TensorPCA(solver=RaceSolver(), **option).fit(DATA)


@pytest.mark.parametrize("solver", ["auto", "race"])
def test_batches_of_another_dtype_are_refused(solver):
    for first, second in (("f4", "f8"), ("f8", "f4")):
        pca = TensorPCA(random_state=3, solver=solver, items="batches").partial_fit(DATA.astype(first)[:20])
        with pytest.raises(SampleError, match="one dtype"):
            pca.partial_fit(DATA.astype(second)[20:40])


def test_the_solver_is_chosen_and_named(capsys):
    small = TensorPCA(random_state=0, verbose=1).fit(DATA)
    said = capsys.readouterr().out.splitlines()[0]
    assert said == f"[TensorPCA] solver mean: {small.solver_reason_}"
    assert "fits into memory" in small.solver_reason_
    # The least memory of the race, a twentieth of what the mean needs.
    tight = TensorPCA(random_state=0, memory_limit=20_000).fit(DATA)
    assert tight.solver_ == "race"
    assert "the memory is 20 kB" in tight.solver_reason_
    assert TensorPCA(random_state=0, tol=0.2).fit(DATA).solver_ == "race"
    assert TensorPCA(random_state=0, items="batches").partial_fit(DATA).solver_ == "mean"
    assert TensorPCA(random_state=0, items="batches", memory_limit=20_000).partial_fit(DATA).solver_ == "race"
    assert TensorPCA(solver=RaceSolver(random_state=4)).fit(DATA).solver_ == "RaceSolver"
    endless = TensorPCA(random_state=0).fit(TRUTH.stream(random_state=3))
    assert (endless.solver_, endless.stop_reason_) == ("race", StopReason.ACCURATE)
    bounded = TensorPCA(random_state=0, max_samples=200).fit(TRUTH.stream(random_state=3))
    assert (bounded.solver_, bounded.stop_reason_) == ("mean", StopReason.MAX_SAMPLES)
    assert min(TRUTH.overlaps(bounded.components_)) > 0.95


def test_nan_policies():
    data = DATA.copy()
    data[[3, 77], 0, 0, 0] = np.nan
    with pytest.raises(SampleError, match="sample 3"):
        TensorPCA(random_state=0).fit(data)
    skipped = TensorPCA(random_state=0, nan_policy="omit").fit(data)
    assert (skipped.n_samples_seen_, skipped.n_skipped_) == (398, 2)
    filled = TensorPCA(random_state=0, nan_policy="zero").fit(data)
    assert (filled.n_samples_seen_, filled.n_skipped_) == (400, 0)
    parts = TensorPCA(random_state=0, nan_policy="omit", items="batches")
    parts.partial_fit(data[:200]).partial_fit(data[200:])
    assert parts.n_skipped_ == 2


def test_other_solvers_and_verbose_lines(capsys):
    truth = SpikedTensor.random((3,) * 4, 1.0, correlation=0.9, random_state=0)
    with pytest.warns(ConvergenceWarning):
        TensorPCA(solver="paper", random_state=0).fit(next(iter(truth.stream(random_state=1, batch_size=50))))
    given_solver = TensorPCA(solver=RaceSolver(random_state=4)).fit(DATA)
    assert given_solver.n_components_ == 1
    assert clone(TensorPCA(solver=PaperSolver(strength=2.0))).solver.strength == 2.0
    for solver in ("auto", "race"):
        TensorPCA(solver, random_state=0, verbose=1).fit(DATA)
        lines = capsys.readouterr().out.splitlines()
        assert 3 < len(lines) < 15
        assert all(line.startswith("[TensorPCA] ") for line in lines)


@pytest.mark.parametrize("solver", ["auto", "race"])
def test_checkpoints_resume_without_a_random_state(tmp_path, solver):
    class StopError(Exception):
        pass

    def stop(record):
        if record["samples"] > 100:
            raise StopError

    options = {"checkpoint": tmp_path / "c", "checkpoint_every": 0.0}
    with pytest.raises(StopError):
        TensorPCA(solver, callbacks=[stop], **options).fit(DATA)
    resumed = TensorPCA(solver, resume=True, **options).fit(DATA)
    assert resumed.n_samples_seen_ == 400
    assert min(TRUTH.overlaps(resumed.components_)) > 0.95


def test_a_batch_that_is_refused_leaves_no_trace():
    data = DATA
    holed = data[200:250].copy()
    holed[7, 0, 0] = np.nan
    pca = TensorPCA(random_state=0, items="batches").partial_fit(data[:200])
    with pytest.raises(SampleError, match="sample 7 contains NaN"):
        pca.partial_fit(holed)
    pca.partial_fit(data[200:])
    whole = TensorPCA(random_state=0, items="batches").partial_fit(data[:200]).partial_fit(data[200:])
    for mine, theirs in zip(pca.components_, whole.components_, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(("solver", "components"), [("mean", 1), ("mean", 2), ("race", 1), ("race", 2)])
@pytest.mark.parametrize("fed", [False, True])
def test_without_a_signal_there_is_no_column(solver, components, fed):
    # At confidence 0.99999 noise is claimed as a signal in at most 1e-5 of all fits.
    noise = np.random.default_rng(5).standard_normal((120, 6, 5, 4))
    pca = TensorPCA(solver, n_components=components, random_state=0, confidence=0.99999)
    if fed:
        for sample in noise:
            pca.partial_fit(sample[None])
    else:
        with pytest.warns(ConvergenceWarning, match="No signal"):
            pca.fit(noise)
    assert pca.n_components_ == 0
    assert [v.shape for v in pca.components_] == [v.shape for v in pca.standard_errors_] == [(0, 6), (0, 5), (0, 4)]
    assert (pca.strengths_.shape, pca.strength_intervals_.shape, pca.p_values_.shape) == ((0,), (0, 2), (0,))
    assert pca.transform(noise).shape == (120, 0)
    assert list(pca.get_feature_names_out()) == []
    np.testing.assert_array_equal(pca.inverse_transform(np.empty((3, 0))), np.zeros((3, 6, 5, 4)))
    with pytest.raises(SampleError, match=r"scores must have shape \(n, 0\), got \(3, 1\)"):
        pca.inverse_transform(np.ones((3, 1)))
    score = pca.score(noise)
    assert (score, score.standard_error) == (0.0, 0.0)
    holed = noise.copy()
    holed[7, 0, 0, 0] = np.nan
    with pytest.raises(SampleError, match="sample 7 contains NaN"):
        pca.transform(holed)


def test_without_a_signal_no_form_of_samples_has_a_column(tmp_path, monkeypatch):
    noise = np.random.default_rng(6).standard_normal((40, 6, 5))
    np.save(tmp_path / "x.npy", noise)
    with pytest.warns(ConvergenceWarning, match="No signal"):
        pca = TensorPCA(random_state=0, confidence=0.99999).fit(noise)
    monkeypatch.setattr("tpca.streams.stored.SLAB_ENTRIES", 10)
    slabs = open_stream(tmp_path / "x.npy")
    assert isinstance(next(slabs.batches()), SlabBatch)
    for form in (slabs, [csr_array(sample) for sample in noise], list(noise), noise.astype(np.float32)):
        assert pca.transform(form).shape == (40, 0)


@pytest.mark.parametrize("components", [1, 2])
def test_with_a_signal_there_is_a_column_for_every_component(components):
    pca = TensorPCA(n_components=components, random_state=0, confidence=0.99999).fit(DATA)
    assert pca.n_components_ == 1  # a second one would be a claim on what is left, which is noise: 1e-5 of all fits
    assert pca.transform(DATA).shape == (400, 1)
    assert len(pca.get_feature_names_out()) == 1
