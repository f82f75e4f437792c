"""The rank-one toolbox: sweeps, top vectors, deflation, ghosts, signs, components; against plain NumPy."""

import functools

import numpy as np
import pytest

from amounts import Traced
from naive import best_rank_one, outer_product, rank_one_objective
from tpca.solvers import rank_one as tools
from tpca.tensors import RankOne
from tpca.tensors.blocks import unit

LONG = tools.DENSE_ROWS + 20  # so that Lanczos iteration takes over


def unit_vectors(rng, dims):
    return [unit(rng.standard_normal(d)) for d in dims]


def test_sweeps_only_climb_and_end_at_rest_and_zeros_leave_vectors_alone(rng):
    tensor = rng.standard_normal((4, 5, 6))
    gradient, calls = functools.partial(tools.along, tensor), []

    def counted(vectors, mode):
        calls.append(mode)
        return gradient(vectors, mode)

    vectors, before = unit_vectors(rng, tensor.shape), 0.0
    for _ in range(20):
        vectors, value = tools.alternate(gradient, vectors, 1)
        assert before * (1 - 1e-12) <= value == pytest.approx(rank_one_objective(tensor, vectors), rel=1e-12)
        before = value
    rest, _ = tools.alternate(counted, vectors, 5000, 1e-18)
    assert len(calls) < 3 * 5000
    moved, _ = tools.alternate(gradient, rest, 1)
    assert sum(float(np.sum((v - w) ** 2)) for v, w in zip(moved, rest, strict=True)) < 1e-18
    vectors = unit_vectors(rng, (3, 4))
    kept, value = tools.alternate(functools.partial(tools.along, np.zeros((3, 4))), vectors, 3, 1e-18)
    assert value == 0.0
    assert all(np.array_equal(v, w) for v, w in zip(kept, vectors, strict=True))
    assert all(np.isfinite(v).all() for v in tools.rank_ones(np.zeros((2, 3, 4, 5)))[0])


@pytest.mark.parametrize("shape", [(8, 30), (30, 8), (LONG, 2 * LONG), (2 * LONG, LONG)])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_top_pairs_are_those_of_the_svd(rng, shape, scale):
    matrix = scale * (rng.standard_normal(shape) + 100 * np.outer(*unit_vectors(rng, shape)))
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    for start in (None, rng):
        found, rows, columns = tools.top_pairs(matrix, 1, start)
        np.testing.assert_allclose(found, values[:1], rtol=1e-9)
        np.testing.assert_allclose(np.outer(rows[0], columns[0]), np.outer(left[:, 0], right[0]), atol=1e-9)


@pytest.mark.parametrize("size", [8, LONG])
def test_leading_vectors_are_those_of_the_symmetric_part(rng, size):
    v = unit(rng.standard_normal(size))
    matrix = rng.standard_normal((size, size)) - 100 * np.outer(v, v)
    values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    for start in (None, rng):
        (value,), (x,) = tools.leading(matrix, 1, start)
        assert value == pytest.approx(values[0], rel=1e-12)  # the largest in size is negative
        assert abs(x @ basis[:, 0]) == pytest.approx(1.0, rel=1e-12)


def test_zeros_have_top_vectors_too(rng):
    """Lanczos iteration gives up on them: any unit vectors serve."""
    values, left, right = tools.top_pairs(np.zeros((LONG, LONG)), 2, rng)
    others, rows = tools.leading(np.zeros((LONG, LONG)), 2, rng)
    assert not np.concatenate([values, right.ravel(), others]).any()
    for basis in (left, rows):
        np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-12)


def test_blocks_are_split_in_mode_order_and_deflation_is_subtraction(rng):
    dims, groups = (3, 4, 5, 6), ((2, 0), (3, 1))
    tensor = outer_product(unit_vectors(rng, dims))
    _, (a,), (b,) = tools.top_pairs(tensor.transpose(2, 0, 3, 1).reshape(15, 24))
    found = tools.split_blocks(groups, [a.reshape(5, 3), b.reshape(6, 4)])
    assert [len(v) for v in found] == list(dims)
    np.testing.assert_allclose(outer_product(found), tensor, atol=1e-12)
    dims = (3, 4, 5)
    tensor, known = rng.standard_normal(dims), [RankOne(s, tuple(unit_vectors(rng, dims))) for s in (2.0, -0.5)]
    rest = tensor - sum(one.strength * outer_product(one.vectors) for one in known)
    stacked = [rng.standard_normal((7, d)) for d in dims]
    for mode in range(3):
        each, expected = (
            np.stack([tools.along(whole, [v[i] for v in stacked], mode) for i in range(7)]) for whole in (tensor, rest)
        )
        np.testing.assert_allclose(tools.deflated(each, stacked, mode, known), expected, atol=1e-12)
        one = tools.deflated(each[0], [v[0] for v in stacked], mode, known)
        np.testing.assert_allclose(one, expected[0], atol=1e-12)


def test_a_ghost_has_all_vectors_of_another_or_all_but_one():
    e, f = np.eye(3)[:2]
    near = unit(e + 0.4 * f)  # overlap 0.93
    assert tools.is_ghost([e, -e, e], [near, near, near])
    assert tools.is_ghost([e, f, -e], [near, e, near])
    assert not tools.is_ghost([e, f, f], [near, e, e])
    assert not tools.is_ghost([e, e, f], [near, near, e], same=0.95)


