r"""Independent sources of a table: directions with a large third or fourth cumulant, which is never built.

Rows x = μ + A s with independent s.  With weights w, scores y = ⟨w, x - μ⟩ and means over rows written E, a function g
of the scores has the gradient

.. math:: c = E[g(y)\,x] - E[g'(y)]\,E[y\,x], \qquad \kappa = \langle w, c\rangle ,

where E[x] = E[y] = 0 (it is corrected for where it is not).  With g = y² it is that of the third cumulant, with y³ that
of the fourth.  Whitened (:mod:`tpca.solvers.folds`; a table is one view), a cumulant is a sum of orthogonal rank-one
parts κ_k v_k⊗…⊗v_k.  With ``whiten_rank`` rows are first their coordinates along the leading directions of the
covariance.

*Search.*  Many random starts climb by themselves, u ← ±c(u)/|c(u)| with known components taken out of the gradient.
What they reach is sorted by |κ|, and whatever differs is kept.  Then all climb together, an orthonormal set (Hyvärinen
1999).

*Pairs.*  The turn θ of two sources, from u_i towards u_j, follows from either gradient, with errors of variance V_i and
V_j and covariance -1/4 (times 1/n, first order, the whitening from the same rows taken into account), so that the best
of all weighted means is (as Koldovský, Tichavský and Oja 2006 in EFICA)

.. math::
    \theta = \omega\,\frac{\langle c_i,u_j\rangle}{\kappa_i} - (1-\omega)\,\frac{\langle c_j,u_i\rangle}{\kappa_j},
    \quad \omega = \frac{V_j+\frac14}{V_i+V_j+\frac12}, \quad
    V\kappa^2 = E[(g - ay)^2] - E[g]^2, \quad a = \frac{E[yg] + E[g']}2

(Tichavský, Koldovský and Oja 2006, Eq. 8).

*Sharper, order 4.*  Any odd function g has its optimum at the same directions.  Every source takes the one with the
least V in its own scores among y³ (light tails), tanh y and tanh 2y (heavy ones); then all turn on.  V is 6.3, 2.2 and
1.8 for a Laplace source, 0.7, 0.9 and 1.4 for a uniform one.  What is a component is judged by its kurtosis.

*Test*, on rows that the weights have not seen, the first fold: at order 3 skewness over its standard error, from the
scatter of y³ - 3y, also right for rows that are symmetric and not Gaussian; at order 4 kurtosis, by the normal
approximation of Anscombe and Glynn (1983) for Gaussian rows.  Of r p-values, Holm's (1979) adjusted ones are reported.
All components are then fitted to all rows.  Only the leading directions of ``whiten_rank`` are those of all rows from
the beginning, which does no harm: Gaussian rows are their covariance times a frame that is uniform whatever it is, and
signs of symmetric rows leave covariances alone.

*Errors.*  At the final weights the gradient is κ_k a_k, a_k the column of A, and depends on the error of w in second
order only, but for its length.  With a = c/κ and h = g - E[g] - E[g']y,

.. math:: \mathrm{se}(a_j)^2 = \frac{1}{n^2\kappa^2}\sum_i h_i^2\,(x_{ij} - a_j y_i)^2 .
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import ttest_1samp

from tpca.data.rows import RowsStream
from tpca.errors import SampleError, SolverError, check_integer
from tpca.randomness import generator
from tpca.solvers.folds import (
    LANCZOS,
    MEMORY,
    NONE,
    FirstLook,
    FoldedBatch,
    FoldedRows,
    Folds,
    Passes,
    Reader,
    Turn,
    Whitening,
    contracted,
    joined_scores,
    leading_directions,
    learn_whitenings,
    refuse_memory,
)
from tpca.solvers.options import check_memory, check_options, check_share, option
from tpca.solvers.rank_one import toward, units
from tpca.solvers.views import standardised
from tpca.tensors.blocks import Array

HELD = 0  # the fold that judges
LIGHT = 0.04  # how much scores of light tails are drawn in
MIN_HELD = 20  # rows below which the laws of the tests are not known well enough: nothing is proven then
FIRST_SWEEPS, SWEEPS = 12, 60
MOVE_TOL = 1e-10  # squared change of a vector at which it is at rest
SAME = 0.7  # overlap above which two starts have reached the same component
ATTEMPTS, RANDOM_STARTS = 4, 12  # times that vectors start, beside what is known; beside two for each that is wanted
EXTRA = 10  # columns beside the leading directions in the iteration that finds them


# What passes add up ---------------------------------------------------------------------------------------------------


def _tanh(y: Array, steep: float) -> tuple[Array, Array]:
    g = np.tanh(steep * y)
    return g, steep * (1 - g * g)


FUNCTIONS: tuple[Callable[[Array], tuple[Array, Array]], ...] = (  # g and g'
    lambda y: (y * y, 2 * y),
    lambda y: (y * y * y, 3 * y * y),
    lambda y: _tanh(y, 1.0),
    lambda y: _tanh(y, 2.0),
)
FUNCTION_OF = {3: 0, 4: 1}  # whose gradients are those of the cumulant of an order
CONTRASTS = (1, 2, 3)  # of which sources of order 4 choose


def contrast_sums(
    batch: FoldedBatch, weights: Array, chosen: NDArray[np.int_], tried: Sequence[int], out: int
) -> list[Any]:
    """For L ``weights`` ``(L, d)``, weight l with function ``chosen[l]``, sums over rows.

    Rows that count, all or those that are not held out; x ``(d,)``; moments ``(F, 5, L)`` of all functions that are
    ``tried``: g, g², y·g, g' and y; products ``(2, L, d)``: x times y, and times the function that was chosen.
    """
    rows = batch.views[0][0 if out == NONE else batch.held[HELD].stop :]
    y = (rows @ weights.T.astype(rows.dtype)).astype(np.float64)
    own, moments = np.empty(y.shape), np.empty((len(tried), 5, len(weights)))
    for place, number in enumerate(tried):
        g, slope = FUNCTIONS[number](y)
        inner = np.einsum("jl,jl->l", g, g), np.einsum("jl,jl->l", y, g)
        moments[place] = g.sum(axis=0), *inner, slope.sum(axis=0), y.sum(axis=0)
        own[:, chosen == number] = g[:, chosen == number]
    factors = np.concatenate([y, own], axis=1).T.astype(rows.dtype)
    products = (factors @ rows).reshape(2, *weights.shape)
    return [len(rows), rows.sum(axis=0, dtype=np.float64), moments, products]


def contrasts(
    passes: Passes, weights: Array, chosen: NDArray[np.int_], tried: Sequence[int], out: int = NONE
) -> tuple[Array, Array]:
    """Gradients c ``(L, d)`` by the functions that were chosen, among the columns; means ``(F, 5, L)`` of all tried."""
    count, *sums = passes.sums(contrast_sums, weights, chosen, tuple(tried), out)
    x, moments, (score, own) = (total / max(float(count), 1.0) for total in sums)
    first, slope, y = np.moveaxis(moments[np.searchsorted(tried, chosen), :, np.arange(len(chosen))], 1, 0)[[0, 3, 4]]
    return own - first[:, None] * x - slope[:, None] * (score - y[:, None] * x), moments


def variances(moments: Array) -> Array:
    """V ``(F, L)`` of all functions that were tried, from the means of :func:`contrasts`."""
    first, square, inner, slope, _ = np.moveaxis(moments, 1, 0)
    middle = (inner + slope) / 2
    own = square - 2 * middle * inner + middle**2 - first**2
    return np.asarray(np.maximum(own, 1e-12) / np.maximum((inner - slope) ** 2, 1e-12))


def influence(batch: FoldedBatch, weights: Array, function: int, means: Array) -> list[Array]:
    """Σ h² x², Σ h² y x ``(L, d)`` and Σ h² y² ``(L,)`` of all rows; ``means`` are E[g] and E[g'] of every weight."""
    rows = batch.views[0].astype(np.float64)
    y = rows @ weights.T.astype(np.float64)  # a copy: what a worker was sent may be misaligned, and takes other bits
    h2 = (FUNCTIONS[function](y)[0] - means[0] - means[1] * y) ** 2
    return [h2.T @ rows**2, (h2 * y).T @ rows, np.sum(h2 * y * y, axis=0)]


# The test of a moment -------------------------------------------------------------------------------------------------


def moment_p_values(scores: Array, order: int, signs: Array) -> Array:
    """Chance of a moment of rows ``(L, n)`` with these signs, where there is none."""
    if scores.shape[1] < MIN_HELD:
        return np.ones(len(signs))
    y = standardised(scores)
    if order == 3:
        return np.asarray(ttest_1samp(signs[:, None] * (y**3 - 3 * y), 0, axis=1, alternative="greater").pvalue)
    return np.asarray(ndtr(-signs * kurtosis_score(np.mean(y**4, axis=1), y.shape[1])))


def kurtosis_score(m4: Array, n: int) -> Array:
    """A fourth moment of n Gaussian numbers, of mean 0 and variance 1, as a normal score (Anscombe and Glynn 1983).

    ``scipy.stats.kurtosistest`` gives very light tails, such as those of two values, the score of heavy ones.  By
    simulation (10^6 draws, 20 to 1000 rows) the lower tail of the approximation is up to 1.25 times too often below a
    level of 1/60, and 1.6 times below 1/200; drawn in by ``LIGHT`` it is at most 1.0 times.  The upper tail is right.
    """
    mean = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3.0) * (n + 5))
    x = (m4 - mean) / math.sqrt(variance)
    root = math.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    skew = 6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * root
    a = 6.0 + 8.0 / skew * (2.0 / skew + math.sqrt(1 + 4.0 / skew**2))
    ratio = (1 - 2.0 / a) / np.maximum(1 + x * math.sqrt(2 / (a - 4.0)), 1e-3)  # lighter than any law: the floor
    score = (1 - 2.0 / (9.0 * a) - np.cbrt(ratio)) / math.sqrt(2 / (9.0 * a))
    return np.asarray(np.where(score < 0, score / (1 - LIGHT * score), score))


