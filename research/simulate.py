r"""The law of the iterates, exactly, at a cost per step that does not depend on the dimension.

**The reduced chain**: one block's iterates in three numbers, exact in law for Gaussian noise.

In block m's turn the other blocks stand still, so a fresh sample's gradient is :math:`s A + Z` with
:math:`s = \lambda\prod_{i\ne m}\alpha_i`, :math:`A = v v'^\top` (unit length) and Z i.i.d. N(0, 1).  Write

.. math:: W = a\,A + q\,Q + r\,U,

Q the unit part of the start that is orthogonal to A, U uniform on the unit sphere of the rest (D − 2 dimensions).
Neither Q nor A nor the law of Z changes when the rest is rotated, so U stays uniform and independent of (a, q, r), and
the ascent step (:mod:`tpca.solvers.paper.run`) moves

.. math::
    g_a = s + z_a, \quad g_q = z_q, \quad g_u = z_u, \qquad R = (a g_a + q g_q + r g_u)/n, \quad n^2 = a^2+q^2+r^2

    a \leftarrow (1+\eta R)a + \eta n g_a, \quad q \leftarrow (1+\eta R)q + \eta n g_q, \quad
    r \leftarrow \sqrt{((1+\eta R)r + \eta n g_u)^2 + \eta^2 n^2 \chi^2_{D-3}}

with three normals and one chi-square variable a step: the cost does not depend on D.  A step on the mean of τ samples
with step size τη has the same form, noise divided by :math:`\sqrt\tau`; that is how a run of 10¹³ samples is simulated
(``coarse`` below).

=========  =====================================
symbol     argument
=========  =====================================
(a, q, r)  a row of ``coordinates``, (R, 3)
s          ``signals`` (R,)
η, τ       ``step_sizes``, ``batches``
D          ``size``
=========  =====================================

**Online SGD in the exact vector parameterisation** (Ben Arous, Gheissari & Jagannath 2021), :func:`simulate_online`.
One vector :math:`w_n` a mode, all moved by every sample: :math:`w_n \leftarrow unit(w_n + \eta\nabla_n R)`.  For
Gaussian noise the gradients of two modes are independent but for their components along :math:`w_n`, which move no
direction; so each mode is a chain of its own with D = d and
:math:`s_n = \lambda\prod_{i\ne n}\alpha_i`, in two numbers :math:`\alpha_n, \beta_n = \sqrt{1-\alpha_n^2}`:

.. math::
    \alpha \leftarrow x/\sqrt{x^2 + (\beta + \eta z')^2 + \eta^2\chi^2_{d-2}}, \qquad x = \alpha + \eta(s + z) .

The step size is :math:`\eta = 1/\sqrt{dN}`, for which the noise of N samples just replaces the start: a longer memory
would forget nothing, a shorter one not use all samples.  (The noise is N(0, I) in the coordinates along the truth,
along the rest of the iterate and across; the last is a chi-square variable with d − 2 degrees of freedom.)

**The paper's whole algorithm on it** (:class:`SimulatedRun`): every sign, every phase, selection and estimator step.

What :class:`tpca.solvers.paper.run.PaperRun` does with samples, :class:`SimulatedRun` does with the law of its
iterates.  All starts share their random vectors and have samples of their own, so given those vectors they are
independent.

* A pair's start :math:`W_0 = e\,\frac{(I\;0)}{2\sqrt d} + f\,\frac12 u u'^\top` (e, f signs, u, u' random unit
  vectors) enters only through
  :math:`\langle W_0, A\rangle = e\,Cor(v, v')/(2\sqrt d) + f\,\tfrac12\langle u, v\rangle\langle u', v'\rangle` and
  :math:`\|W_0\|^2 = \tfrac12 + e f\,Cor(u, u')/(2\sqrt d)`, a vector block's through :math:`f\langle u, v\rangle`.
  That is O(d); the block itself is built only when its final iterate is asked for.
* A block's turn: :func:`advance` with :math:`s = \lambda\prod_{i\ne m}\alpha_i`.
* Selection: the mean reward of a start over N_0 samples is :math:`N(\lambda\prod_m\alpha_m, 1/N_0)`.
* c_3 search: the score's mean is :math:`\lambda\prod_m Cor_m` (times :math:`\langle u_1, v_1\rangle` at odd order), its
  variance :math:`\prod_m d_{short}` over the samples.
* Phase III: the winner becomes the new Q, so that q is the overlap with it and the distance of an end point is known.
* The mean reward at the end, over the second halves of two turns of T steps: :math:`N(\lambda\prod_m\alpha_m, 1/T)`.
* The final W: draw Q's own past, then U, and add up; its top vectors as usual.

``coarse`` = 0 takes every single step and is exact in law.  ``coarse`` = ε > 0 takes mini-batches of
τ = min(ε/(η²D), 10ε/(η|s|)) samples with steps τη: a sample adds η²D to the noise energy of the direction and η|s| to
its signal, so a step changes the one by about ε and the other by 10ε (its growth is linear, and a coarse step of a
linear growth is exact).  Where τ would be below 1 every step is taken.  A turn that lasts longer than 60 relaxation
times 1/(η|s|) is begun at its last 60: what was before is forgotten to within e^{-60}.  A leg thus costs of the order
of 1/ε steps whatever d is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SolverError
from tpca.model import SpikedTensor, cor
from tpca.solvers.paper.run import block_vectors
from tpca.solvers.paper.schedule import Constants, Leg, Schedule, decay_length, empirical_schedule, search_steps
from tpca.solvers.rank_one import positive
from tpca.tensors.blocks import Array, Partition, unit

# Steps in one call of the compiled loop: a second or so, after which Ctrl-C is heard.
CALL = 10_000_000
THERE = 0.9
# Relaxation times after which a turn has forgotten where it began.
SETTLED = 60.0
Signs = tuple[float, ...]


@functools.cache
def compiled(loop: Callable[..., Any]) -> Any:
    """``loop`` compiled by numba, kept beside the source where that can be written.

    Numba takes a third of a second to import, so it is asked for only when a loop is first needed.  It belongs to the
    packages for development: loops of millions of steps, each of which needs the last, are nowhere else.
    """
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # nowhere to keep it
        return numba.njit(nogil=True)(loop)


def advance(
    coordinates: Array,
    signals: Array,
    step_sizes: Array | float,
    steps: Array | int,
    size: int,
    rng: np.random.Generator,
    batches: Array | float = 1.0,
) -> Array:
    """The coordinates after ``steps`` samples, ``batches`` of them a step, scaled to unit length.

    Step sizes belong to one sample; a negative one descends (Phase III runs from both signs).  Everything but ``size``
    may differ from replica to replica.
    """
    rows = np.array(coordinates, dtype=np.float64)
    wide = [np.broadcast_to(np.asarray(x, dtype=np.float64), len(rows)) for x in (signals, step_sizes, steps, batches)]
    signal, eta, samples, batch = wide
    rounds = np.where(samples > 0, np.maximum(np.rint(samples / batch), 1), 0).astype(np.int64)
    shares = samples / np.maximum(rounds, 1)  # so that the samples come out exactly
    numbers = [np.ascontiguousarray(x) for x in (signal, eta * shares, 1 / np.sqrt(np.maximum(shares, 1.0)))]
    while rounds.any():
        now = np.minimum(rounds, max(1, CALL // len(rows)))
        compiled(_climb)(rows, *numbers, now, float(size), rng)
        rounds = rounds - now
    return rows


def _climb(
    rows: Array,
    signals: Array,
    step_sizes: Array,
    noises: Array,
    steps: NDArray[np.int64],
    size: float,
    rng: np.random.Generator,
) -> None:
    """Take the steps of every replica, in place; compiled."""
    for j in range(len(rows)):
        a, q, r = rows[j, 0], rows[j, 1], rows[j, 2]
        signal, step_size, noise = signals[j], step_sizes[j], noises[j]
        spread = noise * noise
        for _ in range(steps[j]):
            along_truth = signal + noise * rng.standard_normal()
            along_start = noise * rng.standard_normal()
            along_rest = noise * rng.standard_normal() if size > 2 else 0.0
            beside = spread * rng.chisquare(size - 3) if size > 3 else 0.0
            norm = math.sqrt(a * a + q * q + r * r)
            grow = step_size * norm
            keep = 1 + step_size * (a * along_truth + q * along_start + r * along_rest) / norm
            a = keep * a + grow * along_truth
            q = keep * q + grow * along_start
            inward = keep * r + grow * along_rest
            r = math.sqrt(inward * inward + grow * grow * beside)
            if norm > 1e60:  # only the direction matters
                a, q, r = a / norm, q / norm, r / norm
        norm = math.sqrt(a * a + q * q + r * r)
        rows[j, 0], rows[j, 1], rows[j, 2] = a / norm, q / norm, r / norm


def simulate_online(
    dims: tuple[int, ...], strength: float, samples: float, rng: np.random.Generator, coarse: float = 0.0
) -> Array:
    """α_n after ``samples`` samples, of the better of the two signs of a random start.

    ``coarse`` = ε > 0 takes mini-batches in which nothing moves by more than about ε (see the top), 0 every single
    sample.  A run in which every mode has passed 0.9 is over: what noise is left there, √(d/N), does not bring it back.
    """
    begin = np.empty(len(dims))  # inner products of uniform unit vectors with fixed ones
    for n, d in enumerate(dims):
        first = rng.standard_normal()
        begin[n] = first / math.sqrt(first**2 + rng.chisquare(d - 1))
    step_size = 1 / math.sqrt(max(dims) * samples)
    ends = []
    for sign in (1.0, -1.0):
        aligned = begin.copy()
        aligned[0] *= sign
        compiled(_ascend)(aligned, np.array(dims, dtype=np.float64), strength, step_size, float(samples), coarse, rng)
        ends.append(aligned)
    return max(ends, key=lambda a: float(np.prod(a)))


def _ascend(
    aligned: Array,
    sizes: Array,
    strength: float,
    step_size: float,
    samples: float,
    coarse: float,
    rng: np.random.Generator,
) -> None:
    """All modes at once, in place, until the samples end or every mode is there; compiled."""
    order = len(aligned)
    signals = np.empty(order)
    left = samples
    while left >= 1.0 and np.min(np.abs(aligned)) < THERE:
        for n in range(order):
            signals[n] = strength
            for i in range(order):
                if i != n:
                    signals[n] *= aligned[i]
        fastest = max(step_size * np.max(np.abs(signals)), step_size**2 * np.max(sizes))
        batch = max(1.0, min(coarse / fastest, left))
        step, noise = step_size * batch, 1 / math.sqrt(batch)
        left -= batch
        for n in range(order):
            beta = math.sqrt(max(0.0, 1.0 - aligned[n] * aligned[n]))
            # Along the iterate itself noise moves nothing, but it is part of the published step.
            towards = aligned[n] + step * (signals[n] + noise * rng.standard_normal())
            beside = beta + step * noise * rng.standard_normal()
            rest = (step * noise) ** 2 * rng.chisquare(sizes[n] - 2)
            aligned[n] = towards / math.sqrt(towards * towards + beside * beside + rest)


@dataclass(frozen=True)
class BlockStart:
    """One block's start: its random vectors, and the signs that its parts take."""

    truth: tuple[Array, ...]
    random: tuple[Array, ...]
    kind: str
    """``"both"``, ``"identity"`` or ``"random"``: the parts there are."""
    spare: tuple[Array, ...] = ()
    """Of a vector block: what it begins with instead of its start with the other sign."""

    @classmethod
    def draw(cls, truth: tuple[Array, ...], kind: str, rng: np.random.Generator, spare: bool = False) -> BlockStart:
        """Random vectors for a block; of one mode the random part is all there is."""
        random = tuple(unit(rng.standard_normal(len(v))) for v in truth)
        alone = len(truth) == 1
        another = (unit(rng.standard_normal(len(truth[0]))),) if spare and alone else ()
        return cls(truth, random, "random" if alone else kind, another)

    @property
    def signs(self) -> list[Signs]:
        """All choices of the signs of the parts."""
        return list(itertools.product((1.0, -1.0), repeat=2 if self.kind == "both" else 1))

    def coordinates(self, signs: Signs) -> Array:
        """(a, q, r) of the start scaled to unit length; r = 0."""
        if self.spare and signs[0] < 0:
            return replace(self, random=self.spare, spare=()).coordinates((1.0,))
        weights = self._weights(signs)
        overlaps, inner = self.overlaps()
        a = float(np.dot(weights, overlaps)) / math.sqrt(weights @ inner @ weights)
        return np.array([a, math.sqrt(max(0.0, 1.0 - a * a)), 0.0])

    def block(self, signs: Signs) -> Array:
        """The start itself, scaled to unit length."""
        if len(self.truth) == 1:
            return self.spare[0] if self.spare and signs[0] < 0 else unit(signs[0] * self.random[0])
        shape = tuple(len(v) for v in self.truth)
        parts = np.stack([unit(np.eye(shape[0], shape[1])), np.multiply.outer(*self.random)])
        return unit(np.tensordot(self._weights(signs), parts, axes=1))

    def _weights(self, signs: Signs) -> Array:
        """Weight of the identity and of the random part."""
        if self.kind == "both":
            return np.array(signs) / 2
        return np.array([signs[0], 0.0] if self.kind == "identity" else [0.0, signs[0]])

    def overlaps(self) -> tuple[Array, Array]:
        """Inner products of the unit parts with the truth, and with each other."""
        random = math.prod(float(u @ v) for u, v in zip(self.random, self.truth, strict=True))
        if len(self.truth) == 1:
            return np.array([0.0, random]), np.eye(2)
        root = math.sqrt(min(len(v) for v in self.truth))
        both = cor(*self.random) / root
        return np.array([cor(*self.truth) / root, random]), np.array([[1.0, both], [both, 1.0]])


