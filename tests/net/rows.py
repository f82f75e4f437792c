"""The rows of the net: read, recomputed, compared."""

import functools
import json
import math
import tempfile
from pathlib import Path

import numpy as np

from net import adapter, data

PLACE = Path(__file__).with_name("rows.json")
# Of rows that stay, on whatever processor: products round otherwise in the last bit.  The race keeps its columns in
# float16, where an entry now and then falls to the other side, 5e-4 of itself away; climbs of views end
# when they gain little.  With the kernels that OpenBLAS has for six kinds of processors races differ by up to
# 1.2e-5, views by 1.7e-7, samples in float32 by 8e-9.  Between engines and resumes, on one processor, no bit differs.
TOLERANCES = {"paper": 1e-12, "race": 1e-4, "views": 1e-5}
SINGLE = 1e-6  # of samples in float32
ASSERTED = ("found", "n_samples", "strengths", "vectors")


class Stopped(Exception):  # noqa: N818
    """Raised within a fit, after some rounds: a stand-in for whatever ends a process between two of them."""


@functools.cache
def rows():
    """All rows, by name."""
    return {row["name"]: row for row in json.loads(PLACE.read_text())}


def computed(row, client_of=None):
    """The answer of a row, now.  ``client_of(workers)`` gives a Dask client where the row asks for one."""
    with tempfile.TemporaryDirectory() as folder:
        return _computed(row, data.made(row["data"]), Path(folder), client_of)


def _computed(row, given, folder, client_of):
    method, via, X = row["method"], row.get("via", "fit"), given.pop("X")
    truth = given.pop("truth", None)
    told = {name: value for name, value in given.items() if name not in row.get("untold", ())}

    def new(**keeping):
        return adapter.estimator_of(method, row.get("options", {}), truth, **keeping)

    if via == "parts":
        return adapter.answer_of(method, adapter.fit_in_parts(new(), _parts(X, told, row["parts"])))
    source = _source(row, X, folder)
    if "workers" in row:
        source = adapter.on_cluster(client_of(row["workers"]), source)
    if via == "fit":
        return adapter.answer_of(method, adapter.fit(new(), source, told))

    def kept_fit(on_round):
        return adapter.fit(new(checkpoint=folder / "kept", on_round=on_round), source, told)

    before, used = _stop(kept_fit, row["rounds"]), []
    answer = adapter.answer_of(method, kept_fit(used.append))
    assert used, "nothing was left to do; stop the fit earlier"
    assert used[0] > before, f"{before} samples were used, and the fit went on at {used[0]}: it began anew"
    return answer


def _source(row, X, folder):
    form = row.get("form")
    if row["method"] == "views":
        return X if form is None else data.views_formed(form, X, folder)
    if row["data"]["kind"] == "endless":
        return adapter.opened(X, {"items": "batches"})
    if form is None:
        return X
    return adapter.opened(*data.formed(form, X, folder))


def _parts(X, given, sizes):
    """Samples (or views) in parts of these sizes, over and over, each with what is told of it."""
    n, first, turn = len(X[0]) if isinstance(X, list) else X.shape[0], 0, 0
    while first < n:
        part = slice(first, first + sizes[turn % len(sizes)])
        cut = [view[part] for view in X] if isinstance(X, list) else X[part]
        yield cut, {name: column[part] for name, column in given.items()}
        first, turn = part.stop, turn + 1


def _stop(fit, rounds):
    """Stop a fit again and again, so many rounds after it has begun or gone on; the samples it had used by then."""
    for after in rounds:
        used = []

        def stop(samples, after=after, used=used):
            used.append(samples)
            if len(used) > after:
                raise Stopped

        try:
            fit(stop)
        except Stopped:
            continue
        raise AssertionError(f"the fit ended within {after} rounds; stop it earlier")
    return used[-2]  # at the last round that was kept


# ---------------------------------------------------------------------------------------------------------------------
# Comparing.


def distance(stored, now):
    """How far two answers, or parts of them, are from each other: 0 for the same bits, ∞ for other shapes or words.

    Numbers that are not finite are equal to themselves; numbers above one count by their ratio.
    """
    if isinstance(stored, dict):
        if not isinstance(now, dict) or stored.keys() != now.keys():
            return math.inf
        return max((distance(stored[name], now[name]) for name in stored), default=0.0)
    if isinstance(stored, list):
        if not isinstance(now, list) or len(stored) != len(now):
            return math.inf
        return max((distance(*pair) for pair in zip(stored, now, strict=True)), default=0.0)
    if isinstance(stored, bool | int) and isinstance(now, bool | int):
        return 0.0 if stored == now else math.inf
    if stored == now or (np.isnan(stored) and np.isnan(now)):
        return 0.0
    if not (np.isfinite(stored) and np.isfinite(now)):
        return math.inf
    return abs(stored - now) / max(1.0, abs(stored))


class Net:
    """The rows, each computed once."""

    def __init__(self, client_of=None):
        self._client_of = client_of
        self._answers = {}

    def answer(self, name):
        """The answer of a row, now."""
        if name not in self._answers:
            self._answers[name] = computed(rows()[name], self._client_of)
        return self._answers[name]

    def difference(self, name):
        """How a row differs from what is stored, or from the row whose bits it should have; empty if it does not."""
        row = rows()[name]
        if row.get("refused"):
            try:
                self.answer(name)
            except adapter.REFUSED:
                return ""
            return "was refused, and is not"
        now, parts = self.answer(name), row.get("asserted", ASSERTED)
        if "same_as" in row:
            stored, limit, parts = self.answer(row["same_as"]), row.get("within", 0.0), (*parts, "noted")
        else:
            single = SINGLE if row["data"].get("dtype") == "float32" else 0.0
            stored, limit = row["answer"], max(TOLERANCES[row["method"]], single)
        far = {part: distance(stored[part], now[part]) for part in parts}
        return ", ".join(f"{part} by {value:.1e}" for part, value in far.items() if value > limit)
