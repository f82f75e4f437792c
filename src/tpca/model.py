r"""The spiked tensor: the truth behind a stream, and how far an answer is from it.

A sample is (paper, Eq. def-model)

.. math:: T = \lambda \, v_1 \otimes \dots \otimes v_{\bar k} + E,

with unit vectors :math:`v_n \in R^{d_n}`, strength :math:`\lambda > 0` and zero-mean noise E.  Each vector can be
recovered up to sign only, so the loss of one mode is :math:`\min(\|v - v^*\|^2, \|v + v^*\|^2)`.

Symbols: ``strength`` is λ, ``vectors[n]`` is v_n, ``dims[n]`` is d_n (modes are numbered from 0 in code).

Of the theory, what the paper's schedules need: ``initial_overlap``, c_0 (Eq. c0-definition), how well a random start
overlaps at least; and ``gauge``, γ_m (Eq. def-gamma-m, def-gamma-m-odd), with |Cor|, as signs are searched.

An endless, reproducible source of samples: signal plus noise of some law, drawn batch by batch.

All but ``student-t`` satisfy the paper's Assumption 2 (ass-base): zero mean and
:math:`E\exp\langle u, \mathrm{vec}E\rangle \le \exp(\|u\|^2/2)` for every ``u``.

==============  ==========================================================================
``gaussian``    i.i.d. N(0, 1) entries
``rademacher``  i.i.d. signs
``uniform``     i.i.d. uniform on [-sqrt 3, sqrt 3] (unit variance, strictly sub-Gaussian)
``bounded``     uniform on the unit sphere: \|vec E\| = 1, the paper's second sufficient condition
``correlated``  Gaussian, neighbours along the last mode correlated by 1/2, covariance norm 1
``student-t``   i.i.d. Student t with 3 degrees of freedom, unit variance: outside the assumption
==============  ==========================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import stdtrit

from tpca.errors import ModelError, check_integer
from tpca.randomness import generator
from tpca.tensors.blocks import Array, Partition, check_dims, unit


def cor(u: Array, v: Array) -> float:
    """Cor(u, v): the inner product of the shorter vector with the first entries of the longer (paper, Section 1)."""
    length = min(len(u), len(v))
    return float(np.dot(u[:length], v[:length]))


@dataclass(frozen=True)
class SpikedTensor:
    """A planted signal: unit ``vectors``, one per axis, and its ``strength``."""

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
        correlation: float | Sequence[float] | None = None,
        random_state: int = 0,
        symmetric: bool = False,
    ) -> SpikedTensor:
        """Random unit vectors; ``correlation`` sets Cor inside every pair of the paper's blocks exactly.

        A list of them has one for every pair, that of the shortest modes first.
        ``correlation=None`` draws all vectors independently.  ``symmetric=True`` gives every block the same
        vectors (all dims equal); with ``correlation=1`` that is the symmetric model, all vectors the same.
        """
        dims = check_dims(dims)
        if symmetric and len(set(dims)) > 1:
            raise ModelError(f"symmetric needs equal dims, got {dims}.")
        rng = generator(random_state, "truth")
        vectors = [unit(rng.standard_normal(d)) for d in dims]
        groups = Partition.pairs(dims).groups
        if symmetric:
            first, second = groups[-1]
            for group in groups:
                for n, source in zip(group, (first, second), strict=False):
                    vectors[n] = vectors[source]
        if correlation is not None:
            pairs = [group for group in groups if len(group) == 2]
            inside = [correlation] * len(pairs) if isinstance(correlation, int | float) else list(correlation)
            if len(inside) != len(pairs):
                raise ModelError(
                    f"correlation must be one number, or one for each of {len(pairs)} pairs, got {len(inside)}."
                )
            for (short, long), wanted in zip(pairs, inside, strict=True):
                if not 0.0 <= wanted <= 1.0:
                    raise ModelError(f"correlation must lie in [0, 1], got {wanted}.")
                # The longer one turns within its span with (short, 0) until Cor is what is wanted, exactly.
                padded = np.pad(vectors[short], (0, dims[long] - dims[short]))
                rest = vectors[long] - np.dot(vectors[long], padded) * padded
                vectors[long] = unit(wanted * padded + math.sqrt(1.0 - wanted**2) * unit(rest))
        return cls(tuple(vectors), strength)

    @property
    def dims(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(len(v) for v in self.vectors)

    @property
    def order(self) -> int:
        """Number of axes k̄."""
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
        """Endless, reproducible samples of this tensor; see :mod:`tpca.model` for the laws."""
        return Samples(
            self.dims, self.signal(), noise=noise, random_state=random_state, batch_size=batch_size, dtype=dtype
        )

    def overlaps(self, vectors: Sequence[Array]) -> Array:
        """|<v̂_n, v_n>| for every axis; every v̂_n a vector, or one row as in ``TensorPCA.components_``."""
        return np.array([abs(float(np.dot(a, b))) for a, b in zip(self._answer(vectors), self.vectors, strict=True)])

    def loss(self, vectors: Sequence[Array]) -> Array:
        """min(‖v̂ − v‖², ‖v̂ + v‖²) for every axis (paper, Section 2); vectors as in :meth:`overlaps`."""
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
                f"expected one vector per axis with lengths {self.dims}, got shapes {shapes}; of several components "
                "give one, as [v[0] for v in components]."
            )
        return [np.reshape(v, -1) for v in vectors]


def check_strength(strength: float) -> float:
    """A positive finite number."""
    if not (math.isfinite(strength) and strength > 0):
        raise ModelError(f"strength must be a positive finite number, got {strength}; flip a vector for a minus sign.")
    return float(strength)


def initial_overlap(dims: Sequence[int], delta: float) -> float:
    """c_0 = min_n q²/(1 + q/√d_n)², q the (1 + δ/k̄)/2 quantile of Student t with d_n − 1 degrees of freedom."""
    quantiles = [(float(stdtrit(d - 1, (1 + delta / len(dims)) / 2)), d) for d in dims]
    return min(q**2 / (1 + q / math.sqrt(d)) ** 2 for q, d in quantiles)


def gauge(dims: Sequence[int], correlations: Sequence[float] | Array, c0: float) -> Array:
    """γ_m = |Cor| / (d d')^{1/4} + c_0 / (d d')^{1/2}; for the vector block of an odd order c_0^{1/2} / d_1^{1/2}.

    Erratum: the paper's convention d_0 = c_0^{1/2} must read d_0 = c_0 for the γ_1 that its odd proofs use.
    """
    partition = Partition.pairs(dims)
    gauges = []
    for group, size, correlation in zip(partition.groups, partition.sizes, correlations, strict=True):
        gauges.append(abs(correlation) / size**0.25 + c0 ** (len(group) / 2) / math.sqrt(size))
    return np.array(gauges)


BATCH_ENTRIES = 2**20  # of a batch, about: the buffer is small and BLAS busy
NOISE_LAWS = ("gaussian", "rademacher", "uniform", "bounded", "correlated", "student-t")


def draw_noise(law: str, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Noise of ``shape[0]`` samples, in their order: a stream does not depend on how it is cut into batches."""
    if law == "student-t":
        return (rng.standard_t(3.0, shape) / math.sqrt(3.0)).astype(dtype, copy=False)
    if law == "uniform":
        noise: NDArray[Any] = rng.random(shape, dtype=dtype)
        noise -= 0.5
        noise *= math.sqrt(12.0)
    elif law == "rademacher":  # whole words of 64 bits a sample
        n, entries = shape[0], math.prod(shape[1:])
        words = rng.integers(0, 2**64, (n, -(-entries // 64)), dtype=np.uint64)
        noise = np.unpackbits(words.view(np.uint8), axis=1, count=entries).astype(dtype).reshape(shape)
        noise *= 2
        noise -= 1
    else:
        noise = rng.standard_normal(shape, dtype=dtype)
    if law == "bounded":
        flat = noise.reshape(shape[0], -1)
        flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    if law == "correlated":  # (z_i + z_{i+1})/2 around the circle: the covariance has eigenvalues cos²(θ/2) ≤ 1
        noise += np.roll(noise, 1, axis=-1)
        noise /= 2
    return noise


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 or float64, the two types that samples are drawn in."""
    checked = np.dtype(dtype)
    if checked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ModelError(f"dtype must be float32 or float64, got {checked}.")
    return checked


class Samples:
    """Endless batches ``signal + E`` of shape ``(batch_size, *dims)``; every ``iter`` starts the same stream again.

    The samples do not depend on ``batch_size``: noise is drawn in sample order from one generator.
    With ``signal=None`` the samples are pure noise.
    """

    def __init__(
        self,
        dims: tuple[int, ...],
        signal: NDArray[Any] | None = None,
        noise: str = "gaussian",
        random_state: int = 0,
        batch_size: int | None = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.dims = check_dims(dims)
        self.noise = noise
        self.random_state = random_state
        self.dtype = check_dtype(dtype)
        usual = max(1, BATCH_ENTRIES // math.prod(self.dims))
        self.batch_size = usual if batch_size is None else check_integer("batch_size", batch_size, error=ModelError)
        if noise not in NOISE_LAWS:
            raise ModelError(f"noise must be one of {', '.join(NOISE_LAWS)}, got {noise!r}.")
        self._signal = None if signal is None else np.asarray(signal, dtype=self.dtype)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rng = generator(self.random_state, "samples")
        while True:
            batch = draw_noise(self.noise, rng, (self.batch_size, *self.dims), self.dtype)
            if self._signal is not None:
                batch += self._signal
            yield batch

    def __repr__(self) -> str:  # by which a checkpoint knows its data
        asked = f"noise={self.noise!r}, random_state={self.random_state}, batch_size={self.batch_size}"
        return f"Samples(dims={self.dims}, {asked})"
