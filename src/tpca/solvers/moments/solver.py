r"""Moments of stored views: the best rank-one part of E[z_1 ⊗ … ⊗ z_k̄], in a few passes, without building it.

Views z_i are whitened rows.  With scores :math:`y_i = \langle z_i, v_i\rangle` the moment
:math:`E[y_1\cdots y_{\bar k}]` is climbed by alternating over the modes (higher-order power iteration, several starts
at once):

.. math::
    g_m = E\Bigl[z_m \prod_{i\ne m} y_i\Bigr]
          - \sum_c \lambda_c \prod_{i\ne m}\langle v_i, u_{ic}\rangle\, u_{mc}, \qquad v_m = g_m/\|g_m\|,

the sum being over components (λ_c, u_c) found before.  The moment has many local optima, so the starts matter:

* *shared*: leading directions of all views put side by side (MAXVAR, Kettenring 1971): what is related in pairs needs
  far fewer rows to be seen there than in a moment of high order;
* *flow*: subspace iteration on the unfolded moment, :math:`U = T\hat V,\ V = T^\top\hat U`, r columns, T never formed;
  taken where its columns fit the memory;
* *random*.

Rows are split once: starts and climb see the training part.  The part held out says how far to climb (to the top, a few
sweeps, or not at all: with few rows the highest moments are those of single rows) and judges what comes of it; a
permutation test (rows of the views shuffled against each other) says whether it could be chance.  If it could not, the
same is done on all rows: what was judged is the procedure on the training part, an honest and cautious figure.

With ``clip`` a score counts at most ``clip`` standard deviations, so that a row's influence on the moment is bounded by
clip^k̄ (rows were drawn back to ``clip`` typical distances before, :mod:`tpca.streams.whitening`).

=================  ===================================================================
symbol             code
=================  ===================================================================
v_i                ``vectors[i]``, one row per start
g_m                :func:`mode_gradient`
(λ_c, u_c)         ``deflate``
=================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tpca.engines import open_engine
from tpca.errors import SolverError
from tpca.integers import check_integer
from tpca.randomness import generator
from tpca.solvers.base import check_options, check_positive, check_seed, check_share, option
from tpca.solvers.moments.accumulators import BasisImage, Products, RowCount, bounded, total
from tpca.solvers.moments.rows import Rows
from tpca.solvers.rank_one import alternate, deflated, is_ghost, oriented, split_blocks, units
from tpca.tensors import Gradients, Query, RankOne, Scores
from tpca.tensors.blocks import Array, Partition

SHARED, COLUMNS, RANDOM = 6, 6, 8  # starts of each kind
EXTRA = 4  # columns beside those wanted, for the subspace iteration of the shared starts
PASSES, FLOW_PASSES = 6, 4  # of subspace iteration: shared starts, flow
FIRST_SWEEPS, FINALISTS, SWEEPS = 5, 4, 60
MOVE_TOL = 1e-9  # squared change of the vectors at which a climb is at rest
PERMUTATIONS, MAX_PERMUTATIONS = 999, 29_999
EXACT_ROWS = 4000  # above this many rows the permutation law is normal enough
MIN_ROWS = 20
SAME = 0.7  # overlap above which a vector is that of an earlier component


@dataclass(frozen=True)
class Moment:
    """One component: vectors among the whitened columns, its moment on all rows, and what held-out rows say of it.

    ``trained`` is the same from the training part alone.
    """

    vectors: tuple[Array, ...]
    moment: float
    correlation: float
    correlation_error: float
    p_value: float
    trained: RankOne


@dataclass(kw_only=True, eq=False)
class MomentSolver:
    """Rank-one parts of the moment of stored views, one after the other, as long as held-out rows prove them."""

    random_state: int = option(0, check_seed)
    n_components: int = option(1, check_integer)
    validation_fraction: float = option(0.2, check_share)
    clip: float | None = option(None, check_positive)
    confidence: float = option(0.95, check_share)
    memory_limit: float = option(256e6)
    refit: bool = option(True)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, data: Any) -> list[Moment]:
        """Components, strongest evidence first found; the last one is not proven if its ``p_value`` is too large.

        ``data`` is a stream of whitened views, or an engine over one.
        """
        rows = Rows(open_engine(data), self.validation_fraction, self.memory_limit, self.random_state)
        count, learnt = (total(part, RowCount()).n for part in (rows.all, rows.train))
        if count < MIN_ROWS:
            raise SolverError(f"at least {MIN_ROWS} rows are needed to learn from and to judge by, got {count}.")
        if learnt < 2:
            raise SolverError(
                f"validation_fraction={self.validation_fraction} leaves {learnt} of {count} rows to learn from; "
                "hold out fewer, or give more."
            )
        rng = generator(self.random_state, "moments")
        found: list[Moment] = []
        while len(found) < self.n_components:
            found.append(self._component(rows, found, rng))
            if any(is_ghost(found[-1].vectors, earlier.vectors, SAME) for earlier in found[:-1]):
                found.pop()
                break
            if found[-1].p_value > 1 - self.confidence:
                break
        return found

    def _component(self, rows: Rows, found: Sequence[Moment], rng: np.random.Generator) -> Moment:
        # What the training part says of the earlier ones is subtracted from it: nothing of the held-out rows gets in.
        deflate = tuple(moment.trained for moment in found)
        starts = self._starts(rows, deflate, rng)
        levels = self._levels(rows.train, starts, deflate)
        held = total(rows.held, Scores([vectors for vectors, _ in levels])).levels
        level = choose(held, self.clip)
        # Enough shufflings for the level asked for to be reached, up to a confidence of about 0.9998.
        wanted = math.ceil(2 * len(levels) / (1 - self.confidence))
        shufflings = min(max(PERMUTATIONS, wanted), MAX_PERMUTATIONS)
        correlation, error, p_value = judge(held[level], self.clip, rng, shufflings)
        p_value = min(1.0, len(levels) * p_value)  # the best of so many was judged
        vectors, moment = levels[level]
        trained = RankOne(moment, tuple(v[0] for v in vectors))
        if self.refit and p_value <= 1 - self.confidence:  # all starts again: more rows may prefer another optimum
            shared = shared_starts(rows.all, rows.dims, rng)
            again = [np.concatenate(both) for both in zip(shared, starts, strict=True)]
            whole = tuple(RankOne(earlier.moment, earlier.vectors) for earlier in found)
            vectors, moment = self._levels(rows.all, again, whole)[level]
        return Moment(oriented([v[0] for v in vectors]), moment, correlation, error, p_value, trained)

    def _levels(
        self, rows: Any, starts: Sequence[Array], deflate: tuple[RankOne, ...]
    ) -> list[tuple[list[Array], float]]:
        """The best after a climb to the top, after a few sweeps, and of the shared starts as they are."""
        few, moments = climb(rows, starts, FIRST_SWEEPS, self.clip, deflate)
        best = _different(few, moments, FINALISTS)
        top, highest = climb(rows, [v[best] for v in few], SWEEPS, self.clip, deflate)
        shared = [v[:SHARED].copy() for v in starts]
        still = np.sum(mode_gradient(rows, shared, 0, self.clip, deflate) * shared[0], axis=1)
        shared[-1] *= np.where(still < 0, -1.0, 1.0)[:, None]
        each = ((top, highest), (few, moments), (shared, np.abs(still)))
        winners = [int(np.argmax(sizes)) for _, sizes in each]
        return [([v[[w]] for v in vectors], float(sizes[w])) for (vectors, sizes), w in zip(each, winners, strict=True)]

    def _starts(self, rows: Rows, deflate: tuple[RankOne, ...], rng: np.random.Generator) -> list[Array]:
        """Starts of all kinds, the shared ones first."""
        kinds = [shared_starts(rows.train, rows.dims, rng), [rng.standard_normal((RANDOM, d)) for d in rows.dims]]
        partition = Partition.halves(rows.dims)
        columns = min(COLUMNS, *partition.sizes)
        if 8 * 6 * columns * sum(partition.sizes) <= self.memory_limit:  # columns, gradients, and copies to turn them
            kinds.append(flow_starts(rows.train, partition, columns, deflate, rng))
        return [units(np.concatenate(modes)) for modes in zip(*kinds, strict=True)]


def climb(
    rows: Any, vectors: Sequence[Array], sweeps: int, clip: float | None, deflate: Sequence[RankOne]
) -> tuple[list[Array], Array]:
    """Alternate over the modes until all starts are at rest; the vectors reached and their moments."""
    return alternate(lambda v, mode: mode_gradient(rows, v, mode, clip, deflate), vectors, sweeps, MOVE_TOL)


def mode_gradient(
    rows: Any, vectors: Sequence[Array], mode: int, clip: float | None, deflate: Sequence[RankOne]
) -> Array:
    """g_m of every start, over all of some rows."""
    sums = total(rows, Products(vectors, mode, clip))
    return deflated(sums.total / max(sums.n, 1), vectors, mode, deflate)


def shared_starts(rows: Any, dims: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Leading directions of all views side by side, by subspace iteration, cut into one vector per view."""
    count = min(SHARED + EXTRA, *dims)
    cuts = np.cumsum(dims)[:-1]
    basis = np.linalg.qr(rng.standard_normal((sum(dims), count)))[0]
    for _ in range(PASSES):
        image = total(rows, BasisImage(basis, dims)).image
        values, axes = np.linalg.eigh(basis.T @ image)
        basis = np.linalg.qr(image @ axes[:, np.argsort(-values)])[0]
    return [units(part[:, :SHARED].T) for part in np.split(basis, cuts)]


