"""Results on disk: a recovery as ``recovery.json`` and ``vectors.npz``, read by machines and by people.

``vectors.npz`` holds, for every mode i, ``mode_i`` (components as rows, strongest first) and ``standard_error_i``.
The bytes of both depend on the result only: the same run, interrupted or not, writes the same files.  They belong
together: ``recovery.json`` knows the checksum of ``vectors.npz``.  What differs from run to run, such as its time, is
in ``run.json``, which may be missing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpca.drafts import checksum, replacing
from tpca.errors import StreamError, reading
from tpca.fields import check, finite, read_json
from tpca.labels import Labels, parse_labels
from tpca.result_fields import RESULT, RUN, STREAM, VIEWS
from tpca.solvers.claim import Verdict
from tpca.solvers.moments.views_recovery import ViewsRecovery
from tpca.solvers.recovery import Recovery, StopReason
from tpca.streams.npy import read_npz
from tpca.tensors import Scores
from tpca.tensors.blocks import Array

FORMAT = "tpca result"
ARRAYS = ("mode", "standard_error", "mean", "loading")  # in vectors.npz, one of each for every mode


@dataclass(frozen=True)
class StoredResult:
    """What ``recovery.json`` says, and the components of every mode as rows (none if the verdict is no signal).

    ``errors`` are their standard errors, where there are any; ``means`` those of the columns, of a fit of views, and
    ``loadings`` their correlations with the scores; ``labels`` name the modes and their entries, where that is known.
    """

    summary: dict[str, Any]
    vectors: list[Array]
    errors: list[Array]
    means: list[Array]
    labels: Labels | None = None
    loadings: Sequence[Array] = ()


def as_result(recovery: Recovery, source: str, settings: dict[str, Any] | None = None) -> StoredResult:
    """A recovery as it would be read back from a folder, without one.

    ``settings`` say what the solver was asked to do.
    """
    about = {"format": FORMAT, "version": 1, "source": source, "settings": settings or {}}
    summary = {**about, **summarise(recovery), "history": recovery.history}
    vectors = [c.vectors for c in recovery.components]
    errors = [c.standard_errors for c in recovery.components if c.standard_errors is not None]
    stacked = [[np.stack(mode) for mode in zip(*each, strict=True)] for each in (vectors, errors)]
    known = stacked[1] if len(errors) == len(vectors) else []
    return StoredResult(finite(summary), stacked[0], known, [], recovery.labels)


def as_views_result(
    recovery: ViewsRecovery,
    sources: list[str],
    settings: dict[str, Any] | None = None,
    labels: Labels | None = None,
) -> StoredResult:
    """The same of a fit of views: ``vectors`` are the weights of every view; ``labels`` name views and columns."""
    found = recovery.verdict is Verdict.SIGNAL
    names = ("correlation", "correlation_error", "p_value", "moment")
    means = [whitener.mean for whitener in recovery.whiteners]
    summary = {
        "format": FORMAT,
        "version": 1,
        "kind": "views",
        "source": sources,
        "settings": settings or {},
        "verdict": recovery.verdict,
        "found": found,
        "stop_reason": recovery.stop_reason.name,
        "advice": recovery.advice,
        "dims": [len(mean) for mean in means],
        "labels": None if labels is None else labels.as_json(),
        "n_samples": recovery.n_samples,
        "n_skipped": recovery.n_skipped,
        "components": [{name: float(vars(one)[name]) for name in names} for one in recovery.tested],
    }
    each = (recovery.weights, recovery.loadings) if found else ([], [])
    return StoredResult(finite(summary), each[0], [], means, labels, each[1])


def write_result(
    folder: Path, recovery: Recovery, source: str, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write both files, which appear whole or not at all; returns what ``recovery.json`` says."""
    return _write(folder, as_result(recovery, source, settings))


def write_views_result(
    folder: Path,
    recovery: ViewsRecovery,
    sources: list[str],
    settings: dict[str, Any] | None = None,
    labels: Labels | None = None,
) -> dict[str, Any]:
    """A fit of views in the same two files: ``mode_i`` holds the weights of view i as rows, ``mean_i`` its means."""
    return _write(folder, as_views_result(recovery, sources, settings, labels))


def summarise(recovery: Recovery) -> dict[str, Any]:
    """The numbers of a recovery, without vectors and history."""
    return {
        "verdict": recovery.verdict,
        "found": recovery.found,
        "stop_reason": recovery.stop_reason.name,
        "advice": recovery.advice,
        "withdrawn": recovery.withdrawn,
        "solver": recovery.solver,
        "noise_level": recovery.noise_level,
        "checks": [dataclasses.asdict(check) for check in recovery.checks],
        "dims": [len(v) for v in recovery.vectors],
        "labels": None if recovery.labels is None else recovery.labels.as_json(),
        "n_samples": recovery.n_samples,
        "n_passes": recovery.n_passes,
        "n_skipped": recovery.n_skipped,
        "state_bytes": recovery.state_bytes,
        "buffer_bytes": recovery.buffer_bytes,
        "components": [
            {
                "strength": c.strength,
                "strength_interval": list(c.strength_interval) if c.strength_interval else None,
                "error": None if c.standard_errors is None else [_norm(e) for e in c.standard_errors],
                "p_value": c.p_value,
                "evidence": None if c.evidence is None else dataclasses.asdict(c.evidence),
                **({"effect": c.effect} if c.effect else {}),
                **({} if c.label_amplitudes is None else {"label_amplitudes": c.label_amplitudes}),
                **({} if math.isnan(c.variance) else {"variance": c.variance, "variance_ratio": c.variance_ratio}),
            }
            for c in recovery.components or (recovery.first,)
        ],
    }


