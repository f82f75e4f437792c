"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scipy.special import ndtri

from tpca.blocks import Array
from tpca.solvers.leader import Leader
from tpca.solvers.limits import strength_limit
from tpca.solvers.lineup import Contestant
from tpca.solvers.polish import Polish
from tpca.solvers.recovery import Recovery, oriented

if TYPE_CHECKING:
    from tpca.solvers.race_run import RaceRun


def record_of(run: RaceRun, best: Contestant | Polish) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """What a reader of the race wants to know of a round, and the vectors, which go to the callbacks only."""
    record: dict[str, Any] = {
        "component": run.number,
        "phase": "search" if run.phase == "again" else run.phase,
        "pass": run.passes,
        "samples": run.samples,
    }
    if isinstance(best, Contestant):
        known: Leader | Polish = best.leader
        record |= {"leader": best.name, "found": best.leader.found, "tenure": best.leader.tenure}
        record |= {"log_evidence": best.leader.log_evidence, "needed": best.leader.needed}
        record |= {"evidence": {c.name: c.leader.log_evidence for c in run.contestants}}
    else:
        known = best
        record |= {"leader": "polish", "found": True, "error": best.error()}
    record |= {"strength": known.strength / run.scale, "strength_error": known.strength_error / run.scale}
    return record, known.vectors


def conclusion(run: RaceRun) -> Recovery:
    """What was found, or that nothing was, in the units of the data."""
    assert run.reason is not None, "the race is not over"
    strength, interval, errors = math.nan, (0.0, math.inf), None
    confidence = run.solver.confidence
    if run.polished is None:
        best, racer = run.leading().leader, run.contestants[0].racer
        vectors = best.vectors
        limit = strength_limit(run.data.dims, racer, run.distinct, best.sigma / run.scale, 1 - confidence)
        interval = (0.0, limit)
    else:
        vectors, strength = run.polished.vectors, run.polished.strength / run.scale
        half = float(ndtri(0.5 + confidence / 2)) * run.polished.strength_error / run.scale
        interval = (max(0.0, strength - half), strength + half)
        errors = run.polished.standard_errors()
    return Recovery(
        vectors=oriented(vectors),
        strength=strength,
        n_samples=run.distinct,
        n_passes=run.passes,
        state_bytes=run.state_bytes,
        buffer_bytes=0,  # the oracle's, added by whoever drives
        stop_reason=run.reason,
        standard_errors=errors,
        strength_interval=interval,
        history=run.history,
    )
