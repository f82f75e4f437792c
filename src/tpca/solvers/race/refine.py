r"""The refinement: every sample, contracted with all vectors but one, tells that one; the end is the Cramér–Rao limit.

For mode i a round of B samples gives, with the other vectors fixed before it,

.. math:: g_i = \lambda\, w_i\, v_i + N(0, \sigma^2/B), \qquad w_i = \prod_{j\ne i} \langle\hat v_j, v_j\rangle,

unbiased in direction whatever the others' errors.  Weighted by its own signal,

.. math::
    A_i = \sum B\, w_i\, g_i = \lambda W_i v_i + N(0, \sigma^2 W_i), \qquad W_i = \sum B\, w_i^2, \qquad
    \hat v_i = A_i/\|A_i\|,

so that in white noise the squared error of v̂_i is (d−1)σ²/(λ²W_i), and w → 1 makes that (d−1)σ²/(λ²T): the bound for
an unknown unit vector.  The strength comes from the rewards (:mod:`tpca.solvers.race.strength`).

**Errors** come from the sub-batches of the rounds, :math:`g_{ij}` over :math:`n_j` samples with vectors fixed before
the round (:mod:`tpca.solvers.race.sandwich`), so that they hold in any noise:

.. math::
    e_{ij} = n_j w_i P_i g_{ij}, \quad P_i = I - \hat v_i\hat v_i^\top, \quad \omega_{ij} = n_j w_i^2; \qquad
    \mathrm{Cov}(\hat v_i) = \hat V_i\,\frac{W_i}{\|A_i\|^2}, \qquad q_i^2 = 1 - \mathrm{tr}\,\mathrm{Cov}(\hat v_i) .

What is believed before the first sub-batch is white noise of level σ, from the part of g_i across v̂_i, whose expected
energy is :math:`(d_i-1)\sigma^2(1/B + w_i^2/W_i)`: noise of the round, and of v̂_i itself.

==========  ======================
A_i, W_i    ``totals()``, ``weights()``
q_i         ``quality``
λ           ``strength``
V_i         ``_errors[i]``
==========  ======================
"""

from __future__ import annotations

import math

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.claim import Claim
from tpca.solvers.race.handover import Handover, Known
from tpca.solvers.race.sandwich import Sandwich
from tpca.solvers.race.strength import RewardsAfter
from tpca.tensors import Answer, Query, SubBatches
from tpca.tensors.blocks import Array, Partition, unit

FLOOR = 0.05  # an estimated overlap is never taken for less: a weight of zero would learn nothing
KEPT = 10.0  # signal over noise that vectors count for when their sums are forgotten
MIN_OVERLAP = 0.25  # of all vectors together: a mean reward is not blown up further than this
TURNED = 0.5  # overlap with what was claimed below which a vector is another one
SETTLED = 0.25  # the refinement's own strength is used once it weighs this share of what the search knew

MIN_COUNT = 8  # sub-batches that a noise level must rest on


