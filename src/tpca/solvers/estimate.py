"""What a solver ends with: components, verdict, why it stopped."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from tpca.checkpoint import kept
from tpca.labels import Labels
from tpca.tensors.blocks import Array


class Verdict(enum.StrEnum):
    """What a run says of the signal: proven, looked for and not proven, or not tested at all."""

    SIGNAL = "signal"
    NO_SIGNAL = "no signal"
    NOT_TESTED = "not tested"


@kept
class StopReason(enum.Enum):
    """Why a run ended; the value is a sentence with advice."""

    SCHEDULE_DONE = "The schedule ran to its end; the algorithm has no test of whether there is a signal."
    ACCURATE = "A signal was found and its vectors are as accurate as asked for."
    STREAM_ENDED = "A signal was found; all samples were used."
    MAX_SAMPLES = "A signal was found; max_samples was reached."
    NOT_ACCURATE = (
        "A signal was found, but the samples ended before its vectors were accurate; "
        "see standard_errors, and give more samples."
    )
    STREAM_ENDED_EARLY = (
        "The stream ended before the schedule did; the vectors are what was reached and may be far off: "
        "give more samples, or use RaceSolver, which needs far fewer."
    )
    NO_SIGNAL = "No signal was found in these samples; strength_interval bounds what may be hidden. Give more samples."
    UNTESTABLE = "The pattern was fitted, but nothing can be said of whether it is more than noise."
    ITERATED = "The method ran to its end; it has no test of whether there is a signal."

    def __str__(self) -> str:
        return self.value

    @property
    def verdict(self) -> Verdict:
        """What a run that ended like this says of the signal."""
        if self.name in ("SCHEDULE_DONE", "STREAM_ENDED_EARLY", "ITERATED", "UNTESTABLE"):
            return Verdict.NOT_TESTED
        return Verdict.NO_SIGNAL if self is StopReason.NO_SIGNAL else Verdict.SIGNAL


@dataclass(frozen=True)
class Component:
    """``strength`` times the outer product of unit ``vectors``, in the user's mode order, and how far that is known.

    One vector alone is known up to sign; together they have the sign for which the strength is positive.
    ``standard_errors`` has one for every entry of every vector, ``strength_interval`` is a confidence interval at the
    solver's ``confidence``; ``None`` where a method gives none.  At most ``p_value`` of all runs on pure noise come as
    far as this one; NaN where that is not known.

    ``strength_sequence`` is an interval of the strength that holds at all times at once, so that a stream may be
    stopped whenever one likes what one sees; wider than ``strength_interval``, which holds at a time fixed in advance.
    ``effect`` says what it is the effect of, a covariate, or one label less another; empty for the mean of all samples.
    Of more than two labels ``label_amplitudes`` has how strong the pattern is with each, beside what all share.
    ``e_value`` is what bets against pure noise have won at most, of one unit; its inverse is the p-value (race only).
    ``statistic`` is what the test compares with ``null``, what resampling gave for it.
    ``half_agreement`` is the cosine of what two halves of the samples show of it (:mod:`tpca.inference.scatter`).
    ``joint_share`` is the share of the whole estimate that this component and those before it would be, were there no
    more of them: that of a joint fit of so many.
    ``variance`` is that of the samples along a component of variation, ``variance_ratio`` its share of all there is.
    """

    vectors: tuple[Array, ...]
    strength: float
    strength_interval: tuple[float, float] | None = None
    standard_errors: tuple[Array, ...] | None = None
    p_value: float = math.nan
    strength_sequence: tuple[float, float] | None = None
    effect: str = ""
    label_amplitudes: dict[str, float] | None = None
    variance: float = math.nan
    variance_ratio: float = math.nan
    significant: bool = False
    length: float = math.nan
    statistic: float = math.nan
    null: Array | None = field(default=None, repr=False)
    e_value: float = math.nan
    half_agreement: float = math.nan
    joint_share: float = math.nan


@dataclass(frozen=True)
class Estimate:
    """What a solver ends with: the components, strongest first, and how they were come by.

    There are always as many components as were asked for; the ``verdict`` and ``significant`` of each say what is
    proven.  ``vectors``, ``strength`` and the like are those of the first.

    ``signal_p`` is the p-value of there being any signal, by all statistics of a test together; ``entry_p_values`` has,
    for every question, the family-wise p of every entry; ``rank_one_shares`` the share of the whole estimate that the
    joint fit of its components is.  ``advice`` is a line each, with a number and one action.

    ``n_samples`` counts every sample consumed (N), ``n_passes`` the passes (K), ``n_skipped`` samples that were left
    out (``nan_policy="omit"``), ``state_bytes`` the most that the solver held in its own arrays (S), ``buffer_bytes``
    the most that the engine held for samples in flight.  ``noise_level`` is the standard deviation σ of the noise of
    one entry of one sample; NaN where the method does not tell it.  ``labels`` name modes and entries, where the data
    do.  ``observed`` has, where entries were missing, the share observed of every slice, by mode.
    """

    solver: str
    components: tuple[Component, ...]
    stop_reason: StopReason
    n_samples: int
    state_bytes: int
    buffer_bytes: int = 0
    n_passes: int = 1
    n_skipped: int = 0
    noise_level: float = math.nan
    signal_p: float = math.nan
    entry_p_values: tuple[Array, ...] = field(default=(), repr=False)
    rank_one_shares: tuple[float, ...] = ()
    n_units: int = 0
    n_resamples: int = 0
    inflation: float = 1.0
    advice: tuple[str, ...] = ()
    labels: Labels | None = field(default=None, repr=False)
    observed: tuple[Array, ...] | None = field(default=None, repr=False)
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @classmethod
    def of_one(cls, *, stop_reason: StopReason, **known: Any) -> Estimate:
        """The estimate of one component; what is ``known`` is of the component or of the run."""
        own = {name: known.pop(name) for name in tuple(known) if name in Component.__dataclass_fields__}
        one = Component(**own, significant=stop_reason.verdict is Verdict.SIGNAL)
        return cls(stop_reason=stop_reason, components=(one,), signal_p=one.p_value, **known)

    def with_others(self, others: Sequence[Estimate], **run: Any) -> Estimate:
        """The same with the components that other runs found in what this one leaves, after its own."""
        every = (self, *others)
        components = self.components + tuple(c for one in others if one.found for c in one.components)
        read = {"n_samples": max(one.n_samples for one in every), "n_passes": max(one.n_passes for one in every)}
        return dataclasses.replace(self, components=components, **{**read, **run})

    @property
    def first(self) -> Component:
        """The strongest component."""
        return self.components[0]

    # Those of the first component.
    vectors = property(attrgetter("first.vectors"))
    strength = property(attrgetter("first.strength"))
    strength_interval = property(attrgetter("first.strength_interval"))
    strength_sequence = property(attrgetter("first.strength_sequence"))
    standard_errors = property(attrgetter("first.standard_errors"))
    p_value = property(attrgetter("first.p_value"))
    e_value = property(attrgetter("first.e_value"))

    @property
    def verdict(self) -> Verdict:
        """Whether a signal was proven, was not, or was never tested for."""
        return self.stop_reason.verdict

    @property
    def found(self) -> bool:
        """Whether a signal was proven: the verdict is ``SIGNAL``."""
        return self.verdict is Verdict.SIGNAL
