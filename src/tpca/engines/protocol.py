"""The oracle: the only way a solver touches data.

"Here are replicas, give me their mean gradients and rewards over the next n samples."  Whether the samples come from
memory, a file, other machines or a law that is simulated, the solver cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpca.tensors import Answer, Query


@dataclass(frozen=True)
class Round:
    """Mean gradients of some queries, all over the same ``n`` samples; fewer than asked at the stream's end."""

    n: int
    answers: tuple[Answer, ...]


class Oracle(Protocol):
    """Access to samples through block gradients."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""

    @property
    def length(self) -> int | None:
        """Samples in one pass, where that is known."""

    @property
    def rereadable(self) -> bool:
        """Whether :meth:`rewind` may be called."""

    def rewind(self) -> None:
        """Start another pass over the same samples."""

    @property
    def identity(self) -> str:
        """Which data these are: a checkpoint is good for these only."""

    def position(self) -> dict[str, Any]:
        """Where the next sample is, as plain values."""

    def seek(self, position: dict[str, Any]) -> None:
        """Go on from a position taken before, also in another process."""

    @property
    def buffer_bytes(self) -> int:
        """Most bytes held so far for samples in flight."""

    @property
    def n_skipped(self) -> int:
        """Samples left out so far because they could not be used."""

    @property
    def constant(self) -> bool:
        """Whether there were several samples, and all of them the same."""

    def mean(self, queries: Sequence[Query], n: int, scale: float = 1.0) -> Round:
        """Mean gradients of all queries over the next ``n`` samples, the same ones for every replica.

        ``scale`` multiplies every sample: replicas kept in half precision need data of about unit size.
        """

    def each(self, query: Query, n: int) -> Round:
        """Gradients of ``n`` steps, every replica with a fresh sample of its own at every step.

        The one answer has gradients ``(steps, R, *block shape)`` of the one block wanted; ``Round.n`` is the number of
        samples taken, ``R`` per step.  Allowed because gradients do not depend on the block that is wanted.
        """
