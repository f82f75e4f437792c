"""Samples on a device, as arrays of PyTorch, JAX, CuPy or another library with the array API: they stay there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.data.base import Items, Kind, NanPolicy, Source, are_samples, only_batches, shape_of, unwrapped
from tpca.data.stored import StoredStream
from tpca.errors import SampleError
from tpca.labels import Axis
from tpca.tensors import Batch, DeviceBatch
from tpca.tensors.accumulators import digest
from tpca.tensors.namespaces import (
    home_of,
    is_device_array,
    name_of,
    namespace,
    numpy_dtype,
    permuted,
    rows_of,
    to_host,
)

DEVICE_BATCH_ENTRIES = 2**26  # of a batch, a range of an array that lies there anyway: a launch costs nothing beside it


class DeviceSource(Source):
    """An array on a device."""

    kind: Kind = "array"
    shared = False

    def __init__(self, array: Any, axes: tuple[Axis, ...] = (), name: str = "the array") -> None:
        self.array = untracked(array)
        self.shape, self.axes, self.name = tuple(array.shape), axes, name
        self.dtype = numpy_dtype(self.array)
        self.at_once = DEVICE_BATCH_ENTRIES // max(1, math.prod(self.shape[1:]))

    def transposed(self, order: tuple[int, ...]) -> DeviceSource:
        """The same array with its axes in another order."""
        return DeviceSource(permuted(self.array, order), (), self.name)

    def read(self, key: tuple[slice, ...]) -> Any:
        """The entries, on their device."""
        return self.array[(*key, ...)]


class DeviceStream(StoredStream):
    """The samples of an array on a device; may be read again."""

    _source: DeviceSource

    def __init__(self, source: DeviceSource, shuffle: int | None = None, nan_policy: NanPolicy = "raise") -> None:
        super().__init__(source, shuffle, nan_policy)
        self.like = source.array

    @cached_property
    def identity(self) -> str:
        """Library, shape, dtype and a few numbers: no more of the samples comes to the host."""
        source = self._source
        found = digest(DeviceBatch(source.array).content())
        return f"{home_of(source.array)} {source.shape} {name_of(source.array.dtype)} {found}{self._told_options}"

    def batch(self, number: int, parts: Sequence[NDArray[Any]] | None = None) -> Batch:  # noqa: ARG002
        """Batch ``number`` in the order of the stream: a range of the array, which is not copied."""
        a, b = self._range(number)
        first = int(self.layout.bounds[number])
        batch = device_batch(self._source.array, first, a, self.nan_policy, (a, b))
        if self.shuffle is None:
            return batch
        turn = self._permutation(a, len(batch))
        exposure = None if batch.exposure is None else rows_of(batch.exposure, turn)
        places = batch.places[turn]
        return DeviceBatch(rows_of(batch.samples, turn), first, batch.dropped, exposure=exposure, places=places)


def device_source(source: Any, items: Items = "auto", dims: tuple[int, ...] | None = None) -> DeviceSource | None:
    """An array on a device, or a list of samples there, as something that can be sliced; ``None`` if it is not that."""
    if is_device_array(source):
        only_batches(items, "arrays")
        return DeviceSource(source)
    if not isinstance(source, list | tuple) or not source or not is_device_array(_inside(source[0])):
        return None
    if not are_samples(map(shape_of, source), items, dims, "items"):
        return None
    samples = [untracked(unwrapped(item, j)) for j, item in enumerate(source)]
    for j, sample in enumerate(samples):
        check_alike(sample, samples[0], j)
        if sample.shape != samples[0].shape:
            raise SampleError(
                f"samples must have shape {tuple(samples[0].shape)}, got {tuple(sample.shape)} at sample {j}; "
                "all samples of a stream share one shape."
            )
    return DeviceSource(namespace(samples[0]).stack(samples))


def _inside(item: Any) -> Any:
    """What a tuple or list of one holds."""
    return item[0] if isinstance(item, tuple | list) and len(item) == 1 else item


def device_batch(
    array: Any, first: int, number: int, policy: NanPolicy, bounds: tuple[int, int] | None = None
) -> DeviceBatch:
    """The samples from ``number`` on as the batch at ``first``; those with missing entries are left out or filled in.

    Which these are is told to the host, one number a sample, and only where a sum shows that there are any.
    """
    batch = DeviceBatch(array, first, unchecked=number if policy == "raise" else None, bounds=bounds)
    batch.moved(number - first)
    if policy == "raise" or batch.complete:
        return batch
    samples = batch.samples
    xp = namespace(samples)
    finite = xp.isfinite(samples)
    flat = xp.reshape(finite, (len(batch), -1))
    keep = np.flatnonzero(to_host(xp.all(flat, axis=1) if policy == "omit" else xp.any(flat, axis=1)))
    kept, exposure = rows_of(samples, keep), None
    if policy == "zero":
        exposure = rows_of(finite, keep)
        kept = xp.where(exposure, kept, xp.zeros_like(kept))
    return DeviceBatch(kept, first, len(batch) - len(keep), exposure=exposure, places=number + keep)


def untracked(array: Any) -> Any:
    """An array whose operations nobody records for derivatives (PyTorch); sparse ones are refused."""
    if getattr(array, "is_sparse", False):
        raise SampleError(
            f"sparse tensors of {home_of(array)} are not read; give scipy.sparse or sparse.COO samples, or to_dense()."
        )
    return array.detach() if hasattr(array, "detach") else array


def check_alike(array: Any, like: Any, first: int) -> None:
    """Refuse samples of another library, or on another device, than those before."""
    if home_of(array) != home_of(like):
        raise SampleError(
            f"all samples of a stream are of one library and on one device, expected {home_of(like) or 'NumPy'}, "
            f"got {home_of(array) or 'NumPy'} at sample {first}; bring them to one."
        )