def holm(p_values: Array) -> Array:
    """Adjusted p-values: the least level at which each is claimed, with any false claim as rare as that (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    found = np.empty_like(adjusted)
    found[order] = np.minimum(adjusted, 1.0)
    return found


# The search -----------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Components: unit rows ``(c, q)`` and their strengths."""

    vectors: Array
    strengths: Array


def sweep(gradient: Array, vectors: Array, known: Found, order: int) -> Found:
    """Every vector by itself, one step up from its gradient, without what is known, and orthogonal to it."""
    own = gradient - (known.strengths * (vectors @ known.vectors.T) ** (order - 1)) @ known.vectors
    own = _beside(own, known.vectors)
    strengths = np.sum(vectors * own, axis=1)
    return Found(toward(np.where(strengths < 0, -1.0, 1.0)[:, None] * own, vectors)[0], strengths)


def balanced(gradient: Array, vectors: Array, variances: Array) -> Found:
    """All vectors at once, every pair turned by the best weighted mean of what its two gradients say."""
    inner = gradient @ vectors.T
    strengths = np.diagonal(inner).copy()
    safe = np.where(strengths == 0, 1.0, strengths)[:, None]
    weights = (variances[None, :] + 0.25) / (variances[:, None] + variances[None, :] + 0.5)
    ratio = weights * inner / safe
    turn = np.clip(ratio - ratio.T, -1.0, 1.0)
    outside = (gradient - inner @ vectors) / safe
    return Found(orthonormal(vectors + turn @ vectors + outside), strengths)


