"""The same bits on every engine and after every stop; memory as it was said; flips in chunks."""

import gc
import weakref

import numpy as np
import pytest
import zarr

from amounts import Traced
from tpca import Result, TensorPCA, open_stream
from tpca.engines import DaskEngine, open_engine
from tpca.errors import TpcaError
from tpca.inference.design import read_design
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.variation import Variation

DIMS, N = (5, 4, 3), 300
RNG = np.random.default_rng(0)
Y = RNG.standard_normal(N)
X = RNG.standard_normal((N, *DIMS)) + np.multiply.outer(Y, RNG.standard_normal(DIMS)) + 1
GIVEN = {
    "mean": {},
    "effect": {"y": Y, "nuisance": RNG.standard_normal((N, 2)), "sample_weight": RNG.uniform(0.5, 2, N)},
    "labels": {"y": np.array(["a", "b", "c"])[RNG.integers(0, 3, N)]},
    "groups": {"groups": RNG.integers(0, 10, N)},
    "variance": {},
}
TARGETS = {"effect": "effect", "labels": "effect", "variance": "variance"}


def fitted(source, case, **options):
    pca = TensorPCA(2, target=TARGETS.get(case, "mean"), random_state=0, n_resamples=19, **options)
    return pca.fit(source, **GIVEN[case])


def bits(result):
    """All that is said, as bytes."""
    arrays = [*result.vectors, *result.errors, result.null_distribution, result.entry_p_values]
    found = [None if a is None else a.tobytes() for a in arrays]
    return [*found, repr(result.components), result.n_samples, result.n_passes, result.advice]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    place = tmp_path_factory.mktemp("stores")
    np.save(place / "x.npy", X)
    zarr.create_array(place / "x.zarr", data=X, chunks=(17, *DIMS))
    return place


