"""What a race knows of the noise: learnt from the first samples, while the race has begun on them already.

======  =================================================  =======================================================
sketch  is of                                              when it has samples enough
======  =================================================  =======================================================
first   the data                                           white and independent: the race goes on, nothing is lost;
                                                           dependent: evidence begins anew, in blocks;
                                                           not white: the second, and the race begins anew, whitened
second  data whitened by what the first one said           the race begins anew, whitened by what this one says
======  =================================================  =======================================================

What is plain, that noise is not white or that tails are heavy, is seen after four pairs of samples, or some thousand
entries; else a sketch has 32 samples or more.

Where entries have heavy tails and are clipped from then on (:mod:`tpca.noise.clipping`), all of this begins anew.

Until then nothing is claimed.  Where the samples end before that, what was raced on stands, unless neighbours are
alike.  The sum of all samples, where a strategy keeps it, is whitened and stays when the race begins anew; so do sums
of a flow the second time (:meth:`tpca.solvers.race.run.RaceRun.whiten`).

What is learnt takes memory, and is part of the limit: what does not fit is left out, and :attr:`RaceNoise.without` says
so.  Where the noise turns out to be white that memory is free, and strategies grow into it, with all that they know.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import MemoryBudgetError, SolverError
from tpca.noise import NoiseModel, Sketch, Tails, Whitening, described, is_plain, learn, samples_wanted
from tpca.noise.pairs import slices_apart
from tpca.noise.sketch import IN_FLIGHT, QUERIES, gradient_bytes, learning_bytes, matrix_bytes
from tpca.noise.tails import tail_bytes
from tpca.randomness import generator
from tpca.solvers.race.stopping import samples_per_pass
from tpca.tensors import Accumulator

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

LEARNING = 1 / 3  # of the samples, where their number is known, that one sketch may take
SHARE = 0.4  # of a memory limit, that knowing the noise may take once data are whitened; before that it takes less
QUERY_SHARE = 0.02  # of it, that more than one query for gradients may take, and more than a few of their entries
FEW_NUMBERS = 32  # of the gradients of a sample: over some dozens of samples they tell neighbours that are alike
WORTH, MIN_ROOM = 16, 16 * 10**6  # samples' worth that it may take by default, and bytes that it may take in any case
WHITENED = 2 / 3  # of the memory for strategies that their queries leave when they are copied to be whitened
SAMPLES = 1024  # that a sketch may last, for dependence over a few hundred
IN_FULL = 3 * 8  # bytes per entry, of two samples and their difference
# Columns of the longest mode that are looked at in a pair of large samples: 16 pairs then tell an entry of a covariance
# to half a per cent.
COLUMNS = 2**12
# Entries of a large sample whose sizes are looked at, one sample a round: some sixteen of them tell what clipping gains
# to one or two per cent.
GLANCED = 2**13


@kept
class RaceNoise:
    """What the races of one run know of the noise; they all see data whitened by ``whitening``."""

    def __init__(self, solver: RaceSolver, data: Data, least: int, refining: int) -> None:
        """``least`` are the bytes that strategies need at least, ``refining`` those of components found before."""
        self._per_pass = samples_per_pass(solver, data)
        self.most = self._per_pass * LEARNING
        self.always, self.groups = solver.whiten == "modes", solver.groups
        self.whitening: Whitening | None = None
        self.model: NoiseModel | None = None
        self.without = ""  # what was left out, and why
        self.limit, usual = solver.budget(data.dims), solver.memory_limit is None
        self._limited = not usual
        room = _usual(data) if usual else min(SHARE * self.limit, self.limit - refining - least / WHITENED)
        self._matrices = matrix_bytes(data.dims) + solver.n_components * 8 * sum(d * d for d in data.dims)
        self._modes = solver.whiten is not None and self._fits(data, room)
        if self._modes:
            room -= self._matrices
        elif not usual:  # strategies then ask without copies
            room = min(SHARE * self.limit, self.limit - refining - least)
        self._ask(data.dims, room)
        looks = bool(self._queries) and (self._modes or self.groups is None)
        tails = looks and data.whole and tail_bytes(data.dims) <= room - self._asked
        if isinstance(solver.clip, float) and not tails:
            raise self._no_clip(solver.clip, data)
        self.tails = Tails(solver.clip if tails else None)
        self._sizes = tail_bytes(data.dims) if tails and solver.clip is not None else 0
        self._covariances = learning_bytes(data.dims) if self._modes else 0
        self.sketch: Sketch | None = None
        self._rng = generator(solver.random_state, "noise")
        if looks:
            self._begin(data.dims)
        elif self.groups is None:
            self.without = "whether neighbouring samples are alike was not looked at: the memory limit is too small."
        if usual:
            self.limit += self.reserved + (self._matrices - self._covariances if self._modes else 0)

    @property
    def reserved(self) -> int:
        """Bytes that are not for strategies.

        What says whether data must be whitened is small.  If they must, the race begins anew, in what the matrices then
        leave; they are worked out between two looks, where the strategies need no room to work in.  If they must not,
        all of it is free once that is known (:attr:`freed`).
        """
        if self.freed:
            return self._sizes if self.tails.clip is not None else 0
        learning = self._asked + self._covariances
        return self._sizes + learning + (self._matrices - self._covariances if self.whitening is not None else 0)

    @property
    def freed(self) -> bool:
        """Whether nothing more is learnt in a memory limit, nor whitened."""
        return self._limited and not self.learning and self.whitening is None

    def round_of(self, size: int) -> int:
        """Samples of a round of ``size``, or of as many whole blocks as can be looked at in the memory there is."""
        if self._at_once is None or not self.learning:
            return size
        return max(self.block, min(size, self._at_once // self.block * self.block))

    @property
    def learning(self) -> bool:
        """Whether samples are still looked at; until they are no more, nothing is claimed."""
        return self.sketch is not None

    @property
    def block(self) -> int:
        """Samples that count as one observation."""
        if self.groups is not None:
            return self.groups
        return 1 if self.model is None or self.learning else self.model.block

    @property
    def dependent(self) -> bool:
        """Whether neighbouring samples turned out to be alike: what was counted before that proves nothing."""
        return self.groups is None and self.block > 1

    @property
    def symmetric(self) -> bool:
        """Whether what is symmetric in the data still is."""
        return self.whitening is None or self.whitening.shared

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = self.tails.nbytes + (0 if self.sketch is None else self.sketch.nbytes)
        counted = self.sketch is not None and self.sketch.whitening is not None
        return held if self.whitening is None or counted else held + self.whitening.nbytes

    def left(self, taken: int = 0) -> int:
        """Bytes for strategies, when ``taken`` are for something else."""
        left = self.limit - self.reserved - taken
        return int(left if self.whitening is None else WHITENED * left)

    def blanks(self) -> tuple[Accumulator, ...]:
        """What is to be kept of the next samples."""
        return () if self.sketch is None else (*self.sketch.blanks(), *self.tails.blanks(glanced=GLANCED))

    def take(self, parts: Sequence[Any]) -> None:
        """Take what was kept of samples; learn from it once that is enough."""
        assert self.sketch is not None
        self.sketch.take(*self.tails.take(parts))
        first, dims, left = self.sketch.whitening is None, self.sketch.dims, 1 - self.sketch.n / self._per_pass
        enough = self.sketch.n >= min(samples_wanted(self.sketch, self.groups is None), self.most)
        decide = self.tails.decide if enough else self.tails.decide_early
        if self.tails.clip is None and decide(left, described(self.sketch).kurtosis):
            self._begin(dims)  # heavy tails hide what else there is to see: look again, at clipped samples
        elif enough or is_plain(self.sketch):
            self.model = learn(self.sketch, self.always)
            self.whitening, self.sketch = self.model.whitening, None
            if first and self.whitening is not None:
                self._begin(dims)

    def conclude(self) -> None:
        """There are no more samples: what was raced on stands, and is only described."""
        if self.sketch is not None:
            self.model = dataclasses.replace(learn(self.sketch, self.always), whitening=self.whitening)
            self.sketch = None

    def _begin(self, dims: Sequence[int]) -> None:
        step = slices_apart(dims, COLUMNS)
        self.sketch = Sketch(dims, self._rng, self.whitening, self._queries, self._modes, step, self._numbers)

    def _ask(self, dims: Sequence[int], room: float) -> None:
        """How many queries there are for gradients, and how many of their entries are looked at."""
        modest = QUERY_SHARE * self.limit
        several = [q for q in range(1, QUERIES + 1) if gradient_bytes(dims, q, SAMPLES) <= min(room, modest)]
        self._numbers = None if several or self._modes else FEW_NUMBERS
        fits = gradient_bytes(dims, 1, SAMPLES, self._numbers) <= room
        self._queries = max(several, default=int(fits))
        self._asked = gradient_bytes(dims, self._queries, SAMPLES, self._numbers)
        self._at_once: int | None = None
        if self._limited:  # of how many samples at a time, in a modest part of what is left
            each = 8 * max(1, self._queries) * sum(dims)
            more = int(max(0.0, min(modest, room - self._asked)) / each) if self._queries else 0
            self._at_once, self._asked = IN_FLIGHT + more, self._asked + more * each

    def _fits(self, data: Data, room: float) -> bool:
        """Whether covariances of the modes can be learnt; if not, that is said, or refused where they are asked for."""
        needed = self._matrices + gradient_bytes(data.dims, 1, SAMPLES)
        whole = data.whole or IN_FULL * math.prod(data.dims) <= self.limit
        if needed <= room and whole:
            return True
        much = f"{math.ceil(needed / SHARE)} bytes" if whole else f"{IN_FULL * math.prod(data.dims)} bytes"
        self.without = f"whether the noise is white was not looked at: that takes a memory limit of about {much}."
        if self.always:
            raise MemoryBudgetError(
                f"whiten='modes' needs a memory_limit of about {much} for samples of shape {data.dims}, "
                f"got {self.limit}; give more, or whiten='auto'."
            )
        return False

    def _no_clip(self, clip: float, data: Data) -> SolverError:
        """Why a bound that was asked for cannot be kept."""
        if not data.whole:
            return SolverError(f"clip={clip:g} needs samples that are read whole, these come in slabs; give clip=None.")
        if not self._modes and self.groups is not None:
            return SolverError(
                f"clip={clip:g} needs a look at the first samples, and with groups={self.groups} and whiten=None there "
                f"is none; leave one of them out, or give clip=None."
            )
        needed = tail_bytes(data.dims) + gradient_bytes(data.dims, 1, SAMPLES, FEW_NUMBERS)
        return MemoryBudgetError(
            f"clip={clip:g} needs a memory_limit of about {math.ceil(needed / SHARE)} bytes for samples of shape "
            f"{data.dims}, got {self.limit}; give more, or clip=None."
        )


def _usual(data: Data) -> float:
    """Bytes that knowing the noise may take where no limit was given."""
    return max(MIN_ROOM, WORTH * 8 * math.prod(data.dims))
