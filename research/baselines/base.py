r"""What all methods share: a source that was opened, what was taken from it, and the estimate at the end.

**All samples at once.**  Most published methods see nothing but the mean of all N samples,

.. math:: \bar T = \frac1N \sum_t T_t = \lambda\, v_1 \otimes \dots \otimes v_{\bar k} + \bar E,
          \qquad \bar E_{ij\dots} \sim N(0, \sigma^2 / N),

and only through contractions.  :class:`AllSamples` answers these from the mean itself, which is then part of the
method's state (∏ d floats), or reads the data again for every query: no state, as many passes as queries.

**Samples in order**, each seen once: :class:`OnePass`.  Let block m have D_m entries and overlap a_m with its signal at
the start.  A step of size η with one sample of unit noise moves that overlap by η λ ∏_{i≠m} a_i, and its noise shrinks
it by η² D_m / 2 of itself, so that it grows only if

.. math:: \eta < 2 \lambda \frac{\prod_{i \ne m} a_i}{a_m D_m}, \qquad
          \text{which then takes about}\quad T = \frac{a_m}{\eta \lambda \prod_{i \ne m} a_i} \text{ samples.}

:class:`StepSizes` keeps half of that bound for a few T, and falls like 2/(λt) afterwards, which is where the error of
the vectors falls like 1/t.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.engines import open_engine
from tpca.engines.base import A
from tpca.errors import ModelError, SolverError, StreamError
from tpca.solvers.estimate import Estimate, StopReason
from tpca.solvers.options import held_bytes
from tpca.solvers.rank_one import positive
from tpca.tensors import Answer, Gradients, Query, TensorSum, contract
from tpca.tensors.blocks import Array, Partition

FRACTION = 0.5  # the first step, in units of the largest one that lets overlaps grow
HOLD = 8.0  # how long it holds, in units of T


@dataclass(kw_only=True, eq=False)
class Baseline:
    """A method.

    Parameters
    ----------
    random_state
        Of its random numbers; not used by methods that have none.
    max_samples
        Use no more than this many; needed for samples that never end.
    """

    random_state: int = 0
    max_samples: int | None = None

    def run(self, source: Any) -> Estimate:
        """Recover the vectors from the samples of ``source``."""
        raise NotImplementedError


def check_dims(method: str, dims: tuple[int, ...], least: int, equal: bool = False, even: bool = False) -> None:
    """Samples of at least this order; with ``equal`` dims where one vector serves all modes, of ``even`` order."""
    if len(dims) < least or (even and len(dims) % 2):
        wanted = f"an even order from {least}" if even else f"order {least} or more"
        raise ModelError(f"{method} needs samples of {wanted}, got dims {dims}; use Unfolding or RaceSolver.")
    if equal and len(set(dims)) > 1:
        raise ModelError(f"{method} is for one vector in all modes, which needs equal dims, got {dims}; use ALS.")


class RunStatistics:
    """A source that was opened, and what was taken from it: samples, passes, the most bytes of a method's arrays."""

    def __init__(self, source: Any, max_samples: int | None) -> None:
        self.engine = open_engine(source)
        if max_samples is None and self.engine.endless:
            raise SolverError("the samples never end and max_samples is None; give max_samples=..., how many to use.")
        self.limit = sys.maxsize if max_samples is None else max_samples
        self.dims = self.engine.dims
        self.singles = Partition.singles(self.dims)
        self.n = self.passes = self.state_bytes = 0

    def note(self, *arrays: Array, working: int = 0) -> None:
        """Remember the most that was held: ``arrays``, and ``working`` bytes beside them."""
        self.state_bytes = max(self.state_bytes, held_bytes(arrays) + working)

    def estimate(
        self, vectors: Sequence[Array], strength: float, history: list[dict[str, Any]] | None = None
    ) -> Estimate:
        """The vectors with definite signs, such that the strength is positive."""
        signed, size = positive(vectors, strength)
        return Estimate.of_one(
            solver="baseline",
            vectors=signed,
            strength=size,
            n_samples=self.n,
            state_bytes=self.state_bytes,
            buffer_bytes=self.engine.buffer_bytes,
            stop_reason=StopReason.ITERATED,
            n_passes=self.passes,
            n_skipped=self.engine.n_skipped,
            history=history or [],
        )


