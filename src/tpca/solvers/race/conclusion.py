"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.strategies.choice import Search
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Claim, Recovery, StopReason
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.state import RaceState


def record_of(run: RaceState, best: Search | Refinement) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """What a reader of the race wants to know of a round, and the vectors, which go to the callbacks only."""
    record: dict[str, Any] = {
        "component": run.number,
        "phase": "search" if run.phase == "again" else run.phase,
        "pass": run.passes,
        "samples": run.samples,
    }
    if isinstance(best, Search):
        known: Candidate | Refinement = best.candidate
        record |= {"candidate": best.name, "found": run.is_found(best), "attempt": best.candidate.attempt}
        record |= {"log_evidence": best.candidate.log_evidence, "needed": best.candidate.needed}
        record |= {"evidence": {c.name: c.candidate.log_evidence for c in run.searches}}
    else:
        known = best
        record |= {"candidate": "refinement", "found": True, "error": best.error()}
        record |= {"strength_sequence": [end / run.scale for end in best.sequence(run.solver.confidence)]}
    record |= {"strength": known.strength / run.scale, "strength_error": known.strength_error / run.scale}
    return record, known.vectors


def conclusion(run: RaceState) -> Recovery:
    """What was found, or that nothing was, in the units of the data."""
    assert run.reason is not None, "the race is not over"
    if run.refinement is None:
        best = run.leading().candidate
        return _recovery(run, best.vectors, Claim.nothing(run.hidden() / run.scale))
    own = run.refinement.claim(run.solver.confidence)
    claim = own.converted(lambda value: value / run.scale)
    if own.flaw:
        return _withdrawn(run, run.refinement, claim.flaw or own.flaw)
    low, high = run.refinement.sequence(run.solver.confidence)
    found = _recovery(run, run.refinement.vectors, claim)
    return dataclasses.replace(found, strength_sequence=(low / run.scale, high / run.scale))


def _withdrawn(run: RaceState, refined: Refinement, flaw: str) -> Recovery:
    """No signal: what was found is no answer.

    The strategies stopped when the claim was made.  A signal with other vectors than those claimed is limited by what
    the search should have found until then, by none of the samples after it; one with these vectors by their rewards,
    which a strong direction of the noise makes scatter far more than the noise level says.
    """
    limit = max(run.hidden(), refined.rewards.limit(refined.sigma)) / run.scale
    record = {"component": run.number, "phase": "withdrawn", "pass": run.passes, "samples": run.samples}
    history = [*run.history, {**record, "candidate": "refinement", "found": False, "flaw": flaw}]
    recovery = _recovery(run, refined.vectors, Claim.nothing(limit))
    return dataclasses.replace(recovery, stop_reason=StopReason.NO_SIGNAL, history=history)


def _recovery(run: RaceState, vectors: tuple[Array, ...], claim: Claim) -> Recovery:
    assert run.reason is not None
    return Recovery(
        vectors=oriented(vectors),
        strength=claim.strength,
        n_samples=run.distinct,
        n_passes=run.passes,
        state_bytes=run.state_bytes,
        buffer_bytes=0,  # the engine's, added by whoever drives
        stop_reason=run.reason,
        standard_errors=claim.errors,
        strength_interval=claim.interval,
        history=run.history,
    )
