"""What a race says of itself: a record of every round, a recovery at the end."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from tpca.errors import StreamError
from tpca.solvers.checks import Check, level, steadiness
from tpca.solvers.estimate import Claim, Recovery, StopReason
from tpca.solvers.race.refinement import Refinement
from tpca.solvers.race.strategies.choice import Search
from tpca.solvers.race.whitening import errors_of_data, most_of_data, vectors_of_data
from tpca.solvers.rank_one import oriented
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.race.phases import Race

MOST = 700.0  # log of the largest e-value that is told


def vector_error(race: Race, refinement: Refinement) -> float:
    """Root mean squared error of the least certain vector, as one of the data."""
    if race.noise.whitening is None:
        return refinement.error()
    errors, _ = errors_of_data(race.noise.whitening, refinement.vectors, refinement.deviations())
    return max(float(np.linalg.norm(e)) for e in errors)


def record_of(race: Race, best: Search | Refinement) -> tuple[dict[str, Any], tuple[Array, ...]]:
    """What a reader of the race wants to know of a round, and the vectors, which go to the callbacks only."""
    record: dict[str, Any] = {
        "component": race.number,
        "phase": "search" if race.phase.name == "again" else race.phase.name,
        "pass": race.passes,
        "samples": race.samples,
    }
    known = best.candidate if isinstance(best, Search) else best
    vectors, factor = vectors_of_data(race.noise.whitening, known.vectors)
    unit = factor / race.scale
    if isinstance(best, Search):
        record |= {"candidate": best.name, "found": race.is_found(best), "attempt": best.candidate.attempt}
        record |= {"log_evidence": best.candidate.log_evidence, "needed": best.candidate.needed}
        record |= {"evidence": {c.name: c.candidate.log_evidence for c in race.searches}}
    else:
        record |= {"candidate": "refinement", "found": True, "error": vector_error(race, best)}
        record |= {"strength_sequence": [unit * end for end in best.sequence(race.solver.confidence)]}
    record |= {"strength": unit * known.strength, "strength_error": unit * known.strength_error}
    return record, vectors


def conclusion(race: Race) -> Recovery:
    """What was found, or that nothing was, in the units of the data.

    Where all samples are the same there is no noise to tell a signal from, and nothing is said; of zeros, that there is
    no signal.
    """
    refined, confidence, scale = race.refinement, race.solver.confidence, race.scale
    most = most_of_data(race.noise.whitening) / scale
    if refined is None:
        return _recovery(race, race.leading().candidate.vectors, Claim.nothing(most * race.hidden()))
    if race.differ is False:
        raise StreamError(
            "all samples are the same: there is no noise to tell a signal from; give samples that differ."
        )
    _, factor = vectors_of_data(race.noise.whitening, refined.vectors)
    errors, relative = errors_of_data(race.noise.whitening, refined.vectors, refined.standard_errors())
    reach = float(ndtri(0.5 + confidence / 2)) * relative * refined.strength  # of what is not known of the factor
    ends = [
        (
            max(0.0, refined.strength - math.hypot(refined.strength - low, reach)),
            refined.strength + math.hypot(high - refined.strength, reach),
        )
        for low, high in (refined.interval(confidence), refined.sequence(confidence))
    ]
    errors = tuple(e * min(1.0, math.sqrt(2) / (float(np.linalg.norm(e)) or 1.0)) for e in errors)  # √2: nothing known
    own = Claim(refined.strength, ends[0], errors, refined.contradiction())
    if own.flaw is None:
        claim = own.converted(lambda value: value * factor / scale)
        low, high = ends[1]
        return _recovery(race, refined.vectors, claim, sequence=(low * factor / scale, high * factor / scale))
    # No signal: what was found is no answer.  The strategies stopped when the claim was made.  A signal with other
    # vectors than those claimed is limited by what the search should have found until then, by none of the samples
    # after it; one with these vectors by their rewards, which a strong direction of the noise makes scatter far more
    # than the noise level says.
    limit = most * max(race.hidden(), refined.rewards.limit(refined.sigma))
    record = {"component": race.number, "phase": "withdrawn", "pass": race.passes, "samples": race.samples}
    record |= {"candidate": "refinement", "found": False, "flaw": own.flaw}
    recovery = _recovery(race, refined.vectors, Claim.nothing(limit), StopReason.NO_SIGNAL)
    return dataclasses.replace(recovery, history=[*race.history, record])


def _recovery(
    race: Race,
    vectors: tuple[Array, ...],
    claim: Claim,
    reason: StopReason | None = None,
    sequence: tuple[float, float] | None = None,
) -> Recovery:
    log_e = _log_e_value(race)
    sigma = race.leading().candidate.sigma if race.refinement is None else race.refinement.sigma
    return Recovery.of_one(
        solver="race",
        vectors=oriented(vectors_of_data(race.noise.whitening, vectors)[0]),
        strength=claim.strength,
        noise_level=sigma / race.scale,
        p_value=math.exp(-max(0.0, log_e)),
        e_value=math.exp(min(log_e, MOST)),
        evidence=race.proof,
        n_samples=race.distinct,
        n_passes=race.passes,
        state_bytes=race.state_bytes,
        stop_reason=reason or race.phase.reason,
        standard_errors=claim.errors,
        strength_interval=claim.interval,
        strength_sequence=sequence,
        checks=_checks(race),
        history=race.history,
    )


def _checks(race: Race) -> tuple[Check, ...]:
    """Whether the noise is as assumed, as far as that was seen."""
    checks, block = list(race.noise.checks()), race.noise.block
    if race.solver.groups is None and block > 1:
        told = f"Neighbouring samples are alike: every {block} in a row count as one."
        checks.append(Check("independent samples", "handled", f"{race.distinct:,} samples", told))
    if race.refinement is not None:
        along, excess = race.refinement.loudness, race.refinement.rewards.excess
        checks += [level(along)] if along is not None else []
        checks += [steadiness(excess)] if excess is not None else []
    return tuple(checks)


def _log_e_value(race: Race) -> float:
    """Log of the e-value: the most that bets against "no signal" have won, of one unit shared among all candidates.

    Attempt k of a candidate of error share δ_l begins with δ_l/(δ k(k + 1)) of it, and has won
    exp(log E − needed)/δ.  By Ville's inequality the chance that it ever comes to e on pure noise is at most 1/e, which
    is the p-value.
    """
    proof = race.proof
    most = proof.value if race.refinement is None else max(proof.value, race.refinement.rewards.proof)
    return most - proof.needed - math.log(1 - race.solver.confidence)