def flow_starts(
    rows: Any, partition: Partition, columns: int, deflate: tuple[RankOne, ...], rng: np.random.Generator
) -> list[Array]:
    """Singular pairs of the unfolded moment by subspace iteration, each read as one vector per mode."""
    left, right = (_polar(rng.standard_normal((columns, size))) for size in partition.sizes)
    for _ in range(FLOW_PASSES):
        left = _polar(_block_gradient(rows, partition, (left, right), 0, deflate))
        image = _block_gradient(rows, partition, (left, right), 1, deflate)
        core, right = image @ right.T, _polar(image)
    turn, _, back = np.linalg.svd(core)
    starts = []
    for pair in zip(turn.T @ left, back @ right, strict=True):
        blocks = [block.reshape(shape) for block, shape in zip(pair, partition.shapes, strict=True)]
        starts.append(split_blocks(partition.groups, blocks))
    return [np.stack(mode) for mode in zip(*starts, strict=True)]


def choose(held: Sequence[Sequence[Sequence[NDArray[Any]]]], clip: float | None) -> int:
    """How far to climb: to the top, unless held-out rows are clearly better off with less.

    With few rows the highest moments belong to single rows, and every sweep leads away from what the views share.
    """
    chosen, best = 0, _products(held[0], clip)
    for level, scores in enumerate(held[1:], start=1):
        products = _products(scores, clip)
        gain = products - best
        if len(gain) > 1 and gain.mean() > gain.std(ddof=1) / math.sqrt(len(gain)):
            chosen, best = level, products
    return chosen


