"""Fits of projected samples (:mod:`tpca.tensors.projection`): a run that asks for, and is told, smaller samples.

A run never learns that its samples are projected; what it asks for is asked through a
:class:`~tpca.tensors.Projected` accumulator, whoever reads the samples.  What it found is carried back to the data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.labels import Labels
from tpca.noise import NoiseModel, Whitening
from tpca.solvers.loop import Ask, Run
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Component, Recovery
from tpca.tensors import Basis, Projected, Projection
from tpca.tensors.blocks import Array

Mode = str | int
Rows = tuple[tuple[float, ...], ...]


def check_center(name: str, value: Any) -> tuple[Mode, ...]:
    """Modes, by name or number."""
    modes = (value,) if isinstance(value, str | int | np.integer) else value
    if not isinstance(modes, Sequence) or not all(_is_mode(mode) for mode in modes):
        raise SolverError(f"{name} must be names or numbers of modes, such as ('time',) or (1,), got {value!r}.")
    return tuple(_plain_mode(mode) for mode in modes)


def check_project(name: str, value: Any) -> dict[Mode, Rows]:
    """For every mode vectors as rows, as plain numbers, so that a checkpoint can compare them."""
    if not isinstance(value, Mapping) or not all(_is_mode(mode) for mode in value):
        raise SolverError(
            f"{name} must be a dict from the name or number of a mode to vectors, such as {{0: P}}, "
            f"got {type(value).__name__}."
        )
    return {_plain_mode(mode): _rows(name, mode, vectors) for mode, vectors in value.items()}


def mode_number(option: str, mode: Mode, dims: Sequence[int], labels: Labels | None) -> int:
    """Which mode a name or number means."""
    names = () if labels is None else tuple(axis.name for axis in labels.axes)
    if isinstance(mode, str) and mode in names and mode:
        return names.index(mode)
    number = int(mode) if isinstance(mode, int) or mode.isdecimal() else -1
    if 0 <= number < len(dims):
        return number
    known = ", ".join(repr(one) for one in names if one)
    told = f"their modes are {known}, or 0 to {len(dims) - 1}" if known else f"give a number from 0 to {len(dims) - 1}"
    why = "" if known or isinstance(mode, int) else " (they have no names)"
    raise SolverError(f"{option} names mode {mode!r}, which the samples do not have{why}; {told}.")


def numbered(center: Any, project: Any, dims: Sequence[int], labels: Labels | None, lead: int = 0) -> dict[str, Any]:
    """The two options with numbers for names, for samples with ``lead`` more modes before their own, without names."""
    found: dict[str, Any] = {}
    if center:
        modes = check_center("center_modes", center)
        found["center_modes"] = tuple(lead + mode_number("center_modes", mode, dims, labels) for mode in modes)
    if project:
        rows = check_project("project", project)
        found["project"] = {lead + mode_number("project", mode, dims, labels): own for mode, own in rows.items()}
    return found


def projection_for(center: tuple[Mode, ...], project: Mapping[Mode, Rows] | None, data: Data) -> Projection | None:
    """The projection that the options ask for; ``None`` where they ask for none."""
    if not center and not project:
        return None
    rows: dict[int, list[Array]] = {}
    for mode in center:
        number = mode_number("center_modes", mode, data.dims, data.labels)
        rows.setdefault(number, []).append(np.ones((1, data.dims[number])))
    for mode, vectors in (project or {}).items():
        number = mode_number("project", mode, data.dims, data.labels)
        own = np.array(vectors, dtype=np.float64)
        if own.shape[1] != data.dims[number]:
            raise SolverError(
                f"project[{mode!r}] must have vectors of length {data.dims[number]} as rows, as that mode has, "
                f"got shape {own.shape}; transpose it, or name another mode."
            )
        rows.setdefault(number, []).append(own)
    bases = tuple(_basis(mode, d, rows.get(mode)) for mode, d in enumerate(data.dims))
    return Projection(tuple(data.dims), bases)


@dataclass(frozen=True)
class ProjectedData:
    """What a run knows of projected samples; their entries have no names."""

    dims: tuple[int, ...]
    length: int | None
    endless: bool
    rereadable: bool
    whole: bool
    partial: bool = False
    labels: Labels | None = None

    @classmethod
    def of(cls, data: Data, projection: Projection) -> ProjectedData:
        """Those of some samples."""
        return cls(projection.projected_dims, data.length, data.endless, data.rereadable, data.whole)


class ProjectedRun:
    """A run on projected samples."""

    def __init__(self, run: Run, projection: Projection) -> None:
        self._run, self._projection = run, projection

    def ask(self) -> Ask[Projected] | None:
        """What the run asks for, of projected samples."""
        ask = self._run.ask()
        return None if ask is None else Ask(Projected([ask.blank], self._projection), ask.n, ask.rewind)

    def tell(self, part: Projected) -> None:
        """Hand it on."""
        self._run.tell(part.parts[0])

    def close(self) -> None:
        """There will be no more samples."""
        self._run.close()

    def recovery(self) -> Recovery:
        """What was found, as it is in the data."""
        found = self._run.recovery()
        return dataclasses.replace(
            found,
            components=tuple(_component(one, self._projection) for one in found.components),
            guess=None if found.guess is None else _component(found.guess, self._projection),
            noise=None if found.noise is None else _noise(found.noise, self._projection),
            state_bytes=found.state_bytes + self._projection.nbytes,
        )

    def state(self) -> dict[str, Any]:
        """That of the run: the projection follows from the options."""
        return self._run.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._run.restore(state)

    def silent_copy(self) -> ProjectedRun:
        """A copy that calls nobody back."""
        return ProjectedRun(self._run.silent_copy(), self._projection)


def calling(callback: Callable[[dict[str, Any]], None], projection: Projection) -> Callable[[dict[str, Any]], None]:
    """A callback that is shown the vectors of the data."""

    def call(record: dict[str, Any]) -> None:
        vectors = record.get("vectors")
        callback(record if vectors is None else {**record, "vectors": oriented(projection.back(vectors))})

    return call


def _component(found: Component, projection: Projection) -> Component:
    return dataclasses.replace(found, vectors=oriented(projection.back(found.vectors)))


def _noise(noise: NoiseModel, projection: Projection) -> NoiseModel:
    """With the covariances of the projected noise as ones of the data, of mean variance one."""
    white = noise.whitening
    if white is None:
        return noise
    scales = [math.sqrt(d / len(own)) for d, own in zip(projection.dims, white.matrices, strict=True)]
    matrices = [own / scale for own, scale in zip(white.matrices, scales, strict=True)]
    inverses = [own * scale for own, scale in zip(white.inverses, scales, strict=True)]
    carried = (tuple(_carried(m, own, projection) for m, own in enumerate(each)) for each in (matrices, inverses))
    return dataclasses.replace(noise, whitening=Whitening(*carried))


def _carried(mode: int, matrix: Array, projection: Projection) -> Array:
    """B^T M B."""
    half = projection.back_rows(mode, matrix)
    return np.ascontiguousarray(projection.back_rows(mode, np.ascontiguousarray(half.T)))


def _basis(mode: int, length: int, rows: list[Array] | None) -> Basis | None:
    if rows is None:
        return None
    vectors = np.concatenate(rows)
    basis = Basis.beside(vectors)
    if basis.size < 2:
        raise SolverError(
            f"mode {mode} has {length} entries and is projected beside {length - basis.size} independent vectors, "
            "which leaves fewer than 2 of its dimensions; give fewer vectors, or leave that mode as it is."
        )
    return basis if basis.size < length else None


def _is_mode(mode: Any) -> bool:
    return isinstance(mode, str | int | np.integer) and not isinstance(mode, bool)


def _plain_mode(mode: Any) -> Mode:
    return str(mode) if isinstance(mode, str) else int(mode)


def _rows(name: str, mode: Mode, vectors: Any) -> Rows:
    expected = f"{name}[{mode!r}] must be a vector, or vectors as rows, of finite numbers"
    try:
        rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise SolverError(f"{expected}, got {type(vectors).__name__} ({error}).") from None
    if rows.ndim != 2 or not rows.size:
        raise SolverError(f"{expected}, got shape {np.shape(vectors)}.")
    if not np.isfinite(rows).all():
        row, entry = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise SolverError(f"{expected}, got {rows[row, entry]} at entry {entry} of row {row}; fill it in or leave it.")
    return tuple(tuple(row) for row in rows.tolist())
