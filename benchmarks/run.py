"""``make bench``: ratios against the machine's own limits and against peers, measured side by side in one run.

python benchmarks/run.py                      all rows; writes results/report.json and the figure
python benchmarks/run.py --only race peers    some families of rows; writes nothing
python benchmarks/run.py --draw               the figure from the stored run
"""

import os

os.environ["TQDM_DISABLE"] = "1"  # xeofs draws bars
THREADS = 1  # of BLAS, and of any other pool: one core against one core; readers may use the other
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = str(THREADS)

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from dataclasses import asdict  # noqa: E402

import jobs_files  # noqa: E402
import jobs_online  # noqa: E402
import jobs_peers  # noqa: E402
import jobs_race  # noqa: E402
import jobs_threads  # noqa: E402
import suite  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

import report  # noqa: E402


def files() -> Iterator[suite.Row]:
    yield from jobs_race.from_files()
    yield from jobs_files.rows()


FAMILIES = {
    "peers": jobs_peers.rows,
    "race": jobs_race.in_memory,
    "files": files,
    "online": jobs_online.online,
    "threads": jobs_threads.rows,
    "startup": jobs_online.startup,
}


def measure(families: list[str]) -> list[dict]:
    """All rows of some families; says what it is at."""
    rows = []
    for family in families:
        began = time.perf_counter()
        for row in FAMILIES[family]():
            rows.append({"family": family, **asdict(row)})
            ratio = "not measured" if row.ratio is None else f"{row.ratio:.3g}"
            target = "" if row.target is None else f"≤ {row.target:g}"
            print(f"{ratio:>12s} {target:8s} {row.job}, over {row.reference}", flush=True)
        print(f"{'':22s}{family}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), help="some families of rows; nothing is stored")
    parser.add_argument("--repeats", type=int, default=99, help="at most so many of every job, for a quick look")
    parser.add_argument("--draw", action="store_true", help="draw the figure from the stored run")
    options = parser.parse_args()
    if options.draw:
        report.draw(json.loads(report.STORED.read_text()))
        return
    suite.most_repeats = options.repeats
    with threadpool_limits(THREADS):
        rows = measure(options.only or list(FAMILIES))
    if not options.only:
        report.store(rows, THREADS)


if __name__ == "__main__":
    main()
