"""Numbers of the theory, by hand."""

import numpy as np
import pytest

from research.theory import (
    adaptive_samples,
    cramer_rao,
    gaussian_error,
    least_samples,
    limit_alignment,
    limit_threshold,
    noise_norm,
)
from tpca.model import gauge


def test_bounds_take_the_smaller_form_and_know_odd_orders():
    # Order 6, d = 16: none correlated d^4; all with Cor = 1 d² γ^-2 with γ = 1/4 + 1/16; one of three: the min is d^4.
    assert least_samples((16,) * 6, [0.0] * 3) == pytest.approx(16**4)
    assert least_samples((16,) * 6, [1.0] * 3) == pytest.approx(16**2 * (5 / 16) ** -2)
    assert adaptive_samples(16, gauge((16,) * 6, [1.0, 0.0, 0.0], 1.0)) > 16**4
    assert least_samples((16,) * 6, [1.0, 0.0, 0.0]) == pytest.approx(16**4)
    # Odd order as printed: d^(k̄−1) without correlation, d³ with identical pairs (γ = 1/4 + 1/16).
    assert least_samples((16,) * 5, [0.0] * 3) == pytest.approx(16**4)
    assert least_samples((16,) * 5, [0.0, 1.0, 1.0]) == pytest.approx(16**2 * (5 / 16) ** 4 * 16 * (5 / 16) ** -4)
    # Unequal dims: D γ⁴ is largest for the smallest pair.
    assert least_samples((4, 4, 8, 8), [0.0, 0.0]) == pytest.approx(16 * 16**-2 * 16 * 64)
    # log³(k̄Td/δ)(1 + k̄d²/λ²)√k̄/(√δ T)
    expected = np.log(4 * 100 * 8 / 0.1) ** 3 * (1 + 4 * 64 / 4) * 2 / (np.sqrt(0.1) * 100)
    assert gaussian_error(4, 8, 2.0, 100.0, 0.1) == pytest.approx(expected)
    # Weak pairs, c0 = 1: gamma = 1/d, so d^2 gamma^4 prod gamma^-2 = d^2 d^-4 d^6 = d^4 at order 6, the worst case.
    assert adaptive_samples(8, np.full(3, 1 / 8)) == pytest.approx(8**4)
    assert cramer_rao(11, 2.0, 100) == pytest.approx(10 / 400)


def test_random_matrix_limits():
    """Published numbers: Seddik et al. 2022 (order 3), and E₀ = 1.657, 1.794 of the spherical 3- and 4-spin glass."""
    assert limit_threshold(3) == pytest.approx(2 / np.sqrt(3))
    found = [limit_alignment(3, beta) for beta in (1.3, 1.5, 2, 3, 5)]
    np.testing.assert_allclose(found, [0.8542, 0.9051, 0.9530, 0.9806, 0.9932], atol=5e-5)
    assert limit_alignment(4, 1.29) == 0
    assert limit_alignment(4, 1.31) > np.sqrt(2 / 3)
    assert [noise_norm(3), noise_norm(4)] == pytest.approx([2.870, 3.588], abs=5e-4)
