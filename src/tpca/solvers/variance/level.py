r"""What noise gives along a pattern, told from everything but the pattern itself.

*Noise* is what has a separable covariance, :math:`C_1\otimes\dots\otimes C_k` at any scale: white, smooth along some
modes, louder in some entries.  Along unit vectors u its variances obey, with
:math:`\tau = \mathbb E\lVert T\rVert^2` and :math:`a_i = u_i^\top A_i u_i = \mathbb E\lVert T(u_i)\rVert^2`,

.. math:: \operatorname{Var}\langle T, u\rangle\;\tau^{k-1} = \prod_i a_i .

A component :math:`a\,v_1\otimes\dots\otimes v_k` along u adds to the variance V, and as much to τ and every
:math:`a_i`.  So V is taken out of these, and what separable noise alone would give along u is the V_0 with

.. math:: V_0\,(\tau - V + V_0)^{k-1} = \prod_i (a_i - V + V_0) ,

of which :math:`V - V_0` is left for the component, however strong it is.  For k = 2 that is
:math:`V_0 = (a_1 - V)(a_2 - V)/(\tau - a_1 - a_2 + V)`.  The gradient of the variance without that of the noise is

.. math:: N_i = G_i - \frac{V_0}{a_i - V}\,(H_i - G_i), \qquad u_i^\top N_i = V - V_0 ,

for :math:`H_i - G_i` is what u_i has in common with the other entries of mode i off the pattern, in proportion to
:math:`C_iu_i`.  In separable noise with one component :math:`N_i = s^2\langle u_i, v_i\rangle\prod_{j\ne i}\langle u_j,
v_j\rangle^2\,v_i`, whatever u is: one step leads to v.

==========  =======================================
symbol      code
==========  =======================================
V, τ, a_i   ``variance``, ``total``, ``along``
V_0, N_i    ``level``, ``excess_gradients``
==========  =======================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpca.solvers.variance.products import SecondMoments
from tpca.tensors.blocks import Array

STEPS = 60  # of the iteration for V_0, each of which more than halves its error in all but the smallest tensors
ACCURATE, CLOSE = 0.01, 0.25  # squared errors of all vectors together: next to nothing, and small
# Of V, of τ, and at all: what noise gives along a pattern, or next to it, is never taken to be less.  A few samples
# vary along few patterns only, elsewhere by rounding: in units of that, steps would leave the range of floats.
MIN_SHARE, MIN_OF_TOTAL, MIN_LEVEL = 1e-12, 1e-40, 1e-200


def noise_level(variance: Array, total: Array, along: Array) -> Array:
    """V_0 of patterns with these numbers; ``along`` is ``(..., k)``."""
    off = np.maximum(along - variance[..., None], 0.0)
    rest = np.maximum(total - variance, least_noise(variance, total))
    scaled = off / rest[..., None]
    share = np.prod(scaled, axis=-1)  # V_0 over the total that is left
    for _ in range(STEPS):
        share = np.prod(scaled + share[..., None], axis=-1) / (1 + share) ** (along.shape[-1] - 1)
    return np.asarray(np.maximum(share * rest, least_noise(variance, total)))


def least_noise(variance: Array, total: Array | float) -> Array:
    """The least that noise is taken to be, beside a variance V of the total τ."""
    return np.maximum(np.maximum(MIN_SHARE * variance, MIN_OF_TOTAL * total), MIN_LEVEL)


def told_plainly(bare: Array, filtered: Array, entries: int, freedom: float) -> Array:
    """Whether patterns need no filters, from x = V/V_0 - 1 without (``bare``) and with them.

    Σd (1 + x)/(x² n), about the squared error of all vectors, is next to nothing; or small, and x no smaller.
    """
    x = np.maximum(bare, 1e-9)
    error = entries * (1 + x) / (x**2 * freedom)
    return np.asarray((error < ACCURATE) | ((error < CLOSE) & (bare >= filtered)))


def levels_of(moments: SecondMoments, queries: Sequence[Array]) -> tuple[Array, Array]:
    """V and V_0 of every query."""
    along = np.stack([np.einsum("rd,rd->r", h, u) for h, u in zip(moments.energies, queries, strict=True)], axis=-1)
    total = np.full(len(moments.squares), moments.total)
    return moments.squares, noise_level(moments.squares, total, along)


def excess_gradients(moments: SecondMoments, queries: Sequence[Array], levels: Array) -> list[Array]:
    """N_i, ``(R, d_i)``, of the first queries, for which there are ``levels``."""
    found = []
    for g, h, u in zip(moments.gradients, moments.energies, queries, strict=True):
        some = slice(0, len(levels))
        squares = moments.squares[some]
        off = np.maximum(np.einsum("rd,rd->r", h[some], u[some]) - squares, least_noise(squares, moments.total))
        found.append(g[some] - (levels / off)[:, None] * (h[some] - g[some]))
    return found
