"""An estimator to which samples are handed part by part: the run waits between two calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from tpca.engines import Engine
from tpca.estimators.amplitudes import Amplitudes
from tpca.estimators.handed import HandedEffects, MakeSolver, conditions, effect_options, for_derived, hand_in
from tpca.estimators.opening import HandedIn, handed, refuse_elsewhere
from tpca.solvers.base import Solver
from tpca.solvers.options import refuse_idle
from tpca.streams import Stream


class TakesParts(Amplitudes):
    """``partial_fit``, with the solver and the seed of the estimator."""

    items: str
    center_modes: Sequence[str | int]
    project: Mapping[str | int, Any] | None

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_dim: str | int | None = None,
        nuisance: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Take one more batch ``(n, d_1, ..., d_k)`` of any size, or one sample; one pass, no sample is kept.

        The same as ``fit`` on an iterable of the same batches.  The attributes say what is known so far, worked out
        when they are looked at.  The first ``X`` needs ``items`` if it has three dimensions or more and could be
        either; later ones show by their shape which they are.  With ``y``, ``sample_weight`` or ``groups`` as in
        :meth:`fit`, sums of the block at hand are held; the first ``y`` shows which two labels there are.
        """
        plain = sample_dim is None and isinstance(self._handed, HandedIn) and sample_weight is None and groups is None
        if plain and self._handed.take_plain(X, self.nan_policy):  # type: ignore[union-attr]
            self._recovery = None
            return self
        known = None if self._handed is None else self._handed.dims
        items: Any = self.items if known is None else "auto"
        batches = handed(X, known, items, self.nan_policy, sample_dim)
        asked, labels = effect_options(self), self._handed.labels if isinstance(self._handed, HandedEffects) else None
        told = conditions(self.target, None, y, nuisance, sample_weight, groups, labels, part=True)
        self._refuse_elsewhere(batches, told)
        if self._handed is None:
            refuse_idle(self, "fed", "means nothing to partial_fit; leave it out, or use fit")
            seed = self._seed()
            if told is None:
                self._handed = HandedIn(self._solver(batches, seed), batches)
            else:
                make = self._solver_of_effects(batches, seed)
                self._handed = HandedEffects(batches, told, asked, make)
            self.shape_in_, self._effects = batches.dims, ()
        hand_in(self._handed, batches, X, told)
        self._recovery = None
        return self

    def _refuse_elsewhere(self, data: Stream | Engine, told: Any) -> None:
        """Only the mean is learnt from samples on a device."""
        if told is not None:
            refuse_elsewhere(data, "a fit with y, sample_weight or groups")
        elif self.target == "variance":
            refuse_elsewhere(data, "target='variance'")

    def _solver_of_effects(self, data: Stream | Engine, seed: int) -> MakeSolver:
        """Makes the solver for samples derived from ``data``."""
        return for_derived(
            data, self.center_modes, self.project, lambda derived, known: self._solver(derived, seed, known)
        )

    def _solver(self, data: Stream | Engine, seed: int, known: Mapping[str, Any] | None = None) -> Solver:
        """The solver for these samples, as :meth:`fit` would have it."""
        raise NotImplementedError

    def _seed(self) -> int:
        raise NotImplementedError
