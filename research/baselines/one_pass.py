r"""Samples in order, each seen once: what the online methods share.

**Step sizes.**  Let block m have D_m entries and overlap a_m with its signal at the start.  A step of size η with one
sample of unit noise moves that overlap by η λ ∏_{i≠m} a_i, and its noise shrinks it by η² D_m / 2 of itself, so that it
grows only if

.. math:: \eta < 2 \lambda \frac{\prod_{i \ne m} a_i}{a_m D_m}, \qquad
          \text{which then takes about}\quad T = \frac{a_m}{\eta \lambda \prod_{i \ne m} a_i} \text{ samples.}

:class:`StepSizes` keeps a constant fraction of that bound for a few T, and falls like 2/(λt) afterwards, which is where
the error of the vectors falls like 1/t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from research.baselines.baseline import RunStatistics, all_zero, no_samples
from tpca.tensors import Answer, Gradients, Query
from tpca.tensors.blocks import Array


class OnePass(RunStatistics):
    """The samples of one pass, some at a time."""

    def __init__(self, source: Any, max_samples: int | None) -> None:
        super().__init__(source, max_samples)
        self.took = 0
        self._mean_reward: Array | None = None
        self._weight = 0.0
        self._nothing = True  # but zeros so far

    def ask(self, query: Query, n: int) -> Answer | None:
        """The answer over the next ``n`` samples or what is left of them (``took``); ``None`` at their end."""
        part = self.engine.reduce(Gradients([query]), min(n, self.limit - self.n)) if self.n < self.limit else None
        if part is None or part.n == 0:
            if self._nothing:
                raise no_samples() if self.n == 0 else all_zero()
            return None
        self.passes, self.took = 1, part.n
        self.n += part.n
        (answer,) = part.answers
        self._nothing = self._nothing and not any(g.any() for g in answer.gradients.values())
        self.note(*query.replicas, working=2 * answer.nbytes)
        self._absorb(answer.rewards)
        return answer

    @property
    def mean_rewards(self) -> Array:
        """Mean reward of every replica; a sample counts in proportion to its number, since replicas improve.

        Each reward is that of vectors fixed before the sample, so that noise does not flatter it; early ones, of
        worse vectors, leave it a little low.
        """
        assert self._mean_reward is not None
        return self._mean_reward

    def _absorb(self, rewards: Array) -> None:
        weight = float(self.n) * self.took
        self._weight += weight
        before = np.zeros_like(rewards) if self._mean_reward is None else self._mean_reward
        self._mean_reward = before + weight / self._weight * (rewards - before)


@dataclass(frozen=True)
class StepSizes:
    """``first`` for ``hold`` samples, then falling like 2/(λt); ``strength`` is λ in units of the noise level."""

    first: float
    hold: float
    strength: float

    @classmethod
    def from_start(cls, strength: float, gain: float, entries: int, fraction: float) -> StepSizes:
        """Steps for blocks of D = ``entries`` with ∏_{i≠m} a_i / a_m = ``gain``, at a ``fraction`` of the bound."""
        first = min(fraction * 2 * strength * gain / entries, 1.0 / strength)
        return cls(first, HOLD / (first * strength * gain), strength)

    def at(self, seen: float) -> float:
        """The step size after ``seen`` samples."""
        return self.first / (1 + max(0.0, seen - self.hold) * self.strength * self.first / 2)


HOLD = 8.0  # in units of T
