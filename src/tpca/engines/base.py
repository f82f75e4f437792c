"""The engine: the one door to data.

"Here is an accumulator, add the next n samples to it."  Whether they come from memory, a file, other machines or a law
that is simulated, the solver cannot tell; what is kept of them, the engine does not know.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from tpca.labels import Labels
from tpca.tensors import Accumulator

A = TypeVar("A", bound=Accumulator)


class Data(Protocol):
    """What a solver must know of the samples before it sees any."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def length(self) -> int | None:
        """Samples in one pass, where that is known."""

    @property
    def endless(self) -> bool:
        """Whether the samples never end."""

    @property
    def rereadable(self) -> bool:
        """Whether there can be a second pass."""

    @property
    def whole(self) -> bool:
        """Whether samples come as arrays that are held in full: neither sparse, nor products of views, nor in slabs."""

    @property
    def partial(self) -> bool:
        """Whether entries of samples may be missing, those that are there being used."""
        return False

    @property
    def labels(self) -> Labels | None:
        """Names of the modes and of their entries, where the data have them."""
        return None


class Engine(Data, Protocol):
    """Reads samples into accumulators."""

    @property
    def like(self) -> Any:
        """Of samples on a device: an array there; ``None`` of those of the host."""

    def reduce(self, blank: A, n: int | None = None) -> A:
        """The next ``n`` samples (``None``: all to the end of the pass) in an accumulator like ``blank``, finished.

        Fewer than asked for, or none, at the end of the samples.
        """

    @property
    def stops_within(self) -> float | None:
        """Seconds that a call of ``reduce`` may still take when the user asks to stop; ``None``: until its end."""
        return None

    def rewind(self) -> None:
        """Start another pass over the same samples."""

    @property
    def identity(self) -> str:
        """Which data these are: a checkpoint is good for these only."""

    def keep(self) -> None:
        """Note what is read from here on, so that who goes on from a position can compare it."""

    def check_unchanged(self) -> None:
        """Refuse data that were written to while they were read."""

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
