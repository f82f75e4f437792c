"""Second moments that are never built: the same as those that are."""

import numpy as np
import pytest

import naive
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.filters import filters_of, leading_of_slices
from tpca.solvers.variance.level import excess_gradients, levels_of, noise_level
from tpca.solvers.variance.products import Contraction
from tpca.solvers.variance.search import VariationSearch
from tpca.tensors import DenseBatch

SHAPES = [(3, 4), (4, 2, 3), (2, 3, 2, 3), (5, 1, 4)]


def units(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def told(moments, row):
    return [moments.squares[row], moments.total, *(a[row] for a in (*moments.gradients, *moments.energies))]


@pytest.mark.parametrize("spared", [None, 0])
@pytest.mark.parametrize("components", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_contractions_of_built_moments(shape, components, spared):
    """Whether Gram matrices are built on the way or not, and however samples are cut."""
    if spared is not None and not components:
        return
    rng = np.random.default_rng(len(shape) + 10 * components)
    samples = rng.standard_normal((23, *shape)) + 3
    queries = [rng.standard_normal((2, d)) for d in shape]
    known = [units(rng.standard_normal((components, d))) for d in shape]
    edges = (0, 5, 11, 23)
    whole, parts, freedoms = naive.second_moments(samples, queries, known, edges, spared)
    for grams in (False, True):
        for cuts in ([], [3, 4, 12], range(1, 23)):
            found = Variances(queries, known, edges, grams, spared)
            for start, stop in zip([0, *cuts], [*cuts, 23], strict=True):
                found.add(DenseBatch(samples[start:stop]), start)
            found.finish()
            for row, expected in enumerate(whole):
                for own, other in zip(told(found.moments, row), expected, strict=True):
                    np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
            for one, expected in zip(found.by_part, parts, strict=True):
                for own, other in zip(told(one, 0), expected, strict=True):
                    np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
            assert found.freedoms.tolist() == freedoms


def test_a_background_far_larger_than_the_noise_changes_nothing():
    rng = np.random.default_rng(1)
    samples, far = rng.standard_normal((40, 4, 5)), 1e6 * rng.standard_normal((4, 5))
    queries = [units(rng.standard_normal((1, d))) for d in (4, 5)]
    none = [np.zeros((0, d)) for d in (4, 5)]
    each = []
    for shift in (0.0, far):
        found = Variances(queries, none, (0, 20, 40))
        for start in range(0, 40, 8):
            found.add(DenseBatch(samples[start : start + 8] + shift), start)
        found.finish()
        each.append(told(found.moments, 0))
    for own, other in zip(*each, strict=True):  # entries near 1e6 have a rounding error of 1e-10
        np.testing.assert_allclose(own, other, rtol=1e-7, atol=1e-7)


def test_grams_are_those_of_what_is_left():
    rng = np.random.default_rng(2)
    samples = rng.standard_normal((9, 3, 4, 2))
    known = [units(rng.standard_normal((1, d))) for d in (3, 4, 2)]
    pattern = np.einsum("a,b,c->abc", *(v[0] for v in known))
    left = samples - np.multiply.outer(np.einsum("nabc,abc->n", samples, pattern), pattern)
    found = Contraction([np.zeros((0, d)) for d in (3, 4, 2)], known, None, grams=True).of(samples)
    for mode, gram in enumerate(found.grams):
        rows = np.moveaxis(left, mode + 1, 0).reshape(len(gram), -1)
        np.testing.assert_allclose(gram, rows @ rows.T, atol=1e-12)


def test_pairs_are_those_of_gradients_of_what_is_left():
    rng = np.random.default_rng(3)
    shape = (3, 4, 2)
    samples = rng.standard_normal((9, *shape))
    known, queries = ([units(rng.standard_normal((count, d))) for d in shape] for count in (1, 2))
    pattern = np.einsum("a,b,c->abc", *(v[0] for v in known))
    left = samples - np.multiply.outer(np.einsum("nabc,abc->n", samples, pattern), pattern)
    found = Contraction(queries, known, pairs=True).of(samples).pairs
    for mode, how in enumerate(("nabc,rb,rc->nra", "nabc,ra,rc->nrb", "nabc,ra,rb->nrc")):
        gradients = np.einsum(how, left, *(u for i, u in enumerate(queries) if i != mode))
        np.testing.assert_allclose(found[mode], np.einsum("nri,nrj->rij", gradients, gradients), atol=1e-10)


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_one_vector_is_exchanged_for_that_of_the_component(phi):
    """Of exact covariances: two vectors are the component's, the third says nothing; in noise that hides it, too."""
    rng = np.random.default_rng(6)
    shape = (4, 3, 5)
    covariances = [phi ** np.abs(np.subtract.outer(range(d), range(d))) for d in shape]
    vectors = [units(rng.standard_normal((1, d))) for d in shape]
    pattern = naive.outer_product([v[0] for v in vectors]).ravel()
    noise = np.kron(np.kron(*covariances[:2]), covariances[2])
    values, basis = np.linalg.eigh(noise + 4 * np.outer(pattern, pattern))
    samples = (basis * np.sqrt(np.maximum(values, 0))).T.reshape(-1, *shape)
    none = [np.zeros((0, d)) for d in shape]
    for missing in range(3):
        search = VariationSearch(shape)
        search.filters = filters_of(Contraction(none, none, grams=True).of(samples).grams, 1e9)
        strange, v = rng.standard_normal((1, shape[missing])), vectors[missing]
        filtered = search.filters.of(vectors)[missing]  # samples contracted for it have nothing of the component
        strange = units(strange - (strange @ filtered.T) / (v @ filtered.T) * v)
        search.replicas = [strange if mode == missing else v for mode, v in enumerate(vectors)]
        search.plain = np.zeros(1, dtype=bool)
        pairs = Contraction(search.filters.of(search.replicas), none, pairs=True).of(samples).pairs
        search._exchange(search.replicas, pairs, 1e9)
        for found, v in zip(search.replicas, vectors, strict=True):
            assert abs(float(found[0] @ v[0])) > 0.95


@pytest.mark.parametrize("shape", [(5, 4), (4, 3, 5)])
@pytest.mark.parametrize("strength", [0.0, 2.0, 300.0])
def test_the_level_is_that_of_separable_noise_whatever_the_component(shape, strength):
    """From exact moments: V_0 is the noise along the pattern, and the gradient without it is that of the component."""
    rng = np.random.default_rng(3)
    roots = [rng.standard_normal((d, 2 * d)) for d in shape]
    covariances = [root @ root.T for root in roots]
    vectors = [units(rng.standard_normal((1, d))) for d in shape]
    signal = strength**2 * naive.outer_product([np.outer(v[0], v[0]) for v in vectors])
    noise = naive.outer_product(covariances)
    order = [*range(0, 2 * len(shape), 2), *range(1, 2 * len(shape), 2)]
    size = int(np.prod(shape))
    matrix = (signal + noise).transpose(order).reshape(size, size)
    values, basis = np.linalg.eigh(matrix)
    # So many samples with exactly this second moment.
    samples = (basis * np.sqrt(np.maximum(values, 0))).T.reshape(size, *shape)
    found = Contraction(vectors, [np.zeros((0, d)) for d in shape], None, grams=False).of(samples)
    variances, levels = levels_of(found, vectors)
    own = np.prod([v[0] @ c @ v[0] for v, c in zip(vectors, covariances, strict=True)])
    np.testing.assert_allclose(levels, own, rtol=1e-6)
    np.testing.assert_allclose(variances - levels, strength**2, rtol=1e-6, atol=1e-6 * own)
    for gradient, v in zip(excess_gradients(found, vectors, levels), vectors, strict=True):
        np.testing.assert_allclose(gradient, strength**2 * v, atol=1e-5 * own)


def test_no_noise_at_all_is_no_level_of_zero():
    """A ratio to it must exist."""
    level = noise_level(np.array([4.0]), np.array([4.0]), np.array([[4.0, 4.0]]))
    assert 0 < level[0] < 1e-9


def test_slices_are_covariances_of_turned_samples_without_what_is_known():
    rng = np.random.default_rng(4)
    shape = (3, 4, 2)
    samples = rng.standard_normal((9, *shape))
    turns = [rng.standard_normal((d, d)) for d in shape]
    known = [units(rng.standard_normal((1, d))) for d in shape]
    pattern = np.einsum("a,b,c->abc", *(v[0] for v in known))
    left = samples - np.multiply.outer(np.einsum("nabc,abc->n", samples, pattern), pattern)
    turned = np.einsum("ia,jb,kc,nabc->nijk", *turns, left)
    found = Contraction([np.zeros((0, d)) for d in shape], known, rotations=turns).of(samples).slices
    expected = [np.einsum(how, turned, turned) for how in ("nijk,nljk->jil", "nijk,nilk->kjl", "nijk,nijl->ikl")]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-10)


def test_slices_show_a_component_that_strong_smooth_noise_hides():
    """Of exact covariances: the leading vector of a mode's own is that of the noise, that of slices the component's."""
    rng = np.random.default_rng(5)
    shape = (6, 5)
    covariances = [0.9 ** np.abs(np.subtract.outer(range(d), range(d))) for d in shape]
    vectors = [units(rng.standard_normal((1, d))) for d in shape]
    pattern = np.outer(*(v[0] for v in vectors)).ravel()
    values, basis = np.linalg.eigh(np.kron(*covariances) + 0.5 * np.outer(pattern, pattern))
    samples = (basis * np.sqrt(values)).T.reshape(-1, *shape)
    none = [np.zeros((0, d)) for d in shape]
    filters = filters_of(Contraction(none, none, grams=True).of(samples).grams, 1e9)
    slices = Contraction(none, none, rotations=filters.rotations).of(samples).slices
    for mode, rows in enumerate(leading_of_slices(slices, 1)[0]):
        assert abs(float(filters.back(mode, rows)[0] @ vectors[mode][0])) > 0.9
