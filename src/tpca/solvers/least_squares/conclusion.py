"""From the sums of all samples to what is said: components, p-values of each and of every entry, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.errors import StreamError
from tpca.inference.dependence import excess_of_neighbours
from tpca.inference.design import Design, largest_entry, refuse_extreme_size
from tpca.inference.flips import Progress, entry_p_values
from tpca.inference.regression import (
    Regression,
    UnitSum,
    grams_of,
    noise_level,
    regress,
    residual_energy,
    unit_freedom,
    unit_residuals,
)
from tpca.inference.scatter import Errors, errors_of, half_agreements, slopes, unit_halves
from tpca.inference.whitening import LoudDirections, learn_whitening, longest_within, loud_directions, sphere
from tpca.randomness import generator
from tpca.solvers.components import fit_each, numbers_of_a_fit
from tpca.solvers.estimate import Component, Estimate, StopReason
from tpca.solvers.least_squares.advice import advice_of
from tpca.solvers.least_squares.plan import VERSIONS
from tpca.solvers.least_squares.question import Answer, SignTests, Test, answer_question, first_component_of
from tpca.solvers.least_squares.samples import look_at_samples, rows_for_whitening
from tpca.solvers.least_squares.sums import SampleSums
from tpca.tensors.blocks import Array
from tpca.wording import count

ROUNDING = 1e3 * float(np.finfo(np.float64).eps)
"""Relative error of a sum."""
CANCELLED = 1e-10
"""Share of squares below which what is left of them is rounding, at last."""


@dataclass(frozen=True)
class Reading:
    """All that was read and asked: the sums of all samples, their design, the options, and flips that are held."""

    sums: SampleSums
    design: Design
    solver: Any
    dims: tuple[int, ...]
    chunk: int
    progress: Progress | None = None

    @property
    def units_of_errors(self) -> list[UnitSum]:
        """Bins that have nothing to do with the order of samples, or groups; bins of neighbours if these were given."""
        return self.sums.dealt_units() or self.sums.neighbour_units()

    @property
    def units_of_tests(self) -> list[UnitSum]:
        """Bins of neighbours, where these may be dependent; else those of errors."""
        return self.sums.neighbour_units() or self.sums.dealt_units()


@dataclass(frozen=True)
class Conclusion:
    """All that is said of one question.

    ``p`` is that of any signal, by all statistics together, ``tests`` are those of the components, ``entries`` has the
    p of every entry; all NaN where there was no test.  Errors of neighbouring samples are enlarged by the root of
    ``inflation``, of which ``z`` says how certain it is.  ``energy`` is that of the noise of a sample, by what units
    leave.
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
    energy: float
    loud: LoudDirections | None

    @property
    def regression(self) -> Regression:
        """What the totals of all samples say."""
        return self.answer.regression

    @property
    def n_units(self) -> int:
        """Units whose signs were flipped."""
        return len(self.flips.contributions)


def conclude(reading: Reading) -> Estimate:
    """What is said of all questions, in their order."""
    solver = reading.solver
    units = reading.units_of_errors
    refuse_extreme_size("samples", largest_mean(units))
    rng = generator(solver.random_state, "flips")
    conclusions: list[Conclusion] = []
    for name, interest in reading.design.questions:
        regression = regress(units, interest, reading.dims, reading.design.stacked)
        if not conclusions:
            refuse_few(units, regression)
            refuse_constant_samples(units, regression)
        answer, flips = answer_question(
            name,
            reading.units_of_tests,
            regression,
            solver,
            reading.design,
            rng,
            reading.chunk,
            reading.progress,
        )
        conclusions.append(conclusion_of(reading, answer, flips))
    tested = [conclusion.p for conclusion in conclusions if not conclusion.flips.why_not]
    signal_p = math.nan
    if tested:
        signal_p = min(1.0, len(tested) * min(tested))  # of several covariates: Bonferroni
    components = []
    for conclusion in conclusions:
        components += component_rows(conclusion, reading)
    first = conclusions[0]
    energy = noise_energy(reading, first)
    look = look_at_samples(reading.sums, first.regression, energy)
    return Estimate(
        solver="least_squares",
        components=tuple(components),
        stop_reason=stop_reason(reading, signal_p),
        signal_p=signal_p,
        n_samples=reading.sums.n,
        state_bytes=bytes_of_all(reading, conclusions),
        noise_level=noise_level(energy, first.regression, reading.sums.weight),
        entry_p_values=tuple(conclusion.entries for conclusion in conclusions),
        rank_one_shares=tuple(conclusion.answer.rank_one_share for conclusion in conclusions),
        n_units=first.n_units,
        n_resamples=len(first.flips.signs) - 1,
        inflation=first.flips.dependence.inflation,
        advice=tuple(dict.fromkeys(advice_of(conclusions, reading, look))),
        observed=observed_shares(first.regression),
    )


