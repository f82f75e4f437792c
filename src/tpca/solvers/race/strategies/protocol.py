"""A search strategy: one way to look for the signal in the shared samples.

It proposes vectors; whether they are a signal, only a candidate's trial decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array


@dataclass(frozen=True)
class Proposal:
    """Unit vectors in mode order, signed so that their reward is expected to be positive, and a score.

    The score is an estimate of signal over noise (a z-value under pure noise only up to selection); it ranks the
    proposals of one strategy and proves nothing.
    """

    vectors: tuple[Array, ...]
    score: float


@dataclass(frozen=True)
class Evidence:
    """What a strategy knows of each mode, given the other vectors: ``sums[i] = signal * v_i + N(0, weight * σ²)``."""

    sums: tuple[Array, ...]
    weight: float


class Part(Protocol):
    """What takes part in a round: a strategy, a candidate, the refinement.  All of its state is in :meth:`arrays`."""

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight; part of the state."""

    def queries(self) -> tuple[Query, ...]:
        """What to ask about the next samples; fixed before they are seen."""

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the mean gradients over the ``n`` samples just seen."""

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name."""


class Look(Protocol):
    """What a strategy says between two rounds; it lasts until the next samples come."""

    def propose(self) -> Proposal:
        """The best proposal so far."""

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """What the samples so far say about each mode when the others are ``vectors``."""


class Strategy(Part, Protocol):
    """One search strategy."""

    name: str

    def restart(self) -> None:
        """The next samples were seen before: keep the directions, forget the sums."""

    def read(self) -> Look:
        """A look at what the samples so far say."""
