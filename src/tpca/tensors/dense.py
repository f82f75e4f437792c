"""Batches: some samples, in whatever form they come; and dense ones, on the host or on a device.

Samples of the host are added up in place, one after the other, by one or two threads.  Whole races with this take 0.94
to 1.03 of the time with ``gemv`` of BLAS, and 0.8 to 0.9 of that with ``ones @ samples``, which makes a sum of its own
first (samples of 3² to 32⁴, one thread, in turns).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tpca.errors import DeviceMemoryError, SampleError, StreamError, one_line
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import Query, add_gradients_of, outer, subtract
from tpca.tensors.namespaces import (
    bytes_of,
    cast,
    home_of,
    library,
    namespace,
    permuted,
    rows_of,
    to_device,
    to_host,
    working_dtype,
)
from tpca.threads import share

PIECE = 2**22  # entries that are copied at a time, where they are needed in another dtype
HELD = 2**16  # entries that are looked at sample by sample, with several copies of them
GLANCE = 8  # numbers of a batch on a device that tell it from another: no more of it comes to the host
NO_MEMORY = ("out of memory", "resource_exhausted", "outofmemory")  # what devices say, in whatever library


class Batch(Protocol):
    """Some samples of a stream; a slice of a batch is a batch."""

    first: int
    """Place of the batch in its stream."""
    dropped: int
    """Samples that the stream left out of it."""
    summable: bool
    """Whether samples come whole, so that adding them up costs less than contracting each."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: slice, /) -> Self: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""

    def content(self) -> Iterable[NDArray[Any]] | None:
        """Arrays that differ if the samples do, of samples that are never held, of some; ``None``: it cannot tell."""

    def add_to(self, total: NDArray[Any] | None) -> NDArray[Any]:
        """Add the sum of the samples to ``total``, used up by it; ``None`` stands for zero."""

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Add the gradients of all queries, summed over the samples, to ``sums``, one entry per query and block."""

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients ``(n, *block shape)`` of every sample, sample j with replica ``(at + j) mod R``."""

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""

    def observed_products(self, vectors: Sequence[Array]) -> Array | None:
        """Inner products ``(n, c, c)`` of components over the observed entries of every sample; None where all are."""


def one_by_one(batch: Batch) -> StreamError:
    """The error of samples that are never built."""
    return StreamError(
        f"PaperSolver needs samples one by one, which a {type(batch).__name__} never builds; use RaceSolver."
    )


def missing(index: int) -> SampleError:
    """The error for a sample with entries that are not numbers."""
    return SampleError(
        f'sample {index} contains NaN or Inf; clean it, or give nan_policy="omit", or "zero" for a mean or effect by '
        "least squares (tpca: --nan-policy)."
    )


