r"""The search: leading rank-one parts λ v⊗…⊗v of a symmetric moment, by its gradients.

One sweep of L vectors u_l, whose gradients g(u) cost one pass of O(n·d) each:

.. math::
    u \leftarrow \pm\, \frac{g(u) - \sum_c \lambda_c\langle u, v_c\rangle^{k-1} v_c}{\|\cdot\|}, \qquad
    \lambda = \langle u, g(u)\rangle ,

the sum being over components known before: deflation inside the contraction.  Many starts climb by themselves for some
sweeps; what they reach is sorted by |λ|, and whatever differs is kept.  If that is too little, others start beside what
is known.  Then all climb together: whitened components are orthogonal, and the next orthonormal set is the one next to
the gradients, the polar factor of their matrix (Hyvärinen 1999's symmetric fixed point); rows that are not whitened
climb with the others deflated.

Independent sources can do better.  The turn θ of two of them, from u_i towards u_j, follows from either gradient,
⟨g_i, u_j⟩/κ_i and -⟨g_j, u_i⟩/κ_j, with errors of variance V_i and V_j and covariance -1/4 (times 1/n, first order, the
whitening from the same rows taken into account), so that the best of all weighted means is (as Koldovský, Tichavský and
Oja 2006 weigh pairs in EFICA)

.. math::
    \theta = \omega\,\frac{\langle g_i,u_j\rangle}{\kappa_i} - (1-\omega)\,\frac{\langle g_j,u_i\rangle}{\kappa_j},
    \quad \omega = \frac{V_j+\frac14}{V_i+V_j+\frac12}, \quad
    V\kappa^2 = \begin{cases} m_4-1-\frac34\kappa^2 & k = 3 \\ m_6-2cm_4+c^2-m_3^2,\ c=\frac{m_4+3}2 & k = 4\end{cases}

with m_p the moments of the scores; the polar factor alone weighs by |κ|.

Starts: eigenvectors of one slice of the moment, in which every component shows at once: Σ|z|²zzᵀ at order 4
(Cardoso 1989), Σ⟨t,z⟩zzᵀ with t = Σ|z|²z at order 3; and random orthonormal ones.

============  ======================================================
symbol        code
============  ======================================================
u, λ          rows of ``vectors``, ``strengths``
(λ_c, v_c)    ``known``
g             ``gradient``
============  ======================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tpca.solvers.rank_one import units
from tpca.tensors.blocks import Array

FIRST_SWEEPS, SWEEPS = 12, 60
MOVE_TOL = 1e-10  # squared change of a vector at which it is at rest
SAME = 0.7  # overlap above which two starts have reached the same component
MORE_STARTS = 3  # times that others start beside what is known
RANDOM_STARTS = 8

Gradient = Callable[[Array], Array]


class Found(NamedTuple):
    """Components: unit rows ``(c, q)`` and their strengths."""

    vectors: Array
    strengths: Array

    def sorted(self) -> Found:
        """The strongest first."""
        order = np.argsort(-np.abs(self.strengths), kind="stable")
        return Found(self.vectors[order], self.strengths[order])

    def first(self, count: int) -> Found:
        """The first of them."""
        return Found(self.vectors[:count], self.strengths[:count])


def none_of(q: int) -> Found:
    """No component."""
    return Found(np.zeros((0, q)), np.zeros(0))


def deflated_gradient(gradient: Array, vectors: Array, known: Found, order: int) -> Array:
    """Gradients without what known components add to them."""
    inner = vectors @ known.vectors.T
    return gradient - (known.strengths * inner ** (order - 1)) @ known.vectors


def sweep(gradient: Array, vectors: Array, known: Found, order: int) -> Found:
    """Every vector by itself, one step up from its gradient, in the complement of what is known."""
    own = deflated_gradient(gradient, vectors, known, order)
    own = own - (own @ known.vectors.T) @ known.vectors
    strengths = np.sum(vectors * own, axis=1)
    signs = np.where(strengths < 0, -1.0, 1.0)[:, None]
    norms = np.linalg.norm(own, axis=1, keepdims=True)
    return Found(np.where(norms > 0, signs * own / np.where(norms > 0, norms, 1.0), vectors), strengths)


def together(gradient: Array, vectors: Array) -> Found:
    """All vectors at once: the orthonormal set next to their gradients."""
    strengths = np.sum(vectors * gradient, axis=1)
    left, _, right = np.linalg.svd(np.sign(strengths)[:, None] * gradient, full_matrices=False)
    return Found(left @ right, strengths)


def balanced(gradient: Array, vectors: Array, variances: Array) -> Found:
    """All vectors at once, every pair turned by the best weighted mean of what its two gradients say."""
    inner = gradient @ vectors.T
    strengths = np.diagonal(inner).copy()
    safe = np.where(strengths == 0, 1.0, strengths)[:, None]
    weights = (variances[None, :] + 0.25) / (variances[:, None] + variances[None, :] + 0.5)
    ratio = weights * inner / safe
    turn = np.clip(ratio - ratio.T, -1.0, 1.0)
    outside = (gradient - inner @ vectors) / safe
    left, _, right = np.linalg.svd(vectors + turn @ vectors + outside, full_matrices=False)
    return Found(left @ right, strengths)


def beside_others(gradient: Array, vectors: Array, order: int) -> Found:
    """All vectors at once where they are not orthogonal: each with the others deflated."""
    strengths = np.sum(vectors * gradient, axis=1)
    inner = vectors @ vectors.T
    factors = strengths[None, :] * inner ** (order - 1)
    np.fill_diagonal(factors, 0.0)
    own = gradient - factors @ vectors
    signs = np.where(np.sum(own * vectors, axis=1) < 0, -1.0, 1.0)[:, None]
    return Found(signs * units(own), strengths)


def moved(before: Array, after: Array) -> float:
    """The largest squared change, whatever the signs."""
    overlap = np.abs(np.sum(before * after, axis=1))
    return float(2 * np.max(1 - np.minimum(overlap, 1.0), initial=0.0))


def climb(gradient: Gradient, starts: Array, known: Found, order: int, sweeps: int) -> Found:
    """Starts that climb by themselves."""
    vectors, strengths = starts, np.zeros(len(starts))
    for _ in range(sweeps):
        found = sweep(gradient(vectors), vectors, known, order)
        change, vectors, strengths = moved(vectors, found.vectors), found.vectors, found.strengths
        if change < MOVE_TOL:
            break
    return Found(vectors, strengths)


def different(reached: Found, known: Found) -> Found:
    """What is known, and whatever was reached beside it, the strongest first."""
    vectors, strengths = list(known.vectors), list(known.strengths)
    ordered = reached.sorted()
    for u, strength in zip(ordered.vectors, ordered.strengths, strict=True):
        if all(abs(u @ v) < SAME for v in vectors):
            vectors.append(u)
            strengths.append(strength)
    q = reached.vectors.shape[1]
    return Found(np.reshape(np.array(vectors), (-1, q)), np.array(strengths))


def search(gradient: Gradient, starts: Array, count: int, order: int, rng: np.random.Generator) -> Found:
    """About ``count`` components, from some starts and, if these are too few, from others beside what is known."""
    q = starts.shape[1]
    found = different(climb(gradient, starts, none_of(q), order, FIRST_SWEEPS), none_of(q))
    for _ in range(MORE_STARTS):
        if len(found.vectors) >= count:
            break
        base = orthonormal(found.first(count))
        more = units(_beside(rng.standard_normal((2 * (count - len(base.vectors)) + RANDOM_STARTS, q)), base))
        found = different(climb(gradient, more, base, order, FIRST_SWEEPS), base)
    return _filled(found.first(count), count, rng)


def refine(step: Callable[[Array], Found], found: Found) -> Found:
    """Components that climb together, ``step`` after step, until they are at rest."""
    vectors, strengths = found.vectors, found.strengths
    for _ in range(SWEEPS):
        after = step(vectors)
        change, vectors, strengths = moved(vectors, after.vectors), after.vectors, after.strengths
        if change < MOVE_TOL:
            break
    return Found(vectors, strengths)


def orthonormal(found: Found) -> Found:
    """The orthonormal set next to some vectors, which are independent."""
    if not len(found.vectors):
        return found
    left, _, right = np.linalg.svd(found.vectors, full_matrices=False)
    return Found(left @ right, found.strengths)


def random_starts(count: int, q: int, rng: np.random.Generator) -> Array:
    """At least ``count`` random unit vectors, orthonormal in sets of q."""
    sets = [np.linalg.qr(rng.standard_normal((q, q)))[0].T for _ in range(-(-count // q))]
    return np.concatenate(sets)[:count]


def _filled(found: Found, count: int, rng: np.random.Generator) -> Found:
    """As many as asked for: at last random ones, which climb together with the others."""
    missing = count - len(found.vectors)
    if missing <= 0:
        return found
    more = _beside(rng.standard_normal((missing, found.vectors.shape[1])), orthonormal(found))
    return Found(np.concatenate([found.vectors, units(more)]), np.concatenate([found.strengths, np.zeros(missing)]))


def _beside(vectors: Array, known: Found) -> Array:
    return vectors - (vectors @ known.vectors.T) @ known.vectors