def noise_energy(reading: Reading, conclusion: Conclusion) -> float:
    """The sum of squares that the regression leaves of all samples; by what units leave, where squares cancel."""
    squares = reading.sums.squares
    energy = residual_energy(squares, conclusion.regression)
    if energy > CANCELLED * float(squares.sum()):
        return energy
    return conclusion.energy * reading.sums.weight


def bytes_of_all(reading: Reading, conclusions: Sequence[Conclusion]) -> int:
    """Bytes of all sums, of the contributions that were tested, and of samples for whitening, at most."""
    versions = 1
    samples = 0
    if reading.solver.whiten is not None:
        versions = VERSIONS
        samples = 2 * sum(sample.nbytes for sample in reading.sums.kept.values())
    tested = max(conclusion.flips.plain.nbytes for conclusion in conclusions)
    estimate = 4 * conclusions[0].regression.estimate.nbytes
    return int(reading.sums.nbytes + versions * tested + samples + estimate)


def largest_mean(units: Sequence[UnitSum]) -> float:
    """The largest entry, in size, of the mean samples of all units."""
    size = 0.0
    for unit in units:
        weight = float(unit.gram[0, 0])
        if weight > 0:
            size = max(size, largest_entry(unit.moments[0]) / weight)
    return size


def refuse_few(units: Sequence[UnitSum], regression: Regression) -> None:
    """One unit, or as many columns as samples, leave nothing to tell errors from."""
    if len(units) < 2:
        raise StreamError(
            f"all {count(regression.n, 'sample')} are in one unit, and errors need two at least; give more samples, or "
            "a smaller dependence."
        )
    if regression.n <= regression.columns:
        raise StreamError(
            f"{count(regression.n, 'sample')} determine the {regression.columns} numbers that are fitted to each "
            "entry: nothing is left to tell errors from; give more samples."
        )


def refuse_constant_samples(units: Sequence[UnitSum], regression: Regression) -> None:
    """Flips of rounding are no test."""
    energy = 0.0
    for _, residuals in unit_residuals(units, regression):
        energy += float(np.vdot(residuals, residuals))
    noise = math.sqrt(energy / len(units)) / regression.information
    size = float(np.linalg.norm(regression.background)) + float(np.linalg.norm(regression.estimate))
    if noise <= ROUNDING * size:
        raise StreamError(
            "all samples are the same: there is no noise to tell a signal from; give samples that differ."
        )


def stop_reason(reading: Reading, signal_p: float) -> StopReason:
    """Why the run ended, by the p-value of any signal."""
    solver = reading.solver
    if math.isnan(signal_p):
        return StopReason.UNTESTABLE
    if signal_p > 1 - solver.confidence:
        return StopReason.NO_SIGNAL
    if solver.max_samples is not None and reading.sums.n >= solver.max_samples:
        return StopReason.MAX_SAMPLES
    return StopReason.STREAM_ENDED


def observed_shares(regression: Regression) -> tuple[Array, ...] | None:
    """The share of every slice that was observed, axis by axis; none where no entry is missing."""
    rates = regression.rates
    if rates is None:
        return None
    axes = range(rates.ndim)
    return tuple(rates.mean(axis=tuple(other for other in axes if other != axis)) for axis in axes)


# One question ---------------------------------------------------------------------------------------------------------


def conclusion_of(reading: Reading, answer: Answer, flips: SignTests) -> Conclusion:
    """Test and errors of one question."""
    regression = answer.regression
    solver = reading.solver
    asked = len(answer.vectors)
    p = math.nan
    tests = [Test()] * asked
    entries = np.full(regression.dims, math.nan)
    agreements = np.full(asked, math.nan)
    loud = None
    if not flips.why_not:
        entries = entry_p_values(flips.plain, flips.signs, flips.scale, flips.chunk, flips.progress)
        if regression.stacked:
            entries = np.fmin.reduce(entries, axis=0)
        versions = Versions(reading, answer, flips)
        values, adjusted = flips.of_versions(iter(versions))
        loud = versions.loud
        p = float(adjusted.min())
        first_test = Test(float(adjusted[0]), values[0])
        if solver.n_components == "auto" and first_test.p > 1 - solver.confidence:
            answer = first_component_of(answer)  # it was proven before p was adjusted for whitened versions
        tests = component_tests(answer, flips, first_test)
        agreements = agreements_of_halves(answer, flips)
    errors, inflation, z, energy = errors_and_inflation(reading, answer, flips)
    return Conclusion(answer, flips, p, tests, entries, agreements, errors, inflation, z, energy, loud)


