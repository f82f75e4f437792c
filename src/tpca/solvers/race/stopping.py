"""How much a race may read, and when it has read enough."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tpca.engines import Data
from tpca.errors import SolverError
from tpca.noise import Whitening
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.strategies.protocol import Strategy
from tpca.solvers.race.strategies.whole import WholeSum
from tpca.solvers.recovery import StopReason
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.solver import RaceSolver

# An endless stream is left when the root mean squared error of every vector is below this: squared error 1 %.
ENDLESS_TOL = 0.1
# A root mean squared error above this is worth a warning: overlap below 0.9.
POOR = 0.45
# Passes that max_passes="auto" allows where they can help.
AUTO_PASSES = 10
# No claim before this sample, or half of the data: whether neighbouring samples are alike is known only by then.
CLAIMS_FROM = 32


def allowed_passes(solver: RaceSolver, data: Data, main: Strategy) -> int:
    """``max_passes``; "auto" is one pass where a second is impossible, or useless: all data are in the state."""
    passes = solver.max_passes
    again_possible = data.rereadable and data.length
    if isinstance(passes, str):  # "auto"
        return AUTO_PASSES if again_possible and not isinstance(main, WholeSum) else 1
    if passes > 1 and not again_possible:
        raise SolverError(
            f"max_passes={passes} needs samples that can be read again, such as an array; "
            "use max_passes=1 for a stream that is gone once read."
        )
    return passes


def samples_per_pass(solver: RaceSolver, data: Data) -> float:
    """The smaller of ``max_samples`` and the stream's length; infinite when neither is known."""
    limits = (solver.max_samples, data.length)
    return min((limit for limit in limits if limit is not None), default=math.inf)


def claims_from(per_pass: float) -> int:
    """The first sample after which a signal may be claimed."""
    return int(min(CLAIMS_FROM, per_pass // 2))


def vector_error(refinement: Refinement, whitening: Whitening | None) -> float:
    """Root mean squared error of the least certain vector, as one of the data."""
    if whitening is None:
        return refinement.error()
    return max(carried.error for carried in whitening.carried(refinement.vectors, _covariances(refinement)))


def slope_error(refinement: Refinement, whitening: Whitening | None) -> float:
    """The same, cheaper, and too small where a vector is far off."""
    if whitening is None:
        return refinement.error()
    each = enumerate(zip(refinement.vectors, _covariances(refinement), strict=True))
    return max(whitening.slope_error(mode, u, c) for mode, (u, c) in each)


def _covariances(refinement: Refinement) -> list[Array]:
    return [refinement.covariance(mode) for mode in range(len(refinement.vectors))]


def tolerance(solver: RaceSolver, data: Data) -> float | None:
    """The error of vectors at which to stop, if any."""
    if solver.tol is None and data.endless and solver.max_samples is None:
        return ENDLESS_TOL
    return solver.tol


def is_accurate(refinement: Refinement, tol: float | None, whitening: Whitening | None) -> bool:
    """Whether the vectors are as accurate as asked for and the strength has settled."""
    if tol is None or not refinement.settled or slope_error(refinement, whitening) > tol:
        return False
    return whitening is None or vector_error(refinement, whitening) <= tol


def why_ended(refinement: Refinement, tol: float | None, limited: bool, whitening: Whitening | None) -> StopReason:
    """Why a race ends with a signal when the samples do; ``limited`` by ``max_samples``."""
    if vector_error(refinement, whitening) > (tol or POOR):
        return StopReason.NOT_ACCURATE
    return StopReason.MAX_SAMPLES if limited else StopReason.STREAM_ENDED
