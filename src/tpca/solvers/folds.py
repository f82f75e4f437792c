r"""What fits of views and of tables share: rows in folds, whitening learnt without the rows that judge it.

*Folds.*  Every row belongs to one fold, which is held out once.  By default the fold follows from what is in the row
(:func:`tpca.data.rows.row_keys`), so that neither the order of the rows nor a seed matters, and copies stay together.
With ``groups`` whole groups are held out; where neighbouring rows are correlated, folds are runs of neighbours.

*Units* are what is resampled within a fold: rows (copies of a row are one unit), groups, or, where neighbours are
correlated, the series as a whole, which is shifted.  Neighbours are correlated if in at least two views

.. math:: u_t = \langle \tilde x_t, \tilde x_{t+1}\rangle, \qquad z = \bar u\sqrt n/\mathrm{sd}(u) > 3 ,

with columns of mean 0 and variance 1 and pairs of copies left out.  One view whose rows are correlated does no harm:
permuting the rows of the others is still right.

*Whitening.*  With the shrunk covariance :math:`C_s = (1-s)\,C + s\,\frac{\mathrm{tr}\,C}{d}\,I = LL^\top` of the rows
that are not held out, :math:`z = L^{-1}(x-\mu)`.  No row is ever whitened: weights on the columns are
:math:`w = L^{-\top}v`, and a gradient among z is :math:`L^{-1}` times one among x.  ``shrinkage="auto"`` is the oracle
approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010, Eq. 23), from the same rows.  Of less than ten rows a
column, much depends on the share, and on the target T in :math:`C_s = (1-s)\,C + s\,T`: the variances of the columns
where their units differ, a multiple of the identity where loud columns are those that matter.  Then both are chosen by
folds of the same rows (:meth:`JointMoments.best_shrinkages`).

*Wide views*, of more columns than rows: what is fitted lies in the span of :math:`T^{-1}x` of all rows.  So rows become
their coordinates there, :math:`x = V y` with V from inner products of rows, and weights on columns are V times those on
coordinates.  It is exact; where both targets are tried, V spans both.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cholesky, eigh, solve_triangular

from tpca.data.rows import KeptVectors, MadeVectors, ViewsStream, mixed, row_keys
from tpca.engines import Engine, LocalEngine
from tpca.errors import MemoryBudgetError, SampleError, SolverError
from tpca.randomness import generator
from tpca.solvers.rank_one import leading, units
from tpca.tensors import Accumulator, ViewsBatch
from tpca.tensors.blocks import Array

A = TypeVar("A", bound=Accumulator)
MAX_FOLDS = 10
LIKE = 3.0  # z above which neighbours count as correlated: one of 700 views in random order
SHARES = (3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98)  # tried where rows are few
FACTORS = (1 / 30, 0.1, 1 / 3, 1.0, 3.0, 10.0, 30.0)  # of their odds
SAME_SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 0.98)  # for all views
TARGETS = (False, True)  # whether variances are the target, or their mean
ROWS_PER_COLUMN = 10  # fewer rows are few
FEW_COLUMNS, MOST_COLUMNS = 600, 1500  # of all views: one fold judges the shrinkage of more, and none of even more
NONE = -1  # the fold of a fit that leaves nothing out


class FirstLook(Accumulator):
    """Keys and numbers of all rows; of views also means, extremes, and how alike neighbouring rows are."""

    SUMS, LISTS = ("sums", "pairs", "alike"), ("_keys", "_numbers")

    def __init__(self, dims: Sequence[int], clippers: Sequence[Clipper] | None = None) -> None:
        super().__init__(dims, clippers)
        self._keys: list[NDArray[np.uint64]] = []
        self._numbers: list[NDArray[np.int64]] = []
        self.sums = [np.zeros(d) for d in dims]
        self.low, self.high = [np.full(d, np.inf) for d in dims], [np.full(d, -np.inf) for d in dims]
        self.pairs, self.alike = 0, np.zeros((len(dims), 2))  # Σ and Σ² of u

    def add(self, batch: Any, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        table = not isinstance(batch, ViewsBatch)
        keys = row_keys([batch.rows] if table else batch.views)
        self._keys.append(keys)
        self._numbers.append(batch.places)
        self.n += len(batch)
        if table or not len(batch):
            return
        different = keys[1:] != keys[:-1]
        self.pairs += int(np.count_nonzero(different))
        for i, view in enumerate(clipped(batch.views, self.question[1])):
            mean = view.mean(axis=0, dtype=np.float64)
            self.sums[i] += len(view) * mean
            self.low[i], self.high[i] = (
                np.minimum(self.low[i], view.min(axis=0)),
                np.maximum(self.high[i], view.max(axis=0)),
            )
            centred = view - mean.astype(view.dtype)
            spread = np.sqrt(np.mean(centred**2, axis=0, dtype=np.float64))
            centred /= np.where(spread > 0, spread, 1).astype(view.dtype)
            u = np.vecdot(centred[1:], centred[:-1])[different].astype(np.float64)
            self.alike[i] += u.sum(), u @ u

    def merge(self, other: FirstLook) -> None:
        """Take the rows that come after."""
        super().merge(other)
        for i in range(len(self.sums)):
            self.low[i], self.high[i] = np.minimum(self.low[i], other.low[i]), np.maximum(self.high[i], other.high[i])

    @property
    def keys(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Numbers of the rows, and their keys."""
        return np.concatenate(self._numbers), np.concatenate(self._keys)

    @property
    def means(self) -> list[Array]:
        """The mean of every column."""
        return [total / max(self.n, 1) for total in self.sums]

    @property
    def serial(self) -> bool:
        """Whether neighbouring rows are correlated in at least two views."""
        total, squares = self.alike.T
        z = total / np.sqrt(np.maximum(squares - total**2 / max(self.pairs, 1), 1e-300))
        return int(np.count_nonzero(z > LIKE)) > 1


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
        count = max(1, min(MAX_FOLDS, int(1 / share + 1e-9)))
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


