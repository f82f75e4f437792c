"""Samples written to a file, npy or Zarr, with the truth beside them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tpca.data.numpy_files import npz_bytes, read_npz
from tpca.data.stores import package
from tpca.errors import StreamError, reading
from tpca.files import replacing
from tpca.model import BATCH_ENTRIES, Samples, SpikedTensor

Progress = Callable[[int], None]


def truth_path(path: str | os.PathLike[str]) -> Path:
    """Where the truth of some generated data lies: ``d.npy`` has ``d.npy.truth.npz`` beside it."""
    data = Path(str(path).partition("::")[0])
    return data.with_name(f"{data.name}.truth.npz")


def read_truth(path: Path) -> SpikedTensor:
    """The planted vectors and strength, as :func:`write_samples` wrote them."""
    failure, way_out = f"cannot read the truth from {str(path)!r}", "data made by `tpca generate` have it beside them"
    with reading(failure, way_out, passing=StreamError):
        stored = read_npz(npz_bytes(path))
        modes = [name for name in stored if name.startswith("mode_")]
        vectors = tuple(stored[f"mode_{i}"] for i in range(len(modes)))
        return SpikedTensor(vectors, float(stored["strength"]))


def write_samples(
    path: Path, samples: Samples, count: int, truth: SpikedTensor | None = None, progress: Progress = lambda _: None
) -> None:
    """Write the first ``count`` samples, and the truth beside them if there is one; they appear whole or not at all.

    The truth of other data that were there is gone before they are.
    """
    if path.suffix not in (".npy", ".zarr"):
        raise StreamError(f"the suffix of {str(path)!r} must be .npy or .zarr.")
    beside, shape = truth_path(path), (count, *samples.dims)
    with replacing(path, *([beside] if truth else []), removing=[beside]) as (draft, *other), ExitStack() as opened:
        if path.suffix == ".npy":  # plain writes, not a memory map: on a full disk a map ends the process
            file = opened.enter_context(draft.open("wb"))
            head = {"descr": np.lib.format.dtype_to_descr(samples.dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
        else:
            zarr = package("zarr", "zarr", "writing Zarr")
            array = zarr.open_array(str(draft), mode="w", shape=shape, chunks=_chunks(shape), dtype=samples.dtype)
        first, batches = 0, iter(samples)
        while first < count:
            part = next(batches)[: count - first]
            if path.suffix == ".npy":
                file.write(np.ascontiguousarray(part).data)
            else:
                array[first : first + len(part)] = part
            first += len(part)
            progress(first)
        if truth:
            named: dict[str, Any] = {f"mode_{i}": v for i, v in enumerate(truth.vectors)}
            np.savez(other[0], strength=truth.strength, **named)


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As many samples to a chunk as a batch holds; a sample larger than that is cut along its first modes."""
    entries = math.prod(shape[1:])
    if entries <= BATCH_ENTRIES:
        return (min(shape[0], max(1, BATCH_ENTRIES // entries)), *shape[1:])
    chunks, rest = [1], entries
    for length in shape[1:]:
        rest //= length
        chunks.append(max(1, min(length, BATCH_ENTRIES // rest)))
    return tuple(chunks)
