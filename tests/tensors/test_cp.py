"""Sums of rank-one tensors: derivatives, steps and tangent spaces are those of slow references."""

import tracemalloc

import numpy as np
import pytest

import naive
from tpca.solvers.rank_one import fits
from tpca.tensors import cp

RANK = 3
SHAPES = [(4, 3, 5), (2, 3, 2, 4), (1, 4, 5), (3, 6)]


def random_model(shape, rng, rank=RANK):
    return [rng.standard_normal((length, rank)) for length in shape]


def stacked(*models):
    """Models side by side, as cp works on them in step."""
    return [np.stack(factors) for factors in zip(*models, strict=True)]


def joined(changes):
    """Changes (d_m, R) of all factors in one vector."""
    return np.concatenate([change.T.ravel() for change in changes])


@pytest.fixture(params=SHAPES, ids=str)
def case(request, rng):
    """Two tensors and two models of them."""
    tensors = rng.standard_normal((2, *request.param))
    models = [random_model(request.param, rng) for _ in range(2)]
    return tensors, models


def test_models_and_their_distances_from_tensors(case):
    tensors, models = case
    factors = stacked(*models)
    expected = [naive.cp_model(model) for model in models]
    np.testing.assert_allclose(cp.reconstruct(factors), expected, atol=1e-12)
    distances = [np.sum((tensor - model) ** 2) for tensor, model in zip(tensors, expected, strict=True)]
    np.testing.assert_allclose(cp.squared_residuals(tensors, factors), distances, rtol=1e-12)


def test_one_tensor_for_several_models(case):
    tensors, models = case
    distances = [np.sum((tensors[0] - naive.cp_model(model)) ** 2) for model in models]
    np.testing.assert_allclose(cp.squared_residuals(tensors[:1], stacked(*models)), distances, rtol=1e-12)


def test_normal_matrices_are_those_of_a_dense_jacobian(case):
    _, models = case
    matrices = cp.normal_matrices(stacked(*models))
    for matrix, model in zip(matrices, models, strict=True):
        jacobian = naive.cp_jacobian(model)
        np.testing.assert_allclose(matrix, jacobian.T @ jacobian, atol=1e-11)


def test_descent_directions_are_minus_the_gradient(case):
    tensors, models = case
    directions = cp.joined_rows(cp.descent_directions(tensors, stacked(*models)))
    for direction, tensor, model in zip(directions, tensors, models, strict=True):
        residual = tensor - naive.cp_model(model)
        np.testing.assert_allclose(direction, naive.cp_jacobian(model).T @ residual.ravel(), atol=1e-11)


def test_rows_that_were_joined_are_split_again(case):
    _, models = case
    factors = stacked(*models)
    rows = cp.joined_rows(factors)
    np.testing.assert_array_equal(rows[0], joined(models[0]))
    for factor, again in zip(factors, cp.split_rows(rows, factors), strict=True):
        np.testing.assert_array_equal(factor, again)


@pytest.mark.parametrize("ridge", [0.0, 0.03])
def test_damped_steps_solve_the_dense_system(case, ridge, rng):
    """Also at right angles to the columns of the factors, and for slopes of any kind."""
    _, models = case
    factors = stacked(*models)
    slopes = [rng.standard_normal(factor.shape) for factor in factors]
    damping = np.array([0.1, 2.0])
    steps = cp.joined_rows(cp.damped_steps(factors, slopes, damping, ridge))
    inner_curvatures = mean_curvatures_of_columns(factors, ridge)
    for number, model in enumerate(models):
        jacobian = naive.cp_jacobian(model, ridge)
        shift = damping[number] * inner_curvatures[number]
        matrix = jacobian.T @ jacobian + shift * np.eye(jacobian.shape[1])
        expected = np.linalg.solve(matrix, joined([slope[number] for slope in slopes]))
        np.testing.assert_allclose(steps[number], expected, atol=1e-10)


def mean_curvatures_of_columns(factors, ridge):
    """What damping is relative to: the mean curvature within the columns of all factors."""
    triangles = []
    for factor in factors:
        triangles.append(np.stack([np.linalg.qr(model)[1] for model in factor]))
    means = []
    for number in range(len(factors[0])):
        jacobian = naive.cp_jacobian([triangle[number] for triangle in triangles], ridge)
        means.append(np.mean(np.sum(jacobian**2, axis=0)))
    return means


