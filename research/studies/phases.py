"""What every part of the algorithm is for: its starts, each of its phases, and the end of the climb.

Which part of a start finds which signal, what c₂ has to do with it, and how often δ and N₀ let starts fail.  A phase
left out.  The error after Phase III, ALS and our refinement, beside the Cramér–Rao limit: against the samples of the
last phase (*convergence*), and at growing d for the same N (*accuracy*).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from research.baselines import ALS
from research.law import LawEngine
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
    schedule_of,
    succeeds,
)
from research.studies.estimates import PowerLaw, Slope, power_law_of, rate_interval
from research.studies.study import Finding, Params, Records, Study, chosen, counted, key, places
from research.theory import cramer_rao, gaussian_error
from tpca.engines import open_engine
from tpca.model import SpikedTensor, initial_overlap
from tpca.randomness import generator
from tpca.solvers.paper.run import PaperRun, block_vectors
from tpca.solvers.paper.schedule import IDLE, PRESETS, Constants, Leg, Schedule, theorem_schedule
from tpca.solvers.race.run import RaceSolver
from tpca.tensors.blocks import Array, Partition, unit

# ---- which part of a start finds which signal

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

# ---- what each phase is for

FOUND = 0.9
LEFT_OUT = ("", "I", "II", "III")
SIZES = ((4, 32), (5, 32), (6, 32))


def _phases_trials() -> list[Params]:
    """Every phase left out at d = 32, and the whole algorithm at order 6, d = 1000."""
    fixed = {"correlation": 0.0, "budget": 1.0}
    large = {**fixed, "order": 6, "dim": 1000, "without": "", "count": 1}
    return [
        *({**fixed, "order": order, "dim": dim, "without": phase, "first": first, "count": 20}
          for order, dim in SIZES for phase in LEFT_OUT for first in (0, 20, 40, 60, 80)),
        *({**large, "first": seed} for seed in range(6)),
    ]  # fmt: skip


def _cut(truth: SpikedTensor, params: Params) -> Schedule:
    """The theorem's schedule without a phase."""
    schedule = schedule_of(params, truth)
    nothing = (IDLE,) * len(schedule.ascent)
    cut: dict[str, dict[str, Any]] = {"I": {"stages": ()}, "II": {"ascent": nothing}, "III": {"estimation": nothing}}
    return dataclasses.replace(schedule, **cut.get(params["without"], {}))


def _phases_run(params: Params) -> dict[str, Any]:
    """``count`` runs of the whole algorithm, vectors drawn at the end."""
    overlaps, losses, samples = [], [], 0
    for rng, truth in drawn_runs(params):
        schedule, run = _cut(truth, params), SimulatedRun(truth, rng, coarse=COARSE)
        run.climb(schedule)
        run.select(schedule.selection)
        if params["without"] != "III":
            run.estimate(schedule.estimation)
        vectors = run.vectors()
        overlaps.append(float(truth.overlaps(vectors).min()))
        losses.append(float(np.mean(truth.loss(vectors))))
        samples = run.samples
    wins = sum(overlap > FOUND for overlap in overlaps)
    return {"wins": wins, "runs": len(overlaps), "loss": float(np.median(losses)), "samples": float(samples)}


def _phases(records: Records) -> list[Finding]:
    """Success and error without each phase."""
    found = []
    for order, dim in (*SIZES, (6, 1000)):
        own = chosen(records, order=order, dim=dim)
        for phase in LEFT_OUT:
            mine, whole = ([r.result["loss"] for r in chosen(own, without=name)] for name in (phase, ""))
            if not mine:
                continue
            wins, runs = counted(chosen(own, without=phase))
            rate, loss = rate_interval(wins, runs), float(np.median(mine))
            samples = chosen(own, without=phase)[0].result["samples"]
            text = f"{wins} of {runs}: {rate.text()}; median loss {loss:.2g}, N = {samples:.2g}"
            label = f"order {order}, d = {dim}, {f'without Phase {phase}' if phase else 'all phases'}"
            told = {"": "succeeds", "III": "a larger error"}.get(phase, "fails")
            agrees = {"": rate.high >= FOUND, "III": bool(whole) and loss > 2 * float(np.median(whole))}
            found.append(Finding(label, told, text, agrees.get(phase, rate.high < FOUND), _ROLES[phase]))
    return found


_ROLES = {
    "": "",
    "I": "from a random start Phase II's step is far too large.",
    "II": "Phase III begins where Phase I ends: with the cap of ½ that is near enough for these constants, so that "
    "Phase II is needed by the proof, and hardly by the algorithm.",
    "III": "the vectors' error is what Phase II leaves.",
}


