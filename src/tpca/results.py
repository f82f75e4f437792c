"""Results on disk: a recovery as ``recovery.json`` and ``vectors.npz``, read by machines and by people.

``vectors.npz`` holds, for every mode i, ``mode_i`` (components as rows, strongest first) and ``standard_error_i``.
The bytes depend on the result only: the same run, interrupted or not, writes the same files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.blocks import Array
from tpca.errors import OutputError, StreamError
from tpca.solvers.recovery import Recovery

if TYPE_CHECKING:
    from tpca.estimators import TensorCCA

FORMAT = "tpca result"


@dataclass(frozen=True)
class StoredResult:
    """What ``recovery.json`` says, and the components of every mode as rows (none if no signal was found)."""

    summary: dict[str, Any]
    vectors: list[Array]


def write_result(folder: Path, recovery: Recovery, source: str) -> dict[str, Any]:
    """Write both files, each appearing whole or not at all; returns what ``recovery.json`` says."""
    summary = {"format": FORMAT, "version": 1, "source": source, **summarise(recovery), "history": recovery.history}
    found = [r for r in (recovery, *recovery.further) if r.found]
    arrays: dict[str, Array] = {}
    for i in range(len(recovery.vectors)):
        if found:
            arrays[f"mode_{i}"] = np.stack([r.vectors[i] for r in found])
        if found and all(r.standard_errors is not None for r in found):
            arrays[f"standard_error_{i}"] = np.stack([r.standard_errors[i] for r in found if r.standard_errors])
    _write(folder, summary, arrays)
    return summary


def write_views_result(folder: Path, cca: TensorCCA, sources: list[str]) -> dict[str, Any]:
    """A fit of views in the same two files: ``mode_i`` holds the weights of view i as rows, ``mean_i`` its means."""
    found = cca.n_components_ > 0
    columns = (cca.correlations_, cca.correlation_errors_, cca.p_values_, cca.moments_)
    names = ("correlation", "correlation_error", "p_value", "moment")
    summary = {
        "format": FORMAT,
        "version": 1,
        "kind": "views",
        "source": sources,
        "found": found,
        "stop_reason": cca.stop_reason_.name,
        "advice": "Proven on rows that were held out." if found else "No direction shared by all views was proven.",
        "dims": list(cca.dims_),
        "n_samples": cca.n_samples_seen_,
        "n_skipped": cca.n_skipped_,
        "components": [
            {name: float(v) for name, v in zip(names, values, strict=True)} for values in zip(*columns, strict=True)
        ],
    }
    arrays = {f"mean_{i}": mean for i, mean in enumerate(cca.means_)}
    if found:
        arrays |= {f"mode_{i}": np.ascontiguousarray(w.T) for i, w in enumerate(cca.weights_)}
    _write(folder, summary, arrays)
    return summary


def summarise(recovery: Recovery) -> dict[str, Any]:
    """The numbers of a recovery, without vectors and history."""
    return {
        "found": recovery.found,
        "stop_reason": recovery.stop_reason.name,
        "advice": str(recovery.stop_reason),
        "dims": [len(v) for v in recovery.vectors],
        "n_samples": recovery.n_samples,
        "n_passes": recovery.n_passes,
        "n_skipped": recovery.n_skipped,
        "state_bytes": recovery.state_bytes,
        "buffer_bytes": recovery.buffer_bytes,
        "components": [
            {
                "strength": r.strength,
                "strength_interval": list(r.strength_interval) if r.strength_interval else None,
                "error": None if r.standard_errors is None else [_norm(e) for e in r.standard_errors],
                "stop_reason": r.stop_reason.name,
            }
            for r in (recovery, *recovery.further)
        ],
    }


def read_result(folder: Path) -> StoredResult:
    """Read what :func:`write_result` wrote."""
    try:
        summary = json.loads((folder / "recovery.json").read_text())
        if not isinstance(summary, dict) or summary.get("format") != FORMAT:
            raise ValueError("recovery.json is not one of tpca's")
        with np.load(folder / "vectors.npz", allow_pickle=False) as stored:
            vectors = [stored[f"mode_{i}"] for i in range(len(summary["dims"])) if f"mode_{i}" in stored.files]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise StreamError(
            f"cannot read a result from {str(folder)!r}: {error}; give the folder that `tpca fit --out` wrote."
        ) from error
    return StoredResult(summary, vectors)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft to write that becomes ``path`` if all goes well, and leaves nothing behind if it does not."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}; choose another place.") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _write(folder: Path, summary: dict[str, Any], arrays: dict[str, Array]) -> None:
    with replacing(folder / "vectors.npz") as draft, draft.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with replacing(folder / "recovery.json") as draft:
        draft.write_text(json.dumps(finite(summary), indent=1) + "\n")


def _norm(errors: Array) -> float:
    """Root mean squared error of a whole vector."""
    return float(np.linalg.norm(errors))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
