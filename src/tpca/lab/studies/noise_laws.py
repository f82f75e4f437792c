r"""Noise as real data have it: the laws that solvers are judged by (``make noise-checks``).

A law draws all n samples of a run at once, an array ``(n, d_1, …, d_k)`` with mean zero.  It is a base, of independent
entries with variance one, and steps that change it.  Z is standard Gaussian, E what the step is given, w a random unit
tensor of rank one, drawn once a run; E_t is sample t; D the number of entries of a sample.

==================  =============================================================================================
``white``           Z
``dir4, 8, 16``     E + √(s² − 1) z_t w, z_t ∼ N(0, 1): standard deviation s = 4, 8, 16 along w, one elsewhere
``dirsign8``        E + (8ε − ⟨E, w⟩)w, ε = ±1: along w nothing but the sign changes
``skewed``          E + (8x − ⟨E, w⟩)w, x = Exp(1) − 1: a direction of standard deviation 8 and skewness 2
``resonances``      three directions w as in ``dir``, of standard deviations 10, 8, 6
``factors``         E + Σ_r f_r L_r, three factors f_r ∼ N(0, 1) with loadings L_r of D entries N(0, ¼): not rank one
``smooth0.5, 0.9``  along every mode neighbours are correlated φ, covariance φ^|a − b| (a Kronecker product)
``scales``          every slice of every mode has a scale of its own, e^z with z ∼ N(0, 1), drawn once a run
``drift-up, -down`` the level of sample t goes linearly from 1 to 3, or from 3 to 1
``t3``              E_t times (χ²₃)^−½: all entries of a sample share the level; Student t₃, unit variance
``t3-entries``      entries Student t₃, unit variance, independent
``gains``           E_t times e^z, z ∼ N(0, 1): the gain of sample t
``chi2``            entries (z² − 1)/√2
``exponential``     entries Exp(1) − 1
``t2.5-entries``    entries t with 2.5 degrees of freedom, with the quartiles of N(0, 1)
``rare``            entries zero, but one in a hundred, which is N(0, 100)
``serial0.5 …``     E_t = φ E_{t−1} + √(1 − φ²) Z_t, φ = 0.5, 0.9, 0.97, stationary
``ma10``            the sum of ten successive Z over √10
``slow-direction``  E + 4 a_t w, a_t stationary AR(0.9) of variance one: one slow direction in white noise
==================  =============================================================================================

``a+b`` is the step of b after that of a.  The laws that are not symmetric about zero (``skewed``, ``chi2``,
``exponential``) are outside of what is proven for sign flips and for wealth made of tanh; they are judged like the
others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtri, stdtrit

from tpca.tensors.blocks import Array, unit

Law = Callable[[np.random.Generator, int, tuple[int, ...]], Array]
Step = Callable[[np.random.Generator, Array], Array]
Rng = np.random.Generator
Dims = tuple[int, ...]

RESONANCES = (10.0, 8.0, 6.0)
MOVING = 10  # samples in the moving average


def white(rng: Rng, n: int, dims: Dims) -> Array:
    """Standard Gaussian entries."""
    return rng.standard_normal((n, *dims))


def t_entries(rng: Rng, n: int, dims: Dims) -> Array:
    """Student t₃ over √3: kurtosis has no value."""
    return rng.standard_t(3.0, (n, *dims)) / math.sqrt(3.0)


def heavy_entries(rng: Rng, n: int, dims: Dims) -> Array:
    """Student t with 2.5 degrees of freedom, with the quartiles of a standard Gaussian: hardly a variance."""
    quartile = float(stdtrit(2.5, 0.75) / ndtri(0.75))
    return rng.standard_t(2.5, (n, *dims)) / quartile


def chi2_entries(rng: Rng, n: int, dims: Dims) -> Array:
    """(z² − 1)/√2: powers of a Gaussian signal, skewness 2.8."""
    return (rng.standard_normal((n, *dims)) ** 2 - 1) / math.sqrt(2.0)


def exponential_entries(rng: Rng, n: int, dims: Dims) -> Array:
    """Exp(1) − 1: waiting times, skewness 2."""
    return rng.standard_exponential((n, *dims)) - 1.0


def rare_entries(rng: Rng, n: int, dims: Dims) -> Array:
    """Nothing, but 10 z in one entry of a hundred."""
    return 10.0 * rng.standard_normal((n, *dims)) * (rng.random((n, *dims)) < 0.01)


def moving_average(rng: Rng, n: int, dims: Dims) -> Array:
    """Sums of ten successive samples over √10."""
    noise = white(rng, n + MOVING - 1, dims)
    summed: Array = lfilter(np.full(MOVING, MOVING**-0.5), [1.0], noise, axis=0)
    return summed[MOVING - 1 :]


def random_direction(rng: Rng, dims: Dims) -> Array:
    """w: a tensor of rank one and norm one, its vectors uniform on their spheres."""
    return functools.reduce(np.multiply.outer, [unit(rng.standard_normal(d)) for d in dims])


def along(noise: Array, w: Array) -> Array:
    """⟨E_t, w⟩ for every sample."""
    rewards: Array = np.tensordot(noise, w, w.ndim)
    return rewards


def directions(*levels: float) -> Step:
    """E + √(s² − 1) z_t w, with a w of its own for every level s."""

    def step(rng: Rng, noise: Array) -> Array:
        for level in levels:
            added = math.sqrt(level**2 - 1.0) * rng.standard_normal(len(noise))
            noise = noise + np.multiply.outer(added, random_direction(rng, noise.shape[1:]))
        return noise

    return step


def replaced_direction(draw: Callable[[Rng, int], Array]) -> Step:
    """E + (x − ⟨E, w⟩)w: along w there is x instead of what was there."""

    def step(rng: Rng, noise: Array) -> Array:
        w = random_direction(rng, noise.shape[1:])
        return noise + np.multiply.outer(draw(rng, len(noise)) - along(noise, w), w)

    return step


def slow_direction(rng: Rng, noise: Array) -> Array:
    """E + 4 a_t w, a_t AR(0.9)."""
    w = random_direction(rng, noise.shape[1:])
    return noise + np.multiply.outer(4.0 * serial(0.9)(rng, rng.standard_normal(len(noise))), w)


def factors(rng: Rng, noise: Array) -> Array:
    """E + Σ_r f_r L_r, three factors of factor analysis."""
    for _ in range(3):
        loadings = 0.5 * rng.standard_normal(noise.shape[1:])
        noise = noise + np.multiply.outer(rng.standard_normal(len(noise)), loadings)
    return noise


def smooth_root(phi: float, d: int) -> Array:
    """Cholesky factor of φ^|a − b|."""
    lags = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.asarray(np.linalg.cholesky(phi**lags), dtype=np.float64)


def smooth_roots(phi: float) -> Callable[[Rng, Dims], list[Array]]:
    """The same φ along every mode."""
    return lambda _, dims: [smooth_root(phi, d) for d in dims]


def scale_roots(rng: Rng, dims: Dims) -> list[Array]:
    """Diagonal: a scale e^z for every slice."""
    return [np.diag(np.exp(rng.standard_normal(d))) for d in dims]


def coloured(noise: Array, roots: list[Array]) -> Array:
    """(A_1 ⊗ … ⊗ A_k) E_t for every sample."""
    for mode, root in enumerate(roots, start=1):
        noise = np.moveaxis(np.tensordot(noise, root, (mode, 1)), -1, mode)
    return noise


def separable(roots: Callable[[Rng, Dims], list[Array]]) -> Step:
    """A Kronecker product of covariances."""
    return lambda rng, noise: coloured(noise, roots(rng, noise.shape[1:]))


def levelled(noise: Array, levels: Array) -> Array:
    """Every sample times its level."""
    scaled: Array = noise * levels.reshape(-1, *[1] * (noise.ndim - 1))
    return scaled


def drift(first: float, last: float) -> Step:
    """Levels go linearly from the first sample to the last."""
    return lambda _, noise: levelled(noise, np.linspace(first, last, len(noise)))


def t_levels(rng: Rng, noise: Array) -> Array:
    """Gaussian over the root of χ²₃: E[1/χ²₃] = 1, so that the variance stays."""
    return levelled(noise, rng.chisquare(3.0, len(noise)) ** -0.5)


def gains(rng: Rng, noise: Array) -> Array:
    """A log-normal gain for every sample."""
    return levelled(noise, np.exp(rng.standard_normal(len(noise))))


def serial(phi: float) -> Step:
    """E_t = φ E_{t−1} + √(1 − φ²) Z_t, from a stationary start."""

    def step(_: Rng, noise: Array) -> Array:
        pushed = np.concatenate([noise[:1], math.sqrt(1 - phi**2) * noise[1:]])
        samples: Array = lfilter([1.0], [1.0, -phi], pushed, axis=0)
        return samples

    return step


def chain(base: Law, *steps: Step) -> Law:
    """A base, changed step by step."""

    def law(rng: Rng, n: int, dims: Dims) -> Array:
        return functools.reduce(lambda noise, step: step(rng, noise), steps, base(rng, n, dims))

    return law


def _signs(rng: Rng, n: int) -> Array:
    return rng.choice([-8.0, 8.0], n)


def _skewed(rng: Rng, n: int) -> Array:
    return 8.0 * (rng.standard_exponential(n) - 1.0)


LAWS: dict[str, Law] = {
    "white": white,
    "dir4": chain(white, directions(4.0)),
    "dir8": chain(white, directions(8.0)),
    "dir16": chain(white, directions(16.0)),
    "dirsign8": chain(white, replaced_direction(_signs)),
    "skewed": chain(white, replaced_direction(_skewed)),
    "resonances": chain(white, directions(*RESONANCES)),
    "factors": chain(white, factors),
    "smooth0.5": chain(white, separable(smooth_roots(0.5))),
    "smooth0.9": chain(white, separable(smooth_roots(0.9))),
    "scales": chain(white, separable(scale_roots)),
    "drift-up": chain(white, drift(1.0, 3.0)),
    "drift-down": chain(white, drift(3.0, 1.0)),
    "t3": chain(white, t_levels),
    "t3-entries": t_entries,
    "t2.5-entries": heavy_entries,
    "gains": chain(white, gains),
    "chi2": chi2_entries,
    "exponential": exponential_entries,
    "rare": rare_entries,
    "serial0.5": chain(white, serial(0.5)),
    "serial0.9": chain(white, serial(0.9)),
    "serial0.97": chain(white, serial(0.97)),
    "ma10": moving_average,
    "slow-direction": chain(white, slow_direction),
    "smooth0.9+serial0.5": chain(white, separable(smooth_roots(0.9)), serial(0.5)),
    "scales+t3": chain(white, separable(scale_roots), t_levels),
    "resonances+gains": chain(white, directions(*RESONANCES), gains),
    "dir8+drift-up": chain(white, directions(8.0), drift(1.0, 3.0)),
}