def _planned_phases(params: Params) -> dict[str, float]:
    truth = SpikedTensor.random((params["dim"],) * params["order"], 1.0, correlation=0.0, random_state=0)
    schedule = _cut(truth, params)
    rounding = float(2**truth.order * sum(len(legs) for legs in (*schedule.stages, schedule.ascent)))
    return {"samples": float(schedule.samples(truth.order)), "rounding": rounding}


PHASES = Study(
    "phases",
    "What each phase is for",
    "All phases at the schedule's own N, and each of them left out; λ = 1, uncorrelated, every overlap above 0.9. "
    "Phase I lifts the alignments from d^(−1), Phase II to a constant, Phase III lowers the error (Section sketch).",
    _phases_trials(),
    _phases_run,
    [_phases],
    planned=_planned_phases,
)

# ---- the end of the climb

START = 0.8  # alignment of every block when Phase III begins
NOISES = ("gaussian", "rademacher", "uniform", "correlated", "student-t")
KINDS = {"Phase III": ((12, 16, 24, 32, 64, 128), 10), "ALS": ((12, 16, 24), 6), "refinement": ((12, 16, 24), 6)}
FACTORS = (256, 1024, 4096)  # T₃ in d²; N = 4·T₃: two blocks, two signs


def _phase_trials() -> list[Params]:
    """Phase III simulated, and on real samples of several noise laws, from T₃ = 80 entries of a block on.

    There the start is forgotten.
    """
    cells = [("simulated", dim, range(14, 26), 20) for dim in (16, 32)] + [(n, 5, range(11, 16), 6) for n in NOISES]
    return [
        {"kind": kind, "dim": dim, "steps": 2**j, "seed": seed}
        for kind, dim, powers, seeds in cells
        for j in powers
        for seed in range(seeds)
        if 2**j >= 80 * dim**2
    ]


def _phase_error(params: Params) -> dict[str, Any]:
    """One error, averaged over the modes."""
    truth = SpikedTensor.random((params["dim"],) * 4, 1.0, random_state=params["seed"])
    rng, simulated = generator(params["seed"], key(params)), params["kind"] == "simulated"
    vectors = last_phase(truth, params["steps"], rng).vectors() if simulated else _sampled(truth, params, rng)
    return {"loss": float(np.mean(truth.loss(vectors))), "samples": params["steps"]}


def phase_laws(records: Records) -> dict[tuple[str, int], PowerLaw]:
    """Median squared error against T₃."""
    groups: dict[tuple[str, int], dict[float, list[float]]] = {}
    for r in records:
        own = groups.setdefault((r.params["kind"], r.params["dim"]), {})
        own.setdefault(r.params["steps"], []).append(r.result["loss"])
    return {place: power_law_of(values, math.log) for place, values in sorted(groups.items())}


def _phase_slopes(records: Records) -> list[Finding]:
    """Slopes in T₃."""
    found = []
    for (kind, dim), law in phase_laws(records).items():
        label = f"Phase III, {'Gaussian, simulated' if kind == 'simulated' else kind}, d = {dim}"
        runs = len(chosen(records, kind=kind, dim=dim))
        note = f"{runs} runs{', outside the assumption' if kind == 'student-t' else ''}."
        found += Slope(label, -1, law, note, "log T₃")(records)
    return found


def legs(steps: int) -> list[Leg]:
    """Of both blocks."""
    return [Leg(math.log(steps) ** 2 / (2 * steps), steps)] * 2


def last_phase(truth: SpikedTensor, steps: int, rng: np.random.Generator) -> SimulatedRun:
    """Phase III on the reduced chain."""
    run = SimulatedRun(truth, rng, coarse=COARSE)
    run.coordinates = [np.array([[START, math.sqrt(1 - START**2), 0.0]]) for _ in run.coordinates]
    run.estimate(legs(steps))
    return run


def _sampled(truth: SpikedTensor, params: Params, rng: np.random.Generator) -> tuple[Array, ...]:
    """Phase III on real samples."""
    stream = truth.stream(noise=params["kind"], random_state=params["seed"])
    run, partition, begin = PaperRun(open_engine(stream), rng), Partition.pairs(truth.dims), []
    for block in partition.outer(truth.vectors):
        beside = rng.standard_normal(block.shape)
        beside = unit(beside - np.vdot(beside, block) * block)
        begin.append((START * block + math.sqrt(1 - START**2) * beside)[None])
    run.replicas = tuple(begin)
    run.estimate(legs(params["steps"]))
    return block_vectors(partition, tuple(block[0] for block in run.replicas), "power", rng)


