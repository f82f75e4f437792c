"""All methods on the same samples: success, error, time, state.

Samples are drawn from one seeded stream a trial and never held.  Methods that see nothing but the mean of all samples
share one pass, in which they are averaged; what a method then takes is counted on top of that pass, once for every
pass it makes.  One-pass methods are fed the same stream again, drawn again.  With ``law=True`` means of batches are
drawn from their exact law instead: the same law for every method, much faster, but no longer the very same samples for
one-pass methods (and those that step sample by sample take steps of N/400 samples).
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from tpca.engines import LawEngine
from tpca.errors import StudyError
from tpca.lab.baselines import BASELINES
from tpca.lab.planning.methods import METHODS
from tpca.lab.planning.problem import Problem
from tpca.lab.planning.race_size import least_race_bytes
from tpca.lab.studies.averages import AverageEngine, averaged, drawn_average
from tpca.model import SpikedTensor
from tpca.solvers.build import build_solver
from tpca.solvers.memory import default_memory, machine_memory
from tpca.solvers.paper.solver import planned_samples
from tpca.solvers.recovery import Recovery
from tpca.wording import amount

GOOD = 0.9
LAW_STEPS = 400
SHARED = 10**8  # entries to draw, from which on processes share the trials
MEAN_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "als": ("ALS", {}),
    "amp": ("AMP", {}),
    "unfolding": ("Unfolding", {}),
    "recursive-unfolding": ("RecursiveUnfolding", {}),
    "power-iteration": ("PowerIteration", {}),
    "tensorly": ("TensorLyParafac", {}),
    "pyttb": ("PyttbCpAls", {}),
    "unfolding-passes": ("Unfolding", {"method": "power", "tol": 0.01}),
    "power-passes": ("PowerIteration", {"method": "passes"}),
    "partial-trace": ("PartialTrace", {}),
    "homotopy-passes": ("Homotopy", {"method": "passes"}),
}
STEPPING = {"oja": "Oja", "vector-sgd": "VectorSGD", "matrix-sgd": "SymmetricMatrixSGD"}
PACKAGES = {"tensorly": "tensorly", "pyttb": "pyttb"}
TITLES = {"race": "race (RaceSolver)", **{method.name: method.title for method in METHODS}}
NAMES = tuple(TITLES)


@dataclass(frozen=True)
class Setting:
    """What is compared on: N samples of a planted signal; ``memory`` bounds every method's state."""

    problem: Problem
    samples: int
    memory_limit: int | None = None
    law: bool = False

    def truth(self, seed: int) -> SpikedTensor:
        """The planted signal of a trial, in units of the noise."""
        problem = self.problem
        correlation = 1.0 if problem.equal else problem.correlation
        strength = problem.strength / problem.noise
        return SpikedTensor.random(problem.dims, strength, correlation, seed, symmetric=problem.equal)


@dataclass(frozen=True)
class Outcome:
    """One method in one trial; ``error`` is the mean squared error of a vector."""

    method: str
    success: bool
    error: float
    seconds: float
    state_bytes: int
    buffer_bytes: int
    passes: int
    samples: int


Progress = Callable[[str], None]
Finished = Callable[[int, list[Outcome]], None]


def left_out(setting: Setting, asked: Sequence[str] = ()) -> dict[str, str]:
    """Methods that are not run, and why."""
    unknown = [name for name in asked if name not in NAMES]
    if unknown:
        raise StudyError(f"there is no method {unknown[0]!r}; the methods are: {', '.join(NAMES)}.")
    reasons = {}
    for name in NAMES:
        reason = "not asked for" if asked and name not in asked else _obstacle(setting, name)
        if reason:
            reasons[name] = reason
    return reasons


def _obstacle(setting: Setting, name: str) -> str:
    """Why a method cannot run here, or nothing."""
    problem = setting.problem
    memory_limit = min(machine_memory(), setting.memory_limit or machine_memory())
    if name == "race":
        least = least_race_bytes(problem.dims)
        return f"needs at least {amount(least)} of state" if least > memory_limit else ""
    method = next(m for m in METHODS if m.name == name)
    obstacle = method.applies(problem)
    if obstacle:
        return obstacle
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        return "not installed: pip install 'tpca[peers]'"
    if 8 * method.state(problem) > memory_limit:
        return f"needs {amount(8 * method.state(problem))} of state, the memory is {amount(memory_limit)}"
    if name == "paper":
        planned = min(planned_samples(problem.dims, problem.strength / problem.noise).values())
        return f"its schedule asks for {planned:,} samples" if planned > setting.samples else ""
    return ""


