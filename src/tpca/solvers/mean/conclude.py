r"""A component that is proven, told in the units and axes of the data.

In whitened data (:mod:`tpca.noise.whitening`) the vectors are u and the strength λ'; in the data

.. math:: v_i = W_i^{-1}u_i/\ell_i, \qquad \ell_i = \|W_i^{-1}u_i\|, \qquad \lambda = \lambda'\prod\ell_i .

What the errors of u make of those of v and of the lengths is in :mod:`tpca.noise.carrying`.  The interval of λ is that
of λ' times the lengths, on a scale of logarithms, where the errors of both add up: squared, for what pulls the vectors
across and what pulls the strength along them is independent in whitened noise.  Those of lengths add up squared, too,
but as they are where all vectors are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpca.noise import Whitening
from tpca.noise.carrying import carried_interval, errors_of_entries
from tpca.solvers.claim import Claim
from tpca.solvers.mean.errors import Scatter, entry_errors, projected, student
from tpca.solvers.rank_one import oriented
from tpca.tensors import Projection, RankOne
from tpca.tensors.blocks import Array


@dataclass(frozen=True)
class Told:
    """What is said of a component; ``strength_error`` and ``error`` are those of its strength and worst vector."""

    vectors: tuple[Array, ...]
    claim: Claim
    strength_error: float
    error: float


@dataclass(frozen=True)
class Units:
    """The way from groups to data: a strength is ``scale/unit`` of what it is there, and data may be ``whitened``.

    Of projected samples vectors are told as they are there, but their errors as those of entries of the data.
    """

    scale: float
    unit: float
    whitening: Whitening | None
    projection: Projection | None = None

    def to_data(self, value: float) -> float:
        """A strength in the units of the data, as one of whitened data."""
        return value * self.scale / self.unit  # in this order: one over the unit may not be a float

    def vectors(self, vectors: tuple[Array, ...]) -> tuple[Array, ...]:
        """Vectors of the data, with definite signs."""
        return oriented(vectors if self.whitening is None else self.whitening.back(vectors))

    def factor(self, fit: RankOne) -> float:
        """The strength of a fit in the data over that in whitened data."""
        return 1.0 if self.whitening is None else self.whitening.factor(fit.vectors)

    def told(self, scatter: Scatter, confidence: float) -> Told:
        """What is said of a fit, in units of the groups but for the factor of whitening."""
        reading, spreads = scatter.reading, scatter.spreads()
        if self.whitening is None:
            pairs = enumerate(zip(spreads, scatter.fit.vectors, strict=True))
            errors = tuple(self._entry_errors(mode, b, v) for mode, (b, v) in pairs)
            claim = Claim(reading.strength, scatter.interval(confidence), errors)
            return Told(self.vectors(scatter.fit.vectors), claim, scatter.along, reading.error)
        each = self.whitening.carried(scatter.fit.vectors, _covariances(scatter, spreads))
        factor, lengths = math.prod(c.length for c in each), [c.relative for c in each]
        relative = sum(lengths) if scatter.symmetric else math.hypot(*lengths)
        reach = student(0.5 + confidence / 2, math.inf) * relative
        interval = carried_interval(reading.strength, scatter.interval(confidence), factor, reach)
        squares = [c.errors for c in each]
        if self.projection is not None:
            squares = [self.projection.back_rows(i, self.projection.back_rows(i, c).T) for i, c in enumerate(squares)]
        claim = Claim(factor * reading.strength, interval, errors_of_entries(squares))
        error = factor * math.hypot(scatter.along, relative * reading.strength)
        return Told(self.vectors(scatter.fit.vectors), claim, error, max(c.error for c in each))

    def _entry_errors(self, mode: int, variances: Array, v: Array) -> Array:
        """Errors of the entries of v, with the variances P diag(b) P."""
        if self.projection is None:
            return entry_errors(projected(variances, v), v)
        own = self.projection.back_variances(mode, v, variances)
        return entry_errors(own, self.projection.back_rows(mode, v))


def _covariances(scatter: Scatter, spreads: list[Array]) -> list[Array]:
    """Of the errors of all vectors: P diag(b) P."""
    each = []
    for u, b in zip(scatter.fit.vectors, spreads, strict=True):
        across = np.eye(len(u)) - np.outer(u, u)
        each.append((across * b) @ across)
    return each
