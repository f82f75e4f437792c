r"""What the study of memory runs: every method as a function (truth, N, seed) -> did it succeed, at what state.

Methods that see only the mean of all samples get it from its law in one draw (:mod:`tpca.lab.studies.averages`);
one-pass methods that take growing rounds get :class:`~tpca.engines.LawEngine`.  Vectors by online SGD and the paper's
algorithm go one sample at a time and are simulated (:mod:`tpca.lab.simulate`), with the state counted by formula:
:math:`4\sum_n d_n` floats for two signs of a start and their gradients, :math:`2^{\bar k}\sum_m D_m` for the paper's
starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np

from tpca.engines import LawEngine
from tpca.lab.baselines import BASELINES
from tpca.lab.simulate import simulate_online
from tpca.lab.studies.averages import drawn_average
from tpca.lab.studies.climbs import COARSE, climb
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.mean.memory import GROUPS, mean_bytes
from tpca.solvers.mean.solver import MeanSolver
from tpca.solvers.recovery import Recovery
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


def on_mean(name: str, truth: SpikedTensor, n: int, seed: int, **options: object) -> Outcome:
    """A baseline on the mean of n samples."""
    return outcome(truth, BASELINES[name](random_state=seed, **options).run(drawn_average(truth, n, seed)))


def on_rounds(name: str, truth: SpikedTensor, n: int, seed: int, steps: int | None = None) -> Outcome:
    """A one-pass baseline on rounds from the law; ``steps``: as many steps of equal size, at most."""
    options = {} if steps is None else {"batch_size": max(1, n // steps)}
    method = BASELINES[name](random_state=seed, max_samples=n, **options)
    return outcome(truth, method.run(LawEngine(truth, random_state=seed)))


def by_mean_solver(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """The mean with contrasts, in the least memory that it takes."""
    memory = mean_bytes(truth.dims, GROUPS[-1])
    return outcome(
        truth,
        MeanSolver(random_state=seed, memory_limit=memory, max_samples=n).run(LawEngine(truth, random_state=seed)),
    )


def by_vectors(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """Online SGD on one vector a mode, simulated; it stops at overlaps of 0.9."""
    aligned = simulate_online(truth.dims, truth.strength, n, generator(seed, "memory vectors"), coarse=COARSE)
    return Outcome(bool(np.abs(aligned).min() >= GOOD), n, 4 * sum(truth.dims))


def by_paper(truth: SpikedTensor, n: int, seed: int) -> Outcome:
    """The paper's algorithm up to the selection, simulated at n / 2^20 times the samples that its formulas ask for."""
    order, dim = truth.order, truth.dims[0]
    params = {"order": order, "dim": dim, "correlation": 0.0, "budget": n / PAPER_UNIT, "first": seed, "count": 1}
    found = climb(params)
    state = 2**order * sum(Partition.pairs(truth.dims).sizes)
    return Outcome(bool(found["wins"]), found["samples"], state)


PAPER_UNIT = 2.0**20

METHODS: dict[str, Method] = {
    "mean": Method(by_mean_solver, -1),
    "als": Method(partial(on_mean, "ALS")),
    "amp": Method(partial(on_mean, "AMP")),
    "unfolding": Method(partial(on_mean, "Unfolding"), 1),
    "unfolding-passes": Method(partial(on_mean, "Unfolding", method="power", tol=0.01), 1),
    "recursive-unfolding": Method(partial(on_mean, "RecursiveUnfolding"), 1, orders=(5, 6)),
    "power-iteration": Method(partial(on_mean, "PowerIteration"), -5, lambda order: order - 1.0),
    "power-passes": Method(partial(on_mean, "PowerIteration", method="passes"), -5, lambda order: order - 1.0),
    "oja": Method(partial(on_rounds, "Oja"), 5),
    "vector-sgd": Method(by_vectors, 2, lambda order: order - 1.0),
    "paper": Method(by_paper, -4, lambda _: math.inf, orders=(4, 5, 6)),
    "tensorly": Method(partial(on_mean, "TensorLyParafac"), 1),
    "pyttb": Method(partial(on_mean, "PyttbCpAls"), 1),
    "partial-trace": Method(partial(on_mean, "PartialTrace"), -3, symmetric=True),
    "homotopy": Method(partial(on_mean, "Homotopy"), -5, symmetric=True),
    "homotopy-passes": Method(partial(on_mean, "Homotopy", method="passes"), -5, symmetric=True),
    "matrix-sgd": Method(partial(on_rounds, "SymmetricMatrixSGD", steps=200), 0, symmetric=True, orders=(4, 6)),
}
PACKAGES = {"tensorly": "tensorly", "pyttb": "pyttb"}


def installed(name: str) -> bool:
    """Whether the package that a method belongs to is there."""
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


def ladder_samples(method: Method, order: int, dim: int, step: int) -> int:
    """N at a step of the ladder."""
    power = method.exponent(order)
    unit = PAPER_UNIT if math.isinf(power) else dim**power
    return max(2, round(2 ** (step / 2) * unit))
