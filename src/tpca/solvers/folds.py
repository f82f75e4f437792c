r"""What fits of views and of tables share: rows in folds, whitening learnt without the rows that judge it.

A table is one view.

*Folds.*  Every row belongs to one fold.  By default the fold follows from what is in the row
(:func:`tpca.data.rows.row_keys`), so that neither the order of the rows nor a seed matters, and copies stay together.
With ``groups`` whole groups are held out; where neighbouring rows are correlated, folds are runs of neighbours.

*Units* are what is resampled within a fold: rows (copies of a row are one unit), groups, or, where neighbours are
correlated, the series as a whole, which is shifted.  Neighbours are correlated if in at least two views

.. math:: u_t = \langle \tilde x_t, \tilde x_{t+1}\rangle, \qquad z = \bar u\sqrt n/\mathrm{sd}(u) > 3 ,

with columns of mean 0 and variance 1 and pairs of copies left out.  One view whose rows are correlated does no harm:
permuting the rows of the others is still right.

*Whitening.*  With the shrunk covariance :math:`C_s = (1-s)\,C + s\,T = LL^\top` of the rows that are not held out,
:math:`z = L^{-1}(x-\mu)`.  No row is ever whitened: weights on the columns are :math:`w = L^{-\top}v`, and a gradient
among z is :math:`L^{-1}` times one among x.  The target T is :math:`\frac{\mathrm{tr}\,C}{d}\,I`, and
``shrinkage="auto"`` the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010, Eq. 23).  Of less than
ten rows a column much depends on the share, and on the target: the variances of the columns where their units differ, a
multiple of the identity where loud columns are those that matter.  Then both are chosen by folds of the same rows
(:func:`best_shrinkages`).

*Wide views*, of more columns than rows: what is fitted lies in the span of :math:`T^{-1}x` of all rows.  So rows become
their coordinates there, :math:`x = V y` with V from inner products of rows, and weights on columns are V times those on
coordinates.  It is exact; where both targets are tried, V spans both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cholesky, eigh, solve_triangular

from tpca.data.rows import KeptRows, MadeRows, RowsStream, mixed, row_keys
from tpca.engines import Engine, LocalEngine
from tpca.errors import MemoryBudgetError, SampleError, SolverError
from tpca.randomness import generator
from tpca.solvers.options import Callback
from tpca.solvers.rank_one import leading, units
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

A = TypeVar("A", bound=Accumulator)
Outs = NDArray[np.int_]  # for every start the fold that it leaves out
Reader = Callable[[RowsStream], Engine]

MEMORY = 256e6  # bytes of rows that are kept between passes, if nothing else is asked for
MAX_FOLDS = 10
LIKE = 3.0  # z above which neighbours count as correlated: one of 700 views in random order
SHARES = (3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98)  # tried where rows are few
FACTORS = (1 / 30, 0.1, 1 / 3, 1.0, 3.0, 10.0, 30.0)  # of their odds
SAME_SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 0.98)  # for all views
TARGETS = (False, True)  # whether variances are the target, or their mean
ROWS_PER_COLUMN = 10  # fewer rows are few
FEW_COLUMNS, MOST_COLUMNS = 600, 1500  # of all views: one fold judges the shrinkage of more, and none of even more
NONE = -1  # the fold of a fit that leaves nothing out
GROUP_ROWS = 32  # for every column, at least, where a group holds covariances
TOGETHER = 256  # rows whose products are added to a covariance at a time
STILL = 1e-12  # spread of a constant column, in units of its mean, at most; of single precision some of its roundings
LANCZOS = 6  # passes of the iteration that finds leading directions


# Rows in folds --------------------------------------------------------------------------------------------------------


class FirstLook(Accumulator):
    """Keys and numbers of all rows, means of columns, and, of several views, how alike neighbouring rows are."""

    SUMS, LISTS = ("sums", "pairs", "alike"), ("_keys", "_numbers")

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims)
        self._keys: list[NDArray[np.uint64]] = []
        self._numbers: list[NDArray[np.int64]] = []
        self.sums = [np.zeros(d) for d in dims]
        self.pairs, self.alike = 0, np.zeros((len(dims), 2))  # Σ and Σ² of u

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        keys = row_keys(batch.views)
        self._keys.append(keys)
        self._numbers.append(batch.places)
        different = keys[1:] != keys[:-1]
        self.pairs += int(np.count_nonzero(different))
        self.n += len(batch)
        for i, view in enumerate(batch.views if len(batch) else ()):
            mean = view.mean(axis=0, dtype=np.float64)
            self.sums[i] += len(view) * mean
            if len(batch.views) > 1:
                centred = view - mean.astype(view.dtype)
                spread = np.sqrt(np.mean(centred**2, axis=0, dtype=np.float64))
                centred /= np.where(spread > 0, spread, 1).astype(view.dtype)
                u = np.vecdot(centred[1:], centred[:-1])[different].astype(np.float64)
                self.alike[i] += u.sum(), u @ u

    @property
    def keys(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Numbers of the rows, and their keys."""
        return np.concatenate(self._numbers), np.concatenate(self._keys)

    @property
    def means(self) -> list[Array]:
        """The mean of every column."""
        return [total / max(self.n, 1) for total in self.sums]

    @property
    def neighbours(self) -> float:
        """The correlation of neighbouring rows, the second largest of all views; 0 if it may be chance."""
        total, squares = self.alike.T
        z = total / np.sqrt(np.maximum(squares - total**2 / max(self.pairs, 1), 1e-300))
        each = np.where(z > LIKE, total / max(self.pairs, 1) / [len(own) for own in self.sums], 0.0)
        return float(np.sort(each)[-2]) if len(each) > 1 else 0.0


