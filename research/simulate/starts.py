r"""The paper's starts in reduced coordinates, without building a block.

A pair's start :math:`W_0 = e\,\frac{(I\;0)}{2\sqrt d} + f\,\frac12 u u'^\top` (e, f signs, u, u' random unit vectors)
enters the chain only through

.. math::
    \langle W_0, A\rangle = e\,\frac{Cor(v, v')}{2\sqrt d} + f\,\tfrac12\langle u, v\rangle\langle u', v'\rangle, \qquad
    \|W_0\|^2 = \tfrac12 + e f\,\frac{Cor(u, u')}{2\sqrt d},

and a vector block's through :math:`f\langle u, v\rangle`, as that of any block with a rank-one start does through
:math:`f\prod\langle u, v\rangle`.  That is O(d); the block itself is built only when its final
iterate is asked for.  Leaving out the identity or the random part (``kind``) serves the study of initialisations.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from tpca.model import cor
from tpca.tensors.blocks import Array, unit


@dataclass(frozen=True)
class BlockStart:
    """One block's start: its random vectors, and the signs that its parts take."""

    truth: tuple[Array, ...]
    random: tuple[Array, ...]
    kind: str
    """``"both"``, ``"identity"`` or ``"random"``: the parts there are."""
    spare: tuple[Array, ...] = ()
    """Of a vector block: what it begins with instead of its start with the other sign."""

    @classmethod
    def draw(cls, truth: tuple[Array, ...], kind: str, rng: np.random.Generator, spare: bool = False) -> BlockStart:
        """Random vectors for a block; of three modes or more the random part is all there is."""
        random = tuple(unit(rng.standard_normal(len(v))) for v in truth)
        another = (unit(rng.standard_normal(len(truth[0]))),) if spare and len(truth) == 1 else ()
        return cls(truth, random, kind, another)

    @property
    def signs(self) -> list[tuple[float, ...]]:
        """All choices of the signs of the parts."""
        return list(itertools.product((1.0, -1.0), repeat=2 if self._mixed else 1))

    @property
    def _mixed(self) -> bool:
        return len(self.truth) == 2 and self.kind == "both"

    def coordinates(self, signs: tuple[float, ...]) -> Array:
        """(a, q, r) of the start scaled to unit length; r = 0."""
        if self._spared(signs):
            return replace(self, random=self.spare, spare=()).coordinates((1.0,))
        weights = self._weights(signs)
        overlaps, inner = self.overlaps()
        aligned = float(np.dot(weights, overlaps))
        norm = math.sqrt(weights @ inner @ weights)
        a = aligned / norm
        return np.array([a, math.sqrt(max(0.0, 1.0 - a * a)), 0.0])

    def block(self, signs: tuple[float, ...]) -> Array:
        """The start itself, scaled to unit length."""
        if self._spared(signs):
            return self.spare[0]
        parts = [part for part in self._parts() if part is not None]
        weights = self._weights(signs)[[part is not None for part in self._parts()]]
        return unit(np.tensordot(weights, np.stack(parts), axes=1))

    def _spared(self, signs: tuple[float, ...]) -> bool:
        return bool(self.spare) and signs[0] < 0

    def _weights(self, signs: tuple[float, ...]) -> Array:
        """Weight of the identity and of the random part."""
        if self._mixed:
            return np.array([signs[0], signs[1]]) / 2
        alone = signs[0]
        return np.array([alone, 0.0]) if len(self.truth) == 2 and self.kind == "identity" else np.array([0.0, alone])

    def overlaps(self) -> tuple[Array, Array]:
        """Inner products of the unit parts with the truth, and with each other."""
        random = math.prod(float(u @ v) for u, v in zip(self.random, self.truth, strict=True))
        if len(self.truth) != 2:
            return np.array([0.0, random]), np.eye(2)
        root = math.sqrt(min(len(v) for v in self.truth))
        both = cor(*self.random) / root
        return np.array([cor(*self.truth) / root, random]), np.array([[1.0, both], [both, 1.0]])

    def _parts(self) -> list[Array | None]:
        if len(self.truth) != 2:
            return [None, functools.reduce(np.multiply.outer, self.random)]
        shape = tuple(len(v) for v in self.truth)
        return [unit(np.eye(shape[0], shape[1])), np.multiply.outer(*self.random)]
