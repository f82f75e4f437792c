r"""The paper's algorithm: SNSGA1, SNSGA2 and MPSNSGA, even and odd order (Algorithms SGA-con-ss … MSANSGA-odd).

==============  ========================================================================================
Phase I         h* cycles of SNSGA1 on all 2^k̄ sign starts, each with fresh samples of its own
Phase II        one more SNSGA1
selection       the start with the largest mean reward over N_0 fresh samples each
Phase III       SNSGA2 (step size halved every T̂ steps) twice from the winner, with +R and with −R;
                per block the end point nearer to the start
estimator       top vectors of every block
==============  ========================================================================================

SNSGA runs the blocks m = K, K−1, …, 1; in block m's turn the blocks j > m are already new and i < m still old (Eq.
def-hatR; Section "Block-wise Update Structure" says the reverse — erratum 1, docs/paper.md).  Within a turn the
gradient
:math:`\nabla_m R` does not depend on :math:`W_m` (R is linear in it), so the oracle may hand out the gradients of
many steps at once; the steps themselves are taken one sample at a time.

Deliberately different: blocks are rescaled to unit norm after every chunk of steps, which changes no direction (the
step is scale-free) and keeps long runs from overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpca.batches import Query
from tpca.blocks import Array, Partition, Replicas
from tpca.errors import SolverError
from tpca.model import SpikedTensor
from tpca.model.spiked import check_strength
from tpca.oracles import Oracle, open_oracle
from tpca.randomness import generator
from tpca.schedules import (
    Constants,
    Leg,
    Schedule,
    decay_length,
    empirical_schedule,
    preset_constants,
    search_steps,
    theorem_schedule,
)
from tpca.solvers.recovery import Recovery, StopReason
from tpca.solvers.starts import identity, sign_starts
from tpca.solvers.step import ascent_step, normalise
from tpca.solvers.topvectors import METHODS, block_vectors

Callback = Callable[[dict[str, Any]], None]


class PaperSolver:
    """Three-phase, sequentially normalised stochastic gradient ascent.

    Parameters
    ----------
    schedule
        ``"empirical"`` (needs only ``strength``, the paper's known λ), ``"theorem"`` (needs ``truth``; for studies),
        or a
        :class:`~tpca.schedules.Schedule` of your own.
    preset
        The constants that the paper leaves open: ``"practical"``, ``"theory"``, or a
        :class:`~tpca.schedules.Constants`.
    estimator
        ``"power"`` or ``"ascent"``: the two estimator steps of the paper.
    callbacks
        Called after every block's turn with that turn's record, ``record["blocks"]`` holding the replicas.
    """

    def __init__(
        self,
        schedule: str | Schedule = "empirical",
        preset: str | Constants = "practical",
        seed: int = 0,
        strength: float = 1.0,
        truth: SpikedTensor | None = None,
        estimator: str = "power",
        callbacks: Sequence[Callback] = (),
    ) -> None:
        if isinstance(schedule, str) and schedule not in ("empirical", "theorem"):
            raise SolverError(f"schedule must be 'empirical', 'theorem' or a Schedule, got {schedule!r}.")
        if schedule == "theorem" and truth is None:
            raise SolverError("schedule='theorem' needs truth=..., got None; use 'empirical' when it is not known.")
        if estimator not in METHODS:
            raise SolverError(f"estimator must be one of {', '.join(METHODS)}, got {estimator!r}.")
        self.schedule = schedule
        self.constants = preset_constants(preset)
        self.seed = seed
        self.strength = check_strength(strength)
        self.truth = truth
        self.estimator = estimator
        self.callbacks = tuple(callbacks)

    def run(self, source: Any) -> Recovery:
        """Recover the vectors from a stream (or oracle); a stream that ends early gives what was reached."""
        oracle = open_oracle(source)
        run = PaperRun(oracle, generator(self.seed, "paper"), self.callbacks)
        try:
            schedule = self.find_schedule(run)
            run.multi_phase(schedule)
            reason = StopReason.SCHEDULE_DONE
        except _StreamEndedError:
            reason = StopReason.STREAM_ENDED_EARLY
        vectors = block_vectors(
            run.partition, tuple(block[run.best] for block in run.replicas), self.estimator, run.rng
        )
        return Recovery(
            vectors=vectors,
            strength=run.mean_reward,
            n_samples=run.samples,
            state_bytes=run.state_bytes,
            buffer_bytes=oracle.buffer_bytes,
            stop_reason=reason,
            history=run.history,
        )

    def find_schedule(self, run: PaperRun) -> Schedule:
        """The schedule to run; the empirical one searches c_3 on fresh samples first."""
        if isinstance(self.schedule, Schedule):
            return self.schedule
        if self.schedule == "theorem" and self.truth is not None:
            if self.truth.dims != run.partition.dims:
                raise SolverError(
                    f"truth has dims {self.truth.dims}, the stream {run.partition.dims}; give its own truth."
                )
            return theorem_schedule(self.truth, self.constants)
        c3 = run.search_reference(self.strength, self.constants)
        return empirical_schedule(run.partition, self.strength, self.constants, c3, search=run.samples)


class _StreamEndedError(Exception):
    """The stream ended inside a phase."""


class PaperRun:
    """One run: its state is ``replicas`` (all that the next step needs); the rest is accounting.

    Public so that studies and tests can drive the phases one by one.
    """

    def __init__(self, oracle: Oracle, rng: np.random.Generator, callbacks: Sequence[Callback] = ()) -> None:
        self.oracle = oracle
        self.rng = rng
        self.callbacks = callbacks
        self.partition = Partition.pairs(oracle.dims)
        # Eq. def-hatR contracts with normalised blocks, the untouched starts included.
        self.replicas: Replicas = tuple(normalise(block) for block in sign_starts(self.partition, rng))
        self.samples = 0
        # The best replica by its latest rewards, and that reward: what a stream that ends early leaves.
        self.best, self.mean_reward = 0, math.nan
        self.history: list[dict[str, Any]] = []
        self.state_bytes = self._held()

    def multi_phase(self, schedule: Schedule) -> None:
        """MPSNSGA (Algorithm MSANSGA / MSANSGA-odd), all but the estimator step."""
        for legs in (*schedule.stages, schedule.ascent, schedule.estimation):
            if len(legs) != len(self.partition):
                raise SolverError(
                    f"a schedule for samples of shape {self.partition.dims} needs {len(self.partition)} legs a phase, "
                    f"got {len(legs)}."
                )
        for h, legs in enumerate(schedule.stages, start=1):
            self.sequential_ascent(legs, f"I.{h}")
        self.sequential_ascent(schedule.ascent, "II")
        self.select(schedule.selection)
        self.estimate(schedule.estimation)

    def search_reference(self, strength: float, constants: Constants) -> float | None:
        """Reference parameter search (Algorithm search-c_3-even / -odd): the first κ^τ that passes, or ``None``."""
        blocks = [
            identity(shape) if len(shape) == 2 else self.replicas[m][0] for m, shape in enumerate(self.partition.shapes)
        ]
        query = Query(self.partition, tuple(block[None] for block in blocks), wanted=(0,))
        for test in search_steps(self.partition, strength, constants):
            answered = self.oracle.mean([query], test.samples)
            self.samples += answered.n
            if answered.n < test.samples:
                raise _StreamEndedError
            score = float(answered.answers[0].rewards[0])
            self._record("search", block=None, reward=score, c3=test.c3)
            if abs(score) >= test.threshold:
                return test.c3
        return None

    def sequential_ascent(
        self, legs: Sequence[Leg], phase: str, signs: Array | None = None, halve: bool = False
    ) -> None:
        """SNSGA1, or SNSGA2 with ``halve``: every block in turn, the last first, normalised at the end of its turn."""
        for block in reversed(range(len(self.partition))):
            self._turn(block, legs[block], signs, halve)
            self._record(phase, block=block, reward=self.mean_reward)

    def select(self, samples_each: int) -> None:
        """Keep the start with the largest mean reward over N_0 fresh samples each (Algorithm MSANSGA, step 3)."""
        last = len(self.partition) - 1
        totals = np.zeros(len(self.replicas[0]))
        for _, answer_rewards in self._fresh_gradients(last, samples_each):
            totals += answer_rewards.sum(axis=0)
        best = int(np.argmax(totals))
        self.best, self.mean_reward = 0, float(totals[best]) / samples_each
        self.replicas = tuple(block[best : best + 1].copy() for block in self.replicas)
        self._record("selection", block=None, reward=self.mean_reward, start=best)

    def estimate(self, legs: Sequence[Leg]) -> None:
        """Phase III: SNSGA2 from the winner with +R and −R, then per block the end point nearer to the start."""
        start = self.replicas
        self.replicas = tuple(np.repeat(block, 2, axis=0) for block in start)
        self._note_state(extra=sum(block.nbytes for block in start))
        self.sequential_ascent(legs, "III", signs=np.array([1.0, -1.0]), halve=True)
        self.replicas = tuple(_nearer(ends, begin) for ends, begin in zip(self.replicas, start, strict=True))

    def _turn(self, block: int, leg: Leg, signs: Array | None, halve: bool) -> None:
        """T steps of one block on all replicas, one fresh sample per replica and step."""
        decay = decay_length(leg.steps)
        done, late_steps, late_rewards = 0, 0, np.zeros(len(self.replicas[0]))
        for gradients, chunk_rewards in self._fresh_gradients(block, leg.steps):
            current = self.replicas[block]
            for gradient in gradients:
                eta = leg.step_size * 0.5 ** (done // decay) if halve else leg.step_size
                current = ascent_step(current, gradient, eta, signs)
                done += 1
            self.replicas = (*self.replicas[:block], normalise(current), *self.replicas[block + 1 :])
            if 2 * done >= leg.steps:  # the second half of a turn tells what it reached
                late_rewards += chunk_rewards.sum(axis=0)
                late_steps += len(chunk_rewards)
        rewards = late_rewards / late_steps
        self.best = 0 if signs is not None else int(np.argmax(rewards))
        self.mean_reward = float(rewards[self.best])

    def _fresh_gradients(self, block: int, steps: int) -> Any:
        """Chunks of (gradients, rewards) until ``steps`` steps are served; rewards belong to the blocks asked with."""
        served = 0
        while served < steps:
            query = Query(self.partition, self.replicas, wanted=(block,))
            answered = self.oracle.each(query, steps - served)
            if answered.n == 0:
                raise _StreamEndedError
            (answer,) = answered.answers
            self.samples += answered.n
            served += len(answer.rewards)
            yield answer.gradients[block], answer.rewards

    def _held(self) -> int:
        return sum(block.nbytes for block in self.replicas)

    def _note_state(self, extra: int = 0) -> None:
        self.state_bytes = max(self.state_bytes, self._held() + extra)

    def _record(self, phase: str, **numbers: Any) -> None:
        record = {"phase": phase, "samples": self.samples, **numbers}
        self.history.append(record)
        for callback in self.callbacks:
            callback({**record, "blocks": self.replicas})


def _nearer(ends: Array, start: Array) -> Array:
    """Of the two end points of a block the one nearer to its start, in Frobenius norm."""
    distances = [float(np.sum((end - start[0]) ** 2)) for end in ends]
    best = int(np.argmin(distances))
    return ends[best : best + 1]


def planned_samples(
    dims: Sequence[int], strength: float = 1.0, preset: str | Constants = "practical"
) -> dict[str, int]:
    """Samples the empirical schedule would ask for, by case, without running it (c_3 = 1 for Case I)."""
    partition = Partition.pairs(tuple(dims))
    constants = preset_constants(preset)
    search = [step.samples for step in search_steps(partition, strength, constants)]
    first = empirical_schedule(partition, strength, constants, 1.0, search=search[0])
    second = empirical_schedule(partition, strength, constants, None, search=sum(search))
    return {"Case I": first.samples(len(dims)), "Case II": second.samples(len(dims))}
