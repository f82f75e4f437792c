"""From a result, in a folder or in memory, to its report."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpca.engines import Engine
from tpca.errors import SampleError, StreamError, TpcaError
from tpca.labels import Labels, parse_labels, read_labels
from tpca.report.answer import named
from tpca.report.checks import fitted_checks, run_checks, settled
from tpca.report.document import Document, write_document
from tpca.report.recovery_page import Checked, recovery_document
from tpca.report.residuals import gather
from tpca.report.share import share_of
from tpca.report.verdict import LOOK
from tpca.report.views_page import Rows, views_document
from tpca.results import StoredResult, read_result, read_run, views_scores
from tpca.wording import count

OPENING = ("items", "shuffle", "random_state", "nan_policy", "sample_dim", "sample", "modes", "value", "missing")
MAX_ROWS = 100_000  # of views that are held at once
UNPROVEN, NOT_GIVEN = "Not checked: nothing was proven.", "Not checked: the rows were not given, report(path, X)."
MAX_COMPONENTS = 6  # whose scores are looked at


def write_report(
    folder: Path, path: Path, labels: Path | None = None, data: Sequence[str] = (), checks: bool = True
) -> str:
    """Write the report on a result; returns the sentence of its verdict that says what alarms, or nothing.

    ``data`` says where the samples are now, if not where they were; with ``checks`` they are read once more.
    """
    document = document_of(folder, labels, data, checks)
    write_document(path, document)
    return next((said for said in document.verdict.sentences if said.startswith(LOOK)), "")


def write_fit_report(path: Path, stored: StoredResult, samples: Engine | None, y: Any = None) -> None:
    """Write the report on a result in memory; with the ``samples`` of the fit, read once more for scores and checks.

    Scores are drawn over ``y``, a number or label for every sample, if that is given.
    """
    none = Checked.open("the samples were not given; give those of the fit, report(path, X)")
    checked = none if samples is None else _looked_at(stored, samples)
    if y is not None and (checked.residuals is None or np.shape(y) != (checked.residuals.n,)):
        count_ = "none" if checked.residuals is None else f"{checked.residuals.n:,}"
        raise SampleError(f"y must have a number or label for every sample, {count_}, got shape {np.shape(y)}.")
    checked = dataclasses.replace(checked, y=None if y is None else np.asarray(y))
    write_document(path, recovery_document(stored, {}, named(stored), checked))


def write_views_report(path: Path, stored: StoredResult, rows: Engine | None) -> None:
    """The same of a fit of views, with the ``rows`` that were fitted."""
    if not stored.vectors or rows is None:
        looked: Rows | str = UNPROVEN if not stored.vectors else NOT_GIVEN
    else:
        step = -(-(rows.length or 1) // MAX_ROWS)
        looked = Rows(views_scores(stored, rows, step), step)
    write_document(path, views_document(stored, {}, named(stored), looked))


def document_of(folder: Path, labels: Path | None, data: Sequence[str], checks: bool) -> Document:
    """The report on what a fit left in a folder."""
    stored, run = read_result(folder), read_run(folder)
    views = stored.summary.get("kind") == "views"
    names = _labels(labels, run, stored)
    places = list(data) or run.get("data") or _listed(stored.summary["source"])
    if len(places) > 1 and not views:
        raise StreamError(f"one path holds the samples, got {len(places)}: {', '.join(places)}; give one.")
    if views:
        return views_document(stored, run, names, _rows(stored, places, run, checks))
    return recovery_document(stored, run, names, _checked(stored, places, run, checks))


def _listed(source: Any) -> list[str]:
    return [str(s) for s in source] if isinstance(source, list) else [str(source)]


def _labels(path: Path | None, run: dict[str, Any], stored: StoredResult) -> Labels:
    """The labels given now, then those of the fit (an older tpca kept them in ``run.json``), then numbers."""
    dims = stored.summary["dims"]
    told = [] if path is None else [read_labels(path, dims)]
    told += [parse_labels(run["labels"], dims)] if run.get("labels") else []
    return functools.reduce(Labels.with_others, [*told, named(stored)])


def _checked(stored: StoredResult, places: Sequence[str], run: dict[str, Any], wanted: bool) -> Checked:
    """The checks of the noise, or why there are none."""
    from tpca.engines import LocalEngine
    from tpca.streams import open_stream

    summary, settings = stored.summary, stored.summary.get("settings", {})
    if not wanted:
        return Checked.open("it was not asked for")
    options = {name: settings[name] for name in OPENING if name in settings}
    try:
        stream = open_stream(places[0], **options)
        _same(stream.dims, summary["dims"], stream.identity, run)
        return _looked_at(stored, LocalEngine(stream))
    except TpcaError as error:
        return Checked.open(f"the data could not be read again ({error})")


def _looked_at(stored: StoredResult, samples: Engine) -> Checked:
    """The scores of the samples, and what they say of the noise, where they can."""
    summary, settings = stored.summary, stored.summary.get("settings", {})
    first = [vectors[:MAX_COMPONENTS] for vectors in stored.vectors]  # none, where nothing was found
    found = gather(samples, first, summary["n_samples"])
    if reason := _beside(settings):
        return Checked.open(reason, found)
    if found.n < summary["n_samples"]:
        return Checked.open(f"the data have {found.n:,} samples now, and {summary['n_samples']:,} were fitted")
    which = "component" if found.components == 1 else count(found.components, "strongest component")
    of = f"the {which} found and " if found.components else ""
    basis = (
        f"The checks rest on one more pass over the {found.n:,} samples that were fitted: the scores of every sample "
        f"on {of}four random directions. They are the samples of the fit itself, so they test the noise, not the "
        "signal."
    )
    checks = settled(run_checks(found, settings.get("shuffle", False)), fitted_checks(summary))
    return Checked(checks, basis, found, share=share_of(stored, samples))


def _beside(settings: dict[str, Any]) -> str:
    """Why the scores of samples are not what was fitted, so that they say nothing of its noise; empty if they are."""
    if settings.get("target") == "variance":
        return "amplitudes vary, so scores along the components are no noise"
    if settings.get("target", "mean") != "mean" or settings.get("group_by") is not None:
        return "the fit is of contrasts of samples, whose own checks are those above"
    if settings.get("center_modes") is not None or settings.get("project") is not None:
        return "the fit is of projected samples, whose own checks are those above"
    return ""


def _same(dims: Sequence[int], fitted: Sequence[int], identity: str, run: dict[str, Any]) -> None:
    """Refuse data that are not those of the fit."""
    if list(dims) != list(fitted):
        raise StreamError(f"they have shape {tuple(dims)} now, and {tuple(fitted)} was fitted")
    if run.get("identity") not in (None, identity):
        raise StreamError("they have changed since they were fitted")


def _rows(stored: StoredResult, places: Sequence[str], run: dict[str, Any], wanted: bool) -> Rows | str:
    """Scores of the rows, at most ``MAX_ROWS`` of them, or why there are none."""
    from tpca.streams.views import open_views

    settings = stored.summary.get("settings", {})
    if not stored.vectors:
        return UNPROVEN
    if not wanted:
        return "Not checked: it was not asked for."
    try:
        stream = open_views(list(places), nan_policy=settings.get("nan_policy", "raise"))
        _same(stream.dims, stored.summary["dims"], stream.identity, run)
        step = -(-(stream.length or 1) // MAX_ROWS)
        return Rows(views_scores(stored, stream, step), step)
    except TpcaError as error:
        return f"Not checked: the data could not be read again ({error})."
