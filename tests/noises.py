"""Noise that is not white, drawn in the simplest way, and sketches of it."""

import numpy as np


def smooth(dims, phi):
    """Covariances of modes along which neighbours are correlated ``phi``."""
    return [phi ** np.abs(np.subtract.outer(range(d), range(d))) for d in dims]


def coloured(n, covariances, rng):
    """Samples whose noise has such covariances of its modes."""
    samples = rng.standard_normal((n, *map(len, covariances)))
    for axis, c in enumerate(covariances, start=1):
        samples = np.moveaxis(np.tensordot(np.linalg.cholesky(c), samples, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(samples)


def serial(n, dims, rng, phi=0.0, window=1):
    """Samples each of which remembers ``phi`` of the one before, or means over a ``window``, of unit variance."""
    past = 400  # after which nothing is left of the start
    drawn = rng.standard_normal((n + past, *dims))
    if window > 1:
        sums = np.cumsum(drawn, axis=0)
        return (sums[window:] - sums[:-window])[-n:] / np.sqrt(window)
    for t in range(1, len(drawn)):
        drawn[t] = phi * drawn[t - 1] + np.sqrt(1 - phi**2) * drawn[t]
    return drawn[past:]
