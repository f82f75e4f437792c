"""What a fit of the mean does, by counts of fits, contractions and flips; a clip without effect is refused."""

import numpy as np
import pytest

from tpca import MeanSolver, SpikedTensor
from tpca.errors import MemoryBudgetError, SolverError
from tpca.solvers.mean import climb, judge, plain, symmetric
from tpca.solvers.mean import test as flips

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


def test_two_contractions_a_sweep(monkeypatch):
    """Whatever the order; the sweeps are those of plain alternating least squares."""
    rng = np.random.default_rng(0)
    tensors = rng.standard_normal((2, 3, 4, 5, 2))
    vectors = [rng.standard_normal((2, 3, d)) for d in tensors.shape[1:]]
    contractions = counted(monkeypatch, climb, "halves")
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
