"""The fits that are attacked: small, of many rounds, over all formats, solvers and targets."""

import contextlib
import shutil
import time
from pathlib import Path

import numpy as np

import command
from attack.forks import tpca
from damage_kinds import table_of
from tpca import SpikedTensor

DIMS, FOUR = (8, 7, 6), (5, 4, 4, 3)
PATHS = {"npy": "d.npy", "folder": "d", "zarr": "d.zarr", "hdf5": "d.h5", "npz": "d.npz", "mat": "d.mat"}
TABLE = ("d.parquet", "--sample", "n", "--modes", "x,y,z", "--value", "v")
# The words of ``tpca fit``, of which all but views can be resumed.
CASES = {f"race {name}": (path, "--solver", "race") for name, path in PATHS.items()}
CASES |= {f"least squares {name}": (path, "--solver", "least_squares") for name, path in PATHS.items()}
CASES |= {"race parquet": (*TABLE, "--solver", "race"), "least squares parquet": (*TABLE, "--solver", "least_squares")}
CASES |= {"race zarr, shuffled, two components": ("d.zarr", "--solver", "race", "--shuffle", "--n-components", "2")}
CASES |= {"race hdf5, three passes": ("d.h5", "--solver", "race", "--max-passes", "3")}
CASES |= {f"paper {name}": (f"four{path[1:]}", "--solver", "paper", "--strength", "3") for name, path in PATHS.items()}
CASES |= {"variance zarr": ("d.zarr", "--target", "variance"), "effect npy": ("d.npy", "--y", "y.npy")}
CASES |= {"views": ("a.npy", "b.npy", "c.npy")}
RESULT = ("result.json", "vectors.npz")


def write_data(folder):
    """All files that the cases read."""
    import h5py
    import scipy.io
    import zarr

    for name, dims, n in (("d", DIMS, 500), ("four", FOUR, 400)):
        truth = SpikedTensor.random(dims, 1.5, random_state=1)
        data = next(iter(truth.stream(random_state=2, batch_size=n)))
        np.save(folder / f"{name}.npy", data)
        (folder / name).mkdir()
        for i, part in enumerate(np.array_split(data, 7)):
            np.save(folder / name / f"{i}.npy", part)
        zarr.open_array(folder / f"{name}.zarr", mode="w", shape=data.shape, chunks=(50, *dims), dtype="f8")[:] = data
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=data, chunks=(50, *dims), compression="gzip")
        np.savez_compressed(folder / f"{name}.npz", data=data)
        scipy.io.savemat(folder / f"{name}.mat", {"x": data})
        if name == "d":
            table_of(data[:120]).to_parquet(folder / "d.parquet")
    rng = np.random.default_rng(3)
    np.save(folder / "y.npy", rng.standard_normal(500))
    shared = rng.standard_normal((400, 1))
    for name, width in (("a", 4), ("b", 3), ("c", 5)):
        np.save(folder / f"{name}.npy", shared + rng.standard_normal((400, width)))


WARMING = ("race npy", "least squares npy", "paper npy", "variance zarr", "effect npy", "views")


def warm_up(folder):
    """Fit once in this process, from files that are read without a thread: forks find all loops compiled."""
    for case in WARMING:
        words = [word.replace("d.zarr", "d.npy") for word in CASES[case]]
        assert command.run("fit", *words, "--out", "warm", "--quiet", cwd=folder).returncode in (0, 3, 4), case
        shutil.rmtree(folder / "warm")


class Undisturbed:
    """What every case gives when nobody disturbs it: bytes, exit code, seconds; found out when first asked for."""

    def __init__(self, folder):
        self.folder, self._known = Path(folder), {}

    def __call__(self, case):
        if case not in self._known:
            out, began = f"undisturbed {case}", time.monotonic()
            ended = tpca("fit", *CASES[case], "--out", out, *every_round(case), folder=self.folder)
            assert ended.outcome == "done", (case, ended)
            began, again = time.monotonic(), f"again {case}"  # the first one may have had to load something
            tpca("fit", *CASES[case], "--out", again, *every_round(case), folder=self.folder)
            seconds = time.monotonic() - began
            found = result_of(self.folder / out)
            assert found == result_of(self.folder / again), case
            self._known[case] = (found, ended.code, seconds)
        return self._known[case]

    def judge(self, case, ended, out):
        """The word for a fit that has ended, with its result in ``out``."""
        if ended.outcome != "done":
            return ended.outcome
        found, code, _ = self(case)
        left = [path for path in Path(out).rglob("*") if path.name not in (*RESULT, "report.html")]
        return "right" if (result_of(out), ended.code) == (found, code) and not left else "wrong"


class Part:
    """A part of the attack: trials by their number, each with a random generator of its own."""

    def __init__(self, undisturbed):
        self.undisturbed, self.folder = undisturbed, undisturbed.folder

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """What was started for all trials ends."""

    def trial(self, number, rng):
        """The case; pairs of an outcome and what was said; how much was done of what."""
        raise NotImplementedError


def every_round(case):
    """A checkpoint after every round, where there are any."""
    return () if case == "views" else ("--checkpoint-every", "0")


def resuming(case):
    return () if case == "views" else ("--resume",)


def result_of(folder):
    """The bytes of a result, all of them."""
    return tuple((Path(folder) / name).read_bytes() if (Path(folder) / name).exists() else None for name in RESULT)


@contextlib.contextmanager
def emptied(*paths):
    """Places that are empty now, and gone in the end."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    try:
        yield
    finally:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
