r"""Several components of one tensor: each searched for in what the ones before leave, all refined together.

After every new component all are refitted in turn, each to the tensor without the others, until they stand still:

.. math:: v_{c,m} \leftarrow \mathrm{unit}\Bigl(X \cdot_{i\ne m} v_{c,i} -
    \sum_{c'\ne c} Z_{c'} \prod_{i\ne m}\langle v_{c,i}, v_{c',i}\rangle\, v_{c',m}\Bigr), \qquad Z_c = \|\cdot\| .

What an inaccurate estimate leaves would otherwise be found as another component, and components that are not orthogonal
would bend each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.solvers.mean.fit import STILL, best_fits
from tpca.solvers.race.components import GHOST
from tpca.solvers.rank_one import along
from tpca.tensors.blocks import Array, unit

MOST_ROUNDS = 500


@dataclass(frozen=True)
class Component:
    """``value`` times the outer product of unit ``vectors``."""

    value: float
    vectors: tuple[Array, ...]


def find_components(
    tensor: Array, first: Component, most: int, rng: np.random.Generator, proven: Callable[[Component], bool]
) -> list[Component]:
    """Up to ``most`` components, beginning with ``first``, as long as each is ``proven``; strongest first.

    The next one is searched for in ``tensor`` itself, from which the others are subtracted meanwhile: no copy is made.
    """
    found: list[Component] = []
    candidate = first
    while proven(candidate) and not any(_ghost(candidate, other) for other in found):
        found = _refit(tensor, [*found, candidate])
        if len(found) == most:
            break
        for component in found:
            _add(tensor, component, -1.0)
        vectors, (value,) = best_fits(tensor[None], rng)
        for component in found:
            _add(tensor, component, 1.0)
        candidate = Component(float(value), tuple(v[0] for v in vectors))
    return sorted(found, key=lambda c: -c.value)


def _refit(tensor: Array, components: list[Component]) -> list[Component]:
    """All components, each fitted to the tensor without the others, until they stand still."""
    if len(components) == 1:
        return components
    for _ in range(MOST_ROUNDS):
        moved = 0.0
        for place, one in enumerate(components):
            others = components[:place] + components[place + 1 :]
            components[place] = _sweep(tensor, one, others)
            pairs = zip(one.vectors, components[place].vectors, strict=True)
            moved += sum(float(np.sum((v - w) ** 2)) for v, w in pairs)
        if moved < STILL:
            break
    return components


def _sweep(tensor: Array, one: Component, others: Sequence[Component]) -> Component:
    vectors, value = list(one.vectors), one.value
    for mode in range(len(vectors)):
        gradient = along(tensor, vectors, mode)
        for other in others:
            inner = (float(v @ w) for i, (v, w) in enumerate(zip(vectors, other.vectors, strict=True)) if i != mode)
            gradient = gradient - other.value * math.prod(inner) * other.vectors[mode]
        value = float(np.linalg.norm(gradient))
        vectors[mode] = unit(gradient)
    return Component(value, tuple(vectors))


def _add(tensor: Array, component: Component, sign: float) -> None:
    """Add a component in place, or subtract it, a slice of the first mode at a time."""
    first, *others = component.vectors
    ray = others[0]
    for v in others[1:]:
        ray = np.multiply.outer(ray, v)
    for weight, part in zip(first, tensor, strict=True):
        part += (sign * component.value * weight) * ray


def _ghost(candidate: Component, other: Component) -> bool:
    """Whether a component has all vectors of a known one, or all but one: together they are still of rank one."""
    pairs = zip(candidate.vectors, other.vectors, strict=True)
    return sum(abs(float(v @ w)) > GHOST for v, w in pairs) >= len(candidate.vectors) - 1