def judge(
    scores: Sequence[Sequence[NDArray[Any]]],
    clip: float | None,
    rng: np.random.Generator,
    shufflings: int = PERMUTATIONS,
) -> tuple[float, float, float]:
    """Correlation of higher order of some scores, its standard error, and the chance of as much by accident."""
    views = [np.concatenate(parts)[:, 0] for parts in zip(*scores, strict=True)]
    rows = len(views[0])
    if rows < 3:
        return math.nan, math.nan, 1.0
    standard = standardised(views, clip)
    products = np.prod(standard, axis=0)
    mean, error = float(products.mean()), float(products.std(ddof=1)) / math.sqrt(rows)
    if rows > EXACT_ROWS:
        return mean, error, float(ndtr(-mean / error)) if error > 0 else 1.0
    first, *others = standard
    chance = 1
    for _ in range(shufflings):
        shuffled = first
        for view in others:
            shuffled = shuffled * view[rng.permutation(rows)]
        chance += bool(shuffled.mean() >= mean)
    return mean, error, chance / (shufflings + 1)


def _products(scores: Sequence[Sequence[NDArray[Any]]], clip: float | None) -> Array:
    views = [np.concatenate(parts)[:, 0] for parts in zip(*scores, strict=True)]
    products: Array = np.prod(standardised(views, clip), axis=0)
    return products


def standardised(views: Sequence[NDArray[Any]], clip: float | None) -> list[Array]:
    """Scores of mean 0 and variance 1, at most ``clip`` in size."""
    each = []
    for view in views:
        wide = view.astype(np.float64)
        spread = float(wide.std())
        each.append(bounded((wide - wide.mean()) / (spread or 1.0), clip))
    return each


def _block_gradient(
    rows: Any, partition: Partition, blocks: tuple[Array, Array], wanted: int, deflate: tuple[RankOne, ...]
) -> Array:
    replicas = tuple(b.reshape(-1, *shape) for b, shape in zip(blocks, partition.shapes, strict=True))
    query = Query(partition, replicas, (wanted,), deflate)
    (answer,) = total(rows, Gradients([query])).answers
    return answer.gradients[wanted].reshape(blocks[wanted].shape)


def _different(vectors: Sequence[Array], moments: Array, most: int) -> list[int]:
    """The best starts that have not ended at the same place as a better one."""
    chosen: list[int] = []
    for r in np.argsort(-moments):
        same = any(min(abs(float(v[r] @ v[c])) for v in vectors) > 0.99 for c in chosen)
        if not same and len(chosen) < most:
            chosen.append(int(r))
    return chosen


def _polar(columns: Array) -> Array:
    """The nearest orthonormal rows."""
    left, _, right = np.linalg.svd(columns, full_matrices=False)
    nearest: Array = left @ right
    return nearest
