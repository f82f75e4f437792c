r"""Independent sources of a table: directions with a large third or fourth cumulant, which is never built.

Rows x = μ + A s with independent s.  With weights w, scores y = ⟨w, x - μ⟩ and means over rows written E, a function g
of the scores has the gradient

.. math:: c = E[g(y)\,x] - E[g'(y)]\,E[y\,x], \qquad \kappa = \langle w, c\rangle ,

where E[x] = E[y] = 0 (it is corrected for where it is not).  With g = y² it is that of the third cumulant, with y³ that
of the fourth.  Whitened, z = W(x - μ) (:mod:`tpca.solvers.folds`, or the q leading directions of the covariance by
subspace iteration, Halko, Martinsson and Tropp 2011), a cumulant is a sum of orthogonal rank-one parts κ_k v_k⊗…⊗v_k.
No row is whitened: ⟨u, z⟩ = ⟨Wᵀu, x - μ⟩.

*Search.*  Many starts climb by themselves, u ← ±c(u)/|c(u)| with known components taken out of the gradient; what they
reach is sorted by |κ|, and whatever differs is kept.  They start from eigenvectors of one slice of the moment, in which
every component shows at once, Σ|z|²zzᵀ at order 4 (Cardoso 1989), Σ⟨t,z⟩zzᵀ with t = Σ|z|²z at order 3; and at random.
Then all climb together: the next orthonormal set is the polar factor of their gradients (Hyvärinen 1999).

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

*Test*, on rows that the weights have not seen, the first fold of :mod:`tpca.solvers.folds`: at order 3 skewness over
its standard error, from the scatter of y³ - 3y, also right for rows that are symmetric and not Gaussian; at order 4
kurtosis, by the normal approximation of Anscombe and Glynn (1983) for Gaussian rows.  Of r p-values, Holm's (1979)
adjusted ones are reported.  All components are then fitted once more to all rows.

*Errors.*  At the final weights the gradient c is κ_k a_k, a_k the column of A, and depends on the error of w in second
order only, but for its length.  It is kept for K sub-batches of rows: with a = c/⟨w, c⟩,

.. math::
    \mathrm{se}(a_j)^2 = \frac{1}{K(K-1)}\sum_b \Bigl(\frac{c_{bj} - a_j\langle w, c_b\rangle}{\langle w, c\rangle}
    \Bigr)^2 .

*Rows that pass by once.*  The first rows, ten for every column and at least a thousand, are fitted like a stored table.
Then no row is kept.  Rounds follow, each half as many rows as all before: the gradients of a round are those at weights
fixed before it, so that its rows judge them (normal scores s_b add up as :math:`\sum\sqrt{n_b}s_b/\sqrt{\sum n_b}`);
averaged over all rounds they give the weights of the next in one step.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr

from tpca.data.rows import KeptVectors, MadeVectors, RowsStream, VectorStream
from tpca.engines import Engine, LocalEngine
from tpca.errors import SampleError, SolverError, check_integer
from tpca.randomness import generator
from tpca.solvers.folds import FirstLook, Folds, Whitening, refuse_memory
from tpca.solvers.options import check_memory, check_options, check_share, option
from tpca.solvers.rank_one import leading, toward, units
from tpca.tensors import Accumulator
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch

A = TypeVar("A", bound=Accumulator)
Reader = Callable[[VectorStream], Engine]
Gradient = Callable[[Array], Array]

LIGHT = 0.04  # how much scores of light tails are drawn in
MIN_HELD = 20  # rows below which the laws of the tests are not known well enough: nothing is proven then
FIRST_SWEEPS, SWEEPS = 12, 60
MOVE_TOL = 1e-10  # squared change of a vector at which it is at rest
SAME = 0.7  # overlap above which two starts have reached the same component
MORE_STARTS, RANDOM_STARTS = 3, 8  # times that others start beside what is known; random ones beside those wanted
MORE = 4  # eigenvectors of a slice that start beside those wanted
RUN = 16  # neighbouring rows that belong to the same sub-batch
BLOCKS = 32  # sub-batches for errors, which are known to 1/sqrt(2 (K - 1)) = 13 %
KEEP = 256e6  # bytes of projected rows that are kept between passes
EXTRA = 10  # columns beside those wanted, in subspace iteration
MAX_IMAGES = 40
RITZ_TOL = 1e-8  # relative change of the sum of the leading Ritz values at which they are at rest
FIRST_ROWS, ROWS_PER_COLUMN = 1000, 10
GROWTH = 0.5  # rows of a round, as a share of all before
ENOUGH = BLOCKS * 10  # rows of a round that is not over, from which it is taken into account
MIN_CHANCE = 1e-300  # p-values are no smaller: their scores stay finite


# What passes add up ---------------------------------------------------------------------------------------------------


class OfRows(Accumulator):
    """Sums over all rows (``part`` None, the last that is asked), those held out (True) or the others."""

    SUMS: ClassVar[tuple[str, ...]] = ("count",)

    def __init__(self, *question: Any) -> None:
        super().__init__(*question)
        self.count = 0

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch that belong to the part."""
        part = self.question[-1]
        rows = batch if part is None else batch.chosen(batch.held == part)
        if len(rows):
            self.take(rows)
        self.count += len(rows)
        self.n += len(batch)

    def take(self, rows: RowsBatch) -> None:
        """Add some rows, at least one."""
        raise NotImplementedError


