"""Checks of what the race assumes of the noise, from what it keeps anyway: the verdict names those that fail.

Bets assume that samples, or blocks of them, are independent, and that their noise is symmetric and without a mean.
Covariance, tails and levels that drift cost power at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tpca.checkpoint import kept

LOUD = 2.0  # noise along the signal over that elsewhere
SLOW = 3.5  # standard errors: 1 run of 4000 in white noise

State = Literal["good", "handled", "bad", "open"]


@kept
@dataclass(frozen=True)
class Check:
    """One assumption: ``state`` is good, handled (seen, and dealt with), bad (a doubt) or open (not checked)."""

    name: str
    state: State
    measured: str
    meaning: str


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


def vanished() -> Check:
    """What was claimed has not gone on."""
    return Check(
        "lasting signal",
        "bad",
        "less than half of the reward after the claim",
        "what was found in the first samples is not in those after them: a signal that changes looks like this",
    )
