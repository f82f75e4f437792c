"""Checks of the noise: each law is told for what it is, and the verdict says what speaks against it."""

import numpy as np
import pytest

from tpca import MeanSolver, RaceSolver, open_stream
from tpca.noise import CENTRED

DIMS, N = (6, 6, 6), 400


def serial(rng, n):
    noise = rng.standard_normal((n, *DIMS))
    for t in range(1, n):
        noise[t] = 0.9 * noise[t - 1] + np.sqrt(1 - 0.81) * noise[t]
    return noise


def scales(rng, n):
    return rng.standard_normal((n, *DIMS)) * np.exp(rng.standard_normal(6))


# What is checked, by the law of the noise: each is far from what would be judged otherwise (correlation time 19 against
# 1.15, kurtosis of t with 2.5 degrees of freedom without end, variances of rows that differ by factors of 50).
LAWS = {
    "white": (lambda rng, n: rng.standard_normal((n, *DIMS)), {}),
    "heavy tails": (lambda rng, n: rng.standard_t(2.5, (n, *DIMS)), {"tails of entries": "handled"}),
    "unequal scales": (scales, {"white noise": "handled"}),
    "serial": (serial, {"independent samples": "handled"}),
}


def states(recovery):
    return {check.name: check.state for check in recovery.checks}


@pytest.mark.parametrize("solver", [MeanSolver, RaceSolver])
@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_told_for_what_it_is(law, solver, rng):
    draw, other = LAWS[law]
    recovery = solver().run(open_stream(draw(rng, N)))
    expected = {"independent samples": "good", "white noise": "good", "tails of entries": "good"} | other
    found = states(recovery)
    found.pop("noise along the signal", None)  # where a signal is claimed by chance
    assert found == expected
    assert recovery.doubts == []


def test_too_few_samples_for_their_dependence_are_a_doubt(rng):
    recovery = MeanSolver().run(open_stream(serial(rng, 150)))
    assert states(recovery)["independent samples"] == "bad"
    assert recovery.headline.startswith(f"{recovery.verdict}{',' if recovery.found else ';'} ")
    assert "neighbouring samples are alike over about" in recovery.headline
    assert "Neighbouring samples are alike" in recovery.advice


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centred_data_are_told(dtype, rng):
    samples = rng.standard_normal((N, *DIMS)) + 1.0
    recovery = MeanSolver().run(open_stream((samples - samples.mean(axis=0)).astype(dtype)))
    assert recovery.checks[-1] == CENTRED
    assert recovery.headline == f"no signal; {CENTRED.meaning}"
    assert CENTRED not in MeanSolver().run(open_stream(samples.astype(dtype))).checks


def test_a_doubt_is_no_green_tick():
    """A direction of the noise that is eight times louder, found as a signal after all, would be told."""
    rng = np.random.default_rng(5)
    loud = np.einsum("a,b,c->abc", *(v / np.linalg.norm(v) for v in rng.standard_normal((3, 6))))
    samples = rng.standard_normal((N, *DIMS)) + (3.0 + 8 * rng.standard_normal(N))[:, None, None, None] * loud
    recovery = MeanSolver(whiten=None).run(open_stream(samples))
    # The mean of the loud direction is 3, its standard error 0.4: found, with noise along it 8 times that elsewhere.
    assert recovery.found
    assert states(recovery)["noise along the signal"] == "bad"
    assert recovery.headline.startswith("signal, but the noise is ")


@pytest.mark.parametrize("solver", [MeanSolver, RaceSolver])
def test_groups_that_are_said_count(solver, rng):
    recovery = solver(groups=20).run(open_stream(serial(rng, N)))
    assert recovery.checks[0].state == "handled"
    assert recovery.checks[0].measured == "20 groups of 20"
