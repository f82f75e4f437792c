r"""What the study of memory runs: every method as a function (truth, N, seed) -> did it succeed, at what state.

Methods that see only the mean of all samples get it from its law in one draw (:mod:`research.studies.averages`);
one-pass methods that take growing rounds get :class:`~research.law.LawEngine`.  Vectors by online SGD and the paper's
algorithm go one sample at a time and are simulated (:mod:`research.simulate`), with the state counted by formula:
:math:`4\sum_n d_n` floats for two signs of a start and their gradients, :math:`2^{\bar k}\sum_m D_m` for the paper's
starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from research.baselines import BASELINES
from research.law import LawEngine
from research.simulate import simulate_online
from research.studies.averages import drawn_average, run_on_mean
from research.studies.climbs import COARSE, climb
from tpca.inference.design import Design
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.estimate import Recovery
from tpca.solvers.least_squares.solver import LEAST_BINS, LeastSquares, held_bytes
from tpca.tensors.blocks import Partition

GOOD = 0.9


@dataclass(frozen=True)
class Outcome:
    """One run: success, samples, floats of state, passes."""

    won: bool
    samples: float
    state: float
    passes: int = 1


Run = Callable[[SpikedTensor, int, int], Outcome]


@dataclass(frozen=True)
class Method:
    """How to run a method, and its ladder of N = 2^(j/2)·d^p around j = ``start``, p from ``exponent(order)``."""

    run: Run
    start: int = 0
    exponent: Callable[[int], float] = lambda order: order / 2
    symmetric: bool = False
    orders: tuple[int, ...] = (3, 4, 5, 6)


def outcome(truth: SpikedTensor, recovery: Recovery) -> Outcome:
    """Success is that every overlap exceeds 0.9."""
    won = bool(truth.overlaps(recovery.vectors).min() > GOOD)
    return Outcome(won, recovery.n_samples, recovery.state_bytes / 8, recovery.n_passes)


def on_mean(name: str, truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """A baseline on the mean of n samples."""
    return outcome(truth, run_on_mean(name, drawn_average(truth, n, seed), seed))


def on_rounds(name: str, truth: SpikedTensor, n: int, seed: int, steps: int | None = None) -> Outcome:
    """A one-pass baseline on rounds from the law; ``steps``: as many steps of equal size, at most."""
    options = {} if steps is None else {"batch_size": max(1, n // steps)}
    method = BASELINES[name](random_state=seed, max_samples=n, **options)
    return outcome(truth, method.run(LawEngine(truth, random_state=seed)))


def by_mean_solver(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """Least squares, in the least memory that it takes."""
    least = held_bytes(truth.dims, LEAST_BINS, "float32", Design())
    solver = LeastSquares(random_state=seed, memory_limit=least, max_samples=n)
    return outcome(truth, solver.run(LawEngine(truth, random_state=seed)))


def by_vectors(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """Online SGD on one vector a mode, simulated; it stops at overlaps of 0.9."""
    aligned = simulate_online(truth.dims, truth.strength, n, generator(seed, "memory vectors"), coarse=COARSE)
    return Outcome(bool(np.abs(aligned).min() >= GOOD), n, 4 * sum(truth.dims))


def by_paper(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """The paper's algorithm up to the selection, simulated at n / 2^20 times the samples that its formulas ask for."""
    order, dim = truth.order, truth.dims[0]
    params = {"order": order, "dim": dim, "correlation": 0.0, "budget": n / PAPER_UNIT, "first": seed, "count": 1}
    found = climb({**params, "vector": "idle"} if order % 2 else params)
    state = 2**order * sum(Partition.pairs(truth.dims).sizes)
    return Outcome(bool(found["wins"]), found["samples"], state)


PAPER_UNIT = 2.0**20

# Where the ladder of a baseline on the mean starts.
STARTS = {"als": 0, "amp": 0, "unfolding": 1, "unfolding-passes": 1, "recursive-unfolding": 1, "power-iteration": -5,
          "power-passes": -5, "tensorly": 1, "pyttb": 1, "partial-trace": -3, "homotopy": -5,
          "homotopy-passes": -5}  # fmt: skip


def _on_mean(name: str) -> Method:
    exponent = (lambda order: order - 1.0) if name.startswith("power") else (lambda order: order / 2)
    orders = (5, 6) if name == "recursive-unfolding" else (3, 4, 5, 6)
    symmetric = name in ("partial-trace", "homotopy", "homotopy-passes")
    return Method(partial(on_mean, name), STARTS[name], exponent, symmetric, orders)


METHODS: dict[str, Method] = {
    "mean": Method(by_mean_solver, -1),
    **{name: _on_mean(name) for name in STARTS},
    "oja": Method(partial(on_rounds, "Oja"), 5),
    "vector-sgd": Method(by_vectors, 2, lambda order: order - 1.0),
    "paper": Method(by_paper, -4, lambda _: math.inf, orders=(4, 5, 6)),
    "matrix-sgd": Method(partial(on_rounds, "SymmetricMatrixSGD", steps=200), 0, symmetric=True, orders=(4, 6)),
}


def ladder_samples(method: Method, order: int, dim: int, step: int) -> int:
    """N at a step of the ladder."""
    power = method.exponent(order)
    unit = PAPER_UNIT if math.isinf(power) else dim**power
    return max(2, round(2 ** (step / 2) * unit))