def _square(y: Array) -> tuple[Array, Array]:
    return y * y, 2 * y


def _cube(y: Array) -> tuple[Array, Array]:
    square = y * y
    return square * y, 3 * square


def _tanh(y: Array) -> tuple[Array, Array]:
    g = np.tanh(y)
    return g, 1 - g * g


def _steeper(y: Array) -> tuple[Array, Array]:
    g = np.tanh(2 * y)
    return g, 2 * (1 - g * g)


FUNCTIONS = (_square, _cube, _tanh, _steeper)
SQUARE, CUBE = 0, 1
FUNCTION_OF = {3: SQUARE, 4: CUBE}  # whose gradients are those of the cumulant of an order
CONTRASTS = (1, 2, 3)  # of which sources of order 4 choose


class ContrastSums(OfRows):
    """Sums for L ``weights`` ``(L, d)``, weight l with function ``chosen[l]``, in K sub-batches of rows.

    ``counts`` ``(K,)``; ``moments`` ``(K, F, 5, L)`` of all functions that are ``tried``: g, g², y·g, g' and y;
    ``products`` ``(K, 2, L, d)``: x - μ times y, and times the function that was chosen; ``shift`` ``(K, d)``: x - μ.
    """

    SUMS = ("count", "counts", "moments", "products", "shift")

    def __init__(
        self,
        weights: Array,
        centre: Array,
        chosen: NDArray[np.int_],
        tried: Sequence[int],
        blocks: int = 1,
        part: bool | None = None,
    ) -> None:
        super().__init__(weights, centre, chosen, tried, blocks, part)
        self.counts, self.shift = np.zeros(blocks), np.zeros((blocks, weights.shape[1]))
        self.moments = np.zeros((blocks, len(tried), 5, len(weights)))
        self.products = np.zeros((blocks, 2, *weights.shape))

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        weights, centre, chosen, tried, blocks, _ = self.question
        rows, centre = rows.about(centre)
        block_of = (rows.places // RUN) % blocks
        for block in np.unique(block_of):
            some = rows if blocks == 1 else rows.chosen(block_of == block)
            scores = some.scores(weights, centre)
            factors = np.ones((len(some), 1 + 2 * len(weights)))
            factors[:, 1 : 1 + len(weights)] = scores
            own = factors[:, 1 + len(weights) :]
            for place, number in enumerate(tried):
                g, slope = FUNCTIONS[number](scores)
                inner = np.einsum("jl,jl->l", g, g), np.einsum("jl,jl->l", scores, g)
                self.moments[block, place] += g.sum(axis=0), *inner, slope.sum(axis=0), scores.sum(axis=0)
                own[:, chosen == number] = g[:, chosen == number]
            sums = some.sums(factors, centre)  # the first of them with factors 1
            self.counts[block] += len(some)
            self.shift[block] += sums[0]
            self.products[block] += sums[1:].reshape(self.products.shape[1:])

    def gradients(self, block: int | None = None) -> Array:
        """Gradients c ``(L, d)`` by the functions that were chosen, in the columns of the rows; of a block, or all."""
        _, _, chosen, tried, _, _ = self.question
        some = slice(None) if block is None else slice(block, block + 1)
        n, each = max(float(self.counts[some].sum()), 1.0), np.arange(len(chosen))
        moments = self.moments[some].sum(axis=0)[np.searchsorted(tried, chosen), :, each] / n
        first, slope, y = (moments[:, [which]] for which in (0, 3, 4))
        score, own = self.products[some].sum(axis=0) / n
        x = self.shift[some].sum(axis=0) / n
        return np.asarray(own - first * x - slope * (score - y * x))

    def variances(self) -> Array:
        """V ``(F, L)`` of all functions that were tried."""
        first, square, inner, slope, _ = np.moveaxis(self.moments.sum(axis=0) / max(self.count, 1), 1, 0)
        middle = (inner + slope) / 2
        own = square - 2 * middle * inner + middle**2 - first**2
        return np.asarray(np.maximum(own, 1e-12) / np.maximum((inner - slope) ** 2, 1e-12))


def moment_sums(order: int, weights: Array, centre: Array, blocks: int = 1, part: bool | None = None) -> ContrastSums:
    """Sums for the cumulant of an order."""
    function = FUNCTION_OF[order]
    return ContrastSums(weights, centre, np.full(len(weights), function), (function,), blocks, part)


class PowerSums(OfRows):
    """Sums of the powers 0 to 6 of scores ``(7, L)``."""

    SUMS = ("count", "powers")

    def __init__(self, weights: Array, centre: Array, part: bool | None = None) -> None:
        super().__init__(weights, centre, part)
        self.powers = np.zeros((7, len(weights)))

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        first = rows.scores(*self.question[:2])
        second = first * first
        third = second * first
        pairs = ((second, second), (second, third), (third, third))
        self.powers[0] += len(rows)
        self.powers[1:4] += first.sum(axis=0), second.sum(axis=0), third.sum(axis=0)
        self.powers[4:] += [np.einsum("jl,jl->l", one, other) for one, other in pairs]

    def standardised(self) -> Array:
        """The moments 0 to 6 of scores brought to mean 0 and variance 1."""
        powers = self.powers / max(self.count, 1)
        parts = [[math.comb(p, i) * powers[i] * (-powers[1]) ** (p - i) for i in range(p + 1)] for p in range(7)]
        central = np.array([np.sum(part, axis=0) for part in parts])
        return np.asarray(central / np.sqrt(np.maximum(central[2], 1e-300)) ** np.arange(7)[:, None])

    def p_values(self, order: int, signs: Array) -> Array:
        """Chance of such a moment of an order, with these signs, in rows without any."""
        if self.count < MIN_HELD:
            return np.ones(len(signs))
        n, (_, _, _, m3, m4, _, m6) = self.count, self.standardised()
        if order == 3:
            error = np.sqrt(np.maximum(m6 - 6 * m4 + 9 - m3**2, 1e-12) / n)
            return np.asarray(stdtr(n - 1, -signs * m3 / error))
        return np.asarray(ndtr(-signs * cautious(kurtosis_score(m4, n))))


class Scatter(Accumulator):
    """Mean and scatter of rows, of a part or of all (Chan, Golub and LeVeque 1979)."""

    def __init__(self, width: int, part: bool | None = None) -> None:
        super().__init__(width, part)
        self.count, self.mean, self.scatter = 0, np.zeros(width), np.zeros((width, width))
        # Sums of equal numbers are rounded, so that their variance does not tell a column that never moves.
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        width, part = self.question
        self.n += len(batch)
        rows = batch if part is None else batch.chosen(batch.held == part)
        if not len(rows):
            return
        own = Scatter(width)
        own.count = len(rows)
        own.mean = rows.sums(np.ones((len(rows), 1)), np.zeros(width))[0] / len(rows)
        low, high = rows.rows.min(axis=0), rows.rows.max(axis=0)
        own.low, own.high = (low.toarray().ravel(), high.toarray().ravel()) if rows.is_sparse else (low, high)
        own.scatter = rows.scatter(own.mean)
        own.n = 0
        self.merge(own)

    def merge(self, other: Scatter) -> None:
        """Take the rows that another has seen."""
        self.n += other.n
        if not other.count:
            return
        shift, both = other.mean - self.mean, self.count + other.count
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self.scatter += other.scatter
        self.scatter += (self.count * other.count / both) * np.multiply.outer(shift, shift)
        self.mean = self.mean + shift * (other.count / both)
        self.count = both

    @property
    def second_moment(self) -> Array:
        """The scatter divided by the number of rows, so that whitened scores of these rows have variance 1."""
        return self.scatter / max(self.count, 1)

    @property
    def nbytes(self) -> int:
        """The scatter."""
        return self.scatter.nbytes


class RowMeans(OfRows):
    """Sum of the rows, and of their squared lengths."""

    SUMS = ("count", "total", "squares")

    def __init__(self, width: int, part: bool | None = None) -> None:
        super().__init__(width, part)
        self.total, self.squares = np.zeros(width), 0.0

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        self.total += rows.sums(np.ones((len(rows), 1)), np.zeros(len(self.total)))[0]
        stored = rows.rows.data if rows.is_sparse else rows.rows
        self.squares += float(np.vdot(stored, stored))


class RowImage(OfRows):
    """The second moment about ``centre`` times a ``basis`` ``(c, d)``, as a sum over rows: ``image`` ``(c, d)``."""

    SUMS = ("count", "image")

    def __init__(self, basis: Array, centre: Array, part: bool | None = None) -> None:
        super().__init__(basis, centre, part)
        self.image = np.zeros(basis.shape)

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        basis, centre, _ = self.question
        rows, centre = rows.about(centre)
        self.image += rows.sums(rows.scores(basis, centre), centre)


class Slices(OfRows):
    """Σ f z zᵀ ``(q, q)`` and Σ |z|² z of whitened rows z, with f = |z|², or ⟨v, z⟩ for a ``direction`` v."""

    SUMS = ("count", "matrix", "trace")

    def __init__(self, weights: Array, centre: Array, direction: Array | None, part: bool | None = None) -> None:
        super().__init__(weights, centre, direction, part)
        self.matrix, self.trace = np.zeros((len(weights),) * 2), np.zeros(len(weights))

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        weights, centre, direction, _ = self.question
        z = rows.scores(weights, centre)
        lengths = np.sum(z**2, axis=1)
        factors = lengths if direction is None else z @ direction
        self.matrix += (z * factors[:, None]).T @ z
        self.trace += lengths @ z


class RowScores(Accumulator):
    """Scores ``(n, c)`` of all rows with ``weights`` ``(c, d)``."""

    LISTS = ("parts",)

    def __init__(self, weights: Array, centre: Array) -> None:
        super().__init__(weights, centre)
        self.parts: list[Array] = []

    def add(self, batch: RowsBatch, at: int = 0) -> None:  # noqa: ARG002
        """Take the rows of a batch."""
        self.parts.append(batch.scores(*self.question))
        self.n += len(batch)

    @property
    def scores(self) -> Array:
        """Of all rows, in their order."""
        return np.concatenate([np.empty((0, len(self.question[0]))), *self.parts])


# The test of a moment -------------------------------------------------------------------------------------------


def cautious(scores: Array) -> Array:
    """Normal scores of kurtosis, light tails drawn in.

    By simulation (10^6 draws, 20 to 1000 rows) the lower tail of the approximation is up to 1.25 times too often below
    a level of 1/60, and 1.6 times below 1/200; drawn in it is at most 1.0 times.  The upper tail is right.
    """
    return np.asarray(np.where(scores < 0, scores / (1 - LIGHT * scores), scores))


def kurtosis_score(m4: Array, n: int) -> Array:
    """A fourth moment of n Gaussian numbers, of mean 0 and variance 1, as a normal score (Anscombe and Glynn 1983)."""
    mean = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3.0) * (n + 5))
    x = (m4 - mean) / math.sqrt(variance)
    skew = (
        6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * math.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    )
    a = 6.0 + 8.0 / skew * (2.0 / skew + math.sqrt(1 + 4.0 / skew**2))
    ratio = (1 - 2.0 / a) / np.maximum(1 + x * math.sqrt(2 / (a - 4.0)), 1e-3)  # two values only: below any law
    return np.asarray((1 - 2.0 / (9.0 * a) - np.cbrt(ratio)) / math.sqrt(2 / (9.0 * a)))


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

    def sorted(self) -> Found:
        """The strongest first."""
        order = np.argsort(-np.abs(self.strengths), kind="stable")
        return Found(self.vectors[order], self.strengths[order])

    def first(self, count: int) -> Found:
        """The first of them."""
        return Found(self.vectors[:count], self.strengths[:count])


