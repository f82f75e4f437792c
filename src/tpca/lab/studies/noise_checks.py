"""Noise as real data have it, from fresh seeds: ``python -m tpca.lab.studies.noise_checks --full``.

Every finished trial is kept in a folder; a run that was interrupted goes on where it was, one that is complete is
followed by another with new seeds (the first is taken from the clock and stored).  At the end what it came to is
written to ``--out`` as ``now``, beside what is there as ``before``, and drawn; ``docs/noise.md`` shows the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpca.drafts import replacing
from tpca.lab.studies.noise_summary import summarised
from tpca.lab.studies.noise_tables import TABLES, TIMES
from tpca.lab.studies.noise_trials import CHUNK, NoiseChecks
from tpca.lab.studies.runner import pending_jobs, run_studies
from tpca.lab.studies.store import Store, key, made
from tpca.lab.studies.study import Record, Scale


def study_in(store: Store, scale: Scale, first: int | None = None) -> NoiseChecks:
    """The checks that are unfinished in the store, or new ones."""
    if first is not None:
        return NoiseChecks(first)
    begun = [record.params["first"] for record in store.records(NoiseChecks(0))]
    if begun and pending_jobs([NoiseChecks(begun[-1])], scale, store):
        return NoiseChecks(begun[-1])
    return NoiseChecks(int(time.time()) % 10**8 * 1000)


def records_of(study: NoiseChecks, store: Store) -> list[Record]:
    """The trials with the seeds of these checks, in the order of their grid."""
    place = {key(params): i for i, params in enumerate(study.grid("full"))}
    chosen = [record for record in store.records(study) if key(record.params) in place]
    return sorted(chosen, key=lambda record: place[key(record.params)])


def content_of(study: NoiseChecks, records: Sequence[Record]) -> dict[str, Any]:
    """What is written: rows, and what they were made with."""
    seconds = sum(record.seconds for record in records)
    summary: dict[str, Any] = dict(summarised(records))
    run = {"first_seed": study.first, "runs": CHUNK * len(records), "core_seconds": round(seconds), "made": made()}
    return run | summary


def run_checks(study: NoiseChecks, scale: Scale, store: Store, processes: int | None) -> None:
    """Every trial that is left, with a line of progress a minute."""
    total = sum(study.cost(params) for _, params in pending_jobs([study], scale, store))
    state = {"done": 0.0, "told": time.monotonic()}
    began = time.monotonic()

    def finished(_: Any, cost: float) -> None:
        state["done"] += cost
        if time.monotonic() - state["told"] > 60:
            state["told"] = time.monotonic()
            minutes = (state["told"] - began) / 60
            sys.stdout.write(f"{state['done'] / total:.0%} after {minutes:.0f} minutes\n")
            sys.stdout.flush()

    run_studies([study], scale, store, finished, processes)


def write(out: Path, when: str, content: dict[str, Any]) -> dict[str, Any]:
    """Put it beside what the file has."""
    kept = json.loads(out.read_text()) if out.exists() else {}
    whole = {name: kept[name] for name in TIMES if name in kept} | {when: content}
    with replacing(out) as (draft,):
        draft.write_text(text_of(whole), encoding="utf-8")
    return whole


def text_of(whole: dict[str, Any]) -> str:
    """JSON with one row a line."""
    runs = []
    for when, content in whole.items():
        fields = [f"{json.dumps(name)}: {_value_text(value)}" for name, value in content.items()]
        runs.append(f"{json.dumps(when)}: {{\n" + ",\n".join(fields) + "\n}")
    return "{\n" + ",\n".join(runs) + "\n}\n"


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def shown(whole: dict[str, Any]) -> str:
    """All tables."""
    return "\n".join(f"{name}\n\n{show(whole)}" for name, show in TABLES.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, write, draw, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--full", action="store_true", help="200 runs a law: under an hour on two cores")
    size.add_argument("--quick", action="store_true", help="20 runs a law: some minutes")
    size.add_argument("--show", action="store_true", help="run nothing; the tables and the figure of what is written")
    parser.add_argument("--store", type=Path, default=Path("noise-checks"), help="folder of finished trials")
    parser.add_argument("--out", type=Path, default=Path("noise-checks.json"))
    parser.add_argument("--as", dest="when", choices=TIMES, default="now", help="the column that this run is for")
    parser.add_argument("--figure", type=Path, default=None, help="PNG to draw; none without")
    parser.add_argument("--first-seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=None)
    options = parser.parse_args(arguments)
    if options.show:
        whole = json.loads(options.out.read_text())
    else:
        store = Store(options.store)
        scale: Scale = "quick" if options.quick else "full"
        study = study_in(store, scale, options.first_seed)
        run_checks(study, scale, store, options.processes)
        whole = write(options.out, options.when, content_of(study, records_of(study, store)))
    sys.stdout.write(shown(whole))
    if options.figure is not None:
        from tpca.lab.pages.noise_figure import draw

        draw(whole, options.figure)


if __name__ == "__main__":
    main()
