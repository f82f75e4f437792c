"""Noise as real data have it, for the mean: samples ``(n, *dims)``, and groups of them."""

import numpy as np
import pytest

from tpca import MeanSolver
from tpca.solvers.mean.grouping import Grouping, equal_groups
from tpca.solvers.mean.groups import Groups


def unit(v):
    return v / np.linalg.norm(v)


def outer(vectors):
    product = np.ones(())
    for v in vectors:
        product = np.multiply.outer(product, v)
    return product


def rank_one(rng, dims):
    return [unit(rng.standard_normal(d)) for d in dims]


def smooth(rng, n, dims, along=0.9):
    """Neighbours along every mode are correlated."""
    x = rng.standard_normal((n, *dims))
    for mode, d in enumerate(dims, start=1):
        covariance = along ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
        x = np.moveaxis(np.tensordot(x, np.linalg.cholesky(covariance), (mode, 1)), -1, mode)
    return x


def serial(rng, n, dims, along=0.9):
    """Neighbouring samples are correlated."""
    x = rng.standard_normal((n + 100, *dims))
    for i in range(1, len(x)):
        x[i] = along * x[i - 1] + np.sqrt(1 - along**2) * x[i]
    return x[100:]


def scales(rng, n, dims):
    """Rows of the first mode are of unequal scale."""
    return rng.standard_normal((n, *dims)) * np.exp(rng.standard_normal((dims[0], *[1] * (len(dims) - 1))))


def direction(rng, n, dims, size=8.0):
    """One direction is stronger than all others."""
    amplitudes = size * rng.standard_normal((n, *[1] * len(dims)))
    return rng.standard_normal((n, *dims)) + amplitudes * outer(rank_one(rng, dims))


def heavy(rng, n, dims):
    """Samples of very different size: Student's t with 3 degrees of freedom."""
    sizes = np.sqrt(3 / rng.chisquare(3, (n, *[1] * len(dims))))
    return sizes * rng.standard_normal((n, *dims))


LAWS = {"smooth": smooth, "serial": serial, "scales": scales, "direction": direction, "heavy": heavy}


def grouped(samples, groups=8):
    """The groups of some samples, as a fit has them at its end."""
    plan = equal_groups(len(samples), groups, 1)
    grouping = Grouping(samples.shape[1:], groups, plan=plan)
    for part in np.split(samples, np.cumsum(plan)[:-1]):
        grouping.add(part.sum(axis=0), len(part))
    return Groups.of(grouping)


class StopError(Exception):
    """What a callback stops a fit with."""


def stopped_and_resumed(samples, folder, stops):
    """A fit that is stopped when it has seen so many samples, again and again, and gone on with to its end."""
    kept = {"random_state": 1, "checkpoint": folder, "checkpoint_every": 0, "resume": True}
    for stop_at in stops:

        def stop(record, stop_at=stop_at):
            if record["phase"] == "average" and record["samples"] >= stop_at:
                raise StopError

        with pytest.raises(StopError):
            MeanSolver(**kept, callbacks=[stop]).run(samples)
    return MeanSolver(**kept).run(samples)