@dataclass(frozen=True)
class Folds:
    """``number``: the fold of every row, by its place in the data; ``count`` and more of it are never held out.

    ``unit`` is what a row belongs to when rows are resampled; ``serial``: a series is shifted, no unit is moved.
    """

    number: NDArray[np.int8]
    unit: NDArray[np.int64]
    count: int
    serial: bool = False

    @classmethod
    def of(cls, look: FirstLook, length: int, share: float, groups: Any = None, serial: bool = False) -> Folds:
        """Folds of a share of the rows each, as many as there can be."""
        count = fold_count(share)
        numbers, keys = look.keys
        number, unit = np.full(length, count, np.int8), np.arange(length)
        if groups is not None:
            # Groups in the order of their labels' keys are dealt out so that folds have about as many rows.
            labels, own = np.unique(np.asarray(groups), return_inverse=True)
            if len(own) != length:
                raise SampleError(f"groups must have one label for each of {length} rows, got {len(own)}.")
            order = np.argsort(mixed(np.arange(len(labels)).astype(np.uint64)))
            middle = np.cumsum(sizes := np.bincount(own, minlength=len(labels))[order]) - sizes / 2
            dealt = np.empty(len(labels), int)
            dealt[order] = np.minimum(middle / length / share, count)
            number, unit = dealt[own].astype(np.int8), own
        elif serial:
            number[:] = np.minimum(np.arange(length) / (length * share), count)
        else:
            number[numbers] = np.minimum(mixed(keys) / share, count)
            unit[numbers] = np.unique(keys, return_inverse=True)[1]
        return cls(number, unit, count, serial)


def fold_count(share: float) -> int:
    """How many folds of a share of the rows there are."""
    return max(1, min(MAX_FOLDS, int(1 / share + 1e-9)))


class FoldedBatch(RowsBatch):
    """Centred rows of all views in the order of their folds: those of fold f are ``held[f]``."""

    def __init__(self, views: Sequence[NDArray[Any]], places: NDArray[np.int64], edges: NDArray[np.int_]) -> None:
        super().__init__(views, places=places)
        self._edges = edges
        self.held = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]

    def __getitem__(self, some: slice) -> FoldedBatch:
        start, stop, _ = some.indices(len(self))
        edges = np.clip(self._edges - start, 0, stop - start)
        part = FoldedBatch([view[some] for view in self.views], self.places[some], edges)
        part.first = self.first
        return part

    def leave_out(self, columns: NDArray[Any], out: Outs) -> Array:
        """Set what is left out to zero, column by column; for every column how many rows stay."""
        counts = np.full(len(out), float(len(self)))
        for fold, rows in enumerate(self.held if np.any(out != NONE) else ()):
            columns[rows, out == fold] = 0
            counts[out == fold] -= rows.stop - rows.start
        return counts


