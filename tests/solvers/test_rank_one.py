"""The rank-one toolbox: sweeps, top vectors, deflation, ghosts, signs; against plain NumPy on small cases."""

import functools

import numpy as np
import pytest

from tpca.solvers.rank_one import (
    DENSE_ROWS,
    aligned,
    along,
    alternate,
    deflated,
    is_ghost,
    leading,
    oriented,
    positive,
    rank_ones,
    split_blocks,
    top_pairs,
    units,
)
from tpca.tensors import RankOne
from tpca.tensors.blocks import unit

LONG = DENSE_ROWS + 20  # so that Lanczos iteration takes over


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def unit_vectors(rng, dims):
    return [unit(rng.standard_normal(d)) for d in dims]


def outer(vectors):
    return functools.reduce(np.multiply.outer, vectors)


def test_units_leaves_zeros(rng):
    rows = rng.standard_normal((2, 3, 4))
    rows[1, 2] = 0.0
    expected = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    np.testing.assert_allclose(np.linalg.norm(units(rows), axis=-1).ravel(), expected, rtol=1e-15)


def test_a_stack_is_contracted_like_each_of_its_blocks(rng):
    blocks, vectors = rng.standard_normal((5, 2, 3, 4)), [rng.standard_normal((5, d)) for d in (2, 3, 4)]
    for place, letters in enumerate(("cijk,cj,ck->ci", "cijk,ci,ck->cj", "cijk,ci,cj->ck")):
        others = vectors[:place] + vectors[place + 1 :]
        expected = np.einsum(letters, blocks, *others)
        np.testing.assert_allclose(along(blocks, vectors, place), expected, rtol=1e-12)
        np.testing.assert_allclose(along(blocks[3], [v[3] for v in vectors], place), expected[3], rtol=1e-12)


def test_sweeps_only_climb_and_end_at_rest(rng):
    tensor = rng.standard_normal((4, 5, 6))
    gradient, calls = functools.partial(along, tensor), []

    def counted(vectors, mode):
        calls.append(mode)
        return gradient(vectors, mode)

    vectors, before = unit_vectors(rng, tensor.shape), 0.0
    for _ in range(20):
        vectors, value = alternate(gradient, vectors, 1)
        assert value >= before * (1 - 1e-12)
        assert value == pytest.approx(float(np.vdot(tensor, outer(vectors))), rel=1e-12)
        before = value
    rest, _ = alternate(counted, vectors, 5000, 1e-18)
    assert len(calls) < 3 * 5000
    moved, _ = alternate(gradient, rest, 1)
    assert sum(float(np.sum((v - w) ** 2)) for v, w in zip(moved, rest, strict=True)) < 1e-18


def test_a_gradient_of_zeros_leaves_its_vector(rng):
    vectors = unit_vectors(rng, (3, 4))
    kept, value = alternate(functools.partial(along, np.zeros((3, 4))), vectors, 3, 1e-18)
    assert value == 0.0
    assert all(np.array_equal(v, w) for v, w in zip(kept, vectors, strict=True))
    assert all(np.isfinite(v).all() for v in rank_ones(np.zeros((2, 3, 4, 5)))[0])


@pytest.mark.parametrize("shape", [(8, 30), (30, 8), (LONG, 2 * LONG), (2 * LONG, LONG)])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_top_pairs_are_those_of_the_svd(rng, shape, scale):
    matrix = scale * (rng.standard_normal(shape) + 100 * np.outer(*unit_vectors(rng, shape)))
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    for start in (None, rng):
        found, rows, columns = top_pairs(matrix, 1, start)
        np.testing.assert_allclose(found, values[:1], rtol=1e-9)
        np.testing.assert_allclose(np.outer(rows[0], columns[0]), np.outer(left[:, 0], right[0]), atol=1e-9)


@pytest.mark.parametrize("size", [8, LONG])
def test_leading_vectors_are_those_of_the_symmetric_part(rng, size):
    v = unit(rng.standard_normal(size))
    matrix = rng.standard_normal((size, size)) - 100 * np.outer(v, v)
    values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    for start in (None, rng):
        (value,), (x,) = leading(matrix, 1, start)
        assert value == pytest.approx(values[0], rel=1e-12)  # the largest in size is negative
        assert abs(x @ basis[:, 0]) == pytest.approx(1.0, rel=1e-12)


def test_zeros_have_top_vectors_too(rng):
    """Lanczos iteration gives up on them: any unit vectors serve."""
    values, left, right = top_pairs(np.zeros((LONG, LONG)), 2, rng)
    assert not values.any()
    assert not right.any()
    np.testing.assert_allclose(left @ left.T, np.eye(2), atol=1e-12)
    values, rows = leading(np.zeros((LONG, LONG)), 2, rng)
    assert not values.any()
    np.testing.assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)


def test_blocks_are_split_into_vectors_in_mode_order(rng):
    dims, groups = (3, 4, 5, 6), ((2, 0), (3, 1))
    vectors = unit_vectors(rng, dims)
    tensor = outer(vectors)
    _, (a,), (b,) = top_pairs(tensor.transpose(2, 0, 3, 1).reshape(15, 24))
    found = split_blocks(groups, [a.reshape(5, 3), b.reshape(6, 4)])
    assert [len(v) for v in found] == list(dims)
    np.testing.assert_allclose(outer(found), tensor, atol=1e-12)


def test_deflation_is_the_subtraction_of_components(rng):
    dims = (3, 4, 5)
    tensor, known = rng.standard_normal(dims), [RankOne(s, tuple(unit_vectors(rng, dims))) for s in (2.0, -0.5)]
    rest = tensor - sum(one.strength * outer(one.vectors) for one in known)
    stacked = [rng.standard_normal((7, d)) for d in dims]
    for mode in range(3):
        each = [along(tensor, [v[i] for v in stacked], mode) for i in range(7)]
        expected = [along(rest, [v[i] for v in stacked], mode) for i in range(7)]
        np.testing.assert_allclose(deflated(np.stack(each), stacked, mode, known), expected, atol=1e-12)
        one = deflated(each[0], [v[0] for v in stacked], mode, known)
        np.testing.assert_allclose(one, expected[0], atol=1e-12)


def test_a_ghost_has_all_vectors_of_another_or_all_but_one():
    e, f = np.eye(3)[:2]
    near = unit(e + 0.4 * f)  # overlap 0.93
    assert is_ghost([e, -e, e], [near, near, near])
    assert is_ghost([e, f, -e], [near, e, near])
    assert not is_ghost([e, f, f], [near, e, e])
    assert not is_ghost([e, e, f], [near, near, e], same=0.95)


@pytest.mark.parametrize("strength", [2.0, -2.0])
def test_signs_are_made_definite_and_the_signal_stays(rng, strength):
    vectors = unit_vectors(rng, (4, 5, 6))
    turned, size = positive(vectors, strength)
    assert size == 2.0
    np.testing.assert_allclose(size * outer(turned), strength * outer(vectors), rtol=1e-12)
    assert all(v[np.argmax(np.abs(v))] > 0 for v in turned[:-1])
    assert all(np.array_equal(v, w) for v, w in zip(oriented(turned), turned, strict=True))
    assert all(v @ w > 0 for v, w in zip(aligned(turned, vectors), vectors, strict=True))
