"""Results that lead to other machines, and places to write to that hold what is somebody's."""

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

import fsspec
import numpy as np

from attack.cases import Part
from attack.forks import tpca

SMALL = np.random.default_rng(0).standard_normal((60, 4, 3))
FIT = ("fit", "d.npy", "--n-resamples", "19", "--quiet")
# What fsspec knows, and what it might connect to: a server of this process, which notices.
TARGETS = (
    "http://127.0.0.1:{port}/x.zarr",
    "ftp://127.0.0.1:{port}/x.zarr",
    "sftp://127.0.0.1:{port}/x.zarr",
    "webhdfs://127.0.0.1:{port}/x.zarr",
    "jupyter://127.0.0.1:{port}/x.zarr",
    "dask://127.0.0.1:{port}/x.zarr",
    "git://{folder}/x.zarr",
    "reference://{folder}/evil.json",
    "started://host/x.zarr",
    "nonsense://host/x.zarr",
)
CHAINS = ("{target}", "simplecache::{target}", "filecache::{target}", "reference::{target}", "zip://a::{target}")
UNASKED = ("https://127.0.0.1:{port}/x.zarr", "file://{folder}/evil.zarr", "memory://x.zarr")  # may be typed
WAYS = ("source of a result", "y of a result", "data of a fit", "y of a fit", "data of a report")


class Started(fsspec.AbstractFileSystem):
    """Leaves a folder where it was made: whoever opens a URL of it runs foreign code."""

    protocol = "started"
    cachable = False

    def __init__(self, *_, **options):
        Path("started").mkdir(exist_ok=True)
        super().__init__(**options)


fsspec.register_implementation("started", Started, clobber=True)


class Prepared(Part):
    """Trials that begin with a copy of one folder."""

    def __enter__(self):
        self._first = self.folder / f"first {type(self).__name__}"
        self._first.mkdir()
        _prepare(self._first)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self._first, ignore_errors=True)

    @contextlib.contextmanager
    def copied(self):
        """A folder for one trial."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            yield shutil.copytree(self._first, Path(name) / "w")


class Sources(Prepared):
    """A trial is one URL or chain, in a result or typed: the page has no scores, and nothing is started or reached."""

    def trial(self, number, rng):
        way = WAYS[number % len(WAYS)]
        with self.copied() as folder, listening() as server:
            stored = way.endswith("of a result")
            chain = str(rng.choice(CHAINS))
            target = str(rng.choice(TARGETS + UNASKED if stored else TARGETS))
            where = {"port": server.getsockname()[1], "folder": folder}
            place = chain.format(target=target.format_map(where))
            if stored:
                _change(folder / "r" / "result.json", way.partition(" ")[0], place)
            ended = tpca(*_words(way, place), folder=folder)
            reached = _reached(server) or (folder / "started").exists()
            outcome = ended.outcome
            if way.endswith(("of a result", "of a report")) and outcome == "done":
                page = (folder / "r" / "report.html").read_bytes()
                outcome = "right" if page == (folder / "without.html").read_bytes() else "wrong"
            if reached or outcome == "done":
                outcome = "wrong"
        return way, [(outcome, f"{place}: {ended.output}")], {"hostile places": 1}


def _words(way, place):
    if way.endswith("of a result"):
        return "report", "r"
    if way == "data of a report":
        return "report", "r", "--data", place
    if way == "y of a fit":
        return *FIT, "--y", f"{place}::y"
    return "fit", place, "--quiet"


def _prepare(folder):
    """Data, a result of them, its page without scores, and a file that older versions of fsspec run."""
    np.save(folder / "d.npy", SMALL)
    np.save(folder / "y.npy", np.arange(60.0))
    for view in "ab":
        np.save(folder / f"{view}.npy", SMALL[:, :, 0])
    ended = tpca(*FIT, "--y", "y.npy", "--out", "r", folder=folder)
    assert ended.outcome == "done", ended
    ended = tpca("report", "r", "--no-scores", "--out", "without.html", folder=folder)
    assert ended.outcome == "done", ended
    command = "mkdir started"
    key = f"{{{{ cycler.__init__.__globals__.os.popen('{command}').read() }}}}"
    item = {"key": key, "url": "u", "offset": "0", "length": "1", "dimensions": {"i": [1]}}
    (folder / "evil.json").write_text(json.dumps({"version": 1, "templates": {}, "refs": {}, "gen": [item]}))


def _change(place, field, value):
    """As somebody else would write it.  The page names its data, so the source of the page without scores changes."""
    stored = json.loads(place.read_text())
    if field == "source":
        stored["source"] = value
    else:
        stored["settings"]["y"] = f"{value}::y"
    place.write_text(json.dumps(stored))
    ended = tpca("report", "r", "--no-scores", "--out", "without.html", folder=place.parent.parent)
    assert ended.outcome == "done", ended


@contextlib.contextmanager
def listening():
    """A server of this machine to which nobody should come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        yield server


