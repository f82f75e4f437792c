r"""Sparse samples: contracted entry by entry, so that zeros cost nothing.

Contraction is linear in the entries.  With the modes grouped into blocks, :math:`a_m(e)` the place of entry e in block
m and :math:`y_e` its value, summed over all samples

.. math::
    (\nabla_m R)_a = \sum_{e:\ a_m(e) = a} y_e \prod_{i \ne m} w_i[a_i(e)] ,

one read and one write per entry, replica and block, whatever the dims.  Entries with the same coordinates add up.

Products are formed for ``CHUNK`` numbers at a time, which stay in the cache, and added up by NumPy's ``bincount``.
Where a block is longer than there are entries, only the places that occur are counted.  With a fused loop that numba
compiled, whole races on sparse samples took from 1.1 times as long to 0.7 of the time (seven kinds of data, one BLAS
thread), and numba with LLVM was two fifths of a plain install.  With products of selection matrices (``scipy.sparse``)
races took 1.2 to 1.4 times as long as with that loop.

====================  ============================================================
symbol                code
====================  ============================================================
y_e, a_m(e)           ``values``, ``places[m]``
w_m[a_m(e)]           ``factors[m]``, one row per replica
====================  ============================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.tensors.blocks import Array
from tpca.tensors.contraction import Query
from tpca.tensors.dense import one_by_one

Indices = NDArray[np.intp]


def checked_parts(item: Any, j: int) -> tuple[Indices, NDArray[Any], tuple[int, ...]]:
    """Return coordinates, values and shape of sample ``j`` as arrays that fit together, or refuse them."""
    item = item.tocoo() if hasattr(item, "tocoo") and not hasattr(item, "coords") else item
    if not isinstance(item, tuple):
        if not all(hasattr(item, name) for name in ("coords", "data", "shape")):
            shape = getattr(item, "shape", None)
            what = f"{type(item).__name__}{'' if shape is None else f' of shape {shape}'}"
            raise SampleError(
                f"samples must have coords, data and shape, got {what} at sample {j}; "
                "give scipy.sparse or sparse.COO arrays, or tuples (coords, values, shape)."
            )
        if (fill := getattr(item, "fill_value", 0)) != 0:
            raise SampleError(
                f"entries that are not stored must be 0, got fill_value {fill} at sample {j}; subtract it first."
            )
        item = item.coords, item.data, item.shape
    coords, values, shape = item
    dims, places, entries = tuple(int(d) for d in shape), np.asarray(coords), np.asarray(values)
    if len(dims) < 2:
        raise SampleError(f"samples must have at least 2 axes, got shape {dims} at sample {j}; vectors are averaged.")
    if entries.dtype.kind not in "fiub":
        raise SampleError(
            f"samples must be real numbers, got dtype {entries.dtype} at sample {j}; convert them to float first."
        )
    if entries.ndim != 1 or places.shape != (len(dims), entries.size):
        raise SampleError(
            f"coords must have shape (axes, entries) = ({len(dims)}, {entries.size}), got {places.shape} with "
            f"values of shape {entries.shape} at sample {j}; give one column of coords per value."
        )
    if places.dtype.kind not in "iu" and places.size:
        raise SampleError(f"coords must be integers, got dtype {places.dtype} at sample {j}; convert them first.")
    outside = (places < 0) | (places >= np.array(dims)[:, None])
    if outside.any():
        worst = tuple(int(c) for c in places[:, int(np.argmax(outside.any(axis=0)))])
        raise SampleError(
            f"coords must lie inside shape {dims}, got {worst} at sample {j}; count from 0, or give a larger shape."
        )
    if not np.isfinite(entries).all():
        raise SampleError(f"sample {j} contains NaN or Inf; clean it, or leave such entries out.")
    wide = entries.dtype.itemsize > 4 or (entries.dtype.kind != "f" and entries.dtype.itemsize == 4)
    return places.astype(np.intp), entries.astype(np.float64 if wide else np.float32), dims


CHUNK = 2**16  # numbers of replicas at the places of entries that are formed at a time; one replica where that is more


class SparseBatch:
    """``n`` sparse samples of shape ``dims``; entry e is ``values[e]``, at ``coords[:, e]`` of sample ``sample[e]``.

    ``sample`` is sorted; entries with the same coordinates add up.  ``first`` is the place of the batch in its stream,
    ``dropped`` how many of its samples the stream left out.
    """

    summable = False

    def __init__(
        self,
        coords: NDArray[np.integer[Any]],
        values: NDArray[Any],
        sample: NDArray[np.integer[Any]],
        n: int,
        dims: Sequence[int],
        first: int = 0,
        dropped: int = 0,
    ) -> None:
        self.coords, self.values, self.sample = coords, values, sample
        self.n, self.dims = n, tuple(dims)
        self.first, self.dropped = first, dropped
        self._place = first

    @property
    def places(self) -> NDArray[np.intp]:
        """The number of every sample in its stream."""
        return self._place + np.arange(self.n)

    def moved(self, by: int) -> None:
        """The samples come so many later in a stream than was thought."""
        self._place += by

    observed_sums = None

    @classmethod
    def from_coo(cls, samples: Iterable[Any]) -> SparseBatch:
        """Samples as ``scipy.sparse`` or ``sparse.COO`` has them, or triples: coords (k, nnz), values and shape."""
        parts = [checked_parts(item, j) for j, item in enumerate(samples)]
        if not parts:
            raise SampleError("a batch needs at least one sample to know its shape, got none; leave empty batches out.")
        dims = parts[0][2]
        for j, (_, _, shape) in enumerate(parts):
            if shape != dims:
                raise SampleError(
                    f"samples must have shape {dims} as the first one, got {shape} at sample {j}; "
                    "all samples of a stream share one shape."
                )
        coords = np.concatenate([part[0] for part in parts], axis=1)
        values = np.concatenate([part[1] for part in parts])
        sample = np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])
        return cls(coords, values, sample, len(parts), dims)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, some: slice) -> SparseBatch:
        start, stop, step = some.indices(self.n)
        if step != 1:
            raise SampleError(f"a slice of a sparse batch takes neighbours, got step {step}; use step 1.")
        stop = max(start, stop)
        left, right = np.searchsorted(self.sample, [start, stop])
        inside = slice(int(left), int(right))
        sample = self.sample[inside] - start
        own = SparseBatch(self.coords[:, inside], self.values[inside], sample, stop - start, self.dims, self.first)
        own._place = self._place + start
        return own

    @property
    def nbytes(self) -> int:
        """Bytes of the entries held."""
        return sum(array.nbytes for array in self.content())

    def content(self) -> list[NDArray[Any]]:
        """The entries and where they are."""
        return [self.coords, self.values, self.sample]

    def add_gradients(self, queries: Sequence[Query], sums: Sequence[dict[int, Array]]) -> None:
        """Add the gradients of all queries, some replicas at a time."""
        if not len(self.values):
            return
        values = self.values.astype(np.float64, copy=False)
        for query, gradients in zip(queries, sums, strict=True):
            places = self._places(query)
            blocks = range(len(places))
            counters = {m: Counter(places[m], query.partition.sizes[m]) for m in query.blocks}
            # A block that is alone in being asked for has no part in its gradient: its replicas are not even read.
            alone = query.blocks if len(query.blocks) == 1 else ()
            step = max(1, CHUNK // places.size)
            for start in range(0, len(query.replicas[0]), step):
                some = slice(start, start + step)
                factors = {m: at_places(query.replicas[m][some], places[m]) for m in blocks if m not in alone}
                for m, counter in counters.items():
                    total = gradients[m][some]
                    products = np.broadcast_to(values, (len(total), len(values)))
                    for other, factor in factors.items():
                        if other != m:
                            products = products * factor
                    counter.add(total.reshape(len(total), -1), products)

    def add_to(self, total: NDArray[Any] | None) -> NDArray[Any]:
        """Add the sum of the samples to ``total``."""
        total = np.zeros(self.dims) if total is None else total
        np.add.at(total, tuple(self.coords), self.values)
        return total

    def weighted_sums(self, weights: Array) -> Array:
        """Sums (c, *dims) of the samples, each times a row of ``weights`` (n, c)."""
        total = np.zeros((weights.shape[1], *self.dims))
        for own, column in zip(total, weights.T, strict=True):
            np.add.at(own, tuple(self.coords), column[self.sample] * self.values)
        return total

    def dense_pieces(self, most: int = 2**16) -> Iterator[tuple[slice, Array, None]]:
        """The samples in full, about ``most`` entries at a time."""
        step = max(1, most // max(1, math.prod(self.dims)))
        for start in range(0, self.n, step):
            some = self[start : start + step]
            whole = np.zeros((some.n, *self.dims))
            np.add.at(whole, (some.sample, *some.coords), some.values)
            yield slice(start, start + some.n), whole, None

    def stored_pieces(self, most: int) -> Iterator[tuple[slice, NDArray[Any], None]]:
        """The samples in full, in the dtype of their values, about ``most`` entries at a time."""
        for rows, samples, seen in self.dense_pieces(most):
            yield rows, samples.astype(self.values.dtype, copy=False), seen

    def check(self) -> None:
        """Nothing is left to be looked for: values were checked when they came."""

    def sample_gradients(self, query: Query, at: int) -> Array:  # noqa: ARG002
        """Not given: samples are never built."""
        raise one_by_one(self)

    def observed_products(self, vectors: Sequence[Array]) -> Array | None:  # noqa: ARG002
        """None: all entries are observed, and most are zero."""
        return None

    def scores(self, vectors: Sequence[Array]) -> Array:
        """Reward ``(n, c)`` of every sample with every rank-one component; ``vectors[i]`` is ``(c, d_i)``."""
        count = len(vectors[0])
        scores = np.empty((self.n, count))
        for c in range(count):
            products = self.values.astype(np.float64)
            for places, v in zip(self.coords, vectors, strict=True):
                products *= v[c][places]
            scores[:, c] = np.bincount(self.sample, products, minlength=self.n)
        return scores

    def _places(self, query: Query) -> Indices:
        """Where in each block every entry belongs, ``(blocks, entries)``."""
        places = np.empty((len(query.partition), len(self.values)), np.intp)
        for own, group, shape in zip(places, query.partition.groups, query.partition.shapes, strict=True):
            own[:] = self.coords[group[0]]
            for mode, length in zip(group[1:], shape[1:], strict=True):
                own *= length
                own += self.coords[mode]
        return places


class Counter:
    """Sums of numbers of entries over those at the same place, of which there are ``size``."""

    def __init__(self, places: Indices, size: int) -> None:
        self._there: Any = slice(None)
        self._places = places
        self._size = size
        if size > len(places):
            self._there, self._places = np.unique(places, return_inverse=True)
            self._size = len(self._there)

    def add(self, totals: Array, numbers: Array) -> None:
        """Add rows of ``numbers`` ``(R, entries)`` to rows of ``totals`` ``(R, size)``."""
        for total, row in zip(totals, numbers, strict=True):
            total[self._there] += np.bincount(self._places, row, self._size)


def at_places(replicas: NDArray[Any], places: Indices) -> Array:
    """Replicas ``(R, *block shape)`` at the places of entries, ``(R, entries)``."""
    rows = replicas.reshape(len(replicas), -1)
    if rows.shape[1] <= len(places):
        rows = rows.astype(np.float64, copy=False)
    return np.take(rows, places, axis=1).astype(np.float64, copy=False)
