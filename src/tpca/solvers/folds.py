r"""Rows of views in folds, and whitening learnt without the rows that judge it.

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
among z is :math:`L^{-1}` times one among x.  The target is :math:`T = \frac{\mathrm{tr}\,C}{d}\,I`, and
``shrinkage="auto"`` the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010, Eq. 23).  Of less than
ten rows a column much depends on the share, and "auto" has the variances of the columns as its target, whose units then
hardly matter, with the share of the standardised columns.  (Of more rows the share is small, and a multiple of the
identity keeps columns that hardly vary from being blown up; of few rows a floor does.)  In a moment of m views a row
that is far out counts by the product of m - 1 other scores, each with its own error of whitening.  So for more than two
views, of few rows, the share s becomes :math:`1 - (1-s)^{m-1}`, and the floor is the median variance: columns that vary
in some rows only, like pixels near an edge, are not blown up.  No share suits all data (``docs/views.md``, few rows).

*Wide views*, of more columns than rows: what is fitted lies in the span of :math:`T^{-1}x` of all rows.  So rows become
their coordinates in an orthonormal basis of the span of all centred rows, standardised first if T is the variances.
There T is a multiple of the identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tpca.data.rows import KeptRows, MadeRows, RowsStream, mixed, row_keys
from tpca.engines import Engine, LocalEngine
from tpca.errors import MemoryBudgetError, SampleError
from tpca.randomness import generator
from tpca.solvers.options import Callback
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.rows import BatchLists, BatchSums, OfBatch, RowsBatch

A = TypeVar("A", bound=Accumulator)
Outs = NDArray[np.int_]  # for every start the fold that it leaves out
Reader = Callable[[RowsStream], Engine]

MEMORY = 256e6  # bytes of rows that are kept between passes, if nothing else is asked for
MAX_FOLDS = 10
LIKE = 3.0  # z above which neighbours count as correlated: one of 700 views in random order
ROWS_PER_COLUMN = 10  # fewer rows are few
FLOOR = 0.1  # of the median variance: the least in the target of two views; of more views the median itself is
NONE = -1  # the fold of a fit that leaves nothing out
GROUP_ROWS = 32  # for every column, at least, where a group holds covariances
STILL = 1e-12  # spread of a constant column, in units of its mean, at most; of single precision some of its roundings
LANCZOS = 6  # passes of the iteration that finds leading directions


# Rows in folds --------------------------------------------------------------------------------------------------------


class FirstLook(Accumulator):
    """Keys and numbers of all rows, means of columns, and how alike neighbouring rows are."""

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
        return float(np.sort(each)[-2])


def fold_count(share: float) -> int:
    """How many folds of a share of the rows there are."""
    return max(1, min(MAX_FOLDS, int(1 / share + 1e-9)))


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


class Turn(NamedTuple):
    """Coordinates of wide rows: x ``down`` ``(d, r)``, also that of weights on columns; and back by ``up``."""

    down: Array
    up: Array

    @classmethod
    def of(cls, rows: NDArray[Any], mean: Array, standardised: bool) -> Turn:
        """In an orthonormal basis of the span of all centred rows, columns being standardised first or not."""
        centred = rows.astype(np.float64) - mean
        scale = np.ones(len(mean))
        if standardised:
            variances = centred.var(axis=0)
            scale = np.sqrt(np.where(variances > 1e-12 * variances.mean(), variances, max(variances.mean(), 1e-300)))
            centred /= scale
        values, left = np.linalg.eigh(centred @ centred.T)
        there = values > values[-1] * len(values) * np.finfo(rows.dtype).eps
        basis = centred.T @ (left[:, there] / np.sqrt(values[there]))
        return cls(basis / scale[:, None], basis * scale[:, None])


Turns = Sequence[Turn | None]  # of every view


class FoldedRows(MadeRows):
    """A stream of rows: centred, as their coordinates where ``turns`` say so, in the order of folds."""

    def __init__(self, stream: RowsStream, folds: Folds, means: Sequence[Array], turns: Turns) -> None:
        super().__init__(stream)
        self._number, self._count, self._means = folds.number, folds.count, list(means)
        self._turns = [None if turn is None else turn.down for turn in turns]
        self.dims = tuple(d if t is None else t.shape[1] for d, t in zip(stream.dims, self._turns, strict=True))

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

    def sums(self, function: OfBatch, *arguments: Any) -> list[Array]:
        """Sums of what a function says of batches."""
        return list(self.total(BatchSums(function, *arguments)).sums)


def held_scores(batch: FoldedBatch, weights: Sequence[Sequence[Array]]) -> list[NDArray[Any]]:
    """Places of the rows of all folds, and scores ``(n, c)`` of every view by the ``weights`` of their fold."""
    found = [batch.places[: batch.held[-1].stop]]
    for i, view in enumerate(batch.views):
        each = [view[rows] @ own[i].T.astype(view.dtype) for own, rows in zip(weights, batch.held, strict=True)]
        found.append(np.concatenate(each))
    return found


def joined_scores(passes: Passes, weights: Sequence[Sequence[Array]]) -> tuple[NDArray[np.int64], Array]:
    """The same of all rows that are ever held out: places ``(n,)`` and scores ``(c, views, n)``."""
    places, *views = passes.total(BatchLists(held_scores, list(weights))).joined()
    return places, np.stack([view.T for view in views], axis=1).astype(np.float64)


def contracted(
    batch: FoldedBatch, weights: Sequence[Array], offsets: Sequence[Array], out: Outs, mode: int | None
) -> list[Array]:
    """View ``mode`` times products of the scores of all others; without a mode, all views times sums of all scores.

    For S starts with ``weights[i]`` ``(S, d_i)``, of scores x·w - ``offsets[i]``; ``out`` has the fold that each leaves
    out.  First come sums of the products alone, and the rows that count.
    """
    factors: Any = None
    for i, (view, w, offset) in enumerate(zip(batch.views, weights, offsets, strict=True)):
        if i != mode:
            own = view @ w.T.astype(view.dtype) - offset.astype(view.dtype)
            factors = own if factors is None else factors + own if mode is None else factors * own
    seen = batch.leave_out(factors, out)
    asked = batch.views if mode is None else batch.views[mode : mode + 1]
    return [factors.sum(axis=0, dtype=np.float64), seen, *(factors.T @ view for view in asked)]


def leading_directions(image: Callable[[Array], Array], shape: tuple[int, int, int]) -> Array:
    """Leading eigenvectors ``(F, c, D)`` of F matrices, known by their products with blocks of rows ``(F, c, D)``.

    By block Lanczos iteration: the best within all images so far, which a pass more brings nearer than any number of
    columns more would where noise stands out nearly as much.
    """
    count, columns, width = shape
    rng = generator(0, "leading directions")
    known = images = np.empty((count, width, 0))
    block = np.repeat(np.linalg.qr(rng.standard_normal((width, columns)))[0][None], count, axis=0)
    for _ in range(LANCZOS):
        found = image(block.transpose(0, 2, 1)).transpose(0, 2, 1)
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
    """For every fold, of one view: rows, their sum, and the sum of xxᵀ; all are centred already, by the mean of all."""

    SUMS = ("counts", "sums", "squares")

    def __init__(self, view: int, width: int, count: int) -> None:
        super().__init__(view, width, count)
        self.counts = np.zeros(count + 1, np.int64)  # the last are those never held out
        self.sums, self.squares = np.zeros((count + 1, width)), np.zeros((count + 1, width, width))

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        view = batch.views[self.question[0]]
        for fold, some in enumerate([*batch.held, slice(batch.held[-1].stop, len(batch))]):
            rows = view[some]
            self.counts[fold] += len(rows)
            self.sums[fold] += rows.sum(axis=0, dtype=np.float64)
            self.squares[fold] += rows.T @ rows
        self.n += len(batch)

    def least_samples(self, sum_bytes: int | None) -> int:  # noqa: ARG002
        """Few groups: each holds d² numbers a fold."""
        return int(GROUP_ROWS * self.question[1])

    def without(self, out: int) -> tuple[int, Array, Array]:
        """Count, mean and covariance of all rows but those of a fold."""
        some = [fold for fold in range(len(self.counts)) if fold != out]
        n = int(self.counts[some].sum())
        mean = self.sums[some].sum(axis=0) / max(n, 1)
        covariance = self.squares[some[0]].copy()
        for fold in some[1:]:
            covariance += self.squares[fold]
        covariance -= n * np.multiply.outer(mean, mean)
        covariance /= max(n - 1, 1)
        return n, mean, covariance


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
        share: float,
        target: Array,
        of: str,
        still: NDArray[np.bool_],
        dtype: Any = np.float64,
    ) -> Whitening:
        """From the covariance of n rows, which is used up, and the diagonal of T; ``still`` columns are constant."""
        if n < 2:
            raise SampleError(f"at least two rows are needed to whiten {of}, got {n}.")
        if still.all():
            raise SampleError(f"{of} is constant: all its rows are the same; leave it out.")
        covariance *= 1 - share
        covariance[np.diag_indices(len(target))] += share * target
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


def auto_shrinkage(covariance: Array, target: Array, n: int, columns: int) -> float:
    """Oracle approximating shrinkage in units of the ``target``: between 0 and 1, falling with the number of rows.

    Rows may be coordinates of more ``columns``.
    """
    if not target.all():  # nothing varies
        return 1.0
    squares = float(1 / target @ covariance**2 @ (1 / target))
    trace = float(np.sum(np.diag(covariance) / target))
    top = (1 - 2 / columns) * squares + trace**2
    bottom = (n + 1 - 2 / columns) * (squares - trace**2 / columns)
    return 1.0 if bottom <= 0 else min(1.0, top / bottom)


def learn_whitenings(
    passes: Passes, look: FirstLook, count: int, turns: Turns, shrinkage: float | str, out: list[int]
) -> tuple[dict[int, list[Whitening]], list[Array]]:
    """For every fold in ``out``, which is left out, a whitening of every view; and variances of all columns.

    Covariances of a view are given up before those of the next are added up.
    """
    found, variances, auto = {fold: list[Whitening]() for fold in out}, list[Array](), shrinkage == "auto"
    precision = max(STILL, 16 * float(np.finfo(passes.dtype).eps))
    for i, (turn, mean) in enumerate(zip(turns, look.means, strict=True)):
        moments = passes.total(FoldMoments(i, passes.dims[i], count))
        few = auto and look.n < ROWS_PER_COLUMN * len(mean)
        for fold in out:
            n, shift, covariance = moments.without(fold)
            own = np.diag(covariance).copy()
            if fold == NONE:  # which comes first
                variances.append(own if turn is None else np.vecdot(turn.up @ covariance, turn.up))
            still = np.zeros(len(own), bool)
            if turn is None:  # a column may also be constant but for the rows of the fold
                still = own <= np.maximum((precision * mean) ** 2, precision * variances[i])
            # T of coordinates of standardised columns is their variances, too: all are 1.
            level = own.sum() / len(mean) if auto else own.mean()
            target = np.full(len(own), level)
            if few and turn is None:
                floor = FLOOR if len(turns) == 2 else 1.0
                target = np.where(still, level, np.maximum(own, floor * np.median(own)))
            share = auto_shrinkage(covariance, target, n, len(mean)) if auto else float(shrinkage)
            if few and len(turns) > 2:
                share = 1 - (1 - share) ** (len(turns) - 1)
            learnt = Whitening.learn(shift, covariance, n, share, target, f"view {i}", still, passes.dtype)
            found[fold].append(learnt)
        del moments
    return found, variances


def refuse_memory(needed: float, limit: float | None, what: str) -> None:
    """Refuse what takes more than ``limit``."""
    if limit is not None and needed > limit:
        raise MemoryBudgetError(f"{what} take {needed / 1e6:.3g} MB, memory_limit is {limit / 1e6:.3g} MB; raise it.")
