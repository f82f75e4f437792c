r"""One run of the paper's algorithm: starts, steps, phases, and the way from blocks to vectors.

The algorithm as a whole is at the top of :mod:`tpca.solvers.paper.solver`.

**Starts** (Eq. init-setting and init-setting-odd): all sign combinations of

.. math::
    W_m^{(0)} = \pm\frac{1}{2\sqrt{d}}\,(I\;0) \;\pm\; \frac12\,\bar u\,\bar u'^\top, \qquad
    w_1^{(0)} = \pm\bar u \;\text{(odd order)},

u, u' standard normal, drawn once and shared by all starts: 2^k̄ of them.  At odd order half of them are the other half
over again: −w_1 with a pair's W_m is w_1 with −W_m.  With ``spare`` the second choice of the vector block is another
random vector instead of −w_1: a vector that stands still in Phase I has nothing but its start, and of two starts the
better one counts.

**The step** (Eq. update-SGA and update-SGA-odd), one for every block and parity:

.. math::
    W \leftarrow \Big(1 + \frac{\eta R}{\|W\|}\Big) W + \eta \|W\| \nabla R, \qquad R = \langle\nabla R, W\rangle

This is gradient ascent on :math:`\|W\| R(W)`, which is 2-homogeneous: the direction :math:`W/\|W\|` evolves in the same
way whatever the scale of W.

**Which modes make a pair**: the paper pairs neighbours and profits from Cor(v_1, v_2), Cor(v_3, v_4), … alone: with
v_1 = v_3 it gains nothing.  The score of the c_3 search (Eq. esti-cor-event), :math:`\langle\bigotimes_m (I\;0),
T\rangle`, has mean :math:`\lambda\prod_m Cor_m` for every pairing, and one sample serves all :math:`(\bar k-1)!!` of
them (15 at order 6), at one number each.  So a test of the search takes the pairing with the largest \|mean score\| and
compares that with the threshold.  With ``MARGIN`` times as many samples the threshold is 4 standard deviations of a
score, which one of 15 pairings passes by chance with probability 0.1 %.

**Vectors** (Section simple-top-eig): a converged block is close to :math:`v v'^\top`: v is the top eigenvector of
:math:`W W^\top` and v' that of :math:`W^\top W`, by the power method or by gradient ascent on
:math:`\langle v, W W^\top v\rangle` (Eq. compute-top-eigenvector-GA).  Erratum 2: at odd order block m yields
:math:`\hat v_{2m-2}, \hat v_{2m-1}`.  The two are given the signs with which
:math:`\langle W, \hat v \hat v'^\top\rangle \ge 0`, so that the tensor of all vectors has the sign of the tensor of
all blocks (erratum 13).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tpca.engines import Engine
from tpca.errors import SolverError
from tpca.model import BATCH_ENTRIES
from tpca.solvers.options import Callback
from tpca.solvers.paper.schedule import Constants, Leg, Schedule, decay_length, search_steps
from tpca.solvers.rank_one import split_blocks
from tpca.solvers.run import Keeper, Kept
from tpca.tensors import Gradients, Query, SampleGradients
from tpca.tensors.blocks import Array, Partition, Replicas, unit

MARGIN = 2.0
MAX_ITERATIONS = 10_000
# Squared change of a unit vector at which iterating stops: far below any statistical error, above rounding.
MOVE_TOL = 1e-24


def sign_starts(partition: Partition, rng: np.random.Generator, spare: bool = False) -> Replicas:
    """All 2^k̄ starts as replicas: one array ``(2^k̄, *block shape)`` per block."""
    choices: list[list[Array]] = []
    for shape in partition.shapes:
        vectors = [unit(rng.standard_normal(length)) for length in shape]
        if len(shape) == 1:
            choices.append([vectors[0], unit(rng.standard_normal(shape[0])) if spare else -vectors[0]])
        else:
            identity, drawn = np.eye(shape[0], shape[1]) / (2 * np.sqrt(shape[0])), np.multiply.outer(*vectors) / 2
            choices.append([e * identity + f * drawn for e, f in itertools.product((1.0, -1.0), repeat=2)])
    return tuple(np.stack(blocks) for blocks in zip(*itertools.product(*choices), strict=True))


def ascent_step(blocks: Array, gradients: Array, step_size: float, signs: Array | None = None) -> Array:
    """One step of every replica of one block: ``blocks`` and ``gradients`` have shape ``(R, *block shape)``.

    ``signs`` (R,) multiplies the reward, +1 or −1: Phase III runs from both.
    """
    axes = (slice(None),) + (None,) * (blocks.ndim - 1)
    flat_blocks, flat_gradients = blocks.reshape(len(blocks), -1), gradients.reshape(len(blocks), -1)
    norms = np.sqrt(np.einsum("ri,ri->r", flat_blocks, flat_blocks))
    rewards = np.einsum("ri,ri->r", flat_gradients, flat_blocks)
    etas = step_size if signs is None else step_size * signs
    keep: Array = 1 + etas * rewards / norms
    grow: Array = etas * norms
    return keep[axes] * blocks + grow[axes] * gradients


def step_rewards(blocks: Array, gradients: Array) -> Array:
    """The rewards (R,) of the normalised replicas: ⟨∇R, W⟩/‖W‖, for R is linear in W."""
    flat_blocks, flat_gradients = blocks.reshape(len(blocks), -1), gradients.reshape(len(blocks), -1)
    norms = np.sqrt(np.einsum("ri,ri->r", flat_blocks, flat_blocks))
    rewards: Array = np.einsum("ri,ri->r", flat_gradients, flat_blocks) / norms
    return rewards


def normalise(blocks: Array) -> Array:
    """Every replica of a block divided by its Frobenius norm."""
    axes = tuple(range(1, blocks.ndim))
    scaled: Array = blocks / np.sqrt(np.sum(blocks**2, axis=axes, keepdims=True))
    return scaled


def pairings_of(dims: Sequence[int]) -> list[Partition]:
    """All pairings, neighbours first; at odd order the shortest mode stays alone."""

    def matchings(modes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if not modes:
            yield ()
            return
        first, *others = modes
        for partner in others:
            left = [n for n in others if n != partner]
            yield from (((first, partner), *pairs) for pairs in matchings(left))

    groups = Partition.pairs(dims).groups
    single, rest = groups[: len(dims) % 2], [n for group in groups[len(dims) % 2 :] for n in group]
    return [Partition(tuple(dims), (*single, *pairs)) for pairs in matchings(rest)]


def score_query(partition: Partition, vector: Array) -> Query:
    """The score of Eq. esti-cor-event: identities for pairs; ``vector`` is the start of the vector block, if any."""
    shapes = partition.shapes
    blocks = [np.eye(shape[0], shape[1]) if len(shape) == 2 else vector for shape in shapes]
    square = tuple(m for m, shape in enumerate(shapes) if len(shape) == 2 and shape[0] == shape[1])
    return Query(partition, tuple(block[None] for block in blocks), gradients_of=(0,), traced=square)


def top_vector(matrix: Array, method: str, rng: np.random.Generator) -> Array:
    """Iterate until v stands still, rescaled at every step, which changes no direction.

    v ← W Wᵀ v (``"power"``), or v ← v + η ∇⟨v, W Wᵀ v⟩ = (I + 2η W Wᵀ) v with η = 1/‖W‖² (``"ascent"``).
    """
    eta = 1.0 / float(np.sum(matrix**2))
    v = unit(rng.standard_normal(len(matrix)))
    for _ in range(MAX_ITERATIONS):
        climbed = matrix @ (matrix.T @ v)
        new = unit(climbed if method == "power" else v + 2 * eta * climbed)
        moved = float(np.sum((new - v) ** 2))
        v = new
        if moved < MOVE_TOL:
            break
    return v


def block_vectors(
    partition: Partition, blocks: tuple[Array, ...], method: str, rng: np.random.Generator
) -> tuple[Array, ...]:
    """The top vectors of every block of one replica, in the user's mode order; ⟨W_m, v̂ v̂′ᵀ⟩ ≥ 0 for every pair."""

    def split(block: Array) -> list[Array]:
        if block.ndim == 1:
            return [unit(block)]
        left, right = top_vector(block, method, rng), top_vector(block.T, method, rng)
        return [left, -right if left @ block @ right < 0 else right]

    return tuple(split_blocks(partition.groups, blocks, split))


