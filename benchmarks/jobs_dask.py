"""Two workers against one on a compressed Zarr store of 8.6 GB: the row of a stored run, nothing is measured here.

``python benchmarks/dask_scaling.py --out benchmarks/results/dask_scaling.json`` writes the store, which alone takes
longer than ``make bench`` may; it says of which revision its figures are.
"""

import json
import math
import statistics
from collections.abc import Iterator

from dask_scaling import TARGETS
from suite import RESULTS, Row


def rows() -> Iterator[Row]:
    stored = json.loads((RESULTS / "dask_scaling.json").read_text())
    one, two = (stored["seconds"][name] for name in ("1 worker", "2 workers"))
    ratios = [b / a for a, b in zip(one, two, strict=True)]
    ratio, bytes_ = statistics.median(two) / statistics.median(one), 4 * stored["samples"] * math.prod(stored["dims"])
    speedup = TARGETS["2 workers / 1 worker"]
    note = (
        f"{1 / ratio:.2f} times as fast, the target is {speedup}; a stored run of `python benchmarks/dask_scaling.py`, "
        f"revision {stored.get('revision', 'unknown')}"
    )
    yield Row(
        f"rounds of a race over a compressed Zarr store of {bytes_ / 1e9:.1f} GB, two workers",
        "one worker",
        ratio,
        round(1 / speedup, 3),
        None,
        (min(ratios), max(ratios)),
        statistics.median(two),
        statistics.median(one),
        note,
    )
