"""Errors of components: from units, of several together, where entries are missing; and do two halves agree?"""

import itertools
import math

import numpy as np
import pytest

import naive
from tpca import TensorPCA
from tpca.inference.scatter import Tangents, half_agreements, slopes, unit_halves
from tpca.solvers.components import fit_ranks, settled

RNG = np.random.default_rng(0)
A, B = (np.linalg.qr(RNG.standard_normal((d, 2)))[0].T for d in (8, 6))


def signed(u, like):
    return u * np.sign(np.sum(u * like))


def test_singular_vectors_change_as_a_small_step_changes_them(rng):
    q = [np.linalg.qr(rng.standard_normal((d, 2)))[0].T for d in (5, 4)]
    strengths = np.array([3.0, 2.2])
    vectors = [[q[0][c], q[1][c]] for c in range(2)]
    D = sum(s * np.outer(*v) for s, v in zip(strengths, vectors, strict=True))
    E, step = rng.standard_normal((5, 4)), 1e-6
    u, s, vt = np.linalg.svd(D + step * E)
    found = Tangents(vectors, strengths).changes([slopes(E[None], v) for v in vectors])[0]
    for c in range(2):
        turned = [signed(new, old) - old for new, old in zip((u[:, c], vt[c]), vectors[c], strict=True)]
        wanted = np.concatenate([[s[c] - strengths[c]], *(strengths[c] * one for one in turned)]) / step
        np.testing.assert_allclose(found[c, : len(wanted)], wanted, atol=1e-4)


def unit_factors(shape, rank, rng):
    """Unit columns for every axis, which are more or less alike."""
    factors = []
    for length in shape:
        factor = rng.standard_normal((length, rank)) + 1
        factors.append(factor / np.linalg.norm(factor, axis=0))
    return factors


@pytest.mark.parametrize("shape", [(5, 4, 6), (3, 4, 3, 4), (4, 1, 5, 3)], ids=str)
def test_joint_components_change_as_a_small_step_changes_them(shape, rng):
    """An exact sum of three components, and its joint fit after a small step in any direction."""
    strengths = np.array([3.0, 2.2, 1.5])
    factors = unit_factors(shape, 3, rng)
    D = naive.cp_model([factors[0] * strengths, *factors[1:]])
    E = rng.standard_normal(shape)
    step = 1e-7
    *_, stepped = itertools.islice(fit_ranks(D + step * E), 3)
    stepped = settled(stepped, D + step * E)
    vectors = [[factor[:, c] for factor in factors] for c in range(3)]
    changes = Tangents(vectors, strengths).changes([slopes(E[None], v) for v in vectors])[0]
    for c in range(3):
        expected = [[(stepped.strengths[c] - strengths[c]) / step]]
        for factor, moved in zip(factors, stepped.vectors, strict=True):
            difference = signed(moved[:, c], factor[:, c]) - factor[:, c]
            expected.append(strengths[c] * difference / step)
        wanted = np.concatenate(expected)
        np.testing.assert_allclose(changes[c, : len(wanted)], wanted, rtol=1e-3, atol=1e-3)


def test_a_component_that_is_zero_has_no_changes_and_moves_no_other(rng):
    factors = unit_factors((5, 4, 6), 3, rng)
    vectors = [[factor[:, c] for factor in factors] for c in range(2)]
    zeros = [np.zeros(length) for length in (5, 4, 6)]
    E = rng.standard_normal((7, 5, 4, 6))
    two = Tangents(vectors, np.array([3.0, 2.0])).changes([slopes(E, v) for v in vectors])
    three = Tangents([*vectors, zeros], np.array([3.0, 2.0, 0.0])).changes([slopes(E, v) for v in [*vectors, zeros]])
    np.testing.assert_allclose(three[:, :2], two, atol=1e-12)
    np.testing.assert_array_equal(three[:, 2], 0)


