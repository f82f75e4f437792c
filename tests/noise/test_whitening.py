"""Whitening inside the contraction is whitening of the data, whatever form they come in."""

import dataclasses
import math

import numpy as np
import pytest

from tpca.noise import Whitening
from tpca.noise.carrying import carried
from tpca.tensors import DenseBatch, Gradients, Query, RankOne, SlabBatch, SparseBatch, ViewsBatch
from tpca.tensors.blocks import Partition, unit

DIMS, N = (3, 4, 3, 5), 6
RNG = np.random.default_rng(0)


def spread(d):
    """A covariance with eigenvalues between 0.1 and 10."""
    axes, _ = np.linalg.qr(RNG.standard_normal((d, d)))
    return (axes * np.geomspace(0.1, 10, d)) @ axes.T


WHITENING = Whitening.of([spread(d) for d in DIMS])
KNOWN = RankOne(0.7, tuple(unit(RNG.standard_normal(d)) for d in DIMS))
VIEWS = [RNG.standard_normal((N, d)) for d in DIMS]
PARTITIONS = {
    "singles": Partition.singles(DIMS),
    "pairs": Partition(DIMS, ((2, 0), (1, 3))),
    "halves": Partition(DIMS, ((1,), (3, 0, 2))),
    "whole": Partition(DIMS, ((3, 1, 2, 0),)),
}


def kron(matrices, tensor):
    """A matrix along every axis, in the slowest way."""
    return np.einsum("ia,jb,kc,ld,nabcd->nijkl", *matrices, tensor)


def dense(batch):
    return DenseBatch(np.stack([batch[j : j + 1].add_to(None) for j in range(len(batch))]))


def batches():
    samples = RNG.standard_normal((N, *DIMS))
    thin = samples * (RNG.random(samples.shape) < 0.2)
    sample, *coords = np.nonzero(thin)
    parts = [slice(0, 2), slice(2, 3)]
    return {
        "dense": DenseBatch(samples),
        "slab": SlabBatch(DIMS, 2, parts, np.arange(N), lambda i, part: samples[i][:, :, part].copy()),
        "sparse": SparseBatch(np.stack(coords), thin[thin != 0], sample, N, DIMS),
        "views": ViewsBatch(VIEWS, RNG.standard_normal(N)),
    }


BATCHES = batches()


def answered(batch, query, scale=1.0):
    part = Gradients((query,), scale)
    part.add(batch)
    part.finish()
    return part.answers[0]


def random_query(partition, **more):
    return Query(partition, tuple(RNG.standard_normal((2, *shape)) for shape in partition.shapes), **more)


