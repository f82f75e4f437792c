"""Along which axis the samples lie: the first, or one that is named; the others are the modes, in their order."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError, StreamWarning
from tpca.streams.protocol import Source

SampleDim = str | int | None
FEW, LONG, TIMES = 8, 30, 4  # samples, beside an axis so long, and so many times as long: they may lie along that one


class Turned(Source):
    """A source with its axes in another order: what is read is turned, a batch at a time."""

    def __init__(self, source: Source, order: Sequence[int]) -> None:
        self.kind, self.name, self.dtype, self.shared = source.kind, source.name, source.dtype, source.shared
        self.parallel = source.parallel
        self._source, self._order = source, tuple(order)
        self.shape = tuple(source.shape[i] for i in order)
        self.chunks = None if source.chunks is None else tuple(source.chunks[i] for i in order)
        self.axes = tuple(source.axes[i] for i in order) if source.axes else ()

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The entries in these ranges of the leading axes."""
        own = [slice(None)] * len(self._order)
        for place, part in zip(self._order, key, strict=False):
            own[place] = part
        return np.transpose(self._source.read(tuple(own)), self._order)


def turned(source: Source, order: Sequence[int]) -> Source:
    """The source with its axes in another order; an array in memory is only looked at in another way."""
    if list(order) == list(range(len(source.shape))):
        return source
    return source.transposed(tuple(order)) or Turned(source, order)


def along(source: Source, sample_dim: SampleDim) -> Source:
    """The source with the samples along its first axis, the others in their order behind it."""
    if sample_dim is None:
        return source
    axis = _axis(source, sample_dim)
    return turned(source, [axis, *(i for i in range(len(source.shape)) if i != axis)])


def _axis(source: Source, sample_dim: str | int) -> int:
    """The number of an axis that is given by its name or number; the command gives numbers as text."""
    names, count = [axis.name for axis in source.axes], len(source.shape)
    if isinstance(sample_dim, str):
        if names.count(sample_dim) == 1:
            return names.index(sample_dim)
        if not sample_dim.removeprefix("-").isdecimal():
            known = ", ".join(repr(name) for name in names if name)
            expected = (
                f"name one of its axes, {known}"
                if known
                else f"be the number of an axis, 0 to {count - 1}: they have no names"
            )
            raise StreamError(f"sample_dim of {source.name} must {expected}; got {sample_dim!r}.")
    try:
        number = int(sample_dim)
    except (TypeError, ValueError):
        number = count
    if isinstance(sample_dim, bool) or not -count <= number < count:
        raise StreamError(
            f"sample_dim must be the name or the number of an axis, 0 to {count - 1} of {source.name}, "
            f"got {sample_dim!r}."
        )
    return number % count


def check_axis(source: Any, data: Any, sample_dim: SampleDim, **told: Any) -> None:
    """Say so where samples seem to lie along another axis than the first, and nobody named one.

    Refused if what is ``told`` of them, by name, has as many rows as another axis is long; a note if there are next to
    none of them beside a long axis.  ``data`` are the samples as they were opened; of a ``source`` that was open
    already nobody knows what the axes were.
    """
    n, dims = data.length, tuple(data.dims)
    if sample_dim is not None or n is None or source is data:
        return
    for name, rows in ((name, _rows(values)) for name, values in told.items()):
        if rows != n and rows in dims:
            raise SampleError(
                f"{name} must have a row for every sample, got {rows}, and the samples, along the first axis, are {n}; "
                f"{_way_out(data, dims.index(rows))}."
            )
    long = [mode for mode, d in enumerate(dims) if d >= max(LONG, TIMES * n)]
    if n < FEW and long:
        warnings.warn(
            f"the samples, along the first axis, are {n}, of shape {dims}; {_way_out(data, long[-1])}.",
            StreamWarning,
            stacklevel=3,
        )


def _rows(values: Any) -> int | None:
    """How many rows something has, where that is plain."""
    return None if values is None or isinstance(values, str) or not np.ndim(values) else len(values)


def _way_out(data: Any, mode: int) -> str:
    axes = () if data.labels is None else data.labels.axes
    name = axes[mode].name if axes else ""
    which = f"axis {name!r}" if name else f"axis {mode + 1}"
    given = (repr(name), name) if name else (mode + 1, mode + 1)
    return (
        f"{which} is {data.dims[mode]} long: if the samples lie along it, give sample_dim={given[0]} (tpca: "
        f"--sample-dim {given[1]})"
    )