class FoldedRows(MadeRows):
    """A stream of rows: centred, as their coordinates where ``turns`` say so, in the order of folds."""

    def __init__(self, stream: RowsStream, folds: Folds, means: Sequence[Array], turns: Sequence[Array | None]) -> None:
        super().__init__(stream)
        self._number, self._count = folds.number, folds.count
        self._means, self._turns = list(means), list(turns)
        self.dims = tuple(d if t is None else t.shape[1] for d, t in zip(stream.dims, turns, strict=True))

    def made(self, batch: RowsBatch) -> FoldedBatch:
        """One batch."""
        folds = self._number[batch.places]
        order = np.argsort(folds, kind="stable")
        views = []
        for view, mean, turn in zip(batch.views, self._means, self._turns, strict=True):
            rows = view[order] - mean.astype(view.dtype)
            views.append(rows if turn is None else rows @ turn.astype(view.dtype))
        made = FoldedBatch(views, batch.places[order], np.searchsorted(folds[order], np.arange(self._count + 1)))
        made.first, made.dropped = batch.first, batch.dropped
        return made


class Passes:
    """Passes over rows in folds, which are kept here if they fit ``memory``; workers keep what fits themselves."""

    def __init__(self, stream: FoldedRows, reader: Reader, memory: float, callbacks: Sequence[Callback] = ()) -> None:
        self.dims, self.dtype = stream.dims, np.dtype(stream.dtype)
        self.phase, self._callbacks, self._rows = "reading", tuple(callbacks), 0
        self._engine = reader(stream)
        size = (stream.length or 0) * sum(stream.dims) * self.dtype.itemsize
        if isinstance(self._engine, LocalEngine) and size <= memory:
            self._engine = LocalEngine(KeptRows(stream))

    def total(self, blank: A) -> A:
        """An accumulator of all rows."""
        self._engine.rewind()
        whole = self._engine.reduce(blank)
        self._rows += whole.n
        for callback in self._callbacks:
            callback({"phase": self.phase, "samples": self._rows})
        return whole


class HeldScores(Accumulator):
    """Scores of the rows of folds: ``weights[f][i]`` are ``(c, d_i)``; ``joined(f)`` has places and scores."""

    LISTS = ("parts",)

    def __init__(self, weights: Sequence[Sequence[Array]]) -> None:
        super().__init__(list(weights))
        self.parts: list[list[list[NDArray[Any]]]] = []  # of every batch, for every fold: places, scores of every view

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        pairs = list(zip(self.question[0], batch.held, strict=False))
        self.parts.append(
            [
                [batch.places[rows], *(x[rows] @ w.T.astype(x.dtype) for x, w in zip(batch.views, own, strict=True))]
                for own, rows in pairs
            ]
        )
        self.n += len(batch)

    def joined(self, fold: int) -> tuple[NDArray[np.int64], Array]:
        """Places of the rows of a fold, and their scores ``(c, views, n)``."""
        places, *views = (np.concatenate(each) for each in zip(*(part[fold] for part in self.parts), strict=True))
        return places, np.stack([view.T for view in views], axis=1).astype(np.float64)


class Collected(Accumulator):
    """All rows of one view, as they are."""

    LISTS = ("parts",)

    def __init__(self, view: int) -> None:
        super().__init__(view)
        self.parts: list[NDArray[Any]] = []

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        self.parts.append(batch.views[self.question[0]])
        self.n += len(batch)


