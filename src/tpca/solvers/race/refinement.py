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
are those of Student's t with :math:`(\sum_j n_j)^2/\sum_j n_j^2 - 1 + \kappa` degrees of freedom.  Where neighbouring
samples are alike, sub-batches are made of whole blocks of them.  Of a vector

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

**A claim comes to nothing** in two cases.  The bets of the candidate go on (:mod:`tpca.solvers.race.evidence`); where
neighbouring rewards turn out to be alike, by more than 3.5 standard errors, the evidence on sums of neighbours is what
counts, and it may prove nothing.  And a true signal goes on to give the reward :math:`R_0` that it gave when it was
claimed, or more, for the vectors get better: with t the 99.9 % quantile, :math:`\hat\lambda + t\,s(\hat\lambda) <
R_0/2` says that it has vanished.  :math:`R_0` is on average too large by about its own error, a fourth of it or less,
so that a true signal is accused in less than one run of a thousand.

==============  ====================================================
symbol          code
==============  ====================================================
A_i, W_i        ``totals()``, ``weights()``
q_i, λ          ``quality``, ``strength``
S, Ω, N         ``_squared[i]``, ``_weights[i]``, ``count``
V_0, κ, N_0     ``σ²(1 − v²)``, ``PRIOR``, ``NARROWEST``
==============  ====================================================
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri, stdtrit

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.evidence import FEW, MIN_BLOCKS, Wealth
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, unit

PRIOR = 4.0  # κ
NARROWEST = 64.0  # N_0: sub-batches at which the interval for all times is narrowest, beside others of its kind
FLOOR = 0.05  # an estimated overlap is never taken for less: a weight of zero would learn nothing
KEPT = 10.0  # signal over noise that vectors count for when their sums are forgotten
MIN_OVERLAP = 0.25  # of all vectors together: a mean reward is not blown up further than this
SETTLED = 0.25  # the refinement's own strength is used once it weighs this share of what the search knew
SLOW = 3.5  # standard errors from which on neighbouring rewards are alike: 1 run of 4000 in white noise
LOUD = 2.0  # noise along the signal over that elsewhere, from which on it may be what was found
HALF, SURE = 0.5, 0.999  # share of the reward, and quantile, for a signal that has vanished


