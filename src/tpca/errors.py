"""Every error that tpca raises on purpose.

Each message names the value at fault, what was expected, and the way out.  All of them derive from
:class:`TpcaError`, so ``except tpca.TpcaError`` catches what the library refuses and nothing else.
"""

from __future__ import annotations

import operator
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

JSON_BYTES = 2**28  # of a JSON file, at most
_LONGEST = 300  # letters of another library's message that are passed on


class TpcaError(Exception):
    """Root of all errors raised by tpca."""


class ModelError(TpcaError, ValueError):
    """The description of a spiked tensor is not one (strength, vectors, dims, correlation, noise law)."""


class PartitionError(TpcaError, ValueError):
    """The grouping of axes into blocks is not a partition of the axes."""


class SampleError(TpcaError, ValueError):
    """A sample or batch does not fit the stream: shape, dtype, NaN or Inf."""


class BatchError(TpcaError, RuntimeError):
    """An exception stopped ``partial_fit`` in the middle of a batch: what was added up is good for nothing."""


class StreamError(TpcaError, ValueError):
    """A source cannot be read as a stream of samples."""


class StreamWarning(UserWarning):
    """Data can be read, but hardly as they were meant."""


class ScheduleError(TpcaError, ValueError):
    """A schedule cannot be built: an order outside the theorem, or a missing or impossible number."""


class SolverError(TpcaError, ValueError):
    """An option that a solver cannot work with, or that means nothing where it was given."""


class MemoryBudgetError(SolverError):
    """The memory given is below the least that the solver needs."""


class DeviceMemoryError(TpcaError, MemoryError):
    """The device on which samples lie has no more memory for what is done with them there."""


class CheckpointError(TpcaError, ValueError):
    """A checkpoint cannot be written, read, or does not belong to this run."""


class ClusterError(TpcaError, RuntimeError):
    """A cluster is lost, has no workers, or one of its workers failed."""


class OutputError(TpcaError, OSError):
    """A result cannot be written."""


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by the user when nothing was half done: its checkpoint is written, or its batch added whole.

    ``signal`` is the number of the signal that asked for it, SIGINT or SIGTERM.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


def check_regular(path: str | os.PathLike[str], most: int | None = None) -> None:
    """Refuse pipes, sockets and devices, which have no length and may never end; files of more than ``most`` bytes."""
    found, name = os.stat(path), repr(os.fsdecode(path))
    if not stat.S_ISREG(found.st_mode):
        raise StreamError(f"{name} is not a regular file but a folder, pipe, socket or device; bring the file back.")
    if most is not None and found.st_size > most:
        raise StreamError(f"{name} has {found.st_size:,} bytes, too many for what it should be; bring the file back.")


@contextmanager
def reading(
    failure: str, way_out: str, kind: type[TpcaError] = StreamError, passing: type[TpcaError] = TpcaError
) -> Iterator[None]:
    """The one door for what reads files: whatever a library raises over damaged ones leaves as one line of ours.

    The line is ``failure: cause; way_out.``  Our own errors (those that are ``passing``) and interrupts pass as they
    are.  Nothing of a user's own code, such as a generator, may run inside.
    """
    try:
        yield
    except passing:
        raise
    except Exception as cause:  # parsers, codecs, file systems and schedulers raise what they like
        raise kind(f"{failure}: {one_line(cause)}; {way_out}.") from cause


def one_line(cause: BaseException) -> str:
    """The message of an exception, for the inside of another message."""
    text = str(cause)
    if isinstance(cause, KeyError) and len(cause.args) == 1:  # its text is only the name in quotes
        name = cause.args[0]
        text = name if isinstance(name, str) and " " in name else f"there is no {name!r}"
    if isinstance(cause, MemoryError):
        text = f"not enough memory: {text}".rstrip(": ")
    text = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    return text.rstrip(".;") or type(cause).__name__


def check_integer(
    name: str, value: Any, least: int = 1, error: type[TpcaError] = SolverError, instead: str = ""
) -> int:
    """``value`` as an int of at least ``least``.

    Integers of numpy are integers; ``True``, ``2.0``, ``2.5`` and ``"2"`` are not: what they would silently become is
    hardly what was meant.  ``instead`` names what else the option takes, as ``" or 'auto'"``.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise error(f"{name} must be a whole number of at least {least}{instead}, got {value!r}.")
    return number