class SimulatedRun:
    """One run in reduced coordinates: ``coordinates[m]`` has a row (a, q, r) of unit length for every start."""

    def __init__(
        self,
        truth: SpikedTensor,
        rng: np.random.Generator,
        starts: str = "both",
        coarse: float = 0.0,
        spare: bool = False,
    ) -> None:
        self.truth, self.rng, self.coarse = truth, rng, coarse
        self.partition = Partition.pairs(truth.dims)
        vectors = [tuple(truth.vectors[n] for n in group) for group in self.partition.groups]
        self.starts = [BlockStart.draw(each, starts, rng, spare) for each in vectors]
        self.signs = list(itertools.product(*(start.signs for start in self.starts)))
        self.coordinates = []
        for m, start in enumerate(self.starts):
            rows = {signs: start.coordinates(signs) for signs in start.signs}
            self.coordinates.append(np.array([rows[signs[m]] for signs in self.signs]))
        self._winner: list[Array] | None = None  # what Q was before Phase III
        self.best, self.samples, self.steps = 0, 0, 0
        self.block_samples = [0] * len(self.partition)  # N_m: a block's share of the samples
        self.phase_one = 0
        self.history: list[tuple[int, Array]] = []  # samples and alignments after every turn, or piece of one
        self.mean_reward = math.nan

    @property
    def alignments(self) -> Array:
        """α_m of every start, shape (blocks, starts)."""
        return np.array([rows[:, 0] for rows in self.coordinates])

    def multi_phase(self, schedule: Schedule) -> None:
        """MPSNSGA, all but the estimator step."""
        self.climb(schedule)
        self.select(schedule.selection)
        self.estimate(schedule.estimation)

    def climb(self, schedule: Schedule) -> None:
        """Phases I and II."""
        for legs in schedule.stages:
            self.sequential_ascent(legs)
        self.phase_one = sum(self.block_samples)
        self.sequential_ascent(schedule.ascent)

    def search_reference(self, strength: float, constants: Constants) -> tuple[float | None, int]:
        """c_3 or ``None``, and the samples that the search took (Algorithm search-c_3-even / -odd)."""
        score = self.truth.strength
        for start in self.starts:
            overlaps, _ = start.overlaps()
            score *= overlaps[0] * math.sqrt(len(start.truth[0])) if len(start.truth) == 2 else overlaps[1]
        variance = math.prod(len(start.truth[0]) if len(start.truth) == 2 else 1 for start in self.starts)
        taken = 0
        for test in search_steps(self.partition, strength, constants):
            taken += test.samples
            seen = score + self.rng.standard_normal() * math.sqrt(variance / test.samples)
            if abs(seen) >= test.threshold:
                return test.c3, taken
        return None, taken

    def sequential_ascent(self, legs: Sequence[Leg], signs: Array | None = None, halve: bool = False) -> None:
        """SNSGA1, or SNSGA2 with ``halve``: every block in turn, the last first."""
        for block in reversed(range(len(self.partition))):
            leg = legs[block]
            piece = decay_length(leg.steps) if halve else max(1, leg.steps)  # an idle block has no steps
            for number, done in enumerate(range(0, leg.steps, piece)):
                steps = min(piece, leg.steps - done)
                self.turn(block, leg.step_size * 0.5**number, steps, signs)

    def turn(self, block: int, step_size: float, steps: int, signs: Array | None = None) -> None:
        """One block's steps at one step size, on all replicas."""
        size, rows = self.partition.sizes[block], self.coordinates[block]
        others = self.truth.strength * np.prod(np.delete(self.alignments, block, axis=0), axis=0)
        etas = step_size * (np.ones(len(rows)) if signs is None else signs)
        taken, batches = self._pace(step_size, steps, size, np.abs(others))
        self.coordinates[block] = advance(rows, others, etas, taken, size, self.rng, batches)
        self.steps += int(np.maximum(np.rint(taken / batches), 1).sum())
        self.samples += steps * len(rows)
        self.block_samples[block] += steps * len(rows)
        self.history.append((self.samples, self.alignments))

    def _pace(self, step_size: float, steps: int, size: int, signals: Array) -> tuple[Array, Array]:
        """Samples to simulate and samples a step, for every replica (see ``coarse`` at the top)."""
        if self.coarse == 0:
            return np.full(len(signals), float(steps)), np.ones(len(signals))
        pull = np.maximum(step_size * signals, 1e-200)  # a signal of zero never settles
        taken = np.minimum(steps, SETTLED / pull)
        return taken, np.maximum(1.0, np.minimum(self.coarse / (step_size**2 * size), 10 * self.coarse / pull))

    def select(self, samples_each: int) -> None:
        """Keep the start with the largest mean reward over N_0 fresh samples each."""
        mean = self.truth.strength * np.prod(self.alignments, axis=0)
        seen = mean + self.rng.standard_normal(len(mean)) / math.sqrt(samples_each)
        self.best = int(np.argmax(seen))
        self.mean_reward = float(seen[self.best])
        self.samples += samples_each * len(mean)
        self.coordinates = [rows[self.best : self.best + 1].copy() for rows in self.coordinates]

    def estimate(self, legs: Sequence[Leg]) -> None:
        """Phase III from the winner with +R and −R; per block the end point nearer to the start."""
        if len(self.coordinates[0]) != 1:
            raise SolverError("estimate needs one start; call select first.")
        begin = [rows[0] for rows in self.coordinates]
        self._winner = begin
        folded = [np.array([row[0], math.hypot(row[1], row[2]), 0.0]) for row in begin]
        self.coordinates = [np.stack([row, row]) for row in folded]
        self.sequential_ascent(legs, np.array([1.0, -1.0]), halve=True)
        for m, (rows, start) in enumerate(zip(self.coordinates, folded, strict=True)):
            nearer = int(np.argmax(rows @ start))  # unit vectors: the larger inner product is the smaller distance
            self.coordinates[m] = rows[nearer : nearer + 1]
        mean = self.truth.strength * float(np.prod(self.alignments))
        self.mean_reward = mean + self.rng.standard_normal() / math.sqrt(legs[0].steps)

    def blocks(self) -> tuple[Array, ...]:
        """The winner's blocks, drawn from their exact law; needs room for D entries a block."""
        truths = self.partition.outer(self.truth.vectors)
        chosen = self.signs[self.best]
        drawn = []
        for m, (start, truth) in enumerate(zip(self.starts, truths, strict=True)):
            beside = unit(_orthogonal(start.block(chosen[m]), [truth]))
            if self._winner is not None:  # the part of Phase III's start beside the truth, whose U is drawn now
                _, q, r = self._winner[m]
                beside = unit(q * beside + r * self._uniform(truth, beside))
            a, q, r = self.coordinates[m][0]
            drawn.append(a * truth + q * beside + r * self._uniform(truth, beside))
        return tuple(drawn)

    def vectors(self) -> tuple[Array, ...]:
        """Top vectors of the winner's blocks, in the user's mode order, with the sign that the mean reward decides."""
        return positive(block_vectors(self.partition, self.blocks(), "power", self.rng), self.mean_reward)[0]

    def _uniform(self, truth: Array, beside: Array) -> Array:
        """A unit block uniform on what is orthogonal to both; nothing where there is no room for one."""
        if truth.size < 3:
            return np.zeros_like(truth)
        return unit(_orthogonal(self.rng.standard_normal(truth.shape), [truth, beside]))


def simulate_empirical(
    truth: SpikedTensor, constants: Constants, rng: np.random.Generator, coarse: float = 0.0
) -> tuple[SimulatedRun, Schedule]:
    """The empirical schedule, its search included, up to the selection."""
    run = SimulatedRun(truth, rng, coarse=coarse, spare=constants.idle_vector)
    c3, taken = run.search_reference(truth.strength, constants)
    schedule = empirical_schedule(run.partition, truth.strength, constants, c3, search=taken)
    run.samples += taken
    run.climb(schedule)
    run.select(schedule.selection)
    return run, schedule


def _orthogonal(array: Array, directions: Sequence[Array]) -> Array:
    """``array`` without its part along orthonormal ``directions``."""
    for direction in directions:
        array = array - np.vdot(array, direction) * direction
    return array
