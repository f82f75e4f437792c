"""The units of the data change the strength, and nothing else."""

import numpy as np
import pytest

from tpca import RaceSolver, SpikedTensor, TensorPCA, TpcaError
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
    with (
        pytest.raises(TpcaError, match=r"samples must be .* got 4e\+307; multiply by 1e-308"),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        LeastSquares().run(1e307 * SAMPLES)


Y = np.random.default_rng(2).standard_normal(len(SAMPLES))
WEIGHTS = np.linspace(0.5, 1.0, len(SAMPLES))


@pytest.mark.parametrize("target", ["mean", "effect", "variance"])
@pytest.mark.parametrize("scale", [1e-84, 1e76])
def test_samples_of_a_size_beyond_reason_are_refused_with_a_factor(target, scale):
    """Their fourth powers are no floats: before, "no signal, p = 1", or a traceback."""
    y = Y if target == "effect" else None
    with pytest.raises(TpcaError, match=r"samples must be of a size between 1e-70 and 1e\+70.*multiply by 1e") as told:
        TensorPCA(target=target).fit(scale * SAMPLES, y)
    factor = float(str(told.value).split()[-1].rstrip("."))
    assert TensorPCA(target=target, n_resamples=19).fit(factor * (scale * SAMPLES), y).p_values_[0] <= 1


@pytest.mark.parametrize("name", ["y", "nuisance"])
def test_y_and_nuisances_of_a_size_beyond_reason_are_refused(name):
    given = {"y": Y, "nuisance": Y[::-1], name: 1e-100 * Y}
    with pytest.raises(TpcaError, match=rf"{name} must be of a size.*got 2e-100; multiply by 1e\+100"):
        TensorPCA(target="effect").fit(SAMPLES, **given)
    with pytest.raises(TpcaError, match=r"samples times y must be of a size"):
        TensorPCA(target="effect").fit(1e-60 * SAMPLES, 1e-60 * Y)


@pytest.mark.parametrize("target", ["mean", "effect"])
@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-1, 2.0**1000])
def test_only_ratios_of_weights_matter(target, scale):
    """To the last bit: weights are divided by a power of two, that of the first batch."""
    y = Y if target == "effect" else None
    one, other = (
        TensorPCA(target=target, random_state=0).fit(SAMPLES, y, sample_weight=weights)
        for weights in (WEIGHTS, scale * WEIGHTS)
    )
    assert one.p_values_[0] == other.p_values_[0] < 1
    assert one.strengths_[0] == other.strengths_[0]
    parts = TensorPCA(target=target, random_state=0)
    for some in np.array_split(np.arange(len(SAMPLES)), 3):
        parts.partial_fit(SAMPLES[some], None if y is None else y[some], sample_weight=scale * WEIGHTS[some])
    assert parts.result_.components[0].length == pytest.approx(one.result_.components[0].length, rel=1e-9)
    assert abs(parts.components_[0][0] @ one.components_[0][0]) == pytest.approx(1, abs=1e-9)
