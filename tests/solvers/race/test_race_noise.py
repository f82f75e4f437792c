"""The race in noise that is not white, or whose neighbours are alike."""

import numpy as np
import pytest

from noises import coloured, scales, serial, smooth
from tpca import RaceSolver, TensorPCA, open_stream
from tpca.checkpoint import Checkpoints
from tpca.engines import LocalEngine
from tpca.errors import MemoryBudgetError, SolverError, StreamError
from tpca.solvers.race.components import ComponentsRun
from tpca.solvers.race.strategies.symmetric import Symmetric
from tpca.tensors.blocks import unit

DIMS = (12, 12, 12)


def outer(vectors):
    return np.einsum("a,b,c->abc", *vectors)


def planted(covariances, rng, n, level=1.5, count=1):
    """Samples with signals of strength ``level`` in the whitened data, and their vectors and strengths."""
    samples = coloured(n, covariances, rng)
    truth = []
    for _ in range(count):
        vectors = [unit(rng.standard_normal(len(c))) for c in covariances]
        lengths = [
            np.linalg.norm(np.linalg.solve(np.linalg.cholesky(c), v)) for c, v in zip(covariances, vectors, strict=True)
        ]
        truth.append((vectors, level / np.prod(lengths)))
        samples += truth[-1][1] * outer(vectors)
    return samples, truth


def overlaps(found, vectors):
    return min(abs(float(v @ w)) for v, w in zip(found, vectors, strict=True))


@pytest.mark.parametrize("law", ["smooth", "scales"])
def test_a_signal_in_noise_that_is_not_white(law):
    """Hidden under directions of the noise that are up to 7000 times as loud; without whitening it is never found.

    In whitened data vectors have a squared error of 11/(400 · 1.5²) = 0.012, overlaps above 0.98; in the data loud
    directions hide more.  A strength is known to a fifth or better where noise is smooth.
    """
    rng = np.random.default_rng(5)
    covariances = smooth(DIMS, 0.9) if law == "smooth" else scales(DIMS, rng)
    samples, [(vectors, strength)] = planted(covariances, rng, 400)
    found = RaceSolver(random_state=1).run(samples)
    assert found.noise.whitening is not None
    assert found.found
    roots = [np.linalg.cholesky(c) for c in covariances]
    seen, true = (
        [unit(np.linalg.solve(r, v)) for r, v in zip(roots, vs, strict=True)] for vs in (found.vectors, vectors)
    )
    assert overlaps(seen, true) > 0.95
    assert found.strength == pytest.approx(strength, rel=0.5)
    low, high = found.strength_interval
    assert low < found.strength < high
    assert all(np.linalg.norm(e) < 0.7 for e in found.standard_errors)


def test_white_noise_is_raced_on_as_if_nobody_had_looked():
    rng = np.random.default_rng(3)
    samples, _ = planted([np.eye(12)] * 3, rng, 150)
    looked, not_looked = (RaceSolver(random_state=1, whiten=w).run(samples) for w in ("auto", None))
    assert looked.noise.whitening is None
    assert looked.strength == not_looked.strength
    for v, w in zip(looked.vectors, not_looked.vectors, strict=True):
        np.testing.assert_array_equal(v, w)


def test_two_components():
    rng = np.random.default_rng(0)
    samples, truth = planted(smooth(DIMS, 0.8), rng, 700, 2.0, 2)
    found = RaceSolver(random_state=0, n_components=2).run(samples)
    assert len(found.components) == 2
    for vectors, _ in truth:
        assert max(overlaps(one.vectors, vectors) for one in found.components) > 0.8


def test_handed_in_or_read():
    samples, _ = planted(smooth(DIMS, 0.9), np.random.default_rng(2), 200)
    batches = [samples[start : start + 7] for start in range(0, 200, 7)]
    read = RaceSolver(random_state=1).run(open_stream(iter(batches), items="batches"))
    pca = TensorPCA("race", random_state=1, max_passes=1, items="batches")
    for batch in batches:
        pca.partial_fit(batch)
    assert read.found
    assert pca.recovery_.strength == pytest.approx(read.strength, rel=1e-6)
    assert min(overlaps(pca.recovery_.vectors, read.vectors), 1) > 1 - 1e-9


