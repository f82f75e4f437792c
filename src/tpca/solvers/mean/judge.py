"""From groups of samples to components: what is fitted, what is proven, and which kind of fit is believed.

A signal plain to see is found from one start.  Else the test by flips says whether there is one, and one accurate fit
from all starts which (:mod:`tpca.solvers.mean.test`, :mod:`tpca.solvers.mean.fit`).  Where all modes have the same
length the vectors may be the same; they are taken to be, unless the data say that they differ
(:mod:`tpca.solvers.mean.reading`).

Groups that are worth too few independent ones prove nothing (:mod:`tpca.solvers.mean.coupling`).

Of several components each is tested in what those before it leave (:mod:`tpca.solvers.mean.components`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tpca.randomness import generator
from tpca.solvers.mean.climb import MOVE_TOL, climb_one, least_movement, movement
from tpca.solvers.mean.components import find_components
from tpca.solvers.mean.errors import Scatter
from tpca.solvers.mean.fit import MAX_SWEEPS, best_fit, hosvd_fit
from tpca.solvers.mean.groups import Groups
from tpca.solvers.mean.plain import ahead_of_flips, far_beyond, plain_threshold
from tpca.solvers.mean.reading import symmetry_rejected
from tpca.solvers.mean.symmetric import best_symmetric, can_be_symmetric
from tpca.solvers.mean.test import Proof, flip_test, flips_there
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

QUICK = 25  # sweeps that a fit which is plain to see hardly ever takes
GUESS_TOL = 1e-15  # squared movement of the vectors of a guess
ELSEWHERE = 1e-6  # relative difference of lengths that makes two fits


@dataclass(frozen=True)
class Found:
    """A component that is proven: the groups around it, and what proves it."""

    scatter: Scatter
    proof: Proof


@dataclass
class Judge:
    """Looks at the groups of one fit; ``with_symmetric`` says whether vectors may be the same."""

    groups: Groups
    confidence: float
    n_components: int
    random_state: int
    with_symmetric: bool
    proofs: list[Proof] = field(default_factory=list)
    """Of every test that was made."""
    _last: Scatter | None = None

    @classmethod
    def of(cls, groups: Groups, confidence: float, n_components: int, random_state: int, alike: bool = True) -> Judge:
        """``alike``: whether vectors that are the same in the data are so here, too."""
        with_symmetric = alike and n_components == 1 and can_be_symmetric(groups.dims)
        return cls(groups, confidence, n_components, random_state, with_symmetric)

    def look(self) -> tuple[list[Found], RankOne]:
        """All components that are proven, the strongest first, and the best guess of one where none is."""
        first = hosvd_fit(self.groups.mean, QUICK)
        if not self.groups.coupling.enough:
            self.proofs.append(Proof(first.strength, (), math.inf, 1.0, 1.0, False))
            return [], first
        plain = self._plain_to_see(first)
        self.proofs.append(plain or self._test(()))
        guess = self.proofs[0].guess
        if guess is not None and not self.proofs[0].proven(self.confidence):
            # What the test came across will do, for it proves nothing; climbed further, unless it is symmetric.
            return [], guess if self.proofs[0].symmetric else self._settled(guess, GUESS_TOL)
        first = self._settled(first) if plain else best_fit(self._mean, self._rng("mean"))
        if self.with_symmetric:
            return self._one(first)
        rng = self._rng("mean components")
        components = find_components(self._mean, first, self.n_components, rng, self._proven)
        found = [Found(self._around(one), proof) for one, proof in zip(components, self.proofs, strict=False)]
        return sorted(found, key=lambda one: -one.scatter.fit.strength), first

    def _one(self, first: RankOne) -> tuple[list[Found], RankOne]:
        """The one component whose vectors may be the same."""
        symmetric = self._symmetric(first)
        kept = self._around(first) if symmetric is None or self._differ(first, symmetric) else symmetric
        return [Found(kept, self.proofs[0])], first

    def _settled(self, fit: RankOne, tolerance: float = MOVE_TOL) -> RankOne:
        """A fit that was climbed for a while, climbed until it stands still; the same one if it does already."""
        vectors, value = climb_one(self.groups.mean, fit.vectors, MAX_SWEEPS, tolerance)
        still = movement(vectors, fit.vectors) < least_movement(self.groups.mean, tolerance)
        return fit if still else RankOne(value, tuple(vectors))

    def _differ(self, first: RankOne, symmetric: Scatter) -> bool:
        """Whether the vectors differ: the unrestricted fit is proven, and better than noise makes it.

        That is told next to the symmetric one.  Where the best unrestricted fit is elsewhere, one of the two is noise:
        the one that is less far beyond its reach.
        """
        proof, dims = self.proofs[0], self.groups.dims
        if proof.plain > 1 - self.confidence + 1e-9:
            return False
        _, value = climb_one(self.groups.mean, symmetric.fit.vectors, MAX_SWEEPS)
        if first.strength > value * (1 + ELSEWHERE):
            return not proof.symmetric
        sigma = max(self.groups.own_level, symmetric.level)
        return symmetry_rejected(dims, first.strength, symmetric.fit.strength, sigma, proof.symmetric)

    def _plain_to_see(self, fit: RankOne, known: Sequence[RankOne] = ()) -> Proof | None:
        """What proves a fit, besides ``known`` ones, so far beyond the reach of noise that few flips will do.

        Where entries are missing the scatter is that of what is flipped: an entry that only one group has seen is all
        noise there, but the mean is what this group says, and the pulls around it are zero.
        """
        flipped = self.groups.without_pulls
        scatter = self._around(fit) if flipped is self.groups else Scatter.around(flipped, fit)
        sigma = max(self.groups.own_level, scatter.level)
        groups = len(self.groups)
        needed = plain_threshold(self.groups.dims, sigma, scatter.along, groups, self.confidence)
        if not fit.strength > needed:
            return None
        if not far_beyond(self.groups.dims, sigma, fit.strength) and (
            known or not ahead_of_flips(self.groups, self.confidence, self._rng("few flips"))
        ):
            return None
        p = 1 / (1 + flips_there(groups, self.confidence)[0])
        return Proof(fit.strength, (), needed, p, p, False)

    def _proven(self, candidate: RankOne, known: Sequence[RankOne]) -> bool:
        """Whether a candidate is proven that was found besides known components; the first was tested before."""
        if known:
            self.proofs.append(self._plain_to_see(candidate, known) or self._test(known))
        return self.proofs[len(known)].proven(self.confidence)

    def _test(self, known: Sequence[RankOne]) -> Proof:
        rng = self._rng(f"flips {len(known)}")
        return flip_test(self.groups, self.confidence, rng, known, self.with_symmetric)

    def _symmetric(self, first: RankOne) -> Scatter | None:
        """The scatter around the best fit of equal vectors; ``None`` where it cannot be near the best one."""
        reading = self._around(first).reading
        if not self.proofs[0].flips and not reading.edge and told_apart(first, reading.overlaps):
            return None
        vectors = [v[None] for v in first.vectors]
        fits = best_symmetric(self._mean[None], vectors, self._rng("symmetric mean"))
        return Scatter.around(self.groups, fits.fit(0), symmetric=True)

    def _around(self, fit: RankOne) -> Scatter:
        """The scatter of the groups around an unrestricted fit; that around the last one is kept."""
        if self._last is None or self._last.fit is not fit:
            self._last = Scatter.around(self.groups, fit)
        return self._last

    @functools.cached_property
    def _mean(self) -> Array:
        """The mean in float64, which a search from many starts, or for several components, takes it in."""
        return self.groups.mean.astype(np.float64, copy=False)

    def _rng(self, purpose: str) -> np.random.Generator:
        return generator(self.random_state, purpose)


def told_apart(fit: RankOne, overlaps: Sequence[float]) -> bool:
    r"""Whether the vectors of a fit, with about such overlaps q with the truth, cannot be the same there.

    If they were, their products would be :math:`q_iq_j + \sqrt{(1 - q_i^2)(1 - q_j^2)}\,c` with c the cosine of two
    errors: of two directions of d − 1 dimensions, more than :math:`4/\sqrt{d - 1}` from 0 once in 16 000 times.  Their
    squares, sums of d − 1 terms, may be larger than on average by the factor :math:`1 + 4\sqrt{2/(d - 1)}`.
    """
    vectors = np.stack(fit.vectors)
    free = max(1, vectors.shape[1] - 1)
    squared = np.minimum(1.0, (1 - np.array(overlaps) ** 2) * (1 + 4 * math.sqrt(2 / free)))
    along, beside = np.sqrt(1 - squared), np.sqrt(squared)
    least = np.outer(along, along) - min(1.0, 4 / math.sqrt(free)) * np.outer(beside, beside)
    return bool(np.any(np.abs(vectors @ vectors.T) < least - 1e-9))
