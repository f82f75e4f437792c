"""Two schedules on the same problems: Phase I in one go against stages, the schedule without the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tpca.lab.studies.climbs import ClimbStudy, cells, curves, kind_of, ladder
from tpca.lab.studies.estimates import PowerLaw, Ratio, power_law, slope_finding
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.solvers.paper.schedules import PRESETS, search_steps
from tpca.tensors.blocks import Partition


class ScheduleRatio(ClimbStudy):
    """How many times more samples one schedule takes than the theorem's."""

    cases: tuple[tuple[int, float], ...]
    """Order and correlation."""
    ladders: ClassVar[dict[str, tuple[int, int]]]
    """Of the theorem's schedule, and of the other one."""
    dims: ClassVar[dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...]]]]
    """Of every case, the quick ones and all."""
    fixed: ClassVar[dict[str, Any]] = {}
    seeds: tuple[int, ...] = (10, 10)
    count = "climb"
    """What is compared: the samples of which phases."""

    def grid(self, scale: Scale) -> list[Params]:
        """Both schedules on every case."""
        quick = scale == "quick"
        trials = []
        for order, correlation in self.cases:
            for schedule, (low, high) in self.ladders.items():
                fixed = {"order": order, "correlation": correlation, "schedule": schedule, **self.fixed}
                budgets, seeds = ladder(low, high, not quick), self.seeds[:1] if quick else self.seeds
                trials += cells(self.dims[order, correlation][not quick], budgets, seeds, **fixed)
        return trials

    def laws(self, records: Sequence[Record]) -> dict[tuple[int, float], PowerLaw]:
        """The ratio of N₅₀ against d."""
        found = {}
        for order, correlation in self.cases:
            usual, other = (
                curves(records, count=self.count, order=order, correlation=correlation, schedule=name)
                for name in self.ladders
            )
            found[order, correlation] = power_law({d: Ratio(other[d], usual[d]) for d in other if d in usual})
        return found


class Stages(ScheduleRatio):
    """Phase I with and without its partition into h* cycles, Phase II at its own budget."""

    name = "stages"
    title = "Phase I in one go costs more"
    claim = (
        "Without the h* cycles Phase I takes γ^(−2/(k−1)) times more samples: d for uncorrelated pairs at order 6, √d "
        "for equal vectors. Phase II keeps its own budget, and targets go up to 0.95, or the cap of ½ would bind."
    )
    version = 2
    cases = ((6, 0.0), (6, 1.0))
    ladders: ClassVar[dict[str, tuple[int, int]]] = {"theorem": (-8, 2), "one stage": (-20, -2)}
    dims: ClassVar[dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...]]]] = {
        (6, 0.0): ((64, 1024, 16384), (64, 256, 1024, 4096, 16384)),
        (6, 1.0): ((512, 8192, 131072), (512, 2048, 8192, 32768, 131072)),
    }
    fixed: ClassVar[dict[str, Any]] = {"kept": 1.0, "cap": 0.95}
    count = "phase_one"

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The exponent of the ratio."""
        found = []
        for (order, correlation), law in self.laws(records).items():
            ratios = ", ".join(f"{law.points[d]:.2g}" for d in sorted(law.points))
            note = f"Phase I in one go over Phase I in stages, at 50 % success, d growing: {ratios}."
            label, predicted = f"order {order}, {kind_of(correlation)} vectors", 1.0 if correlation == 0 else 0.5
            found.append(slope_finding(label, law, predicted, note))
        return found


class EmpiricalSchedule(ScheduleRatio):
    """The schedule that needs no truth against the one that does."""

    name = "empirical-schedule"
    title = "Case I and Case II against the theorem's schedule"
    claim = (
        "The empirical schedule costs a constant factor (Corollary empirical-hyper-para-convergence): the ratio of N₅₀ "
        "of Phases I and II does not grow with d. The search for c₃ is counted apart: ⌈T̃⌉ + 1 tests, each 4^k times "
        "longer than the one before, d^(k̄−2) samples in all but for that rounding."
    )
    version = 2
    cases = ((4, 0.0), (4, 1.0), (6, 0.0), (6, 1.0))
    ladders: ClassVar[dict[str, tuple[int, int]]] = {"theorem": (-8, 0), "empirical": (-8, 0)}
    dims: ClassVar[dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...]]]] = {
        (4, 0.0): ((16, 64, 256), (16, 64, 256)),
        (4, 1.0): ((16, 64, 256), (16, 64, 256)),
        (6, 0.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
        (6, 1.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
    }

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """The ratio and its slope; then what the search takes, which needs no trials."""
        found = []
        for (order, correlation), law in self.laws(records).items():
            ratios = ", ".join(f"{law.points[d]:.2g}" for d in sorted(law.points))
            label = f"order {order}, {kind_of(correlation)} vectors, climb"
            found.append(slope_finding(label, law, 0, f"ratio of N₅₀, d growing: {ratios}."))
        return found + [_search(order) for order in (4, 6) if records]


def _search(order: int) -> Finding:
    """All tests of the search over d^(k̄−2), where ⌈T̃⌉ steps up and between."""
    dims = (16, 64, 65, 256, 1024, 4096)
    tests = [search_steps(Partition.pairs((d,) * order), 1.0, PRESETS["practical"]) for d in dims]
    spent = [sum(test.samples for test in each) / d ** (order - 2) for each, d in zip(tests, dims, strict=True)]
    each = ", ".join(f"{x:.2g} (d = {d}, {len(t)} tests)" for x, d, t in zip(spent, dims, tests, strict=True))
    # The last test has 32·d^k·κ^(−2kτ) samples, τ ≤ T̃ + 1 and κ^(−2kT̃) = d^(k−2); each one before a 4^k-th of the next.
    most = 32.0 * 4 ** (order // 2) * (4 ** (order // 2) / (4 ** (order // 2) - 1))
    told = f"at most {most:.0f}·d^{order - 2} in all"
    return Finding(f"order {order}, search alone", told, f"in d^{order - 2}: {each}", Verdict.of(max(spent) <= most))
