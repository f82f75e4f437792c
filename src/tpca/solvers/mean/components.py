r"""Several components of one tensor: each searched for in what the ones before leave, all refined together.

After every new component all are refitted in turn, each to the tensor without the others, until they stand still:

.. math:: v_{c,m} \leftarrow \mathrm{unit}\Bigl(X \cdot_{i\ne m} v_{c,i} -
    \sum_{c'\ne c} Z_{c'} \prod_{i\ne m}\langle v_{c,i}, v_{c',i}\rangle\, v_{c',m}\Bigr), \qquad Z_c = \|\cdot\| .

What an inaccurate estimate leaves would otherwise be found as another component, and components that are not orthogonal
would bend each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tpca.solvers.mean.climb import MOVE_TOL
from tpca.solvers.mean.fit import best_fit
from tpca.solvers.rank_one import along, alternate, deflated, is_ghost
from tpca.tensors import RankOne
from tpca.tensors.blocks import Array

MAX_ROUNDS = 500


def find_components(
    tensor: Array,
    first: RankOne,
    most: int,
    rng: np.random.Generator,
    proven: Callable[[RankOne, Sequence[RankOne]], bool],
) -> list[RankOne]:
    """Up to ``most`` components, beginning with ``first``, as long as each is ``proven`` besides those before it.

    The next one is searched for in ``tensor`` itself, from which the others are subtracted meanwhile: no copy is made.
    """
    found: list[RankOne] = []
    candidate = first
    while not any(is_ghost(candidate.vectors, other.vectors) for other in found) and proven(candidate, found):
        found = _refit(tensor, [*found, candidate])
        if len(found) == most:
            break
        for component in found:
            _add(tensor, component, -1.0)
        candidate = best_fit(tensor, rng)
        for component in found:
            _add(tensor, component, 1.0)
    return found


def _refit(tensor: Array, components: list[RankOne]) -> list[RankOne]:
    """All components, each fitted to the tensor without the others, until they stand still."""
    if len(components) == 1:
        return components
    for _ in range(MAX_ROUNDS):
        moved = 0.0
        for place, one in enumerate(components):
            others = components[:place] + components[place + 1 :]
            components[place] = _sweep(tensor, one, others)
            pairs = zip(one.vectors, components[place].vectors, strict=True)
            moved += sum(float(np.sum((v - w) ** 2)) for v, w in pairs)
        if moved < MOVE_TOL:
            break
    return components


def _sweep(tensor: Array, one: RankOne, others: Sequence[RankOne]) -> RankOne:
    def gradient(vectors: Sequence[Array], mode: int) -> Array:
        return deflated(along(tensor, vectors, mode), vectors, mode, others)

    vectors, value = alternate(gradient, one.vectors, 1)
    return RankOne(float(value), tuple(vectors))


def _add(tensor: Array, component: RankOne, sign: float) -> None:
    """Add a component in place, or subtract it, a slice of the first mode at a time."""
    first, *others = component.vectors
    ray = others[0]
    for v in others[1:]:
        ray = np.multiply.outer(ray, v)
    for weight, part in zip(first, tensor, strict=True):
        part += (sign * component.strength * weight) * ray
