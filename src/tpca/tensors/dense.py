"""A batch: some samples, in whatever form they come.

Dense samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from tpca.errors import SampleError, StreamError
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import add_gradients_of, outer
from tpca.tensors.kernels import LONG, add_in_pieces
from tpca.tensors.namespaces import bytes_of, cast, namespace, permuted, to_device, to_host, working_dtype
from tpca.tensors.query import Query, subtract


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

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add ``weight`` times the sum of the samples to ``total``, used up by it; ``None`` stands for zero."""

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Add the gradients of all queries, summed over the samples, to ``sums``, one entry per query and block."""

    def sample_gradients(self, query: Query, at: int) -> Array:
        """Gradients ``(n, *block shape)`` of every sample, sample j with replica ``(at + j) mod R``."""

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""


def one_by_one(batch: Batch) -> StreamError:
    """The error of samples that are never built."""
    return StreamError(
        f"PaperSolver needs samples one by one, which a {type(batch).__name__} never builds; use RaceSolver."
    )


PIECE = 2**22  # entries that are worked on at a time
HELD = 2**16  # entries that are looked at sample by sample, with several copies of them
SHORT = 2**30  # entries that a BLAS routine with 32-bit integers can count


def missing(index: int) -> SampleError:
    """The error for a sample with entries that are not numbers."""
    return SampleError(
        f'sample {index} contains NaN or Inf; clean it, or give nan_policy="omit" or "zero" (tpca: --nan-policy).'
    )


class DenseBatch:
    """``n`` dense samples, a C-contiguous array of shape ``(n, d_1, ..., d_k̄)`` of finite real numbers.

    ``first`` is the place of the batch in its stream, ``dropped`` how many of its samples the stream left out.  A
    stream that has not looked for NaN and Inf says so: ``unchecked`` is then the number of the first sample, for the
    message.  They are looked for when the samples are used; in a sum of samples, where they show, that is almost free.

    Where entries are missing they are 0, and ``exposure``, an array like the samples, says how much every entry counts:
    whether it was observed; of a derived sample, what it has of the covariate.  ``None``: all count as one.
    """

    summable = True

    def __init__(
        self,
        samples: NDArray[Any],
        first: int = 0,
        dropped: int = 0,
        unchecked: int | None = None,
        exposure: NDArray[Any] | None = None,
        places: NDArray[np.intp] | None = None,
    ) -> None:
        self._samples = samples
        self.first, self.dropped = first, dropped
        self._place, self._places = first, places
        self._unchecked = unchecked
        self.exposure = exposure

    @property
    def samples(self) -> NDArray[Any]:
        """The samples; all of them finite."""
        self.check()
        return self._samples

    def check(self) -> None:
        """Refuse samples with NaN or Inf, if nobody has looked yet."""
        if self._unchecked is not None:
            _refuse_missing(self._samples, self._unchecked)
            self._unchecked = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self._samples.shape[1:])

    def __len__(self) -> int:
        return int(self._samples.shape[0])

    def __getitem__(self, some: slice) -> DenseBatch:
        start, stop, step = some.indices(len(self))
        some = slice(start, max(start, stop), step)
        unchecked = None if self._unchecked is None else self._unchecked + start
        return DenseBatch(self._samples[some, ...], 0, 0, unchecked, self.exposure_of(some), self.places[some])

    @property
    def places(self) -> NDArray[np.intp]:
        """The number of every sample in its stream, those that were left out counted."""
        return self._place + np.arange(len(self)) if self._places is None else self._places

    def moved(self, by: int) -> None:
        """The samples come so many later in a stream than was thought."""
        self._places = self.places + by

    def taken(self, rows: NDArray[np.intp]) -> DenseBatch:
        """Some of the samples, in another order."""
        return DenseBatch(self.samples[rows], 0, 0, None, self.exposure_of(rows), self.places[rows])

    def weighted_sums(self, weights: Array) -> Array:
        """Sums (c, *dims) of the samples, each times a row of ``weights`` (n, c), in float64."""
        total = weighted_sums_of(self._samples, weights)
        self.look_in(total)
        return total

    @property
    def observed_sums(self) -> Callable[[Array], Array] | None:
        """The same of which entries were observed; ``None`` where all were."""
        exposure = self.exposure
        return None if exposure is None else lambda weights: weighted_sums_of(exposure, weights)

    def dense_pieces(self, most: int = HELD) -> Iterator[tuple[slice, Array, NDArray[Any] | None]]:
        """The samples as float64 on the host, about ``most`` entries at a time, and which entries were observed."""
        step = max(1, most // max(1, math.prod(self.dims)))
        for start in range(0, len(self), step):
            some = slice(start, min(start + step, len(self)))
            seen = None if self.exposure is None else to_host(self.exposure[some, ...])
            yield some, to_host(self.samples[some, ...]).astype(np.float64, copy=False), seen

    def exposure_of(self, some: slice | NDArray[Any]) -> NDArray[Any] | None:
        """How much the entries of some samples count."""
        return None if self.exposure is None else self.exposure[some, ...]

    def copied(self) -> DenseBatch:
        """The same samples, in memory of their own: for those who hold a few longer than the batch they came in."""
        exposure = None if self.exposure is None else copied(self.exposure)
        return DenseBatch(copied(self.samples), exposure=exposure)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples held."""
        return bytes_of(self._samples) + (0 if self.exposure is None else bytes_of(self.exposure))

    def content(self) -> list[NDArray[Any]]:
        """The samples, also those that nobody has looked at yet."""
        return [self._samples]

    def add_to(self, total: NDArray[Any] | None, weight: float = 1.0) -> NDArray[Any]:
        """Add ``weight`` times the samples to ``total``, in place; contraction is linear, so replicas need only this.

        One BLAS product (``total += weights @ X``) reads every entry once.  A missing entry makes the total one, too.
        """
        if total is None:
            make = np.empty if self._samples.size >= LONG else np.zeros
            return self._add_to(make(self._samples.shape[1:], self._samples.dtype), weight, fresh=True)
        return self._add_to(total, weight)

    def _add_to(self, total: NDArray[Any], weight: float, fresh: bool = False) -> NDArray[Any]:
        """The same for a ``total`` that is there; of a ``fresh`` one the entries do not count."""
        if not len(self):
            return total
        flat = self._samples.reshape(len(self), -1)
        sums: NDArray[Any] = total.reshape(-1)
        if self._samples.size >= LONG:
            add_in_pieces(sums, flat, weight, fresh)
        else:
            weights = np.full(len(flat), weight, flat.dtype)
            _blas(flat.dtype)[0](1.0, flat.T, weights, 1.0, sums, overwrite_y=1)
        self.look_in(total)
        return total

    def look_in(self, total: NDArray[Any]) -> None:
        """Refuse samples with NaN or Inf that show in a sum with all of these, if nobody has looked yet."""
        if self._unchecked is not None and not math.isfinite(total_size(total)):
            _refuse_missing(self._samples, self._unchecked)

    def trusted(self) -> DenseBatch:
        """The same samples, not looked at: for who adds them up in parts and looks once, :meth:`look_in` the sum."""
        return DenseBatch(self._samples, exposure=self.exposure)

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``.

        Of a sample with missing entries, that of least squares over the others; NaN where these say nothing.
        """
        rewards = contracted(self.samples, vectors)
        if self.exposure is None:
            return rewards
        return rewards / observed_share(contracted(self.exposure, [v**2 for v in vectors]), vectors)

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


def weighted_sums_of(samples: Any, weights: Array) -> Array:
    """Sums (c, *dims) of samples (n, *dims), each times a row of ``weights`` (n, c), in float64."""
    dims, flat = tuple(samples.shape[1:]), samples.reshape(len(samples), -1)
    total = np.zeros((weights.shape[1], flat.shape[1]))
    step = len(flat) if flat.dtype == np.float64 else max(1, PIECE // max(1, flat.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite shows in the sum
        for start in range(0, len(flat), max(1, step)):
            some = slice(start, start + step)
            total += weights[some].T @ flat[some].astype(np.float64, copy=False)
    return total.reshape(-1, *dims)


def observed_share(energies: Array, vectors: Sequence[Array]) -> Array:
    """Share of the squares of rank-one components in the entries observed, ``energies``; NaN for none."""
    whole = np.prod([np.sum(v**2, axis=1) for v in vectors], axis=0)
    return np.where(energies > 0, energies / whole, np.nan)


def contracted(samples: Any, vectors: Sequence[Array]) -> Array:
    """Every sample contracted with every rank-one component, ``(n, c)``, the last mode first; on a device, there."""
    if not isinstance(samples, np.ndarray):
        return _contracted_there(cast(samples, working_dtype(samples)), vectors)
    *others, last = vectors
    part: NDArray[Any] = samples @ last.T.astype(samples.dtype if samples.dtype.kind == "f" else last.dtype)
    for v in reversed(others):
        part = np.einsum("...ic,ci->...c", part, v)
    return part.astype(np.float64, copy=False)


def _contracted_there(samples: Any, vectors: Sequence[Array]) -> Array:
    xp = namespace(samples)
    *others, last = (to_device(v, samples) for v in vectors)
    part = samples @ last.T
    for v in reversed(others):
        part = xp.sum(part * v.T, axis=-2)
    return to_host(part).astype(np.float64)


def copied(array: Any) -> Any:
    """A copy, on the same device."""
    return array.copy() if isinstance(array, np.ndarray) else namespace(array).asarray(array, copy=True)


@functools.cache
def _blas(dtype: np.dtype[Any]) -> Any:
    """``gemv`` and ``asum`` for one dtype; looking them up takes as long as adding up a small sample."""
    return get_blas_funcs(("gemv", "asum"), dtype=dtype)


def total_size(array: NDArray[Any]) -> float:
    """The sum of the sizes of all entries, in one read; NaN or Inf if there is one, or if it is more than any float."""
    return float(_blas(array.dtype)[1](array.reshape(-1)))


def _refuse_missing(samples: NDArray[Any], first: int) -> None:
    """Raise an error that names the first sample with NaN or Inf, if there is one."""
    if samples.size <= SHORT and math.isfinite(total_size(samples)):
        return  # the sum of all sizes shows a missing entry; if it is only too large, the entries are looked at
    finite = np.isfinite(samples).reshape(len(samples), -1).all(axis=1)
    if not finite.all():
        raise missing(first + int(np.argmin(finite)))