@kept
class Refinement:
    """Running sums for every mode, on top of what the search knows.

    ``covariances``: those of whole vectors are kept (d² numbers a mode), which errors in other coordinates need.
    ``dependent``: neighbouring blocks of samples are alike a little.
    """

    working_bytes = 0  # copies of a few vectors at most

    def __init__(self, known: Handover, covariances: bool = False, dependent: bool = False) -> None:
        self.partition = Partition.singles(tuple(len(v) for v in known.vectors))
        self.vectors, self._known = known.vectors, known.modes
        self._squares, self._entries = known.sigma**2 * known.entries, float(known.entries)
        self.covariances, self.dependent = covariances, dependent
        self._begin(known.reward)
        noise = [(len(v) - 1) * known.sigma**2 for v in self.vectors]
        pairs = zip(self._known, noise, strict=True)
        self.quality = np.array([_overlap(k.signal / (k.signal + e or 1.0)) for k, e in pairs])

    def _begin(self, reward: float) -> None:
        """Empty sums, on top of a mean ``reward`` of these vectors."""
        self.samples, self.claimed = 0, self.vectors
        self._sums = [np.zeros(len(v)) for v in self.vectors]
        self._weights = np.zeros(len(self.vectors))
        self._errors = [Sandwich(len(v), self.covariances, self.dependent) for v in self.vectors]
        self.rewards = RewardsAfter(reward, self.sigma, self.dependent)

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries)

    @property
    def settled(self) -> bool:
        """Whether the refinement has samples enough of its own to tell the strength."""
        enough = SETTLED * self.rewards.weight * min(k.signal for k in self._known)
        return self.rewards.weight > 0 and self.rewards.total**2 >= enough

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
        assert answer.by_part is not None
        reward = float(answer.rewards[0])
        overlap = float(np.prod(self.quality))
        weights = self.weights()
        for i, total in enumerate(self._sums):
            fresh = answer.gradients[i][0]
            own = overlap / self.quality[i]
            self._note_noise(fresh, reward, n, n * own**2 / weights[i] if weights[i] else 0.0)
            self._note_scatter(i, own, answer.by_part)
            total += n * own * fresh
            self._weights[i] += n * own**2
        self.rewards.add(overlap, answer.by_part)
        self.samples += n
        self.vectors = tuple(unit(total) for total in self.totals())
        self.quality = np.array([_overlap(1 - e**2) for e in self._mode_errors()])

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
        squared = self.strength**2 or 1.0
        return self._weights + np.array([k.signal for k in self._known]) / squared

    def covariance(self, mode: int) -> Array:
        """Cov(v̂_i): its diagonal, or with ``covariances`` all of it."""
        v, total, weight = self.vectors[mode], self.totals()[mode], self.weights()[mode]
        across: Array = np.eye(len(v)) - np.outer(v, v) if self.covariances else np.maximum(0.0, 1 - v**2)
        if not total.any():  # of a vector of which nothing is known, what makes its error √2
            return across * (2 / (len(v) - 1))
        found = self._errors[mode].variance(self.sigma**2 * across)
        covariance: Array = across @ found @ across if self.covariances else found
        return covariance * float(weight / _norm(total) ** 2)

    def standard_errors(self) -> tuple[Array, ...]:
        """Standard error of every component of every vector; 1.96 of them are 95 % also after few sub-batches."""
        pairs = zip(self._errors, map(self._variances, range(len(self.vectors))), strict=True)
        return tuple(errors.widened * np.sqrt(variances) for errors, variances in pairs)

    def widened(self, mode: int) -> float:
        """What the standard errors of one vector are multiplied by, for few sub-batches."""
        return self._errors[mode].widened

    def error(self) -> float:
        """Root mean squared error of the least certain vector."""
        return max(self._mode_errors())

    def claim(self, confidence: float) -> Claim:
        """What can be said of the signal."""
        half = self.rewards.quantile(0.5 + confidence / 2) * self.strength_error
        errors = tuple(e * min(1.0, math.sqrt(2) / _norm(e)) for e in self.standard_errors())  # √2: nothing is known
        return Claim(self.strength, self._interval(half), errors, self.contradiction())

    def sequence(self, confidence: float) -> tuple[float, float]:
        """An interval of the strength that holds at all times at once, while the stream runs."""
        return self._interval(self.rewards.at_all_times(1 - confidence) * self.strength_error)

    def contradiction(self) -> str | None:
        """What the samples after the claim say against it, in words: rewards, or vectors that have turned away."""
        turned = min(abs(float(v @ w)) for v, w in zip(self.vectors, self.claimed, strict=True))
        if turned < TURNED:
            return f"a vector that overlaps {turned:.2g} with the one that was claimed"
        return self.rewards.contradiction(self.sigma)

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name."""
        named = {f"sum_{i}": a for i, a in enumerate(self._sums)}
        named |= {f"known_{i}": k.direction for i, k in enumerate(self._known)}
        named |= {f"error_{i}_{j}": a for i, e in enumerate(self._errors) for j, a in enumerate(e.arrays)}
        named |= {f"reward_{j}": a for j, a in enumerate(self.rewards.arrays)}
        named |= {f"claimed_{i}": v for i, v in enumerate(self.claimed)}
        return named | {f"vector_{i}": v for i, v in enumerate(self.vectors)}

    def _interval(self, half: float) -> tuple[float, float]:
        return max(0.0, self.strength - half), self.strength + half

    def _variances(self, mode: int) -> Array:
        found = self.covariance(mode)
        return np.maximum(np.diagonal(found) if self.covariances else found, 0.0)

    def _mode_errors(self) -> list[float]:
        return [math.sqrt(self._variances(i).sum()) for i in range(len(self.vectors))]

    def _note_noise(self, fresh: Array, reward: float, n: int, staleness: float) -> None:
        across = max(0.0, float(fresh @ fresh) - reward**2)
        self._squares += n * across / (1 + staleness)
        self._entries += len(fresh) - 1

    def _note_scatter(self, mode: int, own: float, parts: SubBatches) -> None:
        v, gradients = self.vectors[mode], parts.gradients[mode]
        across = gradients - np.outer(gradients @ v, v)
        self._errors[mode].add(own * parts.sizes[:, None] * across, own**2 * parts.sizes)


def _overlap(squared: float) -> float:
    return math.sqrt(max(squared, FLOOR**2))


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array)) or 1.0