def turn_of(rows: NDArray[Any], mean: Array, scaled: bool = False) -> Array:
    """V ``(d, r)``, orthonormal, in whose span all centred rows lie; and, if ``scaled``, those divided by variances."""
    centred = rows.astype(np.float64) - mean
    if scaled:
        variances = centred.var(axis=0)
        level = np.where(variances > 1e-12 * variances.mean(), variances, variances.mean())
        centred = np.concatenate([units(centred), units(centred / level)])
    values, left = np.linalg.eigh(centred @ centred.T)
    there = values > values[-1] * len(values) * np.finfo(rows.dtype).eps
    return np.asarray(centred.T @ (left[:, there] / np.sqrt(values[there])))


# Leading directions ---------------------------------------------------------------------------------------------------


class Beside(Accumulator):
    """All views side by side, times weights, times themselves transposed; for F folds ``(F, D, c)``."""

    SUMS = ("image", "mass")

    def __init__(self, weights: Array, offsets: Array, dims: Sequence[int], out: Outs) -> None:
        super().__init__(weights, offsets, dims, out)
        self.image, self.mass = np.zeros(weights.shape), np.zeros(offsets.shape)

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        weights, offsets, dims, out = self.question
        count, width, columns = weights.shape
        cuts = np.cumsum(dims)[:-1]
        flat = np.split(weights.transpose(1, 0, 2).reshape(width, -1), cuts)
        scores: Any = sum(view @ w.astype(view.dtype) for view, w in zip(batch.views, flat, strict=True))
        scores = scores - offsets.reshape(-1).astype(scores.dtype)
        batch.leave_out(scores, np.repeat(out, columns))
        self.mass += scores.sum(axis=0, dtype=np.float64).reshape(count, columns)
        for view, own in zip(batch.views, np.split(self.image, cuts, axis=1), strict=True):
            own += (view.T @ scores).reshape(-1, count, columns).transpose(1, 0, 2)
        self.n += len(batch)


def leading_directions(image: Callable[[Array], Array], shape: tuple[int, int, int], passes: int = LANCZOS) -> Array:
    """Leading eigenvectors ``(F, c, D)`` of F matrices, known by their products with blocks ``(F, D, c)``.

    By block Lanczos iteration: the best within all images so far, which a pass more brings nearer than any number of
    columns more would where noise stands out nearly as much.
    """
    count, width, columns = shape
    rng = generator(0, "leading directions")
    known = images = np.empty((count, width, 0))
    block = np.repeat(np.linalg.qr(rng.standard_normal((width, columns)))[0][None], count, axis=0)
    for _ in range(passes):
        found = image(block)
        known, images = np.concatenate([known, block], axis=2), np.concatenate([images, found], axis=2)
        for _ in range(2):  # twice, for the sake of rounding
            found = np.linalg.qr(found - known @ (known.transpose(0, 2, 1) @ found))[0]
        block = found[:, :, : width - known.shape[2]]
        if not block.shape[2]:
            break
    product = known.transpose(0, 2, 1) @ images
    axes = np.linalg.eigh((product + product.transpose(0, 2, 1)) / 2)[1][:, :, ::-1]
    return np.asarray((known @ axes[:, :, :columns]).transpose(0, 2, 1))


# Whitening ------------------------------------------------------------------------------------------------------------


