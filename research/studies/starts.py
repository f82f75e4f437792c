"""Starts: which part of one finds which signal, what c₂ has to do with it, and how often δ and N₀ let them fail."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from research.simulate import SimulatedRun
from research.studies.climbs import (
    COARSE,
    GOOD,
    cell_of,
    cells,
    climb,
    climb_cost,
    constants_of,
    drawn_runs,
    kind_of,
    planned_climb,
)
from research.studies.estimates import Interval, rate_interval
from research.studies.study import Finding, Params, Records, Scale, Study, Verdict
from tpca.model import initial_overlap
from tpca.randomness import generator
from tpca.solvers.paper.schedule import PRESETS, Constants, theorem_schedule

Place = tuple[int, str, float, float]  # order, starts, correlation, c₂
SELECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
PLACES = ((4, 0.125), (4, 1.0), (6, 0.125), (6, 1.0))  # order, budget: near N₅₀, and the schedule's own
DELTAS = (0.05, 0.1, 0.2, 0.4)


DIM = 64
DIVISORS = (1.0, 5.0, 20.0, 50.0, 100.0)
JUDGED = 50.0  # c₂ at which starts are judged: about the paper's
EXPECTED = {
    ("identity", 0.0): False, ("identity", 1.0): True, ("random", 0.0): True, ("random", 1.0): False,
    ("both", 0.0): True, ("both", 1.0): True,
}  # fmt: skip


def _starts_grid(scale: Scale) -> list[Params]:
    """Order 6: every start on every signal at every c₂; order 4: uncorrelated vectors."""
    divisors, seeds = ((1.0, JUDGED), (10,)) if scale == "quick" else (DIVISORS, (10, 30))
    wanted = [(6, starts, correlation) for starts, correlation in EXPECTED]
    wanted += [(4, starts, 0.0) for starts in ("identity", "both")]
    return [
        {"order": order, "correlation": correlation, "starts": starts, "c2": c2, **params}
        for order, starts, correlation in wanted
        for c2 in divisors
        for params in cells((DIM,), [1.0], seeds)
    ]


def start_rates(records: Records) -> dict[Place, tuple[int, int]]:
    """Wins and runs of every order, start, correlation and c₂."""
    counts: dict[Place, tuple[int, int]] = {}
    for r in records:
        place = (r.params["order"], r.params["starts"], r.params["correlation"], r.params["c2"])
        wins, runs = counts.get(place, (0, 0))
        counts[place] = (wins + r.result["wins"], runs + r.result["runs"])
    return counts


def _found(records: Records) -> list[Finding]:
    """Success at every c₂; judged at about the paper's: "finds" is more than half with 95 % confidence."""
    counts = start_rates(records)
    found = []
    for order, starts, correlation in sorted({place[:3] for place in counts}):
        mine = {c2: rate_interval(*counts[p]) for p in counts if p[:3] == (order, starts, correlation) for c2 in p[3:]}
        finds = EXPECTED[starts, correlation] or order == 4
        judged = mine.get(JUDGED)
        verdict = Verdict.OPEN
        if judged is not None:
            verdict = Verdict.of(judged.low > 0.5 if finds else judged.high < 0.5)
        each = ", ".join(f"{rate.value:.2f} at c₂ = {c2:g}" for c2, rate in sorted(mine.items()))
        label = f"order {order}, {starts}, {kind_of(correlation)}"
        paper = PRESETS["theory"].step_divisor(order, (DIM,) * order)
        note = f"judged at c₂ = 50; the paper's is {paper:.0f}."
        if (order, starts, correlation) == (6, "identity", 0.0):
            note += " What is found at c₂ = 1 is noise that replaces the start: the random part is needed."
        found.append(Finding(label, "finds" if finds else "fails", f"success {each}", verdict, note))
    return found


INITIALISATION = Study(
    "initialisation",
    "Which part of the start finds which signal",
    "The identity finds identical vectors only, the random part serves uncorrelated ones only, and both together "
    "find both (order 6, d = 64). Step sizes are divided by c₂ and durations multiplied by it: at c₂ = 1 the noise "
    "of a turn has energy 1 and replaces the start; the paper's c₂ = k̄ log(k̄d/δ) is about 50 there.",
    _starts_grid,
    climb,
    climb_cost,
    [_found],
    version=2,
    planned=planned_climb,
)


def _chances_grid(scale: Scale) -> list[Params]:
    """Overlaps, failures of the theory preset at its own δ, and selections at every N₀."""
    quick = scale == "quick"
    trials: list[Params] = [
        {"kind": "overlap", "order": order, "dim": 64, "delta": d, "first": 0} for order in (5, 6) for d in DELTAS
    ]
    for first in (0,) if quick else (0, 10, 20, 30):
        places = [_place(order, 16) for order in (4, 5)]
        trials += [{**place, "kind": "failures", "delta": d, "first": first} for place in places for d in (0.1, 0.4)]
    for first in (0,) if quick else range(0, 200, 10):
        trials += [
            {**_place(order, 32), "kind": "selection", "budget": budget, "first": first} for order, budget in PLACES
        ]
    return trials


def _chance(params: Params) -> dict[str, Any]:
    """One trial of its kind."""
    return {"overlap": _overlap, "failures": _failures, "selection": _selection}[params["kind"]](params)


