"""Claims, power and coverage of TensorPCA where noise is not white: ``python -m research.noise.checks``.

Runs are deterministic, from the name of their row and their number.  A trial is a chunk of runs of one row, stored as
those of any study; a chunk counts as long as its row still draws the same samples (``digest``).  To run rows again
that draw the same, remove the store.  What it came to is written to ``--out``, with the revision that each row was run
with, and drawn; docs/noise.md shows it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.noise.rows import ROWS, Row
from research.noise.tables import TABLES, draw
from research.studies.store import Store, made, run_studies, write_rows
from research.studies.study import Params, Records, Study, chosen

CHUNK = 25
HEAD = 2  # runs whose outcome is kept one by one, so that a test can repeat them


def run_chunk(params: Params) -> dict[str, Any]:
    """Some runs of a row: sums of their outcomes."""
    row = ROWS[params["row"]]
    each = [row.run(seed) for seed in range(params["first"], params["first"] + params["count"])]
    sums = {what: sum(one[what] for one in each) for what in each[0]}
    head = each[:HEAD] if params["first"] == 0 else []
    return {"sums": sums, "head": head, "revision": made()["revision"]}


def study(rows: Sequence[Row], share: float = 1.0) -> Study:
    """The chunks of some rows; all rows grow together, so that an early look sees all of them."""
    trials: list[Params] = []
    for row in rows:
        runs, drawn = max(1, math.ceil(row.runs * share)), row.digest
        for first in range(0, runs, CHUNK):
            trials.append({"row": row.key, "digest": drawn, "first": first, "count": min(CHUNK, runs - first)})
    trials.sort(key=lambda params: params["first"])
    return Study("chunks", "Noise", "", trials, run_chunk)


def summary(records: Records) -> dict[str, Any]:
    """A record for every row that was run, and what all of it was made with."""
    found = []
    for row in ROWS.values():
        if own := chosen(records, row=row.key, digest=row.digest):
            own.sort(key=lambda r: int(r.params["first"]))
            results = [r.result for r in own]
            sums = {what: round(sum(each["sums"][what] for each in results), 6) for what in results[0]["sums"]}
            found.append(
                {"kind": row.kind, "name": row.name, "runs": sum(r.params["count"] for r in own), **sums, **row.about,
                 "excluded": row.excluded, "digest": row.digest, "head": results[0]["head"],
                 "revisions": sorted({each["revision"] for each in results})}
            )  # fmt: skip
    return {"made": made(), "rows": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("noise-checks"), help="folder of the finished runs")
    parser.add_argument("--out", type=Path, default=Path("noise-checks.json"))
    parser.add_argument("--figure", type=Path, default=None, help="PNG to draw; none without")
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of every row; 0.01 is a quick look")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--processes", type=int, default=2, help="0: all in this one")
    options = parser.parse_args(arguments)
    store = Store(options.store)
    asked = study([row for name, row in ROWS.items() if options.rows in name], options.share)
    run_studies([asked], "full", store, processes=options.processes)
    whole = summary(store.records(asked))
    write_rows(options.out, whole)
    sys.stdout.write("\n".join(table(whole) for table in TABLES.values()))
    if options.figure is not None:
        draw(whole, options.figure)


if __name__ == "__main__":
    main()
