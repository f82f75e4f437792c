"""The demonstration: one planted signal, recovered by the paper's algorithm and by the race."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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
    partition = Partition.pairs(truth.dims)
    blocks = partition.outer(truth.vectors)
    samples: list[int] = []
    alignments: list[Array] = []

    def watch(record: dict[str, object]) -> None:
        replicas = record["blocks"]
        assert isinstance(replicas, tuple)
        each = np.array([np.abs(np.tensordot(w, b, b.ndim)) for w, b in zip(replicas, blocks, strict=True)])
        samples.append(int(str(record["samples"])))
        alignments.append(each[:, int(np.argmax(each.min(axis=0)))])
        progress(samples[-1])

    solver = PaperSolver(random_state=seed, strength=truth.strength, callbacks=[watch])
    return Climb(solver.run(truth.stream(random_state=seed + 1)), samples, alignments)


def run_race(truth: SpikedTensor, seed: int, progress: Progress) -> Climb:
    """The race, in half the memory of one sample; overlaps of the candidate's vectors after every round."""
    samples: list[int] = []
    alignments: list[Array] = []

    def watch(record: dict[str, object]) -> None:
        vectors = record["vectors"]
        assert isinstance(vectors, tuple)
        samples.append(int(str(record["samples"])))
        alignments.append(truth.overlaps(vectors))
        progress(samples[-1])

    solver = RaceSolver(random_state=seed, memory_limit=4 * math.prod(truth.dims), callbacks=[watch])
    return Climb(solver.run(truth.stream(random_state=seed + 1)), samples, alignments)
