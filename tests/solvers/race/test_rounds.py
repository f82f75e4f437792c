"""Rounds and their sub-batches: whole blocks, fixed before the samples come."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tpca.solvers.race.rounds import SUB_BATCHES, round_size, sub_batch_edges


@given(st.integers(0, 10**6), st.integers(1, 200))
def test_rounds_are_whole_blocks(done, block):
    size = round_size(done, block)
    assert size % block == 0
    assert size == block or size <= max(round_size(done), block)


@given(st.integers(1, 10**5), st.integers(1, 200), st.integers(1, SUB_BATCHES))
def test_sub_batches_are_whole_blocks_of_about_equal_size(n, block, most):
    edges = sub_batch_edges(n, block, most)
    assert edges[0] == 0
    assert len(edges) == max(1, min(n // block, most))
    sizes = [b - a for a, b in itertools.pairwise(edges)]
    assert all(size % block == 0 and size >= block for size in sizes)
    assert edges[-1] < n
    blocks = [size // block for size in [*sizes, n - edges[-1]]]
    assert max(blocks) - min(blocks) <= 1
