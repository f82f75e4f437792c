r"""Whitening, mode by mode, by second moments *about zero* of R/|R|, which flips of signs do not change.

For every mode m in turn, with the modes before it whitened already,

.. math:: \Sigma_m \propto \sum_i R_{i(m)}R_{i(m)}^\top/|R_i|^2, \qquad
    W_m = \left((1-\alpha)\Sigma_m + \alpha I\right)^{-1/2},

where :math:`R_{i(m)}` is the unfolding of what is left of sample i without the nuisances, of mean variance one, and α
shrinks more where there are few numbers.  Whitening sharpens a test; it never moves an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpca.checkpoint import kept
from tpca.inference.regression import PIECE
from tpca.tensors.blocks import Array

LONGEST = 2048  # entries; a longer mode is left as it is: its d² numbers would cost more than they tell
MOST_LOUD = 6  # directions that are taken down at most
LOUD = 2.0  # times as loud as the next


def by_pieces(function: Callable[[Array], Array], rows: Array) -> Array:
    """A function of tensors (n, *dims) that gives as many of that shape, of a few at a time: its copies stay small."""
    values = np.empty_like(rows)
    step = max(1, PIECE // max(1, rows[0].size))
    for start in range(0, len(rows), step):
        values[start : start + step] = function(rows[start : start + step])
    return values


def sphere(rows: Array) -> Array:
    """Every row divided by its length."""
    flat = rows.reshape(len(rows), -1)
    length = np.sqrt(np.vecdot(flat, flat)) + 1e-300
    return np.asarray(rows / length.reshape(-1, *[1] * (rows.ndim - 1)))


@kept
@dataclass(frozen=True)
class Whitening:
    """A symmetric matrix for every mode, and its inverse; ``None`` for a mode that is left as it is.

    Modes that tensors have before these, such as contrasts of labels, are left as they are.
    """

    maps: tuple[Array | None, ...]
    inverses: tuple[Array | None, ...]

    def __call__(self, rows: Array) -> Array:
        """Tensors (n, ..., *dims), whitened."""

        def white(some: Array) -> Array:
            for axis, map_ in enumerate(self.maps, -len(self.maps)):
                some = some if map_ is None else _applied(map_, some, axis)
            return some

        return by_pieces(white, rows)

    def of_vectors(self, vectors: Sequence[Array]) -> list[Array]:
        """Unit vectors of whitened tensors from those in the coordinates of the data."""
        return [v / max(float(np.linalg.norm(v)), 1e-300) for v in _mapped(self.maps, vectors)]

    def back(self, vectors: Sequence[Array]) -> list[Array]:
        """Vectors of whitened tensors in the coordinates of the data: not unit vectors."""
        return _mapped(self.inverses, vectors)


def _mapped(maps: Sequence[Array | None], vectors: Sequence[Array]) -> list[Array]:
    before = len(vectors) - len(maps)
    each = zip(maps, vectors[before:], strict=True)
    return [*vectors[:before], *(v if map_ is None else map_ @ v for map_, v in each)]


def longest_within(nbytes: float, most: int = LONGEST) -> int:
    """The longest mode whose moments and maps, six matrices at a time, take half of so many bytes."""
    return int(min(most, math.sqrt(nbytes / 96)))


def learn_whitening(rows: Array, longest: int = LONGEST) -> Whitening:
    """Whitening learnt from tensors (n, *dims) of length one, which are whitened in place.

    Modes longer than ``longest`` are left alone.
    """
    pairs: list[tuple[Array | None, Array | None]] = []
    for axis, length in enumerate(rows.shape[1:], 1):
        if length > longest or length == 1:
            pairs.append((None, None))
            continue
        map_, inverse = map_of(second_moments(rows, axis), rows.size // length)
        pairs.append((map_, inverse))
        for piece in pieces_of(rows):
            rows[piece] = _applied(map_, rows[piece], axis)
    return Whitening(tuple(map_ for map_, _ in pairs), tuple(inverse for _, inverse in pairs))


def second_moments(rows: Array, axis: int) -> Array:
    """Σ over tensors of the products of their unfoldings along an axis with themselves, (d, d).

    Products are formed in the precision of the rows, of a few at a time, and added up in double precision.
    """
    length = rows.shape[axis]
    moments = np.zeros((length, length))
    for piece in pieces_of(rows):
        unfolding = np.moveaxis(rows[piece], axis, 0).reshape(length, -1)
        moments += unfolding @ unfolding.T
    return moments


def pieces_of(rows: Array) -> Iterator[slice]:
    """A few tensors at a time: copies of them stay small."""
    step = max(1, PIECE // max(1, rows[0].size))
    for start in range(0, len(rows), step):
        yield slice(start, start + step)


def map_of(moment: Array, columns: int) -> tuple[Array, Array]:
    """W_m and its inverse from a sum of second moments over so many ``columns`` of unfoldings."""
    d = len(moment)
    trace = np.trace(moment) / d
    moment = moment / trace if trace > 0 else np.eye(d)
    shrink = min(1.0, 5 * d / max(columns, 1) + 0.01)
    values, axes = np.linalg.eigh((1 - shrink) * moment + shrink * np.eye(d))
    return (axes / np.sqrt(values)) @ axes.T, (axes * np.sqrt(values)) @ axes.T


@dataclass(frozen=True)
class LoudDirections:
    """The few loudest directions (c, entries) of residuals, and factors that bring them to the level of the others."""

    directions: Array
    factors: Array

    def take_down(self, rows: Array) -> None:
        """Make these directions of tensors (n, ..., *dims) as quiet as others, in place."""
        directions = self.directions.astype(rows.dtype, copy=False)
        for piece in pieces_of(rows):
            flat = rows[piece].reshape(-1, directions.shape[1])
            excess = (flat @ directions.T) * (1 - self.factors)
            flat -= excess.astype(rows.dtype, copy=False) @ directions


def loud_directions(rows: Array) -> LoudDirections:
    """Those of whitened residuals, none if there are no more than six; ``rows`` are some hundred at most."""
    flat = rows.reshape(len(rows), -1)
    values, axes = np.linalg.eigh(flat @ flat.T / len(flat))
    values, axes = values[::-1], axes[:, ::-1]
    if len(values) <= MOST_LOUD or values[MOST_LOUD] < 1e3 * np.finfo(values.dtype).eps * values[0]:  # rounding
        return LoudDirections(np.zeros((0, flat.shape[1])), np.zeros(0))
    loud = np.flatnonzero(values[:MOST_LOUD] > LOUD * values[MOST_LOUD])
    level = values[MOST_LOUD:].sum() / flat.shape[1]
    directions = (axes[:, loud].T @ flat) / np.sqrt(len(flat) * values[loud])[:, None]
    return LoudDirections(directions, np.sqrt(np.minimum(1, level / values[loud])))


def _applied(map_: Array, rows: Array, axis: int) -> Array:
    """Tensors with all vectors along an axis multiplied by a symmetric map."""
    map_ = map_.astype(rows.dtype, copy=False)
    after = math.prod(rows.shape[axis:][1:])
    if after == 1:
        return np.asarray(rows.reshape(-1, len(map_)) @ map_).reshape(rows.shape)
    return np.asarray(np.matmul(map_, rows.reshape(-1, len(map_), after))).reshape(rows.shape)
