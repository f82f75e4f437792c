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
* *random*: some, of which those that are highest after a few sweeps go on.

With few rows the highest moments are those of single rows, and every sweep leads away from what the views share.  So
there are three steps on the way, and held-out rows choose: the highest top that was reached from any start (``TOP``), a
few sweeps from the shared starts, and the shared starts as they are.

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
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr

from tpca.data.rows import RowsStream
from tpca.errors import SolverError, check_integer
from tpca.inference.flips import p_values, rearrangements
from tpca.randomness import generator
from tpca.solvers.folds import (
    GROUP_ROWS,
    MEMORY,
    NONE,
    FirstLook,
    FoldedBatch,
    FoldedRows,
    Folds,
    Outs,
    Passes,
    Reader,
    Turn,
    Turns,
    Whitening,
    contracted,
    fold_count,
    joined_scores,
    leading_directions,
    learn_whitenings,
    refuse_memory,
)
from tpca.solvers.options import Callback, check_memory, check_options, check_resamples, check_share, option
from tpca.solvers.rank_one import alternate, deflated, is_ghost, oriented, units
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array
from tpca.tensors.rows import BatchLists, RowsBatch

Known = Mapping[int, Sequence[RankOne]]  # components, by the fold that is left out

MIN_ROWS = 20
SAME = 0.7  # overlap above which a vector is that of an earlier component
SAME_TOP = 0.99  # overlap of all vectors at which two climbs count as one
SHARED, EXTRA = 6, 4  # shared starts, and columns beside them in the iteration that finds them
# Random starts, those of them that go on, and those of all that climb to their tops.
RANDOM, SECOND, FINALISTS = 16, 6, 3
FIRST_SWEEPS, FEW_SWEEPS, LAST_SWEEPS = 2, 5, 200
RESAMPLES, MAX_RESAMPLES = 199, 29_999
EXACT_ROWS = 4000  # held-out rows of a fold up to which they are resampled; above, sums of units have Student's law
BINS = 32  # units of a long series
COLUMN_NUMBERS = 2**25  # of resampled scores that the test of columns may hold
# Standard errors by which a shorter climb must be better.  Products have heavy tails, and the mean of m rows that are
# far out, all others being nothing beside them, is about the root of m of its standard errors: three decide nothing.
CLEARLY = 2.0
MAX_Z = float(-ndtri(1e-4))


# What passes add up ---------------------------------------------------------------------------------------------------


def with_columns(batch: FoldedBatch, factors: Sequence[NDArray[Any]]) -> list[Array]:
    """Columns of every view times factors ``(rows, c)`` by the places of rows; then squared products with the first."""
    each = [(own[batch.places], view) for own, view in zip(factors, batch.views, strict=True)]
    squares = [(own[:, 0] ** 2) @ (view.astype(np.float64) ** 2) for own, view in each]
    return [*(own.T @ view for own, view in each), *squares]


def relations(batch: FoldedBatch, weights: Sequence[Array]) -> list[Array]:
    """Products of all scores, view by view, with each other and with the columns of all views."""
    each = [x @ w.T.astype(np.float64) for x, w in zip(batch.views, weights, strict=True)]
    scores = np.concatenate(each, axis=1)
    return [scores.T @ scores, *(scores.T @ view for view in batch.views)]


def rows_of(batch: RowsBatch, view: int) -> list[NDArray[Any]]:
    """The rows of one view as they are."""
    return [batch.views[view]]


