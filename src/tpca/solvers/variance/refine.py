r"""A component that was found: its vectors from all samples, and how accurate they are.

Every reading along u (:mod:`tpca.solvers.variance.filters`) gives gradients
:math:`N_i = s^2\,c_i\prod_{j\ne i}c_j^2\,v_i` with :math:`c_j = \langle u_j, v_j\rangle`
(:mod:`tpca.solvers.variance.level`).  They are added up, weighted by what they are worth, to M, and
:math:`\hat v_i = M_i/\lVert M_i\rVert`.  The noise of M is that of independent sub-batches b,

.. math:: \operatorname{Var}\hat v_i = \frac{1}{\lVert M_i\rVert^2}\,\frac{B}{B - 1}
    \sum_b (\nu_b\,P N_{i,b})^2, \qquad P = 1 - \hat v_i\hat v_i^\top ,

the sandwich (:mod:`tpca.solvers.race.sandwich`), whatever the laws of noise and amplitudes.  Its entries are drawn
towards their mean over the mode.  The variance of the amplitudes is :math:`s^2 = (V - V_0)/\prod_j c_j^2` over the last
readings, with its error from the same sub-batches; vectors fitted to the samples that V is taken from make it too
large by :math:`s^2\sum_i\mathbb E\lVert\hat v_i - v_i\rVert^2`, which is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from tpca.checkpoint import kept
from tpca.solvers.race.sandwich import PRIOR
from tpca.solvers.rank_one import is_ghost, oriented, overlaps, units
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.filters import Filters
from tpca.solvers.variance.level import excess_gradients, levels_of, told_plainly
from tpca.tensors.blocks import Array

GHOST = 4.0  # what an inaccurate component leaves is no component, if it varies by less than so many times its error
SAME = 0.98  # overlap of all vectors above which two patterns are one
KEPT = 4  # last readings that the strength is taken from: while they grow, most of all samples


@kept
class Reading:
    """What one reading along ``vectors`` u says: V - V_0 of every sub-batch.

    ``variances``: along the ``pattern`` itself, of all entries, and what is left of these without any component.
    """

    def __init__(
        self,
        vectors: tuple[Array, ...],
        pattern: tuple[Array, ...],
        fresh: bool,
        freedoms: Array,
        excess: Array,
        variances: Array,
    ) -> None:
        self.vectors, self.pattern, self.fresh, self.freedoms = vectors, pattern, fresh, freedoms
        self.excess, self.variances = excess, variances

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in (*self.vectors, *self.pattern, self.freedoms, self.excess, self.variances))


@kept
class Refined:
    """A component, from the readings since it was found; ``plain``: along the pattern itself, not its filter."""

    def __init__(self, vectors: Sequence[Array], plain: bool = False) -> None:
        self.vectors = tuple(np.array(v) for v in vectors)
        self.plain = plain
        self.log_evidence = 0.0  # until it is proven
        self.moved = math.inf
        self._sums = [np.zeros_like(v) for v in self.vectors]
        self._squares = [np.zeros_like(v) for v in self.vectors]
        self._count = 0
        self._anew = False  # whether readings before were along filters, and no longer count
        self._readings: list[Reading] = []

    def take(self, part: Variances, queries: Sequence[Array], gather: bool, last: bool = False) -> None:
        """A step from a reading along ``queries``; the last query was the pattern itself.

        ``gather``: of fresh samples, those before count as well.  ``last``: the vectors stay, for nobody would measure
        the variance along others.
        """
        if part.moments is None:
            return
        if self._anew or not gather:
            self._sums = [np.zeros_like(v) for v in self.vectors]
            self._squares = [np.zeros_like(v) for v in self.vectors]
            self._count, self._readings, self._anew = 0, [], False
        rows = [u[None] for u in queries]
        variances, levels = levels_of(part.moments.of_first(), rows)
        weight = max(float(variances[0] / levels[0]) - 1, part.freedom**-0.5) / float(levels[0])
        mean = excess_gradients(part.moments, rows, levels)
        before = self.vectors
        self._sums = [m + weight * part.freedom * g[0] for m, g in zip(self._sums, mean, strict=True)]
        if not last:
            self.vectors = tuple(units(m[None])[0] if m.any() else v for m, v in zip(self._sums, before, strict=True))
        each = [levels_of(one, rows) for one in part.by_part]
        steps = [excess_gradients(one, rows, own) for one, (_, own) in zip(part.by_part, each, strict=True)]
        for mode, v in enumerate(self.vectors):
            scaled = weight * part.freedoms[:, None] * np.stack([step[mode][0] for step in steps])
            across = scaled - np.outer(scaled @ v, v)
            self._squares[mode] = self._squares[mode] + np.einsum("bd,bd->d", across, across)
        self._count += len(each)
        excess = np.array([float(v[0] - own[0]) for v, own in each])
        known = np.array([*part.moments.whole, part.moments.total - part.moments.squares[-1]])
        reading = Reading(tuple(queries), before, gather, part.freedoms, excess, known)
        self._readings = [*self._readings, reading][-KEPT:]
        if not self.plain and not last:
            self._turn(part, before)
        self.moved = float(sum(2 - 2 * abs(o) for o in overlaps(self.vectors, before)))

    def _turn(self, part: Variances, pattern: Sequence[Array]) -> None:
        """Do without filters from now on, if the pattern itself tells as much."""
        assert part.moments is not None
        ends = [np.stack([u, v]) for u, v in zip(self._readings[-1].vectors, pattern, strict=True)]
        moments = part.moments.of_ends()
        variances, levels = levels_of(moments, ends)
        filtered, bare = variances / levels - 1
        if told_plainly(bare, filtered, sum(map(len, pattern)), part.freedom):
            steps = excess_gradients(moments, ends, levels)
            self.vectors = tuple(units(step[1:])[0] for step in steps)
            self.plain = self._anew = True

    def queries(self, filters: Filters) -> list[Array]:
        """What samples are contracted with: along which it stands out most, and itself."""
        rows = [v[None] for v in self.vectors]
        along = rows if self.plain else filters.of(rows)
        return [np.concatenate([u, v]) for u, v in zip(along, rows, strict=True)]

    @property
    def errors(self) -> tuple[Array, ...]:
        """Standard errors of the entries of all vectors."""
        found = []
        for m, squares in zip(self._sums, self._squares, strict=True):
            own = squares * self._count / max(1, self._count - 1)
            mixed = (self._count * own + PRIOR * own.mean()) / (self._count + PRIOR)
            length = float(np.linalg.norm(m))
            found.append(np.sqrt(mixed) / length if length > 0 else np.full_like(m, math.nan))
        return tuple(found)

    @property
    def loss(self) -> float:
        """Σ E‖v̂ - v‖² over the modes."""
        return float(sum(e @ e for e in self.errors))

    def amplitude_variance(self) -> tuple[float, float, float]:
        """s², its standard error, and the degrees of freedom behind that."""
        weights, values = [], []
        for one in self._readings:
            inner = float(np.prod(overlaps(one.vectors, self.vectors) ** 2))
            weights.append(one.freedoms * inner)
            values.append(one.excess / max(inner, 1e-3) * (1.0 if one.fresh else 1 / (1 + self.loss)))
        weight, value = np.concatenate(weights), np.concatenate(values)
        mean = float(weight @ value / weight.sum())
        spread = float((weight**2) @ (value - mean) ** 2) / float(weight.sum()) ** 2
        count = float(weight.sum()) ** 2 / float(weight @ weight)
        return mean, math.sqrt(spread * count / max(count - 1, 1e-9)), max(1.0, count - 1)

    def strength(self, confidence: float) -> tuple[float, tuple[float, float]]:
        """The standard deviation s of the amplitudes, and its interval, on a scale of logarithms: low ones err less."""
        value, error, freedom = self.amplitude_variance()
        reach = float(stdtrit(freedom, 0.5 + confidence / 2)) * error
        if value <= 0:
            return 0.0, (0.0, math.sqrt(max(0.0, value + reach)))
        strength, factor = math.sqrt(value), math.exp(min(reach / (2 * value), 700.0))
        return strength, (strength / factor, strength * factor)

    @property
    def variances(self) -> tuple[float, float, float]:
        """Along the vectors, of all entries, and of what no component explains; NaN before the first reading.

        Over those of the last readings whose pattern was the last one already.
        """
        if not self._readings:
            return math.nan, math.nan, math.nan
        last = self._readings[-1].pattern
        like = [one for one in self._readings if np.abs(overlaps(one.pattern, last)).min() > SAME]
        weights = [float(one.freedoms.sum()) for one in like]
        variance, total, rest = np.average([one.variances for one in like], axis=0, weights=weights)
        return float(variance), float(total), float(rest)

    @property
    def variance(self) -> float:
        """V along the vectors."""
        return self.variances[0]

    def leaves(self, vectors: Sequence[Array], variance: float) -> bool:
        """Whether a pattern is this one, or by its ``variance`` no more than what errors of this component leave."""
        if np.abs(overlaps(vectors, self.vectors)).min() > SAME:
            return True
        left = GHOST * self.loss * max(0.0, self.amplitude_variance()[0])
        return variance < left and is_ghost(vectors, self.vectors)

    @property
    def oriented(self) -> tuple[Array, ...]:
        """The vectors with definite signs: the largest entry of each positive, for amplitudes have both."""
        *others, last = oriented(self.vectors)
        return (*others, last if last[np.argmax(np.abs(last))] >= 0 else -last)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = sum(a.nbytes for a in (*self.vectors, *self._sums, *self._squares))
        return held + sum(one.nbytes for one in self._readings)


def rows_of(found: Sequence[Refined], dims: Sequence[int]) -> list[Array]:
    """Components as rows of every mode."""
    each = [[one.vectors[i] for one in found] for i in range(len(dims))]
    return [np.reshape(np.array(rows), (len(rows), d)) for rows, d in zip(each, dims, strict=True)]
