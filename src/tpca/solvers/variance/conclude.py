"""What a fit of variation says of itself: a record of every reading, a recovery at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.solvers.rank_one import oriented, units
from tpca.solvers.recovery import Component, Evidence, Recovery, StopReason
from tpca.solvers.variance.refine import Refined
from tpca.solvers.variance.search import VariationSearch
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.variance.run import VarianceRun

KIND = "log evidence"


def record_of(run: VarianceRun) -> tuple[dict[str, Any], tuple[Array, ...] | None]:
    """What a reader wants to know of a reading, and the vectors, which go to the callbacks only."""
    alone = run.search is None or not len(run.search.replicas[0])
    record: dict[str, Any] = {"phase": run.phase, "component": max(0, len(run.found) - (run.search is None))}
    record |= {"pass": max(1, -(-run.read // (run.limit or run.read))), "samples": _distinct(run)}
    record |= {"candidate": "variation", "found": bool(run.found) and run.search is None}
    if run.search is not None and not alone:
        record |= {"log_evidence": run.search.log_evidence, "needed": run.needed}
        return record, run.search.candidate
    if run.found and math.isfinite(run.found[-1].variance):
        value, error, _ = run.found[-1].amplitude_variance()
        strength = math.sqrt(max(value, 0.0))
        record |= {"strength": strength, "strength_error": error / max(2 * strength, 1e-300)}
    return record, run.found[-1].vectors if run.found else None


def _distinct(run: VarianceRun) -> int:
    """Samples, those read again counted once; all of so few that there is no quarter of them to be fitted, nor read."""
    if run.stored and run.limit is not None and run.limit < 4:
        return run.limit
    return run.read if run.limit is None else min(run.read, run.limit)


def conclusion(run: VarianceRun) -> Recovery:
    """The components that were proven, the one that varies most first; or a guess."""
    found = sorted((_component(run, one) for one in run.found), key=lambda c: -c.strength)
    read = _distinct(run)
    told: dict[str, Any] = {
        "solver": "variance",
        "n_samples": read,
        "n_passes": max(1, -(-run.read // max(1, read))),
        "state_bytes": run.peak,
        "noise_level": _noise_level(run),
        "history": run.history,
    }
    if found:
        reason = StopReason.MAX_SAMPLES if read == run.solver.max_samples else StopReason.STREAM_ENDED
        return Recovery(components=tuple(found), stop_reason=reason, **told)
    guess = _guess(run, run.search or VariationSearch(run.data.dims))
    return Recovery(components=(), guess=guess, stop_reason=StopReason.NO_SIGNAL, **told)


def _component(run: VarianceRun, one: Refined) -> Component:
    p_value = min(1.0, math.exp(-one.log_evidence))
    evidence = Evidence(KIND, one.log_evidence, run.needed)
    if not math.isfinite(one.variance):  # proven by the last samples there were
        return Component(one.oriented, math.nan, None, None, p_value, evidence)
    strength, interval = one.strength(run.solver.confidence)
    variance, total, _ = one.variances
    return Component(
        one.oriented,
        strength,
        interval,
        one.errors,
        p_value,
        evidence,
        variance=variance,
        variance_ratio=variance / total,
    )


def _guess(run: VarianceRun, search: VariationSearch) -> Component:
    none = tuple(units(np.ones((1, d)))[0] for d in run.data.dims)  # too few samples for a start
    vectors = search.candidate if len(search.replicas[0]) else none
    evidence = Evidence(KIND, search.log_evidence, run.needed)
    limit = search.limit if math.isfinite(search.total) else math.inf
    return Component(oriented(vectors), math.nan, (0.0, limit), p_value=1.0, evidence=evidence)


def _noise_level(run: VarianceRun) -> float:
    """σ of one entry: what is left of the total variance, over the entries that are left."""
    entries = math.prod(run.data.dims)
    known = [one for one in run.found if math.isfinite(one.variance)]
    if known:  # each of them was seen beside the others, which were taken out
        left, entries = known[-1].variances[2], max(1, entries - len(run.found))
    else:
        left = math.nan if run.search is None else run.search.total
    return math.sqrt(max(0.0, left) / entries) if math.isfinite(left) else math.nan