def sweep(gradient: Array, vectors: Array, known: Found, order: int) -> Found:
    """Every vector by itself, one step up from its gradient, without what is known, and orthogonal to it."""
    own = gradient - (known.strengths * (vectors @ known.vectors.T) ** (order - 1)) @ known.vectors
    own = _beside(own, known)
    strengths = np.sum(vectors * own, axis=1)
    return Found(toward(np.where(strengths < 0, -1.0, 1.0)[:, None] * own, vectors)[0], strengths)


def together(gradient: Array, vectors: Array) -> Found:
    """All vectors at once: the orthonormal set next to their gradients."""
    strengths = np.sum(vectors * gradient, axis=1)
    left, _, right = np.linalg.svd(np.sign(strengths)[:, None] * gradient, full_matrices=False)
    return Found(left @ right, strengths)


def balanced(gradient: Array, vectors: Array, variances: Array) -> Found:
    """All vectors at once, every pair turned by the best weighted mean of what its two gradients say."""
    inner = gradient @ vectors.T
    strengths = np.diagonal(inner).copy()
    safe = np.where(strengths == 0, 1.0, strengths)[:, None]
    weights = (variances[None, :] + 0.25) / (variances[:, None] + variances[None, :] + 0.5)
    ratio = weights * inner / safe
    turn = np.clip(ratio - ratio.T, -1.0, 1.0)
    outside = (gradient - inner @ vectors) / safe
    left, _, right = np.linalg.svd(vectors + turn @ vectors + outside, full_matrices=False)
    return Found(left @ right, strengths)