def test_a_ridge_is_a_least_squares_problem_of_more_rows(case):
    """The squared lengths of all components, times the ridge, are added to the cost and to its derivatives."""
    tensors, models = case
    factors = stacked(*models)
    ridge = 0.07
    costs = cp.squared_residuals(tensors, factors, ridge)
    directions = cp.joined_rows(cp.descent_directions(tensors, factors, ridge))
    matrices = cp.normal_matrices(factors, ridge)
    for number, (tensor, model) in enumerate(zip(tensors, models, strict=True)):
        components = naive.cp_components(model)
        penalty = ridge * np.sum(components**2)
        assert costs[number] == pytest.approx(np.sum((tensor - naive.cp_model(model)) ** 2) + penalty, rel=1e-12)
        residual = (tensor - naive.cp_model(model)).ravel()
        augmented = np.concatenate([residual, -np.sqrt(ridge) * components.ravel()])
        jacobian = naive.cp_jacobian(model, ridge)
        np.testing.assert_allclose(directions[number], jacobian.T @ augmented, atol=1e-11)
        np.testing.assert_allclose(matrices[number], jacobian.T @ jacobian, atol=1e-11)


def unit_model(shape, rng, rank=RANK):
    return [factor / np.linalg.norm(factor, axis=0) for factor in random_model(shape, rng, rank)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_beyond_a_tangent_space_nothing_of_a_dense_basis_is_left(shape, rng):
    vectors = unit_model(shape, rng, rank=2)
    tensors = rng.standard_normal((4, *shape))
    remainder = cp.beyond_tangent_space(tensors, cp.tangent_space(vectors))
    basis = naive.orthonormal_columns(naive.cp_jacobian(vectors))
    flat = tensors.reshape(4, -1)
    expected = flat - flat @ basis @ basis.T
    np.testing.assert_allclose(remainder.reshape(4, -1), expected, atol=1e-9)


def test_changes_of_a_tangent_space_are_those_of_the_dense_pseudo_inverse(rng):
    vectors = unit_model((4, 3, 5), rng)
    tensors = rng.standard_normal((6, 4, 3, 5))
    changes = cp.tangent_space(vectors).changes(cp.slopes_along(tensors, vectors))
    jacobian = naive.cp_jacobian(vectors)
    expected = tensors.reshape(6, -1) @ np.linalg.pinv(jacobian, rcond=1e-6).T
    np.testing.assert_allclose(cp.joined_rows(changes), expected, atol=1e-8)


def test_components_that_are_nearly_alike_have_a_tangent_space_too(rng):
    """Cosines of 0.9999 along every axis: what is taken out is still a projection."""
    vectors = unit_model((6, 5, 4), rng, rank=1)
    nearly = [vector + 0.01 * rng.standard_normal(vector.shape) for vector in vectors]
    pairs = [np.hstack([u, v / np.linalg.norm(v)]) for u, v in zip(vectors, nearly, strict=True)]
    space = cp.tangent_space(pairs)
    once = cp.beyond_tangent_space(rng.standard_normal((3, 6, 5, 4)), space)
    np.testing.assert_allclose(cp.beyond_tangent_space(once, space), once, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "rank"), [((5, 4, 6), 2), ((3, 5, 2), 2), ((4, 4, 2), 2), ((2, 3, 2, 4), 3)], ids=str
)
def test_the_gain_of_a_joint_fit_is_that_of_a_dense_step(shape, rank, rng):
    """A Gauss-Newton step from components that are there and one more, which tensors have beyond them.

    It is no longer than the tensor, also where a few sweeps have not settled the fit of the one more.  The damping is
    1e-6: it hides directions along which the model hardly changes.
    """
    known = unit_model(shape, rng, rank=rank)
    space = cp.tangent_space(known)
    tensors = cp.beyond_tangent_space(rng.standard_normal((100, *shape)), space)
    vectors, _ = fits(tensors)
    gains = cp.joint_gains(tensors, vectors, space)
    for number, (tensor, gain) in enumerate(zip(tensors, gains, strict=True)):
        length = np.linalg.norm(tensor)
        added = [vector[number] for vector in vectors]
        model = [np.column_stack([factor, vector]) for factor, vector in zip(known, added, strict=True)]
        basis = naive.orthonormal_columns(naive.cp_jacobian(model))
        assert gain <= np.linalg.norm(basis.T @ tensor.ravel()) + 1e-6 * length
        assert gain >= abs(np.vdot(tensor, naive.outer_product(added))) - 1e-3 * length
    settled = naive.als(tensors[0], [vector[0] for vector in vectors])
    gain = cp.joint_gains(tensors[:1], [vector[None] for vector in settled], space)
    model = [np.column_stack([factor, vector]) for factor, vector in zip(known, settled, strict=True)]
    basis = naive.orthonormal_columns(naive.cp_jacobian(model))
    assert gain[0] == pytest.approx(np.linalg.norm(basis.T @ tensors[0].ravel()), rel=1e-3)


def test_gains_of_many_components_are_worked_out_in_little_memory(rng):
    """Of 300 flips, in a small part of what their matrices of all components would take."""
    space = cp.tangent_space(unit_model((12, 10, 8), rng, rank=8))
    tensors = cp.beyond_tangent_space(rng.standard_normal((300, 12, 10, 8)), space)
    vectors, _ = fits(tensors)
    tracemalloc.start()
    cp.joint_gains(tensors, vectors, space)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
