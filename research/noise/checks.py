"""Claims, power and coverage of TensorPCA where noise is not white: ``python -m research.noise.checks``.

Runs are deterministic, from the name of their row and their number.  Every finished chunk of runs is a line of a file;
a command that was interrupted goes on where it was.  A chunk counts as long as its row still draws the same samples
(``digest``); rows are run again with ``--again``.  What it came to is written to ``--out``, with the revision that each
row was run with, and drawn; docs/noise.md shows it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from research.noise import nulls, planted
from research.noise.row import Row
from research.noise.tables import TABLES, draw
from research.studies.store import made
from tpca.files import replacing

CHUNK = 25
HEAD = 2  # runs whose outcome is kept one by one, so that a test can repeat them
ROWS: dict[str, Row] = {row.key: row for row in [*nulls.ROWS, *planted.ROWS]}
Line = dict[str, Any]


def run_chunk(job: tuple[str, int, int]) -> Line:
    """Some runs of a row: sums of their outcomes."""
    name, first, count = job
    row, began = ROWS[name], time.process_time()
    each = [row.run(seed) for seed in range(first, first + count)]
    sums = {what: sum(one[what] for one in each) for what in each[0]}
    head = each[:HEAD] if first == 0 else []
    seconds = round(time.process_time() - began, 2)
    return {"row": name, "digest": row.digest, "first": first, "runs": count, "sums": sums, "head": head,
            "seconds": seconds, **made()}  # fmt: skip


class Store:
    """Finished chunks, one a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[tuple[str, int], Line] = {}
        if path.exists():
            digests = {name: row.digest for name, row in ROWS.items()}
            for text in path.read_text(encoding="utf-8").splitlines():
                line = json.loads(text) if text.endswith("}") else {}  # a kill may have cut the last one short
                if line and digests.get(line["row"]) == line["digest"]:
                    self.lines[line["row"], line["first"]] = line

    def add(self, line: Line) -> None:
        """On disk when this returns."""
        self.lines[line["row"], line["first"]] = line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * (file.tell() > 0) + json.dumps(line, ensure_ascii=False))
            file.flush()
            os.fsync(file.fileno())

    def forget(self, rows: Iterable[str]) -> None:
        """Chunks of these rows are run again."""
        gone = set(rows)
        self.lines = {key: line for key, line in self.lines.items() if key[0] not in gone}


def jobs(store: Store, rows: Sequence[Row], share: float) -> list[tuple[str, int, int]]:
    """What is left to run; all rows grow together, so that an early look sees all of them."""
    found = []
    for row in rows:
        runs = max(1, math.ceil(row.runs * share))
        found += [(row.key, first, min(CHUNK, runs - first)) for first in range(0, runs, CHUNK)]
    return sorted((job for job in found if job[:2] not in store.lines), key=lambda job: job[1] / ROWS[job[0]].runs)


def run(store: Store, rows: Sequence[Row], share: float = 1.0, processes: int = 2) -> None:
    """Run all that is left."""
    left = jobs(store, rows, share)
    told = time.monotonic()
    if processes == 1:
        for job in left:
            store.add(run_chunk(job))
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, line in enumerate(pool.imap_unordered(run_chunk, left), start=1):
            store.add(line)
            if time.monotonic() - told > 60:
                told = time.monotonic()
                sys.stdout.write(f"{done} of {len(left)} chunks\n")
                sys.stdout.flush()


def summary(store: Store, rows: Sequence[Row]) -> dict[str, Any]:
    """A record for every row that was run, and what all of it was made with."""
    found = []
    for row in rows:
        lines = [line for (name, _), line in sorted(store.lines.items()) if name == row.key]
        if lines:
            sums = {what: round(sum(line["sums"][what] for line in lines), 6) for what in lines[0]["sums"]}
            found.append(
                {"kind": row.kind, "name": row.name, "runs": sum(line["runs"] for line in lines), **sums, **row.about,
                 "excluded": row.excluded, "digest": lines[0]["digest"], "head": lines[0]["head"],
                 "revisions": sorted({line["revision"] for line in lines})}
            )  # fmt: skip
    return {"made": made(), "core_seconds": round(sum(line["seconds"] for line in store.lines.values())), "rows": found}


def write(out: Path, whole: dict[str, Any]) -> None:
    """JSON with one row a line."""
    head = {name: value for name, value in whole.items() if name != "rows"}
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in whole["rows"])
    with replacing(out) as (draft,):
        draft.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + rows + "\n]}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("noise-checks") / "chunks.jsonl", help="finished runs")
    parser.add_argument("--out", type=Path, default=Path("noise-checks.json"))
    parser.add_argument("--figure", type=Path, default=None, help="PNG to draw; none without")
    parser.add_argument("--share", type=float, default=1.0, help="of the runs of every row; 0.01 is a quick look")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--again", default=None, help="run rows again whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    rows = [row for name, row in ROWS.items() if options.rows in name]
    store = Store(options.store)
    if options.again is not None:
        store.forget(name for name in ROWS if options.again in name)
    run(store, rows, options.share, options.processes)
    whole = summary(store, list(ROWS.values()))
    write(options.out, whole)
    sys.stdout.write("\n".join(table(whole) for table in TABLES.values()))
    if options.figure is not None:
        draw(whole, options.figure)


if __name__ == "__main__":
    main()
