"""Gradients by sub-batch, of samples in whatever form: those of every sub-batch as if it were all there is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpca.tensors import DenseBatch, Gradients, Query, RankOne, SlabBatch, SparseBatch, ViewsBatch
from tpca.tensors.blocks import Partition

DIMS = (3, 4, 5)


def dense(rng, n):
    return DenseBatch(rng.standard_normal((n, *DIMS)))


def slabs(rng, n):
    samples = rng.standard_normal((n, *DIMS))
    parts = [slice(0, 2), slice(2, 4)]
    return SlabBatch(DIMS, 1, parts, np.arange(n), lambda i, part: np.ascontiguousarray(samples[i][:, part]))


def sparse(rng, n):
    coords = np.stack([rng.integers(0, d, 6 * n) for d in DIMS])
    return SparseBatch(coords, rng.standard_normal(6 * n), np.sort(rng.integers(0, n, 6 * n)), n, DIMS)


def views(rng, n):
    return ViewsBatch([rng.standard_normal((n, d)) for d in DIMS], rng.uniform(0.5, 2, n))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([dense, slabs, sparse, views]),
    st.integers(1, 20),
    st.sets(st.integers(1, 22), max_size=5).map(sorted),
    st.sets(st.integers(1, 19), max_size=3).map(sorted),
    st.booleans(),
    st.integers(0, 999),
)
def test_sub_batches_are_those_of_their_samples(kind, n, edges, cuts, deflated, seed):
    rng = np.random.default_rng(seed)
    batch = kind(rng, n)
    known = (RankOne(0.7, tuple(rng.standard_normal(d) for d in DIMS)),) if deflated else ()
    blocks = tuple(rng.standard_normal((1, d)) for d in DIMS)
    query = Query(Partition.singles(DIMS), blocks, deflate=known, by_part=(0, 1, 2))
    whole = Gradients([query], 0.5, (0, *edges))
    for start, stop in zip([0, *cuts], [*cuts, n], strict=True):
        if start < min(stop, n):
            whole.add(batch[start : min(stop, n)], start)
    whole.finish()
    (found,) = whole.answers
    limits = [edge for edge in (0, *edges) if edge < n] + [n]
    for j, (start, stop) in enumerate(itertools.pairwise(limits)):
        alone = Gradients([query], 0.5)
        alone.add(batch[start:stop])
        alone.finish()
        assert found.by_part.sizes[j] == stop - start
        # Differences of sums of up to 20 terms of size about 10.
        np.testing.assert_allclose(found.by_part.rewards[j], alone.answers[0].rewards[0], atol=1e-10)
        for m in range(3):
            expected = alone.answers[0].gradients[m][0]
            np.testing.assert_allclose(found.by_part.gradients[m][j], expected, atol=1e-10)
    assert len(found.by_part.sizes) == len(limits) - 1
    weighted = found.by_part.sizes @ found.by_part.rewards / n
    assert weighted == pytest.approx(found.rewards[0], abs=1e-10)