class DenseBatch:
    """``n`` dense samples of finite real numbers: an array of shape ``(n, d_1, ..., d_k̄)``, on the host C-contiguous.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its samples the stream left out,
    ``places`` the numbers of the samples in the stream, or that of the first.  A stream that has not looked for NaN and
    Inf says so: ``unchecked`` is then the number of the first sample, for the message.  They are looked for when the
    samples are used; in a sum of samples, where they show, that is almost free.

    Where entries are missing they are 0, and ``exposure``, an array like the samples, says how much every entry counts:
    whether it was observed; of a derived sample, what it has of the covariate.  ``None``: all count as one.

    On a device (PyTorch, JAX, CuPy or whatever follows the array API standard) sums stay where the samples are, in
    float32 for samples in float16, bfloat16 and float32, in float64 for those in float64.  To the host come gradients,
    rewards and single numbers.
    """

    summable = True

    def __init__(
        self,
        samples: Any,
        first: int = 0,
        dropped: int = 0,
        unchecked: int | None = None,
        exposure: Any = None,
        places: NDArray[np.intp] | int | None = None,
    ) -> None:
        self._samples = samples
        self.first, self.dropped = first, dropped
        self._places = int(first) if places is None else places
        self._unchecked = unchecked
        self.exposure = exposure

    @property
    def samples(self) -> Any:
        """The samples where they are, in the dtype they are worked on in; all of them finite."""
        self.check()
        return cast(self._samples, working_dtype(self._samples)) if self.on_device else self._samples

    @property
    def on_device(self) -> bool:
        """Whether the samples are arrays of another library than NumPy."""
        return not isinstance(self._samples, np.ndarray)

    def check(self) -> None:
        """Refuse samples with NaN or Inf, if nobody has looked yet."""
        if self._unchecked is None:
            return
        if self.on_device or not _finite(self._samples):
            self.add_to(None)
        self._unchecked = None

    @property
    def complete(self) -> bool:
        """Whether no entry is NaN or Inf; also false where entries are so large that their sum is not finite."""
        return _finite(DenseBatch(self._samples).add_to(None))

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self._samples.shape[1:])

    def __len__(self) -> int:
        return int(self._samples.shape[0])

    def __getitem__(self, some: slice) -> Self:
        start, stop, step = some.indices(len(self))
        some = slice(start, max(start, stop), step)
        part = copy.copy(self)
        part._samples = self._samples[some, ...]
        part.first = part.dropped = 0
        part._unchecked = None if self._unchecked is None else self._unchecked + start
        part.exposure = None if self.exposure is None else self.exposure[some, ...]
        part._places = self._places + start if isinstance(self._places, int) and step == 1 else self.places[some]
        return part

    @property
    def places(self) -> NDArray[np.intp]:
        """The number of every sample in its stream, those that were left out counted."""
        return self._places + np.arange(len(self)) if isinstance(self._places, int) else self._places

    def moved(self, by: int) -> None:
        """The samples come so many later in a stream than was thought."""
        self._places = self._places + by

    def taken(self, rows: NDArray[np.intp]) -> Self:
        """Some of the samples, in another order."""
        exposure = None if self.exposure is None else rows_of(self.exposure, rows)
        return type(self)(rows_of(self.samples, rows), exposure=exposure, places=self.places[rows])

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""
        return bytes_of(self._samples) + (0 if self.exposure is None else bytes_of(self.exposure))

    def content(self) -> list[NDArray[Any]]:
        """The samples, also those that nobody has looked at yet; of a device, how many there are and a few numbers."""
        if not self.on_device:
            return [self._samples]
        count, dims = min(GLANCE, len(self)), self.dims
        rows = [j * (len(self) - 1) // max(1, count - 1) for j in range(count)]
        places = [(row, *((j + 1) * (d - 1) // (count + 1) for d in dims)) for j, row in enumerate(rows)]
        some = [cast(self._samples[place], working_dtype(self._samples)) for place in places]
        numbers = to_host(namespace(self._samples).stack(some)) if some else np.zeros(0)
        return [np.array([len(self), *dims]), numbers]

    def dense_pieces(self, most: int = HELD) -> Iterator[tuple[slice, Array, NDArray[Any] | None]]:
        """The samples as float64 on the host, about ``most`` entries at a time, and which entries were observed."""
        step = max(1, most // max(1, math.prod(self.dims)))
        for start in range(0, len(self), step):
            some = slice(start, min(start + step, len(self)))
            seen = None if self.exposure is None else to_host(self.exposure[some, ...])
            yield some, to_host(self.samples[some, ...]).astype(np.float64, copy=False), seen

    def stored_pieces(self, most: int) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any] | None]]:
        """The samples on the host in float32 or float64, which nobody may have looked at, and what was observed.

        They are those in hand; of a device about ``most`` entries come at a time.
        """
        step = max(1, len(self))
        if self.on_device:
            step = max(1, most // max(1, math.prod(self.dims)))
        for start in range(0, len(self), step):
            rows = slice(start, min(start + step, len(self)))
            seen = None if self.exposure is None else to_host(self.exposure[rows, ...])
            samples = self._samples[rows, ...]
            if self.on_device:
                samples = to_host(cast(samples, working_dtype(samples)))
            yield rows, np.ascontiguousarray(samples), seen

    def add_to(self, total: Any) -> Any:
        """Add the samples to ``total``, which is used up; contraction is linear, so replicas need only this.

        A missing entry makes the total one, too.
        """
        samples = self._samples
        xp, dtype = namespace(samples), working_dtype(samples) if self.on_device else samples.dtype
        total = xp.zeros(self.dims, dtype=dtype, device=samples.device) if total is None else total
        if not len(self):
            return total
        if not self.on_device:
            add_rows(total.reshape(-1), samples.reshape(len(self), -1))
        elif library(samples) in ("jax", "jaxlib"):
            total = _jax_loop()(total, samples)
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # of libraries that are NumPy inside
                total += xp.sum(samples, axis=0, dtype=dtype)
        self._look_in(total)
        return total

    def _look_in(self, total: Any) -> None:
        """Refuse samples with NaN or Inf that show in a sum with all of these, if nobody has looked yet."""
        if self._unchecked is None or _finite(total):
            return
        xp = namespace(self._samples)
        for j in range(len(self)):  # what is too large for a sum is none
            if not bool(to_host(xp.all(xp.isfinite(self._samples[j, ...])))):
                raise missing(self._unchecked + j)

    def weighted_sums(self, weights: Array) -> Array:
        """Sums (c, *dims) of the samples, each times a row of ``weights`` (n, c), in float64 or as the device has."""
        total = self._weighted(self._samples, weights)
        self._look_in(total)
        return total

    @property
    def observed_sums(self) -> Callable[[Array], Array] | None:
        """The same of which entries were observed; ``None`` where all were."""
        exposure = self.exposure
        return None if exposure is None else lambda weights: self._weighted(exposure, weights)

    def _weighted(self, array: Any, weights: Array) -> Array:
        xp = namespace(array)
        flat = xp.reshape(array, (array.shape[0], -1))
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite shows in the sum
            if self.on_device:
                flat = cast(flat, working_dtype(self._samples))
                total = to_host(xp.matmul(to_device(weights.T, flat), flat)).astype(np.float64)
            else:
                total = np.zeros((weights.shape[1], flat.shape[1]))
                step = max(1, len(flat) if flat.dtype == np.float64 else PIECE // max(1, flat.shape[1]))
                for start in range(0, len(flat), step):
                    some = slice(start, start + step)
                    total += weights[some].T @ flat[some].astype(np.float64, copy=False)
        return total.reshape(-1, *self.dims)

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``.

        Of a sample with missing entries, that of least squares over the others; NaN where these say nothing.
        """
        rewards, exposure = _contracted(self.samples, vectors), self.exposure
        if exposure is None:
            return rewards
        if self.on_device:
            exposure = cast(exposure, working_dtype(self._samples))
        return rewards / observed_share(_contracted(exposure, [v**2 for v in vectors]), vectors)

    def observed_products(self, vectors: Sequence[Array]) -> Array | None:
        """Inner products ``(n, c, c)`` of components over the observed entries of every sample; None where all are."""
        exposure = self.exposure
        if exposure is None:
            return None
        if self.on_device:
            exposure = cast(exposure, working_dtype(self._samples))
        return square_of_pairs(_contracted(exposure, pair_vectors(vectors)), len(vectors[0]))

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """The gradients of the sum of the samples."""
        add_gradients_of(self.add_to(None), queries, sums)

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients ``(n, *block shape)`` of the one block asked for, sample j with replica ``(at + j) mod R``.

        The paper feeds every start fresh samples (Algorithm MPSNSGA, steps 1 to 3); this is that access.
        """
        partition, count = query.partition, len(query.replicas[0])
        (block,) = query.blocks
        turns = (at + np.arange(len(self))) % count
        samples = self.samples
        xp = namespace(samples)
        groups = [partition.groups[block], *(group for m, group in enumerate(partition.groups) if m != block)]
        own = permuted(samples, [0, *(1 + n for group in groups for n in group)])
        front = xp.reshape(own, (len(self), partition.sizes[block], -1))
        rows = [w.reshape(count, -1) for w in query.replicas]
        weights = to_device(outer([w for m, w in enumerate(rows) if m != block])[turns], samples)
        gradient = to_host(xp.matmul(front, weights[:, :, None])[..., 0]).astype(np.float64, copy=False)
        if query.deflate:
            gradient += subtract({block: np.zeros((count, partition.sizes[block]))}, rows, query)[block][turns]
        return np.asarray(gradient.reshape(len(self), *partition.shapes[block]))


@functools.cache
def _jax_loop() -> Any:
    """A compiled loop, which adds samples in the memory of their sum: on a processor ten times as fast as ``sum``."""
    import jax

    def add(total: Any, samples: Any) -> Any:
        return jax.lax.fori_loop(0, len(samples), lambda j, sums: sums + samples[j].astype(sums.dtype), total)

    return jax.jit(add, donate_argnums=0)


def refuse_beyond_memory(cause: BaseException, batch: Any) -> None:
    """Say what may fit, if ``cause`` is that the device of a batch has no more memory."""
    told = f"{type(cause).__name__} {cause}".lower()
    if isinstance(batch, DenseBatch) and batch.on_device and any(sign in told for sign in NO_MEMORY):
        raise DeviceMemoryError(
            f"{home_of(batch._samples)} ran out of memory with {len(batch)} samples, {batch.nbytes:,} bytes, at a time "
            f"({one_line(cause)}); give batches of at most {max(1, len(batch) // 2)} samples, or free memory there."
        ) from cause


def pair_vectors(vectors: Sequence[Array]) -> list[Array]:
    """Vectors ``(c², d_m)`` whose outer products are the entrywise products of all pairs of components."""
    count = len(vectors[0])
    return [(rows[:, None, :] * rows[None, :, :]).reshape(count * count, -1) for rows in vectors]


def square_of_pairs(values: Array, count: int) -> Array:
    """What :func:`pair_vectors` gave, ``(n, c²)``, as matrices ``(n, c, c)``."""
    return values.reshape(len(values), count, count)


def observed_share(energies: Array, vectors: Sequence[Array]) -> Array:
    """Share of the squares of rank-one components in the entries observed, ``energies``; NaN for none."""
    whole = np.prod([np.sum(v**2, axis=1) for v in vectors], axis=0)
    return np.where(energies > 0, energies / whole, np.nan)


def copied(array: Any) -> Any:
    """A copy, on the same device."""
    return array.copy() if isinstance(array, np.ndarray) else namespace(array).asarray(array, copy=True)


def _contracted(samples: Any, vectors: Sequence[Array]) -> Array:
    """Every sample contracted with every rank-one component, ``(n, c)``, the last mode first; on a device, there."""
    if isinstance(samples, np.ndarray):
        *others, last = vectors
        part: Any = samples @ last.T.astype(samples.dtype if samples.dtype.kind == "f" else last.dtype)
        for v in reversed(others):
            part = np.einsum("...ic,ci->...c", part, v)
    else:
        *others, last = (to_device(v, samples) for v in vectors)
        part = samples @ last.T
        for v in reversed(others):
            part = namespace(samples).sum(part * v.T, axis=-2)
    return to_host(part).astype(np.float64, copy=False)


def _finite(total: Any) -> bool:
    """Whether a sum shows no NaN or Inf; also false where its entries are too large to be added or multiplied."""
    if isinstance(total, np.ndarray):
        return math.isfinite(np.vdot(total, total))
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(to_host(namespace(total).sum(total))))


SHARED = 2**20  # entries of rows that another thread is woken for: reading them takes some 0.2 ms
WIDE = 2**12  # columns that are read in pieces: of narrow rows, pieces are read more slowly than the whole
COLUMNS = 2**19  # of a piece, at most: the sum of a wider one leaves the cache


def add_rows(total: NDArray[Any], rows: NDArray[Any]) -> None:
    """``total += rows.sum(axis=0)``, in place; ``total`` (m,) and each of ``rows`` (k, m) contiguous.

    Some columns at a time, which two threads may share; the pieces, and so the bits, are the same for one.
    """
    if rows.size < SHARED or len(total) < WIDE:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows in the sum
            for row in rows:
                total += row
        return
    step = min(COLUMNS, -(-len(total) // 2))
    pieces = [slice(first, first + step) for first in range(0, len(total), step)]

    def add(some: slice) -> None:
        piece = total[some]
        with np.errstate(over="ignore", invalid="ignore"):
            for row in rows[:, some]:
                piece += row

    share(add, pieces)
