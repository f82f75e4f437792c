"""The end of the climb: the error after Phase III, ALS and our refinement, beside the Cramér–Rao limit.

Against the samples of the last phase (*convergence*), and at growing d for the same N (*accuracy*).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from research.baselines import ALS
from research.law import LawEngine
from research.simulate import SimulatedRun
from research.studies.climbs import COARSE
from research.studies.estimates import PowerLaw, Slope, power_law_of
from research.studies.study import Finding, Params, Records, Study, chosen, key
from research.theory import cramer_rao, gaussian_error
from tpca.engines import open_engine
from tpca.model import SpikedTensor
from tpca.randomness import generator
from tpca.solvers.paper.run import PaperRun, block_vectors
from tpca.solvers.paper.schedule import Leg
from tpca.solvers.race.run import RaceSolver
from tpca.tensors.blocks import Array, Partition, unit

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
