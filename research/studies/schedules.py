"""Two schedules on the same problems: Phase I in one go against stages, the schedule without the truth."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from research.studies.climbs import Cells, climb, climb_cost, curves, kind_of, planned_climb, together
from research.studies.estimates import PowerLaw, Ratio, power_law
from research.studies.study import Finding, Params, Records, Scale, Slope, Study, Verdict
from tpca.solvers.paper.schedule import PRESETS, search_steps
from tpca.tensors.blocks import Partition

Cases = dict[tuple[int, float], tuple[tuple[int, ...], tuple[int, ...]]]  # order, correlation: quick dims, all dims


def _both(cases: Cases, ladders: dict[str, tuple[int, int]], **fixed: Any) -> Callable[[Scale], list[Params]]:
    """Both schedules, the theorem's first, on every case."""
    return together(
        *(
            Cells(*dims, rungs, (10, 10), {"order": order, "correlation": cor, "schedule": schedule, **fixed})
            for (order, cor), dims in cases.items()
            for schedule, rungs in ladders.items()
        )
    )


def _ratio(order: int, correlation: float, other: str, count: str) -> Callable[[Records], PowerLaw]:
    """How many times more samples another schedule takes than the theorem's, against d; ``count`` says of which."""

    def law(records: Records) -> PowerLaw:
        usual, more = (
            curves(records, count=count, order=order, correlation=correlation, schedule=name)
            for name in ("theorem", other)
        )
        return power_law({d: Ratio(more[d], usual[d]) for d in more if d in usual})

    return law


def _growing(text: str, law: PowerLaw, _: Records) -> str:
    return f"{text}, d growing: {', '.join(f'{law.points[d]:.2g}' for d in sorted(law.points))}."


_STAGES: Cases = {
    (6, 0.0): ((64, 1024, 16384), (64, 256, 1024, 4096, 16384)),
    (6, 1.0): ((512, 8192, 131072), (512, 2048, 8192, 32768, 131072)),
}
STAGES = Study(
    "stages",
    "Phase I in one go costs more",
    "Without the h* cycles Phase I takes γ^(−2/(k−1)) times more samples: d for uncorrelated pairs at order 6, √d "
    "for equal vectors. Phase II keeps its own budget, and targets go up to 0.95, or the cap of ½ would bind.",
    _both(_STAGES, {"theorem": (-8, 2), "one stage": (-20, -2)}, kept=1.0, cap=0.95),
    climb,
    climb_cost,
    [
        Slope(
            f"order {order}, {kind_of(correlation)} vectors",
            1.0 if correlation == 0 else 0.5,
            _ratio(order, correlation, "one stage", "phase_one"),
            functools.partial(_growing, "Phase I in one go over Phase I in stages, at 50 % success"),
            line=f"order {order}, {kind_of(correlation)}",
        )
        for order, correlation in _STAGES
    ],
    version=2,
    planned=planned_climb,
)


def _search(order: int, records: Records) -> list[Finding]:
    """All tests of the search over d^(k̄−2), where ⌈T̃⌉ steps up and between; that needs no trials."""
    if not records:
        return []
    dims = (16, 64, 65, 256, 1024, 4096)
    tests = [search_steps(Partition.pairs((d,) * order), 1.0, PRESETS["practical"]) for d in dims]
    spent = [sum(test.samples for test in each) / d ** (order - 2) for each, d in zip(tests, dims, strict=True)]
    each = ", ".join(f"{x:.2g} (d = {d}, {len(t)} tests)" for x, d, t in zip(spent, dims, tests, strict=True))
    # The last test has 32·d^k·κ^(−2kτ) samples, τ ≤ T̃ + 1 and κ^(−2kT̃) = d^(k−2); each one before a 4^k-th of the next.
    most = 32.0 * 4 ** (order // 2) * (4 ** (order // 2) / (4 ** (order // 2) - 1))
    told = f"at most {most:.0f}·d^{order - 2} in all"
    verdict = Verdict.of(max(spent) <= most)
    return [Finding(f"order {order}, search alone", told, f"in d^{order - 2}: {each}", verdict)]


_EMPIRICAL: Cases = {
    (4, 0.0): ((16, 64, 256), (16, 64, 256)),
    (4, 1.0): ((16, 64, 256), (16, 64, 256)),
    (6, 0.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
    (6, 1.0): ((16, 64, 256), (16, 64, 128, 256, 1024)),
}
EMPIRICAL_SCHEDULE = Study(
    "empirical-schedule",
    "Case I and Case II against the theorem's schedule",
    "The empirical schedule costs a constant factor (Corollary empirical-hyper-para-convergence): the ratio of N₅₀ "
    "of Phases I and II does not grow with d. The search for c₃ is counted apart: ⌈T̃⌉ + 1 tests, each 4^k times "
    "longer than the one before, d^(k̄−2) samples in all but for that rounding.",
    _both(_EMPIRICAL, {"theorem": (-8, 0), "empirical": (-8, 0)}),
    climb,
    climb_cost,
    [
        *(
            Slope(
                f"order {order}, {kind_of(correlation)} vectors, climb",
                0,
                _ratio(order, correlation, "empirical", "climb"),
                functools.partial(_growing, "ratio of N₅₀"),
                line=f"order {order}, {kind_of(correlation)}",
            )
            for order, correlation in _EMPIRICAL
        ),
        *(functools.partial(_search, order) for order in (4, 6)),
    ],
    version=2,
    planned=planned_climb,
)
