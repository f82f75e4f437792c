"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tpca.solvers.race.candidate import Leader
from tpca.solvers.race.refine import Polish
from tpca.solvers.race.strategies.choice import Contestant
from tpca.solvers.recovery import Claim, Recovery, StopReason, oriented
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.run import RaceRun


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
    if run.polished is None:
        best = run.leading().leader
        return _recovery(run, best.vectors, Claim.nothing(run.hidden(best.sigma) / run.scale))
    own = run.polished.claim(run.solver.confidence)
    claim = own.converted(lambda value: value / run.scale)
    if own.flaw:
        return _withdrawn(run, run.polished, claim.flaw or own.flaw)
    return _recovery(run, run.polished.vectors, claim)


def _withdrawn(run: RaceRun, polished: Polish, flaw: str) -> Recovery:
    """No signal: what was found is no answer.

    The racers went home when the claim was made.  A signal with other vectors than those claimed is limited by what the
    search should have found until then, by none of the samples after it; one with these vectors by their rewards, which
    a strong direction of the noise makes scatter far more than the noise level says.
    """
    limit = max(run.hidden(polished.sigma), polished.reward_limit()) / run.scale
    record = {"component": run.number, "phase": "withdrawn", "pass": run.passes, "samples": run.samples}
    history = [*run.history, {**record, "leader": "polish", "found": False, "flaw": flaw}]
    recovery = _recovery(run, polished.vectors, Claim.nothing(limit))
    return dataclasses.replace(recovery, stop_reason=StopReason.NO_SIGNAL, history=history)


def _recovery(run: RaceRun, vectors: tuple[Array, ...], claim: Claim) -> Recovery:
    assert run.reason is not None
    return Recovery(
        vectors=oriented(vectors),
        strength=claim.strength,
        n_samples=run.distinct,
        n_passes=run.passes,
        state_bytes=run.state_bytes,
        buffer_bytes=0,  # the oracle's, added by whoever drives
        stop_reason=run.reason,
        standard_errors=claim.errors,
        strength_interval=claim.interval,
        history=run.history,
    )
