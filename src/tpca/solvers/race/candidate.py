r"""The candidate: one proposal on trial.

The candidate's vectors l are fixed before a batch of B samples arrives, so that its rewards are those of fresh samples,
of mean :math:`\lambda\prod_i\langle l_i, v_i\rangle`, whatever was tried before.  What they say is evidence E that is
valid at any stopping time (:mod:`tpca.solvers.race.evidence`), and begins anew with every attempt.  Signal is *found*
in attempt k once :math:`\log E > \ln(k(k+1)/\delta)`: by Ville's inequality and :math:`\sum_k 1/(k(k+1)) = 1` the
chance that this ever happens on pure noise is at most :math:`\delta`, over the whole run and all attempts.

At every look the vectors are improved: mode by mode, what the strategy knows (``g_i``, noise variance n) is mixed with
the candidate's own contractions of this attempt (``h_i``, noise variance V), each with weight signal over variance:

.. math::
    l_i = \mathrm{unit}\Bigl(\frac{\langle l_i, g_i\rangle_+}{n} g_i + \frac{\langle l_i, h_i\rangle_+}{V} h_i\Bigr) .

=================  =============================================================================
symbol             code
=================  =============================================================================
l, k               ``vectors``, ``attempt``
E                  ``wealth``
sum of B R, V      ``total``, ``seen``: since the attempt began to count
h_i                ``sums[i]``: sum of B * gradient of mode i; empty before the first
sigma              ``sigma``, from the candidate's own gradients across l: no strategy needed
=================  =============================================================================
"""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from tpca.checkpoint import kept
from tpca.solvers.race.evidence import FEW, Wealth
from tpca.solvers.rank_one import aligned, overlaps
from tpca.tensors import Answer, Query
from tpca.tensors.blocks import Array, Partition, unit

Stored = NDArray[Any]  # float16 or float32
KEEP = 2.0  # log evidence above which a disagreeing proposal does not replace the candidate
AGREE = 0.5  # overlap of every mode above which a proposal is about the same signal
SWEEPS = 8  # of alternations, at most
MOVE_TOL = 1e-4  # squared change of every vector in a sweep after which another one is not worth it
MIN_ENTRIES = 6  # of gradients behind a noise level that bets are chosen by: it must be right within a factor of ten
FADE = 120  # entries behind the noise level from which on those of past attempts count half