class FoldedBatch(ViewsBatch):
    """Centred rows of all views in the order of their folds: those of fold f are ``held()[f]``.

    ``room`` bytes a row are left for scores of kept batches: of all modes only one changes at a time.
    """

    def __init__(self, views: Sequence[NDArray[Any]], places: NDArray[np.int64], edges: Any, room: float = 0.0) -> None:
        super().__init__(views, None, 0, 0, places)
        self._edges, self._room = edges, room
        self._known: dict[int, tuple[Array, NDArray[Any]]] = {}

    def __getitem__(self, some: slice) -> FoldedBatch:
        start, stop, _ = some.indices(len(self))
        edges = np.clip(self._edges - start, 0, stop - start)
        part = FoldedBatch([view[some] for view in self.views], self.places[some], edges)
        part.first = self.first
        return part

    def held(self) -> list[slice]:
        """The rows of every fold."""
        return [slice(int(a), int(b)) for a, b in zip(self._edges, self._edges[1:], strict=False)]

    def along(self, view: int, weights: Array) -> NDArray[Any]:
        """Scores ``(n, c)`` of a view; those of the last time are kept if there is room."""
        known = self._known.get(view)
        if known is None or known[0] is not weights:
            rows = self.views[view]
            known = weights, rows @ weights.T.astype(rows.dtype)
            self._known.pop(view, None)
            if len(weights) * len(self.views) * rows.itemsize <= self._room:
                self._known[view] = known
        return known[1]

    def forget(self, view: int) -> None:
        """Keep no scores of a view whose weights are about to change."""
        self._known.pop(view, None)


