"""What the search knows of a signal when it is found: where the refinement begins.

A signal that is found in the first pass with vectors that are not accurate *stands*, in the place of a strategy, while
further passes look for better vectors; where these prove nothing it is where the refinement begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.strategies.protocol import Evidence, Proposal
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array


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
@dataclass(frozen=True)
class Handover:
    """Vectors and what is known of each, their mean reward, and a noise level that rests on so many ``entries``."""

    vectors: tuple[Array, ...]
    modes: tuple[Known, ...]
    reward: float
    sigma: float
    entries: float


def handover(candidate: Candidate) -> Handover:
    """The candidate's vectors, with the information of its own sums h = s v + N(0, nσ²) in this attempt.

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
    return Handover(candidate.vectors, tuple(known), candidate.strength, candidate.sigma, entries)


@kept
@dataclass
class Standing:
    """A claim that stands: it asks for nothing, and proposes what was claimed."""

    name: str
    claim: Handover
    working_bytes = 0

    def queries(self) -> tuple[Query, ...]:
        """Nothing."""
        return ()

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Nothing is learnt."""

    def restart(self) -> None:
        """There are no sums."""

    def read(self) -> Standing:
        """Always the same."""
        return self

    def propose(self) -> Proposal:
        """What was claimed."""
        return Proposal(self.claim.vectors, 0.0)

    def evidence(self, vectors: tuple[Array, ...]) -> Evidence:
        """Nothing but what was claimed."""
        return Evidence(tuple(np.zeros(len(v)) for v in vectors), 1.0)

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name."""
        named = {f"standing_{i}": v for i, v in enumerate(self.claim.vectors)}
        return named | {f"known_{i}": known.direction for i, known in enumerate(self.claim.modes)}
