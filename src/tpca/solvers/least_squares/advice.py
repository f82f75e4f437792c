"""Advice of a least-squares fit: one line each, with a number and one action.  It changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tpca.solvers.least_squares.components import OPPOSED, cosine
from tpca.tensors.blocks import Array
from tpca.wording import count

if TYPE_CHECKING:
    from tpca.solvers.least_squares.conclusion import Conclusion

INFLATED = 1.05  # variance inflation
HEAVY = 9.0  # kurtosis of residuals
SKEWED = 0.5  # median skewness of entries
LOUD_SAMPLE = 0.25  # share of all energy in one sample
LOUD_DIRECTION = 0.35  # factor that brings it to the level of the others
UNLIKE = 0.8  # ratio of the lengths of two components
ALIKE, SHARED = 0.6, 0.98  # cosines of two components that are hard to tell apart
ROUNDING = 1e-10  # a mean, in standard errors
IN_ORDER = 0.8  # correlation of y with the order of the samples


def advice_of(found: Conclusion) -> list[str]:
    """All that there is to say of one question; of samples and design with the first question only."""
    each = [_of_test(found), _of_components(found)]
    if found.number == 0:
        each += [_of_samples(found), _of_design(found)]
    return [*([found.why_not] if found.why_not else []), *itertools.chain(*each)]


def _of_test(found: Conclusion) -> Iterator[str]:
    dependence, groups, units = found.dependence, len(found.run.design.group_names), len(found.parts)
    if dependence.inflation > INFLATED and dependence.testable:
        yield (
            f"Neighbouring samples are correlated ({dependence.likeness:.2f}): errors and flips are enlarged by "
            f"{dependence.enlarged:.2f}. If their order is meaningless, use dependence=None."
        )
    if groups > units:
        yield (
            f"{groups:,} groups were dealt into {units:,} units, which is what the memory allows. For more, raise "
            "memory_limit."
        )
    if found.p <= found.level < found.tests[0].p:
        yield (
            f"There is a signal (p = {found.p:.3g}), but the pattern shown is not itself significant "
            f"(p = {found.tests[0].p:.3g}): it is seen where loud noise is taken down. whiten='modes' shows it."
        )


def _of_components(found: Conclusion) -> Iterator[str]:
    sizes, vectors = found.answer.sizes, found.answer.vectors
    for i, j in itertools.combinations(np.flatnonzero(sizes > 0).tolist(), 2):
        which = f"Components {i + 1} and {j + 1}"
        if (inner := cosine(vectors[i], vectors[j])) < OPPOSED:
            yield f"{which} nearly cancel (cosine {inner:.2f}): use n_components={j}."
        elif j == i + 1 and sizes[j] > UNLIKE * sizes[i]:
            yield (
                f"{which} are nearly equally strong (ratio {sizes[j] / sizes[i]:.2f}): their vectors may be mixtures; "
                "interpret them together."
            )
        if (shared := _shared(vectors[i], vectors[j])) > ALIKE:
            yield (
                f"{which} are nearly alike in all axes but one ({shared:.2f}): how they divide what they share is "
                f"unsure. Interpret them together, or use n_components={j}."
            )
    for test, errors in zip(found.tests, found.errors, strict=True):
        if test.p <= found.level and errors.interval[0] == 0:
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
    if look is None or look.shape is None:
        return
    shape, size = look.shape, float(np.linalg.norm(parts.D))
    if mean and size <= ROUNDING * np.sqrt(shape.square) / parts.n:
        yield (
            f"The mean of all samples is zero to rounding ({size:.1e}): it seems to have been subtracted. Give the "
            "samples as they were, or use target='variance' or 'effect'."
        )
    if shape.kurtosis > HEAVY:
        yield (
            f"Heavy tails: the kurtosis of residuals is {shape.kurtosis:.0f} (3 for normal noise). Clipping may help: "
            "preprocess=lambda x: np.clip(x, low, high)."
        )
    if parts.n >= 12 and shape.loudest > max(LOUD_SAMPLE, 6 / parts.n) * shape.square:
        yield (
            f"One sample has {shape.loudest / shape.square:.0%} of all noise energy. Look at it; leave it out if it is "
            "damaged."
        )
    if mean and shape.skewness > SKEWED and parts.n >= 8:
        yield (
            f"Entries are skewed (median {shape.skewness:.1f}), and p-values of single entries assume symmetric noise: "
            "do not rely on entry_p_values_ here."
        )
    if look.copies:
        yield (
            f"{count(look.copies, 'sample is an exact copy', 'samples are exact copies')} of others. If one "
            "measurement is counted twice, p is too small: remove it, or give groups= with one label for all copies."
        )
    if found.loud is not None and len(found.loud) and (quiet := float(found.loud.factors.min())) < LOUD_DIRECTION:
        yield (
            f"{count(len(found.loud), 'direction is', 'directions are')} up to {1 / quiet:.0f} times as loud as the "
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
