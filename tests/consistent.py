"""What every answer of a solver must be, whatever the data."""

import math

import numpy as np


def assert_consistent(estimate):
    """Strength, interval, errors and vectors of all components of an estimate fit together."""
    each = estimate.components
    assert each
    for one in each:
        low, high = one.strength_interval
        assert 0 <= low <= high, one.strength_interval  # also says that neither is NaN
        for v in one.vectors:
            np.testing.assert_allclose(np.linalg.norm(v), 1.0, rtol=1e-9)
        if estimate.found:
            assert 0 < one.strength < math.inf
            assert low <= one.strength <= high < math.inf, (one.strength, one.strength_interval)
            for errors in one.standard_errors:
                assert (errors >= 0).all()
                assert np.linalg.norm(errors) <= math.sqrt(2) * (1 + 1e-6)
        else:
            assert one.strength == 0
            assert one.standard_errors is None
            assert low == 0 < high
    strengths = [one.strength for one in each]
    assert strengths == sorted(strengths, reverse=True) or not estimate.found