CONVERGENCE = Study(
    "convergence",
    "Squared error against the samples of the last phase",
    "Gaussian noise: at most Õ(d²/(λ²T₃)), slope −1 (times log T₃: the step size is halved log T₃ times). Other "
    "noise: −½ in the theorem, −1 by erratum 18 of docs/paper.md for all noise of the assumption.",
    _phase_trials(),
    _phase_error,
    [_phase_slopes],
    planned=lambda params: {"samples": params["steps"]},
    laws=lambda records: {f"Phase III, {kind}, d = {d}": law for (kind, d), law in phase_laws(records).items()},
    axes=("samples T₃", "squared error"),
)


def _method_error(params: Params) -> dict[str, Any]:
    """One error, averaged over the modes."""
    dim, seed = params["dim"], params["seed"]
    truth = SpikedTensor.random((dim,) * 4, 1.0, random_state=1000 + seed)
    steps = params["factor"] * dim**2
    if params["kind"] == "Phase III":
        run = last_phase(truth, steps, generator(seed, key(params)))
        loss, beside = float(np.mean(truth.loss(run.vectors()))), float(np.mean(1 - np.abs(run.alignments)))
        return {"loss": loss, "beside": beside, "samples": 4 * steps}
    engine = LawEngine(truth, random_state=1000 + seed, max_samples=4 * steps)
    if params["kind"] == "ALS":
        found = ALS(random_state=seed).run(engine)
    else:
        memory = 8 * 20 * dim**2
        found = RaceSolver(random_state=seed, max_samples=4 * steps, memory_limit=memory, tol=1e-9).run(engine)
    return {"loss": float(np.mean(truth.loss(found.vectors))), "samples": found.n_samples}


def method_laws(records: Records) -> dict[str, PowerLaw]:
    """Error over log(T)/T (Phase III) or over 1/N against d."""
    values: dict[str, dict[float, list[float]]] = {}
    for r in records:
        dim, kind = r.params["dim"], r.params["kind"]
        steps = r.params["factor"] * dim**2
        unit = math.log(steps) / steps if kind == "Phase III" else 1 / (4 * steps)
        values.setdefault(f"{kind}, vectors", {}).setdefault(dim, []).append(r.result["loss"] / unit)
        if kind == "Phase III":
            values.setdefault(f"{kind}, 1 − α of the blocks", {}).setdefault(dim, []).append(r.result["beside"] / unit)
    return {name: power_law_of(each) for name, each in values.items()}


def _method_slopes(records: Records) -> list[Finding]:
    """Slopes in d, their constants, and every method over the Cramér–Rao limit at the same N."""
    found = []
    for name, law in method_laws(records).items():
        power, ours = 1 if name.endswith("vectors") else 2, not name.startswith("Phase III")
        share = np.mean([y / x**power for x, y in law.points.items()])
        note = f"{share:.3f}·d{'²' if power == 2 else ''}·{'1/N' if ours else 'log T/T'} on average."
        found += Slope(f"{name}, against d", 1 if ours else 2, law, note)(records)
    for kind in KINDS:
        if not (mine := chosen(records, kind=kind)):
            continue
        ratios = [r.result["loss"] / cramer_rao(r.params["dim"], 1.0, r.result["samples"]) for r in mine]
        mean, error = float(np.mean(ratios)), float(np.std(ratios) / math.sqrt(len(ratios)))
        label, text = f"{kind}, loss over Cramér–Rao at the same N", f"{mean:.2f} ± {error:.2f}"
        note = "log T times as much, and both signs and every block have samples of their own."
        found.append(Finding(label, "at least 1", text, mean > 1 - 3 * error, note if kind == "Phase III" else ""))
    if worst := chosen(records, kind="Phase III"):
        bounds = [gaussian_error(4, r.params["dim"], 1.0, r.result["samples"] / 4, 0.1) for r in worst]
        most = max(r.result["loss"] / bound for r, bound in zip(worst, bounds, strict=True))
        label = "Phase III, loss over the paper's bound, δ = 0.1"
        found.append(Finding(label, "at most 1", f"largest {most:.1e} of it", most <= 1))
    return found


ACCURACY = Study(
    "accuracy",
    "Squared error at growing d: Phase III, ALS, the refinement",
    "Order 4, λ = 1. The paper bounds the loss of every vector by Õ(d²/(λ²T₃)) (Corollary "
    "main-result-gaussian-ass-even). No unbiased estimate is better than (d−1)/(λ²N). Ours: the blocks' 1 − α has "
    "d², the top vectors of the blocks d: the bound is loose by d.",
    [
        {"kind": kind, "dim": dim, "factor": factor, "seed": seed}
        for kind, (dims, seeds) in KINDS.items()
        for dim, factor, seed in itertools.product(dims, FACTORS, range(seeds))
    ],
    _method_error,
    [_method_slopes],
    planned=lambda params: {"samples": 4.0 * params["factor"] * params["dim"] ** 2},
    laws=method_laws,
    axes=("d", "squared error × N, or × T₃/log T₃"),
)
