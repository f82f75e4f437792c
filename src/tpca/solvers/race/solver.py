r"""The race: strategies propose, candidates are tried, the refinement finishes.  Nothing needs to be known or tuned.

Every round takes B = max(1, ⌊0.06 n⌋, min(max(4, ⌊2²⁰/D⌋), max(⌊n/8⌋, min(4, ⌊n/4⌋)))) fresh samples
of D entries, the same ones for everybody (:mod:`tpca.solvers.race.rounds`):

1. each strategy names the replicas it wants gradients of, each candidate its vectors: all fixed before the samples;
2. the engine reads the samples into mean gradients and rewards; strategies add up the gradients, candidates take their
   rewards as evidence (:mod:`tpca.solvers.race.candidate`);
3. a candidate with enough evidence is a signal *found*, with error at most 1 − ``confidence`` over the whole run;
4. whenever n has grown by 8 %, each candidate looks at its strategy's proposal: it is refined, or replaced by it.

Then the refinement uses every further sample, until the vectors are as accurate as asked, or the samples end.  If they
end before a signal is found: ``NO_SIGNAL``, with an upper limit on the strength.  With ``max_passes`` > 1 the last
fifth of stored data is held out from the strategies, which read the rest again; what they come to is tried on it.

Read on in :mod:`tpca.solvers.race.run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tpca.engines import Data
from tpca.errors import SolverError, check_integer
from tpca.inference.design import Design
from tpca.solvers.estimate import Estimate
from tpca.solvers.options import (
    ClaimingSolver,
    check_passes,
    check_positive,
    check_whiten,
    default_memory,
    option,
)
from tpca.solvers.race.contrasts import contrasts
from tpca.solvers.race.run import RaceRun
from tpca.solvers.run import Run


@dataclass(kw_only=True, eq=False)
class RaceSolver(ClaimingSolver):
    """Recover a rank-one signal of unknown strength in unknown noise, in one pass, with bounded memory.

    Parameters
    ----------
    random_state
        Seed of the random starts.
    memory_limit
        Bound on the solver's state, bytes or text like ``"64MB"``; by default the smaller of a tenth of the machine's
        memory and four samples' size, but at least 1 MB.
    max_samples, max_passes
        Limits on what is read; passes beyond the first need a re-readable stream.  ``"auto"`` allows ten where they
        can help.
    confidence
        At most ``1 - confidence`` of all runs on pure noise ever claim a signal.
    tol
        Root mean squared error of a vector at which to stop.  ``None``: use all of a finite stream, and leave an
        endless one at 0.1 (1 % squared error).
    partition
        Two groups of modes for the block flow, as in ``[(0, 1), (2, 3, 4)]``; by default as even as possible.
    n_components
        Components to look for, each in what those before it leave (:mod:`tpca.solvers.race.run`).
    whiten
        ``"modes"``: the noise is whitened axis by axis, with what the first samples, 256 at most, tell
        (:mod:`tpca.solvers.race.whitening`).  ``None`` or ``"auto"``: it is left as it is.
    groups
        Samples that belong together, the next of which begin a new group: they count as one observation.
    callbacks
        Called after every round with its record and, under ``"vectors"``, the current estimate.
    checkpoint, checkpoint_every, resume
        Folder for checkpoints, and seconds between them (0: after every round).  With ``resume`` the run goes on from
        the last one there; on stored data it ends with the same bits as a run that was never interrupted.
    """

    name: ClassVar[str] = "race"

    whiten: str | None = option(None, check_whiten)
    groups: int | None = option(None, check_integer)
    max_passes: int | str = option(1, check_passes)
    tol: float | None = option(None, check_positive)
    partition: Sequence[Sequence[int]] | None = option(None)

    def start(self, data: Data) -> Run:
        """A race for every component, one after the other."""
        if data.partial:
            raise SolverError("the race takes no missing entries; use nan_policy='omit', or solver='least_squares'.")
        if len(data.dims) < 2:
            raise SolverError(
                f"the race needs samples with two axes or more, got {data.dims}; use solver='least_squares'."
            )
        return RaceRun(self, data)

    def run(self, source: Any, design: Design | None = None) -> Estimate:
        """Read a stream (or engine) as far as needed; with a ``design``, for the effect of its y."""
        if design is None or design.plain:
            return super().run(source)
        stream = contrasts(source, design, self.max_samples)
        solver = dataclasses.replace(self, max_samples=stream.length)
        return stream.told(ClaimingSolver.run(solver, stream))

    def budget(self, dims: Sequence[int]) -> int:
        """Bytes that the state may take for samples of shape ``dims``."""
        return default_memory(dims) if self.memory_limit is None else int(self.memory_limit)

    def settings(self) -> dict[str, Any]:
        """What a run depends on besides its data, as plain values."""
        groups = None if self.partition is None else [[int(n) for n in group] for group in self.partition]
        return {**super().settings(), "partition": groups}
