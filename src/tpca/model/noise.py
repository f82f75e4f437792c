r"""Noise laws: how to draw the noise of ``n`` samples.

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
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpca.errors import ModelError

NoiseLaw = Callable[[np.random.Generator, int, tuple[int, ...], Any], NDArray[Any]]


def _gaussian(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return rng.standard_normal((n, *dims), dtype=dtype)


def _rademacher(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    # Whole 64-bit words per sample, so that the stream does not depend on how it is cut into batches.
    entries = math.prod(dims)
    words = rng.integers(0, 2**64, (n, -(-entries // 64)), dtype=np.uint64)
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=entries)
    noise: NDArray[Any] = bits.astype(dtype).reshape(n, *dims)
    noise *= 2
    noise -= 1
    return noise


def _uniform(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    noise = rng.random((n, *dims), dtype=dtype)
    noise -= 0.5
    noise *= math.sqrt(12.0)
    return noise


def _bounded(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    noise = _gaussian(rng, n, dims, dtype)
    flat = noise.reshape(n, -1)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    return noise


def _correlated(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    # (z_i + z_{i+1}) / 2 around the circle: a circulant covariance with eigenvalues cos^2(theta / 2) <= 1.
    noise = _gaussian(rng, n, dims, dtype)
    noise += np.roll(noise, 1, axis=-1)
    noise /= 2
    return noise


def _student_t(rng: np.random.Generator, n: int, dims: tuple[int, ...], dtype: Any) -> NDArray[Any]:
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