class AllSamples(RunStatistics):
    """Contractions of the mean of all samples.

    ``hold`` keeps the mean in memory; otherwise every query costs a pass, which from the second on takes a
    re-readable source.
    """

    def __init__(self, source: Any, max_samples: int | None, hold: bool = True) -> None:
        super().__init__(source, max_samples)
        self.held = hold
        if hold:
            part = self._pass(TensorSum())
            self.mean: Array = np.asarray(part.total, dtype=np.float64)
            self.mean /= part.n
            self.note()

    def ask(self, *queries: Query) -> tuple[Answer, ...]:
        """Answers over all samples; they and the replicas asked with count as state."""
        if self.held:
            answers = tuple(contract(self.mean, q) for q in queries)
            working = max(_contraction_bytes(q) for q in queries)
        else:
            answers, working = self._pass(Gradients(queries)).answers, 0
        asked = [block for query in queries for block in query.replicas]
        self.note(*asked, working=sum(answer.nbytes for answer in answers) + working)
        return answers

    def ask_vectors(self, vectors: Sequence[Array], gradients_of: tuple[int, ...] | None = None) -> Answer:
        """Gradients and reward of one vector per mode."""
        return self.ask(Query(self.singles, tuple(v[None] for v in vectors), gradients_of))[0]

    def note(self, *arrays: Array, working: int = 0) -> None:
        """Remember the most that was held: the mean, ``arrays``, and ``working`` bytes beside them."""
        super().note(*arrays, working=working + (self.mean.nbytes if self.held else 0))

    def estimate(
        self, vectors: Sequence[Array], strength: float | None = None, history: list[dict[str, Any]] | None = None
    ) -> Estimate:
        """As in :class:`RunStatistics`; a strength that is not given is asked for."""
        if strength is None:
            strength = float(self.ask_vectors(vectors, gradients_of=(0,)).rewards[0])
        return super().estimate(vectors, strength, history)

    def _pass(self, blank: A) -> A:
        """One pass over the data."""
        if self.passes:
            if not self.engine.rereadable:
                raise StreamError(
                    "this method reads the samples several times, and they can be read only once; "
                    "store them (.npy, Zarr, HDF5), or use a method or option that holds the mean."
                )
            self.engine.rewind()
        part = self.engine.reduce(blank, self.limit)
        if part.n == 0:
            raise no_samples()
        self.passes += 1
        self.n = part.n
        return part


def _contraction_bytes(query: Query) -> int:
    """Bytes that a contraction of the mean takes besides its answer: see :func:`tpca.tensors.contract`.

    Three arrays the size of the replicas' outer products over both halves of the blocks (the products, the partial
    contractions, a copy), and their gradients, for as many replicas at once as a mean has room for; and a copy of the
    mean if the blocks do not name the modes in order.
    """
    sizes, modes = query.partition.sizes, [n for group in query.partition.groups for n in group]
    entries = math.prod(sizes)
    halves = [(math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in range(1, len(sizes))]
    outer = sum(min(halves, key=max, default=(0, 0)))
    some = max(1, min(len(query.replicas[0]), entries // max(outer, 1)))
    return 8 * (3 * some * outer + some * sum(sizes) + (0 if modes == sorted(modes) else entries))


class OnePass(RunStatistics):
    """The samples of one pass, some at a time.

    ``mean_rewards`` is the mean reward of every replica; a sample counts in proportion to its number, since replicas
    improve.  Each reward is that of vectors fixed before the sample, so that noise does not flatter it; early ones, of
    worse vectors, leave it a little low.  ``sigma``² is the mean over rounds of B ‖G‖² / D, for the signal's share of a
    gradient's energy is negligible; 1 if the data are all zero.
    """

    def __init__(self, source: Any, max_samples: int | None) -> None:
        super().__init__(source, max_samples)
        self.took, self._weight, self._energy, self._rounds = 0, 0.0, 0.0, 0
        self.mean_rewards: Array = np.zeros(1)

    def ask(self, query: Query, n: int) -> Answer | None:
        """The answer over the next ``n`` samples or what is left of them (``took``); ``None`` at their end."""
        part = self.engine.reduce(Gradients([query]), min(n, self.limit - self.n)) if self.n < self.limit else None
        if part is None or part.n == 0:
            if self.n == 0:
                raise no_samples()
            return None
        self.passes, self.took = 1, part.n
        self.n += part.n
        (answer,) = part.answers
        self.note(*query.replicas, working=2 * answer.nbytes)
        gradients = [g.astype(np.float64) for g in answer.gradients.values()]
        self._energy += self.took * sum(float(np.vdot(g, g)) for g in gradients) / sum(g.size for g in gradients)
        self._rounds += 1
        self.sigma = math.sqrt(self._energy / self._rounds) if self._energy > 0 else 1.0
        weight = float(self.n) * self.took
        self._weight += weight
        self.mean_rewards = self.mean_rewards + weight / self._weight * (answer.rewards - self.mean_rewards)
        return answer


@dataclass(frozen=True)
class StepSizes:
    """``first`` for ``hold`` samples, then falling like 2/(λt); ``strength`` is λ in units of the noise level."""

    first: float
    hold: float
    strength: float

    @classmethod
    def from_start(cls, strength: float, gain: float, entries: int) -> StepSizes:
        """Steps for blocks of D = ``entries`` with ∏_{i≠m} a_i / a_m = ``gain``."""
        first = min(FRACTION * 2 * strength * gain / entries, 1.0 / strength)
        return cls(first, HOLD / (first * strength * gain), strength)

    def at(self, seen: float) -> float:
        """The step size after ``seen`` samples."""
        return self.first / (1 + max(0.0, seen - self.hold) * self.strength * self.first / 2)


def no_samples() -> StreamError:
    """The stream had nothing to give."""
    return StreamError("the stream is empty: there is no sample to work with; give at least one.")