def repeated(step: Callable[[Array], Found], vectors: Array, sweeps: int) -> Found:
    """Step after step, until no vector moves, whatever its sign."""
    found = Found(vectors, np.zeros(len(vectors)))
    for _ in range(sweeps):
        before, found = found.vectors, step(found.vectors)
        overlap = np.abs(np.sum(before * found.vectors, axis=1))
        if 2 * np.max(1 - np.minimum(overlap, 1.0), initial=0.0) < MOVE_TOL:
            break
    return found


def search(gradient: Callable[[Array], Array], q: int, count: int, order: int, rng: np.random.Generator) -> Array:
    """Vectors ``(count, q)`` from random starts and, if these reach too few, from others beside what is known."""
    known = Found(np.zeros((0, q)), np.zeros(0))
    for _ in range(ATTEMPTS):
        starts = rng.standard_normal((2 * (count - len(known.vectors)) + RANDOM_STARTS, q))

        def step(own: Array, known: Found = known) -> Found:
            return sweep(gradient(own), own, known, order)

        reached = repeated(step, units(_beside(starts, known.vectors)), FIRST_SWEEPS)
        vectors, strengths = list(known.vectors), list(known.strengths)
        for place in np.argsort(-np.abs(reached.strengths), kind="stable"):
            u = reached.vectors[place]
            if len(vectors) < count and all(abs(u @ v) < SAME for v in vectors):
                vectors.append(u)
                strengths.append(reached.strengths[place])
        known = Found(orthonormal(np.reshape(vectors, (-1, q))), np.array(strengths))
        if len(vectors) == count:
            break
    # What is missing at last climbs together with the others, from anywhere.
    missing = units(_beside(rng.standard_normal((count - len(known.vectors), q)), known.vectors))
    return np.concatenate([known.vectors, missing])


