r"""An endless, reproducible source of samples: signal plus noise of some law, drawn batch by batch.

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

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpca.errors import ModelError
from tpca.integers import check_integer
from tpca.randomness import generator
from tpca.tensors.blocks import check_dims

# A batch of about this many entries keeps the buffer small and BLAS busy.
BATCH_ENTRIES = 2**20


Rng = np.random.Generator
Dims = tuple[int, ...]
NoiseLaw = Callable[[Rng, int, Dims, Any], NDArray[Any]]


def _gaussian(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    return rng.standard_normal((n, *dims), dtype=dtype)


def _rademacher(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    # Whole 64-bit words per sample, so that the stream does not depend on how it is cut into batches.
    entries = math.prod(dims)
    words = rng.integers(0, 2**64, (n, -(-entries // 64)), dtype=np.uint64)
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=entries)
    noise: NDArray[Any] = bits.astype(dtype).reshape(n, *dims)
    noise *= 2
    noise -= 1
    return noise


def _uniform(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    noise = rng.random((n, *dims), dtype=dtype)
    noise -= 0.5
    noise *= math.sqrt(12.0)
    return noise


def _bounded(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    noise = _gaussian(rng, n, dims, dtype)
    flat = noise.reshape(n, -1)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    return noise


def _correlated(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    # (z_i + z_{i+1}) / 2 around the circle: a circulant covariance with eigenvalues cos^2(theta / 2) <= 1.
    noise = _gaussian(rng, n, dims, dtype)
    noise += np.roll(noise, 1, axis=-1)
    noise /= 2
    return noise


def _student_t(rng: Rng, n: int, dims: Dims, dtype: Any) -> NDArray[Any]:
    return (rng.standard_t(3.0, (n, *dims)) / math.sqrt(3.0)).astype(dtype, copy=False)


NOISE_LAWS: dict[str, NoiseLaw] = {
    "gaussian": _gaussian,
    "rademacher": _rademacher,
    "uniform": _uniform,
    "bounded": _bounded,
    "correlated": _correlated,
    "student-t": _student_t,
}


def noise_law(noise: str) -> NoiseLaw:
    """Look a noise law up by name."""
    if noise not in NOISE_LAWS:
        raise ModelError(f"noise must be one of {', '.join(NOISE_LAWS)}, got {noise!r}.")
    return NOISE_LAWS[noise]


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
        self._law = noise_law(noise)
        self._signal = None if signal is None else np.asarray(signal, dtype=self.dtype)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rng = generator(self.random_state, "samples")
        while True:
            batch = self._law(rng, self.batch_size, self.dims, self.dtype)
            if self._signal is not None:
                batch += self._signal
            yield batch

    def __repr__(self) -> str:
        asked = f"noise={self.noise!r}, random_state={self.random_state}, batch_size={self.batch_size}"
        return f"Samples(dims={self.dims}, {asked})"
