"""What a solver found in derived samples, in the units of the samples they were made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tpca.labels import Labels
from tpca.noise import NoiseModel
from tpca.solvers.claim import Verdict
from tpca.solvers.observing import NAME, observed_check
from tpca.solvers.rank_one import oriented
from tpca.solvers.recovery import Component, Evidence, Recovery
from tpca.tensors.blocks import Array

Ends = tuple[float, float] | None


def in_units(
    recovery: Recovery,
    effect: str,
    factor: float,
    scale: float,
    n_samples: int,
    lead: int,
    labels: Labels | None = None,
) -> Recovery:
    """Strengths times ``factor``; σ of one sample; the first ``lead`` modes, those of contrasts, left out.

    The noise of a derived sample has the variance σ²/(c·factor), with c = ``scale``; ``labels`` are those of samples.
    """
    components = tuple(_component(c, effect, factor, lead) for c in recovery.components)
    guess = None if recovery.guess is None else _component(recovery.guess, effect, factor, lead)
    return dataclasses.replace(
        recovery,
        components=components,
        guess=guess,
        n_samples=n_samples,
        noise_level=recovery.noise_level * math.sqrt(scale * factor),
        noise=None if recovery.noise is None else _noise(recovery.noise, lead),
        labels=labels,
        **_observed(recovery, lead, labels),
    )


def with_amplitudes(recovery: Recovery, amplitudes: Array, spreads: Array, labels: Sequence[str]) -> Recovery:
    """A recovery that knows the amplitude ``(C, K)`` of every label; strengths are their ``spreads`` over samples.

    They nearly are before: the contrasts of labels are told apart by what they have within blocks.
    """
    components = []
    for found, own, spread in zip(recovery.components, amplitudes, spreads, strict=True):
        scaled = _component(found, found.effect, float(spread) / found.strength, 0) if found.strength else found
        each = dict(zip(labels, map(float, own), strict=True))
        components.append(dataclasses.replace(scaled, label_amplitudes=each))
    return dataclasses.replace(recovery, components=tuple(components))


def merged(recoveries: Sequence[Recovery]) -> Recovery:
    """Several questions as one recovery: all components, question after question; a signal if there is one in any."""
    best = next((one for one in recoveries if one.verdict is Verdict.SIGNAL), recoveries[0])
    components = tuple(component for one in recoveries for component in one.components)
    return dataclasses.replace(
        best,
        components=components,
        guess=None if components else best.guess,
        n_samples=max(one.n_samples for one in recoveries),
        n_passes=sum(one.n_passes for one in recoveries),
        state_bytes=max(one.state_bytes for one in recoveries),
        buffer_bytes=max(one.buffer_bytes for one in recoveries),
    )


def _observed(recovery: Recovery, lead: int, labels: Labels | None) -> dict[str, Any]:
    """Which share of slices was observed, by the modes of the samples."""
    if recovery.observed is None or not lead:
        return {}
    rates = recovery.observed[lead:]
    others = tuple(check for check in recovery.checks if check.name != NAME)
    return {"observed": rates, "checks": (*others, observed_check(rates, labels))}


def _component(found: Component, effect: str, factor: float, lead: int) -> Component:
    errors = found.standard_errors
    return dataclasses.replace(
        found,
        vectors=oriented_last(found.vectors, lead)[: len(found.vectors) - lead],
        strength=found.strength * factor,
        strength_interval=_ends(found.strength_interval, factor),
        strength_sequence=_ends(found.strength_sequence, factor),
        standard_errors=None if errors is None else errors[lead:],
        evidence=None if found.evidence is None else _evidence(found.evidence, factor),
        effect=effect,
    )


def oriented_last(vectors: Sequence[Array], lead: int) -> tuple[Array, ...]:
    """With definite signs, the first ``lead`` modes put last: those of labels take the sign that is left."""
    return oriented([*vectors[lead:], *vectors[:lead]])


def _ends(ends: Ends, factor: float) -> Ends:
    return None if ends is None else (ends[0] * factor, ends[1] * factor)


def _evidence(evidence: Evidence, factor: float) -> Evidence:
    """Lengths are in the units of the data; what a bet has won has none."""
    if evidence.kind != "length":
        return evidence
    noise = tuple(value * factor for value in evidence.noise)
    return dataclasses.replace(evidence, value=evidence.value * factor, needed=evidence.needed * factor, noise=noise)


def _noise(noise: NoiseModel, lead: int) -> NoiseModel:
    if not lead:
        return noise
    white = noise.whitening
    if white is not None:
        white = dataclasses.replace(white, matrices=white.matrices[lead:], inverses=white.inverses[lead:])
    return dataclasses.replace(noise, whitening=white, whiteness=noise.whiteness[lead:], limits=noise.limits[lead:])
