"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.strategies.choice import Search
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Claim, Evidence, Recovery, StopReason
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.run import RaceRun


def record_of(run: RaceRun, best: Search | Refinement) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """What a reader of the race wants to know of a round, and the vectors, which go to the callbacks only."""
    record: dict[str, Any] = {
        "component": run.number,
        "phase": "search" if run.phase == "again" else run.phase,
        "pass": run.passes,
        "samples": run.samples,
    }
    if isinstance(best, Search):
        known: Candidate | Refinement = best.candidate
        record |= {
            "candidate": best.name,
            "found": best.candidate.found and run.samples >= 32,
            "attempt": best.candidate.attempt,
        }
        record |= {"log_evidence": best.candidate.log_evidence, "needed": best.candidate.needed}
        record |= {"evidence": {c.name: c.candidate.log_evidence for c in run.searches}}
    else:
        known = best
        record |= {"candidate": "refinement", "found": True, "error": best.error()}
    record |= {"strength": known.strength / run.scale, "strength_error": known.strength_error / run.scale}
    return record, known.vectors


def conclusion(run: RaceRun) -> Recovery:
    """What was found, or that nothing was, in the units of the data."""
    assert run.reason is not None, "the race is not over"
    if run.refinement is None:
        best = run.leading().candidate
        return _recovery(run, best.vectors, Claim.nothing(run.hidden(best.sigma) / run.scale))
    own = run.refinement.claim(run.solver.confidence)
    claim = own.converted(lambda value: value / run.scale)
    if own.flaw:
        return _withdrawn(run, run.refinement, claim.flaw or own.flaw)
    return _recovery(run, run.refinement.vectors, claim)


def _withdrawn(run: RaceRun, refined: Refinement, flaw: str) -> Recovery:
    """No signal: what was found is no answer.

    The strategies stopped when the claim was made.  A signal with other vectors than those claimed is limited by what
    the search should have found until then, by none of the samples after it; one with these vectors by their rewards,
    which a strong direction of the noise makes scatter far more than the noise level says.
    """
    limit = max(run.hidden(refined.sigma), refined.reward_limit()) / run.scale
    record = {"component": run.number, "phase": "withdrawn", "pass": run.passes, "samples": run.samples}
    history = [*run.history, {**record, "candidate": "refinement", "found": False, "flaw": flaw}]
    recovery = _recovery(run, refined.vectors, Claim.nothing(limit), StopReason.NO_SIGNAL)
    return dataclasses.replace(recovery, history=history)


def _recovery(run: RaceRun, vectors: tuple[Array, ...], claim: Claim, reason: StopReason | None = None) -> Recovery:
    assert run.reason is not None
    sigma = run.leading().candidate.sigma if run.refinement is None else run.refinement.sigma
    return Recovery.of_one(
        solver="race",
        vectors=oriented(vectors),
        strength=claim.strength,
        noise_level=sigma / run.scale,
        p_value=_p_value(run.proof, run.solver.confidence),
        evidence=run.proof,
        n_samples=run.distinct,
        n_passes=run.passes,
        state_bytes=run.state_bytes,
        stop_reason=reason or run.reason,
        standard_errors=claim.errors,
        strength_interval=claim.interval,
        history=run.history,
    )


def _p_value(proof: Evidence, confidence: float) -> float:
    """Share of runs on pure noise in which such evidence is ever reached, at most: δ exp(needed − log E).

    By Ville's inequality: every candidate k of error share δ_l has proven a signal when its evidence exceeds
    k(k + 1)/δ_l, and the shares add up to δ.
    """
    gap = proof.needed - proof.value
    return 1.0 if gap > 0 else (1 - confidence) * math.exp(gap)
