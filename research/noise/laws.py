r"""Noise as real data have it: laws that draw all n samples of a run at once, ``(n, d_1, …, d_k)``, with mean zero.

A law is a base of independent entries with variance one, and steps that change it.  Z is standard Gaussian, E what the
step is given, w a random unit tensor of rank one, drawn once a run; E_t is sample t.  In ``LAWS``, ``a+b`` is the step
of b after that of a, both of white noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtri, stdtrit

from tpca.tensors.blocks import Array, unit

Rng = np.random.Generator
Dims = tuple[int, ...]
Law = Callable[[Rng, int, Dims], Array]
Step = Callable[[Rng, Array], Array]


def white(rng: Rng, n: int, dims: Dims) -> Array:
    """Standard Gaussian entries."""
    return rng.standard_normal((n, *dims))


def exponential(rng: Rng, n: int, dims: Dims) -> Array:
    """Waiting times less their mean, skewness 2."""
    return rng.standard_exponential((n, *dims)) - 1.0


def lognormal(rng: Rng, n: int, dims: Dims) -> Array:
    """e^z less its mean, over its standard deviation; skewness 6."""
    e = math.e
    return np.asarray((np.exp(rng.standard_normal((n, *dims))) - math.sqrt(e)) / math.sqrt(e * (e - 1)))


def half_negated(law: Law) -> Law:
    """Half the rows of every sample are negated, so that skewness cancels over all entries."""

    def drawn(rng: Rng, n: int, dims: Dims) -> Array:
        noise = law(rng, n, dims)
        noise[:, : dims[0] // 2] *= -1
        return noise

    return drawn


def outer(vectors: list[Array]) -> Array:
    """A tensor of rank one."""
    return functools.reduce(np.multiply.outer, vectors)


def random_vectors(rng: Rng, dims: Dims) -> list[Array]:
    """Uniform on their spheres."""
    return [unit(rng.standard_normal(d)) for d in dims]


def directions(*levels: float) -> Step:
    """E + √(s² − 1) z_t w, with a w of its own for every level s."""

    def step(rng: Rng, noise: Array) -> Array:
        for level in levels:
            added = math.sqrt(level**2 - 1.0) * rng.standard_normal(len(noise))
            noise = noise + np.multiply.outer(added, outer(random_vectors(rng, noise.shape[1:])))
        return noise

    return step


def replaced_direction(draw: Callable[[Rng, int], Array]) -> Step:
    """E + (8x − ⟨E, w⟩)w: along w there is 8x instead of what was there."""

    def step(rng: Rng, noise: Array) -> Array:
        w = outer(random_vectors(rng, noise.shape[1:]))
        return noise + np.multiply.outer(8.0 * draw(rng, len(noise)) - np.tensordot(noise, w, w.ndim), w)

    return step


def slow_direction(rng: Rng, noise: Array) -> Array:
    """E + 4 a_t w, a_t AR(0.9)."""
    w = outer(random_vectors(rng, noise.shape[1:]))
    return noise + np.multiply.outer(4.0 * serial(0.9)(rng, rng.standard_normal(len(noise))), w)


def factors(rng: Rng, noise: Array) -> Array:
    """E + Σ_r f_r L_r, three factors of factor analysis."""
    loadings = 0.5 * rng.standard_normal((3, *noise.shape[1:]))
    return noise + np.tensordot(rng.standard_normal((len(noise), 3)), loadings, 1)


def coloured(noise: Array, roots: list[Array]) -> Array:
    """(A_1 ⊗ … ⊗ A_k) E_t for every sample."""
    for mode, root in enumerate(roots, start=1):
        noise = np.moveaxis(np.tensordot(noise, root, (mode, 1)), -1, mode)
    return noise


def smooth_root(phi: float, d: int) -> Array:
    """A root of the covariance φ^|a − b|."""
    return np.asarray(np.linalg.cholesky(phi ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))))


def levelled(noise: Array, levels: Array) -> Array:
    """Every sample times its level."""
    return np.asarray(noise * levels.reshape(-1, *[1] * (noise.ndim - 1)))


def serial(phi: float) -> Step:
    """E_t = φ E_{t−1} + √(1 − φ²) Z_t, from a stationary start."""

    def step(_: Rng, noise: Array) -> Array:
        pushed = np.concatenate([noise[:1], math.sqrt(1 - phi**2) * noise[1:]])
        return np.asarray(lfilter([1.0], [1.0, -phi], pushed, axis=0))

    return step


def chain(base: Law, *steps: Step) -> Law:
    """A base, changed step by step."""
    return lambda rng, n, dims: functools.reduce(lambda noise, step: step(rng, noise), steps, base(rng, n, dims))


def smooth(phi: float) -> Step:
    """Covariance φ^|a − b| along every mode."""
    return lambda _, noise: coloured(noise, [smooth_root(phi, d) for d in noise.shape[1:]])


BASES: dict[str, Law] = {
    "white": white,
    "t3-entries": lambda rng, n, dims: rng.standard_t(3.0, (n, *dims)) / math.sqrt(3.0),
    # Student t with the quartiles of a standard Gaussian: hardly a variance
    "t2.5-entries": lambda rng, n, dims: rng.standard_t(2.5, (n, *dims)) * float(ndtri(0.75) / stdtrit(2.5, 0.75)),
    "chi2": lambda rng, n, dims: (rng.standard_normal((n, *dims)) ** 2 - 1) / math.sqrt(2.0),
    "exponential": exponential,
    # nothing, but 10 z in one entry of a hundred
    "rare": lambda rng, n, dims: 10.0 * rng.standard_normal((n, *dims)) * (rng.random((n, *dims)) < 0.01),
    # sums of ten successive samples over √10
    "ma10": lambda rng, n, dims: lfilter(np.full(10, 10**-0.5), [1.0], white(rng, n + 9, dims), axis=0)[9:],
}
STEPS: dict[str, Step] = {
    "dir4": directions(4.0),
    "dir8": directions(8.0),
    "dir16": directions(16.0),
    "dirsign8": replaced_direction(lambda rng, n: rng.choice([-1.0, 1.0], n)),
    "skewed": replaced_direction(lambda rng, n: rng.standard_exponential(n) - 1.0),
    "resonances": directions(10.0, 8.0, 6.0),
    "factors": factors,
    "smooth0.5": smooth(0.5),
    "smooth0.9": smooth(0.9),
    # a scale e^z for every slice of every mode
    "scales": lambda rng, noise: coloured(noise, [np.diag(np.exp(rng.standard_normal(d))) for d in noise.shape[1:]]),
    # levels go linearly from the first sample to the last
    "drift-up": lambda _, noise: levelled(noise, np.linspace(1.0, 3.0, len(noise))),
    "drift-down": lambda _, noise: levelled(noise, np.linspace(3.0, 1.0, len(noise))),
    # Gaussian over the root of χ²₃: E[1/χ²₃] = 1, so that the variance stays
    "t3": lambda rng, noise: levelled(noise, rng.chisquare(3.0, len(noise)) ** -0.5),
    "gains": lambda rng, noise: levelled(noise, np.exp(rng.standard_normal(len(noise)))),
    "serial0.5": serial(0.5),
    "serial0.9": serial(0.9),
    "serial0.97": serial(0.97),
    "slow-direction": slow_direction,
}
_NAMES = """white dir4 dir8 dir16 dirsign8 skewed resonances factors smooth0.5 smooth0.9 scales drift-up drift-down t3
    t3-entries t2.5-entries gains chi2 exponential rare serial0.5 serial0.9 serial0.97 ma10 slow-direction
    smooth0.9+serial0.5 scales+t3 resonances+gains dir8+drift-up"""
LAWS: dict[str, Law] = {
    name: BASES[name] if name in BASES else chain(white, *(STEPS[step] for step in name.split("+")))
    for name in _NAMES.split()
}