def repeated(step: Callable[[Array], Found], vectors: Array, sweeps: int) -> Found:
    """Step after step, until no vector moves, whatever its sign."""
    found = Found(vectors, np.zeros(len(vectors)))
    for _ in range(sweeps):
        before, found = found.vectors, step(found.vectors)
        overlap = np.abs(np.sum(before * found.vectors, axis=1))
        if 2 * np.max(1 - np.minimum(overlap, 1.0), initial=0.0) < MOVE_TOL:
            break
    return found


def different(reached: Found, known: Found) -> Found:
    """What is known, and whatever was reached beside it, the strongest first."""
    vectors, strengths = list(known.vectors), list(known.strengths)
    ordered = reached.sorted()
    for u, strength in zip(ordered.vectors, ordered.strengths, strict=True):
        if all(abs(u @ v) < SAME for v in vectors):
            vectors.append(u)
            strengths.append(strength)
    q = reached.vectors.shape[1]
    return Found(np.reshape(np.array(vectors), (-1, q)), np.array(strengths))


def search(gradient: Gradient, starts: Array, count: int, order: int, rng: np.random.Generator) -> Found:
    """About ``count`` components, from some starts and, if these are too few, from others beside what is known."""
    q = starts.shape[1]
    base = Found(np.zeros((0, q)), np.zeros(0))
    for attempt in range(1 + MORE_STARTS):
        if attempt:
            more = rng.standard_normal((2 * (count - len(base.vectors)) + RANDOM_STARTS, q))
            starts = units(_beside(more, base))

        def step(own: Array, known: Found = base) -> Found:
            return sweep(gradient(own), own, known, order)

        found = different(repeated(step, starts, FIRST_SWEEPS), base).first(count)
        base = orthonormal(found)
        if len(found.vectors) >= count:
            return found
    # At last random ones, which climb together with the others.
    missing = count - len(found.vectors)
    random = units(_beside(rng.standard_normal((missing, q)), base))
    return Found(np.concatenate([found.vectors, random]), np.append(found.strengths, np.zeros(missing)))


