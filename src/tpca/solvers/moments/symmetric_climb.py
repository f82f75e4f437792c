r"""The climb of a table: gradients from passes over its rows, and what components reach with them together.

The last climb of independent sources takes, for each, the odd function of its scores that tells it most accurately.

Fourth powers find sources and say what they are, but where tails are heavy a few rows decide them.  Any odd function g
has its optimum at the same directions (Hyvärinen 1999, Eq. 8): with scores y of mean 0 and variance 1,

.. math::
    c = E[g(y)\,z] - E[g'(y)]\,u, \qquad \kappa = \langle c, u\rangle = \mu - \rho, \quad \mu = E[y\,g],\ \rho = E[g'],

which for g = y³ is the gradient of the fourth cumulant.  The turn that a pair's gradient asks for, ⟨c_i, u_j⟩/κ_i, has
to first order the variance V/n (Tichavský, Koldovský and Oja 2006, Eq. 8, with the whitening from the same rows)

.. math::
    V = \frac{E[(g - ay)^2] - E[g]^2}{\kappa^2}, \qquad a = \frac{\mu+\rho}2 .

*The rule*: at what the fourth cumulant reached, every source takes the g with the least V in the rows that it is
learnt from, among y³ (light tails), tanh y and tanh 2y (heavy ones); then all turn on until they rest, pairs weighed
by V (:func:`~tpca.solvers.moments.symmetric_search.balanced`).  V is 6.3, 2.2 and 1.8 for a Laplace source, 0.7, 0.9
and 1.4 for a uniform one.  What is a component is judged by its kurtosis on rows held out, as before.

============  ================================================================
symbol        code
============  ================================================================
g, g'         ``FUNCTIONS``, in this order
E[g], E[g²],  ``ContrastSums.moments[f, :, l]``, sums over rows, for function f
μ, ρ          and weights l
============  ================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.solvers.moments.symmetric_models import Model, Sources
from tpca.solvers.moments.symmetric_search import Found, balanced, beside_others, orthonormal, refine, together
from tpca.solvers.moments.symmetric_sums import OfRows, Part
from tpca.solvers.moments.symmetric_whitening import RowWhitening
from tpca.tensors.blocks import Array
from tpca.tensors.rows import RowsBatch


def _cube(y: Array) -> tuple[Array, Array]:
    square = y * y
    return square * y, 3 * square


def _tanh(y: Array) -> tuple[Array, Array]:
    g = np.tanh(y)
    return g, 1 - g * g


def _steeper(y: Array) -> tuple[Array, Array]:
    g = np.tanh(2 * y)
    return g, 2 * (1 - g * g)


FUNCTIONS: tuple[Callable[[Array], tuple[Array, Array]], ...] = (_cube, _tanh, _steeper)


class ContrastSums(OfRows):
    """Sums for L ``weights`` ``(L, d)``, of which weight l has function ``chosen[l]``.

    ``moments`` ``(F, 4, L)`` of all functions: g, g², y·g and g'; ``products`` ``(2, L, d)``: x - μ times y, and times
    the function that was chosen; ``shift`` ``(d,)``: x - μ.
    """

    SUMS = ("count", "moments", "products", "shift")

    def __init__(self, weights: Array, centre: Array, chosen: NDArray[np.int_], part: Part | None = None) -> None:
        super().__init__(weights, centre, chosen, part=part)
        self.moments = np.zeros((len(FUNCTIONS), 4, len(weights)))
        self.products, self.shift = np.zeros((2, *weights.shape)), np.zeros(weights.shape[1])

    def take(self, rows: RowsBatch) -> None:
        """Add some rows."""
        weights, centre, chosen, _ = self.asked
        rows, centre = rows.about(centre)
        scores = rows.scores(weights, centre)
        factors = np.ones((len(rows), 1 + 2 * len(weights)))
        factors[:, 1 : 1 + len(weights)] = scores
        own = factors[:, 1 + len(weights) :]
        for number, function in enumerate(FUNCTIONS):
            g, slope = function(scores)
            each = (g.sum(axis=0), np.einsum("jl,jl->l", g, g), np.einsum("jl,jl->l", scores, g), slope.sum(axis=0))
            self.moments[number] += each
            own[:, chosen == number] = g[:, chosen == number]
        sums = rows.sums(factors, centre)  # the first of them with factors 1
        self.shift += sums[0]
        self.products += sums[1:].reshape(self.products.shape)
        self.count += len(rows)


def turn_variances(sums: ContrastSums) -> Array:
    """V ``(F, L)`` of all functions."""
    first, square, inner, slope = np.moveaxis(sums.moments / max(sums.count, 1), 1, 0)
    middle = (inner + slope) / 2
    own = square - 2 * middle * inner + middle**2 - first**2
    return np.asarray(np.maximum(own, 1e-12) / np.maximum((inner - slope) ** 2, 1e-12))


def best_functions(sums: ContrastSums) -> NDArray[np.int_]:
    """The function with the least V, for every weight."""
    return np.asarray(np.argmin(turn_variances(sums), axis=0))


def contrast_gradients(sums: ContrastSums, chosen: NDArray[np.int_]) -> Array:
    """Gradients c ``(L, d)`` by the functions that were chosen, in the columns of the rows."""
    n, each = max(sums.count, 1), np.arange(len(chosen))
    first, _, _, slope = (sums.moments[chosen, moment, each][:, None] / n for moment in range(4))
    score, own = sums.products / n
    return np.asarray(own - first * (sums.shift / n) - slope * score)


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
        chosen = best_functions(self._contrasts(found.vectors, np.zeros(len(found.vectors), int)))
        if not chosen.any():  # all of them by their cubes, as they are
            return found

        def step(vectors: Array) -> Found:
            sums = self._contrasts(vectors, chosen)
            own = turn_variances(sums)[chosen, np.arange(len(chosen))]
            return balanced(self._own.gradients(contrast_gradients(sums, chosen)), vectors, own)

        vectors = refine(step, found).vectors
        return Found(vectors, np.sum(vectors * self.gradient(vectors), axis=1))

    def _contrasts(self, vectors: Array, chosen: NDArray[np.int_]) -> ContrastSums:
        blank = ContrastSums(self._own.of_rows(vectors), self._own.centre, chosen, self._part)
        sums: ContrastSums = self._total(blank)
        return sums
