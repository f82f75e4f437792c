r"""The spiked tensor: the truth behind a stream, and how far an answer is from it.

A sample is (paper, Eq. def-model)

.. math:: T = \lambda \, v_1 \otimes \dots \otimes v_{\bar k} + E,

with unit vectors :math:`v_n \in R^{d_n}`, strength :math:`\lambda > 0` and zero-mean noise E.  Each vector can be
recovered up to sign only, so the loss of one mode is :math:`\min(\|v - v^*\|^2, \|v + v^*\|^2)`.

Symbols: ``strength`` is λ, ``vectors[n]`` is v_n, ``dims[n]`` is d_n (modes are numbered from 0 in code).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from tpca.errors import ModelError
from tpca.model.sampling import Samples
from tpca.randomness import generator
from tpca.tensors.blocks import Array, Partition, check_dims, unit


def cor(u: Array, v: Array) -> float:
    """Cor(u, v): the inner product of the shorter vector with the first entries of the longer (paper, Section 1)."""
    length = min(len(u), len(v))
    return float(np.dot(u[:length], v[:length]))


@dataclass(frozen=True)
class SpikedTensor:
    """A planted signal: unit ``vectors``, one per mode, and its ``strength``."""

    vectors: tuple[Array, ...]
    strength: float

    def __post_init__(self) -> None:
        vectors = tuple(np.asarray(v, dtype=np.float64) for v in self.vectors)
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "strength", check_strength(self.strength))
        for n, v in enumerate(vectors):
            if v.ndim != 1 or not np.isfinite(v).all() or not math.isclose(np.linalg.norm(v), 1.0, rel_tol=1e-6):
                raise ModelError(
                    f"vector {n} must be a unit vector, got shape {v.shape} and norm {np.linalg.norm(v):.6g}; "
                    "divide it by its norm."
                )
        check_dims(self.dims)

    @classmethod
    def random(
        cls,
        dims: Sequence[int],
        strength: float = 1.0,
        correlation: float | None = None,
        random_state: int = 0,
        symmetric: bool = False,
        correlations: Sequence[float] | None = None,
    ) -> SpikedTensor:
        """Random unit vectors; ``correlation`` sets Cor inside every pair of the paper's blocks exactly.

        ``correlations`` gives every pair its own instead, the pair of the shortest modes first.
        ``correlation=None`` draws all vectors independently.  ``symmetric=True`` gives every block the same
        vectors (all dims equal); with ``correlation=1`` that is the symmetric model, all vectors the same.
        """
        dims = check_dims(dims)
        if symmetric and len(set(dims)) > 1:
            raise ModelError(f"symmetric needs equal dims, got {dims}.")
        inside = _inside_pairs(correlation, correlations, len(dims) // 2)
        rng = generator(random_state, "truth")
        vectors = [unit(rng.standard_normal(d)) for d in dims]
        groups = Partition.pairs(dims).groups
        if symmetric:
            first, second = groups[-1]
            for group in groups:
                for n, source in zip(group, (first, second), strict=False):
                    vectors[n] = vectors[source]
        if inside is not None:
            for (short, long), wanted in zip([group for group in groups if len(group) == 2], inside, strict=True):
                vectors[long] = _correlate(vectors[short], vectors[long], wanted)
        return cls(tuple(vectors), strength)

    @property
    def dims(self) -> tuple[int, ...]:
        """Length of each mode."""
        return tuple(len(v) for v in self.vectors)

    @property
    def order(self) -> int:
        """Number of modes k̄."""
        return len(self.vectors)

    def signal(self) -> Array:
        """The planted tensor λ v_1 ⊗ … ⊗ v_k̄, in full."""
        return self.strength * functools.reduce(np.multiply.outer, self.vectors)

    def stream(
        self,
        noise: str = "gaussian",
        random_state: int = 0,
        batch_size: int | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Samples:
        """Endless, reproducible samples of this tensor; see :mod:`tpca.model.sampling` for the laws."""
        return Samples(
            self.dims, self.signal(), noise=noise, random_state=random_state, batch_size=batch_size, dtype=dtype
        )

    def overlaps(self, vectors: Sequence[Array]) -> Array:
        """|<v̂_n, v_n>| for every mode; every v̂_n a vector, or one row as in ``TensorPCA.components_``."""
        return np.array([abs(float(np.dot(a, b))) for a, b in zip(self._answer(vectors), self.vectors, strict=True)])

    def loss(self, vectors: Sequence[Array]) -> Array:
        """min(‖v̂ − v‖², ‖v̂ + v‖²) for every mode (paper, Section 2); vectors as in :meth:`overlaps`."""
        pairs = zip(self._answer(vectors), self.vectors, strict=True)
        return np.array([min(float(np.sum((a - b) ** 2)), float(np.sum((a + b) ** 2))) for a, b in pairs])

    def correlations(self) -> Array:
        """Cor inside each block of the paper's pairing; 0 for the single mode of an odd order (v_0 = 0)."""
        groups = Partition.pairs(self.dims).groups
        return np.array([cor(*(self.vectors[n] for n in g)) if len(g) == 2 else 0.0 for g in groups])

    def _answer(self, vectors: Sequence[Array]) -> list[Array]:
        shapes = [np.shape(v) for v in vectors]
        if shapes not in ([(d,) for d in self.dims], [(1, d) for d in self.dims]):
            raise ModelError(
                f"expected one vector per mode with lengths {self.dims}, got shapes {shapes}; of several components "
                "give one, as [v[0] for v in components]."
            )
        return [np.reshape(v, -1) for v in vectors]


def _inside_pairs(correlation: float | None, each: Sequence[float] | None, pairs: int) -> list[float] | None:
    """Cor of every pair, or ``None`` where it is left to chance."""
    if correlation is not None and each is not None:
        raise ModelError("give correlation, for all pairs, or correlations, one a pair, not both.")
    if correlation is None and each is None:
        return None
    inside = [correlation] * pairs if correlation is not None else list(each or ())
    if len(inside) != pairs:
        raise ModelError(f"correlations must have one number for each of {pairs} pairs, got {len(inside)}.")
    for wanted in inside:
        if not 0.0 <= wanted <= 1.0:
            raise ModelError(f"correlation must lie in [0, 1], got {wanted}.")
    return inside


def check_strength(strength: float) -> float:
    """A positive finite number."""
    if not (math.isfinite(strength) and strength > 0):
        raise ModelError(f"strength must be a positive finite number, got {strength}; flip a vector for a minus sign.")
    return float(strength)


def _correlate(short: Array, long: Array, correlation: float) -> Array:
    """Turn ``long`` within its span with (``short``, 0) until Cor is ``correlation``, exactly."""
    padded = np.zeros(len(long))
    padded[: len(short)] = short
    rest = long - np.dot(long, padded) * padded
    return unit(correlation * padded + math.sqrt(1.0 - correlation**2) * unit(rest))