class Versions:
    """Contributions as they are, whitened, and with ``loud`` directions taken down, one after the other.

    They are whitened by samples that were kept, or by the contributions themselves: moments that flips leave alone.
    """

    def __init__(self, reading: Reading, answer: Answer, flips: SignTests) -> None:
        self.reading = reading
        self.answer = answer
        self.flips = flips
        self.loud: LoudDirections | None = None

    def __iter__(self) -> Iterator[Array]:
        yield self.flips.contributions
        solver = self.reading.solver
        regression = self.answer.regression
        plain = self.flips.plain
        if solver.whiten != "auto" or plain[0].size < 2:
            return
        samples = self.reading.sums.kept_samples()
        if len(samples) > 1:
            rows: Any = rows_for_whitening(samples, regression)
        else:
            rows = sphere(plain.reshape(-1, *regression.dims))
        whitening = learn_whitening(rows, longest_within(solver.budget()))
        self.loud = loud_directions(rows)
        del rows  # before the flips take their memory
        white = whitening(plain)
        yield white
        if self.loud.factors.size:
            self.loud.take_down(white)
            yield white


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
    reading: Reading, answer: Answer, flips: SignTests
) -> tuple[list[Errors], float, float, float]:
    """Errors of all components, by how much dependence enlarges their squares, how certain that is, and noise energy.

    They come from the scatter of bins that have nothing to do with the order of samples, or of the units that were
    given.  White noise leaves as many degrees of freedom of these as :func:`unit_freedom` says.
    """
    regression = answer.regression
    units = reading.units_of_errors
    energies = np.empty(len(units))
    squares: Any = 0.0
    for rows, residuals in unit_residuals(units, regression):
        flat = residuals.reshape(len(residuals), -1)
        energies[rows] = np.vecdot(flat, flat)
        residuals /= regression.information
        changes = answer.tangents.changes([slopes(residuals, vectors) for vectors in answer.vectors])
        squares = squares + np.einsum("gci,gci->ci", changes, changes)
    unit_freedoms = unit_freedom(grams_of(units), regression)
    freedom = float(unit_freedoms.sum())
    inflation = flips.dependence.inflation
    shown = inflation
    z = flips.dependence.z
    if flips.scatter is not None:
        excess, excess_z = excess_of_neighbours(flips.scatter, energies, freedom)
        shown = inflation * excess
        z = max(z, excess_z)
    share_left = freedom / regression.information
    errors = errors_of(
        answer.tangents,
        squares * (shown / share_left),
        len(units) * share_left / inflation,
        reading.solver.confidence,
    )
    return errors, shown, z, float(energies.sum()) / freedom


# Components -----------------------------------------------------------------------------------------------------------


def component_rows(conclusion: Conclusion, reading: Reading) -> list[Component]:
    """All rows of one question."""
    answer = conclusion.answer
    regression = conclusion.regression
    level = 1 - reading.solver.confidence
    first_axis = 1 if regression.stacked else 0
    axes = range(regression.observed.ndim)
    known = [regression.observed.any(axis=tuple(other for other in axes if other != axis)) for axis in axes]
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
        if regression.stacked:
            amplitudes = label_amplitudes(regression, reading.design, vectors[0], errors.strength)
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


def label_amplitudes(regression: Regression, design: Design, direction: Array, strength: float) -> dict[str, float]:
    """Amplitude of the pattern with every label; they sum to zero over the samples.

    D̃ = (S/W)^(1/2) D, so that the columns of y have the coefficients (S/W)^(-1/2) u λ.
    """
    assert design.columns is not None
    assert design.origin is not None
    coefficients = np.append(regression.contrasts @ direction * strength, 0.0)
    indicators = (design.columns + design.origin)[:, design.n_nuisance :]
    shares = np.average(indicators, axis=0, weights=design.weights)
    centred = coefficients - shares @ coefficients[:-1]
    return {label: float(value) for label, value in zip(design.labels, centred, strict=True)}
