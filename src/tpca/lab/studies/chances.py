"""What δ and N₀ do: the start's overlap, failures of the whole climb, and the selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpca.lab.simulate import SimulatedRun
from tpca.lab.studies.climbs import COARSE, GOOD, cell_of, constants_of, planted
from tpca.lab.studies.estimates import Estimate, rate_interval
from tpca.lab.studies.study import Finding, Params, Record, Scale, Verdict
from tpca.model.bounds import initial_overlap
from tpca.randomness import generator
from tpca.solvers.paper.schedules import Constants, theorem_schedule

SELECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
PLACES = ((4, 0.125), (4, 1.0), (6, 0.125), (6, 1.0))  # order, budget: near N₅₀, and the schedule's own
DELTAS = (0.05, 0.1, 0.2, 0.4)


class Chances:
    """Probabilities that the paper promises."""

    name = "chances"
    title = "δ and N₀: what fails, and how often"
    claim = (
        "Every block's random start overlaps by at least c₀/√(dd′) with probability 1 − δ (Eq. c0-definition); the "
        "algorithm fails with probability at most 2δ; N₀ ≳ 1 samples a start tell the starts apart."
    )
    version = 1

    def grid(self, scale: Scale) -> list[Params]:
        """Overlaps, failures of the theory preset at its own δ, and selections at every N₀."""
        quick = scale == "quick"
        trials: list[Params] = [{"kind": "overlap", "order": 6, "dim": 64, "delta": d, "first": 0} for d in DELTAS]
        for first in (0,) if quick else (0, 10, 20, 30):
            trials += [{**_place(4, 16), "kind": "failures", "delta": d, "first": first} for d in (0.1, 0.4)]
            trials += [
                {**_place(order, 32), "kind": "selection", "budget": budget, "first": first} for order, budget in PLACES
            ]
        return trials

    def cost(self, params: Params) -> float:
        """Ten climbs, or two thousand starts."""
        return 1.0 if params["kind"] != "failures" else 3.0

    def run(self, params: Params) -> dict[str, Any]:
        """One trial of its kind."""
        return {"overlap": _overlap, "failures": _failures, "selection": _selection}[params["kind"]](params)

    def rates(self, records: Sequence[Record]) -> dict[tuple[int, float], dict[int, Estimate]]:
        """Success of the selection where some start is good, by order and budget, then by N₀."""
        found = {}
        for order, budget in PLACES:
            place = ("selection", order, budget)
            mine = [r.result for r in records if (r.params["kind"], r.params["order"], r.params.get("budget")) == place]
            if runs := sum(r["runs"] for r in mine):
                wins = np.sum([r["wins"] for r in mine], axis=0)
                found[order, budget] = {n: rate_interval(int(w), runs) for n, w in zip(SELECTIONS, wins, strict=True)}
        return found

    def findings(self, records: Sequence[Record]) -> list[Finding]:
        """Rates against what is promised: upper bounds, so one-sided."""
        found = []
        for kind, factor, label in (
            ("overlap", 1, "start below c₀"),
            ("failures", 2, "climb of the theory preset fails"),
        ):
            for delta in DELTAS:
                mine = [r.result for r in records if r.params["kind"] == kind and r.params["delta"] == delta]
                if mine:
                    rate = rate_interval(sum(r["bad"] for r in mine), sum(r["runs"] for r in mine))
                    verdict = Verdict.of(rate.low <= factor * delta)
                    found.append(
                        Finding(f"{label}, δ = {delta:g}", f"at most {factor * delta:g}", rate.text(), verdict)
                    )
        for (order, budget), rates in self.rates(records).items():
            each = ", ".join(f"{rate.value:.2f} at {n}" for n, rate in rates.items())
            usual = Constants().selection_samples(order, 1.0)
            where = "the schedule's own N" if budget == 1 else "near N₅₀, where few starts are good"
            note = f"{where}, of runs with a good start; ours is N₀ = 8 log(2^k̄/δ) = {usual} (erratum 9)."
            label = f"order {order}, budget {budget:g}, success by N₀"
            verdict = Verdict.of(rates[1].high >= 0.9)
            found.append(Finding(label, "0.9 at N₀ = 1", f"success {each}", verdict, note))
        return found


def _place(order: int, dim: int) -> Params:
    return {"order": order, "dim": dim, "correlation": 0.0, "count": 10}


def _overlap(params: Params) -> dict[str, Any]:
    """Two thousand starts: in how many is some block's overlap below c₀/√(dd′)?"""
    rng, dim, runs = generator(params["first"], cell_of(params)), params["dim"], 2000
    c0 = initial_overlap((dim,) * params["order"], params["delta"])
    drawn = rng.standard_normal((runs, params["order"], dim))
    along = np.abs(drawn[..., 0]) / np.linalg.norm(drawn, axis=-1)
    bad = np.any(along[:, ::2] * along[:, 1::2] < c0 / dim, axis=1)
    return {"bad": int(bad.sum()), "runs": runs}


def _failures(params: Params) -> dict[str, Any]:
    """Climbs with the theory preset: its c₀ and c₂ come from δ."""
    bad, constants = 0, Constants(delta=params["delta"])
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        truth = planted(params, int(rng.integers(2**31)))
        schedule = theorem_schedule(truth, constants)
        run = SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(schedule)
        run.select(schedule.selection)
        bad += bool(np.abs(run.alignments).min() <= GOOD)
    return {"bad": bad, "runs": params["count"]}


def _selection(params: Params) -> dict[str, Any]:
    """Climbs, and of each the starts that selections of every N₀ would pick."""
    wins, able = np.zeros(len(SELECTIONS), dtype=int), 0
    for i in range(params["count"]):
        rng = generator(params["first"] + i, cell_of(params))
        truth = planted(params, int(rng.integers(2**31)))
        run = SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(theorem_schedule(truth, constants_of(params)))
        means = truth.strength * np.prod(run.alignments, axis=0)
        good = np.abs(run.alignments).min(axis=0) > GOOD
        able += bool(good.any())
        for j, samples in enumerate(SELECTIONS):
            wins[j] += bool(good[np.argmax(means + rng.standard_normal(len(means)) / math.sqrt(samples))])
    return {"wins": wins.tolist(), "runs": able}
