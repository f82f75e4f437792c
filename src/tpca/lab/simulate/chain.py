r"""The reduced chain: one block's iterates in three numbers, exact in law for Gaussian noise.

In block m's turn the other blocks stand still, so a fresh sample's gradient is :math:`s A + Z` with
:math:`s = \lambda\prod_{i\ne m}\alpha_i`, :math:`A = v v'^\top` (unit length) and Z i.i.d. N(0, 1).  Write

.. math:: W = a\,A + q\,Q + r\,U,

Q the unit part of the start that is orthogonal to A, U uniform on the unit sphere of the rest (D − 2 dimensions).
Neither Q nor A nor the law of Z changes when the rest is rotated, so U stays uniform and independent of (a, q, r), and
the ascent step (:mod:`tpca.solvers.paper.step`) moves

.. math::
    g_a = s + z_a, \quad g_q = z_q, \quad g_u = z_u, \qquad R = (a g_a + q g_q + r g_u)/n, \quad n^2 = a^2+q^2+r^2

    a \leftarrow (1+\eta R)a + \eta n g_a, \quad q \leftarrow (1+\eta R)q + \eta n g_q, \quad
    r \leftarrow \sqrt{((1+\eta R)r + \eta n g_u)^2 + \eta^2 n^2 \chi^2_{D-3}}

with three normals and one chi-square variable a step: the cost does not depend on D.  A step on the mean of τ samples
with step size τη has the same form, noise divided by :math:`\sqrt\tau`; that is how a run of 10¹³ samples is simulated
(``coarse`` in :mod:`tpca.lab.simulate.paper`).

=========  =====================================
symbol     argument
=========  =====================================
(a, q, r)  a row of ``coordinates``, (R, 3)
s          ``signals`` (R,)
η, τ       ``step_sizes``, ``batches``
D          ``size``
=========  =====================================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tpca.errors import ModelError
from tpca.jit import compiled
from tpca.tensors.blocks import Array

# Steps in one call of the compiled loop: a second or so, after which Ctrl-C is heard.
CALL = 10_000_000


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
    if size < 2:
        raise ModelError(f"a block needs at least 2 entries, got {size}.")
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
