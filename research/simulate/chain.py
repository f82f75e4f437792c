r"""The reduced chain: one block's iterates in three numbers, exact in law for Gaussian noise.

In block m's turn the other blocks stand still, so a fresh sample's gradient is :math:`s A + Z` with
:math:`s = \lambda\prod_{i\ne m}\alpha_i`, :math:`A = v v'^\top` (unit length) and Z i.i.d. N(0, 1).  Write

.. math:: W = a\,A + q\,Q + r\,U,

Q the unit part of the start that is orthogonal to A, U uniform on the unit sphere of the rest (D − 2 dimensions).
Neither Q nor A nor the law of Z changes when the rest is rotated, so U stays uniform and independent of (a, q, r), and
the ascent step (:mod:`tpca.solvers.paper.run`) moves

.. math::
    g_a = s + z_a, \quad g_q = z_q, \quad g_u = z_u, \qquad R = (a g_a + q g_q + r g_u)/n, \quad n^2 = a^2+q^2+r^2

    a \leftarrow (1+\eta R)a + \eta n g_a, \quad q \leftarrow (1+\eta R)q + \eta n g_q, \quad
    r \leftarrow \sqrt{((1+\eta R)r + \eta n g_u)^2 + \eta^2 n^2 \chi^2_{D-3}}

with three normals and one chi-square variable a step: the cost does not depend on D.  A step on the mean of τ samples
with step size τη has the same form, noise divided by :math:`\sqrt\tau`; that is how a run of 10¹³ samples is simulated
(``coarse`` in :mod:`research.simulate.paper`).

=========  =====================================
symbol     argument
=========  =====================================
(a, q, r)  a row of ``coordinates``, (R, 3)
s          ``signals`` (R,)
η, τ       ``step_sizes``, ``batches``
D          ``size``
=========  =====================================

**Online SGD in the exact vector parameterisation** (Ben Arous, Gheissari & Jagannath 2021), :func:`simulate_online`.
One vector :math:`w_n` a mode, all moved by every sample: :math:`w_n \leftarrow unit(w_n + \eta\nabla_n R)`.  For
Gaussian noise the gradients of two modes are independent but for their components along :math:`w_n`, which move no
direction; so each mode is a chain of its own with D = d and
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
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.threads import compiled

# Steps in one call of the compiled loop: a second or so, after which Ctrl-C is heard.
CALL = 10_000_000
THERE = 0.9


def advance(
    coordinates: Array,
    signals: Array,
    step_sizes: Array | float,
    steps: Array | int,
    size: int,
    rng: np.random.Generator,
    batches: Array | float = 1.0,
) -> Array:
    """The coordinates after ``steps`` samples, ``batches`` of them a step, scaled to unit length.

    Step sizes belong to one sample; a negative one descends (Phase III runs from both signs).  Everything but ``size``
    may differ from replica to replica.
    """
    rows = np.array(coordinates, dtype=np.float64)
    wide = [np.broadcast_to(np.asarray(x, dtype=np.float64), len(rows)) for x in (signals, step_sizes, steps, batches)]
    signal, eta, samples, batch = wide
    rounds = np.where(samples > 0, np.maximum(np.rint(samples / batch), 1), 0).astype(np.int64)
    shares = samples / np.maximum(rounds, 1)  # so that the samples come out exactly
    numbers = [np.ascontiguousarray(x) for x in (signal, eta * shares, 1 / np.sqrt(np.maximum(shares, 1.0)))]
    while rounds.any():
        now = np.minimum(rounds, max(1, CALL // len(rows)))
        compiled(_climb)(rows, *numbers, now, float(size), rng)
        rounds = rounds - now
    return rows


def _climb(
    rows: Array,
    signals: Array,
    step_sizes: Array,
    noises: Array,
    steps: NDArray[np.int64],
    size: float,
    rng: np.random.Generator,
) -> None:
    """Take the steps of every replica, in place; compiled."""
    for j in range(len(rows)):
        a, q, r = rows[j, 0], rows[j, 1], rows[j, 2]
        signal, step_size, noise = signals[j], step_sizes[j], noises[j]
        spread = noise * noise
        for _ in range(steps[j]):
            along_truth = signal + noise * rng.standard_normal()
            along_start = noise * rng.standard_normal()
            along_rest = noise * rng.standard_normal() if size > 2 else 0.0
            beside = spread * rng.chisquare(size - 3) if size > 3 else 0.0
            norm = math.sqrt(a * a + q * q + r * r)
            grow = step_size * norm
            keep = 1 + step_size * (a * along_truth + q * along_start + r * along_rest) / norm
            a = keep * a + grow * along_truth
            q = keep * q + grow * along_start
            inward = keep * r + grow * along_rest
            r = math.sqrt(inward * inward + grow * grow * beside)
            if norm > 1e60:  # only the direction matters
                a, q, r = a / norm, q / norm, r / norm
        norm = math.sqrt(a * a + q * q + r * r)
        rows[j, 0], rows[j, 1], rows[j, 2] = a / norm, q / norm, r / norm


def simulate_online(
    dims: tuple[int, ...], strength: float, samples: float, rng: np.random.Generator, coarse: float = 0.0
) -> Array:
    """α_n after ``samples`` samples, of the better of the two signs of a random start.

    ``coarse`` = ε > 0 takes mini-batches in which nothing moves by more than about ε (see
    :mod:`research.simulate.paper`), 0 every single sample.  A run in which every mode has passed 0.9 is over: what
    noise is left there, √(d/N), does not bring it back.
    """
    begin = np.empty(len(dims))  # inner products of uniform unit vectors with fixed ones
    for n, d in enumerate(dims):
        first = rng.standard_normal()
        begin[n] = first / math.sqrt(first**2 + rng.chisquare(d - 1))
    step_size = 1 / math.sqrt(max(dims) * samples)
    ends = []
    for sign in (1.0, -1.0):
        aligned = begin.copy()
        aligned[0] *= sign
        compiled(_ascend)(aligned, np.array(dims, dtype=np.float64), strength, step_size, float(samples), coarse, rng)
        ends.append(aligned)
    return max(ends, key=lambda a: float(np.prod(a)))


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