@pytest.fixture(scope="module")
def client():
    """Two workers that are processes."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_variation_has_the_same_bits_from_files_and_workers(stores, client, monkeypatch):
    """Those of means and effects are in test_one_pass.py."""
    expected = bits(fitted(X, "variance").result_)
    for name in ("x.npy", "x.zarr"):
        assert bits(fitted(stores / name, "variance").result_) == expected
    both = fitted(DaskEngine(client, stores / "x.zarr"), "variance")
    assert bits(both.result_) == expected
    only = [next(iter(client.scheduler_info()["workers"]))]
    one = DaskEngine(client, stores / "x.zarr")
    submit = client.submit
    monkeypatch.setattr(client, "submit", lambda *args, **kw: submit(*args, **{**kw, "workers": only}))
    assert bits(fitted(one, "variance").result_) == expected


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("case", ["mean", "effect", "groups", "variance"])
def test_a_fit_goes_on_after_any_round_with_the_same_bits(case, missing, tmp_path):
    """Stopped and begun anew after every single round."""
    if missing and case == "variance":
        pytest.skip("variation takes no missing entries")
    samples = X.copy()
    if missing:
        samples[RNG.random(X.shape) < 0.2] = np.nan
    stream = open_stream(samples, nan_policy="zero" if missing else "raise")
    options = {"n_components": 2, "random_state": 0, "n_resamples": 19}
    solver = Variation(memory_limit=16_000, **options) if case == "variance" else LeastSquares(**options)
    design = () if case == "variance" else (read_design(TARGETS.get(case, "mean"), N, **GIVEN[case]),)

    def ended(stop):
        engine, rounds = open_engine(stream), 0
        run = solver.start(engine, *design)
        while (ask := run.ask()) is not None:
            if ask.rewind:
                engine.rewind()
            run.tell(engine.reduce(ask.blank, ask.n))
            rounds += 1
            if stop:
                state, position, engine = run.state(), engine.position(), open_engine(stream)
                run = solver.start(engine, *design)
                run.restore(state)
                engine.seek(position)
        assert rounds > 3
        return bits(Result.of(run.estimate()))

    assert ended(stop=True) == ended(stop=False)


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("case", ["mean", "effect", "variance"])
def test_a_fit_that_was_stopped_goes_on_from_its_folder_under_the_same_conditions(case, after, stores, tmp_path):
    seen, options = [], {"n_components": 2, "n_resamples": 19, "random_state": 0}

    def stop(record):
        seen.append(record["samples"])
        if len(seen) > after:
            raise InterruptedError

    kept = {"checkpoint": tmp_path / "kept", "checkpoint_every": 0.0}
    solver = (Variation if case == "variance" else LeastSquares)(callbacks=[stop], **kept, **options)
    with pytest.raises(InterruptedError):
        TensorPCA(solver=solver, target=TARGETS.get(case, "mean")).fit(stores / "x.npy", **GIVEN[case])
    pca = TensorPCA(target=TARGETS.get(case, "mean"), **options)
    if case == "effect":
        with pytest.raises(TpcaError, match="made with conditions="):
            pca.fit(stores / "x.npy", **{**GIVEN[case], "y": -2 * Y}, checkpoint=kept["checkpoint"])
    pca.fit(stores / "x.npy", **GIVEN[case], checkpoint=kept["checkpoint"])
    assert bits(pca.result_) == bits(fitted(stores / "x.npy", case).result_)


def test_what_is_stopped_while_it_is_tested_has_every_sample_once(tmp_path):
    """Some samples wait for others when all are read: five are left out, and so nobody knew where the end is."""
    samples = np.random.default_rng(0).standard_normal((205, 20, 30)) + 0.1
    samples[[3, 50, 77, 150, 204], 0, 0] = np.nan
    np.save(tmp_path / "x.npy", samples)
    stream = open_stream(tmp_path / "x.npy", nan_policy="omit")

    def stop(record):
        if record["phase"] == "testing":
            raise KeyboardInterrupt

    options = {"n_resamples": 19, "random_state": 0}
    kept = {"checkpoint": tmp_path / "kept", "resume": True}
    with pytest.raises(KeyboardInterrupt):
        LeastSquares(callbacks=[stop], **kept, **options).run(stream)
    gone_on = LeastSquares(**kept, **options).run(stream)
    assert bits(Result.of(gone_on)) == bits(Result.of(LeastSquares(**options).run(stream)))


# Memory --------------------------------------------------------------------------------------------------------------


def peak_of(function):
    with Traced() as traced:
        value = function()
    return value, traced.peak


@pytest.mark.parametrize("target", ["mean", "effect"])
@pytest.mark.parametrize("limit", [8_000_000, pytest.param(16_000_000, marks=pytest.mark.slow)])
def test_two_components_of_samples_in_memory_keep_the_limit(target, limit, rng):
    """58 kB a sample.  Beside the limit: six copies of the 2¹⁶ entries that are looked at together, 3 MB."""
    samples, y = rng.standard_normal((150, 2, 60, 60)), rng.standard_normal(150)

    def fit():
        pca = TensorPCA(2, target=target, memory_limit=limit, n_resamples=29, random_state=0)
        return pca.fit(samples, y if target == "effect" else None)

    fit()  # what is imported is not counted
    # Other tests may have left a cluster in this process, whose threads allocate, too: the least of a few tries.
    assert any(peak_of(fit)[1] <= limit + 6 * 8 * 2**16 for _ in range(3))


@pytest.mark.parametrize("case", ["mean", "effect", "variance"])
def test_the_peak_is_within_the_limit_and_what_is_held_is_told(case, tmp_path):
    """24 000 bytes a sample; flips of all of them at once would be 199 times that."""
    dims, n, limit = (20, 15, 10), 50, 8_000_000
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((n, *dims)))
    y = np.arange(n) % 7 * 1.0 if case == "effect" else None
    flips_ = 19 if case == "variance" else 199
    options = {"target": TARGETS.get(case, "mean"), "n_resamples": flips_, "memory_limit": limit, "random_state": 0}

    def fit():
        return TensorPCA(confidence=0.9, **options).fit(tmp_path / "x.npy", y)

    fit()  # what is imported is not counted
    pca, peak = peak_of(fit)
    assert pca.result_.state_bytes <= limit
    assert peak <= limit + 3 * pca.result_.buffer_bytes


def test_the_memory_says_how_many_units_there_are(rng):
    samples = rng.standard_normal((64, 10, 10, 10))
    counts, lengths = [], []
    for limit in (None, 2_000_000, 800_000):
        pca = TensorPCA(memory_limit=limit, random_state=0, n_resamples=19).fit(samples)
        counts.append(pca.result_.n_units)
        lengths.append(pca.result_.components[0].length)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-9)
    assert counts[0] == 64
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] >= 8


def test_groups_that_do_not_fit_are_dealt_into_units_and_that_is_said(rng):
    samples, groups = rng.standard_normal((120, 10, 10, 10)) + 1, np.arange(120) // 2
    pca = TensorPCA(memory_limit=1_000_000, random_state=0, n_resamples=99).fit(samples, groups=groups)
    assert 8 <= pca.result_.n_units < 60
    assert any("60 groups were dealt into" in line and "memory_limit" in line for line in pca.result_.advice)
    whole = TensorPCA(random_state=0, n_resamples=99).fit(samples, groups=groups)
    assert whole.result_.n_units == 60
    assert pca.result_.components[0].length == pytest.approx(whole.result_.components[0].length, rel=1e-9)


@pytest.mark.parametrize(("target", "count"), [("mean", 1), ("mean", "auto"), ("variance", 2)])
def test_a_fit_lets_go_of_its_samples(target, count, rng):
    """Nothing of a run refers to itself: samples, and threads that read them, do not wait for the garbage collector."""
    X = rng.standard_normal((60, 5, 4, 3))
    alive = weakref.ref(X)
    gc.disable()
    try:
        pca = TensorPCA(count, target=target, random_state=0, n_resamples=19).fit(X)
        del X
        assert alive() is None
    finally:
        gc.enable()
    assert pca.n_samples_seen_ == 60


@pytest.mark.parametrize(
    ("n", "options", "says"),
    [
        (10, {"dependence": 10}, "all 10 samples are in one unit, .* a smaller dependence"),
        (2, {"target": "effect"}, "2 samples determine the 2 numbers .* give more samples"),
    ],
)
def test_too_few_samples_for_errors_are_refused_with_what_would_help(n, options, says, rng):
    samples = rng.standard_normal((n, 4, 3))
    y = np.arange(n) * 1.0 if "target" in options else None
    with pytest.raises(TpcaError, match=says):
        TensorPCA(random_state=0, **options).fit(samples, y)
