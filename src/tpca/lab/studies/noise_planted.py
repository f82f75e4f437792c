r"""Signals in noise that is not white, as strong as asked for where it counts.

The strength that decides how many samples a method needs is that of the whitened signal, the *generalised*
signal-to-noise ratio: noise :math:`A Z` with :math:`A = A_1\otimes\dots\otimes A_k` and white Z, signal
:math:`\lambda\, v_1\otimes\dots\otimes v_k`,

.. math:: T_t = \lambda\, v_1\otimes\dots\otimes v_k + A Z_t = A\,(\lambda' u_1\otimes\dots\otimes u_k + Z_t), \qquad
    u_i = A_i^{-1}v_i / \|A_i^{-1}v_i\|, \qquad \lambda = \lambda' / \prod_i\|A_i^{-1}v_i\| .

A method that whitens perfectly sees λ' in white noise.  Noise that is no Kronecker product (factors, levels, serial) is
added as it is, with λ in units of its white part.

Vectors v: ``rough`` are uniform on the sphere, far from what smooth noise looks like; ``smooth`` are half waves
sin(π(a + ½)/d), which smooth noise looks like.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.lab.studies.noise_laws import LAWS, Dims, Rng, coloured, scale_roots, smooth_roots
from tpca.model import SpikedTensor
from tpca.tensors.blocks import Array, unit

ROOTS: dict[str, Callable[[Rng, Dims], list[Array]]] = {
    "white": lambda _, dims: [np.eye(d) for d in dims],
    "smooth0.9": smooth_roots(0.9),
    "scales": scale_roots,
}


@dataclass(frozen=True)
class Planted:
    """Samples with a signal, the truth in the units of the data, and the roots A_i of the noise, if it has any."""

    samples: Array
    truth: SpikedTensor
    roots: tuple[Array, ...] = ()

    def overlaps(self, vectors: Sequence[Array]) -> Array:
        """Overlaps with the truth where the noise is white, of A_i⁻¹v̂ and A_i⁻¹v: what white noise would show.

        In the data themselves the loudest rows say little of whether a signal is the right one.
        """
        roots = self.roots or tuple(np.eye(len(v)) for v in vectors)
        seen = [
            [np.linalg.solve(a, v) for a, v in zip(roots, each, strict=True)] for each in (vectors, self.truth.vectors)
        ]
        return np.array(
            [abs(float(v @ w)) / float(np.linalg.norm(v) * np.linalg.norm(w)) for v, w in zip(*seen, strict=True)]
        )


def rough(rng: Rng, d: int) -> Array:
    """Uniform on the sphere."""
    return unit(rng.standard_normal(d))


def half_wave(_: Rng, d: int) -> Array:
    """sin(π(a + ½)/d)."""
    return unit(np.sin(math.pi * (np.arange(d) + 0.5) / d))


VECTORS: dict[str, Callable[[Rng, int], Array]] = {"rough": rough, "smooth": half_wave}


def planted(law: str, vectors: str, strength: float, rng: Rng, n: int, dims: Dims) -> Planted:
    """Samples with a signal of generalised strength λ'; of strength λ where the law has no roots."""
    v = tuple(VECTORS[vectors](rng, d) for d in dims)
    if law not in ROOTS:
        truth = SpikedTensor(v, strength)
        return Planted(LAWS[law](rng, n, dims) + truth.signal(), truth)
    roots = ROOTS[law](rng, dims)
    whitened = [np.asarray(np.linalg.solve(a, b), dtype=np.float64) for a, b in zip(roots, v, strict=True)]
    seen = strength * functools.reduce(np.multiply.outer, [unit(u) for u in whitened])
    truth = SpikedTensor(v, strength / math.prod(float(np.linalg.norm(u)) for u in whitened))
    return Planted(coloured(rng.standard_normal((n, *dims)) + seen, roots), truth, tuple(roots))
