"""Real data, side by side: ``python -m research.real --out docs/real.json`` (``make real``).

Every set is a row, run from beginning to end and written before the next; ``--only NAME`` runs one, the others stay as
they are stored.  A row has the revision, the versions of packages, and the date it was made with.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from research.real import measures, peers
from research.real.sets import SETS, DataSet
from research.real.tables import draw
from research.studies.store import made
from tpca.files import replacing

VERSIONS = ("tensorly", "pyttb", "mne", "scikit-learn", "cca-zoo", "eofs", "xeofs")


def measured(one: DataSet) -> dict[str, Any]:
    """All that is measured of a set."""
    began = time.process_time()
    data = one.load()
    fit = measures.fitted(one, data)
    row: dict[str, Any] = {"name": one.name, "package": one.package, "question": one.question, "asks": one.asks}
    row["answer"] = measures.answer(one, data)
    if one.question != "views":
        row["plain"] = measures.distance(one, data, fit)
    row["peers"] = peers.compared(one, data, fit)
    row["orders"] = measures.orders(one, data)
    row["halves"] = measures.halves(one, data)
    row["claims"] = measures.claims(one, data, peers.tests_for_nulls(one, data))
    row["seconds"] = time.process_time() - began
    packages = sorted({one.package, *(name for name in VERSIONS if peers.installed(name.replace("-", "_")))})
    row["made"] = {**made(), "date": datetime.date.today().isoformat(), **{name: version(name) for name in packages}}
    return row


def rounded(value: Any) -> Any:
    """Numbers with six digits, NaN as null: what is stored is for reading and for comparing."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def write(out: Path, rows: dict[str, Any]) -> None:
    """JSON with one row a line, in the order of the sets."""
    text = ",\n".join(json.dumps(rows[name], ensure_ascii=False) for name in SETS if name in rows)
    with replacing(out) as (draft,):
        draft.write_text('{"rows": [\n' + text + "\n]}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("real.json"))
    parser.add_argument("--figure", type=Path, default=None, help="PNG to draw; none without")
    parser.add_argument("--only", action="append", choices=list(SETS), help="one set; may be given several times")
    options = parser.parse_args(arguments)
    rows: dict[str, Any] = {}
    if options.only and options.out.exists():
        rows = {row["name"]: row for row in json.loads(options.out.read_text(encoding="utf-8"))["rows"]}
    peers.load_all()
    for name in options.only or SETS:
        one = SETS[name]
        if not one.installed:
            sys.stdout.write(f"{name}: left out, {one.package} is not installed\n")
            continue
        rows[name] = rounded(measured(one))
        answer = rows[name]["answer"]
        sys.stdout.write(f"{name}: {answer['verdict']}, p {answer['p']}, {rows[name]['seconds']:.1f} s\n")
        sys.stdout.flush()
        write(options.out, rows)
    if options.figure is not None:
        draw({"rows": list(rows.values())}, options.figure)


if __name__ == "__main__":
    main()
