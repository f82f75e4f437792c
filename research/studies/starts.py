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
    constants_of,
    drawn_runs,
    kind_of,
    planned_climb,
    succeeds,
)
from research.studies.estimates import rate_interval
from research.studies.study import Finding, Params, Records, Study, chosen, counted, places
from tpca.model import initial_overlap
from tpca.randomness import generator
from tpca.solvers.paper.schedule import PRESETS, Constants, theorem_schedule

DIM = 64
DIVISORS = (1.0, 5.0, 20.0, 50.0, 100.0)
JUDGED = 50.0  # c₂ at which starts are judged: about the paper's
EXPECTED = {  # order 6: every start on every signal
    ("identity", 0.0): False, ("identity", 1.0): True, ("random", 0.0): True, ("random", 1.0): False,
    ("both", 0.0): True, ("both", 1.0): True,
}  # fmt: skip


def _found(records: Records) -> list[Finding]:
    """Success at every c₂; judged at about the paper's: "finds" is more than half with 95 % confidence."""
    found = []
    for order, starts, correlation in places(records, "order", "starts", "correlation"):
        own = chosen(records, order=order, starts=starts, correlation=correlation)
        mine = {c2: rate_interval(*counted(chosen(own, c2=c2))) for (c2,) in places(own, "c2")}
        finds = EXPECTED[starts, correlation] or order == 4
        judged = mine.get(JUDGED)
        agrees = None if judged is None else judged.low > 0.5 if finds else judged.high < 0.5
        each = ", ".join(f"{rate.value:.2f} at c₂ = {c2:g}" for c2, rate in mine.items())
        paper = PRESETS["theory"].step_divisor(order, (DIM,) * order)
        note = f"judged at c₂ = 50; the paper's is {paper:.0f}."
        if (order, starts, correlation) == (6, "identity", 0.0):
            note += " What is found at c₂ = 1 is noise that replaces the start: the random part is needed."
        label, told = f"order {order}, {starts}, {kind_of(correlation)}", "finds" if finds else "fails"
        found.append(Finding(label, told, f"success {each}", agrees, note))
    return found


INITIALISATION = Study(
    "initialisation",
    "Which part of the start finds which signal",
    "The identity finds identical vectors only, the random part serves uncorrelated ones only, and both together "
    "find both (order 6, d = 64). Step sizes are divided by c₂ and durations multiplied by it: at c₂ = 1 the noise "
    "of a turn has energy 1 and replaces the start; the paper's c₂ = k̄ log(k̄d/δ) is about 50 there.",
    [
        {"starts": starts, "c2": c2, **params}
        for order, starts, correlation in [(6, *case) for case in EXPECTED]
        + [(4, s, 0.0) for s in ("identity", "both")]
        for c2 in DIVISORS
        for params in cells((DIM,), (0,), (10, 30), order=order, correlation=correlation)
    ],
    climb,
    [_found],
    version=2,
    planned=planned_climb,
)

# ---- δ and N₀

SELECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)
PLACES = ((4, 0.125), (4, 1.0), (6, 0.125), (6, 1.0))  # order, budget: near N₅₀, and the schedule's own
DELTAS = (0.05, 0.1, 0.2, 0.4)


def _chances_trials() -> list[Params]:
    """Overlaps, failures of the theory preset at its own δ, and selections at every N₀."""
    ten = {"correlation": 0.0, "count": 10}
    return [
        *({"kind": "overlap", "order": order, "dim": 64, "delta": delta, "first": 0}
          for order in (5, 6) for delta in DELTAS),
        *({**ten, "kind": "failures", "order": order, "dim": 16, "delta": delta, "first": first}
          for order in (4, 5) for delta in (0.1, 0.4) for first in (0, 10, 20, 30)),
        *({**ten, "kind": "selection", "order": order, "dim": 32, "budget": budget, "first": first}
          for order, budget in PLACES for first in range(0, 200, 10)),
    ]  # fmt: skip


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
        bad += not succeeds(run)
    return {"bad": bad, "runs": params["count"]}


def _selection(params: Params) -> dict[str, Any]:
    """Climbs, and of each the starts that selections of every N₀ would pick; ``runs`` have a good one."""
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


def _failed(records: Records) -> list[Finding]:
    """Rates against what is promised: upper bounds, so one-sided."""
    found = []
    for kind, factor, label in (("overlap", 1, "start below c₀"), ("failures", 2, "climb of the theory preset fails")):
        for order, delta in places(chosen(records, kind=kind), "order", "delta"):
            bad, runs = counted(chosen(records, kind=kind, order=order, delta=delta), "bad")
            rate, told = rate_interval(bad, runs), f"at most {factor * delta:g}"
            text, name = f"{bad} of {runs}: {rate.text()}", f"{label}, order {order}, δ = {delta:g}"
            found.append(Finding(name, told, text, rate.low <= factor * delta))
    return found


def _selected(records: Records) -> list[Finding]:
    """Success of the selection where some start is good, by N₀."""
    found = []
    for order, budget in PLACES:
        results = [r.result for r in chosen(records, kind="selection", order=order, budget=budget)]
        if not (runs := sum(result["runs"] for result in results)):
            continue
        wins = np.sum([result["wins"] for result in results], axis=0)
        rates = {n: rate_interval(int(w), runs) for n, w in zip(SELECTIONS, wins, strict=True)}
        each = ", ".join(f"{rates[n].text()} at {n}" for n in (1, 8, 32, 128))
        usual = Constants().selection_samples(order, 1.0)
        where = "the schedule's own N" if budget == 1 else "near N₅₀, where few starts are good"
        note = f"{where}, {runs} runs with a good start; ours is N₀ = 8 log(2^k̄/δ) = {usual} (erratum 9)."
        label = f"order {order}, budget {budget:g}, success by N₀"
        found.append(Finding(label, "0.9 at N₀ = 1", f"success {each}", rates[1].high >= 0.9, note))
    return found


def _chance(params: Params) -> dict[str, Any]:
    return {"overlap": _overlap, "failures": _failures, "selection": _selection}[params["kind"]](params)


CHANCES = Study(
    "chances",
    "δ and N₀: what fails, and how often",
    "Every block's random start overlaps by at least c₀/√(dd′) (a vector √(c₀/d)) with probability 1 − δ (Eq. "
    "c0-definition); the "
    "algorithm fails with probability at most 2δ; N₀ ≳ 1 samples a start tell the starts apart.",
    _chances_trials(),
    _chance,
    [_failed, _selected],
)
