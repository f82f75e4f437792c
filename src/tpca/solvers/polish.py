r"""The polish: every fresh sample, contracted with all vectors but one, tells that one; the end is the Cramér–Rao limit.

For mode i a round of B samples gives, with the other vectors fixed before it,

.. math:: g_i = \lambda\, w_i\, v_i + N(0, \sigma^2/B), \qquad w_i = \prod_{j\ne i} \langle\hat v_j, v_j\rangle,

unbiased in direction whatever the others' errors.  Weighted by its own signal,

.. math::
    A_i = \sum B\, w_i\, g_i = \lambda W_i v_i + N(0, \sigma^2 W_i), \quad W_i = \sum B\, w_i^2, \quad \hat v_i = A_i/\|A_i\|,

so that the squared error of v̂_i is (d−1)σ²/(λ²W_i), and w → 1 makes that (d−1)σ²/(λ²T): the bound for an unknown unit vector.
The estimated overlap is :math:`q_i^2 = 1 - (d_i-1)σ^2 W_i/\|A_i\|^2`; the strength is :math:`\sum B w R/\sum B w^2` with
:math:`w = \prod_i q_i`, R the reward.  The noise level comes from the part of g_i across v̂_i, whose expected energy is
:math:`(d_i-1)\sigma^2(1/B + w_i^2/W_i)`: noise of the round, and of v̂_i itself.

==========  ======================
A_i, W_i    ``sums``, ``weights``
q_i         ``quality``
λ           ``strength``
==========  ======================
"""

from __future__ import annotations

import math

import numpy as np

from tpca.batches import Answer, Query
from tpca.blocks import Array, Partition, unit
from tpca.solvers.leader import Leader
from tpca.solvers.racers.protocol import Racer

FLOOR = 0.05  # an estimated overlap is never taken for less: a weight of zero would learn nothing


class Polish:
    """Running sums for every mode; ``sums`` and ``weights`` may start from what the search knows."""

    def __init__(
        self,
        vectors: tuple[Array, ...],
        sums: tuple[Array, ...],
        weights: Array,
        sigma: float,
        entries: float,
        reward: float,
    ) -> None:
        self.partition = Partition.singles(tuple(len(v) for v in vectors))
        self.vectors = vectors
        self.sums = [np.array(total, dtype=np.float64) for total in sums]
        self.weights = np.array(weights, dtype=np.float64)
        self.samples = 0
        self._squares, self._entries = sigma**2 * entries, float(entries)
        self._reward, self._reward_weight = 0.0, 0.0
        self._first_reward = reward
        self.quality = self._estimate_quality()

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self._entries)

    @property
    def strength(self) -> float:
        """λ: the mean reward, corrected for the estimated overlaps; the leader's mean reward before any sample."""
        return self._reward / self._reward_weight if self._reward_weight else self._first_reward

    @property
    def strength_error(self) -> float:
        """Standard error of the strength."""
        known = self._reward_weight or float(np.min(self.weights))
        return self.sigma / math.sqrt(known) if known else math.inf

    def queries(self) -> tuple[Query, ...]:
        """The current vectors, gradients of all modes."""
        return (Query(self.partition, tuple(v[None] for v in self.vectors)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the mean contractions over the ``n`` samples just seen, then move the vectors."""
        (answer,) = answers
        reward = float(answer.rewards[0])
        overlap = float(np.prod(self.quality))
        for i, total in enumerate(self.sums):
            fresh = answer.gradients[i][0]
            own = overlap / self.quality[i]
            self._note_noise(fresh, reward, n, n * own**2 / self.weights[i] if self.weights[i] else 0.0)
            total += n * own * fresh
            self.weights[i] += n * own**2
        self._reward += n * overlap * reward
        self._reward_weight += n * overlap**2
        self.samples += n
        self.vectors = tuple(unit(total) for total in self.sums)
        self.quality = self._estimate_quality()

    def anew(self) -> Polish:
        """The same vectors with nothing summed up: for a pass over samples that were already counted."""
        empty = tuple(np.zeros(len(v)) for v in self.vectors)
        return Polish(self.vectors, empty, np.zeros(len(empty)), self.sigma, self._entries, self.strength)

    def standard_errors(self) -> tuple[Array, ...]:
        """Standard error of every component of every vector: σ√W_i/‖A_i‖ across v̂_i."""
        levels = [self.sigma * math.sqrt(w) / _norm(a) for w, a in zip(self.weights, self.sums, strict=True)]
        return tuple(e * np.sqrt(np.maximum(0.0, 1 - v**2)) for e, v in zip(levels, self.vectors, strict=True))

    def error(self) -> float:
        """Root mean squared error of the least certain vector: max_i σ√((d_i−1)W_i)/‖A_i‖."""
        return max(
            self.sigma * math.sqrt((len(a) - 1) * w) / _norm(a) for w, a in zip(self.weights, self.sums, strict=True)
        )

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name."""
        named = {f"sum_{i}": a for i, a in enumerate(self.sums)}
        return named | {f"vector_{i}": v for i, v in enumerate(self.vectors)} | {"weights": self.weights}

    def _estimate_quality(self) -> Array:
        noise = [(len(a) - 1) * self.sigma**2 * w / _norm(a) ** 2 for a, w in zip(self.sums, self.weights, strict=True)]
        return np.sqrt(np.maximum(1 - np.array(noise), FLOOR**2))

    def _note_noise(self, fresh: Array, reward: float, n: int, staleness: float) -> None:
        across = max(0.0, float(fresh @ fresh) - reward**2)
        self._squares += n * across / (1 + staleness)
        self._entries += len(fresh) - 1


def polish_from(racer: Racer, leader: Leader) -> Polish:
    """Start from what racer and leader know: g = s v + N(0, nσ²) counts as A with W = s²/(λ²n), and likewise for h.

    Racer and leader have seen the same samples in part, so together they count for no more than the better of the two.
    """
    vectors, known = leader.vectors, racer.evidence(leader.vectors)
    strength = max(leader.strength, 1e-300)
    sums, weights = [], []
    for i, v in enumerate(vectors):
        terms = [(known.sums[i], known.weight), (leader.own(vectors, i), leader.seen)]
        signals = [max(0.0, float(v @ total)) / (strength * n) if n else 0.0 for total, n in terms]
        infos = [s * s * n for s, (_, n) in zip(signals, terms, strict=True)]
        share = max(infos) / sum(infos) if sum(infos) else 0.0
        sums.append(share * sum((s * total for s, (total, _) in zip(signals, terms, strict=True)), np.zeros(len(v))))
        weights.append(max(infos))
    return Polish(vectors, tuple(sums), np.array(weights), leader.sigma, leader.entries, leader.strength)


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array)) or 1.0
