"""A search strategy: one way to look for the signal in the shared samples.

It proposes vectors; whether they are a signal, only a candidate's trial decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from tpca.solvers.memory import held_bytes
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array

Stored = NDArray[Any]  # float16 or float32


class Part(Protocol):
    """What takes part in a round: a strategy, a candidate, the refinement.  All of its state is in :meth:`arrays`."""

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight; part of the state."""

    def queries(self) -> tuple[Query, ...]:
        """What to ask about the next samples; fixed before they are seen."""

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the mean gradients over the ``n`` samples just seen."""

    def arrays(self) -> list[Array]:
        """Every array of the state."""


class Look(Protocol):
    """What a strategy says between two rounds; it lasts until the next samples come."""

    def propose(self) -> tuple[Array, ...]:
        """The best unit vectors so far, in mode order, signed so that their reward is expected to be positive."""

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """What the samples say of each mode when the others are ``vectors``: sums s_i v_i + N(0, w σ²), and w."""


class Strategy(Part, Protocol):
    """One search strategy; ``size`` are its columns or replicas."""

    name: str
    size: int

    def restart(self) -> None:
        """The next samples were seen before: keep the directions, forget the sums."""

    def read(self) -> Look:
        """A look at what the samples so far say."""


def round_bytes(
    asked: Sequence[tuple[Part, tuple[Query, ...]]], answers: Sequence[Answer], sent: Sequence[Query] = ()
) -> int:
    """State in the middle of a round: arrays of all parts, replicas made for queries, answers, working copies.

    Parts absorb one after the other, so that only the largest working copy counts.  ``sent`` are the queries as they
    were asked, where these are others.
    """
    held = [array for part, _ in asked for array in part.arrays()]
    made = [block for _, queries in asked for query in queries for block in query.replicas]
    made += [block for query in sent for block in query.replicas]
    in_flight = sum(answer.nbytes for answer in answers) + max(part.working_bytes for part, _ in asked)
    return held_bytes([*held, *made]) + in_flight
