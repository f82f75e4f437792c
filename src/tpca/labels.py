"""Names of the axes of samples: what every mode is called, and the coordinates of its entries.

A stream that knows them carries them, the estimate keeps them, and results, tables, reports and ``to_xarray`` show
them.  In a file they are JSON, by mode, counted from 0: ``{"0": ["Fz", "Cz", "Pz"], "2": {"name": "frequency",
"entries": [4.0, 8.0]}}``; ``"sample"`` may name the axis of the samples, ``"dtype"`` say what the entries are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import JSON_BYTES, StreamError, check_regular, reading

Coords = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: its name (empty: it has none), and the coordinates of its entries, where there are any."""

    name: str = ""
    coords: Coords | None = None

    def entry(self, place: int) -> str:
        """What an entry is called: its coordinate, or its number."""
        return str(place) if self.coords is None else as_text(self.coords[place])

    @property
    def ordered(self) -> bool:
        """Whether the coordinates are numbers or times that grow or fall: places along the axis."""
        if self.coords is None or self.coords.dtype.kind not in "fiuM" or not np.isfinite(self.coords).all():
            return False
        steps = np.diff(self.coords.astype(np.int64 if self.coords.dtype.kind in "iuM" else np.float64))
        return bool(np.all(steps > 0) or np.all(steps < 0))


@dataclass(frozen=True, eq=False)
class Labels:
    """What the modes of samples are called, and their entries; and the samples themselves.

    ``sample`` names the axis of the samples, ``samples`` are their labels ``(n,)``, which need not differ.
    """

    axes: tuple[Axis, ...]
    sample: str = ""
    samples: Coords | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """A name for every mode: its own, or its number, as an axis of a sample."""
        return tuple(axis.name or f"axis {i}" for i, axis in enumerate(self.axes))

    def entry(self, mode: int, place: int) -> str:
        """The name of an entry, or its number."""
        return self.axes[mode].entry(place)

    def with_others(self, others: Labels) -> Labels:
        """These, and where they do not say, those of ``others``."""
        pairs = zip(self.axes, others.axes, strict=True)
        axes = (Axis(a.name or b.name, b.coords if a.coords is None else a.coords) for a, b in pairs)
        samples = others.samples if self.samples is None else self.samples
        return Labels(tuple(axes), self.sample or others.sample, samples)

    def difference(self, other: Labels) -> str:
        """How other data are labelled in another way, in words; empty where nothing contradicts."""
        for own, theirs in zip(self.axes, other.axes, strict=True):
            if own.name and theirs.name and own.name != theirs.name:
                theirs_named, own_named = (", ".join(map(repr, one.modes)) for one in (other, self))
                return f"their axes are {theirs_named}, expected {own_named}"
            if own.coords is None or theirs.coords is None:
                continue
            if own.coords.dtype.kind in "fiu" and theirs.coords.dtype.kind in "fiu":
                same = np.isclose(own.coords, theirs.coords, rtol=1e-6, atol=0, equal_nan=True).tolist()
            else:
                same = [as_text(x) == as_text(y) for x, y in zip(own.coords, theirs.coords, strict=True)]
            if not all(same):
                place, name = same.index(False), own.name or theirs.name
                return f"entry {place} of {name!r} is {theirs.entry(place)!r}, expected {own.entry(place)!r}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """The same as a file holds it."""
        told: dict[str, Any] = {"sample": self.sample} if self.sample else {}
        for i, axis in enumerate(self.axes):
            own: dict[str, Any] = {"name": axis.name} if axis.name else {}
            if axis.coords is not None:
                kind = axis.coords.dtype.kind
                plain = axis.coords.astype({"m": "i8", "M": "U"}[kind]) if kind in "mM" else axis.coords
                own["entries"] = plain.tolist()
                own |= {} if kind == "U" else {"dtype": axis.coords.dtype.newbyteorder("=").name}
            if own:
                told[str(i)] = own
        return told


def labels_of(axes: Sequence[Axis], what: str) -> Labels | None:
    """The labels of samples that lie along the first of some axes; ``None`` if nothing has a name.

    Two entries of one name are refused.  Two modes of one name, as of a matrix of channels by channels, are told apart
    by a number.
    """
    sample, *modes = axes
    if not any(axis.name or axis.coords is not None for axis in axes):
        return None
    named: list[Axis] = []
    seen: Counter[str] = Counter()
    for axis in modes:
        given: Any = () if axis.coords is None else axis.coords
        values, places, counts = np.unique(given, return_inverse=True, return_counts=True)
        if (counts > 1).any():
            twice = int(np.argmax(counts > 1))
            both = ", ".join(map(str, np.flatnonzero(places == twice)[:2]))
            raise StreamError(
                f"coordinates of an axis must differ, got {as_text(values[twice])!r} {counts[twice]} times along "
                f"{axis.name!r} of {what} (entries {both}); rename one, or leave the coordinate out "
                f"(DataArray.drop_vars({axis.name!r}))."
            )
        seen[axis.name] += 1
        again = axis.name and seen[axis.name] > 1
        named.append(Axis(f"{axis.name}_{seen[axis.name]}" if again else axis.name, axis.coords))
    return Labels(tuple(named), sample.name, sample.coords)


def as_coords(values: Any) -> Coords:
    """Coordinates as an array of numbers, times or text; whatever else they are becomes text."""
    array = np.asarray(values)
    if array.dtype.kind in "fiubmMU":
        return array
    return np.array([one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in array.tolist()])


def as_text(value: Any) -> str:
    """A coordinate as people write it."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def read_labels(path: Path, dims: Sequence[int]) -> Labels:
    """The labels in a file; refuses what does not fit the dims."""
    with reading(f"cannot read labels from {str(path)!r}", "give a JSON file"):
        check_regular(path, JSON_BYTES)
        found = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, ensure_ascii=False).encode()  # escapes can spell what is no text
    return parse_labels(found, dims, str(path))


def parse_labels(found: Any, dims: Sequence[int], where: str = "labels") -> Labels:
    """Labels from the contents of a file."""
    if not isinstance(found, dict):
        raise StreamError(f'{where!r} must hold an object such as {{"0": ["a", "b"]}}, got {type(found).__name__}.')
    axes = [Axis() for _ in dims]
    for key, value in found.items():
        if key == "sample":
            continue
        if key not in map(str, range(len(dims))):
            raise StreamError(f"{where!r} names axis {key!r}; axes go from 0 to {len(dims) - 1}.")
        mode, told = int(key), value if isinstance(value, dict) else {"entries": value}
        name, entries, dtype = told.get("name"), told.get("entries"), told.get("dtype")
        axes[mode] = Axis("" if name is None else str(name))
        if entries is None:
            continue
        if not isinstance(entries, list) or len(entries) != dims[mode]:
            count = len(entries) if isinstance(entries, list) else type(entries).__name__
            raise StreamError(f"{where!r} must give axis {mode} a list of {dims[mode]} names, got {count}.")
        with reading(f"{where!r} gives axis {mode} entries that cannot be used", "give names or numbers"):
            if dtype is None:
                numbers = all(type(entry) in (int, float) for entry in entries)
                coords = np.array(entries, dtype=np.float64) if numbers else np.array([str(one) for one in entries])
            elif (kind := np.dtype(str(dtype))).kind in "fiubmM":
                coords = np.array([np.nan if entry is None else entry for entry in entries]).astype(kind)
            else:
                raise ValueError(f"dtype must be one of numbers or times, got {dtype!r}")
            axes[mode] = Axis(axes[mode].name, coords)
    return Labels(tuple(axes), str(found.get("sample", "")))
