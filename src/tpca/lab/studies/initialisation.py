"""Identity start, random start, both: which finds which signal, and what c₂ has to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tpca.lab.studies.climbs import ClimbStudy, cells, kind_of
from tpca.lab.studies.estimates import rate_interval
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.solvers.paper.schedules import PRESETS

Place = tuple[int, str, float, float]  # order, starts, correlation, c₂


class Initialisation(ClimbStudy):
    """Identity start, random start, both, at growing c₂."""

    name = "initialisation"
    title = "Which part of the start finds which signal"
    claim = (
        "The identity finds identical vectors only, the random part serves uncorrelated ones only, and both together "
        "find both (order 6, d = 64). Step sizes are divided by c₂ and durations multiplied by it: at c₂ = 1 the noise "
        "of a turn has energy 1 and replaces the start; the paper's c₂ = k̄ log(k̄d/δ) is about 50 there."
    )
    version = 2
    dim = 64
    divisors = (1.0, 5.0, 20.0, 50.0, 100.0)
    judged = 50.0
    """About the paper's."""
    expected: ClassVar[dict[tuple[str, float], bool]] = {
        ("identity", 0.0): False, ("identity", 1.0): True, ("random", 0.0): True, ("random", 1.0): False,
        ("both", 0.0): True, ("both", 1.0): True,
    }  # fmt: skip

    def grid(self, scale: Scale) -> list[Params]:
        """Order 6: every start on every signal at every c₂; order 4: uncorrelated vectors."""
        divisors, seeds = ((1.0, self.judged), (10,)) if scale == "quick" else (self.divisors, (10, 30))
        wanted = [(6, starts, correlation) for starts, correlation in self.expected]
        wanted += [(4, starts, 0.0) for starts in ("identity", "both")]
        return [
            {"order": order, "correlation": correlation, "starts": starts, "c2": c2, **params}
            for order, starts, correlation in wanted
            for c2 in divisors
            for params in cells((self.dim,), [1.0], seeds)
        ]

    def rates(self, records: Sequence[Record]) -> dict[Place, tuple[int, int]]:
        """Wins and runs of every order, start, correlation and c₂."""
        counts: dict[Place, tuple[int, int]] = {}
        for r in records:
            place = (r.params["order"], r.params["starts"], r.params["correlation"], r.params["c2"])
            wins, runs = counts.get(place, (0, 0))
            counts[place] = (wins + r.result["wins"], runs + r.result["runs"])
        return counts

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Success at every c₂; judged at about the paper's: "finds" is more than half with 95 % confidence."""
        counts = self.rates(records)
        found = []
        for order, starts, correlation in sorted({place[:3] for place in counts}):
            mine = {
                c2: rate_interval(*counts[p]) for p in counts if p[:3] == (order, starts, correlation) for c2 in p[3:]
            }
            finds = self.expected[starts, correlation] or order == 4
            judged = mine.get(self.judged)
            verdict = Verdict.OPEN
            if judged is not None:
                verdict = Verdict.of(judged.low > 0.5 if finds else judged.high < 0.5)
            each = ", ".join(f"{rate.value:.2f} at c₂ = {c2:g}" for c2, rate in sorted(mine.items()))
            label = f"order {order}, {starts}, {kind_of(correlation)}"
            paper = PRESETS["theory"].step_divisor(order, (self.dim,) * order)
            note = f"judged at c₂ = 50; the paper's is {paper:.0f}."
            if (order, starts, correlation) == (6, "identity", 0.0):
                note += " What is found at c₂ = 1 is noise that replaces the start: the random part is needed."
            found.append(Finding(label, "finds" if finds else "fails", f"success {each}", verdict, note))
        return found
