"""What a fit of the mean does, by counts of fits, contractions and flips; a clip without effect is refused."""

import itertools

import numpy as np
import pytest
from mean_noises import grouped

from tpca import MeanSolver, SpikedTensor
from tpca.engines import LocalEngine
from tpca.errors import MemoryBudgetError, SolverError
from tpca.noise import EntrySizes
from tpca.solvers.mean import climb, judge, limit, plain, symmetric
from tpca.solvers.mean import test as flips
from tpca.solvers.rank_one import units

DIMS = (6, 7, 8)


def samples(strength, n=200, dims=DIMS):
    return next(iter(SpikedTensor.random(dims, strength, random_state=1).stream(random_state=2, batch_size=n)))


def counted(monkeypatch, module, name):
    calls, own = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **more: calls.append(args) or own(*args, **more))
    return calls


def test_a_plain_signal_needs_one_fit_from_one_start(monkeypatch):
    tests, fits = counted(monkeypatch, judge, "flip_test"), counted(monkeypatch, judge, "best_fit")
    equal = counted(monkeypatch, judge, "best_symmetric")
    assert MeanSolver(random_state=0).run(samples(3.0, dims=(8, 8, 8))).found
    assert (len(tests), len(fits), len(equal)) == (0, 0, 0)


def test_noise_is_fitted_by_the_test_alone(monkeypatch):
    """Without a signal the guess is what the test came across, and a test that cannot succeed any more ends."""
    fits, looked = counted(monkeypatch, judge, "best_fit"), counted(monkeypatch, flips, "quick_fits")
    tensors = []
    for seed in range(6):
        looked.clear()
        noise = np.random.default_rng(seed).standard_normal((200, *DIMS))
        assert not MeanSolver(random_state=0, confidence=0.999).run(noise).found
        tensors.append(sum(len(args[0]) for args in looked))
    assert not fits
    assert min(tensors) == 1 + flips.FIRST  # the mean and the first few flips


def test_a_test_on_noise_looks_at_a_few_flips_then_at_some_more(monkeypatch):
    """Chunks of 4 and 8 flips before the rest; two of them as far as the mean end the test.

    The place of the mean among 13 is as likely as any other: all 39 flips are looked at in 2 of 13 runs, and in more
    than 9 of 20 with a chance of 3e-5 (binomial).
    """
    looked, tensors = counted(monkeypatch, flips, "quick_fits"), []
    for seed in range(20):
        looked.clear()
        noise = np.random.default_rng(seed).standard_normal((60, *DIMS))
        MeanSolver(random_state=0).run(noise)
        tensors.append([len(args[0]) for args in looked])
    assert all(chunks[:3] == [5, 8, 27][: len(chunks)] for chunks in tensors)
    assert sum(len(chunks) == 3 for chunks in tensors) <= 9


def test_small_groups_are_read_at_once(monkeypatch):
    """A round for the noise, one for all groups, and one that finds the end; the sums have the bits of one by one."""
    calls = counted(monkeypatch, LocalEngine, "reduce")
    data = samples(0.5, 300).astype(np.float32)
    once = MeanSolver(random_state=0).run(data)
    assert len(calls) == 3
    monkeypatch.setattr("tpca.solvers.mean.run.SHORT", 0)
    calls.clear()
    one_by_one = MeanSolver(random_state=0).run(data)
    assert len(calls) == 10
    assert once.strength == one_by_one.strength
    assert [r["samples"] for r in once.history] == [r["samples"] for r in one_by_one.history]


def test_large_groups_are_summed_where_they_are_kept():
    """No group is copied once it is added up; the first, which began with the look at the noise, is added to."""
    from tpca.solvers.mean.run import MeanRun

    data = np.random.default_rng(0).standard_normal((32, 64, 64, 64), dtype=np.float32)
    engine = LocalEngine(data)
    run, made = MeanRun(MeanSolver(), engine), []
    while (ask := run.ask()) is not None:
        part = engine.reduce(ask.blank, ask.n)
        total = run.noise.tails.parts(part)[0].total
        made.append(total is not None and np.shares_memory(total, run.grouping._room))
        run.tell(part)
    assert made.count(True) == len(run.grouping.counts) == 8
    np.testing.assert_allclose(run.grouping.sums.sum(axis=0), data.sum(axis=0), atol=1e-4)


def test_sizes_of_entries_are_looked_at_where_tails_are_heavy(monkeypatch):
    looks = counted(monkeypatch, EntrySizes, "_look")
    rng = np.random.default_rng(0)
    MeanSolver(random_state=0).run(rng.standard_normal((300, *DIMS)))
    assert not looks
    MeanSolver(random_state=0).run(rng.standard_t(2, (300, *DIMS)))
    assert len(looks) == 1


def test_two_contractions_a_sweep(monkeypatch):
    """Whatever the order; the sweeps are those of plain alternating least squares."""
    rng = np.random.default_rng(0)
    tensors = rng.standard_normal((2, 3, 4, 5, 2))
    vectors = [rng.standard_normal((2, 3, d)) for d in tensors.shape[1:]]
    contractions = counted(monkeypatch, climb, "_rays")
    found, values = climb.climb(tensors, vectors, 7, 0.0)
    assert len(contractions) == 2 * 7
    own = [v[1, 2] for v in vectors]
    for _ in range(7):
        for mode in range(4):
            axes = "abcd"
            rest = ",".join(a for m, a in enumerate(axes) if m != mode)
            others = [v for m, v in enumerate(own) if m != mode]
            gradient = np.einsum(f"{axes},{rest}->{axes[mode]}", tensors[1], *others)
            own[mode] = gradient / np.linalg.norm(gradient)
    np.testing.assert_allclose(values[1, 2], np.linalg.norm(gradient), rtol=1e-12)
    for v, w in zip(found, own, strict=True):
        np.testing.assert_allclose(v[1, 2], w, atol=1e-12)
    alone, value = climb.climb_one(tensors[1], [v[1, 2] for v in vectors], 7, 0.0)
    np.testing.assert_allclose(value, values[1, 2], rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(alone), np.concatenate(own), atol=1e-12)


