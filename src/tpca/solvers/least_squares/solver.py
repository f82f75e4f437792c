r"""LeastSquares: the mean of all samples, or what follows a condition, as rank-one components with a test.

**Pass 1** adds up :class:`~tpca.inference.units.UnitSums`, round after round; they give every unit's contribution and
the estimate D.  **Pass 2**, where samples can be read again, sees how each scatters about the fit: with
:math:`U = T - Aa - \kappa D` what is left of a sample, it contributes :math:`E_i = w_i\kappa_i\otimes U_i/S` to the
error of D.  That is contracted with all vectors but one and turned into changes of the fit
(:mod:`tpca.inference.scatter`); only sums of squares over samples, or over the groups that the user gave, are kept: the
same in any order of the samples.  What passes by once is judged by its units alone.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpca.checkpoint import kept
from tpca.engines import Data, open_engine
from tpca.errors import MemoryBudgetError, SampleError, StreamError
from tpca.inference.design import Design, largest_entry, refuse_extreme_size
from tpca.inference.flips import CHUNK
from tpca.inference.units import MAX_UNITS, Contributions, Units, UnitSum, UnitSums
from tpca.randomness import generator
from tpca.solvers.estimate import Estimate
from tpca.solvers.least_squares.conclusion import conclude
from tpca.solvers.least_squares.question import Answer, SignTests, answer_question
from tpca.solvers.options import (
    ClaimingSolver,
    budget,
    check_components,
    check_dependence,
    check_resamples,
    check_whiten,
    option,
)
from tpca.solvers.run import Ask, Run, drive, refuse_all_left_out, tell_flips
from tpca.tensors.accumulators import Accumulator, bytes_held, plus
from tpca.tensors.blocks import Array
from tpca.wording import amount, count

LEAST_BINS = 8
MOST_UNITS = 2048  # groups, or samples, that are units of their own
COPIES = 2  # of contributions: as they are, and whitened
FLIP_COPIES = 4  # of flipped tensors, while they are fitted
KEPT_SAMPLES = 256  # for whitening
KEPT_NUMBERS, FEWEST_KEPT = 2**22, 64  # samples of more entries are fewer: each tells more of every axis
DIGESTED = 4096  # entries of a sample that tell it from others
LONGEST_CUBES = 2**20  # entries of samples whose skewness is looked at
LEAST_ROUND = 64  # samples; of fewer, a round costs more than adding them up


@dataclass(frozen=True)
class Plan:
    """What is held: ``units`` at most, ``kept`` samples for whitening, ``chunk`` numbers of flips."""

    units: int
    kept: int
    chunk: int


@dataclass(kw_only=True, eq=False)
class LeastSquares(ClaimingSolver):
    """The best rank-one fits of what was asked, in the units of the data, from all samples, whatever their order.

    Options are those of :class:`~tpca.TensorPCA`; ``random_state`` is the seed of the flips, on which no estimate
    depends.
    """

    name = "least_squares"

    n_components: Any = option(1, check_components)
    whiten: str | None = option("auto", check_whiten)
    dependence: str | int | None = option("auto", check_dependence)
    n_resamples: int | str = option("auto", check_resamples)

    def start(self, data: Data, design: Design | None = None, pushed: bool = False) -> LeastSquaresRun:
        """A run that asks for its first samples; of samples that are ``pushed`` the design grows with them."""
        design = Design() if design is None else design
        if design.stacked and data.partial:
            raise SampleError(
                f"{len(design.labels)} labels and missing entries do not go together; give two labels, or numbers."
            )
        return LeastSquaresRun(self, data, design, self.plan(data, design, pushed), pushed)

    def run(self, source: Any, design: Design | None = None) -> Estimate:
        """Read a stream or an engine; the components, with their test."""
        engine = open_engine(source)
        conditions = "" if design is None else design.digest
        return drive(self.start(engine, design), engine, conditions=conditions)

    def budget(self) -> int:
        """Bytes that may be held."""
        return budget(self.memory_limit)

    @property
    def neighbours(self) -> int:
        """Samples that are one unit at least."""
        return self.dependence if isinstance(self.dependence, int) else 1

    def plan(self, data: Data, design: Design, growing: bool = False) -> Plan:
        """As many units as fit; with ``growing`` there may be any number of samples."""
        limit, length = self.budget(), None if growing else len(design) or data.length
        units, entries = MAX_UNITS, math.prod(data.dims)
        if design.groups is not None or self.dependence != "auto":
            units = MOST_UNITS
            if length is not None:
                own = -(-max(length, 1) // self.neighbours) if design.groups is None else len(design.group_names)
                units = min(units, own)
        least = min(units, LEAST_BINS)
        while (held := held_bytes(data.dims, units, design, data.partial)) > limit:
            if units // 2 < least:
                raise MemoryBudgetError(
                    f"the sums of {units} units of samples of shape {tuple(data.dims)} take {amount(held)}, the memory "
                    f"is {amount(limit)}; raise memory_limit, or use solver='race', which holds less."
                )
            units //= 2
        most = min(KEPT_SAMPLES, max(FEWEST_KEPT, KEPT_NUMBERS // entries))
        kept = int(min(most, max(2, (limit - held) // (16 * entries))))  # float32, whitened copies
        left = limit - held - 4 * entries * kept
        return Plan(units, kept, int(min(CHUNK, max(entries, left // (8 * FLIP_COPIES)))))


def held_bytes(dims: Sequence[int], units: int, design: Design, partial: bool = False) -> int:
    """Bytes of the sums of so many units, their contributions, and the estimate."""
    c = design.n_columns
    interest = c - design.n_nuisance if design.stacked else 1
    sums = c + c * c * partial
    contributions = COPIES * interest + partial
    return 8 * math.prod(dims) * (units * (sums + contributions) + c + 4 * interest)


def size_of_samples(sums: dict[int, UnitSum]) -> float:
    """The largest entry, in size, of the mean samples of all units."""
    size = 0.0
    for unit in sums.values():
        weight = float(unit.gram[0, 0])
        if weight > 0:
            size = max(size, largest_entry(unit.moments[0]) / weight)
    return size


@kept
class Residuals(Accumulator):
    """How samples scatter about the fit, question by question, and some of them for whitening.

    ``squares`` are sums of squared changes (c, 1 + Σd) over samples, ``energies`` Σ|S·E|².  For advice, how the
    residuals of the first question are distributed, and how many samples are ``copies`` of others.  ``samples`` are the
    ``most`` with the smallest digests, without the nuisances and of length one: a choice that has nothing to do with
    their order.
    """

    SUMS = ("squares", "energies", "n_entries", "square", "fourth", "entry_squares", "entry_cubes", "copies")

    def __init__(self, design: Design, answers: Sequence[Answer], most: int) -> None:
        super().__init__(design, answers, most)
        self.most = most  # also of one that comes from a worker, without its question
        self.squares: dict[int, Any] = {}
        self.energies: dict[int, float] = {}
        self.n_entries, self.square, self.fourth, self.loudest = 0, 0.0, 0.0, 0.0
        self.entry_squares: Any = None
        self.entry_cubes: Any = None
        self.samples: dict[int, Any] = {}
        self.digests: dict[int, None] = {}
        self.copies = 0

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Look at every sample."""
        design, answers, _ = self.question
        for some, samples, seen in batch.dense_pieces():
            z, w = design.rows(batch.places[some])
            for number, answer in enumerate(answers):
                U, R, each, energy = answer.left(z, w, samples, seen)
                changes = answer.tangents.changes(each)
                plus(self.squares, {number: np.einsum("nci,nci->ci", changes, changes)})
                plus(self.energies, {number: energy})
                if number == 0:
                    self._describe(U)
                    self._keep(samples.reshape(len(samples), -1), R)
        self.n += len(batch)

    def _describe(self, flat: Array) -> None:
        """Sums of powers of residuals (n, E)."""
        squares = flat * flat
        each = squares.sum(axis=1)
        self.n_entries += flat.size
        self.square += float(each.sum())
        self.fourth += float(np.vdot(squares, squares))
        self.loudest = max(self.loudest, float(each.max(initial=0.0)))
        if flat.shape[1] <= LONGEST_CUBES:
            self.entry_squares = plus(self.entry_squares, squares.sum(axis=0))
            self.entry_cubes = plus(self.entry_cubes, np.einsum("ne,ne->e", squares, flat))

    def _keep(self, samples: Array, left: Array) -> None:
        """Digest samples (n, E), and keep what is ``left`` of some."""
        last = max(self.samples, default=0) if len(self.samples) >= self.most else math.inf
        for row, own in zip(np.ascontiguousarray(samples[:, :DIGESTED]), left, strict=True):
            found = int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest())
            self.copies += found in self.digests
            self.digests[found] = None
            if found < last:
                self.samples[found] = (own / max(np.linalg.norm(own), 1e-300)).astype(np.float32)
        self._thin()

    def _thin(self) -> None:
        for one in sorted(self.samples)[self.most :]:
            del self.samples[one]

    def merge(self, other: Residuals) -> None:
        """Take what another one has."""
        super().merge(other)
        self.copies += len(self.digests.keys() & other.digests.keys())
        self.digests |= other.digests
        self.loudest = max(self.loudest, other.loudest)
        self.samples |= other.samples
        self._thin()

    @property
    def kurtosis(self) -> float:
        """Of all entries together; 3 for normal noise of one size."""
        return self.fourth / max(self.square**2, 1e-300) * self.n_entries

    @property
    def skewness(self) -> float:
        """Median size of the skewness of entries; 0 where it was not looked at."""
        vary = np.zeros(0, bool) if self.entry_squares is None else self.entry_squares > 0
        if not vary.any():
            return 0.0
        each = np.abs(self.entry_cubes[vary]) / self.entry_squares[vary] ** 1.5
        return float(np.median(each)) * math.sqrt(self.n)

    @property
    def nbytes(self) -> int:
        """What is kept."""
        return super().nbytes + bytes_held(self.samples) + 64 * len(self.digests)


