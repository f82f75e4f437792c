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
from tpca.errors import OutputError, StreamError, reading
from tpca.files import WAY_OUT, Kind, check_replaceable, replacing
from tpca.model import BATCH_ENTRIES, Samples, SpikedTensor

Progress = Callable[[int], None]
KINDS = {
    ".npy": Kind("an array of NumPy", b"\x93NUMPY"),
    ".zarr": Kind("a Zarr store", members=("zarr.json", ".zarray", ".zgroup")),
}
TRUTH = Kind("a truth written by tpca generate", b"strength.npy")  # the first name in it


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


def check_samples_place(path: Path, overwrite: bool = False) -> None:
    """Refuse a place for generated samples whose suffix is unknown, or where somebody's data are.

    Data with a truth beside them were generated, and can be again; all others go only with ``overwrite``.
    """
    if path.suffix not in KINDS:
        raise StreamError(f"the suffix of {str(path)!r} must be .npy or .zarr.")
    kind = KINDS[path.suffix]
    beside = truth_path(path)
    check_replaceable(path, kind, overwrite=True)  # anything but a file or store is never replaced
    check_replaceable(beside, TRUTH, overwrite)
    if overwrite:
        return
    check_replaceable(path, kind)
    if path.exists() and not beside.exists():
        raise OutputError(f"{str(path)!r} exists and was not written by tpca generate; {WAY_OUT}.")


def write_samples(
    path: Path,
    samples: Samples,
    count: int,
    truth: SpikedTensor | None = None,
    progress: Progress = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Write the first ``count`` samples, and the truth beside them if there is one; they appear whole or not at all.

    The truth of other data that were there is gone before they are.
    """
    check_samples_place(path, overwrite)
    beside, shape = truth_path(path), (count, *samples.dims)
    places = {path: KINDS[path.suffix]} | ({beside: TRUTH} if truth else {})
    writing = replacing(*places, kinds=list(places.values()), overwrite=overwrite, removing=[beside])
    with writing as (draft, *other), ExitStack() as opened:
        if path.suffix == ".npy":  # plain writes, not a memory map: on a full disk a map ends the process
            file = opened.enter_context(draft.open("wb"))
            head = {"descr": np.lib.format.dtype_to_descr(samples.dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
        else:
            zarr = package("zarr", "zarr", "writing Zarr")
            array = zarr.open_array(draft, mode="w", shape=shape, chunks=_chunks(shape), dtype=samples.dtype)
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
