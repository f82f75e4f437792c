"""Advice on a fit of least squares: one line each, with a number and one action; it changes nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tpca.inference.design import Design
from tpca.solvers.components import told_apart
from tpca.tensors.blocks import Array
from tpca.wording import count, shape

if TYPE_CHECKING:
    from tpca.solvers.least_squares.conclusion import Conclusion, Reading
    from tpca.solvers.least_squares.question import Answer
    from tpca.solvers.least_squares.samples import SampleLook

CERTAIN = 2.33
"""z of the correlation of neighbours: 1 % of independent samples have as much."""
HEAVY = 9.0
"""Kurtosis of residuals."""
SKEWED = 0.5
"""Median skewness of entries."""
LOUD_SAMPLE = 0.25
"""Share of all energy in one sample."""
LOUD_DIRECTION = 0.35
"""Factor that brings a direction to the level of the others."""
NO_MEAN = 1e-10
"""Standard errors."""
ALIKE = 0.6
SHARED = 0.98
"""Cosines of two components that are hard to tell apart."""
UNSTEADY = 0.7
"""Agreement of halves below which a component is not one to interpret alone."""
IN_ORDER = 0.8
"""Correlation of y with the order of the samples."""


def advice_of(conclusions: Sequence[Conclusion], reading: Reading, look: SampleLook) -> Iterator[str]:
    """All that there is to say, question by question; on samples and design once."""
    for conclusion in conclusions:
        if conclusion.flips.why_not:
            yield conclusion.flips.why_not
    yield from on_correlation(conclusions)
    unit_count = conclusions[0].n_units
    group_count = len(reading.design.group_names)
    if group_count > unit_count:
        yield (
            f"{group_count:,} groups were dealt into {unit_count:,} units, which is what the memory allows. For more, "
            "raise memory_limit."
        )
    level = 1 - reading.solver.confidence
    for conclusion in conclusions:
        question = f"{conclusion.answer.name}: " if len(conclusions) > 1 else ""
        for line in on_components(conclusion, reading.solver.n_components, level):
            yield f"{question}{line}"
        for line in on_strengths(conclusion, level):
            yield f"{question}{line}"
    yield from on_samples(conclusions[0], look, reading.sums.n, level)
    yield from on_design(reading.design, reading.solver.dependence)


def on_correlation(conclusions: Sequence[Conclusion]) -> Iterator[str]:
    """Correlated neighbours, where that is certain and moves errors by more than they are known to."""
    tested = [conclusion for conclusion in conclusions if conclusion.flips.dependence.testable]
    if not tested:
        return
    most = max(tested, key=lambda conclusion: conclusion.inflation)
    unit_count = most.n_units
    known_to = 1 + 1 / math.sqrt(2 * max(unit_count - 1, 1))  # an error that comes from so many units
    if most.z > CERTAIN and math.sqrt(most.inflation) > known_to:
        # f = (1 + r)/(1 - r) of samples whose correlation falls geometrically
        f = most.inflation
        r = max(most.flips.dependence.correlation, (f - 1) / (f + 1))
        yield (
            f"Neighbouring samples are correlated ({r:.2f}): errors are enlarged by {math.sqrt(f):.2f}. If their order "
            "is meaningless, use dependence=None."
        )


def on_components(conclusion: Conclusion, wanted: int | str, level: float) -> Iterator[str]:
    """How far components can be told apart."""
    answer = conclusion.answer
    fitted = int(np.count_nonzero(answer.sizes))
    long_axes = [length for length in answer.regression.shape if length > 1]
    if isinstance(wanted, int) and 0 < fitted < wanted:
        yield (
            f"{count(fitted, 'component is', 'components are')} all that there is to fit, and {wanted} were asked for: "
            f"the others are zeros. Use n_components={fitted}."
        )
    if fitted > 1 and len(long_axes) == 2:
        yield (
            "Components of two axes are singular vectors: only what they span together is determined. Interpret them "
            "together, or give samples with a third axis."
        )
    if len(long_axes) > 2 and fitted > 1:
        ridge = answer.joint_fits[-1].ridge
        if not told_apart(long_axes, fitted):
            yield (
                f"{fitted} components of {shape(long_axes)} entries cannot be told apart: others have the same sum, "
                f"and errors do not show it. Interpret them together, or use n_components={most_sound(answer)}."
            )
        if ridge > 0:
            yield (
                f"Components of a fit of {fitted} cancel each other ever more, so that there is no best one: they were "
                f"fitted with a ridge of {ridge:g}. Use n_components={most_sound(answer)}."
            )
    yield from on_pairs(conclusion, level)
    yield from on_halves(conclusion, level)


def on_pairs(conclusion: Conclusion, level: float) -> Iterator[str]:
    """Proven components that are hard to tell from each other."""
    components = conclusion.answer.vectors
    proven = [number for number, test in enumerate(conclusion.tests) if test.p <= level]
    pairs = []
    largest = 0.0
    for first, second in itertools.combinations(proven, 2):
        shared = shared_axes(components[first], components[second])
        if shared > ALIKE:
            pairs.append(f"{first + 1} and {second + 1}")
            largest = max(largest, shared)
    if pairs:
        most = " at most" if len(pairs) > 1 else ""
        yield (
            f"Components {', '.join(pairs)} are nearly alike in all axes but one ({largest:.2f}{most}): how they "
            "divide what they share is unsure. Interpret them together, or fit fewer components."
        )


def most_sound(answer: Answer) -> int:
    """The largest number of components that can be told apart, and whose fit needs no ridge."""
    long_axes = [length for length in answer.regression.shape if length > 1]
    without_ridge = [fit.rank for fit in answer.joint_fits if not fit.ridge]
    return next(rank for rank in reversed(without_ridge) if told_apart(long_axes, rank))


def on_halves(conclusion: Conclusion, level: float) -> Iterator[str]:
    """Proven components that halves of the samples do not agree on."""
    unsteady = []
    for number, (test, agreement) in enumerate(zip(conclusion.tests, conclusion.agreements, strict=True), 1):
        if test.p <= level and agreement < UNSTEADY:
            unsteady.append(f"{number} ({max(agreement, 0.0):.2f})")
    if unsteady:
        yield (
            f"Halves of the samples do not agree on the pattern of component {' and '.join(unsteady)}, 1 being full "
            "agreement: what is proven is that there are so many. Give more samples, or fit fewer components."
        )


def shared_axes(vectors: Sequence[Array], others: Sequence[Array]) -> float:
    """How alike two components are: the product of their two largest cosines, or the largest where that is near 1.

    Two that share a mode are a matrix, which can be divided in many ways.
    """
    sizes = sorted(abs(float(v @ u)) for v, u in zip(vectors, others, strict=True) if len(v) > 1)
    if len(sizes) < 3:
        return 0.0
    if sizes[-1] > SHARED:
        return sizes[-1]
    return sizes[-1] * sizes[-2]


def on_strengths(conclusion: Conclusion, level: float) -> Iterator[str]:
    """Where a p-value, an interval and the score of the samples themselves seem to differ."""
    sizes = conclusion.answer.sizes
    first_p = conclusion.tests[0].p
    if conclusion.p <= level < first_p:
        yield (
            f"There is a signal (p = {conclusion.p:.3g}), but the pattern shown is not itself significant "
            f"(p = {first_p:.3g}): it is seen where loud noise is taken down. whiten='modes' shows it."
        )
    earlier_proven = True
    for number, (test, errors) in enumerate(zip(conclusion.tests, conclusion.errors, strict=True), 1):
        low, high = errors.interval
        if test.p > level and low > 0 and earlier_proven:
            yield (
                f"Component {number} is not significant (p = {test.p:.2g}), yet its interval, {low:.3g} to "
                f"{high:.3g}, excludes 0: intervals take the pattern as real. Read it as an upper limit, {high:.3g}."
            )
        if test.p <= level and low == 0:
            what = "There is a signal"
            whose = "its strength"
            if number > 1:
                what = f"There are at least {number} components"
                whose = f"the strength of component {number}"
            yield (
                f"{what} (p = {test.p:.3g}), but {whose} is not known well: its interval begins at 0. Give more "
                "samples."
            )
        earlier_proven = earlier_proven and test.p <= level
    largest = conclusion.errors[0].interval[1]
    if not conclusion.flips.why_not and largest < sizes[0]:
        yield (
            f"A fit flatters its own samples: they score {sizes[0]:.3g}, and the strength is at most {largest:.3g}. "
            "Use score on other samples."
        )


def on_samples(conclusion: Conclusion, look: SampleLook, n: int, level: float) -> Iterator[str]:
    """What samples show of the noise."""
    is_mean = conclusion.answer.name == ""
    size = float(np.linalg.norm(conclusion.regression.estimate))
    if is_mean and size <= NO_MEAN * math.sqrt(look.noise_energy) / n:
        yield (
            f"The mean of all samples is zero to rounding ({size:.1e}): it seems to have been subtracted. Give the "
            "samples as they were, or use target='variance' or 'effect'."
        )
    if look.kurtosis > HEAVY:
        yield (
            f"Heavy tails: the kurtosis of residuals is {look.kurtosis:.0f} (3 for normal noise). Clipping may help: "
            "preprocess=lambda x: np.clip(x, low, high)."
        )
    if n >= 12 and look.loudest > max(LOUD_SAMPLE, 6 / n):
        yield f"One sample has {look.loudest:.0%} of all noise energy. Look at it; leave it out if it is damaged."
    if is_mean and look.skewness > SKEWED and n >= 8:
        yield (
            f"Entries are skewed (median {look.skewness:.1f}), and p-values of single entries assume symmetric noise: "
            "do not rely on entry_p_values_ here."
        )
    if look.copies:
        yield (
            f"{count(look.copies, 'sample is an exact copy', 'samples are exact copies')} of others. If one "
            "measurement is counted twice, p is too small: remove it, or give groups= with one label for all copies."
        )
    if conclusion.loud is None or not conclusion.tests[0].p > level:
        return
    factors = conclusion.loud.factors
    quietest = float(factors.min(initial=1.0))
    if quietest < LOUD_DIRECTION:
        yield (
            f"{count(len(factors), 'direction is', 'directions are')} up to {1 / quietest:.0f} times as loud as the "
            "others. Artefacts can be taken out with preprocess=."
        )


def on_design(design: Design, dependence: str | int | None) -> Iterator[str]:
    """What y is, and whether it follows the order of the samples."""
    if design.columns is None:
        return
    y = design.columns[:, -1]
    if design.doses:
        yield f"y has {len(np.unique(y))} whole numbers, taken as a dose. For labels, give strings: y.astype(str)."
    if len(y) >= 8 and design.groups is None and dependence == "auto" and y.std() > 0:
        correlation = abs(float(np.corrcoef(np.arange(len(y)), y)[0, 1]))
        if correlation > IN_ORDER:
            yield (
                f"y follows the order of the samples (correlation {correlation:.2f}): a drift cannot be told from its "
                "effect. Mix the order of measurement."
            )