def compare(
    setting: Setting,
    seeds: Sequence[int],
    methods: Sequence[str],
    progress: Progress = lambda _: None,
    finished: Finished = lambda _, __: None,
) -> list[Outcome]:
    """Every method on every trial; ``progress`` is told the method that comes next, or after a trial that was shared.

    ``finished`` is given every finished trial at once, so that an interrupt loses only those under way.

    Where samples are many, trials are shared among processes, one for every core; each holds one mean.
    """
    processes = min(_cores(), len(seeds))
    if processes == 1 or setting.samples * setting.problem.entries < SHARED or setting.law:
        each: Iterator[list[Outcome]] = (trial(setting, methods, seed, progress) for seed in seeds)
        return _gathered(seeds, each, finished)
    with multiprocessing.get_context("spawn").Pool(processes, _heedless) as pool:
        each = _told(pool.imap(functools.partial(trial, setting, methods), seeds), methods, progress)
        return _gathered(seeds, each, finished)


def _gathered(seeds: Sequence[int], each: Iterable[list[Outcome]], finished: Finished) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for seed, found in zip(seeds, each, strict=True):
        finished(seed, found)
        outcomes += found
    return outcomes


def _told(each: Iterable[list[Outcome]], methods: Sequence[str], progress: Progress) -> Iterator[list[Outcome]]:
    """Trials of other processes, with their progress told afterwards."""
    for found in each:
        for name in ("averaging", *methods):
            progress(name)
        yield found


def _heedless() -> None:
    """Ctrl-C reaches all processes; only the one that gathers heeds it, the others are ended by it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def trial(setting: Setting, methods: Sequence[str], seed: int, progress: Progress = lambda _: None) -> list[Outcome]:
    """Every method on the samples of one planted signal."""
    truth, outcomes = setting.truth(seed), []
    progress("averaging")
    average, reading = _average(setting, truth, seed)
    for name in methods:
        progress(name)
        began = time.perf_counter()
        recovery = _run(setting, name, truth, seed, average)
        seconds = time.perf_counter() - began
        if name in MEAN_ONLY:
            seconds += reading * recovery.n_passes
        outcomes.append(_outcome(name, truth, recovery, seconds, average))
    return outcomes


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _average(setting: Setting, truth: SpikedTensor, seed: int) -> tuple[AverageEngine, float]:
    """The mean of all samples and the seconds that a pass takes."""
    began = time.perf_counter()
    if setting.law:
        average = drawn_average(truth, setting.samples, seed)
    else:
        average = averaged(truth.stream(random_state=seed), setting.samples)
    return average, time.perf_counter() - began


def _run(setting: Setting, name: str, truth: SpikedTensor, seed: int, average: AverageEngine) -> Recovery:
    """One method on the mean, or on the stream drawn again."""
    recovery: Recovery
    if name in MEAN_ONLY:
        average.rewind()
        baseline, options = MEAN_ONLY[name]
        recovery = BASELINES[baseline](random_state=seed, **options).run(average)
        return recovery
    limit = setting.samples
    source: Any = LawEngine(truth, random_state=seed) if setting.law else truth.stream(random_state=seed)
    if name in STEPPING:
        options = {} if name == "oja" else {"strength": truth.strength}
        if setting.law and name != "oja":
            options["batch_size"] = max(1, limit // LAW_STEPS)
        recovery = BASELINES[STEPPING[name]](random_state=seed, max_samples=limit, **options).run(source)
        return recovery
    options = {"strength": truth.strength}
    if name != "paper":
        memory_limit = setting.memory_limit if setting.memory_limit is not None else default_memory(truth.dims)
        options = {"memory_limit": memory_limit, "max_samples": limit}
    solver, _ = build_solver(name, source, {"random_state": seed, **options})
    return solver.run(source)


def _outcome(name: str, truth: SpikedTensor, recovery: Recovery, seconds: float, average: AverageEngine) -> Outcome:
    buffered = average.buffer_bytes if name in MEAN_ONLY else recovery.buffer_bytes
    return Outcome(
        name,
        bool(truth.overlaps(recovery.vectors).min() > GOOD),
        float(truth.loss(recovery.vectors).mean()),
        seconds,
        recovery.state_bytes,
        buffered,
        recovery.n_passes,
        recovery.n_samples,
    )
