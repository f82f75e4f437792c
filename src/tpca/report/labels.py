"""Names for modes and their entries, from a JSON file.

``{"0": ["Fz", "Cz", "Pz"], "2": {"name": "frequency", "entries": ["4 Hz", "8 Hz"]}}``: keys are modes, counted from 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpca.errors import StreamError, reading


@dataclass(frozen=True)
class Labels:
    """What every mode is called, and its entries where they have names."""

    modes: tuple[str, ...]
    entries: tuple[tuple[str, ...] | None, ...]

    def entry(self, mode: int, place: int) -> str:
        """The name of an entry, or its number."""
        named = self.entries[mode]
        return str(place) if named is None else named[place]


def no_labels(dims: Sequence[int], word: str = "mode") -> Labels:
    """Modes by their number."""
    return Labels(tuple(f"{word} {i}" for i in range(len(dims))), (None,) * len(dims))


def read_labels(path: Path, dims: Sequence[int], word: str = "mode") -> Labels:
    """The labels in a file; refuses what does not fit the dims."""
    with reading(f"cannot read labels from {str(path)!r}", "give a JSON file"):
        found = json.loads(path.read_text(encoding="utf-8"))
    return parse_labels(found, dims, word, str(path))


def parse_labels(found: Any, dims: Sequence[int], word: str = "mode", where: str = "labels") -> Labels:
    """Labels from the contents of a file."""
    if not isinstance(found, dict):
        raise StreamError(f'{where!r} must hold an object such as {{"0": ["a", "b"]}}, got {type(found).__name__}.')
    plain = no_labels(dims, word)
    modes, entries = list(plain.modes), list(plain.entries)
    for key, value in found.items():
        if key not in map(str, range(len(dims))):
            raise StreamError(f"{where!r} names mode {key!r}; modes go from 0 to {len(dims) - 1}.")
        mode = int(key)
        name, names = (value.get("name"), value.get("entries")) if isinstance(value, dict) else (None, value)
        if name is not None:
            modes[mode] = str(name)
        if names is not None:
            if not isinstance(names, list) or len(names) != dims[mode]:
                count = len(names) if isinstance(names, list) else type(names).__name__
                raise StreamError(f"{where!r} must give mode {mode} a list of {dims[mode]} names, got {count}.")
            entries[mode] = tuple(map(str, names))
    return Labels(tuple(modes), tuple(entries))
