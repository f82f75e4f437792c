"""``tpca fit --views``: directions shared by several views."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.cli.cluster import on_cluster
from tpca.cli.live import display_for
from tpca.cli.outputs import STYLES, check_result, put_json
from tpca.cli.progress import ProgressCallback
from tpca.wording import number, shape, with_error

if TYPE_CHECKING:
    from tpca.cli.report import OutputOptions
    from tpca.results import StoredResult
    from tpca.solvers.claim import Verdict


def fit_views(
    paths: list[str],
    out: Path,
    shrinkage: str,
    asked: dict[str, Any],
    output: OutputOptions,
    overwrite: bool,
    scheduler: str | None,
    workers: int | None,
) -> Verdict:
    """Fit TensorCCA to one file per view, write the result and print it; returns the verdict.

    ``asked`` are its options besides the shrinkage, which may come as text.
    """
    from rich.console import Console

    from tpca.errors import SolverError
    from tpca.estimators import TensorCCA
    from tpca.results import as_views_result, write_views_result
    from tpca.streams.views import open_views

    try:
        share: float | str = shrinkage if shrinkage == "auto" else float(shrinkage)
    except ValueError:
        raise SolverError(f"shrinkage must be a number from 0 to 1, or auto, got {shrinkage!r}.") from None
    callback = ProgressCallback(display_for(Console(stderr=True), output.live, output.quiet), "tpca fit --views")
    cca = TensorCCA(shrinkage=share, callbacks=[callback], **asked)
    stream = open_views(paths, nan_policy=cca.nan_policy)
    labels = output.check(stream.dims)
    settings = {name: value for name, value in cca.get_params().items() if name != "callbacks"}
    check_result(out, paths, stream.identity, settings, overwrite)
    with warnings.catch_warnings(), callback.watching(None):
        warnings.simplefilter("ignore")  # the table says it
        with on_cluster(scheduler, workers, stream) as data:
            cca.fit(data)
    seconds = callback.seconds
    summary = write_views_result(out, cca.recovery_, paths, settings, labels)
    alarm = output.write(out, paths, stream.identity, {"seconds": seconds})
    if output.as_json:
        put_json({name: value for name, value in summary.items() if name != "settings"})
    elif not output.quiet:
        views_table(as_views_result(cca.recovery_, paths, settings, labels))
        output.say(out, alarm)
    return cca.verdict_


def views_table(stored: StoredResult) -> None:
    """The numbers of a fit of views, and the largest weights of every view."""
    from rich.console import Console
    from rich.table import Table

    from tpca.report.answer import mode_entries, named, printable_lines
    from tpca.results import verdict_of

    summary = stored.summary
    console, verdict = Console(), verdict_of(summary)
    told = "directions shared by all views" if verdict == "signal" else "nothing shared was proven"
    table = Table(title=f"{verdict.capitalize()}: {told}", title_style=STYLES[verdict])
    for heading in ("component", "correlation (held out)", "p", "moment (fitted)"):
        table.add_column(heading, justify="right")
    for i, c in enumerate(summary["components"]):
        correlation = with_error(c["correlation"], c["correlation_error"])
        table.add_row(str(i), correlation, number(c["p_value"], 2), number(c["moment"], 3))
    console.print(table)
    for c in range(len(stored.vectors[0]) if stored.vectors else 0):
        weights = [f"  {name}: {', '.join(own)}" for name, own in mode_entries(stored, named(stored), c)]
        told = printable_lines(
            [f"Component {c}, largest correlations of columns with the score of their view:", *weights]
        )
        console.print(told, markup=False, highlight=False)
    skipped = f", {summary['n_skipped']:,} skipped" if summary["n_skipped"] else ""
    console.print(f"{summary['n_samples']:,} rows of {len(summary['dims'])} views, {shape(summary['dims'])}{skipped}.")
    console.print(summary["advice"], markup=False)
