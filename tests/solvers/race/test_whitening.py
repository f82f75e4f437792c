"""Whitening inside queries and answers is whitening of the samples; what comes back is of the data."""

import numpy as np
import pytest

from tpca.inference.whitening import Whitening, map_of
from tpca.solvers.race.noise import most_of_data, of_data, query_of_data, whitened_answer
from tpca.tensors import Query, RankOne, contract
from tpca.tensors.blocks import Partition, unit

DIMS = (3, 4, 5)


def whitening(rng):
    """Maps of the first two modes; the third is left as it is."""
    pairs = [map_of(a @ a.T, 10**6) for a in (rng.standard_normal((d, d)) for d in DIMS[:2])]
    return Whitening((*(w for w, _ in pairs), None), (*(inverse for _, inverse in pairs), None))


@pytest.mark.parametrize("partition", [Partition.singles(DIMS), Partition(DIMS, ((2, 0), (1,)))])
def test_an_answer_is_that_about_whitened_samples(partition):
    rng = np.random.default_rng(0)
    maps, sample = whitening(rng), rng.standard_normal(DIMS)
    known = RankOne(0.7, tuple(rng.standard_normal(d) for d in DIMS))
    query = Query(partition, tuple(rng.standard_normal((2, *shape)) for shape in partition.shapes), deflate=(known,))
    found = whitened_answer(maps, query, contract(sample, query_of_data(maps, query)))
    expected = contract(maps(sample[None])[0], query)
    np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-9)
    for m, gradient in expected.gradients.items():
        np.testing.assert_allclose(found.gradients[m], gradient, rtol=1e-9)


def test_a_signal_goes_there_and_back():
    rng = np.random.default_rng(1)
    maps, vectors = whitening(rng), [unit(rng.standard_normal(d)) for d in DIMS]
    there = maps(2.0 * np.einsum("i,j,k->ijk", *vectors)[None])[0]
    white = maps.of_vectors(vectors)
    back, factor, _, _ = of_data(maps, white)
    for v, w in zip(back, vectors, strict=True):
        np.testing.assert_allclose(v, w)
    assert factor * np.linalg.norm(there) == pytest.approx(2.0)
    assert factor <= most_of_data(maps) * (1 + 1e-12)


def test_errors_come_back_as_small_changes_do():
    """20 000 draws: standard deviations to 0.5 %, six standard errors 3 %."""
    rng = np.random.default_rng(2)
    maps, white = whitening(rng), [unit(rng.standard_normal(d)) for d in DIMS]
    sizes = [1e-4 * rng.uniform(0.5, 2, d) for d in DIMS]
    vectors, factor, errors, relative = of_data(maps, white, sizes)
    drawn, factors = [[] for _ in DIMS], []
    for _ in range(20_000):
        moved = [unit(u + e * rng.standard_normal(len(u))) for u, e in zip(white, sizes, strict=True)]
        there, own, _, _ = of_data(maps, moved)
        factors.append(np.log(own / factor))
        for one, v, w in zip(drawn[:2], there, vectors, strict=False):
            one.append(v - w)
    for one, expected in zip(drawn[:2], errors, strict=False):
        np.testing.assert_allclose(np.std(one, axis=0), expected, rtol=0.03)
    assert np.std(factors) == pytest.approx(relative, rel=0.03)
