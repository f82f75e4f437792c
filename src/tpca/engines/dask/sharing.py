"""How the groups of a round are shared out among workers; nothing of it changes a bit of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpca.errors import StreamError
from tpca.streams import open_stream
from tpca.streams.protocol import NumberedStream

UNEVEN = 1.1  # times worse shared out is as good as more tasks
FAN = 8  # replicas are passed on to so many, and as many parts are merged at once


def runs_of(leaves: int, workers: int) -> int:
    """Tasks of a round: about one for each worker, or two or four where that is much better shared out.

    Each takes the scheduler and the wires some milliseconds, in which a worker waits.
    """
    if workers == 1:
        return 1
    choices = [power_of_two(workers) * more for more in (1, 2, 4)]
    uneven = [-(-runs // workers) * workers / runs for runs in choices]  # the worker that has most, to the average
    enough = next(runs for runs, own in zip(choices, uneven, strict=True) if own <= UNEVEN * min(uneven))
    return min(leaves, enough)


def merge_fan(parts: int, workers: int, level: int) -> int:
    """How many parts to merge at once on the workers: first those of one worker; 1 when the rest goes to the client."""
    if parts <= min(FAN, power_of_two(workers)):
        return 1
    return min(FAN, max(2, parts // power_of_two(workers))) if level == 0 else FAN


def batches_ahead(firsts: Mapping[int, int], homes: Mapping[int, int], last: int, count: int) -> dict[int, int]:
    """The batch to read ahead after every run: that of the worker's next run, or of its place in the next round.

    ``firsts`` are the batches that runs begin with, ``homes`` their workers; the round ends with ``last`` of ``count``.
    """
    ahead: dict[int, int] = {}
    for run, home in homes.items():
        if later := [other for other in firsts if other > run and homes[other] == home]:
            ahead[run] = firsts[min(later)]
    if last + 1 < count:
        ahead.setdefault(max(firsts), last + 1)
    return ahead


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, count - 1).bit_length()


def readable_stream(source: Any) -> NumberedStream:
    """A stream that workers can read by themselves, or an error that says what to do."""
    stream: Any = open_stream(source)
    way_out = "save the samples as Zarr where all workers can read them (zarr.save, dask.array.to_zarr)"
    if stream.layout is None:
        raise StreamError(f"workers cannot read samples from {stream.kind} data by themselves; {way_out}.")
    if not stream.readable_elsewhere:
        if stream.kind == "dask":
            raise StreamError(
                f"samples of shape {stream.dims} are too large to be taken from a Dask array whole; {way_out}."
            )
        raise StreamError(
            f"workers cannot read samples from the memory of this process (kind {stream.kind!r}); {way_out}, "
            "or give dask.array.from_array(samples, chunks=...).persist()."
        )
    numbered: NumberedStream = stream
    return numbered
