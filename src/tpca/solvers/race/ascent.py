r"""The ascent: vectors that climb on samples that are read again, pass after pass.

With T̄ the mean of the samples of the strategies' part, a pass with the vectors l fixed gives the gradients and the
reward of all of them at once, and the next vectors are

.. math:: g_i = \bar T(l_1, \dots, \cdot, \dots, l_k), \qquad R = \langle\bar T, l_1\otimes\dots\otimes l_k\rangle,
    \qquad l_i \leftarrow \mathrm{unit}(R\,g_i) ,

tensor power iteration, whose rest is the best fit of rank one nearby.

Two climb: the *best* so far and a *challenger*.  They have been asked about the same samples, so that R says which is
the better fit.  A challenger whose R no longer rises, or that has come to the same place as the best, makes room for
the strategy's next proposal; when the best rests and that proposal is known, too, there is nothing better in sight.

R rests on samples that the vectors were fitted to, and proves nothing: what comes of it is tried on samples that no
strategy and no ascent has seen.
"""

from __future__ import annotations

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import AGREE
from tpca.solvers.rank_one import toward
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition

SETTLED_OVERLAP = 0.99  # vectors have come to rest when every one overlaps this much with that of the pass before
RISE = 1.1  # the reward that a challenger must come to, over that of the pass before, to be left climbing
BEST, CHALLENGER = 0, 1


@kept
class Ascent:
    """Two sets of vectors, ``stacks[i]`` those of mode i, the best first."""

    working_bytes = 0  # copies of a few vectors at most

    def __init__(self, first: tuple[Array, ...], second: tuple[Array, ...]) -> None:
        self.partition = Partition.singles(tuple(len(v) for v in first))
        self.stacks = [np.stack(pair) for pair in zip(first, second, strict=True)]
        self.rewards = np.zeros(2)
        self.rests, self.rises = np.zeros(2, bool), np.ones(2, bool)

    def queries(self) -> tuple[Query, ...]:
        """Ask about both."""
        return (Query(self.partition, tuple(self.stacks)),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:  # noqa: ARG002
        """One step of both, from the mean gradients over all samples of the part."""
        (answer,) = answers
        signs = np.where(answer.rewards < 0, -1.0, 1.0)[:, None]
        rewards = np.abs(answer.rewards)
        order = np.argsort(-rewards, kind="stable")
        least = np.ones(2)
        for i, before in enumerate(self.stacks):
            after, _ = toward(signs * answer.gradients[i], before)
            least = np.minimum(least, np.abs(np.einsum("ci,ci->c", before, after)))
            self.stacks[i] = (after if i else signs * after)[order]  # one sign makes the reward positive
        self.rests, self.rises = (least > SETTLED_OVERLAP)[order], (rewards > RISE * self.rewards)[order]
        self.rewards = rewards[order]

    def challenge(self, vectors: tuple[Array, ...]) -> bool:
        """Let a proposal climb, if there is room; whether nothing better is in sight."""
        if self.rises[CHALLENGER] and not self._agree(CHALLENGER, self.vectors):
            return False
        known = self._agree(BEST, vectors) or self._agree(CHALLENGER, vectors)
        for stack, v in zip(self.stacks, vectors, strict=True):
            stack[CHALLENGER] = v
        self.rewards[CHALLENGER] = 0.0
        return bool(known and self.rests[BEST])

    @property
    def vectors(self) -> tuple[Array, ...]:
        """The best."""
        return tuple(stack[BEST].copy() for stack in self.stacks)

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        return list(self.stacks)

    def _agree(self, one: int, vectors: tuple[Array, ...]) -> bool:
        """Whether vectors are about the same signal as one of the two."""
        return min(abs(float(stack[one] @ v)) for stack, v in zip(self.stacks, vectors, strict=True)) >= AGREE