def _reached(server):
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# Places -------------------------------------------------------------------------------------------------------------

NOTES = b"notes of somebody"
# The words of a command, and the file that it writes.
WRITERS = {
    "a report": ((*FIT, "--report", "p.html"), "p.html"),
    "a report of views": (("fit", "a.npy", "b.npy", "--quiet", "--report", "p.html"), "p.html"),
    "a page": (("report", "r", "--out", "p.html"), "p.html"),
    "the page of a result": (("report", "r"), "r/report.html"),
    "numbers": ((*FIT, "--out", "o"), "o/result.json"),
    "vectors": ((*FIT, "--out", "o"), "o/vectors.npz"),
    "samples": (("generate", "--dims", "4,3", "--samples", "9", "--out", "g.npy"), "g.npy"),
    "a store": (("generate", "--dims", "4,3", "--samples", "9", "--out", "g.zarr"), "g.zarr"),
    "a truth": (("generate", "--dims", "4,3", "--samples", "9", "--out", "g.npy"), "g.npy.truth.npz"),
    "a picture": (("demo", "--out", "pictures"), "pictures/alignment.png"),
}
MATTER = ("data", "notes", "nothing", "a page")  # what --overwrite may replace
ODD = ("a folder", "a link", "a link to nothing", "a link to a device", "a pipe", "a socket")


class Writers(Prepared):
    """A trial is something in the way of a file: it is left as it was, or it was asked for that it goes."""

    def trial(self, number, rng):
        name = list(WRITERS)[number % len(WRITERS)]
        words, place = WRITERS[name]
        kind = str(rng.choice(MATTER + ODD))
        overwrite = bool(rng.integers(2)) and kind not in MATTER
        with self.copied() as folder:
            (folder / place).parent.mkdir(exist_ok=True)
            _put(folder, folder / place, kind)
            before = contents(folder)
            ended = tpca(*words, *(["--overwrite"] if overwrite else []), folder=folder)
            after = contents(folder)
            changed = [path for path in before if after.get(path) != before[path]]
            may_write = (kind == "a page" and place.endswith(".html")) or (
                kind == "a folder" and place.endswith(".zarr") and overwrite
            )
            outcome = ended.outcome
            if may_write and outcome == "done" and all(name.startswith(place) for name in changed):
                outcome = "right"
            elif changed or may_write or outcome == "done" or set(after) != set(before):
                outcome = "wrong"
        asked = " with --overwrite" if overwrite else ""
        return name, [(outcome, f"{kind}{asked}: {changed}, {ended.output}")], {"places": 1}


def _put(folder, place, kind):
    """Something that is not to be replaced."""
    if kind == "data":
        os.link(folder / "d.npy", place)
    elif kind in ("notes", "nothing"):
        place.write_bytes(NOTES if kind == "notes" else b"")
    elif kind == "a page":
        place.write_bytes((folder / "without.html").read_bytes())
    elif kind == "a folder":
        place.mkdir()
        (place / "notes").write_bytes(NOTES)
    elif kind.startswith("a link"):
        to = {"a link": folder / "y.npy", "a link to nothing": "nowhere", "a link to a device": "/dev/null"}[kind]
        place.symlink_to(to)
    elif kind == "a pipe":
        os.mkfifo(place)
    else:
        here = os.getcwd()
        os.chdir(place.parent)  # the name of a socket has no more than 107 letters
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(place.name)
        os.chdir(here)


def contents(folder):
    """Everything below, with what it is and holds; without checkpoints, which are made and removed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if re.search(r"(^|/)(checkpoint|\.lock)", name):
            continue
        status = os.lstat(path)
        held = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[name] = (status.st_mode, held)
    return found
