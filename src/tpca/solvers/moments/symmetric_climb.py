"""The climb of a table: gradients from passes over its rows, and what components reach with them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.moments import symmetric_contrasts as contrasts
from tpca.solvers.moments.symmetric_contrasts import ContrastSums
from tpca.solvers.moments.symmetric_models import Model, Sources
from tpca.solvers.moments.symmetric_search import Found, balanced, beside_others, orthonormal, refine, together
from tpca.solvers.moments.symmetric_sums import OfRows, Part
from tpca.solvers.moments.symmetric_whitening import RowWhitening
from tpca.tensors.blocks import Array


class Climb:
    """Gradients of the moment of the rows of a part, and the last climb with them; ``total`` makes a pass."""

    def __init__(self, model: Model, own: RowWhitening, total: Callable[[Any], Any], part: Part | None) -> None:
        self._model, self._own, self._total, self._part = model, own, total, part

    def look(self, vectors: Array) -> tuple[OfRows, Array]:
        """The sums of a pass, and the gradients among the whitened columns."""
        weights = self._own.of_rows(vectors)
        sums = self._total(self._model.sums(weights, self._own.centre, 1, self._part))
        return sums, self._own.gradients(self._model.gradients(sums, weights, self._own.noise_variance))

    def gradient(self, vectors: Array) -> Array:
        """The gradients alone."""
        return self.look(vectors)[1]

    def refined(self, found: Found, orthogonal: bool) -> Found:
        """What all components reach together."""
        if not orthogonal:
            return refine(lambda own: beside_others(self.gradient(own), own, self._model.order), found)
        found = refine(lambda own: together(self.gradient(own), own), orthonormal(found))
        if not isinstance(self._model, Sources):
            return found
        found = refine(self._balanced, found)
        return self._sharper(found) if self._model.order == 4 else found

    def _balanced(self, vectors: Array) -> Found:
        sums, gradient = self.look(vectors)
        strengths = np.sum(vectors * gradient, axis=1)
        return balanced(gradient, vectors, self._model.variances(sums, strengths))  # type: ignore[union-attr, arg-type]

    def _sharper(self, found: Found) -> Found:
        """Every source by the function that tells it best; strengths are those of the fourth cumulant."""
        chosen = contrasts.best(self._contrasts(found.vectors, np.zeros(len(found.vectors), int)))
        if not chosen.any():  # all of them by their cubes, as they are
            return found

        def step(vectors: Array) -> Found:
            sums = self._contrasts(vectors, chosen)
            own = contrasts.variances(sums)[chosen, np.arange(len(chosen))]
            return balanced(self._own.gradients(contrasts.gradients(sums, chosen)), vectors, own)

        vectors = refine(step, found).vectors
        return Found(vectors, np.sum(vectors * self.gradient(vectors), axis=1))

    def _contrasts(self, vectors: Array, chosen: NDArray[np.int_]) -> ContrastSums:
        blank = ContrastSums(self._own.of_rows(vectors), self._own.centre, chosen, self._part)
        sums: ContrastSums = self._total(blank)
        return sums
