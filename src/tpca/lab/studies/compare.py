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
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tpca.engines import LawEngine
from tpca.errors import StudyError
from tpca.lab.baselines import BASELINES
from tpca.lab.planning.methods import METHODS, least_race_bytes
from tpca.lab.planning.problem import Problem
from tpca.lab.studies.averages import MEAN_ONLY, AverageEngine, averaged, drawn_average, installed, run_on_mean
from tpca.lab.studies.runner import prepare
from tpca.model import SpikedTensor
from tpca.solvers.build import build_solver
from tpca.solvers.memory import default_memory, machine_memory
from tpca.solvers.paper.solver import planned_samples
from tpca.solvers.recovery import Recovery
from tpca.threads import cores
from tpca.wording import amount

GOOD = 0.9
LAW_STEPS = 400
SHARED = 10**8  # entries to draw, from which on processes share the trials
STEPPING = {"oja": "Oja", "vector-sgd": "VectorSGD", "matrix-sgd": "SymmetricMatrixSGD"}
TITLES = {"race": "race (RaceSolver)", **{method.name: method.title for method in METHODS}}
NAMES = tuple(TITLES)


@dataclass(frozen=True)
class Setting:
    """What is compared on: N samples of a planted signal; ``memory_limit`` bounds every method's state."""

    problem: Problem
    samples: int
    memory_limit: int | None = None
    law: bool = False

    def truth(self, seed: int) -> SpikedTensor:
        """The planted signal of a trial, in units of the noise."""
        problem = self.problem
        inside = None if problem.correlation is None and not problem.symmetric else problem.inside_pairs
        strength = problem.strength / problem.noise
        return SpikedTensor.random(
            problem.dims, strength, random_state=seed, symmetric=problem.symmetric, correlations=inside
        )


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
    obstacle = method.obstacle(problem)
    if obstacle:
        return obstacle
    if not installed(name):
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
    processes, outcomes = min(cores(), len(seeds)), []
    alone = processes == 1 or setting.samples * setting.problem.entries < SHARED or setting.law
    with nullcontext() if alone else multiprocessing.get_context("spawn").Pool(processes, prepare) as pool:
        run = functools.partial(trial, setting, methods)
        each = (run(seed, progress) for seed in seeds) if pool is None else pool.imap(run, seeds)
        for seed, found in zip(seeds, each, strict=True):
            for name in () if pool is None else ("averaging", *methods):
                progress(name)
            finished(seed, found)
            outcomes += found
    return outcomes


def trial(setting: Setting, methods: Sequence[str], seed: int, progress: Progress = lambda _: None) -> list[Outcome]:
    """Every method on the samples of one planted signal."""
    truth, outcomes = setting.truth(seed), []
    progress("averaging")
    began, n = time.perf_counter(), setting.samples
    stream = truth.stream(random_state=seed)
    average = drawn_average(truth, n, seed) if setting.law else averaged(stream, n)
    reading = time.perf_counter() - began
    for name in methods:
        progress(name)
        began = time.perf_counter()
        recovery = _run(setting, name, truth, seed, average)
        seconds = time.perf_counter() - began
        if name in MEAN_ONLY:
            seconds += reading * recovery.n_passes
        held = average.buffer_bytes if name in MEAN_ONLY else recovery.buffer_bytes
        success, error = truth.overlaps(recovery.vectors).min() > GOOD, float(truth.loss(recovery.vectors).mean())
        memory, used = (recovery.state_bytes, held), (recovery.n_passes, recovery.n_samples)
        outcomes.append(Outcome(name, bool(success), error, seconds, *memory, *used))
    return outcomes


def _run(setting: Setting, name: str, truth: SpikedTensor, seed: int, average: AverageEngine) -> Recovery:
    """One method on the mean, or on the stream drawn again."""
    recovery: Recovery
    if name in MEAN_ONLY:
        average.rewind()
        return run_on_mean(name, average, seed)
    limit = setting.samples
    source: Any = LawEngine(truth, random_state=seed) if setting.law else truth.stream(random_state=seed)
    if name in STEPPING:
        options: dict[str, Any] = {} if name == "oja" else {"strength": truth.strength}
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
