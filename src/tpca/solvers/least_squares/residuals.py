r"""The second pass: how samples scatter about the fit, and some of them for whitening.

With U = T − Aa − κD what is left of a sample, it contributes :math:`E_i = w_i\kappa_i\otimes U_i/S` to the error of D.
It is contracted with all vectors but one and turned into changes of the fit (:mod:`tpca.inference.scatter`); only sums
of squares over samples, or over the groups that the user gave, are kept.  The same in any order of the samples.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.errors import StreamError
from tpca.inference.design import Design, Indices
from tpca.inference.scatter import LARGEST_SYSTEM, Tangents, slopes
from tpca.inference.units import Contributions
from tpca.inference.whitening import Whitening, learn_whitening, longest_within, sphere
from tpca.solvers.least_squares.components import components_of
from tpca.solvers.rank_one import oriented
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array

DIGESTED = 4096  # entries of a sample that tell it from others
LONGEST_CUBES = 2**20  # entries of samples whose skewness is looked at


@dataclass(frozen=True, eq=False)
class Answer:
    """One question, answered: what units contribute to it, and the components, as ``tangents``."""

    name: str
    parts: Contributions
    tangents: Tangents
    whitening: Whitening | None = None

    @classmethod
    def of(cls, name: str, parts: Contributions, solver: Any) -> Answer:
        """The best rank-one components of the estimate; with ``whiten="modes"``, of the whitened one, carried back."""
        if not np.isfinite(np.vdot(parts.C, parts.C)):
            raise StreamError("sums of squares of the samples are not finite; divide them by some power of ten.")
        whitening, D = None, parts.D
        if solver.whiten == "modes":
            whitening = learn_whitening(sphere(parts.C), int(parts.stacked), longest_within(solver.budget()))
            D = whitening(D[None])[0]
        found, sizes = components_of(D, solver.n_components)
        if whitening is not None:
            back = [whitening.back(own) for own in found]
            norms = [[max(float(np.linalg.norm(v)), 1e-300) for v in own] for own in back]
            found = [[v / norm for v, norm in zip(*each, strict=True)] for each in zip(back, norms, strict=True)]
            sizes = sizes * [math.prod(each) for each in norms]
        tangents = Tangents([list(oriented(v)) for v in found], sizes, longest_within(solver.budget(), LARGEST_SYSTEM))
        return cls(name, parts, tangents, whitening)

    @property
    def vectors(self) -> Sequence[Sequence[Array]]:
        """Unit vectors of the components; of more than two labels, after that of the labels."""
        return self.tangents.vectors

    @property
    def sizes(self) -> Array:
        """Lengths of the components."""
        return self.tangents.strengths

    def left(self, z: Array, w: Array, samples: Array, seen: Any) -> tuple[Array, Array, list[list[Array]], float]:
        """U (n, *dims), R = U + κD, slopes of E for every component, and the energy Σ|S·E|² of these samples."""
        parts, n = self.parts, len(samples)
        a, kappa = parts.coefficients(z, entries=seen is not None)
        A, D = parts.background, parts.D.reshape(kappa.shape[1], -1)
        flat = samples.reshape(n, -1) - a @ A
        if seen is not None:  # one asked column, κ (n, 1, E)
            observed = np.asarray(seen, dtype=np.float64).reshape(n, -1)
            flat = flat * observed
            U = flat - kappa[:, 0] * D[0] * observed
            E = (w[:, None] * kappa[:, 0] * U * parts.alike / parts.S).reshape(samples.shape)
            energy = parts.S**2 * float(np.vdot(E, E))
            return U.reshape(samples.shape), flat, [slopes(E, v) for v in self.tangents.vectors], energy
        U = (flat - kappa @ D).reshape(samples.shape)
        each = []
        for vectors in self.tangents.vectors:
            if not parts.stacked:
                factor = w * kappa[:, 0] / parts.S
                each.append([factor[:, None] * s for s in slopes(U, vectors)])
                continue
            own = slopes(U, vectors[1:])
            along = own[0] @ vectors[1]
            factor = w * (kappa @ vectors[0]) / parts.S
            each.append([(w * along / parts.S)[:, None] * kappa, *(factor[:, None] * s for s in own)])
        rest = U.reshape(n, -1)
        return U, flat, each, float((w**2 * np.vecdot(kappa, kappa)) @ np.vecdot(rest, rest))


@kept
class Scatter:
    """Of one question: sums of squared ``changes`` (c, 1 + Σd) over samples or, in ``units``, changes of groups."""

    def __init__(self, squares: Any, energy: float, units: dict[int, Any]) -> None:
        self.squares, self.energy, self.units = squares, energy, units

    def plus(self, other: Scatter) -> Scatter:
        """Both."""
        units = dict(self.units)
        for number, changes in other.units.items():
            units[number] = units[number] + changes if number in units else changes
        return Scatter(self.squares + other.squares, self.energy + other.energy, units)


@kept
class Shape:
    """How the residuals of the first question are distributed: for advice only."""

    def __init__(
        self, n: int, square: float, fourth: float, loudest: float, squares: Any = None, cubes: Any = None
    ) -> None:
        self.n, self.square, self.fourth, self.loudest = n, square, fourth, loudest
        self.squares, self.cubes = squares, cubes

    def plus(self, other: Shape) -> Shape:
        """Both."""
        squares = None if self.squares is None else self.squares + other.squares
        cubes = None if self.cubes is None else self.cubes + other.cubes
        loudest = max(self.loudest, other.loudest)
        return Shape(self.n + other.n, self.square + other.square, self.fourth + other.fourth, loudest, squares, cubes)

    @property
    def kurtosis(self) -> float:
        """Of all entries together; 3 for normal noise of one size."""
        return self.fourth / max(self.square**2, 1e-300) * self.n

    @property
    def skewness(self) -> float:
        """Median size of the skewness of entries; 0 where it was not looked at."""
        if self.squares is None or self.cubes is None:
            return 0.0
        vary = self.squares > 0
        if not vary.any():
            return 0.0
        each = np.abs(self.cubes[vary]) / self.squares[vary] ** 1.5
        return float(np.median(each)) * math.sqrt(self.n / len(self.squares))


@kept
class Residuals(Accumulator):
    """Fills a :class:`Scatter` for every question, keeps samples at some places, and digests of all.

    ``units`` are those of errors, by place; ``None`` where every sample is one.
    """

    def __init__(self, design: Design, fits: Sequence[Answer], keep: Indices, size: int | None) -> None:
        super().__init__(design, fits, keep, size)
        self.scatters: list[Scatter] = []
        self.shape: Shape | None = None
        self.samples: dict[int, Any] = {}
        self.digests: dict[int, None] = {}
        self.copies = 0

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Look at every sample."""
        design, fits, keep, size = self.question
        for some, samples, seen in batch.dense_pieces():
            places = batch.places[some]
            z, w = design.rows(places)
            found = []
            for number, fit in enumerate(fits):
                U, R, each, energy = fit.left(z, w, samples, seen)
                changes = fit.tangents.changes(each)
                if design.groups is None and size is None:
                    found.append(Scatter(np.einsum("nci,nci->ci", changes, changes), energy, {}))
                else:
                    unit = design.groups[places] if design.groups is not None else places // size
                    units = {int(u): changes[unit == u].sum(axis=0) for u in np.unique(unit)}
                    found.append(Scatter(np.zeros(changes.shape[1:]), energy, units))
                if number == 0:
                    self._describe(U)
                    for j in np.flatnonzero(np.isin(places, keep)):
                        row = R.reshape(len(places), -1)[j]
                        self.samples[int(places[j])] = (row / max(np.linalg.norm(row), 1e-300)).astype(np.float32)
            self.scatters = _plus(self.scatters, found)
            self._digest(samples)
        self.n += len(batch)

    def merge(self, other: Residuals) -> None:
        """Add the sums."""
        self.scatters = _plus(self.scatters, other.scatters)
        if other.shape is not None:
            self.shape = other.shape if self.shape is None else self.shape.plus(other.shape)
        self.samples |= other.samples
        self.copies += other.copies + len(self.digests.keys() & other.digests.keys())
        self.digests |= other.digests
        self.n += other.n

    def _describe(self, U: Array) -> None:
        flat = U.reshape(len(U), -1)
        squares = flat * flat
        each = squares.sum(axis=1)
        long = flat.shape[1] > LONGEST_CUBES
        own = Shape(
            flat.size,
            float(each.sum()),
            float(np.vdot(squares, squares)),
            float(each.max(initial=0.0)),
            None if long else squares.sum(axis=0),
            None if long else np.einsum("ne,ne->e", squares, flat),
        )
        self.shape = own if self.shape is None else self.shape.plus(own)

    def _digest(self, samples: Array) -> None:
        flat = samples.reshape(len(samples), -1)[:, :DIGESTED]
        for row in np.ascontiguousarray(flat):
            found = int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest())
            self.copies += found in self.digests
            self.digests[found] = None

    @property
    def nbytes(self) -> int:
        """What is kept."""
        sums = sum(s.squares.nbytes * (1 + len(s.units)) for s in self.scatters)
        return int(sums + sum(one.nbytes for one in self.samples.values())) + 64 * len(self.digests)


def _plus(own: list[Scatter], others: list[Scatter]) -> list[Scatter]:
    return others if not own else own if not others else [a.plus(b) for a, b in zip(own, others, strict=True)]
