r"""Directions that stored views share: the best rank-one part of E[z_1 ⊗ … ⊗ z_k̄], without building it.

Views z_i are whitened rows, scores :math:`y_i = \langle z_i, v_i\rangle`.  The moment
:math:`E[y_1\cdots y_{\bar k}]` is climbed by alternating over the views (higher-order power iteration), many starts at
once:

.. math::
    g_m = E\Bigl[z_m \prod_{i\ne m} y_i\Bigr]
          - \sum_c \lambda_c \prod_{i\ne m}\langle v_i, u_{ic}\rangle\, u_{mc}, \qquad v_m = g_m/\|g_m\|,

the sum being over components (λ_c, u_c) found before.  It has many local optima, so the starts matter:

* *shared*: leading directions of all views put side by side (MAXVAR, Kettenring 1971): what is related in pairs needs
  far fewer rows to be seen there than in a moment of high order;
* *random*: many, of which those that are highest after a few sweeps go on, twice.

With few rows the highest moments are those of single rows, and every sweep leads away from what the views share.  So
there are three steps on the way, and held-out rows choose: the highest top that was reached from any start (``TOP``), a
few sweeps from the shared starts (``FEW``), and the shared starts as they are (``UNMOVED``).

Each of K folds (:mod:`tpca.solvers.folds`) is held out once: whitening and climb see all other rows, for all folds in
step, and the fold's rows are scored with what was reached.  All of them say how far to climb.  The same is then done on
all rows, from the tops of all folds.  What is judged is the procedure on a part of the rows, a cautious figure.

*The test.*  Standardised scores of a fold have the mean product
:math:`\rho = E[\tilde y_1\cdots\tilde y_{\bar k}]`.  If views are independent of each other, units of the fold may be
rearranged in every view, which gives p for every fold.
The fits of K folds have most of their rows in common.  As normal scores :math:`z_f = \Phi^{-1}(1 - p_f)` they add up
(Stouffer 1949),

.. math::
    p = 1 - \Phi\Bigl(\sum_f z_f \Big/ \sqrt{K\,b_K}\Bigr), \qquad
    b_K = 1 + \max_j\, j\,\Bigl(\frac{K-2}{K-1}\Bigr)^{j-1} ,

b being a bound on what dependence adds to the variance (K = 5: 2.69).  Where no relation is, the moments C_f of the
folds are as good as independent and normal, and what is judged is
:math:`m_f = \langle C_f, W(\sum_{g\ne f} C_g)\rangle`, with any W of length 1.  By Stein's identity
:math:`\mathrm{cov}(m_f, m_g) \le E\|E[\nabla W \mid \text{all but } f, g]\|^2`; of a part of W of degree j in the
Hermite polynomials of the sum that is :math:`j\,((K-2)/(K-1))^{j-1}/(K-1)` of its square, however many parts there are.
A z counts at most ``MAX_Z``, which is less than all that is needed: no single fold decides.

*Columns.*  A column x of view m is tested by its mean product with the scores of the other views,
:math:`E[x\prod_{i\ne m}\tilde y_i]`, on held-out rows: the largest over all columns of all views, under the same
rearrangements, gives family-wise p.

*A missing view* has the best linear prediction from the scores y of the others, :math:`\hat x = \mu + B^\top y`,
:math:`B = (\sum yy^\top)^+\sum yx^\top`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr

from tpca.data.rows import ViewsStream
from tpca.engines import Engine
from tpca.errors import SolverError, check_integer
from tpca.inference.flips import first_p, rearrangements
from tpca.randomness import generator
from tpca.solvers.folds import (
    NONE,
    Collected,
    FirstLook,
    FirstRows,
    FoldedBatch,
    FoldedViews,
    FoldMoments,
    Folds,
    JointMoments,
    Passes,
    Shrinkage,
    Whitening,
    check_shrinkage,
    column_variances,
    is_few,
    refuse_memory,
    target_of,
    turn_of,
)
from tpca.solvers.options import Callback, check_memory, check_options, check_positive, check_share, option
from tpca.solvers.rank_one import alternate, deflated, is_ghost, oriented, units
from tpca.tensors import Accumulator, RankOne
from tpca.tensors.accumulators import bytes_held
from tpca.tensors.blocks import Array

Outs = NDArray[np.int_]  # for every start the fold that it leaves out
MEMORY = 256e6  # bytes of rows that are kept between passes, and of what is held for them
MIN_ROWS = 20
SAME = 0.7  # overlap above which a vector is that of an earlier component
SAME_TOP = 0.99  # overlap of all vectors at which two climbs count as one
TOP, FEW, UNMOVED = range(3)
SHARED, EXTRA, LANCZOS = 6, 4, 6  # shared starts, columns beside them, and passes of the iteration that finds them
FEW_SWEEPS, FIRST_SWEEPS, NEXT_SWEEPS = 5, 2, 3
ENTRIES = 2**15  # of all random starts: wide views have fewer of them
RESAMPLES, MAX_RESAMPLES = 199, 29_999
EXACT_ROWS = 4000  # held-out rows of a fold up to which they are resampled; above, sums of units have Student's law
BINS = 32  # units of a long series
COLUMN_NUMBERS = 2**25  # numbers of resampled scores that the test of columns may hold
# Standard errors by which a shorter climb must be better.  Products have heavy tails, and the mean of m rows that are
# far out, all others being nothing beside them, is about the root of m of its standard errors: three decide nothing.
CLEARLY = 2.0
MAX_Z = float(-ndtri(1e-4))
PAIRED = 0.05  # p at which views that share nothing in an odd moment are said to be related in pairs


# What passes add up ---------------------------------------------------------------------------------------------------


class Products(Accumulator):
    """Sums of x_m times the products of all other scores, each of at most ``clip`` in size, for S starts.

    ``weights[i]`` are ``(S, d_i)``, of scores x·w - ``offsets[i]``; ``out`` says which fold a start leaves out.
    ``mass`` is the sum of the products alone, ``seen`` the rows that count.
    """

    SUMS = ("total", "mass", "seen")

    def __init__(
        self, weights: Sequence[Array], offsets: Sequence[Array], mode: int, clip: float | None, out: Outs
    ) -> None:
        super().__init__(list(weights), list(offsets), mode, clip, out)
        self.total = np.zeros(weights[mode].shape)
        self.mass, self.seen = np.zeros(len(out)), np.zeros(len(out))

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        weights, offsets, mode, clip, out = self.question
        batch.forget(mode)
        product: Any = None
        for i, (w, offset) in enumerate(zip(weights, offsets, strict=True)):
            if i != mode:
                scores = batch.along(i, w) - offset.astype(batch.views[i].dtype)
                scores = scores if clip is None else np.clip(scores, -clip, clip)
                product = scores if product is None else product * scores
        self.seen += len(batch) - _left_out(batch, product, out)
        self.mass += product.sum(axis=0, dtype=np.float64)
        self.total += product.T @ batch.views[mode]
        self.n += len(batch)


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
        _left_out(batch, scores, np.repeat(out, columns))
        self.mass += scores.sum(axis=0, dtype=np.float64).reshape(count, columns)
        for view, own in zip(batch.views, np.split(self.image, cuts, axis=1), strict=True):
            own += (view.T @ scores).reshape(-1, count, columns).transpose(1, 0, 2)
        self.n += len(batch)


class HeldScores(Accumulator):
    """Scores of the rows of every fold: ``weights[f][i]`` are ``(c, d_i)``; ``joined(f)`` has places and scores."""

    def __init__(self, weights: Sequence[Sequence[Array]]) -> None:
        super().__init__(list(weights))
        self.parts: list[list[tuple[Any, list[NDArray[Any]]]]] = [[] for _ in weights]

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        for own, weights, rows in zip(self.parts, self.question[0], batch.held(), strict=False):
            scores = [view[rows] @ w.T.astype(view.dtype) for view, w in zip(batch.views, weights, strict=True)]
            own.append((batch.places[rows], scores))
        self.n += len(batch)

    def merge(self, other: HeldScores) -> None:
        """Take the rows that come after."""
        for own, others in zip(self.parts, other.parts, strict=True):
            own += others
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """The scores."""
        return bytes_held(self.parts)

    def joined(self, fold: int) -> tuple[NDArray[np.int64], Array]:
        """Places of the rows of a fold, and their scores ``(c, views, n)``."""
        places = np.concatenate([part[0] for part in self.parts[fold]])
        views = [np.concatenate(view).T for view in zip(*(part[1] for part in self.parts[fold]), strict=True)]
        return places, np.stack(views, axis=1).astype(np.float64)


class WithColumns(Accumulator):
    """Sums of factors of rows times their columns: ``factors[i]`` are ``(rows, c)``, by the places of rows.

    ``squares``: the sums of the squared products with the first factor.
    """

    SUMS = ("total", "squares")

    def __init__(self, factors: Sequence[NDArray[Any]], dims: Sequence[int]) -> None:
        super().__init__(list(factors), dims)
        self.total = [np.zeros((own.shape[1], d)) for own, d in zip(factors, dims, strict=True)]
        self.squares = [np.zeros(d) for d in dims]

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        for i, (factors, view) in enumerate(zip(self.question[0], batch.views, strict=True)):
            own = factors[batch.places]
            self.total[i] += own.T @ view
            self.squares[i] += (own[:, 0] ** 2) @ (view.astype(np.float64) ** 2)
        self.n += len(batch)


class Relations(Accumulator):
    """Sums of products of all scores with each other and with the columns of all views, scores view by view."""

    SUMS = ("scores", "columns")

    def __init__(self, weights: Sequence[Array]) -> None:
        super().__init__(list(weights))
        count = sum(len(w) for w in weights)
        self.scores, self.columns = np.zeros((count, count)), [np.zeros((count, w.shape[1])) for w in weights]

    def add(self, batch: FoldedBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        scores = np.concatenate([x @ w.T for x, w in zip(batch.views, self.question[0], strict=True)], axis=1)
        self.scores += scores.T @ scores
        for own, view in zip(self.columns, batch.views, strict=True):
            own += scores.T @ view
        self.n += len(batch)


def _left_out(batch: FoldedBatch, columns: NDArray[Any], out: Outs) -> Array:
    """Set what is left out to zero, column by column; for every column how many rows those are."""
    counts = np.zeros(len(out))
    if np.any(out != NONE):
        for fold, rows in enumerate(batch.held()):
            columns[rows, out == fold] = 0
            counts[out == fold] = rows.stop - rows.start
    return counts


# The climb ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """How much goes into a climb: ``random`` starts, of which ``second`` go on, and ``finalists`` of all starts.

    Finalists make so many ``sweeps``, or rest when their squared change is below ``tolerance``; the best of them makes
    ``last_sweeps`` more, or rests at ``last_tolerance``.
    """

    random: int
    second: int
    finalists: int
    sweeps: int
    tolerance: float
    last_sweeps: int = 0
    last_tolerance: float = 0.0


# What is only judged needs not be as close to the top as what is reported, which goes on from there.
JUDGED = Effort(random=32, second=8, finalists=3, sweeps=15, tolerance=1e-5)
REPORTED = Effort(random=16, second=4, finalists=4, sweeps=60, tolerance=1e-9, last_sweeps=200, last_tolerance=1e-12)


@dataclass(frozen=True)
class Starts:
    """Places to climb from, or that were reached: ``vectors[i]`` is ``(S, d_i)``.

    ``out`` has the fold that each leaves out, ``heights`` the moments.
    """

    vectors: list[Array]
    out: Outs
    heights: Array

    def __getitem__(self, some: Any) -> Starts:
        return Starts([v[some] for v in self.vectors], self.out[some], self.heights[some])

    def joined(self, other: Starts) -> Starts:
        """Those of both."""
        vectors = [np.concatenate(pair) for pair in zip(self.vectors, other.vectors, strict=True)]
        return Starts(vectors, np.append(self.out, other.out), np.append(self.heights, other.heights))

    def best(self, most: int) -> Starts:
        """The highest that have not ended at the same place as a higher one, up to ``most`` for every fold."""
        alike = np.min([np.abs(v @ v.T) for v in self.vectors], axis=0) > SAME_TOP
        chosen: list[int] = []
        for fold in np.unique(self.out):
            own: list[int] = []
            for r in np.argsort(-self.heights, kind="stable"):
                if self.out[r] == fold and len(own) < most and not alike[r, own].any():
                    own.append(int(r))
            chosen += own
        return self[chosen]

    def top(self, fold: int) -> RankOne:
        """The highest of a fold."""
        best = int(np.argmax(np.where(self.out == fold, self.heights, -np.inf)))
        return RankOne(float(self.heights[best]), tuple(v[best] for v in self.vectors))


class Climb:
    """The moment of rows without a fold, whitened without it, less the components ``known`` to who leaves it out."""

    def __init__(
        self,
        passes: Passes,
        whitenings: Mapping[int, Sequence[Whitening]],
        clip: float | None = None,
        known: Mapping[int, Sequence[RankOne]] | None = None,
    ) -> None:
        self._passes, self._dims, self._whitenings, self._clip = passes, passes.dims, whitenings, clip
        self._known = known or {}
        self._weights: dict[int, tuple[Array, Array, Array]] = {}

    def weights(self, view: int, vectors: Array, out: Outs) -> tuple[Array, Array]:
        """Weights on columns, and offsets of scores, of some directions; the last are kept, as scores of them are."""
        last = self._weights.get(view)
        if last is None or last[0] is not vectors:
            weights, offsets = np.empty(vectors.shape), np.empty(len(vectors))
            for fold in np.unique(out):
                own, white = out == fold, self._whitenings[fold][view]
                weights[own] = vectors[own] @ white.factor.T
                offsets[own] = weights[own] @ white.mean
            last = self._weights[view] = vectors, weights, offsets
        return last[1:]

    def gradient(self, vectors: Sequence[Array], mode: int, out: Outs) -> Array:
        """g_m of every start."""
        weights, offsets = zip(*(self.weights(i, v, out) for i, v in enumerate(vectors)), strict=True)
        sums = self._passes.total(Products(weights, offsets, mode, self._clip, out))
        gradient = np.empty(vectors[mode].shape)
        for fold in np.unique(out):
            own, white = out == fold, self._whitenings[fold][mode]
            raw = (sums.total[own] - np.multiply.outer(sums.mass[own], white.mean)) @ white.factor
            raw /= np.maximum(sums.seen[own], 1)[:, None]
            gradient[own] = deflated(raw, [v[own] for v in vectors], mode, self._known.get(fold, ()))
        return gradient

    def climb(self, starts: Starts, sweeps: int, tolerance: float = 0.0) -> Starts:
        """Alternate over the views; a start is at rest when a sweep moves it by less than ``tolerance``, squared."""
        here, rested = starts, starts[:0]
        for _ in range(sweeps):
            vectors, heights = alternate(functools.partial(self.gradient, out=here.out), here.vectors, 1)
            pairs = zip(vectors, here.vectors, strict=True)
            rest = tolerance > sum(np.sum((v - before) ** 2, axis=1) for v, before in pairs)
            here = Starts(vectors, here.out, heights)
            if rest.any():
                rested, here = rested.joined(here[rest]), here[~rest]
            if not len(here.out):
                break
        return rested.joined(here)

    def still(self, starts: Starts) -> Starts:
        """Starts as they are, with the signs that make their moments positive."""
        *others, last = starts.vectors
        heights = np.sum(self.gradient(starts.vectors, 0, starts.out) * starts.vectors[0], axis=1)
        return Starts([*others, last * np.where(heights < 0, -1.0, 1.0)[:, None]], starts.out, np.abs(heights))

    def random(self, count: int, folds: Sequence[int], seed: int) -> Starts:
        """So many random starts for every fold."""
        out = np.repeat(folds, count)
        draws = (generator(seed, f"random starts {i}").standard_normal((len(out), d)) for i, d in enumerate(self._dims))
        return Starts([units(each) for each in draws], out, np.zeros(len(out)))

    def shared(self, folds: Sequence[int]) -> Starts:
        """Leading directions of all views side by side, cut into one vector per view; the same whatever the seed.

        By block Lanczos iteration: the best within all images so far, which a pass more brings nearer than any number
        of columns more would where noise stands out nearly as much.
        """
        dims, out, rng = self._dims, np.asarray(folds), generator(0, "shared starts")
        width, count, cuts = sum(dims), min(SHARED + EXTRA, *dims), np.cumsum(dims)[:-1]
        known = images = np.empty((len(out), width, 0))
        block = np.repeat(np.linalg.qr(rng.standard_normal((width, count)))[0][None], len(out), axis=0)
        for _ in range(LANCZOS):
            image = self._side_by_side(block, out, cuts)
            known, images = np.concatenate([known, block], axis=2), np.concatenate([images, image], axis=2)
            for _ in range(2):  # twice, for the sake of rounding
                image = np.linalg.qr(image - known @ (known.transpose(0, 2, 1) @ image))[0]
            block = image[:, :, : width - known.shape[2]]
            if not block.shape[2]:
                break
        product = known.transpose(0, 2, 1) @ images
        axes = np.linalg.eigh((product + product.transpose(0, 2, 1)) / 2)[1][:, :, ::-1]
        best = (known @ axes[:, :, : min(SHARED, count)]).transpose(0, 2, 1)
        vectors = [units(part).reshape(-1, part.shape[2]) for part in np.split(best, cuts, axis=2)]
        return Starts(vectors, np.repeat(out, best.shape[1]), np.zeros(best.shape[0] * best.shape[1]))

    def _side_by_side(self, block: Array, out: Outs, cuts: Any) -> Array:
        """The second moment of all whitened views side by side, times a block ``(F, D, c)``."""
        weights, offsets = np.empty(block.shape), np.zeros((len(out), block.shape[2]))
        for f, fold in enumerate(out):
            parts = zip(self._whitenings[fold], np.split(block[f], cuts), np.split(weights[f], cuts), strict=True)
            for white, part, own in parts:
                own[:] = white.factor @ part
                offsets[f] += white.mean @ own
        sums = self._passes.total(Beside(weights, offsets, self._dims, out))
        image = np.empty(block.shape)
        for f, fold in enumerate(out):
            parts = zip(self._whitenings[fold], np.split(sums.image[f], cuts), np.split(image[f], cuts), strict=True)
            for white, part, own in parts:
                own[:] = white.factor.T @ (part - np.multiply.outer(white.mean, sums.mass[f]))
        return image

    def top(self, starts: Starts, folds: Sequence[int], seed: int, effort: Effort) -> Starts:
        """The tops that are reached from some starts and from random ones."""
        count = max(effort.second, min(effort.random, ENTRIES // sum(self._dims)))
        random = self.climb(self.random(count, folds, seed), FIRST_SWEEPS)
        reached = self.climb(starts.joined(random.best(effort.second)), NEXT_SWEEPS)
        top = self.climb(reached.best(effort.finalists), effort.sweeps, effort.tolerance)
        return self.climb(top.best(1), effort.last_sweeps, effort.last_tolerance) if effort.last_sweeps else top

    def steps(self, folds: Sequence[int]) -> tuple[list[Starts], Starts, Starts]:
        """The three steps, each with all folds, the tops, and the shared starts; without any seed."""
        shared = self.shared(folds)
        few = self.climb(shared, FEW_SWEEPS)
        tops = self.top(few, folds, 0, JUDGED)
        return [tops, few, self.still(shared)], tops, shared

    def on_all_rows(self, step: int, tops: Starts, seed: int) -> RankOne:
        """One step on the way, on all rows: to the top from the ``tops`` of folds and some more random starts."""
        if step == TOP:
            starts = Starts(tops.vectors, np.full(len(tops.out), NONE), tops.heights)
            return self.top(starts, [NONE], seed, REPORTED).top(NONE)
        shared = self.shared([NONE])
        return (self.climb(shared, FEW_SWEEPS) if step == FEW else self.still(shared)).top(NONE)


# What held-out rows say -----------------------------------------------------------------------------------------------


def standardised(scores: Any, clip: float | None) -> Array:
    """Scores ``(..., n)`` of mean 0 and variance 1, at most ``clip`` in size."""
    scores = np.asarray(scores, dtype=np.float64)
    spread = scores.std(axis=-1, keepdims=True)
    each = (scores - scores.mean(axis=-1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(each if clip is None else np.clip(each, -clip, clip))


def choose(products: Array) -> int:
    """How far to climb: to the top, unless held-out rows ``(steps, n)`` are clearly better off with less."""
    chosen, n = 0, products.shape[1]
    for step in range(1, len(products)):
        gain = products[step] - products[chosen]
        if n > 1 and gain.mean() > CLEARLY * gain.std(ddof=1) / math.sqrt(n):
            chosen = step
    return chosen


def combined(p: Sequence[float]) -> float:
    """One p of those of K folds."""
    if len(p) == 1:
        return p[0]
    z = np.clip(-ndtri(np.array(p)), -MAX_Z, MAX_Z)
    return float(ndtr(-z.sum() / math.sqrt(len(p) * inflation(len(p)))))


def inflation(folds: int) -> float:
    """b_K: by how much the dependence of folds may raise the variance of their sum."""
    degrees = np.arange(1, folds + 1)  # the largest is at 1 / log((K - 1)/(K - 2)) < K
    return 1 + float(np.max(degrees * ((folds - 2) / (folds - 1)) ** (degrees - 1)))


@dataclass(frozen=True)
class Held:
    """The rows of one fold: ``places``, their ``unit``, and standardised ``scores`` ``(levels, views, n)``."""

    places: NDArray[np.int64]
    unit: NDArray[np.int64]
    scores: Array
    serial: bool
    name: str

    @classmethod
    def of(cls, places: NDArray[np.int64], scores: Array, folds: Folds, fold: int, clip: float | None) -> Held:
        """In an order that does not depend on that of the rows, unless neighbours are correlated."""
        unit = folds.unit[places]
        order = np.argsort(places) if folds.serial else np.lexsort((places, unit))
        return cls(
            places[order], unit[order], standardised(scores[..., order], clip), folds.serial, f"shufflings {fold}"
        )

    def orders(self, n_resamples: int) -> Any:
        """Rearrangements ``(m, views, n)`` of the rows, some at a time; always the same ones."""
        views = self.scores.shape[1]
        return rearrangements(self.unit, views, n_resamples, generator(0, self.name), self.serial)

    def p_value(self, level: slice, chosen: int, n_resamples: int) -> float:
        """The chance of scores as related as those of one step by accident, in the best of some steps."""
        scores = self.scores[level]
        products = np.prod(scores, axis=1)
        n, mean = products.shape[1], float(products[chosen].mean())
        if n < 3 or not products[chosen].std() > 0:
            return 1.0
        if n > EXACT_ROWS:
            unit = np.arange(n) * BINS // n if self.serial else np.unique(self.unit, return_inverse=True)[1]
            sums = np.bincount(unit, products[chosen] - mean)
            error = math.sqrt(len(sums) / (len(sums) - 1) * float(sums @ sums)) / n
            return min(1.0, len(scores) * float(stdtr(len(sums) - 1, -mean / error)))
        reached = [np.array([mean])]
        for orders in self.orders(n_resamples):
            product = np.ones((len(scores), *orders[:, 0].shape))
            for view in range(scores.shape[1]):
                product *= scores[:, view][:, orders[:, view]]
            reached.append(product.mean(axis=2).max(axis=0))
        return first_p(np.concatenate(reached))

    def pairs_p_value(self, level: int) -> float:
        """The chance of scores as related in pairs by accident: the mean of y_i y_j over all pairs of views."""
        scores = self.scores[level]
        # The sum over all pairs is (square of the sum - sum of squares) / 2, and shuffling leaves the squares alone.
        reached = [np.array([np.mean(scores.sum(axis=0) ** 2)])]
        for orders in self.orders(RESAMPLES):
            total = sum(scores[view][orders[:, view]] for view in range(len(scores)))
            reached.append(np.mean(total**2, axis=1))
        return first_p(np.concatenate(reached))


# The fit --------------------------------------------------------------------------------------------------------------


def check_resamples(name: str, value: Any) -> int | str:
    """A whole number, or ``"auto"``."""
    return "auto" if value == "auto" else check_integer(name, value, 19)


def check_dependence(name: str, value: Any) -> str | None:
    """``"auto"`` or ``None``."""
    if value not in ("auto", None):
        raise SolverError(f"{name} must be 'auto' or None, got {value!r}.")
    return None if value is None else "auto"


@dataclass(kw_only=True, frozen=True)
class ViewsOptions:
    """What a fit of views is asked for."""

    n_components: int = option(1, check_integer)
    shrinkage: float | str = option("auto", check_shrinkage)
    clip: float | None = option(None, check_positive)
    validation_fraction: float = option(0.2, check_share)
    confidence: float = option(0.95, check_share)
    n_resamples: int | str = option("auto", check_resamples)
    dependence: str | None = option("auto")
    memory_limit: Any = option(None, check_memory)

    def __post_init__(self) -> None:
        check_options(self)
        check_dependence("dependence", self.dependence)

    @property
    def resamples(self) -> int:
        """Enough for the level asked for to be reached by one fold, up to a confidence of about 0.9999."""
        if isinstance(self.n_resamples, int):
            return self.n_resamples
        return min(max(RESAMPLES, math.ceil(2 / (1 - self.confidence))), MAX_RESAMPLES)

    @property
    def memory(self) -> float:
        """Bytes for rows that are kept."""
        return MEMORY if self.memory_limit is None else float(self.memory_limit)


@dataclass(frozen=True)
class Direction:
    """One component: weights ``(d_i,)`` on the columns of every view, and what held-out rows say of it."""

    weights: tuple[Array, ...]
    loadings: tuple[Array, ...]
    moment: float
    correlation: float
    correlation_error: float
    p_value: float
    loading_p_values: tuple[Array, ...] = ()
    pairs_p_value: float = math.nan
    """Where an odd number of views proves nothing: the chance of views as related in pairs by accident."""

    @classmethod
    def nothing(cls, dims: Sequence[int]) -> Direction:
        """Where there is no further one."""
        zeros, ones = tuple(np.zeros(d) for d in dims), tuple(np.ones(d) for d in dims)
        return cls(zeros, zeros, 0.0, 0.0, math.nan, 1.0, ones)


@dataclass(frozen=True)
class ViewsFit:
    """What a fit of views gave: as many components as were asked for, of which some are ``significant``."""

    means: list[Array]
    components: tuple[Direction, ...]
    significant: NDArray[np.bool_]
    n_samples: int
    n_skipped: int
    serial: bool = False
    slopes: tuple[Array, list[Array]] | None = None
    """Σyyᵀ and Σyxᵀ of all scores, to predict a missing view; not known of views that passed by once."""

    def of_every(self, name: str) -> list[Array]:
        """A field of all components, view by view, ``(C, d_i)``."""
        each = [getattr(one, name) for one in self.components]
        return [np.stack([one[i] for one in each]) for i in range(len(self.means))]

    @property
    def advice(self) -> list[str]:
        """What to do where nothing was proven, and what neighbouring rows are like."""
        told, views = [], len(self.means)
        if not self.significant.any():
            nothing, pairs = "No direction shared by all views was proven", self.components[0].pairs_p_value
            why = f"the moment of an odd number of views ({views}) is zero for a factor of a symmetric law"
            if views % 2 == 0:
                told.append(f"{nothing}: give more rows, or other views.")
            elif pairs <= PAIRED:
                told.append(
                    f"{nothing}, though they are related in pairs (p = {pairs:.2g}): {why}, and more rows do not help. "
                    "Give an even number of views, as two of them (canonical correlation of a pair)."
                )
            else:
                told.append(f"{nothing}: give more rows, or other views; {why}, so try an even number, too.")
        if self.serial:
            told.append(
                "Neighbouring rows are correlated, so series were shifted for the test. If their order is meaningless, "
                "use dependence=None."
            )
        return told


Reader = Callable[[ViewsStream], Engine]


def fit_views(
    stream: ViewsStream,
    reader: Reader,
    asked: ViewsOptions,
    seed: int = 0,
    groups: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ViewsFit:
    """Components of stored views; ``reader`` makes an engine over a stream."""
    told = _Told(callbacks)
    engine, length, clippers = reader(stream), stream.length or 0, None
    auto, folds_at_most = asked.shrinkage == "auto", int(1 / asked.validation_fraction) + 2
    few = auto and is_few(length, [min(d, 2 * length) for d in stream.dims])
    narrow = [min(d, (1 + few) * length) for d in stream.dims]
    needed = (
        8 * (2 * folds_at_most + 1) * sum(d * d for d in narrow) + few * 24 * (folds_at_most + 2) * sum(narrow) ** 2
    )
    needed += 8 * max((3 * (1 + few) * length * d for d in stream.dims if d > length), default=0)
    refuse_memory(needed, asked.memory_limit, f"covariances of views of {', '.join(map(str, stream.dims))} columns")
    if asked.clip is not None:
        assert stream.layout is not None
        clippers = engine.reduce(FirstRows(asked.clip), int(stream.layout.bounds[1])).clippers
        engine.rewind()
    look = engine.reduce(FirstLook(stream.dims, clippers))
    if look.n < MIN_ROWS:
        raise SolverError(f"at least {MIN_ROWS} rows are needed to learn from and to judge by, got {look.n}.")
    serial = asked.dependence == "auto" and groups is None and look.serial
    few = auto and is_few(look.n, [min(d, 2 * look.n) for d in stream.dims])
    folds = Folds.of(look, length, asked.validation_fraction, groups, serial)
    turns: list[Array | None] = []
    for i, d in enumerate(stream.dims):
        rows = None
        if d > look.n * (1 + few):
            engine.rewind()
            rows = np.concatenate(engine.reduce(Collected(i, clippers)).parts)
        turns.append(None if rows is None else turn_of(rows, look.means[i], few))
    folded = FoldedViews(stream, folds, look.means, turns, clippers)
    passes = Passes(folded, reader, max(0.0, asked.memory - (needed if asked.memory_limit else 0)), told.after_pass)
    fit = _Fit(passes, folds, look, turns, asked, seed, told).run(engine.n_skipped)
    engine.check_unchanged()
    return fit


class _Fit:
    """One fit, in the coordinates that passes give."""

    def __init__(
        self,
        passes: Passes,
        folds: Folds,
        look: FirstLook,
        turns: Sequence[Array | None],
        asked: ViewsOptions,
        seed: int,
        told: _Told,
    ) -> None:
        self._passes, self._folds, self._asked, self._seed, self._told = passes, folds, asked, seed, told
        self._look, self._turns = look, turns
        moments = passes.total(FoldMoments(passes.dims, folds.count))
        self._check(moments)
        self._folded = [fold for fold in range(folds.count) if moments.counts[fold]]
        self._variances, self._whitenings = list[Array](), dict[int, list[Whitening]]()
        joint = None
        if asked.shrinkage == "auto" and is_few(moments.n, passes.dims):
            joint = passes.total(JointMoments((sum(passes.dims),), folds.count))
        for fold in (NONE, *self._folded):
            white, each = list[Whitening](), [Shrinkage(asked.shrinkage)] * len(turns)
            if joint is not None:
                each = joint.best_shrinkages(turns, passes.dims, fold)
            for i, turn in enumerate(turns):
                n, mean, covariance = moments.of(moments.without(fold), i)
                if fold == NONE:
                    self._variances.append(column_variances(covariance, turn))
                still = look.low[i] == look.high[i] if turn is None else None
                if still is not None and fold != NONE:  # columns that move only in the rows held out
                    still = still | (np.diag(covariance) <= 0)
                target = target_of(covariance, turn, True) if each[i].own else None
                white.append(Whitening.learn(mean, covariance, n, each[i].share, f"view {i}", still, target))
            self._whitenings[fold] = white

    def _check(self, moments: FoldMoments) -> None:
        n, share = moments.n, self._asked.validation_fraction
        learnt = n - int(moments.counts[:-1].max())
        if learnt < 2:
            raise SolverError(
                f"validation_fraction={share} leaves {learnt} of {n} rows to learn from; hold out fewer, or give more."
            )
        if np.count_nonzero(moments.counts[:-1]) < 2 <= self._folds.count:
            raise SolverError("all rows are of one group, or of one kind: there is nothing to judge by; give more.")

    def run(self, n_skipped: int) -> ViewsFit:
        """As many components as were asked for; each is significant only if those before it are."""
        asked, found, earlier = self._asked, list[Direction](), dict[int, list[RankOne]]()
        dims, p = [len(mean) for mean in self._look.means], 0.0
        vectors: list[tuple[Array, ...]] = []
        for number in range(asked.n_components):
            self._told.component = number + 1
            one, own = self._component(earlier, number == 0)
            if any(is_ghost(own[NONE].vectors, before, SAME) for before in vectors):
                break
            p = max(p, one.p_value)
            vectors.append(own[NONE].vectors)
            found.append(replace(one, p_value=p))
            for fold, rank_one in own.items():
                earlier.setdefault(fold, []).append(rank_one)
        found, slopes = self._with_relations(found)
        significant = np.array([one.p_value <= 1 - asked.confidence for one in found])
        for _ in range(asked.n_components - len(found)):
            found.append(Direction.nothing(dims))
        significant = np.append(significant, np.zeros(len(found) - len(significant), bool))
        counts = (self._look.n, n_skipped, self._folds.serial)
        return ViewsFit(self._look.means, tuple(found), significant, *counts, slopes)

    def _component(self, earlier: dict[int, list[RankOne]], first: bool) -> tuple[Direction, dict[int, RankOne]]:
        asked, told, folds = self._asked, self._told, self._folded
        told.phase = "folds"
        # What the rows that a climb sees say of the earlier components is subtracted: nothing of others gets in.
        climb = Climb(self._passes, self._whitenings, asked.clip, earlier)
        steps, tops, shared = climb.steps(folds)
        held = self._held(steps, shared, earlier)
        count = len(steps)
        products = np.concatenate([np.prod(each.scores[:count], axis=1) for each in held], axis=1)
        chosen = choose(products)
        mean = float(products[chosen].mean())
        error = float(products[chosen].std(ddof=1)) / math.sqrt(products.shape[1])
        aside = slice(count, 2 * count)
        p = combined([each.p_value(aside, chosen, asked.resamples) for each in held])
        proven, pairs = p <= 1 - asked.confidence, math.nan
        if first and len(self._passes.dims) % 2 and not proven:
            pairs = combined([each.pairs_p_value(-1) for each in held])
        told.phase = "all rows"
        best = climb.on_all_rows(chosen, tops, self._seed)
        told.judged(mean, error, proven)
        own = {fold: steps[chosen].top(fold) for fold in folds} | {NONE: best}
        whole = RankOne(best.strength, oriented(best.vectors))
        weights = tuple(w.factor @ v for w, v in zip(self._whitenings[NONE], whole.vectors, strict=True))
        columns = self._columns_p(held, count + chosen)
        return Direction(weights, (), best.strength, mean, error, p, columns, pairs), own

    def _held(self, steps: Sequence[Starts], shared: Starts, earlier: Mapping[int, Sequence[RankOne]]) -> list[Held]:
        """Scores of every fold along what was reached without it: of all steps, the same aside, and of the pairs."""
        asked: list[list[Array]] = [[np.zeros((1, d)) for d in self._passes.dims]] * (self._folds.count)
        for fold in self._folded:
            own = [step.top(fold).vectors for step in steps]
            pairs = tuple(v[shared.out == fold][0] for v in shared.vectors)
            each = [*own, *(_aside(vectors, earlier.get(fold, ())) for vectors in own), pairs]
            white = self._whitenings[fold]
            asked[fold] = [np.stack(mode) @ w.factor.T for mode, w in zip(zip(*each, strict=True), white, strict=True)]
        scores = self._passes.total(HeldScores(asked))
        return [Held.of(*scores.joined(fold), self._folds, fold, self._asked.clip) for fold in self._folded]

    def _columns_p(self, held: Sequence[Held], level: int) -> tuple[Array, ...]:
        """Family-wise p of every column, from the rearrangements of the test."""
        views, rows = len(self._turns), len(self._folds.number)
        total = sum(len(each.places) for each in held)
        exact = all(len(each.places) <= EXACT_ROWS for each in held)
        most = int(min(self._asked.resamples, COLUMN_NUMBERS // (views * rows) - 1))
        exact = exact and most >= RESAMPLES // 2
        if not exact and self._folds.serial:
            return tuple(np.full(len(mean), math.nan) for mean in self._look.means)
        factors = [np.zeros((rows, 1 + most if exact else 1), np.float32) for _ in range(views)]
        for each in held:
            scores, at, repeated = each.scores[level], 0, len(np.unique(each.unit)) < len(each.unit)
            everything = np.broadcast_to(np.arange(len(each.places)), (1, views, len(each.places)))
            for orders in [everything, *(each.orders(most) if exact else ())]:
                stop = min(at + len(orders), factors[0].shape[1])
                for i in range(views):
                    product = np.ones(orders[:, 0].shape)
                    for other in range(views):
                        if other != i:
                            product *= scores[other][orders[:, other]]
                    where = each.places[orders[: stop - at, i]], np.arange(at, stop)[:, None]
                    if repeated:  # rows of small units may come twice
                        np.add.at(factors[i], where, product[: stop - at])
                    else:
                        factors[i][where] = product[: stop - at]
                at = stop
            if at < factors[0].shape[1]:  # fewer rearrangements than asked for: those there are, again
                for own in factors:
                    again = 1 + np.arange(factors[0].shape[1] - at) % max(at - 1, 1)
                    own[each.places, at:] = own[each.places][:, again]
        sums = self._passes.total(WithColumns(factors, self._passes.dims))
        sizes = []
        for total_, squares, variance, turn in zip(sums.total, sums.squares, self._variances, self._turns, strict=True):
            columns = np.asarray(total_ if turn is None else total_ @ turn.T)
            level_ = np.sqrt(np.maximum(variance * total, 1e-300))
            if not exact and turn is None:
                level_ = np.sqrt(np.maximum(squares - columns[0] ** 2 / total, 1e-300))
            sizes.append(np.where(variance > 0, np.abs(columns) / level_, 0.0))
        if not exact:
            count = sum(own.shape[1] for own in sizes)
            return tuple(np.minimum(1.0, 2 * count * ndtr(-own[0])) for own in sizes)
        largest = np.max([own.max(axis=1) for own in sizes], axis=0)
        return tuple((1 + np.sum(largest[1:, None] >= own[0] * (1 - 1e-6), axis=0)) / len(largest) for own in sizes)

    def _with_relations(self, found: list[Direction]) -> tuple[list[Direction], tuple[Array, list[Array]]]:
        """Loadings, and signs for which scores agree; sums from which a missing view is predicted."""
        views, count = len(self._turns), len(found)
        weights = [np.stack([one.weights[i] for one in found]) for i in range(views)]
        sums = self._passes.total(Relations(weights))
        signs = _signs(sums.scores, views)
        each = signs.T.ravel()  # view by view, as the scores
        scores = np.multiply.outer(each, each) * sums.scores
        columns = [each[:, None] * own for own in sums.columns]
        columns = [own if turn is None else own @ turn.T for own, turn in zip(columns, self._turns, strict=True)]
        spread = np.sqrt(np.maximum(np.diag(scores), 1e-300))
        loadings = []
        for i, (own, variance) in enumerate(zip(columns, self._variances, strict=True)):
            mine = slice(i * count, (i + 1) * count)
            level = np.sqrt(np.maximum(variance * (sums.n - 1), 1e-300))
            loadings.append(np.where(variance > 0, own[mine] / level / spread[mine, None], 0.0))
        if views % 2 == 0:  # all signs may be turned: the largest loading of the first view is positive
            for c in range(count):
                if loadings[0][c][np.argmax(np.abs(loadings[0][c]))] < 0:
                    signs[c] *= -1
                    loadings = [np.where(np.arange(count)[:, None] == c, -own, own) for own in loadings]
                    each = np.where(np.arange(views * count) % count == c, -1.0, 1.0)
                    scores = np.multiply.outer(each, each) * scores
                    columns = [each[:, None] * own for own in columns]
        told = []
        for c, one in enumerate(found):
            turned = []
            for i, turn in enumerate(self._turns):
                own = signs[c, i] * one.weights[i]
                turned.append(own if turn is None else turn @ own)
            told.append(replace(one, weights=tuple(turned), loadings=tuple(own[c] for own in loadings)))
        return told, (scores, columns)


def _aside(vectors: Sequence[Array], known: Sequence[RankOne]) -> list[Array]:
    """Vectors without what they have in common with those of known components, view by view.

    Scores along them are uncorrelated with the scores of those components: only they can prove another one.  Along
    vectors that are partly those of a known component, views are related by what is known already.
    """
    left = [v.copy() for v in vectors]
    for mode, v in enumerate(left):
        if known:
            basis = np.linalg.qr(np.stack([one.vectors[mode] for one in known], axis=1))[0]
            v -= basis @ (basis.T @ v)
    return [units(v[None])[0] for v in left]


def _signs(scores: Array, views: int) -> Array:
    """Signs ``(C, k̄)`` that make the scores of views agree with those of the first, as far as their product allows.

    The product of all scores keeps its sign, so that of the signs is 1.
    """
    count = len(scores) // views
    first = np.sign([[scores[c, i * count + c] for i in range(views)] for c in range(count)])
    signs = np.where(np.reshape(first, (count, views)) < 0, -1.0, 1.0)
    odd = signs.prod(axis=1) < 0
    if views % 2:
        signs[odd] *= -1
    else:
        signs[odd, -1] *= -1
    return signs


class _Told:
    """Counts rows and tells the callbacks what is being done, pass after pass."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.component, self.phase = 1, "reading"
        self._callbacks, self._rows = tuple(callbacks), 0
        self._known: dict[str, Any] = {}

    def after_pass(self, rows: int) -> None:
        """One more pass over so many rows."""
        self._rows += rows
        for callback in self._callbacks:
            callback({"phase": f"component {self.component}, {self.phase}", "samples": self._rows, **self._known})

    def judged(self, correlation: float, error: float, proven: bool) -> None:
        """What held-out rows say of a component."""
        self._known = {"strength": correlation, "strength_error": error, "found": proven, "measure": "correlation"}
        self.phase = "judged"
        self.after_pass(0)
