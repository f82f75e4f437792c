"""Real data, side by side: ``python -m research.real --out docs/real.json`` (``make real``).

A store is one run: all sets, one revision, one machine.  ``--only NAME`` runs one set, prints it, and stores nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from research.real import measures, peers
from research.real.sets import SETS
from research.real.tables import draw
from research.studies.store import finite, made, processor, write_rows

PEERS = ("tensorly", "pyttb", "mne", "scikit-learn", "cca-zoo", "eofs", "xeofs")


def measured(name: str) -> dict[str, Any]:
    """All that is measured of a set."""
    one, began = SETS[name], time.process_time()
    data = one.load()
    fit = measures.fitted(one, data)
    row: dict[str, Any] = {"name": name, "package": one.package, "question": one.question, "asks": one.asks}
    row["answer"] = measures.answer(one, data)
    if one.question != "views":
        row["plain"] = measures.distance(one, data, fit)
    row["peers"] = peers.compared(one, data, fit)
    row["orders"] = measures.orders(one, data)
    row["halves"] = measures.halves(one, data)
    row["claims"] = measures.claims(one, data, peers.mne_tests(one, data, measures.NULL_RESAMPLES))
    row["seconds"] = time.process_time() - began
    return dict(finite(row, 6))  # what is stored is for reading and for comparing


def about(minutes: float) -> dict[str, Any]:
    """Revision, machine, date and versions of a run."""
    versions = {}
    for package in sorted({*PEERS, *(one.package for one in SETS.values())}):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    machine = {"processor": processor(), "cores": os.cpu_count()}
    today = datetime.date.today().isoformat()
    return {**made(), "date": today, "machine": machine, "minutes": round(minutes, 1), "versions": versions}


def run(names: Sequence[str], processes: int) -> list[dict[str, Any]]:
    """Rows of these sets, in their order; says what came out as it goes."""
    rows = []
    with ProcessPoolExecutor(processes, initializer=peers.load_all) as pool:
        for row in pool.map(measured, names):
            answer = row["answer"]
            sys.stdout.write(f"{row['name']}: {answer['verdict']}, p {answer['p']}, {row['seconds']:.1f} s\n")
            sys.stdout.flush()
            rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON of a whole run")
    parser.add_argument("--figure", type=Path, help="PNG of a whole run")
    parser.add_argument("--only", action="append", choices=list(SETS), help="one set; may be given several times")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    if options.only:
        sys.stdout.write(json.dumps(run(options.only, options.processes), indent=1, ensure_ascii=False) + "\n")
        return
    missing = sorted({one.package for one in SETS.values() if not one.installed})
    if missing:
        parser.error(f"not installed: {', '.join(missing)}. `make real` installs what is needed.")
    made()  # the revision as it is now, whatever is committed meanwhile
    began = time.monotonic()
    rows = run(list(SETS), options.processes)
    content = {"made": about((time.monotonic() - began) / 60), "rows": rows}
    if options.out is not None:
        write_rows(options.out, content)
    if options.figure is not None:
        draw(content, options.figure)


if __name__ == "__main__":
    main()
