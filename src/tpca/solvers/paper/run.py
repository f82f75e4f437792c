"""One run of the paper's algorithm (the algorithm is at the top of :mod:`tpca.solvers.paper.solver`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tpca.engines import Engine
from tpca.errors import SolverError
from tpca.model import BATCH_ENTRIES
from tpca.solvers.options import Callback
from tpca.solvers.paper.schedule import Constants, Leg, Schedule, decay_length, search_steps
from tpca.solvers.paper.step import ascent_step, normalise, step_rewards
from tpca.solvers.paper.vectors import MARGIN, score_query, sign_starts
from tpca.solvers.run import Keeper
from tpca.tensors import Gradients, Query, SampleGradients
from tpca.tensors.blocks import Array, Partition, Replicas


class StreamEndedError(Exception):
    """The stream ended inside a phase."""


class PaperRun:
    """One run: its state is ``replicas`` and how many ``turns`` are done; the rest is accounting.

    Public so that studies and tests can drive the phases one by one.
    """

    STATE = (
        "partition", "replicas", "turns", "searched", "rng", "samples", "rewards", "history", "state_bytes", "_begin",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, rng: np.random.Generator, callbacks: Sequence[Callback] = (), spare: bool = False
    ) -> None:
        self.engine = engine
        self.rng = rng
        self.callbacks = callbacks
        self.partition = Partition.pairs(engine.dims)
        # Eq. def-hatR contracts with normalised blocks, the untouched starts included.
        self.replicas: Replicas = tuple(normalise(block) for block in sign_starts(self.partition, rng, spare))
        self.samples, self.turns = 0, 0
        self.searched: tuple[float | None, int] | None = None  # c_3, and the samples it took
        self._begin: Replicas | None = None  # where Phase III started
        # Mean rewards of the replicas over the second half of the latest turn that came so far, or over the selection.
        self.rewards = np.full(len(self.replicas[0]), math.nan)
        self.history: list[dict[str, Any]] = []
        self.state_bytes = 0
        self._note_state()

    @property
    def best(self) -> int:
        """The replica of the largest latest reward: what a stream that ends early leaves."""
        return int(np.argmax(self.rewards))

    @property
    def mean_reward(self) -> float:
        """Its latest mean reward: an estimate of λ∏α_m."""
        return float(self.rewards[self.best])

    def multi_phase(self, schedule: Schedule, keeper: Keeper | None = None) -> None:
        """MPSNSGA (Algorithm MSANSGA / MSANSGA-odd), all but the estimator step."""
        for legs in (*schedule.stages, schedule.ascent, schedule.estimation):
            if len(legs) != len(self.partition):
                raise SolverError(
                    f"a schedule for samples of shape {self.partition.dims} needs {len(self.partition)} legs a phase, "
                    f"got {len(legs)}."
                )
        for turn in self._program(schedule)[self.turns :]:
            turn()
            self.turns += 1
            if keeper is not None:
                keeper.after_round(self, self.engine)

    def _program(self, schedule: Schedule) -> list[Callable[[], None]]:
        """All turns in order, so that a run can go on after any of them."""
        program: list[Callable[[], None]] = []
        for h, legs in enumerate(schedule.stages, start=1):
            program += self._ascent(legs, f"I.{h}")
        program += self._ascent(schedule.ascent, "II")
        program.append(functools.partial(self.select, schedule.selection))
        return program + self._estimation(schedule.estimation)

    def state(self) -> dict[str, Any]:
        """All that the next turn needs."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def search_reference(
        self, strength: float, constants: Constants, pairings: Sequence[Partition] = ()
    ) -> float | None:
        """Reference parameter search (Algorithm search-c_3-even / -odd): the first κ^τ that passes, or ``None``.

        Of several ``pairings`` the one with the largest score is tested, and taken if it passes.
        """
        tried = list(pairings) or [self.partition]
        queries = [score_query(partition, self.replicas[0][0]) for partition in tried]
        margin = MARGIN if len(tried) > 1 else 1.0
        for test in search_steps(self.partition, strength, constants):
            wanted = math.ceil(margin * test.samples)
            part = self.engine.reduce(Gradients(queries), wanted)
            self.samples += part.n
            if part.n < wanted:
                raise StreamEndedError
            scores = [float(answer.rewards[0]) for answer in part.answers]
            best = int(np.argmax(np.abs(scores)))
            self._record("search", block=None, reward=scores[best], c3=test.c3)
            if abs(scores[best]) >= test.threshold:
                self._pair(tried[best])
                return test.c3
        return None

    def _pair(self, partition: Partition) -> None:
        """Another pairing: new starts for its pairs; the vector block, which the search knows, keeps its own."""
        if partition != self.partition:
            vectors = self.replicas[: partition.order % 2]
            drawn = sign_starts(partition, self.rng)[len(vectors) :]
            self.partition, self.replicas = partition, (*vectors, *(normalise(block) for block in drawn))
            self._note_state()

    def sequential_ascent(self, legs: Sequence[Leg], phase: str) -> None:
        """SNSGA1: every block in turn, the last first, normalised at the end of its turn."""
        for turn in self._ascent(legs, phase):
            turn()

    def _ascent(
        self, legs: Sequence[Leg], phase: str, signs: Array | None = None, halve: bool = False
    ) -> list[Callable[[], None]]:
        """The turns of SNSGA1, or of SNSGA2 with ``halve``."""

        def turn(block: int) -> None:
            self._turn(block, legs[block], signs, halve)
            self._record(phase, block=block, reward=self.mean_reward)

        return [functools.partial(turn, block) for block in reversed(range(len(self.partition)))]

    def select(self, samples_each: int) -> None:
        """Keep the start with the largest mean reward over N_0 fresh samples each (Algorithm MSANSGA, step 3)."""
        last = len(self.partition) - 1
        totals = np.zeros(len(self.replicas[0]))
        for _, rewards in self._fresh_gradients(last, samples_each):
            totals += rewards.sum(axis=0)
        best = int(np.argmax(totals))
        self.rewards = totals[best : best + 1] / samples_each
        self.replicas = tuple(block[best : best + 1].copy() for block in self.replicas)
        self._record("selection", block=None, reward=self.mean_reward, start=best)

    def estimate(self, legs: Sequence[Leg]) -> None:
        """Phase III: SNSGA2 from the winner with +R and −R, then per block the end point nearer to the start."""
        for turn in self._estimation(legs):
            turn()

    def _estimation(self, legs: Sequence[Leg]) -> list[Callable[[], None]]:
        turns = self._ascent(legs, "III", signs=np.array([1.0, -1.0]), halve=True)
        return [self._enter_estimation, *turns, self._leave_estimation]

    def _enter_estimation(self) -> None:
        self._begin = start = self.replicas
        self.replicas, self.rewards = tuple(np.repeat(block, 2, axis=0) for block in start), np.repeat(self.rewards, 2)
        self._note_state(extra=sum(block.nbytes for block in start))

    def _leave_estimation(self) -> None:
        """Per block the nearer end point; the reward of what is kept, from both runs.

        A run's rewards are those of its own end points, which agree with the kept ones up to sign: the run with −R
        arrives with one block reversed.
        """
        assert self._begin is not None
        kept = tuple(_nearer(ends, begin) for ends, begin in zip(self.replicas, self._begin, strict=True))
        pairs = zip(self.replicas, kept, strict=True)
        signs = np.prod([np.sign(np.sum(ends * end, axis=tuple(range(1, end.ndim)))) for ends, end in pairs], axis=0)
        self.rewards = np.mean(signs * self.rewards, keepdims=True)
        self.replicas, self._begin = kept, None
        self._record("III", block=None, reward=self.mean_reward)

    def _turn(self, block: int, leg: Leg, signs: Array | None, halve: bool) -> None:
        """T steps of one block on all replicas, one fresh sample per replica and step.

        The second half of a turn tells what it reached.  A sample's reward is that of the block just before its step,
        whatever the block was when the engine was asked: so it does not depend on how many steps fit the buffer.
        """
        decay, half = decay_length(leg.steps), leg.steps // 2
        done, late = 0, np.zeros(len(self.replicas[0]))
        for gradients, _ in self._fresh_gradients(block, leg.steps):
            current = self.replicas[block]
            for gradient in gradients:
                if done >= half:
                    late += step_rewards(current, gradient)
                eta = leg.step_size * 0.5 ** (done // decay) if halve else leg.step_size
                current = ascent_step(current, gradient, eta, signs)
                done += 1
            self.replicas = (*self.replicas[:block], normalise(current), *self.replicas[block + 1 :])
            if done > half:
                self.rewards = late / (done - half)

    def _fresh_gradients(self, block: int, steps: int) -> Iterator[tuple[Array, Array]]:
        """Chunks of (gradients, rewards) until ``steps`` steps are served; rewards belong to the blocks asked with."""
        served = 0
        while served < steps:
            query = Query(self.partition, self.replicas, gradients_of=(block,))
            count = len(self.replicas[0])
            fit = max(1, min(steps - served, BATCH_ENTRIES // (count * math.prod(self.partition.dims))))
            gradients = self.engine.reduce(SampleGradients(query), fit * count).gradients
            if not len(gradients):
                raise StreamEndedError
            self.samples += gradients.shape[0] * count
            served += len(gradients)
            flat = gradients.reshape(*gradients.shape[:2], -1)
            yield gradients, np.einsum("tri,ri->tr", flat, self.replicas[block].reshape(count, -1))

    def _note_state(self, extra: int = 0) -> None:
        self.state_bytes = max(self.state_bytes, sum(block.nbytes for block in self.replicas) + extra)

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
