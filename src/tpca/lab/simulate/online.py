r"""Online SGD in the exact vector parameterisation, simulated exactly (Ben Arous, Gheissari & Jagannath 2021).

One vector :math:`w_n` a mode, all moved by every sample: :math:`w_n \leftarrow unit(w_n + \eta\nabla_n R)`.  For
Gaussian noise the gradients of two modes are independent but for their components along :math:`w_n`, which move no
direction; so each mode is a chain of its own (:mod:`tpca.lab.simulate.chain`) with D = d and
:math:`s_n = \lambda\prod_{i\ne n}\alpha_i`, in two numbers :math:`\alpha_n, \beta_n = \sqrt{1-\alpha_n^2}`:

.. math::
    \alpha \leftarrow x/\sqrt{x^2 + (\beta + \eta z')^2 + \eta^2\chi^2_{d-2}}, \qquad x = \alpha + \eta(s + z) .

The step size is :math:`\eta = 1/\sqrt{dN}`, for which the noise of N samples just replaces the start: a longer memory
would forget nothing, a shorter one not use all samples.  (The noise is N(0, I) in the coordinates along the truth,
along the rest of the iterate and across; the last is a chi-square variable with d − 2 degrees of freedom.)
"""

from __future__ import annotations

import math

import numpy as np

from tpca.errors import ModelError
from tpca.jit import compiled
from tpca.tensors.blocks import Array

THERE = 0.9


def simulate_online(
    dims: tuple[int, ...], strength: float, samples: float, rng: np.random.Generator, coarse: float = 0.0
) -> Array:
    """α_n after ``samples`` samples, of the better of the two signs of a random start.

    ``coarse`` = ε > 0 takes mini-batches in which nothing moves by more than about ε (see
    :mod:`tpca.lab.simulate.paper`), 0 every single sample.  A run in which every mode has passed 0.9 is over: what
    noise is left there, √(d/N), does not bring it back.
    """
    if min(dims) < 3:
        raise ModelError(f"every mode must be at least 3 long, got dims {dims}.")
    begin = np.array([_random_overlap(d, rng) for d in dims])
    step_size = 1 / math.sqrt(max(dims) * samples)
    ends = []
    for sign in (1.0, -1.0):
        aligned = begin.copy()
        aligned[0] *= sign
        compiled(_ascend)(aligned, np.array(dims, dtype=np.float64), strength, step_size, float(samples), coarse, rng)
        ends.append(aligned)
    return max(ends, key=lambda a: float(np.prod(a)))


def _random_overlap(length: int, rng: np.random.Generator) -> float:
    """Inner product of a uniform unit vector with a fixed one."""
    first = rng.standard_normal()
    return float(first / math.sqrt(first**2 + rng.chisquare(length - 1)))


def _ascend(
    aligned: Array,
    sizes: Array,
    strength: float,
    step_size: float,
    samples: float,
    coarse: float,
    rng: np.random.Generator,
) -> None:
    """All modes at once, in place, until the samples end or every mode is there; compiled."""
    order = len(aligned)
    signals = np.empty(order)
    left = samples
    while left >= 1.0 and np.min(np.abs(aligned)) < THERE:
        for n in range(order):
            signals[n] = strength
            for i in range(order):
                if i != n:
                    signals[n] *= aligned[i]
        fastest = max(step_size * np.max(np.abs(signals)), step_size**2 * np.max(sizes))
        batch = max(1.0, min(coarse / fastest, left))
        step, noise = step_size * batch, 1 / math.sqrt(batch)
        left -= batch
        for n in range(order):
            beta = math.sqrt(max(0.0, 1.0 - aligned[n] * aligned[n]))
            # Along the iterate itself noise moves nothing, but it is part of the published step.
            towards = aligned[n] + step * (signals[n] + noise * rng.standard_normal())
            beside = beta + step * noise * rng.standard_normal()
            rest = (step * noise) ** 2 * rng.chisquare(sizes[n] - 2)
            aligned[n] = towards / math.sqrt(towards * towards + beside * beside + rest)
