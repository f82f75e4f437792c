"""What several commands print: numbers with units, a recovery as a table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tpca.wording import amount, number, shape

if TYPE_CHECKING:
    from rich.console import Console


# What `tpca fit` ends with, by the verdict.
EXIT_CODES = {"signal": 0, "no signal": 3, "not tested": 4}
STYLES = {"signal": "bold green", "no signal": "bold yellow", "not tested": "bold"}


def put_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity become null."""
    from tpca.results import finite

    sys.stdout.write(json.dumps(finite(value)) + "\n")


def recovery_table(console: Console, summary: dict[str, Any]) -> None:
    """The numbers of ``recovery.json`` as a table, and what they mean in a sentence."""
    from rich.table import Table

    from tpca.results import verdict_of

    verdict, components = verdict_of(summary), summary["components"]
    table = Table(title=verdict.capitalize(), title_style=STYLES[verdict])
    table.add_column("")
    for i in range(len(components)):
        table.add_column("component" if len(components) == 1 else f"component {i}", justify="right")
    intervals = [c["strength_interval"] or (None, None) for c in components]
    if verdict == "no signal":
        table.add_row("strength at most", *(number(high, 4) for _, high in intervals))
    else:
        table.add_row("strength", *(number(c["strength"], 4) for c in components))
    if verdict == "signal":
        table.add_row("its interval", *(f"{number(low, 4)} to {number(high, 4)}" for low, high in intervals))
        for mode, length in enumerate(summary["dims"]):
            errors = [c["error"][mode] if c["error"] else None for c in components]
            table.add_row(f"error of mode {mode} ({length} entries)", *(number(e, 2) for e in errors))
    console.print(table)
    passes = f" in {summary['n_passes']} passes" if summary["n_passes"] > 1 else ""
    skipped = f", {summary['n_skipped']:,} skipped" if summary["n_skipped"] else ""
    console.print(
        f"{summary['n_samples']:,} samples of {shape(summary['dims'])}{passes}{skipped}; "
        f"state {amount(summary['state_bytes'])}, buffer {amount(summary['buffer_bytes'])}."
    )
    console.print(summary["advice"], markup=False)