def orthonormal(vectors: Array) -> Array:
    """The orthonormal set next to some vectors, which are independent."""
    left, _, right = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(left @ right)


def _beside(vectors: Array, known: Array) -> Array:
    return np.asarray(vectors - (vectors @ known.T) @ known)


# The fit --------------------------------------------------------------------------------------------------------------


def check_order(name: str, value: Any) -> int:
    """3 or 4."""
    if isinstance(value, bool) or value not in (3, 4):
        raise SolverError(f"{name} must be 3 or 4, got {value!r}; moments of order 2 are those of PCA.")
    return int(value)


def check_closed_share(name: str, value: float) -> float:
    """From 0 on, less than 1."""
    if isinstance(value, str) or not 0 <= value < 1:
        raise SolverError(f"{name} must be at least 0 and less than 1, got {value!r}.")
    return float(value)


@dataclass(kw_only=True, frozen=True)
class SourcesOptions:
    """What a fit of a table is asked for."""

    n_components: int = option(1, check_integer)
    order: int = option(3, check_order)
    whiten_rank: int | None = option(None, check_integer)
    shrinkage: float = option(0.0, check_closed_share)
    validation_fraction: float = option(0.2, check_closed_share)
    confidence: float = option(0.95, check_share)
    memory_limit: Any = option(None, check_memory)
    random_state: int = option(0)

    def __post_init__(self) -> None:
        check_options(self)

    def check_width(self, d: int) -> float:
        """Refuse what d columns do not have, or memory has no room for; bytes that are needed beside rows."""
        q = self.whiten_rank or d
        if self.n_components > d or q > d:
            name = "n_components" if self.n_components > d else "whiten_rank"
            raise SolverError(f"{name} must be at most the {d} columns of the rows, got {vars(self)[name]}.")
        if self.n_components > q:
            raise SolverError(f"n_components must be at most whiten_rank={q}, got {self.n_components}.")
        # Blocks and images of the iteration; sums of two folds, covariances, and L twice.
        needed = 8 * (8 * q * q + 9 * d * self.n_components + (q < d) * (2 * LANCZOS + 4) * (q + EXTRA) * d)
        refuse_memory(needed, self.memory_limit, f"{d} columns whitened in {q} directions")
        return needed


@dataclass(frozen=True)
class SourcesFit:
    """What a fit of a table gave; ``components``, ``directions`` and their errors are ``(c, d)``, strongest first."""

    mean: Array
    components: Array
    directions: Array
    standard_errors: Array
    strengths: Array
    p_values: Array
    significant: NDArray[np.bool_]
    n_samples: int
    n_skipped: int

    @property
    def tested(self) -> bool:
        """Whether rows were held out to judge by."""
        return not bool(np.isnan(self.p_values).any())


def fit_sources(stream: RowsStream, reader: Reader, asked: SourcesOptions) -> SourcesFit:
    """Sources of a stored table; ``reader`` makes an engine over a stream."""
    needed, length = asked.check_width(stream.dims[0]), stream.length or 0
    engine, tested = reader(stream), asked.validation_fraction > 0
    look = engine.reduce(FirstLook(stream.dims))
    if look.n < 2:
        raise SampleError(f"moments need rows that differ, got n_samples = {look.n}; give more.")
    folds = Folds.of(look, length, asked.validation_fraction or 1.0, most=1)
    room = MEMORY if asked.memory_limit is None else asked.memory_limit - needed
    table = Passes(FoldedRows(stream, folds, look.means, [None]), reader, room)
    passes, turn = table, None
    if asked.whiten_rank is not None and asked.whiten_rank < stream.dims[0]:
        turn = _leading_turn(table, asked.whiten_rank)
        passes = Passes(FoldedRows(stream, folds, look.means, [turn]), reader, room)
    out = [NONE, HELD] if tested else [NONE]
    whitenings, _ = learn_whitenings(passes, look, 1, [turn], asked.shrinkage, out)
    climb = Climb(passes, whitenings[out[-1]][0], asked.order, out[-1])
    rng = generator(asked.random_state, "moments of a table")
    reached = search(climb.gradient, passes.dims[0], asked.n_components, asked.order, rng)
    vectors, strengths = climb.refined(reached)
    p = np.full(len(vectors), np.nan)
    if tested:
        weights = climb.white.weights(vectors)
        p = holm(moment_p_values(joined_scores(passes, [[weights]])[1][:, 0], asked.order, np.sign(strengths)))
        climb = Climb(passes, whitenings[NONE][0], asked.order)
        vectors, _ = climb.refined(units(weights @ climb.white.lower))
    weights = climb.white.weights(vectors)
    weights *= (look.n / (look.n - 1)) ** 0.5  # scores of the rows have variance 1, divided by n
    weights = weights if turn is None else weights @ turn.down.T
    fit = _concluded(table, weights, p, asked, look, engine.n_skipped)
    engine.check_unchanged()
    return fit


