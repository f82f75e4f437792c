"""Fits of effects, of weighted samples and of groups: the mean of a derived stream, question after question."""

from __future__ import annotations

import warnings

import numpy as np

from tpca.engines import DaskEngine, Engine, StreamEngine, is_engine
from tpca.engines.looks import Looks
from tpca.errors import ConditionsWarning, SampleError, StreamError
from tpca.estimators.handed import EffectFit, EffectOptions, HandedEffects, MakeSolver, labels_of
from tpca.estimators.units import in_units, oriented_last, with_amplitudes
from tpca.solvers.base import CONSTANT, StreamSolver, run_on_data
from tpca.solvers.mean.memory import groups_needed
from tpca.solvers.recovery import Recovery
from tpca.streams import Stream
from tpca.streams.conditions import Conditions
from tpca.streams.contrasts import plans
from tpca.streams.effects import DerivedStream
from tpca.streams.plan import Plan
from tpca.streams.protocol import NumberedStream
from tpca.streams.running import DerivedPassing
from tpca.streams.stored import StoredStream

FAR = 0.45  # of all samples, over which blocks of labels reach that are sorted


def fit_effects(
    data: Stream | Engine, told: Conditions, asked: EffectOptions, make_solver: MakeSolver
) -> list[EffectFit]:
    """Every question that the conditions put to the data."""
    stream = _stream_of(data)
    stored = isinstance(stream, StoredStream)
    if told.covariates is not None and told.covariates.stacked and not stored:
        raise SampleError(
            f"y has {len(told.covariates.labels)} labels, and samples that pass by once can be asked for two, or for "
            "numbers; give an array or stored data, or columns of 0 and 1, each a question of its own."
        )
    found = plans(told, asked.fixed(told), any_order=stored)
    names = ("",) if told.covariates is None else told.covariates.questions
    if isinstance(stream, StoredStream):
        _refuse_constant(stream)
    _warn(told, found, names)
    if not stored and not stream.rereadable and len(found) > 1:
        poured = HandedEffects(stream, told, asked, make_solver, found)
        poured.take(stream, told)
        return poured.fits()
    fits = []
    for j, (name, plan) in enumerate(zip(names, found, strict=True)):
        derived = _derived(data, stream, told, plan, j, asked)
        per_block = plan.samples_of(len(plan)) / len(plan)
        place = f"effect {j}" if len(found) > 1 else ""
        solver = make_solver(derived, asked.for_solver(told, per_block, place))
        if isinstance(solver, StreamSolver):
            _warn_of_few(told, plan, solver.confidence)
        recovery = run_on_data(solver, derived, _unit(told, per_block))
        fits.append(_in_samples(recovery, name, plan, derived, stream, labels_of(told)))
    return fits


def _refuse_constant(stream: StoredStream) -> None:
    """Refuse samples that are all the same: their contrasts are rounding, which may pass for a signal.

    Others differ in the first batch, and no more is read.
    """
    looks = Looks(wanted=True)
    for number in range(stream.layout.count):
        looks.at(stream.batch(number))
        if looks.varied:
            return
    if looks.digests and stream.length > 1:  # where none is left because of NaN, that is what is wrong
        raise StreamError(CONSTANT)


def _unit(told: Conditions, per_block: float) -> str:
    """What derived samples are called."""
    return "groups" if told.groups is not None else "samples" if per_block == 1 else "blocks of samples"


def _stream_of(data: Stream | Engine) -> Stream:
    if isinstance(data, StreamEngine):
        return data.stream
    if is_engine(data):
        raise StreamError(
            f"y, groups and sample_weight need samples, which {type(data).__name__} does not have; give a stream."
        )
    assert isinstance(data, Stream)
    return data


def _derived(
    data: Stream | Engine, stream: Stream, told: Conditions, plan: Plan, question: int, asked: EffectOptions
) -> Stream | Engine:
    """The derived samples of one question, read by whoever read the samples."""
    if not isinstance(stream, StoredStream):
        return DerivedPassing(stream, told, plan, question, asked.rule(told, len(told)))
    if told.groups is not None and stream.kind != "array" and (np.diff(told.groups) < 0).any():
        back = int(np.argmax(np.diff(told.groups) < 0)) + 1
        raise SampleError(
            f"group {told.group_names[told.groups[back]]!r} comes back at sample {back}, after others: stored samples "
            "are read group by group; bring those of a group together, or load them into an array."
        )
    derived: NumberedStream = DerivedStream(stream, plan)
    return DaskEngine(data.cluster.client, derived) if isinstance(data, DaskEngine) else derived


def _in_samples(
    recovery: Recovery, name: str, plan: Plan, derived: Stream | Engine, stream: Stream, labels: tuple[str, ...]
) -> EffectFit:
    """In the units of the samples, with their names; of a run that ended early, for the blocks that it read."""
    passes, rest = divmod(recovery.n_samples, len(plan))
    samples = passes * plan.samples_of(len(plan)) + plan.samples_of(rest)
    source = derived.stream if isinstance(derived, StreamEngine) else derived
    if isinstance(source, Stream) and source.partial:  # derived samples say how much they count
        factor = 1.0
    elif isinstance(source, DerivedPassing):
        factor = float(source.blocks.factors[0])
    else:
        factor = 1.0 if passes else rest / max(float(plan.shares[:rest].sum()), 1e-300)
    lead = 0 if plan.basis is None else 1
    own = in_units(recovery, name, factor, plan.scale, samples, lead, stream.labels)
    if plan.basis is None:
        return EffectFit(name, own, None, plan.efficiency, labels)
    vectors = [oriented_last(c.vectors, lead)[-1] for c in recovery.components]
    each = [plan.basis @ u * c.strength for u, c in zip(vectors, own.components, strict=True)]
    amplitudes = np.reshape(np.array(each), (len(each), len(plan.basis)))
    own = with_amplitudes(own, amplitudes, plan.spreads(amplitudes), labels)
    return EffectFit(name, own, amplitudes, plan.efficiency, labels)


def _warn(told: Conditions, found: list[Plan], names: tuple[str, ...]) -> None:
    for name, plan in zip(names, found, strict=True):
        doubt = _doubt(told, plan, name)
        if doubt:
            warnings.warn(doubt, ConditionsWarning, stacklevel=4)


def _doubt(told: Conditions, plan: Plan, name: str) -> str:
    """What is to be said of the blocks, if anything."""
    if plan.window >= (1 if plan.basis is None else FAR) * len(told):
        return (
            f"{name} hardly varies among neighbouring samples, so that samples from all over the data were put into "
            "one block: what drifts as slowly as that cannot be told from an effect."
        )
    if plan.window and plan.basis is not None:
        return (
            f"effect {name}: so that all labels occur in every block, blocks reach over {plan.window} of {len(told)} "
            "samples: what drifts within so many can look like an effect; give more samples of every label."
        )
    if told.groups is None and plan.efficiency < 0.5:
        return (
            f"only {plan.efficiency:.0%} of the variation of {name} lies within blocks, and no more of the samples is "
            "used; mix the conditions, or set a larger block_size."
        )
    return ""


def _warn_of_few(told: Conditions, plan: Plan, confidence: float) -> None:
    """A warning where there are so few groups that nothing could be proven, whatever they show."""
    needed = groups_needed(confidence)
    if told.groups is not None and len(plan) < needed:
        warnings.warn(
            f"{len(plan)} of {len(told.group_names)} groups say something, and a claim at confidence {confidence:g} "
            f"needs {needed}: no signal can be proven; give more groups, or a lower confidence.",
            ConditionsWarning,
            stacklevel=4,
        )
