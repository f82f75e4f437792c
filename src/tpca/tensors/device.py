r"""A device that runs out of memory: an error that says how many samples a batch may have.

Dense samples on a device: PyTorch, JAX, CuPy or whatever follows the array API standard.

The formulas are those of :mod:`tpca.tensors.dense`; sums stay where the samples are, in float32 for samples in float16,
bfloat16 and float32, in float64 for those in float64.  To the host come gradients, rewards and single numbers.

A batch is a range of samples ``start`` to ``stop`` of an array that is not cut: a slice is a copy in JAX.  Sums are
added up in one of two ways,

.. math:: S \leftarrow S + w^\top X \qquad\text{or}\qquad S \leftarrow S + wX_j + wX_{j+1} + \dots ,

a product with a vector of weights where a slice is a view, as with BLAS; sample by sample where a compiler makes one
loop of it (JAX), which reads X where it lies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import DeviceMemoryError, one_line
from tpca.tensors.blocks import Array
from tpca.tensors.dense import DenseBatch, contracted, missing
from tpca.tensors.namespaces import (
    bytes_of,
    cast,
    compiles,
    device_of,
    entries,
    fused,
    home_of,
    name_of,
    namespace,
    rows_of,
    to_device,
    to_host,
    working_dtype,
)

SIGNS = ("out of memory", "resource_exhausted", "outofmemory")  # of such an error, in whatever library
SUMS = 2  # arrays of the size of a sample that are held beside the samples: a sum, and what is added to it


def refuse_beyond_memory(cause: BaseException, batch: Any) -> None:
    """Say what would fit, if ``cause`` is that the device of a batch has no more memory."""
    told = f"{type(cause).__name__} {cause}".lower()
    if not isinstance(batch, DeviceBatch) or not any(sign in told for sign in SIGNS):
        return
    size = max(1, bytes_of(batch._samples) // max(1, int(batch._samples.shape[0])))
    free = free_bytes(batch._samples)
    fits = len(batch) // 2 if free is None else min(len(batch) // 2, free // size - SUMS)
    raise DeviceMemoryError(
        f"{batch.home} ran out of memory with {len(batch)} samples of {size:,} bytes at a time ({one_line(cause)}); "
        f"give batches of at most {max(1, fits)} samples, or free memory there."
    ) from cause


def free_bytes(array: Any) -> int | None:
    """Bytes that are free on the device of an array; ``None`` where its library does not tell."""
    device = array.device
    if getattr(device, "type", None) == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if hasattr(device, "mem_info"):  # CuPy
        return int(device.mem_info[0])
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None  # JAX
    if not stats or not math.isfinite(stats.get("bytes_limit", math.inf)):
        return None
    return int(stats["bytes_limit"] - stats["bytes_in_use"])


AT_ONCE = 2**24  # entries that are copied at a time, where a kernel needs them in another dtype or order
UNROLLED = 8  # samples that a compiled loop adds up at a time
GLANCE = 8  # numbers of a batch that tell it from another: no more of it comes to the host


class DeviceBatch(DenseBatch):
    """Samples ``start`` to ``stop`` of an array ``(n, d_1, ..., d_k̄)`` on a device; all else is as of a dense batch."""

    def __init__(
        self,
        array: Any,
        first: int = 0,
        dropped: int = 0,
        unchecked: int | None = None,
        exposure: Any = None,
        bounds: tuple[int, int] | None = None,
        places: NDArray[np.intp] | None = None,
    ) -> None:
        super().__init__(array, first, dropped, unchecked, exposure, places)
        self._start, self._stop = (0, int(array.shape[0])) if bounds is None else bounds
        self.dtype = working_dtype(array)

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, some: slice) -> DeviceBatch:
        start, stop, step = some.indices(len(self))
        some = slice(start, max(start, stop), step)
        first = None if self._unchecked is None else self._unchecked + start
        exposure = self.exposure_of(some)
        if step != 1:
            own = self._samples[self._start + start : self._start + some.stop : step, ...]
            return DeviceBatch(own, unchecked=first, exposure=exposure, places=self.places[some])
        bounds = (self._start + start, self._start + some.stop)
        return DeviceBatch(self._samples, 0, 0, first, exposure, bounds, self.places[some])

    def taken(self, rows: NDArray[np.intp]) -> DeviceBatch:
        """Some of the samples, in another order."""
        own = rows_of(self.samples, rows)
        exposure = None if self.exposure is None else rows_of(self.exposure, rows)
        return DeviceBatch(own, exposure=exposure, places=self.places[rows])

    def weighted_sums(self, weights: Array) -> Array:
        """Sums (c, *dims) of the samples, each times a row of ``weights`` (n, c), added up on the device."""
        total = _weighted(self.samples, weights)
        self.look_in(total)
        return total

    @property
    def observed_sums(self) -> Callable[[Array], Array] | None:
        """The same of which entries were observed; ``None`` where all were."""
        exposure = self.exposure
        return None if exposure is None else lambda weights: _weighted(cast(exposure, self.dtype), weights)

    def pieces(self, most: int = AT_ONCE) -> Any:
        """The samples in their working dtype, about ``most`` entries at a time; a view where that is possible."""
        size = entries(self._samples) // max(1, int(self._samples.shape[0]))
        step = max(1, most // max(1, size))
        for a in range(self._start, self._stop, step):
            yield cast(self._samples[a : min(a + step, self._stop), ...], self.dtype)

    @property
    def home(self) -> str:
        """Library and device, in words."""
        return home_of(self._samples)

    @property
    def samples(self) -> Any:
        """The samples on their device, in their working dtype; all of them finite."""
        self.check()
        return cast(self._own, self.dtype)

    @property
    def _own(self) -> Any:
        """The samples as they are."""
        whole = self._start == 0 and self._stop == self._samples.shape[0]
        return self._samples if whole else self._samples[self._start : self._stop, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""
        return super().nbytes * len(self) // max(1, int(self._samples.shape[0]))

    def trusted(self) -> DeviceBatch:
        """The same samples, not looked at."""
        return DeviceBatch(self._samples, 0, 0, None, self.exposure, (self._start, self._stop))

    def copied(self) -> DeviceBatch:
        """The same samples in memory of their own, on their device."""
        own = super().copied()
        return DeviceBatch(own._samples, exposure=own.exposure)

    def content(self) -> list[NDArray[Any]]:
        """A few numbers of the samples, and how many there are."""
        count = min(GLANCE, len(self))
        rows = [self._start + j * (len(self) - 1) // max(1, count - 1) for j in range(count)]
        dims = self._samples.shape[1:]
        places = [(row, *((j + 1) * (d - 1) // (count + 1) for d in dims)) for j, row in enumerate(rows)]
        xp = namespace(self._samples)
        some = [cast(self._samples[place], self.dtype) for place in places]
        return [np.array([len(self), *dims]), to_host(xp.stack(some)) if some else np.zeros(0)]

    def check(self) -> None:
        """Refuse samples with NaN or Inf, if nobody has looked yet: they show in a sum, as those of the host do."""
        if self._unchecked is not None:
            self.add_to(None)
            self._unchecked = None

    @property
    def complete(self) -> bool:
        """Whether no entry is NaN or Inf; also false where entries are so large that their sum is not finite."""
        return _finite(self.trusted().add_to(None))

    def add_to(self, total: Any, weight: float = 1.0) -> Any:
        """Add ``weight`` times the samples to ``total``, which is used up; a missing entry makes the total one, too."""
        xp = namespace(self._samples)
        if total is None:
            total = xp.zeros(self._samples.shape[1:], dtype=self.dtype, device=device_of(self._samples))
        if not len(self):
            return total
        total = self._add(total, weight)
        self.look_in(total)
        return total

    def _add(self, total: Any, weight: float) -> Any:
        return (self._add_one_by_one if compiles(self._samples) else self._add_products)(total, weight)

    def _add_products(self, total: Any, weight: float) -> Any:
        xp = namespace(self._samples)
        as_they_are = name_of(self._samples.dtype) == name_of(self.dtype)
        for piece in self.pieces(entries(self._samples) if as_they_are else AT_ONCE):
            flat = xp.reshape(piece, (piece.shape[0], -1))
            weights = xp.full((piece.shape[0],), weight, dtype=self.dtype, device=device_of(self._samples))
            with np.errstate(over="ignore", invalid="ignore"):  # of libraries that are NumPy inside
                total += xp.reshape(weights @ flat, total.shape)
        return total

    def _add_one_by_one(self, total: Any, weight: float) -> Any:
        place = self._start
        while place < self._stop:
            count = UNROLLED if place + UNROLLED <= self._stop else 1
            total = _adding()(total, self._samples, place, weight, count)
            place += count
        return total

    def look_in(self, total: Any) -> None:
        """Refuse samples with NaN or Inf that show in a sum with all of these, if nobody has looked yet."""
        if self._unchecked is None or _finite(total):
            return
        xp = namespace(self._samples)
        for j, piece in enumerate(self.pieces()):
            finite = to_host(xp.all(xp.reshape(xp.isfinite(piece), (piece.shape[0], -1)), axis=1))
            if not finite.all():
                step = max(1, AT_ONCE // (entries(piece) // piece.shape[0]))
                raise missing(self._unchecked + j * step + int(np.argmin(finite)))

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""
        if self.exposure is not None:
            return super().scores(vectors)
        self.check()
        return np.concatenate(
            [np.empty((0, len(vectors[0]))), *(contracted(piece, vectors) for piece in self.pieces())]
        )


def _weighted(samples: Any, weights: Array) -> Array:
    xp, dims = namespace(samples), tuple(samples.shape[1:])
    total = xp.matmul(to_device(weights.T, samples), xp.reshape(samples, (samples.shape[0], -1)))
    return to_host(total).astype(np.float64).reshape(-1, *dims)


def _finite(total: Any) -> bool:
    """Whether all entries of a sum are numbers: 0 times one that is not is none, however large the others are."""
    with np.errstate(invalid="ignore"):
        return bool(to_host(fused(_times_zero)(total)) == 0)


def _times_zero(total: Any) -> Any:
    xp = namespace(total)
    flat = xp.reshape(total, (-1,))
    return flat @ (0 * flat)


def _add_samples(total: Any, samples: Any, first: Any, weight: Any, count: int) -> Any:
    """``count`` samples, added one after the other."""
    for j in range(count):
        total = total + weight * namespace(samples).astype(samples[first + j, ...], total.dtype)
    return total


@functools.cache
def _adding() -> Any:
    """The same as one loop, which writes to the memory of the sum it is given."""
    import jax

    return jax.jit(_add_samples, static_argnums=4, donate_argnums=0)
