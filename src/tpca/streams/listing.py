"""What a store holds, for messages that ask for one of its arrays by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

_LISTED = 12


def listed(paths: list[str]) -> str:
    """Some paths in quotes, and how many more there are."""
    shown = ", ".join(map(repr, sorted(paths)[:_LISTED]))
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return shown + more if paths else "(it has none)"


def zarr_arrays(group: Any) -> list[str]:
    """All arrays below a Zarr group (zarr-python 2 lists its own level only)."""
    members = group.members(max_depth=None) if hasattr(group, "members") else group.arrays()
    return ["/" + path for path, node in members if hasattr(node, "shape")]


def zarr_arrays_in(store: str, inner: str) -> list[str]:
    """All arrays below a group in a folder, by their files: one with damaged metadata must not hide the others."""
    return ["/" + os.path.relpath(place, store).replace(os.sep, "/") for place in _array_folders(store, inner)]


def _array_folders(store: str, inner: str) -> Iterator[str]:
    for place, folders, files in os.walk(os.path.join(store, inner)):
        if ".zarray" in files or ("zarr.json" in files and _is_array(os.path.join(place, "zarr.json"))):
            folders.clear()  # only chunks
            yield place


def _is_array(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["node_type"] == "array")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def hdf5_datasets(group: Any, least_axes: int) -> list[str]:
    """All datasets below an HDF5 group that have so many axes."""
    found: list[str] = []

    def visit(_: str, node: Any) -> None:
        if hasattr(node, "shape") and len(node.shape or ()) >= least_axes:
            found.append(node.name)

    group.visititems(visit)
    return found