# The climb ------------------------------------------------------------------------------------------------------------


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

    def __init__(self, passes: Passes, whitenings: Mapping[int, Sequence[Whitening]], known: Known) -> None:
        self._passes, self._whitenings, self._known = passes, whitenings, known

    def _images(self, vectors: Sequence[Array], out: Outs, mode: int | None = None) -> list[Array]:
        """What :func:`tpca.solvers.folds.contracted` adds up for directions among z, divided by rows; also among z."""
        weights, offsets = [np.zeros(v.shape) for v in vectors], [np.zeros(len(out)) for _ in vectors]
        those = {fold: out == fold for fold in np.unique(out)}
        for fold, own in those.items():
            for i, white in enumerate(self._whitenings[fold]):
                if i != mode:
                    weights[i][own] = white.weights(vectors[i][own])
                    offsets[i][own] = weights[i][own] @ white.mean
        mass, seen, *images = self._passes.sums(contracted, weights, offsets, out, mode)
        for fold, own in those.items():
            whites = self._whitenings[fold] if mode is None else [self._whitenings[fold][mode]]
            for image, white in zip(images, whites, strict=True):
                raw = white.whitened(image[own] - np.multiply.outer(mass[own], white.mean))
                image[own] = raw / np.maximum(seen[own], 1)[:, None]
        return images

    def gradient(self, vectors: Sequence[Array], mode: int, out: Outs) -> Array:
        """g_m of every start."""
        (gradient,) = self._images(vectors, out, mode)
        for fold, known in self._known.items():
            own = out == fold
            gradient[own] = deflated(gradient[own], [v[own] for v in vectors], mode, known)
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

    def shared(self, folds: Sequence[int]) -> Starts:
        """Leading directions of all views side by side, cut into one vector per view; the same whatever the seed."""
        dims, cuts = self._passes.dims, np.cumsum(self._passes.dims)[:-1]

        def image(block: Array) -> Array:
            """The second moment of all whitened views side by side, times a block of rows ``(F, c, D)``."""
            parts = np.split(block.reshape(-1, block.shape[2]), cuts, axis=1)
            return np.concatenate(self._images(parts, np.repeat(folds, block.shape[1])), axis=1).reshape(block.shape)

        count = min(SHARED + EXTRA, *dims)
        best = leading_directions(image, (len(folds), count, sum(dims)))[:, :SHARED]
        vectors = [units(part).reshape(-1, part.shape[2]) for part in np.split(best, cuts, axis=2)]
        return Starts(vectors, np.repeat(folds, best.shape[1]), np.zeros(len(vectors[0])))

    def top(self, starts: Starts, folds: Sequence[int], seed: int, sweeps: int, tolerance: float) -> Starts:
        """The tops that are reached from some starts and from random ones, those highest after some sweeps."""
        out, dims = np.repeat(folds, RANDOM), self._passes.dims
        draws = (generator(seed, f"random starts {i}").standard_normal((len(out), d)) for i, d in enumerate(dims))
        random = self.climb(Starts([units(v) for v in draws], out, np.zeros(len(out))), FIRST_SWEEPS).best(SECOND)
        reached = self.climb(starts.joined(random), FIRST_SWEEPS)
        return self.climb(reached.best(FINALISTS), sweeps, tolerance)

    def steps(self, folds: Sequence[int]) -> list[Starts]:
        """The three steps, each with all folds, the tops first; without any seed."""
        shared = self.shared(folds)
        few = self.climb(shared, FEW_SWEEPS)
        # What is only judged needs not be as close to the top as what is reported, which goes on from there.
        return [self.top(few, folds, 0, 15, 1e-5), few, self.still(shared)]

    def on_all_rows(self, step: int, tops: Starts, seed: int) -> RankOne:
        """One step on the way, on all rows: to the top from the ``tops`` of folds and some more random starts."""
        if step == 0:
            starts = Starts(tops.vectors, np.full(len(tops.out), NONE), tops.heights)
            reached = self.top(starts, [NONE], seed, 60, 1e-9)
            return self.climb(reached.best(1), LAST_SWEEPS, 1e-12).top(NONE)
        shared = self.shared([NONE])
        return (self.climb(shared, FEW_SWEEPS) if step == 1 else self.still(shared)).top(NONE)


# What held-out rows say -----------------------------------------------------------------------------------------------


def standardised(scores: Any) -> Array:
    """Scores ``(..., n)`` of mean 0 and variance 1."""
    scores = np.asarray(scores, dtype=np.float64)
    spread = scores.std(axis=-1, keepdims=True)
    return np.asarray((scores - scores.mean(axis=-1, keepdims=True)) / np.where(spread > 0, spread, 1.0))


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
    count = len(p)
    if count == 1:
        return p[0]
    degrees = np.arange(1, count + 1)  # the largest is at 1 / log((K - 1)/(K - 2)) < K
    inflation = 1 + float(np.max(degrees * ((count - 2) / (count - 1)) ** (degrees - 1)))
    z = np.clip(-ndtri(np.array(p)), -MAX_Z, MAX_Z)
    return float(ndtr(-z.sum() / math.sqrt(count * inflation)))


