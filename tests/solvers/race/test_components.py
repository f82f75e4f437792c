import itertools
import math

import numpy as np
import pytest

from amounts import few_or_many
from research.law import LawEngine
from tpca import RaceSolver, SpikedTensor
from tpca.solvers.estimate import StopReason

STRENGTHS = (6.0, 4.0, 2.5)
# Product over the modes of the overlaps of two components: how far each bends the other.
CLOSE = 0.03


class Planted:
    """Several rank-one signals at once; looks like a truth to the law."""

    def __init__(self, parts):
        self.parts, self.dims = parts, parts[0].dims

    def signal(self):
        return sum(part.signal() for part in self.parts)

    def samples(self, n, seed, dtype=np.float64):
        return np.random.default_rng(seed).standard_normal((n, *self.dims), dtype) + self.signal().astype(dtype)


def planted(dims, seed, strengths=STRENGTHS, most=CLOSE):
    """Components of random vectors, which are not orthogonal; drawn again if two are closer than ``most``."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = [[rng.standard_normal(d) for d in dims] for _ in strengths]
        units = [tuple(v / np.linalg.norm(v) for v in vectors) for vectors in drawn]
        close = [math.prod(abs(v @ w) for v, w in zip(a, b, strict=True)) for a, b in itertools.combinations(units, 2)]
        if max(close, default=0) < most:
            return Planted(
                [SpikedTensor(vectors, strength) for vectors, strength in zip(units, strengths, strict=True)]
            )


def orthogonal(dims, seed, strengths):
    rng = np.random.default_rng(seed)
    axes = [np.linalg.qr(rng.standard_normal((d, len(strengths))))[0].T for d in dims]
    return Planted([SpikedTensor(tuple(a[i] for a in axes), s) for i, s in enumerate(strengths)])


def check_all_found(estimate, truth):
    found = estimate.components
    assert estimate.found
    assert len(found) == len(truth.parts)
    assert [f.strength for f in found] == sorted((f.strength for f in found), reverse=True)
    for one, part in zip(found, truth.parts, strict=True):
        assert part.overlaps(one.vectors).min() >= 0.95
        assert one.strength == pytest.approx(part.strength, rel=0.1)
        assert math.prod(np.sign(v @ w) for v, w in zip(one.vectors, part.vectors, strict=True)) == 1
        assert [len(e) for e in one.standard_errors] == list(truth.dims)


# Statistical error alone: the squared error of a vector of the weakest component is (d - 1)/(2.5² n), 0.003 with n the
# 1000 samples or so that are left when it is found, against 0.1 that an overlap of 0.95 allows, and its strength is off
# by 0.03/2.5: both tens of standard deviations away.  What components do to each other while not all of them are found
# is washed out: in 150 other seeds the worst overlap was 0.999, the worst strength off by 3 %.  A race claims a signal
# that is not there with 5 % chance, but not in place of a real one.
@pytest.mark.parametrize("dims", [(16, 17, 18), (8, 9, 10, 7)])
@pytest.mark.slow
def test_all_components_are_found_in_a_stream_and_in_stored_data(dims):
    truth = planted(dims, seed=5)
    samples = truth.samples(1200, seed=6, dtype=np.float32)
    before = samples.copy()
    stored = RaceSolver(random_state=7, n_components=3).run(samples)
    streamed = RaceSolver(random_state=7, n_components=3).run(np.array_split(samples, 13))
    np.testing.assert_array_equal(samples, before)  # found components are never taken from the data
    for estimate in (stored, streamed):
        check_all_found(estimate, truth)
        assert estimate.n_samples == 1200
        assert estimate.n_passes == 1


@pytest.mark.parametrize("dims", [(9, 10, 11), (6, 7, 8, 5)])
def test_little_stored_data_are_read_again_for_every_component(dims):
    # A component is known well when more than half of the pass has gone by, so that the next race waits for a pass of
    # its own.  Squared errors of (d - 1)/(10² n), 1e-3; components are orthogonal, else each would bend the next.
    truth, seen = orthogonal(dims, 3, (40.0, 20.0, 10.0)), []
    estimate = RaceSolver(random_state=1, n_components=3, callbacks=[seen.append]).run(truth.samples(90, seed=4))
    check_all_found(estimate, truth)
    turns = [record["samples"] for record in seen]
    assert sum(later < earlier for earlier, later in itertools.pairwise(turns)) == 2  # began anew twice


@pytest.mark.parametrize("dims", [(12, 15), (30, 8)])
def test_at_order_two_they_are_the_singular_vectors_of_the_mean(dims):
    # Orthogonal truth, so that the singular vectors of the mean are about its own, and components do not bend each
    # other: both differ from it by squared errors of about (d - 1)/(5² n) = 1e-3, and so from each other.
    for seed in range(3):
        samples = orthogonal(dims, seed, (20.0, 10.0, 5.0)).samples(800, seed)
        left, values, right = np.linalg.svd(samples.mean(axis=0))
        estimate = RaceSolver(random_state=seed, n_components=3).run(samples)
        found = estimate.components
        assert len(found) == 3
        for i, one in enumerate(found):
            assert min(abs(one.vectors[0] @ left[:, i]), abs(one.vectors[1] @ right[i])) > 0.99
            assert one.strength == pytest.approx(values[i], rel=0.03)


# The level of every race is 1e-4, so that a false claim in 10 runs has a chance of at most 1e-3 by the race's own
# account (none was seen in 240 runs).
@pytest.mark.parametrize(
    ("dims", "strengths"), [((10,) * 3, (30.0, 20.0)), ((7,) * 4, (6.0, 3.0)), ((9, 12), (8.0, 4.0))]
)
@few_or_many(1, 3)
@pytest.mark.slow
def test_where_there_are_two_no_third_is_found(dims, strengths, runs):
    for seed in range(runs):
        truth = orthogonal(dims, seed, strengths)
        engine = LawEngine(truth, random_state=seed)
        estimate = RaceSolver(random_state=seed, n_components=3, confidence=0.9999, max_samples=400).run(engine)
        assert len(estimate.components) == 2
        check_all_found(estimate, truth)


@few_or_many(2, 5)
def test_where_there_is_nothing_nothing_is_found(runs):
    for seed in range(runs):  # at level 1e-4 each
        engine = LawEngine(None, dims=(6, 6, 6), random_state=seed)
        estimate = RaceSolver(random_state=seed, n_components=3, confidence=0.9999, max_samples=300).run(engine)
        assert estimate.stop_reason is StopReason.NO_SIGNAL
        assert not estimate.first.significant
        assert estimate.strength == 0


def test_one_component_is_the_race_without_others():
    truth = planted((6, 7, 8), 0, (3.0,))
    samples = truth.samples(200, 1)
    one, several = (RaceSolver(random_state=2, n_components=n, confidence=0.9999).run(samples) for n in (1, 2))
    assert len(several.components) == 1
    # The second race only shares the samples: rounds are as long as the shorter ask, which moves rounding and no more.
    assert several.n_samples == one.n_samples == 200
    for v, w in zip(one.vectors, several.vectors, strict=True):
        np.testing.assert_allclose(v, w, atol=0.05)