def orthonormal(found: Found) -> Found:
    """The orthonormal set next to some vectors, which are independent."""
    if not len(found.vectors):
        return found
    left, _, right = np.linalg.svd(found.vectors, full_matrices=False)
    return Found(left @ right, found.strengths)


def random_starts(count: int, q: int, rng: np.random.Generator) -> Array:
    """At least ``count`` random unit vectors, orthonormal in sets of q."""
    sets = [np.linalg.qr(rng.standard_normal((q, q)))[0].T for _ in range(-(-count // q))]
    return np.concatenate(sets)[:count]


def _beside(vectors: Array, known: Found) -> Array:
    return vectors - (vectors @ known.vectors.T) @ known.vectors


# Whitening ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowWhitening:
    """Of rows in q directions: z = ``weights`` (x - ``centre``); ``back`` ``(d, q)`` is what z stands for."""

    centre: Array
    weights: Array
    back: Array

    @property
    def q(self) -> int:
        """Directions."""
        return len(self.weights)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.centre.nbytes + self.weights.nbytes + self.back.nbytes

    @classmethod
    def plain(cls, q: int) -> RowWhitening:
        """Of rows that are whitened already."""
        return cls(np.zeros(q), np.eye(q), np.eye(q))

    @classmethod
    def whole(cls, seen: Scatter, shrinkage: float) -> RowWhitening:
        """In all directions, from the whole covariance."""
        still = seen.low == seen.high
        white = Whitening.learn(seen.mean, seen.second_moment, seen.count, shrinkage, "the table", still)
        return cls(seen.mean, np.ascontiguousarray(white.factor.T), white.back)

    @classmethod
    def leading(
        cls, image: Callable[[Array], Array], means: RowMeans, first: Array, q: int, shrinkage: float
    ) -> RowWhitening:
        """In the q leading directions of a covariance that is known by its products with a basis ``(c, d)`` only."""
        centre = means.total / max(means.count, 1)
        values, basis = leading_directions(image, first, q)
        trace = means.squares / max(means.count, 1) - float(centre @ centre)
        values = (1 - shrinkage) * values + shrinkage * trace / len(centre)
        rank = int(np.count_nonzero(values > len(centre) * np.finfo(np.float32).eps * max(values[0], 0.0)))
        if rank < q:
            raise SampleError(
                f"the covariance has rank {rank}: rows cannot be whitened in {q} directions; give "
                f"whiten_rank={max(rank, 1)} or less, shrinkage, or more rows."
            )
        roots = np.sqrt(values)
        return cls(centre, basis / roots[:, None], basis.T * roots)


def first_directions(q: int, d: int, rng: np.random.Generator, known: Array | None = None) -> Array:
    """Where subspace iteration begins, ``(q + 10, d)``: what is known of the leading directions, the rest random."""
    random = rng.standard_normal((q + EXTRA, d))
    if known is not None:
        random[: len(known)] = units(known) * np.sqrt(d)
    return random


def leading_directions(image: Callable[[Array], Array], first: Array, q: int) -> tuple[Array, Array]:
    """The q largest eigenvalues of a symmetric matrix and their vectors ``(q, d)``, by subspace iteration."""
    d = first.shape[1]
    basis = np.linalg.qr(first[:d].T)[0].T
    before = np.inf
    for _ in range(MAX_IMAGES):
        found = image(basis)
        small = basis @ found.T
        values, turn = np.linalg.eigh((small + small.T) / 2)
        order = np.argsort(-values)
        best, ritz = values[order[:q]], turn[:, order[:q]].T @ basis
        if len(basis) == d or abs(best.sum() - before) <= RITZ_TOL * abs(best.sum()):
            break
        before = best.sum()
        basis = np.linalg.qr(found.T)[0].T
    return best, ritz


class SplitRows(MadeVectors, RowsStream):
    """The rows of a table, of which some are ``held`` out, by their places; with ``white``, whitened."""

    def __init__(self, stream: VectorStream, held: NDArray[np.bool_] | None, white: RowWhitening | None = None) -> None:
        super().__init__(stream)
        self._held, self._white = held, white
        if white is not None:
            self.dims, self.dtype = (white.q,), np.dtype(np.float64)

    def made(self, batch: RowsBatch) -> RowsBatch:
        """One batch."""
        held = batch.held if self._held is None else self._held[batch.places]
        rows = batch.rows if self._white is None else batch.scores(self._white.weights, self._white.centre)
        return RowsBatch(rows, batch.places, batch.first, batch.dropped, held)


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

    def directions(self, d: int) -> int:
        """q, the directions that rows of d columns are whitened in; refuses what does not fit, also the memory."""
        q = self.whiten_rank or d
        if self.n_components > d or q > d:
            name = "n_components" if self.n_components > d else "whiten_rank"
            raise SolverError(f"{name} must be at most the {d} columns of the rows, got {vars(self)[name]}.")
        if self.n_components > q:
            raise SolverError(f"n_components must be at most whiten_rank={q}, got {self.n_components}.")
        needed, limit = 8 * self._floats(d, self.whiten_rank), self.memory_limit
        way = ""
        if limit is not None and needed > limit and self.whiten_rank is None:
            fitting = [less for less in range(self.n_components, d) if 8 * self._floats(d, less) <= limit]
            way = f"give whiten_rank={fitting[-1]} or less, or " if fitting else ""
        refuse_memory(needed, limit, f"{d} columns whitened in {q} directions", way)
        return q

    def _floats(self, d: int, q: int | None) -> int:
        """Numbers held at most: to learn the whitening in q directions (all: ``None``), and for the last sums."""
        last = BLOCKS * (self.n_components * (2 * d + 5) + d + 1) + d + 1
        if q is None:  # the scatter, that of a batch, the covariance, L, its inverse, and W
            return max(7 * d * d, 4 * d * d + last)
        return max(4 * d * (q + EXTRA), 2 * d * q + last)


@dataclass(frozen=True)
class SourcesFit:
    """What a fit of a table gave; ``weights``, ``directions`` and ``errors`` are ``(c, d)``, strongest first."""

    centre: Array
    weights: Array
    directions: Array
    errors: Array
    strengths: Array
    p_values: Array
    significant: NDArray[np.bool_]
    n_samples: int
    n_skipped: int
    state_bytes: int

    @property
    def tested(self) -> bool:
        """Whether rows were held out to judge by."""
        return not bool(np.isnan(self.p_values).any())

    @classmethod
    def of(
        cls,
        order: int,
        centre: Array,
        weights: Array,
        whole: Array,
        parts: Array,
        p_values: Array,
        confidence: float,
        *counts: int,
    ) -> SourcesFit:
        """From gradients ``(c, d)`` of all rows and ``(K, c, d)`` of sub-batches."""
        strengths = np.sum(weights * whole, axis=1)
        lengths = np.where(strengths == 0, 1.0, strengths)[:, None]
        directions = whole / lengths
        scatter = (parts - directions * np.sum(weights * parts, axis=2)[..., None]) / lengths
        errors = np.std(scatter, axis=0, ddof=1) / np.sqrt(len(parts))
        signs = np.where(strengths < 0, -1.0, 1.0)  # the skewness is positive
        if order == 4:  # the kurtosis has its own sign; the largest entry is positive
            largest = np.argmax(np.abs(directions), axis=1)
            signs = np.where(np.take_along_axis(directions, largest[:, None], axis=1)[:, 0] < 0, -1.0, 1.0)
        strengths = np.abs(strengths) if order == 3 else strengths
        by = np.argsort(-np.abs(strengths), kind="stable")
        weights, directions, p = (signs[:, None] * weights)[by], (signs[:, None] * directions)[by], p_values[by]
        return cls(centre, weights, directions, errors[by], strengths[by], p, p <= 1 - confidence, *counts)


class TableFit:
    """One fit of a stored table; ``reader`` makes an engine over a stream of rows."""

    def __init__(self, stream: VectorStream, reader: Reader, asked: SourcesOptions) -> None:
        self._reader, self._asked = reader, asked
        self._d, self._q = stream.dims[0], asked.directions(stream.dims[0])
        if stream.length is not None and stream.length < 2:
            raise SampleError(f"moments need rows that differ, got n_samples = {stream.length}; give more.")
        self._rng = generator(asked.random_state, "moments of a table")
        self.whitening: RowWhitening | None = None  # the last that was learnt
        self.state_bytes, held = 0, None
        self._first = reader(stream)  # knows the files as they were before anything was read
        if asked.validation_fraction:
            look = self._first.reduce(FirstLook(stream.dims))
            length = stream.length if stream.length is not None else look.n
            held = Folds.of(look, length, asked.validation_fraction).number == 0
        self._tested, self._stream = held is not None, SplitRows(stream, held)
        self._engine = reader(self._stream)

    def run(self) -> SourcesFit:
        """Learn and judge, then fit the same to all rows."""
        asked = self._asked
        white = self.whitening = self._learn(False if self._tested else None)
        found = self._climb(white, False if self._tested else None, None)
        p = np.full(len(found.strengths), np.nan)
        if self._tested:
            weights = found.vectors @ white.weights
            held = self._total(self._engine, PowerSums(weights, white.centre, True))
            p = holm(held.p_values(asked.order, np.sign(found.strengths)))
            white = self.whitening = self._learn(None)
            found = self._climb(white, None, units(weights @ white.back))
        weights = found.vectors @ white.weights
        sums = self._total(self._engine, moment_sums(asked.order, weights, white.centre, BLOCKS))
        whole, parts = sums.gradients(), np.stack([sums.gradients(block) for block in range(BLOCKS)])
        counts = (sums.n, self._engine.n_skipped, self.state_bytes)
        self._first.check_unchanged()
        return SourcesFit.of(asked.order, white.centre, weights, whole, parts, p, asked.confidence, *counts)

    def _learn(self, part: bool | None) -> RowWhitening:
        """The whitening, from the rows of a part."""
        asked = self._asked
        if asked.whiten_rank is None:
            return RowWhitening.whole(self._total(self._engine, Scatter(self._d, part)), asked.shrinkage)
        means = self._total(self._engine, RowMeans(self._d, part))
        centre = means.total / max(means.count, 1)

        def image(basis: Array) -> Array:
            sums = self._total(self._engine, RowImage(basis, centre, part))
            return np.asarray(sums.image / max(sums.count, 1))

        # Where they were for the rows to learn from is where to look for leading directions.
        known = None if self.whitening is None else self.whitening.weights
        first = first_directions(self._q, self._d, self._rng, known)
        return RowWhitening.leading(image, means, first, self._q, asked.shrinkage)

    def _climb(self, white: RowWhitening, part: bool | None, starts: Array | None) -> Found:
        """Components of the rows of a part: searched for, or from ``starts`` on."""
        engine, own = self._engine, white
        if white.q < self._d:
            engine, own = self._projected(white), RowWhitening.plain(white.q)
        climb = Climb(self._asked.order, own, lambda blank: self._total(engine, blank), part)
        if starts is not None:
            return climb.refined(Found(starts, np.ones(len(starts))))
        first, count = self._starts(engine, own, part), self._asked.n_components
        return climb.refined(search(climb.gradient, first, count, self._asked.order, self._rng))

    def _projected(self, white: RowWhitening) -> Engine:
        """Whitened rows of fewer columns, kept here if they fit; workers keep what fits themselves."""
        rows = SplitRows(self._stream, None, white)
        limit = KEEP if self._asked.memory_limit is None else self._asked.memory_limit
        fits = rows.length is not None and 8 * rows.length * white.q <= limit
        if fits and isinstance(self._engine, LocalEngine):
            return LocalEngine(KeptVectors(rows))
        return self._reader(rows)

    def _starts(self, engine: Engine, own: RowWhitening, part: bool | None) -> Array:
        """Where vectors start: what a slice of the moment shows, and random ones."""
        count, q = self._asked.n_components, own.q
        random = random_starts(count + RANDOM_STARTS, q, self._rng)
        sums = self._total(engine, Slices(own.weights, own.centre, None, part))
        matrix = sums.matrix / sums.count - (q + 2) * np.eye(q)
        if self._asked.order == 3:
            matrix = self._total(engine, Slices(own.weights, own.centre, sums.trace / sums.count, part)).matrix
        return np.concatenate([leading(matrix, min(q, count + MORE))[1], random])

    def _total(self, engine: Engine, blank: A) -> A:
        """An accumulator of one pass."""
        engine.rewind()
        found = engine.reduce(blank)
        kept = 0 if self.whitening is None else self.whitening.nbytes
        self.state_bytes = max(self.state_bytes, found.nbytes + kept)
        return found


class Climb:
    """Gradients of the moment of the rows of a part, and the last climb with them; ``total`` makes a pass."""

    def __init__(self, order: int, own: RowWhitening, total: Callable[[Any], Any], part: bool | None) -> None:
        self._order, self._own, self._total, self._part = order, own, total, part

    def gradient(self, vectors: Array) -> Array:
        """Of the cumulant, among the whitened columns."""
        own = self._own
        sums = self._total(moment_sums(self._order, vectors @ own.weights, own.centre, 1, self._part))
        return np.asarray(sums.gradients() @ own.weights.T)

    def refined(self, found: Found) -> Found:
        """What all components reach together: at order 4 by the function that tells each best."""
        chosen = np.full(len(found.vectors), FUNCTION_OF[self._order])
        found = repeated(lambda own: together(self.gradient(own), own), orthonormal(found).vectors, SWEEPS)
        found = repeated(lambda own: self._balanced(own, chosen), found.vectors, SWEEPS)
        if self._order == 3:
            return found
        chosen = np.take(CONTRASTS, np.argmin(self._contrasts(found.vectors, chosen, CONTRASTS).variances(), axis=0))
        if np.all(chosen == CUBE):  # all of them by their cubes, as they are
            return found
        vectors = repeated(lambda own: self._balanced(own, chosen), found.vectors, SWEEPS).vectors
        return Found(vectors, np.sum(vectors * self.gradient(vectors), axis=1))

    def _balanced(self, vectors: Array, chosen: NDArray[np.int_]) -> Found:
        tried = np.unique(chosen)
        sums = self._contrasts(vectors, chosen, tried)
        variances = sums.variances()[np.searchsorted(tried, chosen), np.arange(len(chosen))]
        return balanced(sums.gradients() @ self._own.weights.T, vectors, variances)

    def _contrasts(self, vectors: Array, chosen: NDArray[np.int_], tried: Any) -> ContrastSums:
        own = self._own
        sums: ContrastSums = self._total(
            ContrastSums(vectors @ own.weights, own.centre, chosen, tuple(tried), 1, self._part)
        )
        return sums


# Rows that pass by once -----------------------------------------------------------------------------------------------


class HandedRows(RowsStream):
    """What is known of rows that are handed in, in their own order only."""

    def __init__(self, d: int, dtype: np.dtype[Any], count: int) -> None:
        self.dims, self.dtype, self.length = (d,), dtype, count


class PassingTable:
    """A fit whose rows are handed in; what is known can be asked for at any time."""

    def __init__(self, d: int, dtype: np.dtype[Any], asked: SourcesOptions) -> None:
        asked.directions(d)
        self.d, self.dtype, self.n, self.n_skipped = d, dtype, 0, 0
        self._asked = asked
        self._first = max(FIRST_ROWS, ROWS_PER_COLUMN * d)
        self._waiting: list[RowsBatch] = []
        self._rounds: Rounds | None = None
        self._before: SourcesFit | None = None  # what the rows that waited told

    def pour(self, batch: RowsBatch) -> None:
        """Take some more rows, numbered from those before on."""
        self.n_skipped += batch.dropped
        taken = 0
        while taken < len(batch):
            room = self._first - self.n if self._rounds is None else self._rounds.room
            some = batch[taken : taken + room]
            some = RowsBatch(some.rows, np.arange(self.n, self.n + len(some)))
            taken, self.n = taken + len(some), self.n + len(some)
            if self._rounds is not None:
                self._rounds.take(some)
                continue
            self._waiting.append(some)
            if self.n >= self._first:
                self._rounds, self._waiting = self._begin(), []

    def run(self) -> SourcesFit:
        """What is known now; more may follow."""
        if self._rounds is None:
            return dataclasses.replace(self._stored(self._asked)[1], n_skipped=self.n_skipped)
        if self._before is not None and not self._rounds.judged:
            return dataclasses.replace(self._before, n_samples=self.n, n_skipped=self.n_skipped)
        return self._rounds.told(self.n_skipped)

    def _stored(self, asked: SourcesOptions) -> tuple[TableFit, SourcesFit]:
        fit = TableFit(KeptVectors(HandedRows(self.d, self.dtype, self.n), kept=self._waiting), LocalEngine, asked)
        return fit, fit.run()

    def _begin(self) -> Rounds:
        """Fit the rows that waited, all of them, and go on from there; what a fifth of them judges holds till then."""
        self._before = self._stored(self._asked)[1]
        fit, found = self._stored(dataclasses.replace(self._asked, validation_fraction=0.0))
        white = fit.whitening
        assert white is not None
        scatter = Scatter(white.q)
        for batch in self._waiting:
            scatter.add(RowsBatch(batch.scores(white.weights, white.centre), batch.places))
        return Rounds(self._asked, white, found.weights @ white.back, np.sign(found.strengths), scatter, self.n)


class Rounds:
    """Rounds of whitened rows z; ``weights`` ``(r, q)`` are those among z that the next rows are scored with."""

    def __init__(
        self, asked: SourcesOptions, white: RowWhitening, weights: Array, signs: Array, scatter: Scatter, n: int
    ) -> None:
        self._asked, self._white = asked, white
        self._weights, self._scatter, self.n = weights, scatter, n
        self._gradients, self._rows = np.zeros((BLOCKS, *weights.shape)), 0
        self._signs, self._scores, self._tested = signs, np.zeros(len(weights)), 0
        self._start()

    def _start(self) -> None:
        self._round = max(1, int(GROWTH * self.n))
        centre = self._scatter.mean.copy()
        self._sums = moment_sums(self._asked.order, self._weights, centre, BLOCKS)
        self._powers = PowerSums(self._weights, centre)

    @property
    def room(self) -> int:
        """Rows that the round still takes."""
        return self._round - int(self._sums.count)

    @property
    def judged(self) -> bool:
        """Whether enough rows came after the first."""
        return self._rows > 0 or self._sums.count >= ENOUGH

    def take(self, batch: RowsBatch) -> None:
        """Take no more rows than there is room for."""
        rows = RowsBatch(batch.scores(self._white.weights, self._white.centre), batch.places)
        self._scatter.add(rows)
        self._sums.add(rows)
        self._powers.add(rows)
        self.n += len(rows)
        if not self.room:
            self._close()

    def _close(self) -> None:
        """The end of a round: judge, average, and step by the gradients of all and the covariance of all rows."""
        sums, n = self._sums, int(self._sums.count)
        own = np.stack([sums.gradients(block) for block in range(BLOCKS)])
        if n >= MIN_HELD:
            chance = np.clip(self._powers.p_values(self._asked.order, self._signs), MIN_CHANCE, 1 - 1e-16)
            self._scores = self._scores + math.sqrt(n) * -ndtri(chance)
            self._tested += n
        self._signs = np.sign(np.sum(self._weights * own.mean(axis=0), axis=1))
        self._gradients += (own - self._gradients) * (n / (self._rows + n))
        self._rows += n
        values, basis = np.linalg.eigh(self._scatter.second_moment)
        root = basis / np.sqrt(values)
        vectors = orthonormal(Found(self._weights @ (basis * np.sqrt(values)), np.ones(len(self._weights)))).vectors
        self._weights = together(self._gradients.mean(axis=0) @ root, vectors).vectors @ root.T
        self._start()

    def told(self, n_skipped: int) -> SourcesFit:
        """What the rows so far tell, those of the open round among them."""
        end = copy.deepcopy(self)
        if end._sums.count >= ENOUGH:
            end._close()
        white, asked = end._white, end._asked
        whole, parts = end._gradients.mean(axis=0) @ white.back.T, end._gradients @ white.back.T
        p = holm(ndtr(-end._scores / math.sqrt(end._tested))) if end._tested else np.ones(len(end._weights))
        centre = white.centre + white.back @ end._scatter.mean
        held = (end._scatter.scatter, end._gradients, end._weights, end._sums.products, end._sums.moments)
        counts = (self.n, n_skipped, white.nbytes + sum(array.nbytes for array in held))
        weights = end._weights @ white.weights
        return SourcesFit.of(asked.order, centre, weights, whole, parts, p, asked.confidence, *counts)
