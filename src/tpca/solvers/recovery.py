"""What a solver returns, and why it stopped."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpca.blocks import Array
from tpca.checkpoint import kept


@kept
class StopReason(enum.Enum):
    """Why a run ended; the value is a sentence with advice."""

    SCHEDULE_DONE = "The schedule ran to its end."
    ACCURATE = "A signal was found and its vectors are as accurate as asked for."
    STREAM_ENDED = "The stream ended after a signal was found; all of it was used."
    MAX_SAMPLES = "max_samples was reached after a signal was found; all of it was used."
    NOT_ACCURATE = (
        "A signal was found, but the samples ended before its vectors were accurate; "
        "see standard_errors, and give more samples."
    )
    STREAM_ENDED_EARLY = (
        "The stream ended before the schedule did; the vectors are what was reached and may be far off: "
        "give more samples, or use RaceSolver, which needs far fewer."
    )
    NO_SIGNAL = (
        "No signal was found in these samples; strength_interval bounds what may be hidden. "
        "Give more samples or more memory."
    )
    ITERATED = "The method ran to its end; it has no test of whether there is a signal."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Recovery:
    """Vectors in the user's mode order, each of unit length and known up to sign, and how they were come by.

    ``n_samples`` counts every sample consumed (N), ``n_passes`` the passes (K), ``state_bytes`` the most that the
    solver held in its own arrays (S), ``buffer_bytes`` the most that the oracle held for samples in flight.

    ``standard_errors`` has one for every component of every vector; ``strength_interval`` is a confidence interval at
    the solver's ``confidence``.  With ``NO_SIGNAL`` the vectors are a best guess that proves nothing, ``strength`` is
    NaN, there are no standard errors, and ``strength_interval`` runs from 0 to an upper 95 % confidence limit.

    ``n_skipped`` counts samples that were left out (``nan_policy="skip"``); ``further`` holds the components found
    after this one, if more than one was asked for.
    """

    vectors: tuple[Array, ...]
    strength: float
    n_samples: int
    state_bytes: int
    buffer_bytes: int
    stop_reason: StopReason
    n_passes: int = 1
    standard_errors: tuple[Array, ...] | None = None
    strength_interval: tuple[float, float] | None = None
    n_skipped: int = 0
    further: tuple[Recovery, ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def found(self) -> bool:
        """Whether there is an answer at all."""
        return self.stop_reason is not StopReason.NO_SIGNAL


def positive(vectors: Sequence[Array], strength: float) -> tuple[tuple[Array, ...], float]:
    """The same signal with a strength that is not negative, and :func:`oriented`; a strength of NaN decides nothing."""
    *others, last = vectors
    return oriented([*others, -last if strength < 0 else last]), abs(strength)


def oriented(vectors: Sequence[Array]) -> tuple[Array, ...]:
    """The same signal with signs made definite: the largest entry of every vector positive, but for the last.

    The last takes the sign that is left, so that the product of all signs, and with it the strength, stays.
    """
    signs = [1.0 if v[np.argmax(np.abs(v))] >= 0 else -1.0 for v in vectors]
    signs[-1] = float(np.prod(signs[:-1]))
    return tuple(s * v for s, v in zip(signs, vectors, strict=True))