class Part(Protocol):
    """What takes part in a round: a strategy, a candidate, the refinement.  All of its state is in :meth:`arrays`."""

    @property
    def working_bytes(self) -> int:
        """Most bytes of temporary copies while answers are in flight; part of the state."""

    def queries(self) -> tuple[Query, ...]:
        """What to ask about the next samples; fixed before they are seen."""

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Take the mean gradients over the ``n`` samples just seen."""

    def arrays(self) -> list[Array]:
        """Every array of the state."""


class Look(Protocol):
    """What a strategy says between two rounds; it lasts until the next samples come."""

    def propose(self) -> tuple[Array, ...]:
        """The best unit vectors so far, in mode order, signed so that their reward is expected to be positive."""

    def evidence(self, vectors: tuple[Array, ...]) -> tuple[list[Array], float]:
        """What the samples say of each mode when the others are ``vectors``: sums s_i v_i + N(0, w σ²), and w."""


class Strategy(Part, Protocol):
    """One way to search the samples; ``size`` are its columns or replicas.  It proposes, and proves nothing."""

    name: str
    size: int

    def restart(self) -> None:
        """The next samples were seen before: keep the directions, forget the sums.  Asked of main strategies only."""
        return

    def read(self) -> Look | None:
        """A look at what the samples so far say; ``None`` where they were nothing but zeros."""
        return cast("Look", self)  # where it can be read off directly


@kept
class Candidate:
    """What a ``strategy`` proposes, on trial at error share ``delta``.

    Every new set of vectors is another attempt, whose evidence starts from nothing.  Before the first proposal the
    vectors are random, attempt 0: they can prove nothing, but they tell the noise level.
    """

    working_bytes = 0  # copies of a few vectors at most

    def __init__(self, strategy: Strategy, dims: tuple[int, ...], rng: np.random.Generator, delta: float) -> None:
        self.strategy, self.partition, self.delta = strategy, Partition.singles(dims), delta
        self.attempt = -1
        self.entries = 0.0  # behind sigma
        self._loud = 0.0  # the largest noise along the vectors of an attempt that was surely above sigma
        self._squares = 0.0
        self.install(tuple(unit(rng.standard_normal(d)) for d in dims))

    def install(self, vectors: tuple[Array, ...]) -> None:
        """Begin an attempt with these vectors; what those before them saw proves nothing about them."""
        self.vectors = vectors
        self.attempt += 1
        self.forget_evidence()
        if self.entries > FADE:  # what a strong signal added to the noise level fades with every attempt
            self._squares, self.entries = self._squares / 2, self.entries / 2

    def forget_evidence(self) -> None:
        """Begin to count anew, with the same vectors."""
        self.wealth = Wealth()
        self.sums: list[Array] = []
        self.total = self.seen = 0.0

    @property
    def sigma(self) -> float:
        """Noise level of one entry of one sample."""
        return math.sqrt(self._squares / self.entries) if self.entries else 1.0

    @property
    def found(self) -> bool:
        """Whether a signal is proven at error share delta."""
        return self.wealth.proof > self.needed

    @property
    def needed(self) -> float:
        """Log evidence that proves a signal: ln(k(k+1)/δ); out of reach for the random vectors before the first."""
        return math.log(self.attempt * (self.attempt + 1) / self.delta) if self.attempt else math.inf

    @property
    def evidence(self) -> tuple[float, float]:
        """What a claim rests on: log evidence, and how much of it proves a signal."""
        return self.wealth.proof, self.needed

    @property
    def strength(self) -> float:
        """Mean reward of this attempt in units of the data: the strength times the overlaps so far."""
        return self.total / self.seen if self.seen else 0.0

    @property
    def strength_error(self) -> float:
        """Standard error of ``strength``, from how rewards scatter; infinite before the first sample."""
        return max(self.sigma, self.wealth.deviation) / math.sqrt(self.seen) if self.seen else math.inf

    @property
    def loudest(self) -> float:
        """Noise level of one sample along the loudest vectors that were tried, or across them."""
        return max(self.sigma, self._loud)

    @property
    def accuracy(self) -> float:
        """Squared signal over noise of the own sum of the longest mode: about 1/(1 - overlap^2)."""
        if not self.seen or not self.sigma:
            return 0.0
        return (max(self.total, 0.0) / self.sigma) ** 2 / self.seen / max(self.partition.dims)

    def queries(self) -> tuple[Query, ...]:
        """Ask about the candidate itself, one replica; its reward by sub-batch, too."""
        return (Query(self.partition, tuple(v[None] for v in self.vectors), by_part=()),)

    def absorb(self, answers: tuple[Answer, ...], n: int) -> None:
        """Add the mean gradients and rewards over the ``n`` samples just seen."""
        (answer,) = answers
        before = self.sigma if self.entries >= MIN_ENTRIES else 0.0
        reward = float(answer.rewards[0])
        for gradient in answer.gradients.values():
            self._squares += n * max(0.0, float(np.vdot(gradient, gradient)) - reward**2)
            self.entries += gradient.size - 1
        if not self.wealth.bets.any():
            if before == 0.0:
                return
            self.wealth.begin(before, n)
        assert answer.by_part is not None
        self.wealth.add(answer.by_part.sizes * answer.by_part.rewards, answer.by_part.sizes)
        self.sums = self.sums or [np.zeros(d) for d in self.partition.dims]
        for mode, own in enumerate(self.sums):
            own += n * answer.gradients[mode][0]
        self.seen += n
        self.total += n * reward
        # Noise along the vectors that is above the level elsewhere by more than chance (1 of 100 looks).
        freedom, deviation = self.wealth.sums[0].count - 1, self.wealth.deviation
        if freedom >= FEW and freedom * deviation**2 > chdtri(freedom, 0.01) * self.sigma**2:
            self._loud = max(self._loud, deviation)

    def consider(self) -> None:
        """Look at the strategy's proposal: take it over, or stay; then refine with all that is known."""
        if (look := self.strategy.read()) is None:
            return
        proposal = look.propose()
        start = self.vectors
        inner = overlaps(proposal, self.vectors)
        if self.attempt and np.min(np.abs(inner)) >= AGREE and np.prod(inner) > 0:  # signs flip in pairs
            start = aligned(proposal, self.vectors)  # signs with which its own sums add up
        elif self.attempt == 0 or not (self.wealth.log > KEEP or self.found):
            start = proposal  # random vectors go at once, even if they happen to agree: they can prove nothing
            self.install(start)
        self.refine(look, start)

    def refine(self, look: Look, start: tuple[Array, ...]) -> None:
        """Alternate over the modes, strategy's and own evidence weighted by signal over noise variance."""
        vectors = start
        for _ in range(SWEEPS):
            sums, weight = look.evidence(vectors)
            moved, still = [], True
            for i, v in enumerate(vectors):
                mixed = sums[i]
                mixed *= max(0.0, float(v @ mixed)) / weight  # in place: long modes have copies enough
                if self.seen:
                    h = self.sums[i]
                    mixed += max(0.0, float(v @ h)) / self.seen * h
                length = math.sqrt(float(mixed @ mixed))
                mixed /= length or 1.0
                moved.append(mixed if length else v)
                # Of unit vectors the squared change is 2 - 2⟨new, old⟩.
                still = still and 2.0 - 2.0 * float(moved[i] @ v) < MOVE_TOL
            vectors = tuple(moved)
            if still:
                break
        self.vectors = vectors

    def arrays(self) -> list[Array]:
        """Every array of the state."""
        return [*self.vectors, *self.sums, *self.wealth.arrays]