class FoldMoments(Accumulator):
    """For every fold: rows, their sum, and the sum of xxᵀ, of some ``views`` side by side.

    Rows are centred already, by the mean of all.
    """

    SUMS = ("counts", "sums", "squares")

    def __init__(self, views: Sequence[int], width: int, count: int) -> None:
        super().__init__(views, width, count)
        self.counts = np.zeros(count + 1, np.int64)  # the last are those never held out
        self.sums, self.squares = np.zeros((count + 1, width)), np.zeros((count + 1, width, width))
        self._waiting: list[list[NDArray[Any]]] = [[] for _ in self.counts]

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch; products are done of many rows at a time, as adding d² numbers takes longer."""
        chosen = [batch.views[i] for i in self.question[0]]
        whole = chosen[0] if len(chosen) == 1 else np.concatenate(chosen, axis=1)
        for fold, rows in enumerate([*batch.held, slice(batch.held[-1].stop, len(batch))]):
            self._waiting[fold].append(whole[rows])
            if sum(map(len, self._waiting[fold])) >= TOGETHER:
                self._multiply(fold)
        self.n += len(batch)

    def _multiply(self, fold: int) -> None:
        rows = np.concatenate(self._waiting[fold])
        self._waiting[fold] = []
        self.counts[fold] += len(rows)
        self.sums[fold] += rows.sum(axis=0, dtype=np.float64)
        self.squares[fold] += rows.T @ rows

    def close(self) -> None:
        """Nothing waits any more."""
        for fold, waiting in enumerate(self._waiting):
            if waiting:
                self._multiply(fold)

    finish = close

    def least_samples(self, sum_bytes: int | None) -> int:  # noqa: ARG002
        """Few groups: each holds d² numbers a fold."""
        return int(GROUP_ROWS * self.question[1])

    def of(self, folds: Sequence[int]) -> tuple[int, Array, Array]:
        """Count, mean and covariance of the rows of some folds."""
        some = list(folds)
        n = int(self.counts[some].sum())
        mean = self.sums[some].sum(axis=0) / max(n, 1)
        covariance = self.squares[some[0]].copy()
        for fold in some[1:]:
            covariance += self.squares[fold]
        covariance -= n * np.multiply.outer(mean, mean)
        covariance /= max(n - 1, 1)
        return n, mean, covariance

    def without(self, *out: int) -> list[int]:
        """All folds but some, the rows that are never held out among them."""
        return [fold for fold in range(len(self.counts)) if fold not in out]


@dataclass(frozen=True)
class Whitening:
    """Of one view: z = L⁻¹(x - ``mean``), with L ``lower``, which has the precision of the rows."""

    mean: Array
    lower: NDArray[Any]

    def weights(self, vectors: Array) -> Array:
        """Weights ``(c, d)`` on columns of directions ``(c, d)`` among z."""
        return self._solved(vectors, 1)

    def whitened(self, gradients: Array) -> Array:
        """Gradients ``(c, d)`` among z of those among the columns."""
        return self._solved(gradients, 0)

    def directions(self, weights: Array) -> Array:
        """Directions ``(c, d)`` among z of weights on columns."""
        return np.asarray(weights @ self.lower, dtype=np.float64)

    def _solved(self, rows: Array, transposed: Literal[0, 1]) -> Array:
        lower: Any = self.lower
        solved = solve_triangular(lower, rows.T.astype(lower.dtype), trans=transposed, lower=True, check_finite=False)
        return np.asarray(solved.T, dtype=np.float64)

    @classmethod
    def learn(
        cls,
        mean: Array,
        covariance: Array,
        n: int,
        share: float | str,
        of: str,
        still: NDArray[np.bool_] | None = None,
        target: Array | None = None,
        dtype: Any = np.float64,
    ) -> Whitening:
        """From the covariance of n rows, which is used up; ``still`` columns are constant and in the way.

        The ``target`` is a multiple of the identity by default.
        """
        still = np.zeros(len(mean), bool) if still is None else still
        if n < 2:
            raise SampleError(f"at least two rows are needed to whiten {of}, got {n}.")
        if still.all():
            raise SampleError(f"{of} is constant: all its rows are the same; leave it out.")
        share = auto_shrinkage(covariance, n) if isinstance(share, str) else float(share)
        level = np.trace(covariance) / len(mean)
        covariance *= 1 - share
        if target is None:
            covariance[np.diag_indices(len(mean))] += share * level
        else:
            covariance += share * target
        try:
            lower = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
            if np.any(np.diag(lower) <= 1e-7 * np.linalg.norm(lower, axis=1)) or (still.any() and share == 0):
                raise LinAlgError
        except LinAlgError:
            why = f"{n} rows cannot tell {len(mean)} columns apart"
            why = f"column {int(np.argmax(still))} is constant" if still.any() else why
            way_out = "leave such columns out, or set shrinkage above 0"
            raise SampleError(f"{of} cannot be whitened: {why}; {way_out}.") from None
        return cls(mean, lower.astype(dtype, copy=False))


def learn_whitenings(
    passes: Passes, look: FirstLook, count: int, turns: Sequence[Array | None], shrinkage: float | str, out: list[int]
) -> tuple[dict[int, list[Whitening]], list[Array]]:
    """For every fold in ``out``, which is left out, a whitening of every view; and variances of all columns.

    Covariances of a view are given up before those of the next are added up.  Where rows are few, those of all views
    side by side choose the shrinkage.
    """
    dims, few = passes.dims, shrinkage == "auto" and is_few(look.n, passes.dims)
    parts = [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *dims]))] if few else [slice(None)] * len(dims)
    found, variances = {fold: list[Whitening]() for fold in out}, list[Array]()
    precision = max(STILL, 16 * float(np.finfo(passes.dtype).eps))
    moments, shares = None, {fold: [Shrinkage(shrinkage)] * len(dims) for fold in out}
    if few:
        moments = passes.total(FoldMoments(range(len(dims)), sum(dims), count))
        shares = {fold: best_shrinkages(moments, turns, dims, fold) for fold in out}
    for i, (part, turn, mean) in enumerate(zip(parts, turns, look.means, strict=True)):
        moments = moments if few else passes.total(FoldMoments((i,), dims[i], count))
        assert moments is not None
        for fold in out:
            n, shift, covariance = moments.of(moments.without(fold))
            covariance = covariance[part, part].copy() if few else covariance
            own = column_variances(covariance, turn)
            if fold == NONE:
                variances.append(own)
            still = own <= (precision * mean) ** 2 if turn is None else None
            share, scaled = shares[fold][i]
            target = target_of(covariance, turn, True).inside if scaled else None
            name = f"view {i}" if len(dims) > 1 else "the table"
            white = Whitening.learn(shift[part], covariance, n, share, name, still, target, passes.dtype)
            found[fold].append(white)
        moments = moments if few else None
    return found, variances


class Shrinkage(NamedTuple):
    """The share of the target in a covariance, and whether that is the variances of the columns, or their mean."""

    share: Any
    own: bool = False

    def times(self, factor: float) -> Shrinkage:
        """With so many times the odds."""
        return Shrinkage(factor * self.share / (1 - self.share + factor * self.share), self.own)


class Target(NamedTuple):
    """``levels`` of all columns, and T ``inside`` the coordinates of a view."""

    levels: Array
    inside: Array


def is_few(n: int, dims: Sequence[int]) -> bool:
    """Whether n rows are so few that their shrinkage is to be chosen by folds, if that can be afforded."""
    return len(dims) > 1 and n < ROWS_PER_COLUMN * max(dims) and sum(dims) <= MOST_COLUMNS


def column_variances(covariance: Array, turn: Array | None) -> Array:
    """Of the columns of a view, whose covariance may be that of coordinates."""
    return np.array(np.diag(covariance) if turn is None else np.einsum("dr,dr->d", turn @ covariance, turn))


def target_of(covariance: Array, turn: Array | None, own: bool) -> Target:
    """The variances of the columns if ``own``, else their mean for all."""
    variances = column_variances(covariance, turn)
    levels = np.full(len(variances), max(variances.mean(), 1e-300))
    levels = np.where(variances > 1e-12 * levels, variances, levels) if own else levels
    return Target(levels, np.diag(levels) if turn is None else (turn.T * levels) @ turn)


def auto_shrinkage(covariance: Array, count: int) -> float:
    """Oracle approximating shrinkage: between 0 and 1, falling with the number of rows."""
    width = len(covariance)
    squares, trace = float(np.sum(covariance**2)), float(np.trace(covariance))
    top = (1 - 2 / width) * squares + trace**2
    bottom = (count + 1 - 2 / width) * (squares - trace**2 / width)
    return 1.0 if bottom <= 0 else min(1.0, top / bottom)


def best_shrinkages(moments: FoldMoments, turns: Sequence[Array | None], dims: Sequence[int], out: int) -> Any:
    r"""For every view, from the rows without the fold ``out``, of which one fold more is left out in turn.

    Of three kinds: the same share for all views, towards the identity or towards the variances; and for each view
    what makes the rows left out most likely,

    .. math:: -2\log L = n\log\det C_s + \sum_j x_j^\top C_s^{-1} x_j ,

    with one factor for the odds s/(1-s) of all.  That is chosen for which views are most correlated in pairs there,
    along the directions of the largest sum of covariances of all pairs, of two views the canonical ones.  They are
    few on purpose: the best of many pairs of shares was worse in planted cases, as it is best by chance.
    """
    parts = [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *dims]))]
    inner = [fold for fold in range(len(moments.counts) - 1) if fold != out and moments.counts[fold] > 2]
    likely = [dict.fromkeys(itertools.starmap(Shrinkage, itertools.product(SHARES, TARGETS)), 0.0) for _ in dims]
    folds = []
    for fold in inner[:1] if sum(dims) > FEW_COLUMNS else inner:
        (_, mean, seen), (n, others, judged) = moments.of(moments.without(out, fold)), moments.of([fold])
        judged *= n - 1
        shift, axes = others - mean, {}
        for (view, part), own in itertools.product(enumerate(parts), TARGETS):
            # Axes A with AᵀTA = I and AᵀCA = Λ, in which whitening is a scaling: (1-s)Λ + s.
            target = target_of(seen[part, part], turns[view], own)
            values, axes[view, own] = eigh(seen[part, part], target.inside)
            moment = judged[part, part] + n * np.multiply.outer(shift[part], shift[part])
            squares = np.vecdot(axes[view, own].T @ moment, axes[view, own].T)
            for s in SHARES:
                levels = (1 - s) * np.maximum(values, 0) + s
                outside = (len(target.levels) - len(values)) * math.log(s)
                log_det = np.log(target.levels).sum() + np.log(levels).sum() + outside
                likely[view][Shrinkage(s, own)] -= n * log_det + np.sum(squares / levels)
        folds.append((seen, judged, axes))
    best = [max(each, key=each.__getitem__) for each in likely]
    kinds = [[[one.times(factor) for one in best] for factor in FACTORS]]
    kinds += [[[Shrinkage(share, own)] * len(dims) for share in SAME_SHARES] for own in TARGETS]
    reached = [_correlations(kind, folds, parts) for kind in kinds]
    kind = int(np.argmax([max(own) for own in reached]))
    return kinds[kind][int(np.argmax(reached[kind]))]


def _correlations(tried: Sequence[Sequence[Shrinkage]], folds: Sequence[Any], parts: Sequence[slice]) -> list[float]:
    """Sums of correlations of pairs of views over all folds, of shrinkages with the same targets."""
    squares = np.zeros((len(tried), len(parts), len(parts)))
    for seen, judged, axes in folds:
        axis = block_diag(*(axes[view, one.own] for view, one in enumerate(tried[0])))
        inside = axis.T @ seen @ axis
        spectrum = np.maximum(np.diag(inside), 0)
        for part in parts:
            inside[part, part] = 0
        for square, shrinkages in zip(squares, tried, strict=True):
            shares = np.repeat([one.share for one in shrinkages], [part.stop - part.start for part in parts])
            scale = 1 / np.sqrt((1 - shares) * spectrum + shares)
            _, (top,) = leading(scale[:, None] * inside * scale + np.eye(len(scale)), 1, generator(0, "shares"))
            weights = np.stack([axis[:, part] @ (scale * top)[part] for part in parts])
            square += weights @ judged @ weights.T
    spread = np.sqrt(np.maximum(np.diagonal(squares, axis1=1, axis2=2), 1e-300))
    return [float(np.sum(np.triu(one / np.outer(by, by), 1))) for one, by in zip(squares, spread, strict=True)]


def check_shrinkage(name: str, value: float | str) -> float | str:
    """A share, or ``"auto"``."""
    if value != "auto" and (isinstance(value, str) or not 0 <= value <= 1):
        raise SolverError(f"{name} must lie between 0 and 1, or be 'auto', got {value!r}.")
    return value


def refuse_memory(needed: float, limit: float | None, what: str) -> None:
    """Refuse what takes more than ``limit``."""
    if limit is not None and needed > limit:
        raise MemoryBudgetError(f"{what} take {needed / 1e6:.3g} MB, memory_limit is {limit / 1e6:.3g} MB; raise it.")