@pytest.mark.parametrize("stop", [3, 12, 20, 26, 34])
def test_an_interrupted_race_goes_on_with_the_same_bits(stop, tmp_path):
    """While the noise is learnt, when the race has begun anew, and after."""
    samples, _ = planted(smooth(DIMS, 0.9), np.random.default_rng(2), 240)

    def rounds(run, engine, count):
        while count and (ask := run.ask()) is not None:
            run.tell(engine.reduce(ask.blank, ask.n))
            count -= 1

    solver = RaceSolver(random_state=1)
    engine = LocalEngine(samples)
    run = ComponentsRun(solver, engine)
    rounds(run, engine, stop)
    kept = Checkpoints(tmp_path, 0)
    kept.save({"run": run.state(), "engine": engine.position()})
    rounds(run, engine, -1)
    other = LocalEngine(samples)
    again = ComponentsRun(solver, other)
    state = kept.load()
    again.restore(state["run"])
    other.seek(state["engine"])
    rounds(again, other, -1)
    one, two = run.recovery(), again.recovery()
    assert one.strength == two.strength
    assert one.noise.whitening is not None
    for v, w in zip(one.vectors, two.vectors, strict=True):
        np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize(("dims", "limit"), [((12, 12, 12), 400_000), ((8, 8, 8), 150_000), ((30, 40), 2_000_000)])
def test_memory_is_kept(dims, limit):
    covariances = smooth(dims, 0.9)
    samples = coloured(150, covariances, np.random.default_rng(0))
    found = RaceSolver(random_state=0, memory_limit=limit).run(samples)
    assert found.noise.whitening is not None
    assert found.state_bytes <= limit


def test_where_memory_is_too_small_noise_is_not_whitened():
    samples = coloured(80, smooth(DIMS, 0.9), np.random.default_rng(0))
    solver = RaceSolver(random_state=0, memory_limit=30_000)
    run = ComponentsRun(solver, LocalEngine(samples))
    assert "takes a memory limit of about" in run.noise.without
    found = solver.run(samples)
    assert found.noise.whitening is None
    assert found.state_bytes <= 30_000
    with pytest.raises(MemoryBudgetError, match=r"whiten='modes' needs a memory_limit of about \d+ bytes"):
        RaceSolver(memory_limit=30_000, whiten="modes").run(samples)


def test_strategies_for_symmetry_need_modes_that_are_whitened_alike():
    rng = np.random.default_rng(0)
    for covariances, symmetric in ((smooth(DIMS, 0.9), True), (scales(DIMS, rng), False)):
        engine = LocalEngine(coloured(100, covariances, rng))
        run = ComponentsRun(RaceSolver(random_state=0), engine)
        while run.noise.learning and (ask := run.ask()) is not None:
            run.tell(engine.reduce(ask.blank, ask.n))
        assert run.noise.whitening is not None
        assert any(isinstance(s.strategy, Symmetric) for s in run.runs[0].searches) == symmetric


@pytest.mark.parametrize(("phi", "window"), [(0.5, 1), (0.9, 1), (0.0, 10)])
def test_neighbours_that_are_alike_are_counted_in_blocks(phi, window):
    """Pure noise that claimed a signal in nearly every run before; one run in twenty may, of which there are 3 here.

    Three claims in as many runs of three laws have a chance of 10^-4.
    """
    claims = 0
    for seed in range(3):
        samples = serial(300, (8, 8, 8), np.random.default_rng(seed), phi, window)
        found = RaceSolver(random_state=seed).run(samples)
        claims += found.found
        time = window if window > 1 else (1 + phi) / (1 - phi)
        assert found.noise.block >= 1.2 * time
        assert found.noise.correlation_time == pytest.approx(time, rel=0.8)  # of 8^3 numbers: a third each way
    assert claims < 3


