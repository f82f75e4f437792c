"""Rounds and their sub-batches: whole blocks, fixed before the samples come."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.law import LawEngine
from tpca import RaceSolver
from tpca.solvers.race.rounds import SUB_BATCHES, round_size, sub_batch_edges
from tpca.solvers.race.run import FEW_SUB_BATCHES, HOPE


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


@pytest.mark.parametrize(("evidence", "many"), [(0.0, False), (2 * HOPE, True), (100.0, False)])
def test_rounds_are_cut_into_many_sub_batches_only_where_a_candidate_has_hope_and_none_is_proven(evidence, many):
    run = RaceSolver(random_state=0).start(LawEngine(None, dims=(4,) * 3, random_state=1)).races[0]
    candidate = run.candidates[0]
    assert len(run.edges(1000)) == FEW_SUB_BATCHES
    candidate.attempt = 1
    candidate.wealth.log = candidate.wealth.peaks[0] = evidence
    assert len(run.edges(1000)) == (SUB_BATCHES if many else FEW_SUB_BATCHES)
    assert len(run.edges(2)) == 2
    candidate.wealth.log = candidate.wealth.peaks[0] = 0.0
    run.phase = "trial"
    assert len(run.edges(1000)) == SUB_BATCHES