@kept
class Refinement:
    """Running sums for every mode, on top of what a ``candidate`` knows.

    What the search knows of mode i is as if from a sum h = s v + N(0, nσ²): ``_known[i]`` is (s/n) h, ``_signals[i]``
    is s²/n.  Divided by λ and λ² these count as A_i and W_i: the strength, which the search knows badly, stays out of
    them.  It is the information of the candidate's own sums in this attempt.  Its vectors have been refined by the
    strategy's sums as well and are better than that.  But those sums, fitted many times to the same samples, cannot be
    trusted about how much better; the candidate's were taken on samples that its vectors had not seen.
    """

    working_bytes = 0  # copies of a few vectors at most

    def __init__(self, candidate: Candidate) -> None:
        self.partition, self.vectors = candidate.partition, candidate.vectors
        # A strong signal inflates the candidate's noise level: it counts for little once there is an own one.
        self._entries = float(min(candidate.entries, max(50.0, sum(candidate.partition.dims))))
        self._squares = candidate.sigma**2 * self._entries
        self._needed = candidate.needed
        self._won = candidate.wealth.won
        sums = candidate.sums or [np.zeros(len(v)) for v in self.vectors]
        projections = np.array([max(0.0, float(v @ h)) for v, h in zip(self.vectors, sums, strict=True)])
        # v was fitted to h: less the noise of that
        self._begin(np.maximum(0.0, projections**2 / max(candidate.seen, 1) - self._noise()), candidate.strength)
        known = self._signals / np.maximum(self._signals + self._noise(), np.finfo(np.float64).tiny)
        self.quality = np.sqrt(np.maximum(known, FLOOR**2))

    def _noise(self) -> Array:
        """Of the entries of every vector together."""
        return np.array([(len(v) - 1) * self.sigma**2 for v in self.vectors])

    def _begin(self, signals: Array, reward: float) -> None:
        """Empty sums, on top of s²/n of every mode, and of a mean ``reward`` of these vectors."""
        lengths = np.sqrt(signals**2 + self._noise() * signals)
        self._signals, self._known = signals, [s * v for s, v in zip(lengths, self.vectors, strict=True)]
        self.samples, self.count, self._claimed = 0, 0, reward
        self._sizes = np.zeros(2)  # Σ n_j, Σ n_j²
        self._sums = [np.zeros(len(v)) for v in self.vectors]
        self._squared = [np.zeros(len(v)) for v in self.vectors]  # Σ e_j²
        self._weights = np.zeros(len(self.vectors))
        self._rewards, self._reward_products = np.zeros(3), np.zeros((2, 2))  # of nR, nwR, nw²; of the last two
        self.wealth = Wealth(self._won)  # bets that go on
        self.wealth.begin(self.sigma or 1.0, 1)

    def start_over(self) -> None:
        """Keep the vectors and the noise level, forget all sums: they were taken with another component in the samples.

        The vectors still count for as much as makes a squared error of one tenth, so that fresh samples soon take over.
        """
        self._begin(KEPT * self._noise(), self.strength * float(np.prod(self.quality)))

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
            self._squared[i] += own**2 * parts.sizes**2 @ across**2
            total += n * own * fresh
            self._weights[i] += n * own**2
        sums = parts.sizes * parts.rewards
        rows = np.stack([overlap * sums, overlap**2 * parts.sizes], axis=1)
        self._rewards += (sums.sum(), *rows.sum(axis=0))
        self._reward_products += rows.T @ rows
        self._sizes += (parts.sizes.sum(), parts.sizes @ parts.sizes)
        self.wealth.add(sums, parts.sizes)
        self.samples, self.count = self.samples + n, self.count + len(sums)
        self.vectors = tuple(unit(total) for total in self.totals())
        known = np.array([1 - float(v.sum()) for v in self._variances()])
        self.quality = np.sqrt(np.maximum(known, FLOOR**2))

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries)

    def totals(self) -> list[Array]:
        """A_i: own sums and what the search knows."""
        strength = self.strength or 1.0
        return [own + known / strength for own, known in zip(self._sums, self._known, strict=True)]

    def weights(self) -> Array:
        """W_i: own weights and what the search knows."""
        return self._weights + self._signals / (self.strength**2 or 1.0)

    def _variances(self) -> list[Array]:
        """Var(v̂_i) of every entry."""
        found, share = [], PRIOR / (self.count + PRIOR)
        for i, (v, total, weight) in enumerate(zip(self.vectors, self.totals(), self.weights(), strict=True)):
            across = np.maximum(0.0, 1 - v**2)
            if not total.any():  # of a vector of which nothing is known, what makes its error √2
                found.append(across * (2 / (len(v) - 1)))
                continue
            seen = self._squared[i] / self._weights[i] if self._weights[i] else 0.0
            variance = (1 - share) * seen + share * self.sigma**2 * across
            found.append(variance * float(weight) / (float(total @ total) or 1.0))
        return found

    def standard_errors(self, widened: bool = True) -> tuple[Array, ...]:
        """Of every component of every vector; 1.96 of them are 95 % also after few sub-batches, where ``widened``."""
        factor = self.quantile(0.975) / float(ndtri(0.975)) if widened else 1.0
        return tuple(factor * np.sqrt(variances) for variances in self._variances())

    def error(self) -> float:
        """Root mean squared error of the least certain vector."""
        return math.sqrt(max(float(variances.sum()) for variances in self._variances()))

    def quantile(self, probability: float) -> float:
        """Of Student's t."""
        effective = self._sizes[0] ** 2 / self._sizes[1] if self.count else 1.0
        return float(stdtrit(max(1.0, effective - 1 + PRIOR), probability))

    def own_strength(self) -> tuple[float, float]:
        """λ of the refinement's own samples, and its standard error: the noise level is believed before sub-batches."""
        _, total, weight = self._rewards.tolist()
        if not weight:
            return 0.0, math.inf
        direction = np.array([1.0, -total / weight])
        seen = max(0.0, float(direction @ self._reward_products @ direction)) * self.count / max(1, self.count - 1)
        mixed = (self.count * seen + PRIOR * self.sigma**2 * weight) / (self.count + PRIOR)
        return total / weight, math.sqrt(mixed) / weight

    @property
    def settled(self) -> bool:
        """Whether the refinement has samples enough to tell the strength as well as the search did."""
        _, total, weight = self._rewards
        return bool(weight > 0 and total**2 >= SETTLED * weight * float(self._signals.min()))

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the estimated overlaps; the candidate's until the vectors have settled."""
        if self.settled:
            return self.own_strength()[0]
        return self._claimed / max(float(np.prod(self.quality)), MIN_OVERLAP)

    @property
    def strength_error(self) -> float:
        """Standard error of the strength.

        The correction for the overlaps is only as good as their estimates, which are cautious at first: half of it
        counts as an error too.  The candidate's mean reward is over rounds in which its vectors were worse than they
        are now: as long as it is used, twice the correction does.
        """
        if self.settled:
            mean = float(self._rewards[0] / self._sizes[0])
            return math.hypot(self.own_strength()[1], 0.5 * (self.strength - mean))
        noise = self.sigma * self.strength / math.sqrt(max(float(self._signals.min()), 1e-300))
        return math.hypot(noise, 2 * (self.strength - self._claimed))

    def reach(self, confidence: float, always: bool = False) -> float:
        """Half of an interval of the strength; of one that holds at all times at once, if ``always``."""
        if not always:
            return self.quantile(0.5 + confidence / 2) * self.strength_error
        alpha = 1 - confidence
        times = max(self.count, 1.0) * (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / NARROWEST
        errors = math.sqrt(2 * (times + 1) / times * math.log(math.sqrt(times + 1) / alpha))
        return errors * self.quantile(0.975) / float(ndtri(0.975)) * self.strength_error

    @property
    def slow(self) -> bool:
        """Whether neighbours have turned out to be alike, so that only the evidence on sums of them counts.

        By the shortest sums: vectors that get better make longer ones alike.
        """
        return self.count >= MIN_BLOCKS and self.wealth.excess(0) > SLOW

    @property
    def vanished(self) -> bool:
        """Whether the samples after the claim have less than half of its reward, by more than chance."""
        own, error = self.own_strength()
        return self.count >= FEW and own + self.quantile(SURE) * error < HALF * self._claimed

    @property
    def failed(self) -> bool:
        """Whether the claim has come to nothing: see the top of this file."""
        return self.vanished or (self.slow and self.wealth.proof <= self._needed)

    def advice(self) -> list[str]:
        """What speaks against the claim."""
        told = []
        along = self.own_strength()[1] * math.sqrt(self._rewards[2]) / (self.sigma or 1.0)
        if self.count >= FEW and along > LOUD:
            told.append(
                f"The noise is {along:.2g} times as strong along the signal as elsewhere: it may be what was found."
            )
        if self.slow:
            told.append(
                "What is along the signal changes slowly from sample to sample: noise that turns round slowly, or a "
                "signal that comes and goes, looks like this."
            )
        if self.vanished:
            told.append(
                "What was found in the first samples is not in those after them: a signal that changes looks like this."
            )
        return told

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        own = [*self._sums, *self._squared, *self._known, *self.vectors, self._rewards, self._reward_products]
        return own + self.wealth.arrays
