r"""Sparse samples: contracted entry by entry, so that zeros cost nothing.

Contraction is linear in the entries.  With the modes grouped into blocks, :math:`a_m(e)` the place of entry e in block
m and :math:`y_e` its value, summed over all samples

.. math::
    (\nabla_m R)_a = \sum_{e:\ a_m(e) = a} y_e \prod_{i \ne m} w_i[a_i(e)] ,

one read and one write per entry, replica and block, whatever the dims.  Entries with the same coordinates add up.

One fused loop over the entries, compiled by numba, was 1.2 to 3 times as fast in development as NumPy's ``take``,
products and ``add.at`` in chunks; products with sparse selection matrices also pay for the length of the modes.  numba
is imported, and the loop compiled, when the first sparse batch is contracted.  There is no parallel version: the loop
lets go of the interpreter lock, so that whoever contracts several batches at once can use all cores.

====================  ============================================================
symbol                code
====================  ============================================================
y_e, a_m(e)           ``values``, ``places[m]``
w_m                   ``rows[m]``, one row per replica, read at ``read[m]``
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
from tpca.threads import compiled

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


CHUNK = 2**20  # entries of a temporary copy of replicas; one replica where that is more


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
        """One loop over the entries for every query; replicas that must be converted are, some at a time."""
        if not len(self.values):
            return
        values = np.require(self.values, np.float64, ["C", "W"])
        for query, own in zip(queries, sums, strict=True):
            places, blocks = self._places(query), range(len(query.partition))
            # A block that is alone in being asked for has no part in its gradient: its replicas are not even read.  Of
            # replicas that must be converted, only what is read is, where modes are longer than there are entries.
            alone = query.blocks if len(query.blocks) == 1 else ()
            sizes, every = query.partition.sizes, np.arange(len(values))
            ready = [w.dtype == np.float64 and w.flags.c_contiguous for w in query.replicas]
            whole = [ready[m] or sizes[m] <= len(values) for m in blocks]
            read = places
            if alone or not all(whole):
                read = np.stack([0 * every if m in alone else places[m] if whole[m] else every for m in blocks])
            wanted, nothing = np.isin(blocks, query.blocks), np.empty((0, 0))
            step = max(1, CHUNK // sum(min(size, len(values)) for size in sizes))
            for start in range(0, len(query.replicas[0]), step):
                some = slice(start, start + step)
                count, rows = len(query.replicas[0][some]), []
                for m, w in enumerate(query.replicas):
                    block = np.ones((count, 1)) if m in alone else w[some].reshape(count, -1)
                    block = block if m in alone or whole[m] else block[:, places[m]]
                    rows.append(np.require(block, np.float64, ["C", "W"]))
                targets = tuple(own[m][some].reshape(count, -1) if wanted[m] else nothing for m in blocks)
                compiled(_add_entries)(values, places, read, tuple(rows), targets, wanted)

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

    def sample_gradients(self, query: Query, at: int) -> Array:  # noqa: ARG002
        """Not given: samples are never built."""
        raise one_by_one(self)

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


def _add_entries(
    values: Array, places: Indices, read: Indices, rows: Sequence[Array], targets: Sequence[Array], wanted: NDArray[Any]
) -> None:
    """Every entry, for every replica: what the other blocks say about it goes to its place in each wanted block."""
    blocks = len(rows)  # of a tuple: known to the compiler, which then unrolls the inner loops
    inner, before = np.empty(blocks), np.empty(blocks)
    for r in range(len(rows[0])):
        for e in range(len(values)):
            product = values[e]
            for m in range(blocks):
                before[m] = product
                inner[m] = rows[m][r, read[m, e]]
                product *= inner[m]
            product = 1.0
            for i in range(blocks):
                m = blocks - 1 - i
                if wanted[m]:
                    targets[m][r, places[m, e]] += before[m] * product
                product *= inner[m]