class FoldedViews(MadeVectors, ViewsStream):
    """A stream of views: clipped if wanted, centred, wide ones as their coordinates, in the order of folds."""

    def __init__(
        self,
        stream: ViewsStream,
        folds: Folds,
        means: Sequence[Array],
        turns: Sequence[Array | None],
        clippers: Sequence[Clipper] | None,
    ) -> None:
        super().__init__(stream)
        self._number, self._count = folds.number, folds.count
        self._means, self._turns, self._clippers = list(means), list(turns), clippers
        self.dims = tuple(d if t is None else t.shape[1] for d, t in zip(stream.dims, turns, strict=True))
        self.room = 0.0

    def made(self, batch: ViewsBatch) -> FoldedBatch:
        """One batch."""
        folds = self._number[batch.places]
        order = np.argsort(folds, kind="stable")
        views = []
        for view, mean, turn in zip(clipped(batch.views, self._clippers), self._means, self._turns, strict=True):
            rows = view[order] - mean.astype(view.dtype)
            views.append(rows if turn is None else rows @ turn.astype(view.dtype))
        edges = np.searchsorted(folds[order], np.arange(self._count + 1))
        made = FoldedBatch(views, batch.places[order], edges, self.room)
        made.first, made.dropped = batch.first, batch.dropped
        return made


class Passes:
    """Passes over rows in folds, which are kept here if they fit ``memory``; workers keep what fits themselves."""

    def __init__(
        self,
        stream: FoldedViews,
        reader: Callable[[Any], Engine],
        memory: float,
        after_pass: Callable[[int], None] | None = None,
    ) -> None:
        self.dims, self._after_pass = stream.dims, after_pass
        self._engine, length = reader(stream), stream.length or 0
        row = sum(stream.dims) * np.dtype(stream.dtype).itemsize
        if isinstance(self._engine, LocalEngine) and length * row <= memory:
            stream.room = memory / max(length, 1) - row  # scores take up what rows leave
            self._engine = LocalEngine(KeptVectors(stream))

    def total(self, blank: A) -> A:
        """An accumulator of all rows."""
        self._engine.rewind()
        whole = self._engine.reduce(blank)
        if self._after_pass is not None:
            self._after_pass(whole.n)
        return whole


class Collected(Accumulator):
    """All rows of one view, as they are after clipping."""

    LISTS = ("parts",)

    def __init__(self, view: int, clippers: Sequence[Clipper] | None) -> None:
        super().__init__(view, clippers)
        self.parts: list[NDArray[Any]] = []

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        view, clippers = self.question
        self.parts.append(clipped(batch.views, clippers)[view])
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


# Whitening ------------------------------------------------------------------------------------------------------------


class FoldMoments(Accumulator):
    """For every view and fold: rows, their sum, and the sum of xxᵀ; rows are centred already, by the mean of all."""

    SUMS = ("counts", "sums", "squares")

    def __init__(self, dims: Sequence[int], count: int) -> None:
        super().__init__(dims, count)
        self.counts = np.zeros(count + 1, np.int64)  # the last are those never held out
        self.sums = [np.zeros((count + 1, d)) for d in dims]
        self.squares = [np.zeros((count + 1, d, d)) for d in dims]

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        held = batch.held()
        for fold, rows in enumerate([*held, slice(held[-1].stop, len(batch))]):
            self.counts[fold] += rows.stop - rows.start
            for view, sums, squares in zip(batch.views, self.sums, self.squares, strict=True):
                sums[fold] += view[rows].sum(axis=0, dtype=np.float64)
                squares[fold] += view[rows].T @ view[rows]
        self.n += len(batch)

    def of(self, folds: Sequence[int], view: int) -> tuple[int, Array, Array]:
        """Count, mean and covariance of the rows of a view in some folds."""
        some = list(folds)
        n = int(self.counts[some].sum())
        mean = self.sums[view][some].sum(axis=0) / max(n, 1)
        covariance = self.squares[view][some[0]].copy()
        for fold in some[1:]:
            covariance += self.squares[view][fold]
        covariance -= n * np.multiply.outer(mean, mean)
        covariance /= max(n - 1, 1)
        return n, mean, covariance

    def without(self, *out: int) -> list[int]:
        """All folds but some, the rows that are never held out among them."""
        return [fold for fold in range(len(self.counts)) if fold not in out]


