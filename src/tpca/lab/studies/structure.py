"""What the paper's ingredients are good for: correlation, stages, both starts, and the schedule without the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tpca.lab.studies.climbs import SEEDS, ClimbStudy, cells, curves, kind_of, ladder
from tpca.lab.studies.estimates import PowerLaw, Ratio, power_law, rate_interval, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model import SpikedTensor
from tpca.model.bounds import adaptive_samples, block_gauge


class Adaptivity(ClimbStudy):
    """N between the worst case and the symmetric one."""

    name = "adaptivity"
    title = "Samples at 50 % success against the correlation inside the pairs, order 6"
    claim = "N₅₀ ∝ d² max γ⁴ ∏ γ⁻² with γ = |Cor|/√d + c₀/d (Corollary cor-equal-dim): slope 1 against that form."
    correlations = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)

    def grid(self, scale: Scale) -> list[Params]:
        """Every correlation and budget."""
        quick = scale == "quick"
        chosen, dims = (self.correlations[::2], (64,)) if quick else (self.correlations, (64, 256, 2048))
        budgets = ladder(-8, 4, fine=scale == "full")
        return [p for c in chosen for p in cells(dims, budgets, SEEDS[:1] if quick else SEEDS, order=6, correlation=c)]

    def laws(self, records: Sequence[Record]) -> dict[int, PowerLaw]:
        """N₅₀ against the predicted form, for every d."""
        found = {}
        for dim in sorted({r.params["dim"] for r in records}):
            each = curves(records, by="correlation", dim=dim)
            found[dim] = power_law({self.form(dim, c): curve for c, curve in each.items()})
        return found

    @staticmethod
    def form(dim: int, correlation: float) -> float:
        """d² max γ⁴ ∏ γ⁻² at order 6, c₀ = 1."""
        truth = SpikedTensor.random((dim,) * 6, 1.0, correlation=correlation, random_state=0)
        return adaptive_samples(dim, block_gauge(truth, 1.0))

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The slope against the form, and how much correlation saves."""
        found = []
        for dim, law in self.laws(records).items():
            points = [law.points[x] for x in sorted(law.points)]
            saved = f"from Cor = 0 to 1 N₅₀ falls by {points[-1] / points[0]:.0f} times; " if len(points) > 1 else ""
            luck = "near Cor = 0 the noise adds to a start as weak as itself, which the form leaves out."
            found.append(slope_finding(f"order 6, d = {dim}, N₅₀ against the form", law, 1, saved + luck))
        return found


class ScheduleRatio(ClimbStudy):
    """How many times more samples one schedule takes than the theorem's."""

    cases: tuple[tuple[int, float], ...]
    """Order and correlation."""
    ladders: ClassVar[dict[str, tuple[int, int]]]
    """Of the theorem's schedule, and of the other one."""

    def sizes(self, correlation: float, quick: bool) -> tuple[int, ...]:
        """The values of d."""
        raise NotImplementedError

    def grid(self, scale: Scale) -> list[Params]:
        """Both schedules on every case."""
        quick = scale == "quick"
        trials = []
        for order, correlation in self.cases:
            for schedule, (low, high) in self.ladders.items():
                fixed = {"order": order, "correlation": correlation, "schedule": schedule}
                budgets, seeds = ladder(low, high, not quick), SEEDS[:1] if quick else SEEDS
                trials += cells(self.sizes(correlation, quick), budgets, seeds, **fixed)
        return trials

    def laws(self, records: Sequence[Record]) -> dict[tuple[int, float], PowerLaw]:
        """The ratio of N₅₀ against d."""
        found = {}
        for order, correlation in self.cases:
            usual, other = (
                curves(records, order=order, correlation=correlation, schedule=name) for name in self.ladders
            )
            found[order, correlation] = power_law({d: Ratio(other[d], usual[d]) for d in other if d in usual})
        return found