def test_components_that_share_an_axis_are_proven_and_said_to_be_unsure(rng):
    """Nearly the same vector along one axis: how the two divide the rest is unknown, that they are there is not."""
    a, b = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    c, d = np.linalg.qr(rng.standard_normal((40, 2)))[0].T
    e = np.array([1.0, 0.0])
    f = np.array([np.cos(0.01), np.sin(0.01)])
    pattern = 4 * np.einsum("i,j,k->ijk", a, c, e) + 2 * np.einsum("i,j,k->ijk", b, d, f)
    X = pattern + rng.standard_normal((200, 2, 40, 2))
    pca = TensorPCA(n_components=2, n_resamples=99, random_state=0).fit(X)
    assert pca.n_proven_ == 2
    assert (pca.strength_intervals_[:, 1] >= pca.strengths_).all()
    # The fit takes the noise of 2·(2 + 40 + 2 - 2) directions, of variance 1/200 each: a distance of √(84/200) = 0.65,
    # give or take 1/√400 = 0.05.
    lengths = [component.length for component in pca.result_.components]
    fitted = pca.inverse_transform(np.array([lengths]))[0]
    assert np.linalg.norm(fitted - pattern) < 0.65 + 4 * 0.05
    assert any("nearly alike" in line for line in pca.result_.advice)
    assert any("do not agree" in line for line in pca.result_.advice)


def width(X, y, **options):
    pca = TensorPCA(target="effect", nan_policy="zero", n_resamples=19, random_state=0, **options).fit(X, y)
    low, high = pca.strength_intervals_[0]
    return high - low


def test_intervals_are_as_wide_as_without_a_look_at_neighbours():
    """Chance makes some neighbours alike: 3 % on average; when units were not compared entry by entry it was 98 %."""
    pairs = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        vectors = [v / np.linalg.norm(v) for v in (rng.standard_normal(d) for d in (5, 4, 3))]
        y = rng.standard_normal(60)
        X = rng.standard_normal((60, 5, 4, 3)) + np.multiply.outer(1.2 * y, np.einsum("i,j,k->ijk", *vectors))
        X[rng.random(X.shape) < 0.3] = np.nan
        pairs.append((width(X, y), width(X, y, dependence=None)))
    auto, none = np.median(pairs, axis=0)
    assert 0.95 * none < auto < 1.25 * none


def agreements(X, **options):
    return [c.half_agreement for c in TensorPCA(2, random_state=0, n_resamples=19, **options).fit(X).result_.components]


def test_halves_agree_on_what_is_there():
    X = 5 * np.outer(A[0], B[0]) + RNG.standard_normal((200, 8, 6))
    # A half has 100 samples: its mean is 5·p + noise of length √48/10, so that its fit has a cosine of 0.995 with p.
    # The second components are fits of two halves of noise: cosines of 48 random entries have a spread of 0.14.
    first, second = agreements(X)
    assert first > 0.95
    assert abs(second) < 0.6  # four spreads
    scores = RNG.standard_normal((200, 1, 1)) * 3
    first, second = agreements(scores * np.outer(A[0], B[0]) + RNG.standard_normal((200, 8, 6)), target="variance")
    assert first > 0.9
    assert 0 <= second < 0.7


def test_components_of_halves_are_matched_with_those_of_the_whole():
    whole = [[A[0], B[0]], [A[1], B[1]]]
    reordered = whole[::-1]
    np.testing.assert_allclose(half_agreements([whole, reordered] * 5, whole), 1.0)
    opposed = [[A[0], -B[0]]]
    assert half_agreements([whole[:1], opposed] * 5, whole[:1])[0] == pytest.approx(-1.0)
    assert half_agreements([whole[:1], opposed] * 5, whole[:1], signed=False)[0] == pytest.approx(1.0)
    zero = [whole[0], [0 * A[0], 0 * B[0]]]
    np.testing.assert_allclose(half_agreements([zero, zero], zero), [1.0, math.nan])
    for first, second in zip(unit_halves(7)[::2], unit_halves(7)[1::2], strict=True):
        assert sorted([*first, *second]) == list(range(7))
