"""A basis of what is orthogonal to given vectors, and what is asked of samples through it."""

import numpy as np
import pytest

from tpca.tensors import Basis, DenseBatch, Gradients, Projected, Projection, Query, SparseBatch, TensorSum
from tpca.tensors.blocks import Partition

RNG = np.random.default_rng(4)
ROWS = {
    "a constant": np.ones((1, 7)),
    "some vectors": RNG.standard_normal((3, 7)),
    "an entry": np.eye(7)[2:3],
    "vectors that depend on each other": np.stack([np.ones(7), np.eye(7)[0], 1e200 * np.ones(7)]),
    "nothing": np.zeros((1, 7)),
}
DIMS = (4, 7, 3)
PROJECTION = Projection(DIMS, (None, Basis.beside(np.ones((1, 7))), Basis.beside(np.array([[1.0, 2.0, 0.0]]))))


def matrix(basis):
    """B."""
    return basis.down(np.eye(basis.length), 0)


def project(samples):
    """The same by matrices."""
    _, second, third = PROJECTION.bases
    return np.einsum("...ijk,bj,ck->...ibc", samples, matrix(second), matrix(third))


@pytest.mark.parametrize("name", ROWS)
def test_a_basis_is_orthonormal_and_orthogonal_to_the_vectors(name):
    rows = ROWS[name]
    basis = Basis.beside(rows)
    own = matrix(basis)
    sizes = np.maximum(np.abs(rows).max(axis=1), 1e-300)
    assert basis.size == 7 - np.linalg.matrix_rank(rows / sizes[:, None])
    np.testing.assert_allclose(own @ own.T, np.eye(basis.size), atol=1e-14)
    np.testing.assert_allclose(own @ (rows / sizes[:, None]).T, 0, atol=1e-14)
    np.testing.assert_allclose(basis.up(np.eye(basis.size), 0), own.T, atol=1e-15)


def test_a_basis_is_next_to_the_entries():
    """Every row is one entry, and at most 1/√d of the others: what is said of an entry is said of it."""
    basis = Basis.beside(np.ones((1, 50)))
    own = matrix(basis)
    assert np.all(own[np.arange(49), basis.entries] > 0.95)
    assert np.all(np.sort(np.abs(own), axis=1)[:, :-1] < 1.001 / np.sqrt(50))


@pytest.mark.parametrize("name", ROWS)
def test_variances_are_those_of_the_entries_of_the_data(name):
    basis = Basis.beside(ROWS[name])
    own, u, b = matrix(basis), RNG.standard_normal(basis.size), RNG.random(basis.size)
    u /= np.linalg.norm(u)
    across = np.eye(basis.size) - np.outer(u, u)
    expected = np.diag(own.T @ across @ np.diag(b) @ across @ own)
    np.testing.assert_allclose(basis.variances(b, u), expected, atol=1e-14)


@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=pytest.mark.slow)])  # compiled first
def test_sums_and_gradients_are_those_of_projected_samples(sparse):
    samples = RNG.standard_normal((6, *DIMS))
    small = PROJECTION.projected_dims
    assert small == (4, 6, 2)
    partition = Partition(small, ((0, 2), (1,)))
    query = Query(partition, tuple(RNG.standard_normal((3, *shape)) for shape in partition.shapes))
    batch = SparseBatch.from_coo([(np.indices(DIMS).reshape(3, -1), one.ravel(), DIMS) for one in samples])
    part = Projected([TensorSum(), Gradients([query])], PROJECTION)
    part.add(batch if sparse else DenseBatch(samples), 0)
    part.finish()
    plain = Gradients([query])
    plain.add(DenseBatch(project(samples)), 0)
    plain.finish()
    total, gradients = part.parts
    np.testing.assert_allclose(total.total, project(samples).sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(gradients.answers[0].rewards, plain.answers[0].rewards, atol=1e-12)
    for m, gradient in plain.answers[0].gradients.items():
        np.testing.assert_allclose(gradients.answers[0].gradients[m], gradient, atol=1e-12)


def test_what_is_projected_alike_stays_symmetric():
    one, other = Basis.beside(np.ones((1, 4))), Basis.beside(np.eye(4)[:1])
    assert Projection((4, 4), (one, one)).shared
    assert Projection((4, 4), (None, None)).shared
    assert not Projection((4, 4), (one, other)).shared
    assert not Projection((4, 4), (one, None)).shared
    assert not Projection((4, 4), (None, one)).shared
