"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from scipy.special import ndtri

from tpca.noise import Whitening
from tpca.noise.carrying import carried_interval, errors_of_entries
from tpca.solvers.claim import Claim
from tpca.solvers.race.candidate import Candidate
from tpca.solvers.race.refine import Refinement
from tpca.solvers.race.stopping import slope_error
from tpca.solvers.race.strategies.choice import Search
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Evidence, Recovery, StopReason
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
        record |= {"candidate": "refinement", "found": True, "error": slope_error(best, run.noise.whitening)}
    unit, vectors = run.unit, known.vectors
    if (whitening := run.noise.whitening) is not None:
        unit, vectors = unit * whitening.factor(vectors), whitening.back(vectors)
    if isinstance(best, Refinement):
        record |= {"strength_sequence": [unit * end for end in best.sequence(run.solver.confidence)]}
    record |= {"strength": unit * known.strength, "strength_error": unit * known.strength_error}
    return record, vectors


def conclusion(run: RaceState) -> Recovery:
    """What was found, or that nothing was, in the units of the data."""
    assert run.reason is not None, "the race is not over"
    if run.refinement is None:
        best = run.leading().candidate
        return _recovery(run, best.vectors, Claim.nothing(_most(run) * run.hidden() * run.unit))
    refined = run.refinement
    own, sequence = refined.claim(run.solver.confidence), refined.sequence(run.solver.confidence)
    if run.noise.whitening is not None:
        own, sequence = _of_data(own, sequence, refined, run.noise.whitening, run)
    elif (projection := run.solver.projection) is not None and own.errors is not None:
        pairs = enumerate(zip(refined.vectors, own.errors, strict=True))
        own = dataclasses.replace(own, errors=tuple(projection.back_errors(i, u, e) for i, (u, e) in pairs))
    claim = own.converted(lambda value: value * run.unit)
    if own.flaw:
        return _withdrawn(run, refined, claim.flaw or own.flaw)
    low, high = sequence
    return _recovery(run, refined.vectors, claim, sequence=(low * run.unit, high * run.unit))


def _of_data(
    claim: Claim, sequence: tuple[float, float], refined: Refinement, whitening: Whitening, run: RaceState
) -> tuple[Claim, tuple[float, float]]:
    """What is said of whitened data, as it is of the data themselves; and the interval that holds at all times."""
    covariances = [refined.widened(i) ** 2 * refined.covariance(i) for i in range(len(refined.vectors))]
    each = whitening.carried(refined.vectors, covariances)
    squares = [c.errors for c in each]
    if (projection := run.solver.projection) is not None:
        squares = [projection.back_rows(i, projection.back_rows(i, c).T) for i, c in enumerate(squares)]
    factor = math.prod(c.length for c in each)
    relative = float(ndtri(0.5 + run.solver.confidence / 2)) * math.hypot(*(c.relative for c in each))
    ends = (carried_interval(claim.strength, own, factor, relative) for own in (claim.interval, sequence))
    interval, sequence = ends
    return Claim(claim.strength * factor, interval, errors_of_entries(squares), claim.contradiction), sequence


def _most(run: RaceState) -> float:
    """The largest factor between the strength of a signal in the data and in what the race sees of them."""
    return 1.0 if run.noise.whitening is None else run.noise.whitening.most


def _withdrawn(run: RaceState, refined: Refinement, flaw: str) -> Recovery:
    """No signal: what was found is no answer.

    The strategies stopped when the claim was made.  A signal with other vectors than those claimed is limited by what
    the search should have found until then, by none of the samples after it; one with these vectors by their rewards,
    which a strong direction of the noise makes scatter far more than the noise level says.
    """
    limit = _most(run) * max(run.hidden(), refined.rewards.limit(refined.sigma)) * run.unit
    record = {"component": run.number, "phase": "withdrawn", "pass": run.passes, "samples": run.samples}
    history = [*run.history, {**record, "candidate": "refinement", "found": False, "flaw": flaw}]
    recovery = _recovery(run, refined.vectors, Claim.nothing(limit), StopReason.NO_SIGNAL)
    return dataclasses.replace(recovery, history=history)


def _recovery(
    run: RaceState,
    vectors: tuple[Array, ...],
    claim: Claim,
    reason: StopReason | None = None,
    sequence: tuple[float, float] | None = None,
) -> Recovery:
    assert run.reason is not None
    sigma = run.leading().candidate.sigma if run.refinement is None else run.refinement.sigma
    whitening = run.noise.whitening
    return Recovery.of_one(
        solver="race",
        vectors=oriented(vectors if whitening is None else whitening.back(vectors)),
        strength=claim.strength,
        noise_level=sigma * run.unit,
        p_value=_p_value(run.proof, run.solver.confidence),
        evidence=run.proof,
        n_samples=run.distinct,
        n_passes=run.passes,
        state_bytes=run.state_bytes,
        stop_reason=reason or run.reason,
        standard_errors=claim.errors,
        strength_interval=claim.interval,
        strength_sequence=sequence,
        noise=run.noise.model,
        checks=run.checks(),
        history=run.history,
    )


def _p_value(proof: Evidence, confidence: float) -> float:
    """Share of runs on pure noise in which such evidence is ever reached, at most: δ exp(needed − log E).

    By Ville's inequality: every candidate k of error share δ_l has proven a signal when its evidence exceeds
    k(k + 1)/δ_l, and the shares add up to δ.
    """
    gap = proof.needed - proof.value
    return 1.0 if gap > 0 else (1 - confidence) * math.exp(gap)
