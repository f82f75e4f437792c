"""``make bench``: ratios against the machine's own limits and against peers, measured side by side in one run.

python benchmarks/run.py                      all rows; writes results/, docs/performance.md and its figure
python benchmarks/run.py --only race peers    some families of rows; writes nothing, unless told to --keep them
python benchmarks/run.py --show               the table of the stored run
python benchmarks/run.py --page               docs/performance.md and its figure from the stored run
"""

import os

THREADS = 1  # of BLAS, and of any other pool: one core against one core; readers may use the other
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = str(THREADS)

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402

import costs  # noqa: E402
import jobs_arrays  # noqa: E402
import jobs_dask  # noqa: E402
import jobs_growth  # noqa: E402
import jobs_inference  # noqa: E402
import jobs_moments  # noqa: E402
import jobs_online  # noqa: E402
import jobs_peers  # noqa: E402
import jobs_race  # noqa: E402
import jobs_simulate  # noqa: E402
import jobs_small  # noqa: E402
import jobs_startup  # noqa: E402
import suite  # noqa: E402
from suite import Row  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

import report  # noqa: E402

FAMILIES = {
    "startup": jobs_startup.rows,
    "small": jobs_small.rows,
    "race": jobs_race.in_memory,
    "files": jobs_race.from_files,
    "dask": jobs_dask.rows,
    "inference": jobs_inference.rows,
    "peers": jobs_peers.rows,
    "online": jobs_online.rows,
    "arrays": jobs_arrays.rows,
    "moments": jobs_moments.rows,
    "simulate": jobs_simulate.rows,
    "growth": jobs_growth.rows,
}


def measure(families: list[str]) -> dict[str, list[Row]]:
    """All rows of some families; says what it is at."""
    rows: dict[str, list[Row]] = {}
    for family in families:
        began = time.perf_counter()
        rows[family] = []
        for row in FAMILIES[family]():
            rows[family].append(row)
            print(f"{row.ratio:10.3g}  {'pass ' if row.ok else 'short'}  {row.job}", flush=True)
        print(f"{'':10s}  {family}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*FAMILIES, "costs"], help="some families of rows")
    parser.add_argument("--keep", action="store_true", help="with --only: store them, the other rows stay as they were")
    parser.add_argument("--repeats", type=int, default=99, help="at most so many of every job, for a quick look")
    parser.add_argument("--show", action="store_true", help="print the tables of the stored run")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md from the stored run")
    options = parser.parse_args()
    if options.page:
        report.write_page()
        return
    if options.show:
        stored = json.loads(report.LATEST.read_text())
        print(report.markdown(stored), costs.markdown(stored["costs"]), sep="\n\n")
        return
    suite.most_repeats = options.repeats
    with threadpool_limits(THREADS):
        rows = measure([family for family in FAMILIES if not options.only or family in options.only])
        tables = costs.measure() if not options.only or "costs" in options.only else {}
    if options.only and not options.keep:
        about = {"machine": report.machine(THREADS), "revision": report.revision()}
        shown = [{**report.as_dict(row), "revision": about["revision"]} for some in rows.values() for row in some]
        report.show({**about, "rows": shown})
        print(costs.markdown(tables))
        return
    report.store(rows, tables, THREADS, bool(options.only))
    report.show(json.loads(report.LATEST.read_text()))
    report.write_page()


if __name__ == "__main__":
    main()
