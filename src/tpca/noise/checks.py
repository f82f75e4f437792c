"""Is the noise as assumed?  Checks from what a fit keeps anyway, without another pass, for the verdict to rest on.

What a test of the solvers assumes is little: that samples, or blocks of them, are independent, and that their noise is
symmetric and without a mean.  Covariance, tails and levels that drift cost power at most; a fit sees to them where it
can, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tpca.checkpoint import kept
from tpca.noise.model import NoiseModel
from tpca.noise.tails import Clip, lopsided

HEAVY = 6.0  # kurtosis of entries (3: Gaussian) from which tails are worth a word
LOUD = 2.0  # noise along the signal over that elsewhere
SLOW = 3.5  # standard errors: 1 run of 4000 in white noise
MIN_BLOCKS = 10  # blocks of dependent samples below which little can be said

State = Literal["good", "handled", "bad", "open"]


@kept
@dataclass(frozen=True)
class Check:
    """One assumption: ``state`` is good, handled (seen, and dealt with), bad (a doubt) or open (not checked)."""

    name: str
    state: State
    measured: str
    meaning: str


CENTRED = Check(
    "a mean to look for",
    "bad",
    "the mean of all samples is zero to rounding",
    "your data are centred, and the mean is what is looked for: give them without subtracting it",
)


def noise_checks(
    model: NoiseModel | None,
    samples: int,
    along: float | None,
    clip: Clip | None,
    beyond: Sequence[int],
    groups: int | None = None,
) -> tuple[Check, ...]:
    """All checks of a fit of ``samples`` samples, which come in ``groups`` of so many where that was said.

    ``along`` is the noise along the signal over that elsewhere, ``None`` without a signal; ``beyond`` how many entries
    were clipped above and below.
    """
    if model is None:
        return (Check("noise", "open", "—", "Not checked: the noise was not looked at."),)
    checks = [independence(model, samples, groups), whiteness(model), tails(model, clip, beyond)]
    return (*checks, *([] if along is None else [level(along)]))


def independence(model: NoiseModel, samples: int, groups: int | None) -> Check:
    """Whether neighbouring samples are alike, unless it was said which belong together."""
    name, time = "independent samples", model.correlation_time
    if groups is not None:
        told = f"{samples // groups:,} groups of {groups}"
        return Check(
            name, "handled" if groups > 1 else "good", told, "Groups of samples count as one each, as was said."
        )
    measured = f"correlation time {time:.3g} sample{'' if f'{time:.3g}' == '1' else 's'}"
    if not math.isfinite(model.dependence.error):
        return Check(name, "open", "—", "Not checked: there are too few samples.")
    if not model.dependence.present:
        return Check(name, "good", measured, "Neighbouring samples are independent, as far as can be seen.")
    if samples < MIN_BLOCKS * model.block:
        return Check(
            name,
            "bad",
            f"{measured}, {samples:,} samples",
            f"neighbouring samples are alike over about {time:.2g} of them: there are about {samples / time:.2g} "
            f"independent ones where the test counts {samples:,} (sums of samples, where these were put together)",
        )
    return Check(
        name,
        "handled",
        measured,
        f"Neighbouring samples are alike: every {model.block} in a row count as one.",
    )


def whiteness(model: NoiseModel) -> Check:
    """Whether entries have one variance and are not correlated."""
    worst = max(model.whiteness, default=math.nan)
    measured = f"distance from white {worst:.2g}"
    if math.isnan(worst):
        return Check(
            "white noise", "open", "—", "Not checked: there are too few samples, or there is too little memory."
        )
    if model.whitening is not None and model.directions:
        return Check(
            "white noise",
            "handled",
            f"{measured}, {model.loudness:.2g} times as loud in some direction",
            "A few directions of the noise are far louder than the rest: whitening mode by mode repairs that in part.",
        )
    if model.whitening is not None:
        return Check("white noise", "handled", measured, "The noise is not white: it was whitened, mode by mode.")
    if model.white:
        return Check("white noise", "good", measured, "Entries have about one variance, and are not correlated.")
    return Check(
        "white noise",
        "handled",
        measured,
        "The noise is not white and was left as it is, as was asked for, or as there are too few samples to whiten by; "
        "the test holds, but weak signals may be missed.",
    )


def tails(model: NoiseModel, clip: Clip | None, beyond: Sequence[int]) -> Check:
    """Whether entries have heavy tails, and whether those that were clipped were as many on both sides."""
    name, measured = "tails of entries", f"kurtosis {model.kurtosis:.3g} (Gaussian 3)"
    if clip is not None and lopsided(beyond):
        above, below = beyond
        return Check(
            name,
            "bad",
            f"{above:,} entries clipped above, {below:,} below",
            "the noise is skewed, and clipping makes a mean of it; compare with clip=None",
        )
    if clip is not None:
        return Check(name, "handled", measured, f"Heavy tails: {1 - clip.share:.0%} of the entries were clipped.")
    if math.isnan(model.kurtosis):
        return Check(name, "open", "—", "Not checked: there are too few samples, or there is too little memory.")
    if model.kurtosis > HEAVY:
        return Check(
            name,
            "handled",
            measured,
            "Tails are heavy, and nothing was clipped; the test holds, but weak signals may be missed.",
        )
    return Check(name, "good", measured, "Tails are not heavy.")


def level(along: float) -> Check:
    """Whether the noise is about as strong along the signal as elsewhere."""
    measured = f"{along:.3g} times that elsewhere"
    if along > LOUD:
        return Check(
            "noise along the signal",
            "bad",
            measured,
            f"the noise is {along:.2g} times as strong along the signal as elsewhere: it may be what was found",
        )
    return Check(
        "noise along the signal", "good", measured, "The noise is no stronger along the signal than elsewhere."
    )


def too_alike(groups: int, worth: float) -> Check:
    """Samples that are alike for about as long as there are any: ``groups`` of them are ``worth`` so many."""
    return Check(
        "enough independent samples",
        "bad",
        f"{groups} groups of samples are worth {worth:.2g} independent ones",
        "samples are alike for about as long as all of them last, so that a slow change cannot be told from a mean: "
        "nothing can be proven; give samples over a longer time or, if their order means nothing, in random order",
    )


def too_few(count: int, needed: int, unit: str, confidence: float) -> Check:
    """Fewer samples, or blocks of them, as ``unit`` says, than any claim takes."""
    return Check(
        "enough samples",
        "bad",
        f"{count:,} of {needed:,} {unit}",
        f"fewer than {needed:,} {unit} can prove nothing at confidence {confidence:g}, whatever is in them; give more",
    )


def steadiness(excess: float) -> Check:
    """Whether neighbouring samples are alike along the signal, by so many standard errors of an autocorrelation."""
    measured = f"autocorrelation {excess:.2g} standard errors above independence"
    if excess > SLOW:
        return Check(
            "steady signal",
            "bad",
            measured,
            "what is along the signal changes slowly from sample to sample: noise that turns round slowly, or a signal "
            "that comes and goes, looks like this",
        )
    return Check("steady signal", "good", measured, "Along the signal, neighbouring samples are not alike.")


def doubts(checks: Sequence[Check]) -> list[str]:
    """What a verdict must say beside itself."""
    return [check.meaning for check in checks if check.state == "bad"]
