r"""The paper's initialisation (Eq. init-setting and init-setting-odd), all sign combinations.

.. math::
    W_m^{(0)} = \pm\frac{1}{2\sqrt{d}}\,(I\;0) \;\pm\; \frac12\,\bar u\,\bar u'^\top, \qquad
    w_1^{(0)} = \pm\bar u \;\text{(odd order)},

u, u' standard normal, drawn once and shared by all starts: 4^k starts at order 2k, 2^{2k+1} at order 2k+1, 2^k̄
either way.

At odd order half of them are the other half over again: −w_1 with a pair's W_m is w_1 with −W_m.  With ``spare`` the
second choice of the vector block is another random vector instead of −w_1: a vector that stands still in Phase I has
nothing but its start, and of two starts the better one counts.
"""

from __future__ import annotations

import itertools

import numpy as np

from tpca.tensors.blocks import Array, Partition, Replicas, unit


def sign_starts(partition: Partition, rng: np.random.Generator, spare: bool = False) -> Replicas:
    """All 2^k̄ starts as replicas: one array ``(2^k̄, *block shape)`` per block."""
    choices = [_choices(shape, rng, spare) for shape in partition.shapes]
    starts = list(itertools.product(*choices))
    return tuple(np.stack([start[m] for start in starts]) for m in range(len(choices)))


def identity(shape: tuple[int, ...]) -> Array:
    """(I 0): ones on the diagonal of a d × d' block, d ≤ d'."""
    rows, columns = shape
    return np.eye(rows, columns)


def _choices(shape: tuple[int, ...], rng: np.random.Generator, spare: bool) -> list[Array]:
    """What a block may begin with: all signs of identity and random part of a pair; of a vector ±u, or u and u'."""
    vectors = [unit(rng.standard_normal(length)) for length in shape]
    if len(shape) == 1:
        return [vectors[0], unit(rng.standard_normal(shape[0])) if spare else -vectors[0]]
    parts = [identity(shape) / (2 * np.sqrt(shape[0])), np.multiply.outer(*vectors) / 2]
    return [e * parts[0] + f * parts[1] for e, f in itertools.product((1.0, -1.0), repeat=2)]
