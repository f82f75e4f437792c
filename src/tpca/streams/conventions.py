"""What stores say of their arrays: names and coordinates of axes, packed numbers, missing values.

Zarr 3 has ``dimension_names``, xarray writes ``_ARRAY_DIMENSIONS`` into Zarr 2, HDF5 has dimension scales, and
NetCDF 4 is HDF5 with them.  An array of one axis that is called like an axis holds its coordinates.  The attributes
``scale_factor``, ``add_offset``, ``_FillValue`` and ``missing_value`` mean the same in all of them (CF conventions):
the value is ``scale_factor`` times what is stored plus ``add_offset``, and some stored values stand for missing ones.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.labels import Axis, as_coords
from tpca.streams.checks import float_dtype
from tpca.streams.protocol import Source

PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
_SINCE = re.compile(
    r"(day|hour|minute|second|millisecond|microsecond|nanosecond)s? since (\d{4}-\d\d?-\d\d?)[T ]?([\d:.]*)"
)
_NANOSECONDS = {"nanosecond": 1, "microsecond": 10**3, "millisecond": 10**6, "second": 10**9}
_NANOSECONDS |= {"minute": 60 * 10**9, "hour": 3600 * 10**9, "day": 86400 * 10**9}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class Unpacked(Source):
    """A source whose stored numbers stand for others: ``scale`` times them plus ``offset``; ``missing`` are NaN."""

    def __init__(self, source: Source, scale: float, offset: float, missing: Sequence[float]) -> None:
        self.kind, self.name, self.shape, self.shared = source.kind, source.name, source.shape, source.shared
        self.chunks, self.axes, self.parallel = source.chunks, source.axes, source.parallel
        self._source, self._scale, self._offset, self._missing = source, scale, offset, tuple(missing)
        packed = (scale, offset) != (1.0, 0.0)
        self.dtype = np.dtype(np.float64) if packed else float_dtype(source.dtype, f" in {source.name}")

    def read(self, key: tuple[slice, ...]) -> NDArray[Any]:
        """The numbers that are meant."""
        stored = self._source.read(key)
        block = stored.astype(self.dtype)
        for value in self._missing:
            block[stored == stored.dtype.type(value)] = np.nan
        if (self._scale, self._offset) != (1.0, 0.0):
            block *= self._scale
            block += self._offset
        return block


def unpacked(source: Source, attributes: Mapping[str, Any]) -> Source:
    """The source as its attributes say that it is meant."""
    if source.dtype.kind not in "fiu":
        return source
    usual = (1.0, 0.0, np.nan, np.nan)
    scale, offset, *found = (_one(attributes.get(name), other) for name, other in zip(PACKING, usual, strict=True))
    missing = sorted({value for value in found if not np.isnan(value) and _holds(source.dtype, value)})
    return source if (scale, offset) == (1.0, 0.0) and not missing else Unpacked(source, scale, offset, missing)


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a value can be among those stored."""
    return dtype.kind == "f" or (value == int(value) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def _one(value: Any, usual: float) -> float:
    """The one number of an attribute; xarray writes floats into Zarr 3 as base64."""
    if isinstance(value, str):
        try:
            value = np.frombuffer(base64.b64decode(value, validate=True), "<f8")
        except ValueError:
            return usual
    numbers: NDArray[Any] = np.asarray(usual if value is None else value)
    if numbers.size != 1 or numbers.dtype.kind not in "fiu":
        return usual
    return float(numbers.reshape(-1)[0])


def named_axes(
    names: Any, shape: tuple[int, ...], coordinate: Callable[[str], tuple[Any, Mapping[str, Any]] | None]
) -> tuple[Axis, ...]:
    """Axes from their names, with what ``coordinate`` finds of each: an array of one axis, and its attributes.

    ``names`` that do not fit the axes, as those of damaged metadata, are as good as none.
    """
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != len(shape):
        return ()
    axes = []
    for name, length in zip(names, shape, strict=True):
        told = name if isinstance(name, str) else ""
        found = coordinate(told) if told else None
        fits = found is not None and tuple(found[0].shape) == (length,)
        axes.append(Axis(told, decoded(found[0][:], found[1]) if found is not None and fits else None))
    return tuple(axes) if any(axis.name for axis in axes) else ()


def scaled_axes(dataset: Any) -> tuple[Axis, ...]:
    """Axes of an HDF5 dataset by its dimension scales."""
    axes = [_scaled_axis(dim, length) for dim, length in zip(dataset.dims, dataset.shape or (), strict=True)]
    return tuple(axes) if any(axis.name for axis in axes) else ()


def _scaled_axis(dim: Any, length: int) -> Axis:
    """One axis by its scale, the first if it has several."""
    if not len(dim):
        return Axis(dim.label)
    scale = dim[0]
    name = dim.label or str(scale.name or "").rpartition("/")[2]
    held = scale.shape == (length,) and not _is_only_a_length(scale)
    return Axis(name, decoded(scale[:], scale.attrs) if held else None)


def _is_only_a_length(scale: Any) -> bool:
    """Whether a scale holds no coordinates: NetCDF makes one for every axis, h5py one of zeros."""
    told = scale.attrs.get("NAME", b"")
    return (
        bytes(told).startswith(_NO_VARIABLE) if isinstance(told, bytes) else str(told).startswith(_NO_VARIABLE.decode())
    )


def decoded(values: Any, attributes: Mapping[str, Any]) -> NDArray[Any]:
    """Coordinates; numbers of days or seconds since a date become times."""
    coords, units = as_coords(values), attributes.get("units")
    units = units.decode(errors="replace") if isinstance(units, bytes) else units
    match = _SINCE.match(units) if isinstance(units, str) and coords.dtype.kind in "fiu" else None
    if match is None or str(attributes.get("calendar", "standard")) not in _CALENDARS:
        return coords
    unit, day, time = match.groups()
    try:
        year, month, date = map(int, day.split("-"))
        start = np.datetime64(f"{year:04d}-{month:02d}-{date:02d}" + (f"T{time}" if ":" in time else ""), "ns")
    except ValueError:
        return coords
    steps = coords * _NANOSECONDS[unit] if coords.dtype.kind == "f" else coords.astype(np.int64) * _NANOSECONDS[unit]
    return start + np.round(steps).astype(np.int64).astype("timedelta64[ns]")
