r"""The refinement: every sample, contracted with all vectors but one, tells that one; the end is the Cramér–Rao limit.

For mode i a round of B samples gives, with the other vectors fixed before it,

.. math:: g_i = \lambda\, w_i\, v_i + N(0, \sigma^2/B), \qquad w_i = \prod_{j\ne i} \langle\hat v_j, v_j\rangle,

unbiased in direction whatever the others' errors.  Weighted by its own signal,

.. math::
    A_i = \sum B\, w_i\, g_i = \lambda W_i v_i + N(0, \sigma^2 W_i), \qquad W_i = \sum B\, w_i^2, \qquad
    \hat v_i = A_i/\|A_i\|,

so that in white noise the squared error of v̂_i is (d−1)σ²/(λ²W_i), and w → 1 makes that (d−1)σ²/(λ²T): the bound for
an unknown unit vector.

**Errors** come from how sub-batches scatter, whatever the noise: the sandwich.  Sub-batch j of :math:`n_j` samples adds
:math:`e_j` to an estimate, and would add the variance :math:`\omega_j\sigma^2` in white noise; with
:math:`S = \sum_j e_je_j^\top` and :math:`\Omega = \sum_j\omega_j`

.. math:: \hat V = \frac{N\,S/\Omega + \kappa\,V_0}{N + \kappa}

is the variance per unit of weight, :math:`V_0` what is believed before the first sub-batch, worth κ of them.  Quantiles
are those of Student's t with :math:`\Omega^2/\sum_j\omega_j^2 - 1 + \kappa` degrees of freedom.  Where neighbouring
samples are alike products of neighbouring :math:`e_j` are added to S (``dependent``).  Of a vector

.. math::
    e_{ij} = n_j w_i P_i g_{ij}, \quad P_i = I - \hat v_i\hat v_i^\top, \quad \omega_{ij} = n_j w_i^2; \qquad
    \mathrm{Cov}(\hat v_i) = \hat V_i\,\frac{W_i}{\|A_i\|^2}, \qquad q_i^2 = 1 - \mathrm{tr}\,\mathrm{Cov}(\hat v_i) .

**The strength** comes from the rewards.  With :math:`R_j` the mean reward of sub-batch j and w the estimated overlap of
all vectors, fixed before its round,

.. math:: \hat\lambda = \frac{\sum_j n_j w R_j}{\sum_j n_j w^2}, \qquad
    \mathrm{Var}(\hat\lambda) = \frac{\sum_j (n_j w R_j - \hat\lambda n_j w^2)^2}{(\sum_j n_j w^2)^2} ,

and the mean reward :math:`\bar R` is the same with w = 1.  An interval that holds at all times at once, while the
stream runs, is wider (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas 2021, Eq. 6, an asymptotic confidence sequence):
with s the standard error after N sub-batches

.. math:: \pm s\sqrt{2\,\frac{N\rho^2 + 1}{N\rho^2}\,\ln\frac{\sqrt{N\rho^2 + 1}}{\alpha}}, \qquad
    \rho^2 = \frac{-2\ln\alpha + \ln(1 - 2\ln\alpha)}{N_0} .

**Contradiction.**  A true signal goes on to give what it gave when it was claimed, :math:`R_0`, or more, for the
vectors get better.  With t the 99.9 % quantile, :math:`\bar R + t\,s(\bar R) < R_0/2` says that it does not.
:math:`R_0` is what happened to be enough for a claim, and on average too large by about its own error, a fourth of it
or less; so a true signal is accused in less than one run of a thousand.

**Slow noise.**  The bets of the candidate go on (:mod:`tpca.solvers.race.evidence`).  Where neighbouring rewards turn
out to be alike, by more than 3.5 standard errors, the claim must hold on sums of neighbours, or is withdrawn.

==============  ===============================================
symbol          code
==============  ===============================================
A_i, W_i        ``totals()``, ``weights()``
q_i, λ          ``quality``, ``strength``
S, Ω, N         ``Sandwich``: ``_sum``, ``weight``, ``count``
V_0, κ, N_0     ``prior``, ``PRIOR``, ``NARROWEST``
==============  ===============================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from tpca.checkpoint import kept
from tpca.solvers.checks import SLOW
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.evidence import MIN_BLOCKS, Wealth
from tpca.tensors import Answer, Query, SubBatches
from tpca.tensors.blocks import Array, unit

PRIOR = 4.0  # κ
NARROWEST = 64.0  # N_0: sub-batches at which the interval for all times is narrowest, beside others of its kind
FLOOR = 0.05  # an estimated overlap is never taken for less: a weight of zero would learn nothing
KEPT = 10.0  # signal over noise that vectors count for when their sums are forgotten
MIN_OVERLAP = 0.25  # of all vectors together: a mean reward is not blown up further than this
TURNED = 0.5  # overlap with what was claimed below which a vector is another one
SETTLED = 0.25  # the refinement's own strength is used once it weighs this share of what the search knew
MIN_COUNT = 8  # sub-batches that a noise level must rest on
MIN_AFTER = 6  # sub-batches after a claim before they may contradict it
HALF = 0.5
SURE = 0.999
# Of rows (nR, n, nwR, nw²): what the mean reward and the strength are made of, each with what was estimated.
MEAN, STRENGTH = (0, 1), (2, 3)


@kept
class Sandwich:
    """Sums over sub-batches of what they add to an estimate of ``size`` numbers: squares, or (``full``) products."""

    def __init__(self, size: int, full: bool, dependent: bool) -> None:
        self._sum = np.zeros((size, size) if full else size)
        self._last = np.zeros(size if dependent else 0)
        self.weight = self.count = self._squared_weights = 0.0

    def add(self, rows: Array, weights: Array) -> None:
        """Take ``rows[j]``, what sub-batch j adds, and what it would weigh in white noise."""
        self._sum += rows.T @ rows if self._sum.ndim == 2 else np.einsum("jk,jk->k", rows, rows)
        if len(self._last):
            before = np.concatenate([self._last[None], rows[:-1]])
            lagged = rows.T @ before if self._sum.ndim == 2 else np.einsum("jk,jk->k", rows, before)
            self._sum += lagged + lagged.T
            self._last = rows[-1].copy()
        self.weight += float(weights.sum())
        self._squared_weights += float(weights @ weights)
        self.count += len(weights)

    def variance(self, prior: Array) -> Array:
        """V: per unit of weight; positive, also where products of neighbours are not."""
        if not self.weight:
            return prior
        believed = self.weight * prior
        mixed = (self.count * self._sum + PRIOR * believed) / (self.count + PRIOR)
        return np.asarray(np.maximum(mixed, 0.1 * PRIOR / (self.count + PRIOR) * believed) / self.weight)

    def spread(self, direction: Array, prior: float) -> float:
        """Variance of a sum along one direction with one number fitted; in white noise it would be ``prior``."""
        found = max(0.0, float(direction @ self._sum @ direction)) * self.count / max(1.0, self.count - 1)
        return (self.count * found + PRIOR * prior) / (self.count + PRIOR)

    def quantile(self, probability: float) -> float:
        """Of Student's t."""
        effective = self.weight**2 / self._squared_weights if self._squared_weights else 1.0
        return float(stdtrit(max(1.0, effective - 1 + PRIOR), probability))

    @property
    def widened(self) -> float:
        """What a standard error is multiplied by, so that 1.96 of them are 95 %: 1 for many sub-batches."""
        return self.quantile(0.975) / float(ndtri(0.975))

    def at_all_times(self, alpha: float) -> float:
        """How many standard errors hold at all times at once with probability 1 − α."""
        spread = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / NARROWEST
        times = max(self.count, 1.0) * spread
        return self.widened * math.sqrt(2 * (times + 1) / times * math.log(math.sqrt(times + 1) / alpha))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self._sum, self._last)


