import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import paper_groups
from tpca.errors import ModelError, PartitionError
from tpca.tensors.blocks import Partition

dims_of_any_order = st.lists(st.integers(2, 9), min_size=2, max_size=8).map(tuple)


@given(dims_of_any_order)
def test_pairs_cover_every_mode_once_and_are_sorted_by_length(dims):
    partition = Partition.pairs(dims)
    assert list(partition.groups) == paper_groups(dims)
    lengths = [dims[n] for group in partition.groups for n in group]
    assert lengths == sorted(lengths)


@given(dims_of_any_order)
def test_halves_are_the_most_even_split_there_is(dims):
    a, b = Partition.halves(dims).sizes
    assert a <= b
    total = a * b
    splits = [int(np.prod([d for n, d in enumerate(dims) if mask >> n & 1])) for mask in range(1, 2 ** len(dims) - 1)]
    assert b == min(max(s, total // s) for s in splits)


def test_halves_keep_equal_modes_in_order_and_what_is_no_partition_is_refused():
    halves = {3: ((0,), (1, 2)), 4: ((0, 1), (2, 3)), 5: ((0, 1), (2, 3, 4)), 6: ((0, 1, 2), (3, 4, 5))}
    assert {order: Partition.halves((9,) * order).groups for order in halves} == halves
    for groups in (((0, 1),), ((0, 1), (1, 2)), ((0, 1), (2, 3), ()), ((0, 4), (1, 2))):
        with pytest.raises(PartitionError, match=r"exactly once"):
            Partition((3, 4, 5, 6), groups)
    for dims, says in (((5,), "at least 2 axes"), ((5, 1), "at least 2 long"), ((), "2 axes")):
        with pytest.raises(ModelError, match=says):
            Partition.singles(dims)
