"""``tpca fit --views``: directions shared by several views."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tpca.cli.screens import number, put_json, shape


def fit_views(
    paths: list[str],
    out: Path,
    components: int,
    shrinkage: str,
    clip: float | None,
    memory: str | None,
    confidence: float,
    seed: int,
    nan_policy: str,
    as_json: bool,
) -> bool:
    """Fit TensorCCA to one file per view, write the result and print it; whether anything was proven."""
    from tpca.errors import SolverError
    from tpca.estimators import TensorCCA
    from tpca.results import write_views_result

    try:
        share: float | str = shrinkage if shrinkage == "auto" else float(shrinkage)
    except ValueError:
        raise SolverError(f"shrinkage must be a number from 0 to 1, or auto, got {shrinkage!r}.") from None
    cca = TensorCCA(
        n_components=components,
        shrinkage=share,
        random_state=seed,
        clip=clip,
        confidence=confidence,
        memory=memory,
        nan_policy=nan_policy,
    )
    with warnings.catch_warnings():  # the table says it
        warnings.simplefilter("ignore")
        cca.fit(paths)
    summary = write_views_result(out, cca, paths)
    if as_json:
        put_json(summary)
    else:
        views_table(summary)
        print(f"written to {out}")
    return cca.n_components_ > 0


def views_table(summary: dict[str, Any]) -> None:
    """The numbers of a fit of views."""
    from rich.console import Console
    from rich.table import Table

    console, found = Console(), summary["found"]
    title = "Shared directions" if found else "Nothing shared"
    table = Table(title=title, title_style="bold green" if found else "bold yellow")
    for heading in ("component", "correlation (held out)", "p", "moment (fitted)"):
        table.add_column(heading, justify="right")
    for i, c in enumerate(summary["components"]):
        correlation = f"{number(c['correlation'], 3)} ± {number(c['correlation_error'], 2)}"
        table.add_row(str(i), correlation, number(c["p_value"], 2), number(c["moment"], 3))
    console.print(table)
    skipped = f", {summary['n_skipped']:,} skipped" if summary["n_skipped"] else ""
    console.print(f"{summary['n_samples']:,} rows of {len(summary['dims'])} views, {shape(summary['dims'])}{skipped}.")
    console.print(summary["advice"])
