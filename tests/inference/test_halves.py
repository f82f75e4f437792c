"""Two halves of the samples agree on what is there, and on nothing else."""

import math

import numpy as np
import pytest

from tpca import TensorPCA
from tpca.inference.scatter import half_agreements

RNG = np.random.default_rng(0)
A, B = (np.linalg.qr(RNG.standard_normal((d, 2)))[0].T for d in (8, 6))


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


def test_components_that_change_places_are_matched():
    whole = [[A[0], B[0]], [A[1], B[1]]]
    turns = iter([whole, whole[::-1]] * 5)
    np.testing.assert_allclose(half_agreements(8, lambda some: next(turns), whole), 1.0)


def test_a_pattern_and_its_negative_agree_only_if_signs_mean_nothing():
    whole = [[A[0], B[0]]]
    for signed, expected in ((True, -1.0), (False, 1.0)):
        turns = iter([whole, [[A[0], -B[0]]]] * 5)
        assert half_agreements(8, lambda some, t=turns: next(t), whole, signed)[0] == pytest.approx(expected)


def test_what_cannot_be_split_or_is_zero_has_no_agreement():
    whole = [[A[0], B[0]], [0 * A[0], 0 * B[0]]]
    assert all(map(math.isnan, half_agreements(3, lambda some: whole, whole)))
    first, second = half_agreements(4, lambda some: whole, whole)
    assert first == pytest.approx(1.0)
    assert math.isnan(second)
