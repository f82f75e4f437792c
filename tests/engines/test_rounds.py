"""How rounds are cut and merged, and what this process reads: the same bits, however work is shared out."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.law import LawEngine
from stream_suite import zarr_array
from tpca import SpikedTensor
from tpca.data import open_stream, stored
from tpca.data.base import Layout
from tpca.engines import LocalEngine, open_engine
from tpca.engines import base as groups
from tpca.engines.base import Groups, cut_samples, merge_all, sum_bytes
from tpca.engines.dask.engine import power_of_two
from tpca.errors import StreamError
from tpca.tensors import Gradients, Query, TensorSum, contract
from tpca.tensors.blocks import Partition

DIMS = (4, 3, 5)


def layout(lengths, **options):
    known = {"certain": True, "entries": 60, "summable": True, **options}
    return Layout(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), **known)


def query(rng, count=3, partition=None, dtype=np.float64, **options):
    partition = partition or Partition.singles(DIMS)
    return Query(partition, tuple(rng.standard_normal((count, *s)).astype(dtype) for s in partition.shapes), **options)


class Words:
    """An accumulator that remembers how it was put together."""

    nbytes = 1

    def __init__(self, text=""):
        self.text = text

    def fresh(self):
        return Words()

    def close(self):
        self.text = f"<{self.text}>"

    def merge(self, other):
        self.text = f"({self.text}{other.text})"


def merged(parts):
    root = merge_all([None if text is None else Words(text) for text in parts])
    return None if root is None else root.text


def test_leaves_are_merged_in_pairs_and_missing_ones_leave_a_gap():
    assert merged("a") == "a"
    assert merged("abcd") == "((ab)(cd))"
    assert merged("abcdef") == "(((ab)(cd))(ef))"
    assert merged([None, "b", None, None, "e", None, None, "h"]) == "(b(eh))"
    assert merged([None] * 4) is None
    leaves = [Words("a"), Words("b"), None, Words("c")]
    assert merge_all(leaves).text == "((ab)c)"
    assert [leaf and leaf.text for leaf in leaves] == ["a", "b", None, "c"]  # which are not changed


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_sharing_out_into_runs_gives_the_same_tree(data):
    leaves = 2 ** data.draw(st.integers(0, 6))
    present = data.draw(st.sets(st.integers(0, leaves - 1), min_size=1))
    parts = [f"<{leaf}>" if leaf in present else None for leaf in range(leaves)]
    nodes = [None if text is None else Words(text) for text in parts]
    while len(nodes) > 1:
        fan = data.draw(st.sampled_from([2, 4, 8]))
        nodes = [merge_all(nodes[i : i + fan]) for i in range(0, len(nodes), fan)]
    assert nodes[0].text == merged(parts)
    groups = Groups(Words())
    for leaf in sorted(present):
        groups.part_of(leaf).text = str(leaf)
        assert groups.part_of(leaf).text == str(leaf)
        assert groups.nbytes <= 1 + leaves.bit_length()  # one part a level, and the one that is open
    assert groups.merged().text == merged(parts)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(0, 400), st.integers(1, 2000), st.integers(8, 90)
)
def test_groups_cover_the_round_in_order_and_are_large_enough(lengths, place, n, least):
    where = layout(lengths, entries=groups.GROUP_ENTRIES // least)
    place = min(place, int(where.bounds[-1]) - 1)
    edges = cut_samples(where, np.float64, TensorSum(), place, n).edges
    assert power_of_two(len(edges)) == len(edges)
    assert list(edges) == sorted(set(edges))
    touched = [int(start) for start, stop in itertools.pairwise(where.bounds) if start < place + n and stop > place]
    assert edges[0] == touched[0]
    assert set(edges) <= set(touched)
    assert len(edges) == 1 or len(edges) * least <= n
    alone = cut_samples(replace(where, alone=True), np.float64, TensorSum(), place, n)
    assert list(alone.edges) == touched
    assert len(touched) <= alone.leaves == power_of_two(len(touched))
    for g, (first, stop) in enumerate(itertools.pairwise([*alone.edges, 10**6])):
        assert alone.group(first) == alone.group(stop - 1) == g


def test_what_travels_is_the_smaller_of_sum_and_gradients_and_groups_depend_on_the_question_only(rng):
    """A sum of samples needs no question on the way; a group that ends with gradients does."""
    where, ask = layout([100] * 80, entries=2**17), Gradients([query(rng)])
    private = cut_samples(replace(where, private=True), np.float64, ask, 0, 8000)
    assert cut_samples(None, np.float64, ask, 0, 8000).leaves == private.leaves == 1
    small, large = (cut_samples(where, np.float64, ask, 0, n) for n in (60, 8000))
    assert (small.leaves, large.leaves) == (1, 64)
    assert cut_samples(where, np.float64, ask, 0, None) == large  # to the end of the pass
    where = layout([10] * 4)

    def asked(dtype, *queries):
        return bool(Gradients(queries).for_worker(sum_bytes(where, dtype)).queries)

    few, many = query(rng, 2), query(rng, 40)
    assert asked(np.float64, few)  # 2 * 12 numbers against 60
    assert not asked(np.float64, many)
    assert not asked(np.float32, query(rng, 3))  # 288 bytes against 240
    assert bool(Gradients([many]).for_worker(sum_bytes(replace(where, summable=False), np.float64)).queries)


def test_queries_travel_without_what_is_not_needed(rng):
    pair = Partition(DIMS, ((0, 1), (2,)))
    nothing = np.broadcast_to(np.zeros(()), (1, *DIMS))
    asks = (
        query(rng, 5),
        query(rng, 500, pair, np.float16, gradients_of=(0,)),
        Query(Partition(DIMS, ((0, 1, 2),)), (nothing,)),
    )
    packed = pickle.dumps(tuple(ask.for_gradients() for ask in asks), protocol=5)
    assert len(packed) < 8 * 5 * 12 + 2 * 500 * 5 + 2000  # of the second only the vectors, of the third nothing
    for sent, got in zip(asks, pickle.loads(packed), strict=True):
        assert got.partition == sent.partition
        assert got.blocks == sent.blocks
        for m, (a, b) in enumerate(zip(sent.replicas, got.replicas, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if sent.blocks != (m,):
                np.testing.assert_array_equal(a, b)
    for sent, got in zip(asks, pickle.loads(pickle.dumps(asks)), strict=True):
        for a, b in zip(sent.replicas, got.replicas, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.fixture
def small(monkeypatch):
    """Batches of 7 samples, groups of 2 batches."""
    monkeypatch.setattr(stored, "BATCH_ENTRIES", 7 * 60)
    monkeypatch.setattr(groups, "GROUP_ENTRIES", 14 * 60)


@pytest.mark.parametrize("policy", ["raise", "omit"])
def test_groups_change_no_more_than_rounding(policy, rng, small, work, monkeypatch):
    samples = rng.standard_normal((60, *DIMS))
    if policy == "omit":  # also all of the second and of the last batch
        samples[[3, 20, 21, 30], 0, 0, 0] = np.nan
        samples[7:14] = np.nan
        samples[-4:, 1, 2, 3] = np.inf
    stream = open_stream(zarr_array(samples, work, chunks=(1, *DIMS)), nan_policy=policy)
    asks = [query(rng, 2), query(rng, 2, Partition(DIMS, ((0, 1), (2,))), gradients_of=(0,))]
    for queries in (asks, asks[:1] * 30):  # ends as gradients; ends as a sum
        cut = cut_samples(stream.layout, stream.dtype, Gradients(queries), 0, 60)
        assert cut.leaves == 4
        assert bool(Gradients(queries).for_worker(480).queries) == (len(queries) == 2)
        grouped = LocalEngine(stream).reduce(Gradients(queries, 2.0), 60)
        with monkeypatch.context() as patch:
            patch.setattr(groups, "GROUP_ENTRIES", 10**9)
            plain = LocalEngine(stream).reduce(Gradients(queries, 2.0), 60)
        assert grouped.n == plain.n
        for one, other in zip(grouped.answers, plain.answers, strict=True):
            np.testing.assert_allclose(one.rewards, other.rewards, rtol=1e-12, atol=1e-13)


# -- rounds of an engine of this process, and of a law ----------------------------------------------------------------

TRUTH = SpikedTensor.random(DIMS, 1.0, random_state=0)


@pytest.mark.parametrize("cut", [1, 3, 7, 100])
def test_rounds_take_the_samples_in_order_however_they_are_batched(cut, rng):
    data, ask = rng.standard_normal((20, *DIMS)), query(rng)
    batches = [data[i : i + cut] for i in range(0, 20, cut)]
    engine = LocalEngine(open_stream(batches, items="batches"))
    first = 0
    for n in (1, 4, 10, 9):
        answered = engine.reduce(Gradients([ask]), n)
        part = data[first : first + n]
        first += n
        assert answered.n == len(part)
        expected = contract(part.mean(axis=0), ask)
        for m in expected.gradients:
            np.testing.assert_allclose(answered.answers[0].gradients[m], expected.gradients[m], rtol=1e-10, atol=1e-12)
    assert engine.reduce(Gradients([ask]), 1).n == 0


def test_an_array_can_be_read_again_and_an_iterator_cannot(rng):
    data, ask = rng.standard_normal((10, *DIMS)), query(rng)
    engine = LocalEngine(data)
    assert engine.rereadable
    assert engine.length == 10
    once = engine.reduce(Gradients([ask]), 10).answers[0].rewards
    engine.rewind()
    np.testing.assert_array_equal(engine.reduce(Gradients([ask]), 10).answers[0].rewards, once)
    assert not LocalEngine(open_stream(iter([data]), items="batches")).rereadable
    assert LocalEngine(TRUTH.stream()).endless
    with pytest.raises(StreamError, match="cannot be read again"):
        LawEngine(TRUTH).rewind()


def test_a_law_ends_counts_and_has_a_name_of_its_own(rng):
    engine = LawEngine(TRUTH, random_state=1, max_samples=10)
    assert not engine.endless
    assert [engine.reduce(Gradients([query(rng)]), 7).n for _ in range(3)] == [7, 3, 0]
    assert open_engine(engine) is engine
    kinds = ((1.0, 1), (1.0, 2), (2.0, 1), (1.0, 1))
    laws = [LawEngine(SpikedTensor.random((4, 4, 4), strength, random_state=seed)) for strength, seed in kinds]
    assert len({law.identity for law in laws}) == 3
    assert laws[0].identity == laws[3].identity
