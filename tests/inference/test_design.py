"""A design that grows batch by batch: the rows of all, none of them changed, each copied a few times at most."""

import copy
import math
import pickle

import numpy as np
import pytest

from tpca import TensorPCA
from tpca.inference.design import GroupNames, read_design

SIZE = 10


def batch(number, like=None):
    rng = np.random.default_rng(number)
    known = {"y": rng.standard_normal(SIZE), "sample_weight": rng.uniform(0.5, 1, SIZE)}
    groups = [f"group {(number * SIZE + i) // 4}" for i in range(SIZE)]
    return read_design("effect", SIZE, **known, groups=groups, like=like, part=True)


def grown(count):
    """Designs of one batch, of two, and so on."""
    designs = [batch(0)]
    for number in range(1, count):
        designs.append(designs[-1].followed_by(batch(number, like=designs[0])))
    return designs


def rows(design):
    return [array.copy() for array in (design.columns, design.weights, design.groups)]


def same_rows(design, expected):
    return all(np.array_equal(array, other) for array, other in zip(rows(design), expected, strict=True))


def test_a_design_has_the_rows_of_all_batches_and_none_of_them_changes():
    designs = [batch(0)]
    seen = [rows(designs[0])]
    for number in range(1, 30):
        designs.append(designs[-1].followed_by(batch(number, like=designs[0])))
        seen.append(rows(designs[-1]))
    for design, expected in zip(designs, seen, strict=True):
        assert same_rows(design, expected)
    whole = designs[-1]
    parts = [batch(number, like=designs[0]) for number in range(30)]
    assert np.array_equal(whole.columns, np.concatenate([part.columns for part in parts]))
    assert np.array_equal(whole.weights, np.concatenate([part.weights for part in parts]))
    assert [whole.group_names[code] for code in whole.groups] == [f"group {i // 4}" for i in range(30 * SIZE)]
    assert len(whole) == 30 * SIZE
    assert list(whole.group_names) == list(dict.fromkeys(whole.group_names))


def test_two_that_follow_one_design_do_not_write_over_each_other():
    parent = grown(3)[-1]
    children = [parent.followed_by(batch(number, like=parent)) for number in (7, 8)]
    before = rows(parent)
    for child, number in zip(children, (7, 8), strict=True):
        part = batch(number, like=parent)
        assert np.array_equal(child.columns, np.concatenate([parent.columns, part.columns]))
        assert [child.group_names[code] for code in child.groups[-SIZE:]] == [part.group_names[c] for c in part.groups]
    grandchildren = [child.followed_by(batch(9, like=parent)) for child in children]
    assert same_rows(parent, before)
    assert not np.shares_memory(*(child.columns for child in grandchildren))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda design: pickle.loads(pickle.dumps(design))])
def test_a_copy_has_rows_of_its_own_and_no_spare_memory(copied):
    design = grown(9)[-1]
    twin = copied(design)
    base = twin.columns.base  # none, or the bytes of a pickle
    assert base is None or len(base) == twin.columns.nbytes
    assert not twin.buffer.memory
    longer = [one.followed_by(batch(20, like=design)) for one in (design, twin)]
    assert same_rows(longer[0], rows(longer[1]))
    assert list(longer[0].group_names) == list(longer[1].group_names)


def test_memory_grows_a_few_times_however_many_batches_come():
    count = 500
    designs = grown(count)
    n_arrays = 3
    assert designs[-1].buffer.n_copied <= n_arrays * 2 * count * SIZE
    capacities = {len(design.columns.base) for design in designs[1:]}
    assert len(capacities) <= math.log2(count) + 1


def test_partial_fit_copies_no_row_more_than_twice_on_average(rng):
    pca = TensorPCA(target="effect", random_state=0)
    X = rng.standard_normal((SIZE, 3, 2))
    for number in range(200):
        pca.partial_fit(X, rng.standard_normal(SIZE), groups=[f"{number} {i // 5}" for i in range(SIZE)])
    assert pca._design.buffer.n_copied <= 2 * 2 * 200 * SIZE
    assert len(pca._design) == 200 * SIZE
    assert len(pca._design.group_names) == 400


def test_names_that_come_later_are_not_those_of_a_shorter_list():
    names = GroupNames(["a", "b"])
    longer, codes = names.extended(["b", "c", "b", "d"])
    assert (list(names), list(longer), codes.tolist()) == (["a", "b"], ["a", "b", "c", "d"], [1, 2, 1, 3])
    other, codes = names.extended(["d", "a"])
    assert (list(longer)[2:], list(other), codes.tolist()) == (["c", "d"], ["a", "b", "d"], [2, 0])
    assert (names[-1], names[:1], len(names)) == ("b", ["a"], 2)
    with pytest.raises(IndexError):
        names[2]
