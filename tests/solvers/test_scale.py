"""The units of the data change the strength, and nothing else."""

import numpy as np
import pytest

from tpca import RaceSolver, SpikedTensor, TpcaError
from tpca.solvers import LeastSquares

TRUTH = SpikedTensor.random((5, 4, 3), strength=2.0, random_state=0)
SAMPLES = next(iter(TRUTH.stream(random_state=1, batch_size=120)))


@pytest.mark.parametrize("solver", [RaceSolver, LeastSquares])
@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-10, 2.0**10, 2.0**66])  # powers of two: nothing is rounded
def test_the_answer_does_not_depend_on_the_unit(solver, scale):
    one, other = solver(random_state=0).run(SAMPLES), solver(random_state=0).run(scale * SAMPLES)
    assert (one.n_samples, one.stop_reason, one.p_value) == (other.n_samples, other.stop_reason, other.p_value)
    np.testing.assert_allclose(other.strength, scale * one.strength, rtol=1e-12)
    for v, u in zip(one.vectors, other.vectors, strict=True):
        np.testing.assert_allclose(v, u, atol=1e-12)


def test_sums_beyond_all_floats_are_an_error():
    with pytest.raises(TpcaError, match=r"not finite; divide"), np.errstate(over="ignore", invalid="ignore"):
        LeastSquares().run(1e307 * SAMPLES)