def test_groups_that_are_known():
    samples = serial(200, (8, 8, 8), np.random.default_rng(0), 0.9)
    solver = RaceSolver(random_state=0, groups=40)
    run = ComponentsRun(solver, LocalEngine(samples))
    assert run.noise.block == 40
    assert not solver.run(samples).found
    with pytest.raises(SolverError, match="groups"):
        RaceSolver(groups=0)


def test_random_order_is_refused_where_it_would_hide_dependence():
    rng = np.random.default_rng(0)
    alike, independent = serial(120, (6, 6, 6), rng, 0.9), rng.standard_normal((120, 6, 6, 6))
    with pytest.raises(StreamError, match=r"depend on their neighbours, over about \d+.* read them in their order"):
        TensorPCA("race", shuffle=True, random_state=0).fit(alike)
    RaceSolver(random_state=0).run(open_stream(independent, shuffle=True))
    RaceSolver(random_state=0, groups=1).run(open_stream(alike, shuffle=True))
    with pytest.raises(StreamError, match="groups=4 are samples that follow each other"):
        RaceSolver(random_state=0, groups=4).run(open_stream(independent, shuffle=True))


def test_what_whiten_may_be():
    with pytest.raises(SolverError, match="whiten must be 'auto', 'modes' or None, got 'rows'"):
        RaceSolver(whiten="rows")


def test_what_is_plainly_not_white_is_whitened_early():
    """And sums of a flow that were whitened by the first look are carried over to what the second one says.

    Every sample counts, but for those before the first look, four pairs: 10^4 entries, memory for some columns only.
    """
    dims = (10, 10, 10, 10)
    rng = np.random.default_rng(6)
    samples = coloured(80, smooth(dims, 0.9), rng)
    engine, whitened = LocalEngine(samples), []
    run = ComponentsRun(RaceSolver(memory_limit="200kB", random_state=0), engine)
    while run.noise.learning:
        ask = run.ask()
        before = run.noise.whitening
        run.tell(engine.reduce(ask.blank, ask.n))
        if run.noise.whitening is not before:
            whitened.append(run.runs[0].samples)
            strategy = run.runs[0].searches[0].strategy
            assert strategy.name == "flow"
            assert strategy.count == (0 if before is None else whitened[1] - whitened[0])
    assert whitened[0] <= 20  # the first rounds have one sample, and no pair
    assert whitened[1] <= 64


def test_tails_that_are_plainly_heavy_are_clipped_early():
    rng = np.random.default_rng(7)
    samples = rng.standard_t(2.5, (40, 10, 10, 10, 10))
    engine = LocalEngine(samples)
    run = ComponentsRun(RaceSolver(memory_limit="200kB", random_state=0), engine)
    while run.noise.tails.clip is None:
        ask = run.ask()
        run.tell(engine.reduce(ask.blank, ask.n))
    assert run.runs[0].samples <= 16


def test_what_learning_the_noise_took_is_for_strategies_once_it_is_white():
    """What is held stays within the limit."""
    limit = 20_000
    engine = LocalEngine(open_stream(np.random.default_rng(3).standard_normal((90, 6, 6, 6, 6, 6))))
    run = ComponentsRun(RaceSolver(random_state=0, memory_limit=limit), engine)
    replicas = []
    while (ask := run.ask()) is not None:
        replicas.append(run.runs[0].searches[0].strategy.replicas)
        run.tell(engine.reduce(ask.blank, ask.n))
    assert replicas[-1] >= 1.1 * replicas[0]
    assert 0.8 * limit < run.state_bytes <= limit


@pytest.mark.parametrize("limit", [9_000, 12_000, 20_000])
@pytest.mark.parametrize("law", ["white", "serial", "smooth"])
def test_what_is_looked_at_of_a_round_stays_within_the_limit(limit, law):
    """Learning goes on longer in noise that is not white, and its rounds would grow."""
    rng = np.random.default_rng(1)
    noise = {
        "white": lambda: rng.standard_normal((300, 8, 8, 8)),
        "serial": lambda: serial(300, (8, 8, 8), rng, 0.9),
        "smooth": lambda: coloured(300, smooth((8, 8, 8), 0.9), rng),
    }
    assert RaceSolver(random_state=1, memory_limit=limit).run(noise[law]()).state_bytes <= limit
