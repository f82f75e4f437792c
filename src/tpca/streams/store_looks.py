"""Looks into stores, damaged ones among them: the arrays that there are, and what zarr-python leaves open.

That is tasks that go on when a chunk cannot be read.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

# A remote store that hangs must not hang whoever is to be told of the error, too.
WAIT_SECONDS = 10.0
_NAME = "tpca-settle"
_LISTED = 12


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Calls of Zarr: if one fails, the error goes on when the other chunks it asked for have come to their end, too.

    zarr-python 3 asks for all chunks at once in an event loop of its own, and gives up at the first that fails.  The
    others go on, are cut off when the process ends, and write that to standard error.
    """
    try:
        yield
    except Exception:
        _settle()
        raise


def _settle() -> None:
    try:
        from zarr.core import sync  # no public way leads to it

        loop = sync.loop[0]
    except (ImportError, AttributeError):
        return
    if loop is not None and loop.is_running():
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(_others(), loop).result(WAIT_SECONDS)


async def _others() -> None:
    """Wait for all tasks, not cancel them: some may belong to other threads, whose reading is none of our business."""
    me = asyncio.current_task()
    assert me is not None
    me.set_name(_NAME)  # two that wait for each other would do so for ever
    while tasks := [task for task in asyncio.all_tasks() if task is not me and task.get_name() != _NAME]:
        await asyncio.gather(*tasks, return_exceptions=True)


def listed(paths: list[str]) -> str:
    """Some paths in quotes, and how many more there are."""
    shown = ", ".join(map(repr, sorted(paths)[:_LISTED]))
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return shown + more if paths else "(it has none)"


def zarr_arrays(group: Any) -> list[str]:
    """All arrays below a Zarr group."""
    return ["/" + path for path, node in group.members(max_depth=None) if hasattr(node, "shape")]


def zarr_arrays_in(store: str, inner: str) -> list[str]:
    """All arrays below a group in a folder, by their files: one with damaged metadata must not hide the others."""
    return ["/" + os.path.relpath(place, store).replace(os.sep, "/") for place in _array_folders(store, inner)]


def _array_folders(store: str, inner: str) -> Iterator[str]:
    for place, folders, files in os.walk(os.path.join(store, inner)):
        if ".zarray" in files or ("zarr.json" in files and _is_array(os.path.join(place, "zarr.json"))):
            folders.clear()  # only chunks
            yield place


def _is_array(path: str) -> bool:
    if not os.path.isfile(path):  # to read a pipe may take for ever
        return False
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
