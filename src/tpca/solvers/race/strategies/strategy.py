"""A search strategy: one way to look for the signal in the shared samples.

It proposes vectors; whether they are a signal, only a candidate's trial decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.solvers.memory import held_bytes
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array

Stored = NDArray[Any]  # float16 or float32
FADING = 0.9  # of the sum of rewards that says which replica is read
PIECE = 2**10  # entries of a working copy


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

    def read(self) -> Look | None:
        """A look at what the samples so far say; ``None`` where they were nothing but zeros."""


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


def all_finite(answers: Iterable[Answer]) -> bool:
    """Whether no gradient left the range of its type: samples so wild that one does are passed over."""
    return all(np.isfinite(g).all() for answer in answers for g in answer.gradients.values())


@kept
class NoiseLevel:
    """sigma² as the mean over rounds of B ‖G‖² / D: the signal's share of a gradient's energy is negligible."""

    def __init__(self) -> None:
        self._energy = 0.0
        self._rounds = 0

    def absorb(self, answer: Answer, n: int, gain: float = 1.0) -> None:
        """Take the energy of all gradients of one answer over ``n`` samples; they come ``gain`` times too large."""
        entries = sum(g.size for g in answer.gradients.values())
        energy = sum(_squares(g) for g in answer.gradients.values())
        self._energy += n * energy / (entries * gain**2)
        self._rounds += 1

    @property
    def sigma(self) -> float:
        """The estimate so far; 1 before the first round or when the data are all zero."""
        return math.sqrt(self._energy / self._rounds) if self._energy > 0 else 1.0


def _squares(gradients: Array) -> float:
    """Sum of squares in double precision, a few thousand entries widened at a time."""
    flat = gradients.reshape(-1)
    pieces = (flat[first : first + PIECE].astype(np.float64) for first in range(0, flat.size, PIECE))
    return sum(float(piece @ piece) for piece in pieces)
