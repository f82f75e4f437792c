"""From sums of units to what is said: components, p-values of each and of every entry, intervals, advice.

Advice is one line each, with a number and one action; it changes nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tpca.errors import StreamError
from tpca.inference.flips import draw_signs, entry_p_values, least_p, own_order, resampled, usual_resamples
from tpca.inference.scatter import Errors, errors_of, half_agreements, slopes
from tpca.inference.units import Dependence, by_pieces, dependence
from tpca.inference.whitening import LoudDirections, learn_whitening, longest_within, loud_directions, sphere
from tpca.randomness import generator
from tpca.solvers.estimate import Component, Estimate, StopReason
from tpca.solvers.rank_one import beyond, fits, outer
from tpca.tensors.blocks import Array
from tpca.wording import count

if TYPE_CHECKING:
    from tpca.solvers.least_squares.solver import LeastSquaresRun

ROUNDING = 1e3 * float(np.finfo(np.float64).eps)  # of a sum, relative
# What is worth a line of advice
CERTAIN = 2.33  # z of the correlation of neighbours: 1 % of independent samples have as much
HEAVY = 9.0  # kurtosis of residuals
SKEWED = 0.5  # median skewness of entries
LOUD_SAMPLE = 0.25  # share of all energy in one sample
LOUD_DIRECTION = 0.35  # factor that brings it to the level of the others
NO_MEAN = 1e-10  # standard errors
EQUAL = 0.8  # ratio of the lengths of two components
ALIKE, SHARED = 0.6, 0.98  # cosines of two components that are hard to tell apart
IN_ORDER = 0.8  # correlation of y with the order of the samples


def conclude(run: LeastSquaresRun) -> Estimate:
    """What is said of all questions, in their order."""
    solver, look, first = run.solver, run.residuals, run.answers[0].parts
    noise = float(np.linalg.norm(first.left_over()[0])) / (math.sqrt(len(first)) * first.S)
    if look is not None:
        noise = math.sqrt(look.square / run.n) if look.copies == run.n - 1 else math.inf
    if noise <= ROUNDING * (float(np.linalg.norm(first.background)) + float(np.linalg.norm(first.D))):
        raise StreamError(  # flips of rounding are no test
            "all samples are the same: there is no noise to tell a signal from; give samples that differ."
        )
    rng = generator(solver.random_state, "flips")
    found = [Conclusion(run, number, rng) for number in range(len(run.answers))]
    tested = [each.p for each in found if not each.why_not]
    signal_p = min(1.0, len(tested) * min(tested)) if tested else math.nan  # of several covariates: Bonferroni
    limited = solver.max_samples is not None and run.n >= solver.max_samples
    stop = StopReason.MAX_SAMPLES if limited else StopReason.STREAM_ENDED
    if not signal_p <= 1 - solver.confidence:
        stop = StopReason.NO_SIGNAL if tested else StopReason.UNTESTABLE
    modes = range(len(first.dims))
    return Estimate(
        solver="least_squares",
        components=tuple(one for each in found for one in each.components()),
        stop_reason=stop,
        signal_p=signal_p,
        n_samples=run.n,
        state_bytes=run.state_bytes,
        n_passes=1 if look is None else 2,
        noise_level=math.nan if look is None else math.sqrt(look.square / look.n_entries),
        entry_p_values=tuple(each.entries for each in found),
        rank_one_shares=tuple(each.answer.rank_one_share for each in found),
        n_units=len(first),
        n_resamples=len(found[0].signs) - 1,
        inflation=found[0].dependence.inflation,
        advice=tuple(dict.fromkeys(advice_of(found))),
        observed=None
        if first.rates is None
        else tuple(first.rates.mean(axis=tuple(j for j in modes if j != m)) for m in modes),
    )


class Test(NamedTuple):
    """Of one component: its p-value, and the statistic of the data and of all flips."""

    p: float = math.nan
    values: Array | None = None


class Conclusion:
    """All that is said of one question.

    ``p`` is that of any signal, by all statistics together, ``tests`` are those of the components, ``entries`` has the
    p of every entry; all NaN where ``why_not`` says why there was no test.
    """

    def __init__(self, run: LeastSquaresRun, number: int, rng: np.random.Generator) -> None:
        solver, grouped = run.solver, run.design.groups is not None
        self.run, self.number, self.answer, self.level = run, number, run.answers[number], 1 - solver.confidence
        self.parts = parts = self.answer.parts
        self.dependence = Dependence()
        if solver.dependence == "auto" and not grouped:
            self.dependence = dependence(parts, self.answer.vectors[0])
        self.inflation, self.z = self.dependence.inflation, self.dependence.z  # of errors; and how certain it is
        asked = usual_resamples(math.prod(parts.shape)) if solver.n_resamples == "auto" else solver.n_resamples
        free = solver.dependence is None or grouped  # units have no order
        self.order = own_order(parts.C) if free else np.arange(len(parts))
        self.signs = draw_signs(len(parts), asked, rng)[:, np.argsort(self.order)]
        self.why_not = self._untestable(least_p(len(parts), asked))
        self.loud: LoudDirections | None = None
        self.p, self.entries = math.nan, np.full(parts.dims, math.nan)
        self.tests = [Test()] * len(self.answer.vectors)
        self.agreements = np.full(len(self.tests), math.nan)
        if not self.why_not:
            self._test()
        self.errors = self._errors()

    def _untestable(self, least: float) -> str:
        """Why no claim can be made, with what would help; empty if one can."""
        if not self.dependence.testable:
            return (
                f"Not tested: neighbouring samples are correlated ({self.dependence.correlation:.2f}) over so many "
                "that too few are independent. If their order is meaningless, use dependence=None; if they belong to "
                "groups, give groups=."
            )
        if least > self.level * (1 + 1e-9):
            what = "groups" if self.run.design.groups is not None else "independent units of samples"
            return (
                f"Not tested: {len(self.parts)} {what} give no p-value below {least:.2g}, and confidence "
                f"{self.run.solver.confidence:g} needs {self.level:.2g}. Give more, or a lower confidence."
            )
        return ""

    def _test(self) -> None:
        """Any signal, every entry, and one component after the other."""
        parts, signs, most, before = self.parts, self.signs, self.run.plan.chunk, self.answer.vectors
        scale = parts.scales(signs, self.dependence.enlarged)
        progress = functools.partial(self.run.tell_flips, self.run.n)
        entries = entry_p_values(parts.C, signs, scale, most, progress)
        self.entries = np.fmin.reduce(entries, axis=0) if parts.stacked else entries

        def lengths(stack: Array) -> Array:
            """The statistic: the length of the best rank-one fit, by one procedure for all."""
            return fits(stack)[1]

        values, adjusted = resampled(self._versions(), lengths, signs, scale, most, progress)
        self.p, self.tests = float(adjusted.min()), [Test(float(adjusted[0]), values[0])]
        C = parts.C
        if (whitening := self.answer.whitening) is not None:
            C, before = whitening(C), [whitening.of_vectors(own) for own in before]
        self.agreements = half_agreements(len(C), lambda some: _of_units(C[self.order[some]], len(before)), before)
        for vectors, size in zip(before[:-1], self.answer.sizes[1:], strict=True):
            if not size > 0:  # nothing is left to test
                self.tests.append(Test(1.0, np.zeros(len(signs))))
                continue
            C = by_pieces(functools.partial(beyond, vectors=vectors), C)
            values, (p,) = resampled([C], lengths, signs, scale, most, progress)
            self.tests.append(Test(max(float(p), self.tests[-1].p), values[0]))  # given the earlier ones

    def _versions(self) -> Iterator[Array]:
        """Contributions as they are, whitened, and with loud directions taken down.

        Whitened by samples that were kept, or by the contributions themselves: moments that flips leave alone.
        """
        parts, look, solver = self.parts, self.run.residuals, self.run.solver
        yield parts.C if self.answer.whitening is None else self.answer.whitening(parts.C)
        if self.answer.whitening is not None or solver.whiten is None or parts.C[0].size < 2:
            return
        if look is not None and len(look.samples) > 1:
            rows = np.stack([look.samples[one] for one in sorted(look.samples)]).reshape(-1, *parts.dims)
        else:
            rows = sphere(parts.C.reshape(-1, *parts.dims))
        whitening = learn_whitening(rows, longest_within(solver.budget()))
        self.loud = loud_directions(whitening(rows))
        del rows  # before the flips take their memory
        yield whitening(parts.C)
        if self.loud.factors.size:
            yield self.loud.taken_down(whitening(parts.C))

    def _errors(self) -> list[Errors]:
        """From samples of the second pass; from units where these were given, or samples passed by once."""
        parts, tangents, look, solver = self.parts, self.answer.tangents, self.run.residuals, self.run.solver
        inflation, G = self.dependence.inflation, len(self.parts)
        if look is not None and self.run.design.groups is None and not isinstance(solver.dependence, int):
            factor = parts.n_observed / max(parts.n_observed - parts.rank, 1) * self._within(look.energies[self.number])
            squares, freedom = look.squares[self.number] * factor, (parts.n - parts.rank) / inflation
        else:
            E = parts.left_over()[0].reshape(parts.C.shape)
            E /= parts.S
            changes = tangents.changes([slopes(E, v) for v in self.answer.vectors])
            squares, freedom = np.einsum("gci,gci->ci", changes, changes) * (G / max(G - 1, 1)), G - 1
        return errors_of(tangents, squares * inflation, freedom, solver.confidence)

    def _within(self, energy: float) -> float:
        """By how much the variance of a bin exceeds that of as many independent samples, whose ``energy`` is known."""
        parts = self.parts
        if self.run.solver.dependence != "auto" or len(parts) < 8 or energy <= 0:
            return 1.0
        E, _, freedom = parts.left_over()
        energies = np.vecdot(E, E)
        samples = energy / (parts.S * max(1 - parts.rank / parts.n_observed, 1e-3))
        ratio = float(energies.sum() / freedom / samples)
        error = float(energies.std(ddof=1)) / float(energies.mean() + 1e-300) / math.sqrt(len(energies))
        if ratio - 1 <= error:
            return 1.0
        self.inflation, self.z = self.inflation * ratio, max(self.z, (ratio - 1) / (error + 1e-300))
        return ratio

    def components(self) -> list[Component]:
        """Always as many as were asked for."""
        observed, found, lead = self.parts.observed, [], int(self.parts.stacked)
        modes = range(observed.ndim)
        seen = [observed.any(axis=tuple(j for j in modes if j != m)) for m in modes]
        each = zip(self.answer.vectors, self.answer.sizes, self.errors, self.tests, self.agreements, strict=True)
        for vectors, size, error, (p, values), agreement in each:
            errors = zip(seen, error.vectors[lead:], strict=True)
            found.append(
                Component(
                    vectors=tuple(vectors[lead:]),
                    strength=error.strength if size > 0 else 0.0,
                    strength_interval=error.interval if size > 0 else (0.0, 0.0),
                    standard_errors=tuple(np.where(known, one, np.inf) for known, one in errors),
                    p_value=p,
                    significant=bool(p <= self.level),
                    length=float(size),
                    statistic=math.nan if values is None else float(values[0]),
                    null=None if values is None else values[1:],
                    half_agreement=float(agreement),
                    effect=self.answer.name,
                    label_amplitudes=self._amplitudes(vectors[0], error.strength) if lead else None,
                )
            )
        return found

    def _amplitudes(self, direction: Array, strength: float) -> dict[str, float]:
        """Amplitude of the pattern with every label; they sum to zero over the samples.

        D̃ = (S/W)^(1/2) D, so that the columns of y have the coefficients (S/W)^(-1/2) u λ.
        """
        design = self.run.design
        assert design.columns is not None
        assert design.origin is not None
        coefficients = np.append(self.parts.K @ direction * strength, 0.0)
        indicators = (design.columns + design.origin)[:, design.n_nuisance :]
        shares = np.average(indicators, axis=0, weights=design.weights)
        centred = coefficients - shares @ coefficients[:-1]
        return {label: float(value) for label, value in zip(design.labels, centred, strict=True)}


def _of_units(C: Array, count: int) -> list[list[Array]]:
    """Components of the contributions of some units, as flips are fitted."""
    left, found = C.sum(axis=0)[None], []
    for _ in range(count):
        vectors, size = fits(left)
        found.append([v[0] for v in vectors])
        left = left - outer(found[-1], float(size[0]))
    return found


# Advice ---------------------------------------------------------------------------------------------------------------


def advice_of(found: Sequence[Conclusion]) -> Iterator[str]:
    """All that there is to say, question by question; of samples and design once."""
    units, groups = len(found[0].parts), len(found[0].run.design.group_names)
    yield from (each.why_not for each in found if each.why_not)
    most = max(found, key=lambda each: each.dependence.testable * each.inflation)
    # an error that comes from so many units is known to 1/√(2(G − 1)) of itself
    large = math.sqrt(most.inflation) > 1 + 1 / math.sqrt(2 * max(units - 1, 1))
    if most.dependence.testable and most.z > CERTAIN and large:
        f = most.inflation  # (1 + r)/(1 − r), of samples whose correlation falls geometrically
        r = max(most.dependence.correlation, (f - 1) / (f + 1))
        yield (
            f"Neighbouring samples are correlated ({r:.2f}): errors are enlarged by {math.sqrt(f):.2f}. If their order "
            "is meaningless, use dependence=None."
        )
    if groups > units:
        yield (
            f"{groups:,} groups were dealt into {units:,} units, which is what the memory allows. For more, raise "
            "memory_limit."
        )
    for each in found:
        of = f"{each.answer.name}: " if len(found) > 1 else ""
        yield from (f"{of}{line}" for line in _of_components(each))
    yield from _of_samples(found[0])
    yield from _of_design(found[0])


def _of_components(found: Conclusion) -> Iterator[str]:
    sizes, vectors = found.answer.sizes, found.answer.vectors
    if found.p <= found.level < found.tests[0].p:
        yield (
            f"There is a signal (p = {found.p:.3g}), but the pattern shown is not itself significant "
            f"(p = {found.tests[0].p:.3g}): it is seen where loud noise is taken down. whiten='modes' shows it."
        )
    for i, j in itertools.combinations(np.flatnonzero(sizes > 0).tolist(), 2):
        if found.tests[i].p > found.level:  # nobody interprets noise
            break
        which = f"Components {i + 1} and {j + 1}"
        if j == i + 1 and sizes[j] > EQUAL * sizes[i]:
            yield (
                f"{which} are nearly equally strong (ratio {sizes[j] / sizes[i]:.2f}): their vectors may be mixtures; "
                "interpret them together."
            )
        if (shared := _shared(vectors[i], vectors[j])) > ALIKE:
            yield (
                f"{which} are nearly alike in all axes but one ({shared:.2f}): how they divide what they share is "
                f"unsure. Interpret them together, or use n_components={j}."
            )
    for number, (test, errors) in enumerate(zip(found.tests, found.errors, strict=True)):
        low, high = errors.interval
        if test.p > found.level and low > 0 and all(one.p <= found.level for one in found.tests[:number]):
            yield (
                f"Component {number + 1} is not significant (p = {test.p:.2g}), yet its interval, {low:.3g} to "
                f"{high:.3g}, excludes 0: intervals take the pattern as real. Read it as an upper limit, {high:.3g}."
            )
        if test.p <= found.level and low == 0:
            yield (
                f"There is a signal (p = {test.p:.3g}), but its strength is not known well: the interval of the "
                "strength begins at 0. Give more samples."
            )
    if not found.why_not and found.errors[0].interval[1] < sizes[0]:
        yield (
            f"A fit flatters its own samples: they score {sizes[0]:.3g}, and the strength is at most "
            f"{found.errors[0].interval[1]:.3g}. Use score on other samples."
        )


def _shared(one: Sequence[Array], other: Sequence[Array]) -> float:
    """How alike two components are: the product of their two largest cosines, or the largest where that is near 1.

    Two that share a mode are a matrix, which can be divided in many ways.
    """
    cosines = sorted(abs(float(v @ u)) for v, u in zip(one, other, strict=True))
    if len(cosines) < 3:
        return 0.0
    return cosines[-1] if cosines[-1] > SHARED else cosines[-1] * cosines[-2]


def _of_samples(found: Conclusion) -> Iterator[str]:
    """What the second pass saw."""
    look, parts, mean = found.run.residuals, found.parts, found.answer.name == ""
    if look is None:
        return
    size = float(np.linalg.norm(parts.D))
    if mean and size <= NO_MEAN * np.sqrt(look.square) / parts.n:
        yield (
            f"The mean of all samples is zero to rounding ({size:.1e}): it seems to have been subtracted. Give the "
            "samples as they were, or use target='variance' or 'effect'."
        )
    if look.kurtosis > HEAVY:
        yield (
            f"Heavy tails: the kurtosis of residuals is {look.kurtosis:.0f} (3 for normal noise). Clipping may help: "
            "preprocess=lambda x: np.clip(x, low, high)."
        )
    if parts.n >= 12 and look.loudest > max(LOUD_SAMPLE, 6 / parts.n) * look.square:
        yield (
            f"One sample has {look.loudest / look.square:.0%} of all noise energy. Look at it; leave it out if it is "
            "damaged."
        )
    if mean and look.skewness > SKEWED and parts.n >= 8:
        yield (
            f"Entries are skewed (median {look.skewness:.1f}), and p-values of single entries assume symmetric noise: "
            "do not rely on entry_p_values_ here."
        )
    if look.copies:
        yield (
            f"{count(look.copies, 'sample is an exact copy', 'samples are exact copies')} of others. If one "
            "measurement is counted twice, p is too small: remove it, or give groups= with one label for all copies."
        )
    factors = np.zeros(0) if found.loud is None else found.loud.factors
    if found.tests[0].p > found.level and (quiet := float(factors.min(initial=1.0))) < LOUD_DIRECTION:
        yield (
            f"{count(len(factors), 'direction is', 'directions are')} up to {1 / quiet:.0f} times as loud as the "
            "others. Artefacts can be taken out with preprocess=."
        )


def _of_design(found: Conclusion) -> Iterator[str]:
    design = found.run.design
    if design.columns is None:
        return
    y = design.columns[:, -1]
    if design.doses:
        yield f"y has {len(np.unique(y))} whole numbers, taken as a dose. For labels, give strings: y.astype(str)."
    if len(y) >= 8 and design.groups is None and found.run.solver.dependence == "auto" and y.std() > 0:
        r = abs(float(np.corrcoef(np.arange(len(y)), y)[0, 1]))
        if r > IN_ORDER:
            yield (
                f"y follows the order of the samples (correlation {r:.2f}): a drift cannot be told from its effect. "
                "Mix the order of measurement."
            )