def test_lengths_that_nobody_asks_for_change_nothing():
    """Climbs in step whose vectors have any length on the way end where those of unit vectors do."""
    rng = np.random.default_rng(0)
    for dims in ((8, 8, 8), (5, 4, 3, 6), (4, 3)):
        tensors = rng.standard_normal((3, *dims)).astype(np.float32)
        vectors = [units(rng.standard_normal((3, 4, d))).astype(np.float32) for d in dims]
        found, values = climb.climb(tensors, vectors, 9, 0.0)
        looked_at, expected = climb.climb(tensors, vectors, 9, 1e-30)
        np.testing.assert_allclose(values, expected, rtol=1e-5)
        for v, w in zip(found, looked_at, strict=True):
            np.testing.assert_allclose(v, w, atol=1e-3)


def test_a_tensor_of_zeros_leaves_vectors_where_they_are():
    """And those of others beside it climb, without a warning."""
    rng = np.random.default_rng(0)
    tensors = rng.standard_normal((2, 4, 5, 6))
    vectors = [units(rng.standard_normal((2, 3, d))) for d in (4, 5, 6)]
    alone, expected = climb.climb(tensors[1:], [v[1:] for v in vectors], 5, 0.0)
    tensors[0] = 0
    found, values = climb.climb(tensors, vectors, 5, 0.0)
    np.testing.assert_array_equal(values[0], 0)
    np.testing.assert_allclose(values[1:], expected, rtol=1e-12)
    for v, before, own in zip(found, vectors, alone, strict=True):
        np.testing.assert_array_equal(v[0], before[0])
        np.testing.assert_allclose(v[1:], own, atol=1e-12)


def test_movement_is_looked_at_when_a_fit_no_longer_grows(monkeypatch):
    looks, sweeps = counted(monkeypatch, climb, "movement"), counted(monkeypatch, climb, "_turns")
    tensor = np.random.default_rng(0).standard_normal((8, 8, 8))
    vectors = [np.eye(8)[0]] * 3
    found, value = climb.climb_one(tensor, vectors, 5000)
    assert 2 < len(looks) < len(sweeps) / 4
    again, same = climb.climb_one(tensor, found, 5000)
    assert same == pytest.approx(value, rel=1e-14)
    assert climb.movement(found, again) < climb.MOVE_TOL


def test_starts_of_the_limit_in_step_end_as_they_do_apart():
    rng = np.random.default_rng(0)
    groups = grouped(rng.standard_normal((64, *DIMS)))
    starts = rng.standard_normal((4, 8))
    apart = [limit._strongest(groups, starts[i : i + 3], 3) for i in (0, 3)]
    assert limit._strongest(groups, starts, 3) == pytest.approx(max(apart), rel=1e-5)


def test_few_flips_are_looked_at_where_a_signal_is_plain(monkeypatch):
    looked = counted(monkeypatch, plain, "_quick_fits")
    monkeypatch.setattr(judge, "far_beyond", lambda *_: False)
    assert MeanSolver(random_state=0).run(samples(3.0)).found
    assert sum(len(args[0]) for args in looked) == 1 + plain.FLIPS


def test_symmetric_starts_are_made_for_all_tensors_at_once(monkeypatch):
    calls = counted(monkeypatch, symmetric, "_starts")
    rng = np.random.default_rng(0)
    tensors = rng.standard_normal((5, 6, 6, 6))
    symmetric.best_symmetric(tensors, [rng.standard_normal((5, 6)) for _ in range(3)], rng, (3, 3, 0))
    assert len(calls) == 1


@pytest.mark.parametrize("dims", [(5, 5, 5), (4, 4, 4, 4), (3, 3, 3, 3, 3)])
def test_symmetric_tensors_have_one_gradient(dims, monkeypatch):
    """That of the mean over all orders of the modes, with one contraction instead of two."""
    rng = np.random.default_rng(0)
    tensors, x = rng.standard_normal((2, *dims)), rng.standard_normal((2, 3, dims[0]))
    orders = list(itertools.permutations(range(1, 1 + len(dims))))
    whole = sum(tensors.transpose(0, *order) for order in orders) / len(orders)
    same = symmetric.symmetrised(tensors)
    np.testing.assert_allclose(same, whole, atol=1e-13)
    expected = symmetric.symmetric_gradients(tensors, x)
    contractions = counted(monkeypatch, symmetric, "halves")
    np.testing.assert_allclose(symmetric.symmetric_gradients(same, x, same=True), expected, atol=1e-12)
    assert len(contractions) == 1


def test_a_clip_without_effect_is_refused():
    with pytest.raises(SolverError, match=r"clip=2 needs at least 64 samples.*got 20"):
        MeanSolver(clip=2.0).run(samples(1.0, 20))
    needed = judge_bytes()
    with pytest.raises(MemoryBudgetError, match=r"clip=2 needs .* bytes more than memory_limit leaves"):
        MeanSolver(clip=2.0, memory_limit=needed).run(samples(1.0))
    assert MeanSolver(clip="auto", memory_limit=needed).run(samples(3.0)).found


def judge_bytes():
    """What the mean takes without anything for the noise."""
    from tpca.solvers.mean.memory import groups_needed, mean_bytes

    return mean_bytes(DIMS, groups_needed(0.95))