class JointMoments(FoldMoments):
    """The same of all views side by side."""

    def add(self, batch: FoldedBatch, at: int = 0) -> None:
        """Take the rows of a batch."""
        whole = copy.copy(batch)
        whole.views = (np.concatenate(batch.views, axis=1),)
        super().add(whole, at)

    def best_shrinkages(self, turns: Sequence[Array | None], dims: Sequence[int], out: int) -> list[Shrinkage]:
        r"""For every view, from the rows without the fold ``out``, of which one fold more is left out in turn.

        Of three kinds: the same share for all views, towards the identity or towards the variances; and for each view
        what makes the rows left out most likely,

        .. math:: -2\log L = n\log\det C_s + \sum_j x_j^\top C_s^{-1} x_j ,

        with one factor for the odds s/(1-s) of all.  That is chosen for which views are most correlated in pairs there,
        along the directions of the largest sum of covariances of all pairs, of two views the canonical ones.  They are
        few on purpose: the best of many pairs of shares was worse in planted cases, as it is best by chance.
        """
        parts = [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *dims]))]
        inner = [fold for fold in range(len(self.counts) - 1) if fold != out and self.counts[fold] > 2]
        likely = [dict.fromkeys(itertools.starmap(Shrinkage, itertools.product(SHARES, TARGETS)), 0.0) for _ in dims]
        folds = []
        for fold in inner[:1] if sum(dims) > FEW_COLUMNS else inner:
            (_, mean, seen), (n, others, judged) = self.of(self.without(out, fold), 0), self.of([fold], 0)
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
        reached = [self._correlations(kind, folds, parts) for kind in kinds]
        kind = int(np.argmax([max(own) for own in reached]))
        return kinds[kind][int(np.argmax(reached[kind]))]

    @staticmethod
    def _correlations(
        tried: Sequence[Sequence[Shrinkage]], folds: Sequence[Any], parts: Sequence[slice]
    ) -> list[float]:
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
    return n < ROWS_PER_COLUMN * max(dims) and sum(dims) <= MOST_COLUMNS


def column_variances(covariance: Array, turn: Array | None) -> Array:
    """Of the columns of a view, whose covariance may be that of coordinates."""
    return np.array(np.diag(covariance) if turn is None else np.einsum("dr,dr->d", turn @ covariance, turn))


def target_of(covariance: Array, turn: Array | None, own: bool) -> Target:
    """The variances of the columns if ``own``, else their mean for all."""
    variances = column_variances(covariance, turn)
    levels = np.full(len(variances), max(variances.mean(), 1e-300))
    levels = np.where(variances > 1e-12 * levels, variances, levels) if own else levels
    return Target(levels, np.diag(levels) if turn is None else (turn.T * levels) @ turn)


@dataclass(frozen=True)
class Whitening:
    """Of one view: z = (x - mean) @ factor; weights of directions v are factor @ v."""

    mean: Array
    factor: Array

    @classmethod
    def learn(
        cls,
        mean: Array,
        covariance: Array,
        n: int,
        shrinkage: float | str,
        of: str,
        still: NDArray[Any] | None = None,
        target: Target | None = None,
    ) -> Whitening:
        """From the covariance of n rows, which is used up; ``still`` columns are constant and in the way.

        The ``target`` is a multiple of the identity by default.
        """
        width = len(mean)
        if n < 2:
            raise SampleError(f"at least two rows are needed to whiten {of}, got {n}.")
        if still is not None and still.all():
            raise SampleError(f"{of} is constant: all its rows are the same; leave it out.")
        share = auto_shrinkage(covariance, n) if isinstance(shrinkage, str) else float(shrinkage)
        level = np.trace(covariance) / width
        covariance *= 1 - share
        if target is None:
            covariance[np.diag_indices(width)] += share * level
        else:
            covariance += share * target.inside
        try:
            lower = cholesky(covariance, lower=True, check_finite=False)
            if np.any(np.diag(lower) <= 1e-7 * np.sqrt(np.diag(covariance))) or (
                still is not None and still.any() and share == 0
            ):
                raise LinAlgError
        except LinAlgError:
            why = f"{n} rows cannot tell {width} columns apart"
            why = f"column {int(np.argmax(still))} is constant" if still is not None and still.any() else why
            way_out = "leave such columns out, or set shrinkage above 0"
            raise SampleError(f"{of} cannot be whitened: {why}; {way_out}.") from None
        factor = solve_triangular(lower, np.eye(width), lower=True, check_finite=False).T
        return cls(mean, np.ascontiguousarray(factor))

    @functools.cached_property
    def back(self) -> Array:
        """L: columns of a view times it are what z stands for."""
        return np.asarray(solve_triangular(self.factor, np.eye(len(self.factor)), check_finite=False).T)

    def loadings(self, vectors: Array) -> Array:
        """Correlations ``(c, d)`` of columns with scores along directions ``(c, d)``, in the shrunk covariance."""
        return np.asarray((vectors @ self.back.T) / np.linalg.norm(self.back, axis=1))


