r"""Modes grouped into blocks, and replicas of all blocks as stacked arrays.

A *block* is a group of modes with one parameter array of that shape.  A :class:`Partition` says which modes
belong together; it is the only place where the order of a tensor, its parity and its dims are looked at:

==========================  ==============================================================
paper, order k̄ = 2k         k blocks of two modes, ``W_m`` stands for ``v_{2m-1} v_{2m}^T``
paper, order k̄ = 2k+1       block 1 holds one mode (the vector ``w_1``), k blocks of two
two blocks (unfolding)      A | B, as even as possible
singles                     one block per mode (the exact vector parameterisation)
==========================  ==============================================================

The paper assumes d_1 <= ... <= d_k̄.  :meth:`Partition.pairs` sorts the modes by length, so blocks name the
*user's* modes and every answer is already in the user's order.

*Replicas* are running copies of all blocks: a tuple with one array per block, shape ``(R, *block shape)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.checkpoint import kept
from tpca.errors import ModelError, PartitionError, check_integer

FEW = 2**11  # entries that a cast converts sooner than four calls do
BEYOND = np.float32(2.0**16)  # what is as large becomes infinite in float16

Array = NDArray[np.float64]
Replicas = tuple[Array, ...]


def check_dims(dims: Iterable[int], least: int = 2) -> tuple[int, ...]:
    """Return ``dims`` as a tuple of ints; ``least`` modes at least, each at least 2 long."""
    checked = tuple(check_integer("the length of an axis", d, 0, ModelError) for d in dims)
    if len(checked) < least:
        raise ModelError(f"dims must have at least {least} axes, got {checked}.")
    if min(checked) < 2:
        raise ModelError(f"every axis must be at least 2 long, got dims {checked}; squeeze axes of length 1 away.")
    return checked


@kept
@dataclass(frozen=True)
class Partition:
    """Modes of a tensor of shape ``dims`` grouped into blocks; ``groups`` lists the modes of each block."""

    dims: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", check_dims(self.dims))
        object.__setattr__(self, "groups", tuple(tuple(int(n) for n in group) for group in self.groups))
        modes = sorted(n for group in self.groups for n in group)
        if modes != list(range(len(self.dims))) or not all(self.groups):
            raise PartitionError(
                f"partition {self.groups} must name each of the axes 0..{len(self.dims) - 1} exactly once, "
                "in non-empty groups."
            )

    @classmethod
    def pairs(cls, dims: Sequence[int]) -> Partition:
        """The paper's blocks: neighbours in order of length; at odd order the shortest mode stands alone."""
        by_length = sorted(range(len(dims)), key=lambda n: (dims[n], n))
        odd = len(dims) % 2
        single = [(by_length[0],)] if odd else []
        rest = by_length[odd:]
        return cls(tuple(dims), tuple(single + list(zip(rest[::2], rest[1::2], strict=True))))

    @classmethod
    def singles(cls, dims: Sequence[int]) -> Partition:
        """One block per mode."""
        return cls(tuple(dims), tuple((n,) for n in range(len(dims))))

    @classmethod
    def halves(cls, dims: Sequence[int]) -> Partition:
        """Two blocks A | B, |A| <= |B| in entries, as even as possible; contiguous modes win a tie."""
        order, total = len(dims), math.prod(dims)

        def imbalance(mask: int) -> tuple[int, int, int]:
            size = math.prod(d for n, d in enumerate(dims) if mask >> n & 1)
            seams = sum((mask >> n & 1) != (mask >> (n - 1) & 1) for n in range(1, order))
            return (max(size, total // size), seams, size)

        best = min(range(1, 2**order - 1), key=imbalance)
        a = tuple(n for n in range(order) if best >> n & 1)
        b = tuple(n for n in range(order) if not best >> n & 1)
        return cls(tuple(dims), (a, b))

    @functools.cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each block."""
        return tuple(tuple(self.dims[n] for n in group) for group in self.groups)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each block."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def order(self) -> int:
        """Number of modes k̄."""
        return len(self.dims)

    def __len__(self) -> int:
        return len(self.groups)

    def outer(self, vectors: Sequence[Array]) -> tuple[Array, ...]:
        """One array per block: the outer product of the block's vectors (``vectors`` in mode order)."""
        return tuple(
            functools.reduce(np.multiply.outer, (np.asarray(vectors[n], dtype=np.float64) for n in group))
            for group in self.groups
        )


def unit(array: Array) -> Array:
    """``array`` divided by its Euclidean (Frobenius) norm; a zero array is returned as it is."""
    norm = math.sqrt(np.vdot(array, array))
    return array / norm if norm > 0 else array


def widened(half: NDArray[Any]) -> NDArray[Any]:
    """A copy of finite float16 as float32: :func:`widen`."""
    wide: NDArray[Any] = np.empty(half.shape, np.float32)
    widen(half, wide)
    return wide


def widen(half: NDArray[Any], wide: NDArray[Any]) -> None:
    """Copy finite float16 to float32, by shifting bits: four times as fast as a cast that hardware does not do.

    Sign and exponent move to their places in float32; the difference of the exponents' offsets is a factor 2^112, exact
    for denormal numbers, too.  Infinity and NaN would come out as numbers: replicas are finite.
    """
    if half.dtype != np.float16 or half.size < FEW:
        wide[...] = half
        return
    bits = wide.view(np.int32)
    bits[...] = half.view(np.int16)
    bits <<= 13
    bits &= np.int32(-0x70000001)  # sign bits were copied into the three places between sign and exponent
    wide *= np.float32(2.0**112)


def narrowed(wide: NDArray[Any], half: NDArray[Any]) -> None:
    """Copy float32, which is used up, to float16, rounded to the nearest, by shifting bits; infinite where too large.

    The inverse of :func:`widen`, and two or three times as fast as a cast that hardware does not do.
    """
    if half.dtype != np.float16 or wide.dtype != np.float32:
        half[...] = wide
        return
    bits, target = wide.view(np.int32), half.view(np.int16)
    if not (wide.min() > -BEYOND and wide.max() < BEYOND):  # which takes half as long as to clip
        np.clip(wide, -BEYOND, BEYOND, out=wide)
    wide *= np.float32(2.0**-112)
    bits += np.int32(0x1000)
    signs = bits & np.int32(-0x80000000)
    signs >>= 3  # into the place that the sign of float16 has, and the three above it
    bits ^= signs
    bits >>= 13
    target[...] = bits
