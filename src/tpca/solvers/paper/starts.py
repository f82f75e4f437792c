r"""The paper's initialisation (Eq. init-setting and init-setting-odd), all sign combinations.

.. math::
    W_m^{(0)} = \pm\frac{1}{2\sqrt{d}}\,(I\;0) \;\pm\; \frac12\,\bar u\,\bar u'^\top, \qquad
    w_1^{(0)} = \pm\bar u \;\text{(odd order)},

u, u' standard normal, drawn once and shared by all starts: 4^k starts at order 2k, 2^{2k+1} at order 2k+1, 2^k̄
either way.
"""

from __future__ import annotations

import itertools

import numpy as np

from tpca.tensors.blocks import Array, Partition, Replicas, unit


def sign_starts(partition: Partition, rng: np.random.Generator) -> Replicas:
    """All 2^k̄ starts as replicas: one array ``(2^k̄, *block shape)`` per block."""
    parts = [_parts(shape, rng) for shape in partition.shapes]
    choices = [list(itertools.product((1.0, -1.0), repeat=len(part))) for part in parts]
    starts = list(itertools.product(*choices))
    return tuple(
        np.stack([sum(sign * piece for sign, piece in zip(start[m], parts[m], strict=True)) for start in starts])
        for m in range(len(parts))
    )


def identity(shape: tuple[int, ...]) -> Array:
    """(I 0): ones on the diagonal of a d × d' block, d ≤ d'."""
    rows, columns = shape
    return np.eye(rows, columns)


def _parts(shape: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """The pieces of a start that carry a sign of their own: identity and random for a pair, random for a vector."""
    if len(shape) == 1:
        return [unit(rng.standard_normal(shape[0]))]
    random = np.multiply.outer(unit(rng.standard_normal(shape[0])), unit(rng.standard_normal(shape[1])))
    return [identity(shape) / (2 * np.sqrt(shape[0])), random / 2]