class LeastSquaresRun(Run):
    """Asks for samples, is given their sums, ends with the components.

    Of samples that are ``pushed``, batch after batch, neither the number nor all of the design is known.
    """

    kept = ("sums", "n", "_size", "_looked", "_phase", "residuals")

    def __init__(self, solver: Any, data: Data, design: Design, plan: Plan, pushed: bool = False) -> None:
        super().__init__(solver)
        self._data, self.design, self.plan = data, design, plan
        length = None if pushed else data.length if design.plain else len(design)
        self._most = math.inf if solver.max_samples is None else solver.max_samples
        self._length = None if length is None else int(min(length, self._most))
        self._size = solver.neighbours  # samples of a bin, where the length is not known
        self.sums: dict[int, UnitSum] = {}
        self.n = 0
        self._looked = 0  # samples of the second pass
        self.residuals: Residuals | None = None  # of the second pass, where there is one
        self._phase = "sums"

    # What samples are asked for ---------------------------------------------------------------------------------------

    @property
    def _units(self) -> Units:
        """The unit of every place, by what is known of the length."""
        most, length = self.plan.units, self._length
        if self.design.groups is not None:
            return Units(most)
        if length is None:
            return Units(1, self._size)
        if isinstance(self.solver.dependence, int):
            return Units(1, self._size * -(-max(1, -(-length // self._size)) // most))
        return Units(max(1, min(most, length)), max(1, length))

    def _round(self) -> int:
        """Samples of the next round of the first pass; 0 when there are enough."""
        if self._length is not None:
            return min(max(LEAST_ROUND, -(-self._length // MAX_UNITS)), self._length - self.n)
        each = LEAST_ROUND
        if self.design.groups is None:
            each = self._size * max(1, self.plan.units // MAX_UNITS)
        return int(min(each, self._most - self.n))

    def ask(self) -> Ask[Any] | None:
        """The next samples, for sums or for a second look."""
        if self._phase == "sums":
            if (wanted := self._round()) > 0:
                return Ask(UnitSums(self.design, self._units), wanted)
            self._end_sums(self._data.rereadable)
        if self._phase == "residuals":
            wanted = min(max(LEAST_ROUND, -(-self.n // MAX_UNITS)), self.n - self._looked)
            blank = Residuals(self.design, self.answers, self.plan.kept)
            return Ask(blank, wanted, rewind=self._looked == 0)
        return None

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        if self._phase == "sums":
            wanted = self._round()
            plus(self.sums, part.units)
            self.n += part.n
            if not all(np.isfinite(unit.moments).all() for unit in part.units.values()):
                raise StreamError("the sum of the samples is not finite; divide them by some power of ten.")
            growing = self._length is None and self.design.groups is None
            while growing and self.sums and max(self.sums) >= self.plan.units:  # bins of twice as many neighbours
                finer, self.sums, self._size = self.sums, {}, 2 * self._size
                for number in sorted(finer):
                    plus(self.sums, {number // 2: finer[number]})
            if part.n < wanted:
                self._end_sums(self._data.rereadable)
        else:
            self._looked += part.n
            if self.residuals is None:
                self.residuals = part
            else:
                self.residuals.merge(part)
            if not part.n:  # fewer than in the first pass
                self.residuals = None
            if self.residuals is None or self._looked >= self.n:
                self._phase = "done"
        passes = 1 if self._phase == "sums" else 2
        self.call({"samples": self.n, "pass": passes, "phase": self._phase, "new": part.n})

    def close(self) -> None:
        """No more samples."""
        if self._phase == "sums":
            self._end_sums(again=False)

    def _end_sums(self, again: bool) -> None:
        """Go on to the second pass, if samples can be read again; refuse a design of more rows than samples."""
        self._phase = "residuals" if again and self.n > 1 else "done"
        read = self.n + getattr(self._data, "n_skipped", 0)
        if self.n and self._data.length is None and self._length is not None and read < self._length:
            raise SampleError(
                f"y, groups or sample_weight have {len(self.design)} rows for {read} samples; give one for each."
            )

    def extend(self, design: Design) -> None:
        """What is known of the samples that come next."""
        self.design = design

    # What is known after the first pass -------------------------------------------------------------------------------

    @functools.cached_property
    def questions(self) -> list[tuple[Answer, SignTests]]:
        """Components and flips of every question."""
        refuse_extreme_size("samples", size_of_samples(self.sums))
        rng = generator(self.solver.random_state, "flips")
        progress = functools.partial(tell_flips, self.solver.callbacks, self.n)
        questions = []
        for name, interest in self.design.questions:
            contributions = Contributions(self.sums, interest, self._data.dims, self.design.stacked)
            questions.append(
                answer_question(name, contributions, self.solver, self.design, rng, self.plan.chunk, progress)
            )
        return questions

    @property
    def answers(self) -> list[Answer]:
        """The components of every question."""
        return [answer for answer, _ in self.questions]

    def estimate(self) -> Estimate:
        """Components, their test and errors."""
        refuse_all_left_out(self.n, self._data)
        if self.n < 2:
            raise StreamError(f"least squares needs two samples, got {count(self.n, 'sample')}; give more.")
        return conclude(self)

    @property
    def state_bytes(self) -> int:
        """What was held at most: sums of all units, contributions and a version of them, the estimate."""
        held = sum(unit.nbytes for unit in self.sums.values()) + 4 * self.answers[0].parts.D.nbytes
        held += 2 * max(answer.parts.C.nbytes for answer in self.answers)
        if self.residuals is not None:  # samples for whitening are stacked, and whitened mode by mode
            copies = 0 if self.solver.whiten is None else 3
            held += self.residuals.nbytes + copies * bytes_held(self.residuals.samples)
        return int(held)
