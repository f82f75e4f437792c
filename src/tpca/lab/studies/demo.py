"""The demonstration: one planted signal, recovered by the paper's algorithm and by the race."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.model import SpikedTensor
from tpca.solvers.paper.solver import PaperSolver, planned_samples
from tpca.solvers.race.solver import RaceSolver
from tpca.solvers.recovery import Recovery
from tpca.tensors.blocks import Array, Partition

ORDER, DIM, STRENGTH = 4, 10, 1.0
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Climb:
    """A recovery and, for the figure, the alignment of its blocks or vectors with the truth over the samples."""

    recovery: Recovery
    samples: list[int]
    alignments: list[Array]


@dataclass(frozen=True)
class Demo:
    """The truth and both climbs."""

    truth: SpikedTensor
    paper: Climb
    race: Climb


def planted(seed: int) -> SpikedTensor:
    """The demonstration's signal: order 4, d = 10, strength 1, no correlation inside the pairs."""
    return SpikedTensor.random((DIM,) * ORDER, STRENGTH, correlation=0.0, random_state=seed)


def paper_samples(truth: SpikedTensor) -> int:
    """What the paper's schedule will ask for (the worst case, no correlation)."""
    return planned_samples(truth.dims, truth.strength)["Case II"]


def run_paper(truth: SpikedTensor, seed: int, progress: Progress) -> Climb:
    """The paper's algorithm; alignment of the best start's blocks after every block's turn."""
    blocks = Partition.pairs(truth.dims).outer(truth.vectors)

    def aligned(record: dict[str, Any]) -> Array:
        pairs = zip(record["blocks"], blocks, strict=True)
        each = np.array([np.abs(np.tensordot(w, b, b.ndim)) for w, b in pairs])
        best: Array = each[:, int(np.argmax(each.min(axis=0)))]
        return best

    make = functools.partial(PaperSolver, random_state=seed, strength=truth.strength)
    return _climb(truth, seed, make, aligned, progress)


def run_race(truth: SpikedTensor, seed: int, progress: Progress) -> Climb:
    """The race, in half the memory of one sample; overlaps of the candidate's vectors after every round."""
    make = functools.partial(RaceSolver, random_state=seed, memory_limit=4 * math.prod(truth.dims))
    return _climb(truth, seed, make, lambda record: truth.overlaps(record["vectors"]), progress)


def _climb(
    truth: SpikedTensor, seed: int, make: Callable[..., Any], aligned: Callable[[dict[str, Any]], Array], tell: Progress
) -> Climb:
    """A run of a solver, watched."""
    seen: list[tuple[int, Array]] = []

    def watch(record: dict[str, Any]) -> None:
        seen.append((int(record["samples"]), aligned(record)))
        tell(seen[-1][0])

    recovery = make(callbacks=[watch]).run(truth.stream(random_state=seed + 1))
    return Climb(recovery, [samples for samples, _ in seen], [each for _, each in seen])