def auto_shrinkage(covariance: Array, count: int) -> float:
    """Oracle approximating shrinkage: between 0 and 1, falling with the number of rows."""
    width = len(covariance)
    squares, trace = float(np.sum(covariance**2)), float(np.trace(covariance))
    top = (1 - 2 / width) * squares + trace**2
    bottom = (count + 1 - 2 / width) * (squares - trace**2 / width)
    return 1.0 if bottom <= 0 else min(1.0, top / bottom)


def check_shrinkage(name: str, value: float | str) -> float | str:
    """A share, or ``"auto"``."""
    if value != "auto" and (isinstance(value, str) or not 0 <= value <= 1):
        raise SolverError(f"{name} must lie between 0 and 1, or be 'auto', got {value!r}.")
    return value


def refuse_memory(needed: float, limit: float | None, what: str, way: str = "") -> None:
    """Refuse what takes more than ``limit``."""
    if limit is not None and needed > limit:
        raise MemoryBudgetError(
            f"{what} take {needed / 1e6:.3g} MB, memory_limit is {limit / 1e6:.3g} MB; {way}raise it."
        )


# Clipping -------------------------------------------------------------------------------------------------------------


class Clipper:
    """Draws far rows of one view back: a robust centre and typical distance from the first rows it saw."""

    def __init__(self, rows: NDArray[Any], clip: float) -> None:
        if len(rows) == 0:
            raise SampleError("clip needs rows to tell what is far, got none; give rows without NaN or Inf.")
        self.center = np.median(rows, axis=0).astype(np.float64)
        spread = np.median(np.abs(rows - self.center), axis=0)
        largest = float(spread.max())
        # Columns that hardly ever move count by their mean distance, so that they neither vanish nor dominate.
        fallback = np.mean(np.abs(rows - self.center), axis=0) if largest == 0 else np.full(rows.shape[1], largest)
        self.scale = np.where(spread > 1e-3 * largest, spread, np.where(fallback > 0, fallback, 1.0))
        distance = self._distance(rows)
        typical = float(np.median(distance))
        if typical == 0 and distance.any():  # most rows are the same: the typical row is one of the others
            typical = float(np.median(distance[distance > 0]))
        self._limit = clip * typical

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The rows, none farther than the limit."""
        distance = self._distance(rows)
        far = distance > self._limit
        if not far.any():
            return rows
        drawn, center = rows.copy(), self.center.astype(rows.dtype)
        drawn[far] = center + (rows[far] - center) * (self._limit / distance[far, None]).astype(rows.dtype)
        return drawn

    def _distance(self, rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.linalg.norm((rows - self.center) / self.scale, axis=1))


class FirstRows(Accumulator):
    """Clippers learnt from the first batch, with the bound ``clip``."""

    def __init__(self, clip: float) -> None:
        super().__init__(clip)
        self.clippers: list[Clipper] | None = None

    def add(self, batch: ViewsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Learn from a batch, if it is the first."""
        if self.clippers is None:
            self.clippers = [Clipper(view, self.question[0]) for view in batch.views]
        self.n += len(batch)

    def merge(self, other: FirstRows) -> None:
        """What comes later does not matter."""
        self.clippers, self.n = self.clippers or other.clippers, self.n + other.n


def clipped(views: Sequence[NDArray[Any]], clippers: Sequence[Clipper] | None) -> list[NDArray[Any]]:
    """The views with far rows drawn back, if there is anything to do that."""
    return list(views) if clippers is None else [c(view) for c, view in zip(clippers, views, strict=True)]
