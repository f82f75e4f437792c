"""Looks into stores, damaged ones among them: the arrays that there are, and what zarr-python leaves open.

That is tasks that go on when a chunk cannot be read, absurd shapes, chunks that crash a codec.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# A remote store that hangs must not hang whoever is to be told of the error, too.
WAIT_SECONDS = 10.0
_NAME = "tpca-settle"
# Chunks that were never written are read as their fill value; an array of hardly any others has damaged metadata.
MIN_WRITTEN = 1000
_BLOSC_HEAD = 16
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
        from zarr.core import sync

        loop = sync.loop[0]
    except (ImportError, AttributeError):
        return  # zarr-python 2 reads in the thread that calls it
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


def check_extent(array: Any, folder: str) -> None:
    """Refuse an array that claims to have a thousand times the chunks that there are files: reading it never ends."""
    lengths = getattr(array, "shards", None) or array.chunks
    claimed = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, lengths, strict=True))
    least = claimed // MIN_WRITTEN
    there = sum(1 for _ in itertools.islice(_files(folder), min(least, sys.maxsize)))
    if there < least:
        raise ValueError(f"its shape {array.shape} has {claimed:.4g} chunks, and there are {there} files")


def _files(folder: str) -> Iterator[str]:
    """All files below, as they are found: there may be millions."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path


def guard_blosc(array: Any) -> None:
    """Let an array that was opened here check its chunks before Blosc sees them.

    numcodecs hands them over as they are, and Blosc believes their header: if it says more bytes than there are, the
    process may crash.
    """
    several = getattr(array, "compressors", None)  # none, of an array that is not compressed
    for codec in (getattr(array, "compressor", None),) if several is None else several:
        blosc: Any = getattr(codec, "_blosc_codec", codec)
        if getattr(blosc, "codec_id", None) == "blosc":
            blosc.decode = functools.partial(_checked_blosc, blosc.decode)


def _checked_blosc(decode: Callable[..., Any], chunk: Any, out: Any = None) -> Any:
    size = memoryview(chunk).nbytes
    head = bytes(memoryview(chunk).cast("B")[:_BLOSC_HEAD])
    says = int(np.frombuffer(head, "<u4")[3]) if len(head) == _BLOSC_HEAD else _BLOSC_HEAD
    if says != size:
        raise ValueError(f"a chunk has {size} bytes, and its header says {says}")
    return decode(chunk, out)


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