def selection_rates(records: Records) -> dict[tuple[int, float], dict[int, Interval]]:
    """Success of the selection where some start is good, by order and budget, then by N₀."""
    found = {}
    for order, budget in PLACES:
        if runs := _able(records, order, budget):
            wins = np.sum([r["wins"] for r in _selections(records, order, budget)], axis=0)
            found[order, budget] = {n: rate_interval(int(w), runs) for n, w in zip(SELECTIONS, wins, strict=True)}
    return found


def _selections(records: Records, order: int, budget: float) -> list[dict[str, Any]]:
    place = ("selection", order, budget)
    return [r.result for r in records if (r.params["kind"], r.params["order"], r.params.get("budget")) == place]


def _able(records: Records, order: int, budget: float) -> int:
    """Runs in which some start was good."""
    return sum(result["runs"] for result in _selections(records, order, budget))


def _failed(records: Records) -> list[Finding]:
    """Rates against what is promised: upper bounds, so one-sided."""
    found = []
    for kind, factor, label in (
        ("overlap", 1, "start below c₀"),
        ("failures", 2, "climb of the theory preset fails"),
    ):
        for order, delta in sorted(
            {(r.params["order"], r.params["delta"]) for r in records if r.params["kind"] == kind}
        ):
            place = (kind, order, delta)
            mine = [r.result for r in records if (r.params["kind"], r.params["order"], r.params.get("delta")) == place]
            bad, runs = sum(r["bad"] for r in mine), sum(r["runs"] for r in mine)
            rate, told = rate_interval(bad, runs), f"at most {factor * delta:g}"
            text, verdict = f"{bad} of {runs}: {rate.text()}", Verdict.of(rate.low <= factor * delta)
            found.append(Finding(f"{label}, order {order}, δ = {delta:g}", told, text, verdict))
    for (order, budget), rates in selection_rates(records).items():
        each = ", ".join(f"{rate.text()} at {n}" for n, rate in rates.items() if n in (1, 8, 32, 128))
        usual, runs = Constants().selection_samples(order, 1.0), _able(records, order, budget)
        where = "the schedule's own N" if budget == 1 else "near N₅₀, where few starts are good"
        note = f"{where}, {runs} runs with a good start; ours is N₀ = 8 log(2^k̄/δ) = {usual} (erratum 9)."
        label = f"order {order}, budget {budget:g}, success by N₀"
        verdict = Verdict.of(rates[1].high >= 0.9)
        found.append(Finding(label, "0.9 at N₀ = 1", f"success {each}", verdict, note))
    return found


def _place(order: int, dim: int) -> Params:
    return {"order": order, "dim": dim, "correlation": 0.0, "count": 10}


def _overlap(params: Params) -> dict[str, Any]:
    """Two thousand starts: in how many is some block's overlap below c₀/√(dd′), or √c₀/√d of a vector?"""
    rng, dim, runs, odd = generator(params["first"], cell_of(params)), params["dim"], 2000, params["order"] % 2
    c0 = initial_overlap((dim,) * params["order"], params["delta"])
    drawn = rng.standard_normal((runs, params["order"], dim))
    along = np.abs(drawn[..., 0]) / np.linalg.norm(drawn, axis=-1)
    bad = np.any(along[:, odd::2] * along[:, odd + 1 :: 2] < c0 / dim, axis=1)
    bad |= np.any(along[:, :odd] < math.sqrt(c0 / dim), axis=1)  # the vector block
    return {"bad": int(bad.sum()), "runs": runs}


def _failures(params: Params) -> dict[str, Any]:
    """Climbs with the theory preset: its c₀ and c₂ come from δ."""
    bad, constants = 0, Constants(delta=params["delta"])
    for rng, truth in drawn_runs(params):
        schedule = theorem_schedule(truth, constants)
        run = SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(schedule)
        run.select(schedule.selection)
        bad += bool(np.abs(run.alignments).min() <= GOOD)
    return {"bad": bad, "runs": params["count"]}


def _selection(params: Params) -> dict[str, Any]:
    """Climbs, and of each the starts that selections of every N₀ would pick."""
    wins, able = np.zeros(len(SELECTIONS), dtype=int), 0
    for rng, truth in drawn_runs(params):
        run = SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(theorem_schedule(truth, constants_of(params)))
        means = truth.strength * np.prod(run.alignments, axis=0)
        good = np.abs(run.alignments).min(axis=0) > GOOD
        able += bool(good.any())
        for j, samples in enumerate(SELECTIONS):
            wins[j] += bool(good[np.argmax(means + rng.standard_normal(len(means)) / math.sqrt(samples))])
    return {"wins": wins.tolist(), "runs": able}


CHANCES = Study(
    "chances",
    "δ and N₀: what fails, and how often",
    "Every block's random start overlaps by at least c₀/√(dd′) (a vector √(c₀/d)) with probability 1 − δ (Eq. "
    "c0-definition); the "
    "algorithm fails with probability at most 2δ; N₀ ≳ 1 samples a start tell the starts apart.",
    _chances_grid,
    _chance,
    lambda params: 1.0 if params["kind"] != "failures" else 3.0,
    [_failed],
)
