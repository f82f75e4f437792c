"""Files of every format that tpca reads, damaged at random, and what happens when they are read.

``python tests/damage.py SEED COUNT KIND...`` does it in a process of its own, which a C library may crash or hang.
"""

import contextlib
import copy
import faulthandler
import io
import json
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np

from damage_kinds import KINDS, refused

SECONDS = 60  # a guard against hangs, a thousand times what a file takes
ODD = (None, True, -1, 0, 1, 0.5, 3, 2**31, 10**18, 10**30, 1e300)
ODD += ("", "x", "\x1b[2J\n", [], [[]], [0], [None], {}, {"a": 1})
JSON_SUFFIXES = (".json", ".jsonl", ".zarray", ".zattrs", ".zgroup")


# How it is damaged.


def damage(data, name, rng):
    """The bytes of a file with something wrong; JSON is damaged in its values more often than in its letters."""
    if name.endswith(JSON_SUFFIXES) and rng.random() < 0.7:
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


def survey(kind, seed, count, say=len):
    """Damage ``count`` files, one at a time; what was neither read nor refused in one line."""
    make, read = KINDS[kind]
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        with contextlib.redirect_stdout(io.StringIO()):
            read(folder)  # whole, it can be read
        victims = sorted(
            p for p in folder.rglob("*") if p.is_file() and not (kind.startswith("result") and p.suffix == ".npy")
        )
        for number in range(count):
            rng = np.random.default_rng([seed, number])
            some = [p for p in victims if p.name.endswith(JSON_SUFFIXES) is (number % 2 == 0)] or victims
            path = some[int(rng.integers(len(some)))]
            good = path.read_bytes()
            path.write_bytes(damage(good, path.name, rng))
            say(f"{kind} {number}\n")
            problem = outcome(read, folder)
            if problem is not None:
                problems.append([f"{kind} {seed} {number} {path.name}", *problem])
            path.write_bytes(good)
    return problems


def outcome(read, folder):
    """``None`` if reading ends well, or in one line."""
    try:
        with no_longer_than(SECONDS), contextlib.redirect_stdout(io.StringIO()), refused():
            read(folder)
    except (Exception, Hang) as error:
        return f"{type(error).__name__}: {error}"[:300], "".join(traceback.format_exception(error)[-4:])[-900:]
    return None


def main(seed, count, *kinds):
    """Print the problems; on standard error stands which file comes next, in case that is the last."""
    faulthandler.enable()
    warnings.simplefilter("error")
    problems = []
    for kind in kinds:
        faulthandler.dump_traceback_later(10 * SECONDS, exit=True)
        problems += survey(
            kind, int(seed), int(count), lambda number, kind=kind: sys.stderr.write(f"{kind} {number}\n")
        )
    sys.stdout.write(json.dumps(problems))


if __name__ == "__main__":
    main(*sys.argv[1:])