@dataclass(frozen=True)
class Held:
    """The rows of one fold: ``places``, their ``unit``, and standardised ``scores`` ``(levels, views, n)``."""

    places: NDArray[np.int64]
    unit: NDArray[np.int64]
    scores: Array
    serial: bool
    name: str

    @classmethod
    def of(cls, places: NDArray[np.int64], scores: Array, folds: Folds, fold: int) -> Held:
        """In an order that does not depend on that of the rows, unless neighbours are correlated."""
        unit = folds.unit[places]
        order = np.argsort(places) if folds.serial else np.lexsort((places, unit))
        return cls(places[order], unit[order], standardised(scores[..., order]), folds.serial, f"shufflings {fold}")

    @property
    def exact(self) -> bool:
        """Whether rows are few enough to be resampled."""
        return len(self.places) <= EXACT_ROWS

    def orders(self, n_resamples: int) -> Iterator[NDArray[np.int64]]:
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
        if not self.exact:
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
        return float(p_values(np.concatenate(reached))[0])

    def write_factors(self, level: int, factors: NDArray[np.float32]) -> int:
        """Into ``(views, rows, 1 + m)``: what columns of a view are multiplied with, products of all others' scores.

        As they are, then rearranged; how many there are.
        """
        scores, at = self.scores[level], 0
        others = [[i for i in range(len(scores)) if i != view] for view in range(len(scores))]
        repeated = len(np.unique(self.unit)) < len(self.unit)  # rows of small units may come twice
        as_it_is = np.broadcast_to(np.arange(len(self.places)), (1, len(scores), len(self.places)))
        for orders in itertools.chain([as_it_is], self.orders(factors.shape[2] - 1)):
            arranged = [own[orders[:, i]] for i, own in enumerate(scores)]
            for i, own in enumerate(factors):
                product = np.prod([arranged[other] for other in others[i]], axis=0)
                where = self.places[orders[:, i]], np.arange(at, at + len(orders))[:, None]
                if repeated:
                    np.add.at(own, where, product)
                else:
                    own[where] = product
            at += len(orders)
        return at


# The fit --------------------------------------------------------------------------------------------------------------


