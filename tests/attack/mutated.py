"""Damaged files of every format: they are read as their own library reads them, or refused in one line."""

import contextlib
import io
import os
import shutil
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

import damage
from attack.cases import Part
from attack.forks import SECONDS, Fork
from damage_kinds import KINDS, refused
from tpca import TpcaError
from tpca.checkpoint import CheckpointWarning
from tpca.data import open_stream
from tpca.errors import StreamWarning

SOME = [kind for kind in KINDS if kind != "checkpoint"]
BATCH = 40  # files that one fork reads
ODDLY = 0.1  # share of files that are replaced by something else
MAX_BATCHES = 50  # batches that are compared


class Mutated(Part):
    """A trial is some files of one kind, each damaged by itself, read in one fork as long as that lives."""

    def trial(self, number, rng):
        kind = SOME[number % len(SOME)]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                made = Fork(lambda: KINDS[kind][0](folder)).end()
            assert made.code == 0, made
            shutil.copytree(folder, folder / "good")
            seeds = rng.integers(2**32, size=BATCH)
            return kind, _read_all(kind, folder, [int(seed) for seed in seeds]), {"files": BATCH}


def _read_all(kind, folder, seeds):
    """The outcome of every file, with what is worth telling; a fork that dies is followed by another."""
    outcomes, told = [], folder / "told"
    while len(outcomes) < len(seeds):
        told.write_text("")
        ended = Fork(partial(_read_some, kind, folder, seeds[len(outcomes) :], told)).end(2 * SECONDS + BATCH)
        outcomes += [line.partition(" ")[::2] for line in told.read_text().splitlines()]
        if len(outcomes) < len(seeds):
            assert ended.code, ended
            ill = "hang" if ended.hung else "hdf5 crash" if kind.startswith("hdf5") else "crash"
            outcomes.append((ill, f"seed {seeds[len(outcomes)]}: {ended.output[-1500:]!r}"))
    return outcomes


def _read_some(kind, folder, seeds, told):
    warnings.simplefilter("error")
    for category in (StreamWarning, CheckpointWarning):  # one line of the command
        warnings.simplefilter("ignore", category)
    with told.open("a") as lines:
        for seed in seeds:
            outcome, why = _read_one(kind, folder, np.random.default_rng(seed))
            lines.write(f"{outcome} {f'seed {seed}: {why!r}' if why else ''}\n")
            lines.flush()


def _read_one(kind, folder, rng):
    """Damage one file among those of a kind, and read them all; the outcome, and what to say of a bad one."""
    place = folder / "tried"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "good", place)
    files = sorted(
        p for p in place.rglob("*") if p.is_file() and not (kind.startswith("result") and p.suffix == ".npy")
    )
    texts = [p for p in files if p.name.endswith(damage.JSON_SUFFIXES)]
    victim = (
        files[int(rng.integers(len(files)))]
        if rng.random() < 0.5 or not texts
        else texts[int(rng.integers(len(texts)))]
    )
    if rng.random() < ODDLY:
        replace(victim, rng)
    else:
        victim.write_bytes(damage.damage(victim.read_bytes(), victim.name, rng))
    said = []
    try:
        with damage.no_longer_than(int(SECONDS)), contextlib.redirect_stdout(io.StringIO()):
            with refused():
                try:
                    KINDS[kind][1](place)
                except TpcaError as error:
                    said.append(str(error))
                    raise
            if said:
                return "error", ""
            return ("right" if compared(kind, place) else "read"), ""
    except damage.Hang:
        return "hang", victim.name
    except DifferentError as error:
        return "wrong", f"{victim.name}: {error}"
    except Exception as error:
        import traceback

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
    import h5py

    with h5py.File(folder / "d.h5") as file:
        return file["samples"][:]


def _zarr(folder, inner="."):
    import zarr

    return zarr.open_array(folder / "d.zarr" / inner, mode="r")[:]


def _mat(folder):
    import scipy.io

    return scipy.io.loadmat(folder / "d.mat")["x"]


def _folder(folder):
    return np.concatenate([np.load(path) for path in sorted((folder / "d").iterdir())])


PLAIN = {
    "npy": ("d.npy", lambda folder: np.load(folder / "d.npy")),
    "folder": ("d", _folder),
    "zarr": ("d.zarr", _zarr),
    "zarr2": ("d.zarr", _zarr),
    "zarr-blosc": ("d.zarr", _zarr),
    "zarr-group": ("d.zarr::/a", lambda folder: _zarr(folder, "a")),
    "zarr2-group": ("d.zarr::/a", lambda folder: _zarr(folder, "a")),
    "hdf5": ("d.h5::/samples", _hdf5),
    "hdf5-plain": ("d.h5::/samples", _hdf5),
    "npz": ("d.npz", lambda folder: np.load(folder / "d.npz")["data"]),
    "mat": ("d.mat", _mat),
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