class Stages(ScheduleRatio):
    """Phase I with and without its partition into h* cycles."""

    name = "stages"
    title = "Phase I in one go costs more"
    claim = (
        "Without the h* cycles Phase I costs γ^(−2/(k−1)) times more: d for uncorrelated pairs at order 6, "
        "√d for equal vectors."
    )
    cases = ((6, 0.0), (6, 1.0))
    ladders: ClassVar[dict[str, tuple[int, int]]] = {"theorem": (-8, 4), "one stage": (-16, 2)}
    dims: ClassVar[dict[float, tuple[tuple[int, ...], tuple[int, ...]]]] = {
        0.0: ((16, 64, 256), (16, 32, 64, 128, 256, 512)),
        1.0: ((64, 512, 4096), (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
    }

    def sizes(self, correlation: float, quick: bool) -> tuple[int, ...]:
        """The values of d."""
        return self.dims[correlation][not quick]

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The exponent of the ratio."""
        found = []
        for (order, correlation), law in self.laws(records).items():
            ratios = ", ".join(f"{law.points[d]:.2g}" for d in sorted(law.points))
            note = f"N₅₀ in one go over N₅₀ in stages, d growing: {ratios}."
            label, predicted = f"order {order}, {kind_of(correlation)} vectors", 1.0 if correlation == 0 else 0.5
            found.append(slope_finding(label, law, predicted, note))
        return found


class Initialisation(ClimbStudy):
    """Identity start, random start, both."""

    name = "initialisation"
    title = "Which part of the start finds which signal"
    claim = (
        "At the budget that the theorem asks for, the identity finds identical vectors only, the random part serves "
        "uncorrelated ones only, and both together find both (order 6)."
    )
    budget = 2.0
    expected: ClassVar[dict[tuple[str, float], bool]] = {
        ("identity", 0.0): False, ("identity", 1.0): True, ("random", 0.0): True, ("random", 1.0): False,
        ("both", 0.0): True, ("both", 1.0): True,
    }  # fmt: skip
    reasons: ClassVar[dict[tuple[str, float], str]] = {
        ("identity", 0.0): "alignment 0 at first, but the noise of the first turns brings about 1/d, as much as a "
        "random start: the random part is not needed.",
    }

    def grid(self, scale: Scale) -> list[Params]:
        """Every start on every signal, at one budget."""
        dims, seeds = ((64,), SEEDS[:1]) if scale == "quick" else ((32, 64, 128), SEEDS)
        return [
            {"order": 6, "correlation": correlation, "starts": starts, **params}
            for starts, correlation in self.expected
            for params in cells(dims, [self.budget], seeds)
        ]

    def rates(self, records: Sequence[Record]) -> dict[tuple[str, float, int], tuple[int, int]]:
        """Wins and runs of every start, correlation and d."""
        counts: dict[tuple[str, float, int], tuple[int, int]] = {}
        for r in records:
            place = (r.params["starts"], r.params["correlation"], r.params["dim"])
            wins, runs = counts.get(place, (0, 0))
            counts[place] = (wins + r.result["wins"], runs + r.result["runs"])
        return counts

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Success rates; "finds" means more than half of the runs, with 95 % confidence."""
        found = []
        for (starts, correlation, dim), (wins, runs) in sorted(self.rates(records).items()):
            if dim != 64:
                continue
            rate, finds = rate_interval(wins, runs), self.expected[starts, correlation]
            verdict = Verdict.of(rate.low > 0.5 if finds else rate.high < 0.5)
            reason = self.reasons.get((starts, correlation), "") if verdict is Verdict.DIFFERS else ""
            label, predicted = f"{starts}, {kind_of(correlation)}, d = 64", "finds" if finds else "fails"
            found.append(Finding(label, predicted, f"success {rate.text()}", verdict, reason))
        return found


class EmpiricalSchedule(ScheduleRatio):
    """The schedule that needs no truth against the one that does."""

    name = "empirical-schedule"
    title = "Case I and Case II against the theorem's schedule"
    claim = (
        "The empirical schedule costs a constant factor (Corollary empirical-hyper-para-convergence): the ratio of "
        "N₅₀, search included, does not grow with d (slope 0 or below)."
    )
    cases = ((4, 0.0), (4, 1.0), (6, 0.0), (6, 1.0))
    ladders: ClassVar[dict[str, tuple[int, int]]] = {"theorem": (-8, 6), "empirical": (-8, 6)}

    def sizes(self, correlation: float, quick: bool) -> tuple[int, ...]:  # noqa: ARG002
        """The values of d."""
        return (16, 64, 256) if quick else (16, 32, 64, 128, 256)

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The ratio and its slope."""
        found = []
        for (order, correlation), law in self.laws(records).items():
            ratios = [law.points[d] for d in sorted(law.points)]
            ends = f"ratio of N₅₀ {min(ratios, default=math.nan):.2g} to {max(ratios, default=math.nan):.2g}."
            finding = slope_finding(f"order {order}, {kind_of(correlation)} vectors", law, 0, ends)
            if finding.verdict is Verdict.DIFFERS and law.slope.high < 0:
                note = f"{ends} It falls with d, to the theorem's own N."
                finding = replace(finding, verdict=Verdict.AGREES, reason=note)
            found.append(finding)
        return found