def _leading_turn(table: Passes, q: int) -> Turn:
    """Leading directions ``(d, q)`` of the covariance."""
    d = table.dims[0]

    def image(block: Array) -> Array:
        columns = block.shape[1]
        return table.sums(contracted, [block[0]], [np.zeros(columns)], np.full(columns, NONE), None)[2][None]

    directions = np.ascontiguousarray(leading_directions(image, (1, min(q + EXTRA, d), d))[0, :q].T)
    return Turn(directions, directions)


def _concluded(
    table: Passes, weights: Array, p: Array, asked: SourcesOptions, look: FirstLook, n_skipped: int
) -> SourcesFit:
    """Directions and their errors, in the columns of the table; the strongest first, with definite signs."""
    function = FUNCTION_OF[asked.order]
    gradients, moments = contrasts(table, weights, np.full(len(weights), function), (function,))
    strengths = np.sum(weights * gradients, axis=1)
    lengths = np.where(strengths == 0, 1.0, strengths)[:, None]
    directions = gradients / lengths
    squares, cross, own = table.sums(influence, weights, function, moments[0, [0, 3]])
    squares = squares - 2 * directions * cross + directions**2 * own[:, None]
    errors = np.sqrt(np.maximum(squares, 0.0)) / (look.n * np.abs(lengths))
    signs = np.where(strengths < 0, -1.0, 1.0)  # the skewness is positive
    if asked.order == 4:  # the kurtosis has its own sign; the largest entry is positive
        largest = np.argmax(np.abs(directions), axis=1)
        signs = np.where(np.take_along_axis(directions, largest[:, None], axis=1)[:, 0] < 0, -1.0, 1.0)
    strengths = np.abs(strengths) if asked.order == 3 else strengths
    by = np.argsort(-np.abs(strengths), kind="stable")
    weights, directions = (signs[:, None] * weights)[by], (signs[:, None] * directions)[by]
    significant = p[by] <= 1 - asked.confidence
    return SourcesFit(
        look.means[0], weights, directions, errors[by], strengths[by], p[by], significant, look.n, n_skipped
    )


class Climb:
    """Gradients of the moment of some rows, and the last climb with them."""

    def __init__(self, passes: Passes, white: Whitening, order: int, out: int = NONE) -> None:
        self.white, self._passes, self._order, self._out = white, passes, order, out

    def _contrasts(self, vectors: Array, chosen: NDArray[np.int_], tried: Any) -> tuple[Array, Array]:
        """Gradients among whitened columns, and V of all that are tried."""
        found, moments = contrasts(self._passes, self.white.weights(vectors), chosen, tried, self._out)
        return self.white.whitened(found), variances(moments)

    def gradient(self, vectors: Array) -> Array:
        """Of the cumulant."""
        function = FUNCTION_OF[self._order]
        return self._contrasts(vectors, np.full(len(vectors), function), (function,))[0]

    def refined(self, vectors: Array) -> Found:
        """What all components reach together: at order 4 by the function that tells each best."""
        chosen = np.full(len(vectors), FUNCTION_OF[self._order])
        found = repeated(lambda own: self._balanced(own, chosen), orthonormal(vectors), SWEEPS)
        if self._order == 3:
            return found
        chosen = np.take(CONTRASTS, np.argmin(self._contrasts(found.vectors, chosen, CONTRASTS)[1], axis=0))
        if np.all(chosen == FUNCTION_OF[4]):  # all of them by their cubes, as they are
            return found
        vectors = repeated(lambda own: self._balanced(own, chosen), found.vectors, SWEEPS).vectors
        return Found(vectors, np.sum(vectors * self.gradient(vectors), axis=1))

    def _balanced(self, vectors: Array, chosen: NDArray[np.int_]) -> Found:
        tried = np.unique(chosen)
        gradients, each = self._contrasts(vectors, chosen, tried)
        return balanced(gradients, vectors, each[np.searchsorted(tried, chosen), np.arange(len(chosen))])