def verdict_of(summary: dict[str, Any]) -> Verdict:
    """What a result says of the signal."""
    return StopReason[summary["stop_reason"]].verdict


def names_of(summary: dict[str, Any]) -> tuple[str, ...]:
    """What the modes of a result are called."""
    return parse_labels(summary.get("labels") or {}, summary["dims"]).modes


def read_result(folder: Path) -> StoredResult:
    """Read what :func:`write_result` wrote."""
    with reading(f"cannot read a result from {str(folder)!r}", "give the folder that `tpca fit --out` wrote"):
        return _checked(folder)


def _checked(folder: Path) -> StoredResult:
    """Both files, which must fit each other."""
    summary = read_json(folder / "recovery.json", RESULT, FORMAT)
    if summary.get("vectors_sha256") not in (None, checksum(folder / "vectors.npz")):  # none: of an older tpca
        raise StreamError(
            f"{str(folder / 'vectors.npz')!r} does not belong to the recovery.json beside it: it is damaged, or of "
            "another fit, and writing was cut short; fit again, or finish with `tpca fit --resume`."
        )
    views = summary.get("kind") == "views"
    check(summary, VIEWS if views else STREAM, "recovery.json")
    stored, dims = read_npz(folder / "vectors.npz"), summary["dims"]
    each = [[stored[f"{name}_{i}"] for i in range(len(dims)) if f"{name}_{i}" in stored] for name in ARRAYS]
    vectors, errors, means, loadings = each
    count = len(vectors[0]) if vectors else 0
    rows = [(count, d) for d in dims]
    for arrays, shapes in ((vectors, rows), (errors, rows), (loadings, rows), (means, [(d,) for d in dims])):
        if arrays and ([a.shape for a in arrays] != shapes or any(a.dtype.kind != "f" for a in arrays)):
            raise ValueError(f"the arrays of vectors.npz do not have the dims {dims} of recovery.json")
    if count > len(summary["components"]) or (summary["found"] and not count) or (views and not means):
        raise ValueError("vectors.npz does not hold what recovery.json says was found")
    if not all(np.isfinite(a).all() for a in (*vectors, *means, *loadings)):
        raise ValueError("vectors.npz holds NaN or Inf")
    wrong = [c["error"] for c in summary["components"] if c.get("error") and len(c["error"]) != len(dims)]
    if wrong:
        raise ValueError(f"there must be {len(dims)} errors of a component, got {len(wrong[0])}")
    named = summary.get("labels")  # none: of an older tpca
    return StoredResult(summary, vectors, errors, means, parse_labels(named, dims) if named else None, loadings)


def write_run(folder: Path, run: dict[str, Any]) -> None:
    """Write ``run.json``: how the run went."""
    with replacing(folder / "run.json") as (draft,):
        draft.write_text(json.dumps(finite({"format": "tpca run", "version": 2, **run}), indent=1) + "\n")


def read_run(folder: Path) -> dict[str, Any]:
    """How the run went; empty where that is not known."""
    path = folder / "run.json"
    if not path.exists():
        return {}
    with reading(f"cannot read {str(path)!r}", "remove it, and the report goes without times and labels"):
        run: dict[str, Any] = read_json(path, RUN, "tpca run")
    if run.get("version") == 1:
        run.pop("identity", None)  # told data apart in another way
    return run


def _write(folder: Path, result: StoredResult) -> dict[str, Any]:
    """Write both files, ``recovery.json`` with the checksum of the vectors; how another run went is forgotten."""
    paths, run = (folder / "recovery.json", folder / "vectors.npz"), folder / "run.json"
    named = dict(zip(ARRAYS, (result.vectors, result.errors, result.means, result.loadings), strict=True))
    arrays = {f"{name}_{i}": array for name, each in named.items() for i, array in enumerate(each)}
    with replacing(*paths, removing=[run]) as (about, vectors):
        np.savez(vectors, **arrays)  # type: ignore[arg-type]
        whole = {**result.summary, "vectors_sha256": checksum(vectors)}
        about.write_text(json.dumps(whole, indent=1) + "\n")
    return whole


def _norm(errors: Array) -> float:
    """Root mean squared error of a vector, as far as it was observed: of the rest nothing is known."""
    known = errors[np.isfinite(errors)]
    return float(np.linalg.norm(known)) if known.size else math.nan


def views_scores(stored: StoredResult, stream: Any, step: int = 1) -> list[Array]:
    """Standardised scores ``(n, c)`` of every view of a stream with the stored weights, clipped as they were fitted.

    With a ``step`` only of rows 0, step, 2·step, ...: what is returned is all that is held.
    """
    from tpca.engines import open_engine
    from tpca.solvers.moments.judge import standardised

    clip = stored.summary.get("settings", {}).get("clip")
    whole = open_engine(stream).reduce(Scores([stored.vectors], stored.means, step)).joined()
    scores = [standardised([view[:, c] for view in whole], clip) for c in range(whole[0].shape[1])]
    return [np.stack([component[view] for component in scores], axis=1) for view in range(len(whole))]
