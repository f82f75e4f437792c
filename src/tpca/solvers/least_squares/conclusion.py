"""From sums of units to what is said: components, p-values of each and of every entry, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tpca.errors import StreamError
from tpca.inference.design import Design
from tpca.inference.flips import entry_p_values, rows_to_flip
from tpca.inference.scatter import Errors, errors_of, half_agreements, slopes, unit_halves
from tpca.inference.units import Contributions
from tpca.inference.whitening import LoudDirections, learn_whitening, longest_within, loud_directions, sphere
from tpca.solvers.components import fit_each, numbers_of_a_fit
from tpca.solvers.estimate import Component, Estimate, StopReason
from tpca.solvers.least_squares.advice import advice_of
from tpca.solvers.least_squares.question import Answer, SignTests, Test, first_component_of
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.least_squares.solver import LeastSquaresRun

ROUNDING = 1e3 * float(np.finfo(np.float64).eps)
"""Relative error of a sum."""
LEAST_BINS_COMPARED = 8
"""Bins whose scatter is compared with that of their samples."""


@dataclass(frozen=True)
class Conclusion:
    """All that is said of one question.

    ``p`` is that of any signal, by all statistics together, ``tests`` are those of the components, ``entries`` has the
    p of every entry; all NaN where there was no test.  Errors of neighbouring samples are enlarged by the root of
    ``inflation``, of which ``z`` says how certain it is.
    """

    answer: Answer
    flips: SignTests
    p: float
    tests: list[Test]
    entries: Array
    agreements: Array
    errors: list[Errors]
    inflation: float
    z: float
    loud: LoudDirections | None

    @property
    def parts(self) -> Contributions:
        """What units contribute to the question."""
        return self.answer.parts


def conclude(run: LeastSquaresRun) -> Estimate:
    """What is said of all questions, in their order."""
    refuse_constant_samples(run)
    conclusions = []
    for number, (answer, flips) in enumerate(run.questions):
        conclusions.append(conclusion_of(run, number, answer, flips))
    tested = [conclusion.p for conclusion in conclusions if not conclusion.flips.why_not]
    signal_p = math.nan
    if tested:
        signal_p = min(1.0, len(tested) * min(tested))  # of several covariates: Bonferroni
    components = []
    for conclusion in conclusions:
        components += component_rows(conclusion, run)
    first = conclusions[0]
    look = run.residuals
    noise_level = math.nan
    if look is not None:
        noise_level = math.sqrt(look.square / look.n_entries)
    return Estimate(
        solver="least_squares",
        components=tuple(components),
        stop_reason=stop_reason(run, signal_p),
        signal_p=signal_p,
        n_samples=run.n,
        state_bytes=run.state_bytes,
        n_passes=1 if look is None else 2,
        noise_level=noise_level,
        entry_p_values=tuple(conclusion.entries for conclusion in conclusions),
        rank_one_shares=tuple(conclusion.answer.rank_one_share for conclusion in conclusions),
        n_units=len(first.parts),
        n_resamples=len(first.flips.signs) - 1,
        inflation=first.flips.dependence.inflation,
        advice=tuple(dict.fromkeys(advice_of(conclusions, run))),
        observed=observed_shares(first.parts),
    )


def refuse_constant_samples(run: LeastSquaresRun) -> None:
    """Flips of rounding are no test."""
    parts = run.answers[0].parts
    look = run.residuals
    if look is None:
        noise = float(np.linalg.norm(parts.left_over()[0])) / (math.sqrt(len(parts)) * parts.S)
    elif look.copies == run.n - 1:
        noise = math.sqrt(look.square / run.n)
    else:
        return
    size = float(np.linalg.norm(parts.background)) + float(np.linalg.norm(parts.D))
    if noise <= ROUNDING * size:
        raise StreamError(
            "all samples are the same: there is no noise to tell a signal from; give samples that differ."
        )


def stop_reason(run: LeastSquaresRun, signal_p: float) -> StopReason:
    """Why the run ended, by the p-value of any signal."""
    if math.isnan(signal_p):
        return StopReason.UNTESTABLE
    if signal_p > 1 - run.solver.confidence:
        return StopReason.NO_SIGNAL
    if run.solver.max_samples is not None and run.n >= run.solver.max_samples:
        return StopReason.MAX_SAMPLES
    return StopReason.STREAM_ENDED


def observed_shares(parts: Contributions) -> tuple[Array, ...] | None:
    """The share of every slice that was observed, axis by axis; none where no entry is missing."""
    if parts.rates is None:
        return None
    axes = range(len(parts.dims))
    return tuple(parts.rates.mean(axis=tuple(other for other in axes if other != axis)) for axis in axes)


# One question ---------------------------------------------------------------------------------------------------------


def conclusion_of(run: LeastSquaresRun, number: int, answer: Answer, flips: SignTests) -> Conclusion:
    """Test and errors of one question."""
    parts = answer.parts
    count = len(answer.vectors)
    p = math.nan
    tests = [Test()] * count
    entries = np.full(parts.dims, math.nan)
    agreements = np.full(count, math.nan)
    loud = None
    if not flips.why_not:
        entries = entry_p_values(parts.C, flips.signs, flips.scale, flips.chunk, flips.progress)
        if parts.stacked:
            entries = np.fmin.reduce(entries, axis=0)
        versions = Versions(run, answer, flips)
        values, adjusted = flips.of_versions(iter(versions))
        loud = versions.loud
        p = float(adjusted.min())
        first_test = Test(float(adjusted[0]), values[0])
        if run.solver.n_components == "auto" and first_test.p > 1 - run.solver.confidence:
            answer = first_component_of(answer)  # it was proven before p was adjusted for whitened versions
        tests = component_tests(answer, flips, first_test)
        agreements = agreements_of_halves(answer, flips)
    errors, inflation, z = errors_and_inflation(run, number, answer, flips)
    return Conclusion(answer, flips, p, tests, entries, agreements, errors, inflation, z, loud)


class Versions:
    """Contributions as they are, whitened, and with ``loud`` directions taken down, one after the other.

    They are whitened by samples that were kept, or by the contributions themselves: moments that flips leave alone.
    """

    def __init__(self, run: LeastSquaresRun, answer: Answer, flips: SignTests) -> None:
        self.run = run
        self.answer = answer
        self.flips = flips
        self.loud: LoudDirections | None = None

    def __iter__(self) -> Iterator[Array]:
        yield self.flips.contributions
        solver = self.run.solver
        parts = self.answer.parts
        if solver.whiten != "auto" or parts.C[0].size < 2:
            return
        look = self.run.residuals
        if look is not None and len(look.samples) > 1:
            samples = [look.samples[digest].reshape(parts.dims) for digest in sorted(look.samples)]
        else:
            samples = list(sphere(rows_to_flip(parts.C)[0].reshape(-1, *parts.dims)))
        whitening, white = learn_whitening(samples, longest_within(solver.budget()))
        self.loud = loud_directions(white)
        del samples, white  # before the flips take their memory
        yield whitening(rows_to_flip(parts.C)[0])
        if self.loud.factors.size:
            yield self.loud.taken_down(whitening(rows_to_flip(parts.C)[0]))


def component_tests(answer: Answer, flips: SignTests, first: Test) -> list[Test]:
    """Tests of there being at least 1, 2, ... components; no p-value is below the one before."""
    tests = [first]
    for fit in answer.joint_fits[: len(answer.vectors) - 1]:
        test = flips.beyond(fit)
        tests.append(Test(max(test.p, tests[-1].p), test.values))
    for _ in range(len(answer.vectors) - len(tests)):
        tests.append(Test(1.0, np.zeros(len(flips.signs))))  # nothing is left to test
    return tests


def agreements_of_halves(answer: Answer, flips: SignTests) -> Array:
    """How alike the components of two halves of the units are, in the coordinates of the test."""
    contributions = flips.contributions
    if answer.fit is None or len(contributions) < 4:
        return np.full(len(answer.vectors), math.nan)
    whole = answer.vectors
    if answer.whitening is not None:
        whole = [answer.whitening.of_vectors(vectors) for vectors in answer.vectors]
    halves = unit_halves(len(contributions))
    at_a_time = max(1, flips.chunk // numbers_of_a_fit(contributions[0].shape, answer.fit.rank))
    patterns = []
    for start in range(0, len(halves), at_a_time):
        sums = [contributions[flips.order[half]].sum(axis=0) for half in halves[start : start + at_a_time]]
        for vectors in fit_each(np.stack(sums), answer.fit):
            patterns.append([[column[:, c] for column in vectors] for c in range(answer.fit.rank)])
    agreements = half_agreements(patterns, whole[: answer.fit.rank])
    missing = len(answer.vectors) - answer.fit.rank
    return np.concatenate([agreements, np.full(missing, math.nan)])


def errors_and_inflation(
    run: LeastSquaresRun, number: int, answer: Answer, flips: SignTests
) -> tuple[list[Errors], float, float]:
    """Errors of all components, by how much dependence enlarges their squares, and how certain that is.

    They are from samples of the second pass; from units where these were given, or samples passed by once.
    """
    parts = answer.parts
    look = run.residuals
    solver = run.solver
    inflation = flips.dependence.inflation
    inflation_shown = inflation
    z = flips.dependence.z
    by_samples = run.design.groups is None and not isinstance(solver.dependence, int)
    if look is not None and by_samples and len(look.squares[number]) == len(answer.vectors):
        excess = 1.0
        if solver.dependence == "auto":
            excess, excess_z = excess_of_bins(parts, look.energies[number])
            inflation_shown = inflation * excess
            z = max(z, excess_z)
        factor = parts.n_observed / max(parts.n_observed - parts.rank, 1) * excess
        squares = look.squares[number] * factor
        freedom = (parts.n - parts.rank) / inflation
    else:
        unit_count = len(parts)
        residuals = parts.left_over()[0].reshape(parts.C.shape) / parts.S
        changes = answer.tangents.changes([slopes(residuals, vectors) for vectors in answer.vectors])
        squares = np.einsum("gci,gci->ci", changes, changes) * (unit_count / max(unit_count - 1, 1))
        freedom = unit_count - 1
    return errors_of(answer.tangents, squares * inflation, freedom, solver.confidence), inflation_shown, z


def excess_of_bins(parts: Contributions, energy: float) -> tuple[float, float]:
    """By how much the variance of a bin exceeds that of as many independent samples, and how certain that is.

    ``energy`` is that of the samples; the excess is 1 where it may be chance.
    """
    if len(parts) < LEAST_BINS_COMPARED or energy <= 0:
        return 1.0, 0.0
    residuals, _, freedom = parts.left_over()
    energies = np.vecdot(residuals, residuals)
    of_samples = energy / (parts.S * max(1 - parts.rank / parts.n_observed, 1e-3))
    ratio = float(energies.sum() / freedom / of_samples)
    error = float(energies.std(ddof=1)) / float(energies.mean() + 1e-300) / math.sqrt(len(energies))
    if ratio - 1 <= error:
        return 1.0, 0.0
    return ratio, (ratio - 1) / (error + 1e-300)


# Components -----------------------------------------------------------------------------------------------------------


def component_rows(conclusion: Conclusion, run: LeastSquaresRun) -> list[Component]:
    """All rows of one question."""
    answer = conclusion.answer
    parts = conclusion.parts
    level = 1 - run.solver.confidence
    first_axis = 1 if parts.stacked else 0
    axes = range(parts.observed.ndim)
    known = [parts.observed.any(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    components = []
    for c, vectors in enumerate(answer.vectors):
        test = conclusion.tests[c]
        errors = conclusion.errors[c]
        length = float(answer.sizes[c])
        strength = 0.0
        interval = (0.0, 0.0)
        if length > 0:
            strength = errors.strength
            interval = errors.interval
        standard_errors = []
        for entries_known, axis_errors in zip(known, errors.vectors[first_axis:], strict=True):
            standard_errors.append(np.where(entries_known, axis_errors, np.inf))
        amplitudes = None
        if parts.stacked:
            amplitudes = label_amplitudes(parts, run.design, vectors[0], errors.strength)
        component = Component(
            vectors=tuple(vectors[first_axis:]),
            strength=strength,
            strength_interval=interval,
            standard_errors=tuple(standard_errors),
            p_value=test.p,
            significant=bool(test.p <= level),
            length=length,
            statistic=math.nan if test.values is None else float(test.values[0]),
            null=None if test.values is None else test.values[1:],
            half_agreement=float(conclusion.agreements[c]),
            joint_share=float(answer.shares[c]),
            effect=answer.name,
            label_amplitudes=amplitudes,
        )
        components.append(component)
    return components


def label_amplitudes(parts: Contributions, design: Design, direction: Array, strength: float) -> dict[str, float]:
    """Amplitude of the pattern with every label; they sum to zero over the samples.

    D̃ = (S/W)^(1/2) D, so that the columns of y have the coefficients (S/W)^(-1/2) u λ.
    """
    assert design.columns is not None
    assert design.origin is not None
    coefficients = np.append(parts.K @ direction * strength, 0.0)
    indicators = (design.columns + design.origin)[:, design.n_nuisance :]
    shares = np.average(indicators, axis=0, weights=design.weights)
    centred = coefficients - shares @ coefficients[:-1]
    return {label: float(value) for label, value in zip(design.labels, centred, strict=True)}