@pytest.mark.parametrize("strength", [2.0, -2.0])
def test_signs_are_made_definite_and_the_signal_stays(rng, strength):
    vectors = unit_vectors(rng, (4, 5, 6))
    turned, size = tools.positive(vectors, strength)
    assert size == 2.0
    np.testing.assert_allclose(size * outer_product(turned), strength * outer_product(vectors), rtol=1e-12)
    assert all(v[np.argmax(np.abs(v))] > 0 for v in turned[:-1])
    assert all(np.array_equal(v, w) for v, w in zip(tools.oriented(turned), turned, strict=True))
    assert all(v @ w > 0 for v, w in zip(tools.aligned(turned, vectors), vectors, strict=True))


# Components of a tensor ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(7,), (3, 9), (9, 3), (4, 5, 6), (2, 30, 2), (3, 2, 4, 2), (2, 2, 2, 2, 2)])
def test_the_best_fit_is_that_of_many_starts(dims, rng):
    """A signal of twice the noise's own length: one maximum stands out."""
    tensor = rng.standard_normal(dims) + 2 * np.sqrt(sum(dims)) * outer_product(unit_vectors(rng, dims))
    vectors, length = tools.best_rank_one(tensor)
    best = best_rank_one(tensor, 10, 0) if len(dims) > 1 else [tensor / np.linalg.norm(tensor)]
    assert length == pytest.approx(rank_one_objective(tensor, best), rel=1e-9)
    _, values = tools.fits(np.stack([tensor, -3 * tensor]))
    np.testing.assert_allclose(values, [length, 3 * length], rtol=1e-6)
    assert [len(v) for v in vectors] == list(dims)


# Fits of stacks -------------------------------------------------------------------------------------------------------


def planted(rng, dims, count, size, dtype=float):
    """Noise, and a pattern of so many times the root of Σd in each."""
    patterns = [outer_product(unit_vectors(rng, dims)) for _ in range(count)]
    return (rng.standard_normal((count, *dims)) + size * np.sqrt(sum(dims)) * np.array(patterns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dims", [(6, 50), (50, 6), (LONG, 90), (90, LONG)])
def test_fits_of_matrices_are_their_singular_values(dims, dtype, rng):
    noise = planted(rng, dims, 20, 0.0, dtype)
    assert tools.fits(noise)[1].dtype == dtype
    ratio = tools.fits(noise)[1] / np.linalg.norm(noise, 2, axis=(1, 2))
    assert ratio.max() <= 1 + 1e-5
    assert ratio.mean() >= 0.99
    stack = planted(rng, dims, 20, 2.0, dtype)
    vectors, values = tools.fits(stack)
    np.testing.assert_allclose(values, np.linalg.norm(stack, 2, axis=(1, 2)), rtol=1e-5)
    np.testing.assert_allclose(np.einsum("bij,bi,bj->b", stack, *vectors), values, rtol=1e-5)


@pytest.mark.parametrize("dims", [(8, 8, 8), (3, 20, 4), (4, 3, 5, 4), (40, 40, 40), (12,) * 4], ids=str)
def test_fits_of_tensors_are_nearly_the_best_ones(dims, rng):
    """Of noise, less than a tenth short of the best of many starts; next to none of patterns of twice its length."""
    count = 40 if np.prod(dims) < 1000 else 4
    noise = planted(rng, dims, count, 0.0)
    best = np.array([tools.best_rank_one(tensor)[1] for tensor in noise])
    assert np.mean(tools.fits(noise)[1] / best) >= 0.92
    stack = planted(rng, dims, count, 3.0, np.float32)
    best = np.array([tools.best_rank_one(tensor)[1] for tensor in stack.astype(float)])
    vectors, values = tools.fits(stack)
    np.testing.assert_allclose(values, best, rtol=1e-3)
    for vector, length in zip(vectors, dims, strict=True):
        assert vector.shape == (count, length)
        np.testing.assert_allclose(np.linalg.norm(vector, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("dims", [(5, 4, 3), (40, 50, 40), (40, 3, 5, 30)], ids=str)
def test_a_fit_depends_on_its_own_tensor_alone_and_not_on_its_sign(dims, rng):
    stack = planted(rng, dims, 9, 1.0, np.float32)
    _, values = tools.fits(stack)
    np.testing.assert_array_equal(tools.fits(-stack)[1], values)
    np.testing.assert_allclose(tools.fits(stack[::-1])[1][::-1], values, rtol=1e-5)
    single = [tools.fits(tensor[None]) for tensor in stack]
    np.testing.assert_allclose(np.concatenate([value for _, value in single]), values, rtol=1e-5)
    stack[3] = 0
    again, lengths = tools.fits(stack)
    assert lengths[3] == 0
    assert all(np.isfinite(vector).all() for vector in again)
    np.testing.assert_allclose(np.delete(lengths, 3), np.delete(values, 3), rtol=1e-5)


def test_fits_of_large_tensors_take_less_memory_than_the_tensors(rng):
    stack = rng.standard_normal((10, 48, 48, 48), dtype=np.float32)
    tools.fits(stack)
    with Traced() as traced:
        tools.fits(stack)
    assert traced.peak < stack.nbytes / 2
