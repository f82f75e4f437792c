"""What a fit of the mean knows of the noise: learnt from the first samples, while they are added up like all others.

Nothing is lost and nothing begins anew, unless entries are clipped from then on: at the end the sums are whitened.
Covariances of the modes come from differences of neighbours (:mod:`tpca.noise.sketch`), which are in one group: they
stay what they are when the sign of a whole group is changed, and the test of :mod:`tpca.solvers.mean.test` is as exact
as without them.

Noise that is not white is looked at twice, the second time whitened by what the first look said (:mod:`tpca.noise`).
Where the samples end before the second look is over, what it has seen stands if it is enough to go by, else the first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import MemoryBudgetError, SolverError
from tpca.noise import Check, NoiseModel, Sketch, Tails, Whitening, described, learn, noise_checks, samples_wanted
from tpca.noise.pairs import slices_apart
from tpca.noise.sketch import QUERIES
from tpca.randomness import generator
from tpca.solvers.mean.memory import noise_bytes
from tpca.tensors import Accumulator

if TYPE_CHECKING:
    from tpca.solvers.mean.solver import MeanSolver

MIN_PAIRS = 8  # of samples, to go by
# Of samples larger than LARGE each pair tells so much, and costs so much, that only COLUMNS of an unfolding are looked
# at, in MIN_LARGE pairs at least, of which every one may be thinned; whether neighbours are alike the groups tell.
# Of smaller ones it is the gradients of so many queries that PROBED entries of a sample are contracted, two at least.
LARGE, COLUMNS, MIN_LARGE, PROBED = 2**16, 2**13, 2, 2**14
# Entries of a pair that a first look takes, and rows' worth of them: 3.5 standard deviations of w_i are a hundredth.
FIRST_ENTRIES, FIRST_ROWS = 2**11, 64
MIN_CLIPPED = 64, 8  # samples, or large ones, where a bound was given: half of them only tell the scales
IN_FULL = 3 * 8  # bytes per entry, of two samples and their difference


@kept
class MeanNoise:
    """What a fit knows of the noise; ``model`` at the end, ``None`` where it was not looked at."""

    def __init__(self, solver: MeanSolver, data: Data, room: int) -> None:
        """``room`` are the bytes that are left for it."""
        self.always, self.serial = solver.whiten == "modes", solver.groups is None
        self._groups = solver.groups
        self.whitening: Whitening | None = None
        self.model: NoiseModel | None = None
        self._rng = generator(solver.random_state, "noise")
        self.sketch: Sketch | None = None
        self.taken = 0
        self.tails = Tails(None)
        self._modes = solver.whiten is not None
        limits = [limit for limit in (data.length, solver.max_samples) if limit is not None]
        self._samples = min(limits, default=math.inf)
        if isinstance(solver.clip, float):
            self._refuse_idle_clip(solver.clip, data, room)
        if (self._modes or solver.clip is not None) and self._fits(data, room):
            self.tails = Tails(solver.clip if data.whole else None)
            self.taken = noise_bytes(data.dims)
            self._begin(data.dims)

    @property
    def wanted(self) -> int:
        """How many more samples are to be looked at: 0, or an even number."""
        if self.sketch is None:
            return 0
        missing = max(2, self._needed(self.sketch) - self.sketch.n)
        return missing + missing % 2

    @property
    def correlation_time(self) -> float:
        """As far as it was seen, and two standard errors more; infinite where it is too long for the samples seen.

        1 where samples are not alike, or where it was said which belong together.
        """
        if not self.serial or self.model is None or not self.model.dependence.present:
            return 1.0
        seen = self.model.dependence
        return seen.time * (1 + 2 * seen.error) if seen.settled else math.inf

    def blanks(self, stored: bool = False) -> tuple[Accumulator, ...]:
        """What is to be kept of the next samples; ``stored`` ones can be looked at later, too."""
        return () if self.sketch is None else (*self.sketch.blanks(), *self.tails.blanks(later=stored))

    def take(self, parts: Sequence[Any]) -> bool:
        """Take what was kept of samples; learn from it once that is enough.

        Returns whether samples are clipped from now on, so that those added up before should be left out.
        """
        if self.sketch is None:
            return False
        before = self.tails.clip
        self.sketch.take(*self.tails.take(parts))
        seen, model = self.sketch.n, described(self.sketch)
        if seen < self._needed(self.sketch, model):
            self.tails.settle()
        elif before is None and self.tails.decide(1 - seen / self._samples, model.kurtosis):
            self._begin(self.sketch.dims)  # heavy tails hide what else there is to see: look again, at clipped ones
        else:
            self._learn(model, again=True)
        return self.tails.clip is not before

    def unclip(self, dims: Sequence[int]) -> None:
        """Do not clip after all, and look at the noise as it is."""
        self.tails.decline()
        self.whitening = self.model = None
        self._begin(dims)

    def checks(self, samples: int, loudness: float | None) -> tuple[Check, ...]:
        """Whether the noise is as assumed; ``loudness`` is that of the noise along the signal, over that elsewhere."""
        return noise_checks(self.model, samples, loudness, self.tails.clip, self.tails.beyond, self._groups)

    def conclude(self) -> None:
        """There are no more samples: what was seen must do."""
        if self.sketch is None:
            return
        if self.sketch.pairs >= MIN_PAIRS:
            self._learn(described(self.sketch), again=False)
        elif self.model is None:  # too little to whiten by, but all that is known
            self.model = described(self.sketch)
        self.sketch = None

    def _learn(self, model: NoiseModel, again: bool) -> None:
        """Learn from the sketch, which is described by a model."""
        assert self.sketch is not None
        first, dims = self.sketch.whitening is None, self.sketch.dims
        model = learn(self.sketch, self.always, model)
        self.model = model if self._modes else dataclasses.replace(model, whitening=None)
        self.whitening, self.sketch = self.model.whitening, None
        if again and first and self.whitening is not None:
            self._begin(dims)

    def _needed(self, sketch: Sketch, model: NoiseModel | None = None) -> int:
        """Samples after which a sketch is learnt from, which is described by a ``model``."""
        entries, longest = math.prod(sketch.dims), max(sketch.dims)
        if entries <= LARGE:
            return samples_wanted(sketch, self.serial, model)
        return 2 * max(MIN_LARGE, math.ceil(max(COLUMNS, 10 * longest) * longest / entries))

    def known_after(self, samples: int) -> bool:
        """Whether what large samples are to be whitened by is sure to be known after so many, two looks included."""
        if self.sketch is None or not self._modes or math.prod(self.sketch.dims) <= LARGE:
            return False
        return 2 * self._needed(self.sketch) <= samples

    def _begin(self, dims: Sequence[int]) -> None:
        entries, longest = math.prod(dims), max(dims)
        queries = min(QUERIES, max(2, PROBED // entries)) if entries <= LARGE else 1
        enough = entries if self.whitening is not None else max(FIRST_ENTRIES, FIRST_ROWS * longest)
        large = entries > LARGE
        step = slices_apart(dims, COLUMNS // MIN_LARGE) if large else min(min(dims), max(1, entries // enough))
        self.sketch = Sketch(dims, self._rng, self.whitening, queries, step=step)

    def _refuse_idle_clip(self, clip: float, data: Data, room: int) -> None:
        """Refuse a bound on entries that could not be kept: it would silently mean nothing."""
        if not data.whole:
            raise SolverError(
                f"clip={clip:g} needs samples that come whole, as arrays, and these do not; leave clip at 'auto', or "
                "use clip=None."
            )
        if noise_bytes(data.dims) > room:
            raise MemoryBudgetError(
                f"clip={clip:g} needs {noise_bytes(data.dims) - room} bytes more than memory_limit leaves for samples "
                f"of shape {data.dims}, to learn the scales of entries; give more, or use clip=None."
            )
        least = MIN_CLIPPED[math.prod(data.dims) > LARGE]
        if self._samples < least:
            raise SolverError(
                f"clip={clip:g} needs at least {least} samples (blocks of them, for an effect), some to learn the "
                f"scales of entries from and some to clip, got {self._samples}; give more, or use clip=None."
            )

    def _fits(self, data: Data, room: int) -> bool:
        """Whether there is memory for it; if not, and it was asked for, that is refused."""
        whole = data.whole or IN_FULL * math.prod(data.dims) <= room
        if noise_bytes(data.dims) <= room and whole:
            return True
        if self.always:
            missing = noise_bytes(data.dims) + (0 if whole else IN_FULL * math.prod(data.dims)) - room
            raise MemoryBudgetError(
                f"whiten='modes' needs {missing} bytes more than memory_limit leaves for samples of shape {data.dims}; "
                "give more, or whiten='auto'."
            )
        return False