def same(found, expected):
    # Products of at most 180 numbers, by matrices of condition 10: a few hundred roundings of numbers of about 10.
    np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-10, atol=1e-10)
    for m, gradient in expected.gradients.items():
        np.testing.assert_allclose(found.gradients[m], gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("deflate", [(), (KNOWN,)], ids=["plain", "deflated"])
def test_inside_the_contraction_or_before_it(batch, partition, deflate):
    query = random_query(partition, deflate=deflate)
    expected = answered(DenseBatch(kron(WHITENING.matrices, dense(batch).samples)), query)
    same(WHITENING.answer(query, answered(batch, WHITENING.query(query))), expected)


@pytest.mark.parametrize("name", ["dense", "sparse"])
def test_traces(name):
    """An identity that is traced becomes W_i W_j, which is not one."""
    partition = Partition(DIMS, ((0, 2), (1,), (3,)))
    blocks = (np.broadcast_to(np.eye(3), (1, 3, 3)), RNG.standard_normal((1, 4)), RNG.standard_normal((1, 5)))
    traced = Query(partition, blocks, gradients_of=(1,), traced=(0,))
    assert WHITENING.query(traced).traced == ()
    expected = answered(DenseBatch(kron(WHITENING.matrices, dense(BATCHES[name]).samples)), traced)
    same(WHITENING.answer(traced, answered(BATCHES[name], WHITENING.query(traced))), expected)


def test_sub_batches():
    query = random_query(PARTITIONS["singles"], by_part=(0, 2))
    query = dataclasses.replace(query, replicas=tuple(block[:1] for block in query.replicas))

    def parts_of(batch, query):
        part = Gradients((query,), 1.0, (0, 2))
        part.add(batch, 0)
        part.finish()
        return part.answers[0]

    whitened = DenseBatch(kron(WHITENING.matrices, BATCHES["dense"].samples))
    expected = parts_of(whitened, query).by_part
    found = WHITENING.answer(query, parts_of(BATCHES["dense"], WHITENING.query(query))).by_part
    same(found, expected)
    np.testing.assert_array_equal(found.sizes, expected.sizes)


def test_what_takes_no_memory_still_takes_none():
    """Nor are blocks widened as a whole: beyond the copy itself, no more than a few chunks."""
    shape = (50, *(PARTITIONS["whole"].shapes[0]))
    nothing = Query(PARTITIONS["whole"], (np.broadcast_to(np.zeros((), np.float16), shape),))
    assert not any(WHITENING.query(nothing).replicas[0].strides)


def test_replicas_keep_their_precision():
    half = Query(PARTITIONS["pairs"], tuple(RNG.random((2, *s)).astype(np.float16) for s in ((3, 3), (4, 5))))
    asked = WHITENING.query(half)
    assert {block.dtype for block in asked.replicas} == {np.dtype(np.float16)}
    answer = WHITENING.answer(half, answered(BATCHES["dense"], asked))
    assert {gradient.dtype for gradient in answer.gradients.values()} == {np.dtype(np.float16)}


def test_tensors_and_vectors():
    samples = BATCHES["dense"].samples
    np.testing.assert_allclose(WHITENING.tensor(samples), kron(WHITENING.matrices, samples), atol=1e-10)
    np.testing.assert_allclose(WHITENING.tensor(samples[0]), kron(WHITENING.matrices, samples[:1])[0], atol=1e-10)
    for i, (v, w) in enumerate(zip(WHITENING.vectors(KNOWN.vectors), KNOWN.vectors, strict=True)):
        np.testing.assert_allclose(v, WHITENING.matrices[i] @ w, atol=1e-12)
        np.testing.assert_allclose(WHITENING.gradient(w, i), v, atol=1e-12)


def test_whitened_noise_is_white():
    covariances = [spread(d) for d in DIMS]
    for matrix, inverse, c in zip(*vars(Whitening.of(covariances)).values(), covariances, strict=True):
        np.testing.assert_allclose(matrix @ c @ matrix * len(c) / np.trace(c), np.eye(len(c)), atol=1e-10)
        np.testing.assert_allclose(matrix @ inverse, np.eye(len(c)), atol=1e-10)


def test_a_direction_without_noise_is_not_taken_for_infinitely_quiet():
    whitening = Whitening.of([np.diag([1.0, 1.0, 0.0]), np.eye(4)])
    assert np.abs(whitening.matrices[0]).max() <= 1e3 * whitening.matrices[0][0, 0] * (1 + 1e-9)
    assert np.isfinite(whitening.inverses[0]).all()


def test_a_signal_there_and_back():
    vectors = tuple(unit(RNG.standard_normal(d)) for d in DIMS)
    moved = WHITENING.vectors(vectors)
    strength = 2.0 * math.prod(float(np.linalg.norm(v)) for v in moved)
    whitened = tuple(unit(v) for v in moved)
    for v, w in zip(WHITENING.back(whitened), vectors, strict=True):
        np.testing.assert_allclose(v, w, atol=1e-12)
    assert strength * WHITENING.factor(whitened) == pytest.approx(2.0, rel=1e-12)


def test_errors_carried_back_are_those_of_vectors_carried_back():
    """Against differences: vectors of the whitened data moved a little, in 4 · 10^4 draws of each covariance.

    The variance of a draw's square is twice its own; 10 standard errors of the mean are 10 √(2 / 40000) = 7 %.
    """
    step, draws = 1e-4, 40_000
    whitened = [unit(RNG.standard_normal(d)) for d in DIMS]
    covariances = []
    logs = np.zeros(draws)
    for mode, u in enumerate(whitened):
        across = np.eye(len(u)) - np.outer(u, u)
        root = across @ RNG.standard_normal((len(u), len(u))) * step
        covariances.append(root @ root.T)
        moved = u + RNG.standard_normal((draws, len(u))) @ root.T
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        raw = moved @ WHITENING.inverses[mode]
        lengths = np.linalg.norm(raw, axis=1)
        logs += np.log(lengths)
        expected = np.cov((raw / lengths[:, None]).T)
        total = float(np.trace(expected))
        assert WHITENING.slope_error(mode, u, covariances[-1]) ** 2 == pytest.approx(total, rel=0.07)
        found = carried(WHITENING.inverses[mode], u, covariances[-1])
        np.testing.assert_allclose(found.errors, expected, atol=0.07 * np.abs(expected).max())
    lengths = [each.relative for each in WHITENING.carried(whitened, covariances)]
    assert math.hypot(*lengths) == pytest.approx(logs.std(), rel=0.04)


def test_bytes_and_sharing():
    assert WHITENING.nbytes == 2 * 8 * sum(d * d for d in DIMS)
    assert not WHITENING.shared
    one = spread(4)
    assert Whitening.of([one, one]).shared
    assert not Whitening.of([one, one + np.eye(4)]).shared
