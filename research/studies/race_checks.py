"""False alarms and coverage of the race: ``python -m research.studies.race_checks --out docs/race-checks.json``.

False alarms: runs on pure noise of several laws that claim a signal, at confidence 0.95, at any time or at the end.
The laws of :mod:`research.noise.laws` are all there, and two whose skewness cancels over all entries.

Coverage: how often the nominal 95 % intervals of all components and of the strength hold the truth, at the accuracy
where the run was told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from research.law import LawEngine
from research.noise.laws import LAWS, exponential, lognormal
from research.noise.nulls import half_negated
from research.studies.runner import table_command
from tpca.model import Samples, SpikedTensor
from tpca.solvers.race.run import RaceSolver
from tpca.wording import markdown_table

NOISE_SETTINGS: list[tuple[tuple[int, ...], str, int]] = [
    (dims, noise, samples)
    for dims, samples in (((6,) * 3, 400), ((10,) * 3, 600), ((5,) * 4, 600), ((2, 2), 200))
    for noise in ("gaussian", "correlated", "rademacher", "student-t")
]
MORE_LAWS = {
    **LAWS,
    "half-negated exponential": half_negated(exponential),
    "half-negated lognormal": half_negated(lognormal),
}
LAW_SETTINGS: list[tuple[tuple[int, ...], str, int]] = [((8,) * 3, law, 300) for law in MORE_LAWS]
COVERAGE_SETTINGS: tuple[tuple[tuple[int, ...], float], ...] = (
    ((6, 7, 8), 0.08),
    ((6, 7, 8), 0.2),
    ((40, 40), 0.3),
    ((10,) * 4, 0.1),
    ((6,) * 5, 0.15),
    ((5,) * 6, 0.15),
)


def claims(job: tuple[tuple[int, ...], str, int, int]) -> tuple[bool, bool]:
    """Whether one run on pure noise claims a signal at any time, and at the end."""
    dims, noise, samples, seed = job
    source: Any = Samples(dims, noise=noise, random_state=seed) if noise not in MORE_LAWS else None
    if source is None:
        source = MORE_LAWS[noise](np.random.default_rng(seed), samples, dims)
    estimate = RaceSolver(random_state=seed, max_samples=samples).run(source)
    return any(record["found"] for record in estimate.history), estimate.found


def covered(job: tuple[tuple[int, ...], float, int]) -> tuple[int, int, bool, float]:
    """Components inside their interval, all components, strength inside its own, squared error over the claimed."""
    dims, tolerance, seed = job
    truth = SpikedTensor.random(dims, 1.0, random_state=seed)
    estimate = RaceSolver(random_state=seed, tol=tolerance).run(LawEngine(truth, random_state=seed))
    errors = estimate.standard_errors or ()
    signed = [np.sign(v @ w) * v for v, w in zip(estimate.vectors, truth.vectors, strict=True)]
    triples = list(zip(signed, truth.vectors, errors, strict=True))
    inside = sum(int(np.sum(np.abs(v - w) <= 1.96 * e)) for v, w, e in triples)
    low, high = estimate.strength_interval or (0.0, 0.0)
    ratio = float(np.mean([np.sum((v - w) ** 2) / np.sum(e**2) for v, w, e in triples]))
    return inside, sum(dims), bool(low <= truth.strength <= high), ratio


def claims_table(content: dict[str, Any]) -> str:
    """Claims on pure noise."""
    rows = [
        (f"{_shape(r['dims'])}, {r['noise']}", str(r["samples"]), f"{r['claims']} of {r['runs']}", str(r["at_end"]))
        for r in content["false_alarms"]
    ]
    return markdown_table(("pure noise", "samples", "claims at any time", "at the end"), rows)


def coverage_table(content: dict[str, Any]) -> str:
    """How often intervals hold the truth."""
    heading = ("signal", "tolerance", "components", "strength", "error ratio", "runs")
    form = "{tolerance:g}|{components:.3f}|{strength:.2f}|{error_ratio:.2f}|{runs}"
    return markdown_table(
        heading, ((_shape(row["dims"]), *form.format(**row).split("|")) for row in content["coverage"])
    )


def markdown(content: dict[str, Any]) -> str:
    """The tables of docs/race.md, from the stored results."""
    return f"{claims_table(content)}\n{coverage_table(content)}"


def _shape(dims: Sequence[int]) -> str:
    return "×".join(map(str, dims))


def rows(pool_map: Callable[..., list[Any]], seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Both checks over all seeds."""
    for dims, noise, samples in (*NOISE_SETTINGS, *LAW_SETTINGS):
        found = pool_map(claims, [(dims, noise, samples, seed) for seed in seeds])
        alarms: dict[str, Any] = {"dims": dims, "noise": noise, "samples": samples, "runs": len(seeds)}
        yield "false_alarms", {**alarms, "claims": sum(r[0] for r in found), "at_end": sum(r[1] for r in found)}
    for shape, tolerance in COVERAGE_SETTINGS:
        results = pool_map(covered, [(shape, tolerance, seed) for seed in seeds])
        row: dict[str, Any] = {"dims": shape, "tolerance": tolerance, "runs": len(seeds)}
        row["components"] = sum(r[0] for r in results) / sum(r[1] for r in results)
        row["strength"] = sum(r[2] for r in results) / len(results)
        row["error_ratio"] = float(np.mean([r[3] for r in results]))
        yield "coverage", row


if __name__ == "__main__":
    table_command(None, __doc__, rows, seeds=60, markdown=markdown)
