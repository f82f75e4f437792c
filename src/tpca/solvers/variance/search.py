r"""The search for one component of variation: starts, steps, and which pattern is the best.

*Starts* are combinations of the leading vectors of the modes' covariances :math:`A_i` (Σd² numbers), of covariances
within slices (:mod:`tpca.solvers.variance.filters`), and random ones; only these where nothing else fits into memory.
*Steps* contract the samples with :math:`u_i\propto A_i^{-1}w_i`, along which a pattern w stands out from noise the
most, and set every vector to its gradient :math:`N_i` (:mod:`tpca.solvers.variance.level`), all modes at once.  Where
samples can be read again a step is one more reading of the same samples; where not, it takes the next, and gradients of
earlier ones stay:

.. math:: M_i \leftarrow M_i + n\,\frac{\max(x, 0) + n^{-1/2}}{V_0}\,N_i, \qquad w_i = M_i/\lVert M_i\rVert, \qquad
    x = V/V_0 - 1 .

The gradient of a vector that has nothing of a component says nothing of it.  So the first steps on samples that can be
read again exchange one vector of every replica, if :math:`P_i = \mathbb E[g_ig_i^\top]` fits into memory: for the
leading vector of P_i in the samples turned and whitened, that of the pattern which varies the most, relative to noise,
of all that have its other vectors; in the mode whose leading value exceeds the mean one by most, that of d vectors and
n samples of noise, :math:`(1 + \sqrt{d/n})^2`, taken into account.  (Multilinear PCA, Lu, Plataniotis and
Venetsanopoulos 2008, takes all modes in turn.)

*Strong variation.*  Filters are for what noise hides.  For components far above it they do harm: what is off in the A_i
of n samples turns :math:`A_i^{-1}w_i` away from w_i, and beside a component of variance s² almost any other pattern
seems to stand out, for with :math:`\langle u_i, v_i\rangle^2\approx 1/s^2` noise alone gives V, while
:math:`V_0\approx\prod_i a_i/s^{2(k-1)}` is next to nothing.  So x tells whether something varies, not what varies most:

* samples are contracted with every pattern itself, too, and of those with x above what noise of n samples can reach,
  the one with the largest :math:`V - V_0` along itself is the best; where these differ by no more than chance, the one
  that is told plainly, then the one with the largest x;
* a pattern is *told plainly*, without filters from then on, once its own x leaves next to no error of the vectors, or
  little, and is no smaller than that of the filter (:func:`tpca.solvers.variance.level.told_plainly`);
* a candidate that was proven stays the candidate, whatever another seems to do in the same samples.

Evidence is in :mod:`tpca.solvers.variance.evidence`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.rank_one import overlaps, units
from tpca.solvers.variance.accumulator import Variances
from tpca.solvers.variance.evidence import CHI, Bets, contrasts, log_won
from tpca.solvers.variance.filters import Filters, filters_of, leading_of_slices
from tpca.solvers.variance.level import excess_gradients, levels_of, told_plainly
from tpca.solvers.variance.refine import SAME, Refined
from tpca.tensors.blocks import Array

FAMILIES = 5  # of starts: leading vectors of three kinds, the first of these also as they are, and random ones
CLEAR = 5.0  # standard deviations by which noise along a pattern does not vary more than expected
CHANCE = 2.0  # standard deviations of a variance by which another may be larger by chance
MOVE_TOL = 1e-5  # squared change of all vectors below which a candidate has come to rest


@kept
class VariationSearch:
    """Replicas of one component, the best of them first; that is the candidate."""

    def __init__(self, dims: Sequence[int]) -> None:
        self.replicas: list[Array] = [np.zeros((0, d)) for d in dims]
        self.sums: list[Array] = [np.zeros((0, d)) for d in dims]  # M_i
        self.grams: list[Array] = []
        self.plain = np.zeros(0, dtype=bool)  # which replicas are contracted as they are, without filters
        self.filters = Filters([], [])
        self.freedom = 0  # of the Gram matrices
        self.tracked: Refined | None = None  # the candidate, from all rounds in which it was that
        self.bets: list[Bets] = []  # those that began with every test
        self.total, self.excess = math.nan, 0.0  # τ, and s² of the candidate in its last test
        self.moved = math.inf  # of the candidate, in its last step

    @property
    def candidate(self) -> tuple[Array, ...]:
        """The vectors on trial."""
        return tuple(u[0] for u in self.replicas)

    def queries(self, most: int | None = None, itself: bool = False) -> list[Array]:
        """What samples are contracted with for the first ``most`` replicas; at the end, the candidate itself.

        ``itself``: after these, all patterns themselves.
        """
        own = [w[:most] for w in self.replicas]
        plain, found = self.plain[:most, None], []
        for u, w in zip(self.filters.of(own), own, strict=True):
            found.append(np.concatenate([np.where(plain, w, u), *([w] if itself else []), w[:1]]))
        return found

    def learn(self, part: Variances) -> None:
        """Add the covariances of the modes."""
        assert part.moments is not None
        self.total = part.moments.total
        if not part.moments.grams:
            return
        weight = part.freedom / (self.freedom + part.freedom)
        own = self.grams or [np.zeros_like(gram) for gram in part.moments.grams]
        self.grams = [(1 - weight) * a + weight * b for a, b in zip(own, part.moments.grams, strict=True)]
        self.freedom += part.freedom
        self.filters = filters_of(self.grams, self.freedom)

    def start(self, count: int, slices: Sequence[Array], rng: np.random.Generator) -> None:
        """Join ``count`` new replicas, those that are there already only once."""
        modes = range(len(self.replicas))
        each = math.ceil((count / FAMILIES) ** (1 / len(modes)))
        tops: list[list[Array]] = []
        if self.grams:
            last = [np.eye(len(gram))[::-1][:each] for gram in self.grams]  # eigenvectors, as turned samples have them
            leading = [self.filters.back(i, last[i]) for i in modes]
            tops += [leading, leading]
        for found in leading_of_slices(slices, each) if slices else ():
            tops.append([self.filters.back(i, rows) for i, rows in enumerate(found)])
        fresh, plain = [np.zeros((0, w.shape[1])) for w in self.replicas], np.zeros(count, dtype=bool)
        for number, top in enumerate(tops):
            places = sorted(itertools.product(*(range(len(rows)) for rows in top)), key=sum)[: -(-count // FAMILIES)]
            plain[len(fresh[0]) : len(fresh[0]) + len(places)] = number == 0 and bool(self.grams)
            fresh = [np.concatenate([fresh[i], top[i][[place[i] for place in places]]])[:count] for i in modes]
        for i in modes:
            directions = rng.standard_normal((count - len(fresh[i]), fresh[i].shape[1]))
            fresh[i] = np.concatenate([fresh[i], self.filters.back(i, directions)])
        self.replicas = [np.concatenate([u, v]) for u, v in zip(self.replicas, fresh, strict=True)]
        self.sums = [np.concatenate([m, np.zeros_like(v)]) for m, v in zip(self.sums, fresh, strict=True)]
        self.plain = np.concatenate([self.plain, plain])
        self._choose(range(len(self.plain)), len(self.plain))

    def step(self, part: Variances, most: int, gather: bool, proven: bool = False) -> None:
        """Every replica takes a step, and the best ``most`` stay, of a ``proven`` candidate only itself.

        ``gather``: gradients of earlier samples count.
        """
        assert part.moments is not None
        count = len(self.replicas[0])
        queries = self.queries(itself=len(part.moments.squares) > count + 1)
        variances, levels = levels_of(part.moments, queries)
        was, order = self.plain, self._order(variances, levels, part.freedom)
        turned = was != self.plain  # these are told by the patterns themselves from now on
        rows = np.where(turned, count, 0) + np.arange(count)
        gradients = [g[rows] for g in excess_gradients(part.moments, queries, levels)]
        excess, levels = (variances - levels)[rows], levels[rows]
        weights = part.freedom * (np.maximum(excess / levels, 0.0) + part.freedom**-0.5) / levels
        before, replicas = self.candidate, self.replicas
        earlier = (gather & ~turned)[:, None]
        self.sums = [np.where(earlier, m, 0) + weights[:, None] * g for m, g in zip(self.sums, gradients, strict=True)]
        self.replicas = [
            units(np.where(np.any(m, axis=1, keepdims=True), m, u))
            for m, u in zip(self.sums, self.replicas, strict=True)
        ]
        if part.moments.pairs:
            self._exchange(replicas, [pairs[:count] for pairs in part.moments.pairs], part.freedom)
        self.total = part.moments.total
        if gather:
            self.tracked = self.tracked or Refined(before, bool(was[0]))
            self.tracked.take(part, [u[0] for u in queries], gather=True)
        self.moved = float(sum(2 - 2 * abs(o) for o in overlaps([u[0] for u in self.replicas], before)))
        self._choose([0] if proven else order, most)

    def _order(self, variances: Array, levels: Array, freedom: float) -> list[int]:
        """All replicas, the best first: what varies more than noise can by its variance, others relative to noise."""
        count = len(self.plain)
        x = (variances / levels - 1)[:count]
        if len(levels) <= count + 1:  # patterns themselves were not asked for
            return [int(r) for r in np.argsort(-x, kind="stable")]
        edge = (1 + math.sqrt(sum(w.shape[1] for w in self.replicas) / freedom)) ** 2 - 1 + CLEAR * CHI / freedom**0.5
        excess = (variances - levels)[count : 2 * count]
        bare = (variances / levels - 1)[count : 2 * count]
        self.plain = self.plain | told_plainly(bare, x, sum(w.shape[1] for w in self.replicas), freedom)
        excess = np.where(x > edge, np.maximum(excess, 0.0), 0.0)
        tied = excess > (1 - CHANCE * CHI / freedom**0.5) * excess.max()  # variances that may well be the same
        return [int(r) for r in np.lexsort((-x, ~self.plain, -np.where(tied, math.inf, excess)))]

    def _exchange(self, replicas: Sequence[Array], pairs: Sequence[Array], freedom: float) -> None:
        """Exchange, of every replica, the one vector that makes it vary the most, relative to noise."""
        fresh, gains = [], []
        for mode, own in enumerate(pairs):
            d = own.shape[-1]
            turn = self.filters.rotations[mode] if self.filters.rotations else np.eye(d)
            turns = np.where(self.plain[:, None, None], np.eye(d), turn)
            values, basis = np.linalg.eigh(turns @ own @ turns.transpose(0, 2, 1))
            leading = basis[:, :, -1]
            fresh.append(np.where(self.plain[:, None], leading, self.filters.back(mode, leading)))
            mean = np.maximum(values.mean(axis=1), np.finfo(float).tiny)  # samples may all be the same
            gains.append(values[:, -1] / mean / (1 + math.sqrt(d / freedom)) ** 2)
        best = np.argmax(gains, axis=0)
        self.replicas = [
            np.where((best == mode)[:, None], new, old)
            for mode, (new, old) in enumerate(zip(fresh, replicas, strict=True))
        ]

    def _choose(self, order: Sequence[int], most: int) -> None:
        """The first replicas in this order, each once."""
        chosen: list[int] = []
        for r in order:
            inner = [np.abs(u[chosen] @ u[r]) for u in self.replicas]
            there = (np.min(inner, axis=0) > SAME) & (self.plain[chosen] == self.plain[r])
            if len(chosen) < most and not there.any():
                chosen.append(r)
        if chosen[0] != 0:
            self.moved, self.tracked = math.inf, None
        self.plain = self.plain[chosen]
        self.replicas = [np.ascontiguousarray(u[chosen]) for u in self.replicas]
        self.sums = [np.ascontiguousarray(m[chosen]) for m in self.sums]

    def bet(self, part: Variances) -> None:
        """Evidence for the candidate, from samples that came after it."""
        queries = self.queries(1)
        x, freedoms = contrasts(part, [u[0] for u in queries])
        if not len(x) or part.moments is None:
            return
        variances, levels = levels_of(part.moments.of_first(), [u[:1] for u in queries])
        shared = float(np.prod([(u[0] @ u[-1]) ** 2 for u in queries]))
        self.excess = float(variances[0] - levels[0]) / max(shared, 1e-300)
        self.bets.append(Bets(part.n))
        for bets in self.bets:
            bets.add(x, freedoms)

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of what bets have won."""
        return log_won(self.bets)

    @property
    def limit(self) -> float:
        """Upper limit of the strength, in noise that is even along the modes: that of A_i's largest eigenvalue."""
        if not self.grams:
            return math.sqrt(max(self.total, 0.0))
        values = [np.linalg.eigvalsh(gram) for gram in self.grams]
        return math.sqrt(min(float(v[-1] - v[0]) for v in values if len(v) > 1))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        bets = [array for one in self.bets for array in (one.bets, one.logs)]
        held = sum(a.nbytes for a in (*self.replicas, *self.sums, *self.grams, *self.filters.arrays, *bets))
        return held + (0 if self.tracked is None else self.tracked.nbytes)
