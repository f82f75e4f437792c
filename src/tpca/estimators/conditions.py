"""What an estimator is told of its samples."""

from __future__ import annotations

from typing import Any

from tpca.errors import SampleError
from tpca.estimators.handed import EffectOptions, HandedEffects
from tpca.estimators.opening import HandedIn
from tpca.solvers.options import parameters_of
from tpca.streams import Stream
from tpca.streams.conditions import Conditions, read_conditions


def effect_options(estimator: Any) -> EffectOptions:
    """Those of its options that say how samples are put into blocks, checked."""
    known = parameters_of(estimator)
    return EffectOptions(**{name: known[name] for name in EffectOptions.__annotations__})


def conditions(
    target: str,
    n: int | None,
    y: Any,
    nuisance: Any,
    sample_weight: Any,
    groups: Any,
    labels: tuple[str, ...] | None = None,
    part: bool = False,
) -> Conditions | None:
    """What is told, or ``None`` where there is nothing: ``y`` means nothing to the mean, nor to the variance.

    Of a ``part`` of a stream y may be constant; ``labels`` are those of the first part.
    """
    told = {"nuisance": nuisance, "sample_weight": sample_weight, "groups": groups}
    if target == "variance" and (given := [name for name, value in told.items() if value is not None]):
        raise SampleError(f"{given[0]} means nothing to target='variance'; leave it out, or use target='effect'.")
    if target != "effect" and nuisance is None and sample_weight is None and groups is None:
        return None
    return read_conditions(target, n, y, nuisance, sample_weight, groups, labels, part)


def hand_in(handed: HandedIn | HandedEffects, batches: Stream, X: Any, told: Conditions | None) -> None:
    """Hand samples to a run, with what is told of them, which must be the same sort of things every time."""
    if isinstance(handed, HandedIn):
        if told is not None:
            raise SampleError("the first samples came without sample_weight and groups, these have some; call fit.")
        handed.take(batches, X)
        return
    if told is None:
        raise SampleError("the first samples came with sample_weight or groups, these have none; give them every time.")
    handed.take(batches, told)