def check_shrinkage(name: str, value: float | str) -> float | str:
    """A share, or ``"auto"``."""
    if value != "auto" and (isinstance(value, str) or not 0 <= value <= 1):
        raise SolverError(f"{name} must lie between 0 and 1, or be 'auto', got {value!r}.")
    return value


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
    validation_fraction: float = option(0.2, check_share)
    confidence: float = option(0.95, check_share)
    n_resamples: int | str = option("auto", check_resamples)
    dependence: str | None = option("auto", check_dependence)
    memory_limit: Any = option(None, check_memory)
    random_state: int = option(0)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def resamples(self) -> int:
        """Enough for the level asked for to be reached by one fold, up to a confidence of about 0.9999."""
        if isinstance(self.n_resamples, int):
            return self.n_resamples
        return min(max(RESAMPLES, math.ceil(2 / (1 - self.confidence))), MAX_RESAMPLES)

    def column_resamples(self, views: int, rows: int) -> int:
        """As many, if the factors of all rows fit."""
        return min(self.resamples, COLUMN_NUMBERS // (views * rows))

    def needed(self, stream: RowsStream) -> float:
        """Bytes beside rows: L of every view and fold; to learn them, sums and covariances; factors of rows."""
        length, folds, views = stream.length or 0, fold_count(self.validation_fraction) + 1, len(stream.dims)
        dims = [min(d, length) for d in stream.dims]
        groups = max(1, length // (GROUP_ROWS * max(dims))).bit_length()
        learning = 8 * max(dims) ** 2 * (folds * groups + 4)
        wide = max((4 * 8 * length * d for d in stream.dims if d > length), default=0)
        exact = length < (folds - 1) * EXACT_ROWS
        factors = 4 * (views + 1) * length * (1 + self.column_resamples(views, length)) if exact else 0
        kept = np.dtype(stream.dtype).itemsize * folds * sum(d * d for d in dims)
        return float(kept + max(learning, factors) + wide)


@dataclass(frozen=True)
class ViewsFit:
    """What a fit of views gave: as many components as were asked for, of which some are ``significant``.

    Of every component ``(C,)`` its ``moments``, ``correlations`` and so on; of every view, ``(C, d_i)``, ``weights``,
    ``loadings`` and ``loading_p_values``.  Where there is no further component they are zeros, with a p of 1.
    """

    means: list[Array]
    weights: list[Array]
    loadings: list[Array]
    loading_p_values: list[Array]
    moments: Array
    correlations: Array
    correlation_errors: Array
    p_values: Array
    significant: NDArray[np.bool_]
    n_samples: int
    n_skipped: int
    neighbours: float
    """The correlation of neighbouring rows, if the test allowed for one; else 0."""
    slopes: tuple[Array, list[Array]]
    """Σyyᵀ and Σyxᵀ of all scores, to predict a missing view."""

    @property
    def advice(self) -> list[str]:
        """What neighbouring rows are like, and what to do where nothing was proven."""
        told, views = [], len(self.means)
        if self.neighbours:
            told.append(
                f"Neighbouring rows are correlated ({self.neighbours:.2f}), so runs of them were held out, and shifted "
                "for the test. If their order is meaningless, use dependence=None."
            )
        if not self.significant.any():
            nothing = "No direction shared by all views was proven: give more rows, or other views"
            odd = f"; the moment of an odd number of views ({views}) is zero for a factor of a symmetric law, so try "
            told.append(f"{nothing}{odd + 'an even number, too' if views % 2 else ''}.")
        return told


def fit_views(
    stream: RowsStream, reader: Reader, asked: ViewsOptions, groups: Any = None, callbacks: Sequence[Callback] = ()
) -> ViewsFit:
    """Components of stored views; ``reader`` makes an engine over a stream."""
    engine, length, needed = reader(stream), stream.length or 0, asked.needed(stream)
    what = f"covariances and resampled scores of views of {', '.join(map(str, stream.dims))} columns"
    refuse_memory(needed, asked.memory_limit, what)
    look = engine.reduce(FirstLook(stream.dims))
    if look.n < MIN_ROWS:
        raise SolverError(f"at least {MIN_ROWS} rows are needed to learn from and to judge by, got {look.n}.")
    neighbours = look.neighbours if asked.dependence == "auto" and groups is None else 0.0
    folds = Folds.of(look, length, asked.validation_fraction, groups, neighbours > 0)
    turns: list[Turn | None] = [None] * len(stream.dims)
    for i, d in enumerate(stream.dims):
        if d > look.n:
            engine.rewind()
            (rows,) = engine.reduce(BatchLists(rows_of, i)).joined()
            turns[i] = Turn.of(rows, look.means[i], asked.shrinkage == "auto")
    room = MEMORY if asked.memory_limit is None else asked.memory_limit - needed
    passes = Passes(FoldedRows(stream, folds, look.means, turns), reader, room, callbacks)
    fit = _Fit(passes, folds, look, turns, asked).run(engine.n_skipped, neighbours)
    engine.check_unchanged()
    return fit


class _Fit:
    """One fit, in the coordinates that passes give."""

    def __init__(self, passes: Passes, folds: Folds, look: FirstLook, turns: Turns, asked: ViewsOptions) -> None:
        self._passes, self._folds, self._look, self._turns, self._asked = passes, folds, look, turns, asked
        counts = np.bincount(folds.number[look.keys[0]], minlength=folds.count + 1)[: folds.count]
        self._folded = [int(fold) for fold in np.flatnonzero(counts)]
        if (learnt := look.n - int(counts.max())) < 2:
            raise SolverError(
                f"validation_fraction={asked.validation_fraction} leaves {learnt} of {look.n} rows to learn from; hold "
                "out fewer, or give more."
            )
        if len(self._folded) < 2 <= folds.count:
            raise SolverError("all rows are of one group, or of one kind: there is nothing to judge by; give more.")
        out = [NONE, *self._folded]
        self._whitenings, self._variances = learn_whitenings(passes, look, folds.count, turns, asked.shrinkage, out)

    def run(self, n_skipped: int, neighbours: float) -> ViewsFit:
        """As many components as were asked for; each is significant only if those before it are."""
        asked, means, count = self._asked, self._look.means, self._asked.n_components
        weights = [np.zeros((count, d)) for d in self._passes.dims]
        columns = [np.ones((count, len(mean))) for mean in means]
        numbers = np.tile([0.0, 0.0, math.nan, 1.0], (count, 1))
        earlier: dict[int, list[RankOne]] = {}
        for number in range(count):
            self._passes.phase = f"component {number + 1}"
            # What the rows that a climb sees say of the earlier components is subtracted: nothing of others gets in.
            climb = Climb(self._passes, self._whitenings, earlier)
            steps = climb.steps(self._folded)
            held, levels = self._held(steps, earlier), len(steps)
            products = np.concatenate([np.prod(each.scores[:levels], axis=1) for each in held], axis=1)
            chosen = choose(products)
            best = climb.on_all_rows(chosen, steps[0], asked.random_state)
            if any(is_ghost(best.vectors, before.vectors, SAME) for before in earlier.get(NONE, ())):
                break
            error = products[chosen].std(ddof=1) / math.sqrt(products.shape[1])
            p = combined([each.p_value(slice(levels, None), chosen, asked.resamples) for each in held])
            p = max(p, numbers[number - 1, 3] if number else 0.0)
            numbers[number] = best.strength, products[chosen].mean(), error, p
            for i, (white, v) in enumerate(zip(self._whitenings[NONE], oriented(best.vectors), strict=True)):
                weights[i][number] = white.weights(v[None])[0]
            for column, own in zip(columns, self._columns_p(held, levels + chosen), strict=True):
                column[number] = own
            for fold, top in [(NONE, best), *((fold, steps[chosen].top(fold)) for fold in self._folded)]:
                earlier.setdefault(fold, []).append(top)
        weights, loadings, slopes = self._related(weights)
        moments, scores, errors, p = numbers.T
        significant, n = p <= 1 - asked.confidence, self._look.n
        return ViewsFit(
            means, weights, loadings, columns, moments, scores, errors, p, significant, n, n_skipped, neighbours, slopes
        )

    def _held(self, steps: Sequence[Starts], earlier: Known) -> list[Held]:
        """Scores of every fold along what was reached without it: of all steps, and of the same aside."""
        asked: list[list[Array]] = [[np.zeros((2 * len(steps), d)) for d in self._passes.dims]] * self._folds.count
        for fold in self._folded:
            own = [oriented(step.top(fold).vectors) for step in steps]  # scores of all folds add up for a column
            each = [*own, *(_aside(vectors, earlier.get(fold, ())) for vectors in own)]
            pairs = zip(zip(*each, strict=True), self._whitenings[fold], strict=True)
            asked[fold] = [white.weights(np.stack(mode)) for mode, white in pairs]
        places, scores = joined_scores(self._passes, asked)
        those = {fold: self._folds.number[places] == fold for fold in self._folded}
        return [Held.of(places[own], scores[..., own], self._folds, fold) for fold, own in those.items()]

    def _columns_p(self, held: Sequence[Held], level: int) -> list[Array]:
        """Family-wise p of every column, from the rearrangements of the test; of many rows, by the normal law."""
        views, rows, exact = len(self._turns), len(self._folds.number), all(each.exact for each in held)
        if not exact and self._folds.serial:
            return [np.full(len(mean), math.nan) for mean in self._look.means]
        most = self._asked.column_resamples(views, rows) if exact else 0
        factors = np.zeros((views, rows, 1 + most), np.float32)
        there = min(one.write_factors(level, factors) for one in held)  # short series have few shifts
        sums = self._passes.sums(with_columns, list(factors[:, :, :there]))
        total, sizes = sum(len(one.places) for one in held), []
        each = zip(sums[:views], sums[views:], self._variances, self._turns, strict=True)
        for own, squares, variance, turn in each:
            columns = own if turn is None else own @ turn.up.T
            spread = variance * total if exact or turn is not None else squares - columns[0] ** 2 / total
            sizes.append(np.where(variance > 0, np.abs(columns) / np.sqrt(np.maximum(spread, 1e-300)), 0.0))
        if not exact:
            count = sum(own.shape[1] for own in sizes)
            return [np.minimum(1.0, 2 * count * ndtr(-own[0])) for own in sizes]
        largest = np.max([own.max(axis=1) for own in sizes], axis=0)
        return [(1 + np.sum(largest[1:, None] >= own[0] * (1 - 1e-6), axis=0)) / len(largest) for own in sizes]

    def _related(self, weights: list[Array]) -> tuple[list[Array], list[Array], tuple[Array, list[Array]]]:
        """Weights on columns, loadings, and sums that predict a missing view; with signs for which scores agree."""
        scores, *columns = self._passes.sums(relations, weights)
        count, loadings = len(weights[0]), []
        for i, (turn, variance) in enumerate(zip(self._turns, self._variances, strict=True)):
            if turn is not None:
                weights[i], columns[i] = weights[i] @ turn.down.T, columns[i] @ turn.up.T
            mine = slice(i * count, (i + 1) * count)
            level = np.sqrt(np.multiply.outer(np.diag(scores)[mine], variance * (self._look.n - 1)))
            loadings.append(np.where(level > 0, columns[i][mine] / np.where(level > 0, level, 1.0), 0.0))
        signs = np.stack([_signs(scores[c, c::count], loadings[0][c]) for c in range(count)], axis=1)
        turned = [[own[:, None] * each for own, each in zip(signs, some, strict=True)] for some in (weights, loadings)]
        each = signs.ravel()  # view by view, as the scores
        slopes = np.multiply.outer(each, each) * scores, [each[:, None] * own for own in columns]
        return turned[0], turned[1], slopes


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


def _signs(relations: Array, loadings: Array) -> Array:
    """Signs of a component's views: scores agree with those of the first as far as the product of all scores allows.

    It keeps its sign, so that of the signs is 1.  An even number may be turned together: the largest of the first
    view's ``loadings`` is positive.
    """
    signs = np.where(relations < 0, -1.0, 1.0)
    if len(signs) % 2:
        return np.asarray(signs * signs.prod())
    signs[-1] *= signs.prod()
    return -signs if loadings[np.argmax(np.abs(loadings))] * signs[0] < 0 else signs
