"""Files of every format that tpca reads, damaged at random, and what happens when they are read.

A damaged file is read as its own library reads it, or refused in one line.
"""

import contextlib
import copy
import io
import json
import os
import shutil
import signal
import traceback

import h5py
import numpy as np
import scipy.io
import zarr

from damage_kinds import KINDS, refused
from tpca import TpcaError, open_stream

SECONDS = 60  # a guard against hangs, a thousand times what a file takes
ODDLY = 0.1  # share of files that are replaced by something else
MAX_BATCHES = 50  # batches that are compared
ODD = (None, True, -1, 0, 1, 0.5, 3, 2**31, 10**18, 10**30, 1e300)
ODD += ("", "x", "\x1b[2J\n", [], [[]], [0], [None], {}, {"a": 1})
JSON_SUFFIXES = (".json", ".jsonl", ".zarray", ".zattrs", ".zgroup")


# How it is damaged.


def damage(data, name, rng):
    """The bytes of a file with something wrong; JSON is damaged in its values more often than in its letters."""
    if name.endswith(JSON_SUFFIXES) and rng.random() < 0.7:
        with contextlib.suppress(ValueError):  # no JSON yet, where a kill came in the middle of writing it
            return damaged_json(data, rng)
    data = bytearray(data)
    # Headers are few bytes among many: half of all damage is in the first or the last of them.
    at = int(rng.integers(len(data)) if rng.random() < 0.5 else rng.integers(min(len(data), 300)) * rng.choice([1, -1]))
    at %= len(data)
    length = int(2 ** rng.uniform(0, 8))
    noise = rng.bytes(length)
    match rng.integers(6):
        case 0:
            for place in [at, *rng.integers(len(data), size=rng.integers(3))]:
                data[place] ^= 1 << int(rng.integers(8))
        case 1:
            data[at : at + length] = noise[: len(data) - at]
        case 2:
            del data[at:]
        case 3:
            del data[at : at + length]
        case 4:
            data[at:at] = noise
        case 5:
            data[at : at + length] = bytes(min(length, len(data) - at))
    return bytes(data)


def damaged_json(data, rng):
    lines = data.decode().splitlines()
    whole = len(lines) < 2 or not lines[0].startswith("{") or lines[0] == "{"
    number = 0 if whole else int(rng.integers(len(lines)))
    tree = json.loads("\n".join(lines) if whole else lines[number])
    for _ in range(int(rng.integers(1, 3))):
        tree = replaced(tree, rng)
    text = json.dumps(tree)
    return (text if whole else "\n".join([*lines[:number], text, *lines[number + 1 :]])).encode()


def replaced(tree, rng):
    """The tree with one value replaced, left out, or turned into something else."""
    places = list(walk(tree))
    path = places[int(rng.integers(len(places)))] if places else ()
    odd = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])
    if not path:
        return odd
    inside = tree
    for step in path[:-1]:
        inside = inside[step]
    old = inside[path[-1]]
    match rng.integers(5):
        case 0:
            del inside[path[-1]]
        case 1 if isinstance(old, int | float):
            inside[path[-1]] = old * float(10 ** rng.uniform(-3, 12)) if rng.random() < 0.5 else -old
        case 1 if isinstance(old, int):
            inside[path[-1]] = old + int(rng.integers(-3, 10**6))
        case 2 if isinstance(old, str):
            inside[path[-1]] = old[: len(old) // 2] + "?"
        case _:
            inside[path[-1]] = odd
    return tree


def walk(tree, path=()):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from walk(value, (*path, key))


# What happens.


class Hang(BaseException):
    """Reading took longer than it ever should; no reader catches it."""


@contextlib.contextmanager
def no_longer_than(seconds):
    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read_damaged(kind, folder, rng, oddly=ODDLY):
    """Damage a copy of one of the files in ``folder/good``, and read them all; the outcome, and what to say of it."""
    place = folder / "tried"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "good", place)
    files = sorted(
        p for p in place.rglob("*") if p.is_file() and not (kind.startswith("result") and p.suffix == ".npy")
    )
    texts = [p for p in files if p.name.endswith(JSON_SUFFIXES)]
    some = texts if texts and rng.random() < 0.5 else files
    victim = some[int(rng.integers(len(some)))]
    if rng.random() < oddly:
        replace(victim, rng)
    else:
        victim.write_bytes(damage(victim.read_bytes(), victim.name, rng))
    said = []
    try:
        with no_longer_than(SECONDS), contextlib.redirect_stdout(io.StringIO()):
            with refused(said):
                KINDS[kind][1](place)
            return "error" if said else "right" if compared(kind, place) else "read", ""
    except Hang:
        return "hang", victim.name
    except DifferentError as error:
        return "wrong", f"{victim.name}: {error}"
    except Exception as error:
        return "traceback", f"{victim.name}: {error!r} {''.join(traceback.format_exception(error)[-4:])[-900:]}"


def replace(path, rng):
    """Something else in the place of a file."""
    good = path.read_bytes()
    path.unlink()
    match rng.integers(7):
        case 0:
            pass
        case 1:
            path.touch()
        case 2:
            path.mkdir()
        case 3:
            path.symlink_to("/dev/zero")
        case 4:
            os.mkfifo(path)
        case 5:
            path.symlink_to(path)  # in a circle
        case 6:
            path.write_bytes(good)
            os.truncate(path, 2**36)  # zeros that take no room on the disk


# What the library of a format reads.


class DifferentError(Exception):
    """Other samples than those that the library of the format reads."""


def _hdf5(folder):
    with h5py.File(folder / "d.h5") as file:
        return file["samples"][:]


def _zarr(folder, inner="."):
    return zarr.open_array(folder / "d.zarr" / inner, mode="r")[:]


PLAIN = {
    "npy": ("d.npy", lambda folder: np.load(folder / "d.npy")),
    "folder": ("d", lambda folder: np.concatenate([np.load(path) for path in sorted((folder / "d").iterdir())])),
    "zarr": ("d.zarr", _zarr),
    "zarr2": ("d.zarr", _zarr),
    "zarr-blosc": ("d.zarr", _zarr),
    "zarr-group": ("d.zarr::/a", lambda folder: _zarr(folder, "a")),
    "zarr2-group": ("d.zarr::/a", lambda folder: _zarr(folder, "a")),
    "hdf5": ("d.h5::/samples", _hdf5),
    "hdf5-plain": ("d.h5::/samples", _hdf5),
    "npz": ("d.npz", lambda folder: np.load(folder / "d.npz")["data"]),
    "mat": ("d.mat", lambda folder: scipy.io.loadmat(folder / "d.mat")["x"]),
}


def compared(kind, folder):
    """Whether there was something to compare with; what differs is an error."""
    if kind not in PLAIN:
        return False
    path, plain = PLAIN[kind]
    try:
        stream = open_stream(f"{folder}/{path}", items="batches")
        found, ended = [], False
        for batch in stream.batches():
            found.append(np.asarray(batch.samples, dtype=float))
            if len(found) == MAX_BATCHES:
                break
        else:
            ended = True
    except TpcaError:  # one of several arrays, in a store of which others can be read
        return False
    try:
        whole = np.asarray(plain(folder), dtype=float)
    except Exception as error:
        raise DifferentError(f"read here, and elsewhere {error!r}") from error
    mine = np.concatenate(found)
    if len(mine) > len(whole) or (ended and len(mine) < len(whole)):
        raise DifferentError(f"{len(mine)} samples instead of {len(whole)}")
    if not np.array_equal(mine.ravel(), whole[: len(mine)].ravel()):
        raise DifferentError("other samples")
    return True
