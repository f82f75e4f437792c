r"""The refinement: every sample, contracted with all vectors but one, tells that one; the end is the Cramér–Rao limit.

For mode i a round of B samples gives, with the other vectors fixed before it,

.. math:: g_i = \lambda\, w_i\, v_i + N(0, \sigma^2/B), \qquad w_i = \prod_{j\ne i} \langle\hat v_j, v_j\rangle,

unbiased in direction whatever the others' errors.  Weighted by its own signal,

.. math::
    A_i = \sum B\, w_i\, g_i = \lambda W_i v_i + N(0, \sigma^2 W_i), \qquad W_i = \sum B\, w_i^2, \qquad
    \hat v_i = A_i/\|A_i\|,

so that the squared error of v̂_i is (d−1)σ²/(λ²W_i), and w → 1 makes that (d−1)σ²/(λ²T): the bound for an unknown
unit vector.  The estimated overlap is :math:`q_i^2 = 1 - (d_i-1)\sigma^2 W_i/\|A_i\|^2`, the strength
:math:`\sum B w R/\sum B w^2` with :math:`w = \prod_i q_i` and R the reward.  The noise level comes from the part of g_i
across v̂_i, whose expected energy is :math:`(d_i-1)\sigma^2(1/B + w_i^2/W_i)`: noise of the round, and of v̂_i itself.

==========  ======================
A_i, W_i    ``totals()``, ``weights()``
q_i         ``quality``
λ           ``strength``
==========  ======================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.recovery import Claim
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

FLOOR = 0.05  # an estimated overlap is never taken for less: a weight of zero would learn nothing
KEPT = 10.0  # signal over noise that vectors count for when their sums are forgotten
SETTLED = 0.25  # the refinement's own strength is used once it weighs this share of what the search knew


@kept
@dataclass(frozen=True)
class Known:
    """What the search knows of one mode, as if from a sum h = s v + N(0, nσ²).

    ``direction`` is (s/n) h and ``signal`` is s²/n.  Divided by λ and λ² these count as A_i and W_i: the strength,
    which the search knows badly, stays out of them.
    """

    direction: Array
    signal: float


@kept
class Refinement:
    """Running sums for every mode, on top of what the search knows."""

    working_bytes = 0  # copies of a few vectors at most

    def __init__(
        self, vectors: tuple[Array, ...], known: tuple[Known, ...], reward: float, sigma: float, entries: float
    ) -> None:
        self.partition = Partition.singles(tuple(len(v) for v in vectors))
        self.vectors = vectors
        self.samples = 0
        self._known, self._first_reward = known, reward
        self._sums = [np.zeros(len(v)) for v in vectors]
        self._weights = np.zeros(len(vectors))
        self._squares, self._entries = sigma**2 * entries, float(entries)
        self._reward, self._reward_weight, self._plain = 0.0, 0.0, 0.0
        self._rounds, self._reward_squares = 0, 0.0
        noise = [(len(v) - 1) * sigma**2 for v in vectors]
        self.quality = np.array([_overlap(k.signal / (k.signal + e or 1.0)) for k, e in zip(known, noise, strict=True)])

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries)

    @property
    def settled(self) -> bool:
        """Whether the refinement has samples enough of its own to tell the strength."""
        enough = SETTLED * self._reward_weight * min(k.signal for k in self._known)
        return self._reward_weight > 0 and self._reward**2 >= enough

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the estimated overlaps; the candidate's until the vectors have settled."""
        if self.settled:
            return self._reward / self._reward_weight
        return self._first_reward / float(np.prod(self.quality))

    @property
    def strength_error(self) -> float:
        """Standard error of the strength.

        The correction for the overlaps is only as good as their estimates, which are cautious at first: half of it
        counts as an error too.  The candidate's mean reward is over rounds in which its vectors were worse than they
        are now: as long as it is used, twice the correction does.
        """
        if self.settled:
            doubt = 0.5 * (self.strength - self._plain / self.samples)
            return math.hypot(self.sigma / math.sqrt(self._reward_weight), doubt)
        noise = self.sigma * self.strength / math.sqrt(max(min(k.signal for k in self._known), 1e-300))
        return math.hypot(noise, 2 * (self.strength - self._first_reward))

    def queries(self) -> tuple[Query, ...]:
        """The current vectors, gradients of all modes."""
        return (Query(self.partition, tuple(v[None] for v in self.vectors)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the mean contractions over the ``n`` samples just seen, then move the vectors."""
        (answer,) = answers
        reward = float(answer.rewards[0])
        overlap = float(np.prod(self.quality))
        weights = self.weights()
        for i, total in enumerate(self._sums):
            fresh = answer.gradients[i][0]
            own = overlap / self.quality[i]
            self._note_noise(fresh, reward, n, n * own**2 / weights[i] if weights[i] else 0.0)
            total += n * own * fresh
            self._weights[i] += n * own**2
        self._plain += n * reward
        self._rounds += 1
        self._reward_squares += n * reward**2
        self._reward += n * overlap * reward
        self._reward_weight += n * overlap**2
        self.samples += n
        totals = self.totals()
        self.vectors = tuple(unit(total) for total in totals)
        noise = [(len(a) - 1) * self.sigma**2 * w / _norm(a) ** 2 for a, w in zip(totals, self.weights(), strict=True)]
        self.quality = np.array([_overlap(1 - e) for e in noise])

    def start_over(self) -> None:
        """Keep the vectors and the noise level, forget all sums: they were taken with another component in the samples.

        The vectors still count for as much as makes a squared error of one tenth, so that fresh samples soon take over.
        """
        strength, variance = self.strength, self.sigma**2
        noise = [(len(v) - 1) * variance for v in self.vectors]
        pairs = zip(self.vectors, noise, strict=True)
        self._known = tuple(Known(math.sqrt(KEPT**2 + KEPT) * e * v, KEPT * e) for v, e in pairs)
        self._first_reward = strength * float(np.prod(self.quality))
        self._sums = [np.zeros(len(v)) for v in self.vectors]
        self._weights = np.zeros(len(self.vectors))
        self._reward = self._reward_weight = self._plain = self._reward_squares = 0.0
        self.samples = self._rounds = 0

    def totals(self) -> list[Array]:
        """A_i: own sums and what the search knows."""
        strength = self.strength or 1.0
        return [own + k.direction / strength for own, k in zip(self._sums, self._known, strict=True)]

    def weights(self) -> Array:
        """W_i: own weights and what the search knows."""
        squared = self.strength**2 or 1.0
        return self._weights + np.array([k.signal for k in self._known]) / squared

    def standard_errors(self) -> tuple[Array, ...]:
        """Standard error of every component of every vector: σ√W_i/‖A_i‖ across v̂_i."""
        pairs = zip(self._levels(), self.vectors, strict=True)
        return tuple(e * np.sqrt(np.maximum(0.0, 1 - v**2)) for e, v in pairs)

    def covariance(self, mode: int) -> Array:
        """Covariance of the errors of one vector, across it."""
        v = self.vectors[mode]
        across: Array = np.eye(len(v)) - np.outer(v, v)
        return self._levels()[mode] ** 2 * across

    def error(self) -> float:
        """Root mean squared error of the least certain vector: max_i σ√((d_i−1)W_i)/‖A_i‖."""
        return max(e * math.sqrt(len(v) - 1) for e, v in zip(self._levels(), self.vectors, strict=True))

    def claim(self, confidence: float) -> Claim:
        """What can be said of the signal."""
        half = float(ndtri(0.5 + confidence / 2)) * self.strength_error
        return Claim(self.strength, (max(0.0, self.strength - half), self.strength + half), self.standard_errors())

    def reward_limit(self) -> float:
        """95 % upper limit on the mean reward, from how it scatters between rounds; infinite before the second.

        Nothing is assumed of the noise but that rounds are independent, so this holds where a claim has failed.
        """
        if self._rounds < 2:
            return math.inf
        mean, freedom = self._plain / self.samples, self._rounds - 1
        variance = max(0.0, self._reward_squares - self.samples * mean**2) / freedom  # of one sample
        return abs(mean) + float(stdtrit(freedom, 0.95)) * math.sqrt(variance / self.samples)

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name."""
        named = {f"sum_{i}": a for i, a in enumerate(self._sums)}
        named |= {f"known_{i}": k.direction for i, k in enumerate(self._known)}
        return named | {f"vector_{i}": v for i, v in enumerate(self.vectors)}

    def _levels(self) -> list[float]:
        """σ√W_i/‖A_i‖; of a vector of which nothing is known, what makes its error √2."""
        pairs = zip(self.totals(), self.weights(), strict=True)
        return [self.sigma * math.sqrt(w) / _norm(a) if a.any() else math.sqrt(2 / (len(a) - 1)) for a, w in pairs]

    def _note_noise(self, fresh: Array, reward: float, n: int, staleness: float) -> None:
        across = max(0.0, float(fresh @ fresh) - reward**2)
        self._squares += n * across / (1 + staleness)
        self._entries += len(fresh) - 1


def refinement_from(candidate: Candidate) -> Refinement:
    """Start from the candidate's vectors, with the information of its own sums h = s v + N(0, nσ²) in this attempt.

    The vectors have been refined by the strategy's sums as well and are better than that.  But those sums, fitted many
    times to the same samples, cannot be trusted about how much better; the candidate's were taken on samples that its
    vectors had not seen.
    """
    known = []
    for i, v in enumerate(candidate.vectors):
        noise = (len(v) - 1) * candidate.sigma**2
        projection = max(0.0, float(v @ candidate.own(candidate.vectors, i)))
        signal = max(0.0, projection**2 / max(candidate.seen, 1) - noise)  # v was fitted to h: less the noise of that
        known.append(Known(math.sqrt(signal**2 + noise * signal) * v, signal))
    # A strong signal inflates the candidate's noise level: it counts for little once the refinement has its own.
    entries = min(candidate.entries, max(50.0, sum(candidate.partition.dims)))
    return Refinement(candidate.vectors, tuple(known), candidate.strength, candidate.sigma, entries)


def _overlap(squared: float) -> float:
    return math.sqrt(max(squared, FLOOR**2))


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array)) or 1.0
