"""Planted tensors of rank two and three, vectors not orthogonal, recovered one after the other."""

import numpy as np
import pytest

from tpca import RaceSolver, SpikedTensor, TensorPCA
from tpca.batches import DenseBatch, Query, RankOne, contract
from tpca.blocks import Partition
from tpca.oracles import LawOracle


class SumOracle(LawOracle):
    """The batch law of a sum of spiked tensors; ``again`` lets it be read again, with fresh noise."""

    def __init__(self, parts, seed, samples, again=False):
        super().__init__(parts[0], seed=seed, max_samples=samples)
        self._signal = sum(part.signal() for part in parts)
        self.rereadable, self._all = again, samples

    def rewind(self):
        self._left = self._all


def planted(dims, strengths, seed):
    return [SpikedTensor.random(dims, s, seed=100 * seed + i) for i, s in enumerate(strengths)]


# At these sizes the root mean squared error of the weakest is about sqrt(12/4000)/1.2 = 0.05 and a search needs about a
# hundred samples: an overlap below 0.95 is more than five standard errors away for every vector, seeds are consecutive.
@pytest.mark.parametrize("again", [False, True], ids=["one pass", "stored"])
@pytest.mark.parametrize("dims", [(12, 12, 12), (8, 8, 8, 8)], ids=["order 3", "order 4"])
def test_rank_three_is_recovered_strongest_first(dims, again):
    strengths = (3.0, 2.0, 1.2)
    for seed in range(3):
        parts = planted(dims, strengths, seed)
        recovery = RaceSolver(seed=seed, n_components=3).run(SumOracle(parts, seed, 4000, again))
        found = [recovery, *recovery.further]
        assert len(found) == 3
        for part, one in zip(parts, found, strict=True):
            assert min(part.overlaps(one.vectors)) >= 0.95
            assert abs(one.strength / part.strength - 1) < 0.1


def test_what_is_not_there_is_not_found():
    """Three asked for, two planted: at most one run in forty may claim a third (nominally 5 % at most each).

    Twelve runs; three or more claims at a rate of 5 % have probability 2 %, at the rate seen (under 1 %) 2e-4.
    """
    claims = 0
    for seed in range(6):
        for dims, strengths in (((10, 10, 10), (6.0, 3.0)), ((7, 7, 7, 7), (30.0, 20.0))):
            parts = planted(dims, strengths, seed)
            recovery = RaceSolver(seed=seed, n_components=3).run(SumOracle(parts, seed, 2000))
            claims += len(recovery.further) > 1
            for part, one in zip(parts, [recovery, *recovery.further], strict=False):
                assert min(part.overlaps(one.vectors)) > 0.95
    assert claims <= 2


def test_order_two_gives_singular_vectors(rng):
    left, right = np.linalg.qr(rng.standard_normal((12, 3)))[0], np.linalg.qr(rng.standard_normal((9, 3)))[0]
    data = (left * [9.0, 6.0, 4.0]) @ right.T + rng.standard_normal((3000, 12, 9))
    pca = TensorPCA(n_components=3, random_state=0).fit(data)
    u, s, v = np.linalg.svd(data.mean(axis=0))
    np.testing.assert_allclose(pca.strength_, s[:3], rtol=0.03)
    for c in range(3):
        assert abs(pca.components_[0][c] @ u[:, c]) > 0.99
        assert abs(pca.components_[1][c] @ v[c]) > 0.99


def test_components_of_the_estimator_are_rows_and_the_data_stay_untouched(rng):
    parts = planted((7, 6, 5), (4.0, 2.0), 1)
    data = sum(part.signal() for part in parts) + rng.standard_normal((2000, 7, 6, 5))
    before = data.copy()
    pca = TensorPCA(n_components=2, random_state=0).fit(data)
    np.testing.assert_array_equal(data, before)
    assert [c.shape for c in pca.components_] == [(2, 7), (2, 6), (2, 5)]
    assert [e.shape for e in pca.standard_errors_] == [(2, 7), (2, 6), (2, 5)]
    assert pca.transform(data).shape == (2000, 2)
    scores = pca.transform(data).mean(axis=0)
    cross = np.prod([c @ c.T for c in pca.components_], axis=0) @ pca.strength_
    np.testing.assert_allclose(scores, cross, rtol=0.05)
    assert pca.inverse_transform(np.ones((3, 2))).shape == (3, 7, 6, 5)


def test_state_stays_within_memory():
    parts = planted((10,) * 4, (2.0, 1.5, 1.0), 0)
    recovery = RaceSolver(seed=0, memory=40_000, n_components=3).run(SumOracle(parts, 0, 20_000))
    assert len(recovery.further) == 2
    assert recovery.state_bytes <= 40_000


@pytest.mark.parametrize("split", [Partition.singles, Partition.pairs, Partition.halves])
def test_subtraction_inside_the_contraction_is_that_from_the_samples(split, rng):
    dims = (4, 3, 5, 4)
    partition = split(dims)
    known = tuple(RankOne(s, tuple(rng.standard_normal(d) for d in dims)) for s in (2.0, -0.7))
    tensors = [np.einsum("a,b,c,d->abcd", *k.vectors) * k.strength for k in known]
    samples = rng.standard_normal((6, *dims))
    replicas = tuple(rng.standard_normal((3, *shape)) for shape in partition.shapes)
    ours = contract(samples[0], Query(partition, replicas, less=known))
    direct = contract(samples[0] - sum(tensors), Query(partition, replicas))
    np.testing.assert_allclose(ours.rewards, direct.rewards, rtol=1e-9, atol=1e-9)
    for m in direct.gradients:
        np.testing.assert_allclose(ours.gradients[m], direct.gradients[m], rtol=1e-9, atol=1e-9)
    one = DenseBatch(samples).each(Query(partition, replicas, (0,), known))
    other = DenseBatch(samples - sum(tensors)).each(Query(partition, replicas, (0,)))
    np.testing.assert_allclose(one.gradients[0], other.gradients[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.rewards, other.rewards, rtol=1e-9, atol=1e-9)