class StreamEndedError(Exception):
    """The stream ended inside a phase."""


Turn = Callable[[], None]


class PaperRun(Kept):
    """One run: its state is ``replicas`` and how many ``turns`` are done; the rest is accounting.

    Public so that studies and tests can drive the phases one by one.
    """

    kept = (
        "partition", "replicas", "turns", "searched", "rng", "samples", "rewards", "history", "state_bytes", "_begin",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, rng: np.random.Generator, callbacks: Sequence[Callback] = (), spare: bool = False
    ) -> None:
        self.engine, self.rng, self.callbacks = engine, rng, callbacks
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
            if abs(scores[best]) < test.threshold:
                continue
            if tried[best] != self.partition:  # new starts for its pairs; the vector block keeps its own
                self.partition = tried[best]
                vectors = self.replicas[: self.partition.order % 2]
                drawn = sign_starts(self.partition, self.rng)[len(vectors) :]
                self.replicas = (*vectors, *(normalise(block) for block in drawn))
                self._note_state()
            return test.c3
        return None

    def multi_phase(self, schedule: Schedule, keeper: Keeper | None = None) -> None:
        """MPSNSGA (Algorithm MSANSGA / MSANSGA-odd), all but the estimator step.

        All turns are listed in order, so that a run can go on after any of them.
        """
        for legs in (*schedule.stages, schedule.ascent, schedule.estimation):
            if len(legs) != len(self.partition):
                raise SolverError(
                    f"a schedule for samples of shape {self.partition.dims} needs {len(self.partition)} legs a phase, "
                    f"got {len(legs)}."
                )
        program: list[Turn] = []
        for h, legs in enumerate(schedule.stages, start=1):
            program += self._ascent(legs, f"I.{h}")
        program += self._ascent(schedule.ascent, "II")
        program += [functools.partial(self.select, schedule.selection), *self._estimation(schedule.estimation)]
        for turn in program[self.turns :]:
            turn()
            self.turns += 1
            if keeper is not None:
                keeper.after_round(self, self.engine)

    def sequential_ascent(self, legs: Sequence[Leg], phase: str) -> None:
        """SNSGA1: every block in turn, the last first, normalised at the end of its turn."""
        for turn in self._ascent(legs, phase):
            turn()

    def _ascent(self, legs: Sequence[Leg], phase: str, signs: Array | None = None, halve: bool = False) -> list[Turn]:
        """The turns of SNSGA1, or of SNSGA2 with ``halve``."""
        blocks = reversed(range(len(legs)))
        return [functools.partial(self._turn, phase, block, legs[block], signs, halve) for block in blocks]

    def select(self, samples_each: int) -> None:
        """Keep the start with the largest mean reward over N_0 fresh samples each (Algorithm MSANSGA, step 3)."""
        last = len(self.partition) - 1
        totals = np.zeros(len(self.replicas[0]))
        for gradients in self._fresh_gradients(last, samples_each):
            totals += step_rewards(self.replicas[last], gradients.sum(axis=0))
        best = int(np.argmax(totals))
        self.rewards = totals[best : best + 1] / samples_each
        self.replicas = tuple(block[best : best + 1].copy() for block in self.replicas)
        self._record("selection", block=None, reward=self.mean_reward, start=best)

    def estimate(self, legs: Sequence[Leg]) -> None:
        """Phase III: SNSGA2 from the winner with +R and −R, then per block the end point nearer to the start."""
        for turn in self._estimation(legs):
            turn()

    def _estimation(self, legs: Sequence[Leg]) -> list[Turn]:
        turns = self._ascent(legs, "III", signs=np.array([1.0, -1.0]), halve=True)
        return [self._enter_estimation, *turns, self._leave_estimation]

    def _enter_estimation(self) -> None:
        self._begin = start = self.replicas
        self.replicas, self.rewards = tuple(np.repeat(block, 2, axis=0) for block in start), np.repeat(self.rewards, 2)
        self._note_state(extra=sum(block.nbytes for block in start))

    def _leave_estimation(self) -> None:
        """Per block the end point nearer to the start, in Frobenius norm; the reward of what is kept, from both runs.

        A run's rewards are those of its own end points, which agree with the kept ones up to sign: the run with −R
        arrives with one block reversed.
        """
        assert self._begin is not None
        kept, signs = [], np.ones(2)
        for ends, begin in zip(self.replicas, self._begin, strict=True):
            axes = tuple(range(1, ends.ndim))
            nearer = int(np.argmin(np.sum((ends - begin) ** 2, axis=axes)))
            kept.append(ends[nearer : nearer + 1])
            signs *= np.sign(np.sum(ends * kept[-1], axis=axes))
        self.rewards = np.mean(signs * self.rewards, keepdims=True)
        self.replicas, self._begin = tuple(kept), None
        self._record("III", block=None, reward=self.mean_reward)

    def _turn(self, phase: str, block: int, leg: Leg, signs: Array | None, halve: bool) -> None:
        """T steps of one block on all replicas, one fresh sample per replica and step.

        The second half of a turn tells what it reached.  A sample's reward is that of the block just before its step,
        whatever the block was when the engine was asked: so it does not depend on how many steps fit the buffer.
        """
        decay, half = decay_length(leg.steps), leg.steps // 2
        done, late = 0, np.zeros(len(self.replicas[0]))
        for gradients in self._fresh_gradients(block, leg.steps):
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
        self._record(phase, block=block, reward=self.mean_reward)

    def _fresh_gradients(self, block: int, steps: int) -> Iterator[Array]:
        """Gradients of one block, as many steps at once as fit the buffer, until ``steps`` are served."""
        served, count = 0, len(self.replicas[0])
        while served < steps:
            query = Query(self.partition, self.replicas, gradients_of=(block,))
            fit = max(1, min(steps - served, BATCH_ENTRIES // (count * math.prod(self.partition.dims))))
            gradients = self.engine.reduce(SampleGradients(query), fit * count).gradients
            if not len(gradients):
                raise StreamEndedError
            self.samples += len(gradients) * count
            served += len(gradients)
            yield gradients

    def _note_state(self, extra: int = 0) -> None:
        self.state_bytes = max(self.state_bytes, sum(block.nbytes for block in self.replicas) + extra)

    def _record(self, phase: str, **numbers: Any) -> None:
        record = {"phase": phase, "samples": self.samples, **numbers}
        self.history.append(record)
        for callback in self.callbacks:
            callback({**record, "blocks": self.replicas})