@kept
@dataclass(frozen=True)
class Known:
    """What the search knows of one mode, as if from a sum h = s v + N(0, nσ²).

    ``direction`` is (s/n) h and ``signal`` is s²/n.  Divided by λ and λ² these count as A_i and W_i: the strength,
    which the search knows badly, stays out of them.
    """

    direction: Array
    signal: float


def known_of(candidate: Candidate) -> tuple[Known, ...]:
    """The information of a candidate's own sums h = s v + N(0, nσ²) in this attempt.

    Its vectors have been refined by the strategy's sums as well and are better than that.  But those sums, fitted many
    times to the same samples, cannot be trusted about how much better; the candidate's were taken on samples that its
    vectors had not seen.
    """
    known = []
    for i, v in enumerate(candidate.vectors):
        noise = (len(v) - 1) * candidate.sigma**2
        projection = max(0.0, float(v @ candidate.sums[i])) if candidate.sums else 0.0
        signal = max(0.0, projection**2 / max(candidate.seen, 1) - noise)  # v was fitted to h: less the noise of that
        known.append(Known(math.sqrt(signal**2 + noise * signal) * v, signal))
    return tuple(known)


@kept
class RewardsAfter:
    """Sums over the rewards after a claim of a mean reward ``claimed``; bets go on from what was ``won``."""

    def __init__(
        self, claimed: float, sigma: float, dependent: bool, won: tuple[float, ...] = (), needed: float = 0.0
    ) -> None:
        self.claimed, self.dependent, self.needed = claimed, dependent, needed
        self._wealth = Wealth(sigma or 1.0, 1, won)
        self._totals = np.zeros(4)
        self._scatter = Sandwich(4, True, dependent)

    def add(self, overlap: float, parts: SubBatches) -> None:
        """Take the sub-batches of a round, with the overlap w that was estimated before it."""
        n, rewards = parts.sizes, parts.rewards
        rows = np.stack([n * rewards, n, n * overlap * rewards, n * overlap**2], axis=1)
        self._totals += rows.sum(axis=0)
        self._wealth.add(n * rewards, n)
        self._scatter.add(rows, n)

    @property
    def count(self) -> float:
        """Sub-batches."""
        return self._scatter.count

    @property
    def mean(self) -> float:
        """The mean reward."""
        return self._ratio(MEAN)

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the overlaps."""
        return self._ratio(STRENGTH)

    @property
    def weight(self) -> float:
        """Σ n w²."""
        return float(self._totals[3])

    def settled(self, signal: float) -> bool:
        """Whether they tell the strength as well as the search did, which knew so much ``signal``."""
        return self.weight > 0 and float(self._totals[2]) ** 2 >= SETTLED * self.weight * signal

    def strength_error(self, sigma: float) -> float:
        """Standard error of the strength; ``sigma`` is believed before there are sub-batches."""
        return self._error(STRENGTH, sigma)

    def quantile(self, probability: float) -> float:
        """Of Student's t, for intervals of the strength."""
        return self._scatter.quantile(probability)

    def at_all_times(self, alpha: float) -> float:
        """How many standard errors hold at all times at once."""
        return self._scatter.at_all_times(alpha)

    def limit(self, sigma: float) -> float:
        """95 % upper limit on the size of the mean reward; infinite before the second sub-batch.

        Nothing is assumed of the noise but that sub-batches are independent, so this holds where a claim has failed.
        """
        if self.count < 2:
            return math.inf
        return abs(self.mean) + self.quantile(0.95) * self._error(MEAN, sigma)

    def contradiction(self, sigma: float) -> str | None:
        """What these rewards say against the claim, in words."""
        if self.count < MIN_AFTER or self.claimed <= 0:
            return None
        if (self.excess or 0.0) > SLOW and self.proof <= self.needed:
            return f"log evidence of {self.proof:.2g} on sums of samples whose neighbours are alike"
        if self.mean + self.quantile(SURE) * self._error(MEAN, sigma) >= HALF * self.claimed:
            return None
        return f"a mean reward of {self.mean / self.claimed:.2g} times the one at the claim"

    @property
    def excess(self) -> float | None:
        """How much more alike neighbouring rewards are than independent ones, in standard errors.

        ``None`` after too few, or where neighbouring samples are known to be alike.
        """
        if self.dependent or self.count < MIN_BLOCKS:
            return None
        return next(self._wealth.excesses())  # of the shortest sums: vectors that get better make longer ones alike

    @property
    def proof(self) -> float:
        """The most that the log of the evidence has been, from the candidate's first bets on."""
        return self._wealth.proof

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What is held."""
        return (self._totals, *self._scatter.arrays, *self._wealth.arrays)

    def _ratio(self, which: tuple[int, int]) -> float:
        top, bottom = self._totals[list(which)]
        return float(top / bottom) if bottom else 0.0

    def _error(self, which: tuple[int, int], sigma: float) -> float:
        top, bottom = which
        direction = np.zeros(4)
        direction[top], direction[bottom] = 1.0, -self._ratio(which)
        weight = float(self._totals[bottom])
        return math.sqrt(self._scatter.spread(direction, sigma**2 * weight)) / weight if weight else math.inf


@kept
class Refinement:
    """Running sums for every mode, on top of what a ``candidate`` knows; ``dependent``: neighbours are alike."""

    working_bytes = 0  # copies of a few vectors at most

    def __init__(self, candidate: Candidate, dependent: bool = False) -> None:
        self.partition, self.vectors, self.dependent = candidate.partition, candidate.vectors, dependent
        self._known = known_of(candidate)
        # A strong signal inflates the candidate's noise level: it counts for little once there is an own one.
        self._entries = float(min(candidate.entries, max(50.0, sum(candidate.partition.dims))))
        self._squares = candidate.sigma**2 * self._entries
        self._won = () if candidate.wealth is None else tuple(level.log for level in candidate.wealth.levels)
        self._needed = candidate.needed
        self._begin(candidate.strength)
        noise = [(len(v) - 1) * candidate.sigma**2 for v in self.vectors]
        pairs = zip(self._known, noise, strict=True)
        self.quality = np.array([_overlap(k.signal / (k.signal + e or 1.0)) for k, e in pairs])

    def _begin(self, reward: float) -> None:
        """Empty sums, on top of a mean ``reward`` of these vectors."""
        self.samples, self.claimed = 0, self.vectors
        self._sums = [np.zeros(len(v)) for v in self.vectors]
        self._weights = np.zeros(len(self.vectors))
        self._errors = [Sandwich(len(v), False, self.dependent) for v in self.vectors]
        self.rewards = RewardsAfter(reward, self.sigma, self.dependent, self._won, self._needed)

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries)

    @property
    def settled(self) -> bool:
        """Whether the refinement has samples enough of its own to tell the strength."""
        return self.rewards.settled(min(k.signal for k in self._known))

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the estimated overlaps; the candidate's until the vectors have settled."""
        if self.settled:
            return self.rewards.strength
        return self.rewards.claimed / max(float(np.prod(self.quality)), MIN_OVERLAP)

    @property
    def strength_error(self) -> float:
        """Standard error of the strength.

        The correction for the overlaps is only as good as their estimates, which are cautious at first: half of it
        counts as an error too.  The candidate's mean reward is over rounds in which its vectors were worse than they
        are now: as long as it is used, twice the correction does.
        """
        if self.settled:
            return math.hypot(self.rewards.strength_error(self.sigma), 0.5 * (self.strength - self.rewards.mean))
        noise = self.sigma * self.strength / math.sqrt(max(min(k.signal for k in self._known), 1e-300))
        return math.hypot(noise, 2 * (self.strength - self.rewards.claimed))

    @property
    def loudness(self) -> float | None:
        """The noise along the signal over that elsewhere; ``None`` before it is known to a third or so."""
        if self.rewards.count < MIN_COUNT:
            return None
        return self.rewards.strength_error(self.sigma) * math.sqrt(self.rewards.weight) / (self.sigma or 1.0)

    def queries(self) -> tuple[Query, ...]:
        """The current vectors, gradients of all modes, of every sub-batch, too."""
        modes = tuple(range(len(self.vectors)))
        return (Query(self.partition, tuple(v[None] for v in self.vectors), by_part=modes),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the mean contractions over the ``n`` samples just seen, then move the vectors."""
        (answer,) = answers
        parts = answer.by_part
        assert parts is not None
        reward, overlap, weights = float(answer.rewards[0]), float(np.prod(self.quality)), self.weights()
        for i, (v, total) in enumerate(zip(self.vectors, self._sums, strict=True)):
            fresh, own = answer.gradients[i][0], overlap / self.quality[i]
            # Across v̂_i there is noise of the round, and of v̂_i itself: (d_i - 1)σ²(1/B + w_i²/W_i).
            stale = n * own**2 / weights[i] if weights[i] else 0.0
            self._squares += n * max(0.0, float(fresh @ fresh) - reward**2) / (1 + stale)
            self._entries += len(fresh) - 1
            across = parts.gradients[i] - np.outer(parts.gradients[i] @ v, v)
            self._errors[i].add(own * parts.sizes[:, None] * across, own**2 * parts.sizes)
            total += n * own * fresh
            self._weights[i] += n * own**2
        self.rewards.add(overlap, parts)
        self.samples += n
        self.vectors = tuple(unit(total) for total in self.totals())
        self.quality = np.array([_overlap(1 - float(v.sum())) for v in self._variances()])

    def start_over(self) -> None:
        """Keep the vectors and the noise level, forget all sums: they were taken with another component in the samples.

        The vectors still count for as much as makes a squared error of one tenth, so that fresh samples soon take over.
        """
        noise = [(len(v) - 1) * self.sigma**2 for v in self.vectors]
        reward = self.strength * float(np.prod(self.quality))
        pairs = zip(self.vectors, noise, strict=True)
        self._known = tuple(Known(math.sqrt(KEPT**2 + KEPT) * e * v, KEPT * e) for v, e in pairs)
        self._begin(reward)

    def totals(self) -> list[Array]:
        """A_i: own sums and what the search knows."""
        strength = self.strength or 1.0
        return [own + k.direction / strength for own, k in zip(self._sums, self._known, strict=True)]

    def weights(self) -> Array:
        """W_i: own weights and what the search knows."""
        return self._weights + np.array([k.signal for k in self._known]) / (self.strength**2 or 1.0)

    def standard_errors(self) -> tuple[Array, ...]:
        """Of every component of every vector; 1.96 of them are 95 % also after few sub-batches."""
        pairs = zip(self._errors, self._variances(), strict=True)
        return tuple(errors.widened * np.sqrt(variances) for errors, variances in pairs)

    def deviations(self) -> tuple[Array, ...]:
        """The same without what few sub-batches add."""
        return tuple(np.sqrt(variances) for variances in self._variances())

    def error(self) -> float:
        """Root mean squared error of the least certain vector."""
        return math.sqrt(max(float(variances.sum()) for variances in self._variances()))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Of the strength."""
        return self._within(self.rewards.quantile(0.5 + confidence / 2) * self.strength_error)

    def sequence(self, confidence: float) -> tuple[float, float]:
        """An interval of the strength that holds at all times at once, while the stream runs."""
        return self._within(self.rewards.at_all_times(1 - confidence) * self.strength_error)

    def contradiction(self) -> str | None:
        """What the samples after the claim say against it, in words: rewards, or vectors that have turned away."""
        turned = min(abs(float(v @ w)) for v, w in zip(self.vectors, self.claimed, strict=True))
        if turned < TURNED:
            return f"a vector that overlaps {turned:.2g} with the one that was claimed"
        return self.rewards.contradiction(self.sigma)

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        own = [*self._sums, *self.claimed, *self.vectors, *self.rewards.arrays]
        return own + [k.direction for k in self._known] + [a for e in self._errors for a in e.arrays]

    def _within(self, half: float) -> tuple[float, float]:
        return max(0.0, self.strength - half), self.strength + half

    def _variances(self) -> list[Array]:
        """Var(v̂_i) of every entry."""
        found = []
        each = zip(self.vectors, self.totals(), self.weights(), self._errors, strict=True)
        for v, total, weight, errors in each:
            across = np.maximum(0.0, 1 - v**2)
            if not total.any():  # of a vector of which nothing is known, what makes its error √2
                found.append(across * (2 / (len(v) - 1)))
                continue
            length = float(np.linalg.norm(total)) or 1.0
            found.append(errors.variance(self.sigma**2 * across) * float(weight / length**2))
        return found


def _overlap(squared: float) -> float:
    return math.sqrt(max(squared, FLOOR**2))
