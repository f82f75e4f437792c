"""Data that change between a kill and going on: refused, or the bytes of a fit to the new data from its beginning."""

import shutil
import signal

import numpy as np

from attack.cases import CASES, Part, emptied, every_round, result_of
from attack.forks import Fork, command, tpca

SOME = ("race npy", "least squares zarr", "race hdf5", "race folder", "variance zarr", "effect npy")


class Changed(Part):
    """A trial is one fit that is killed; then one sample, read or not, changes its sign."""

    def trial(self, number, rng):
        case, folder = SOME[number % len(SOME)], self.folder / f"changed {number}"
        with emptied(folder):
            folder.mkdir()
            for word in CASES[case]:
                if (self.folder / word).is_dir():
                    shutil.copytree(self.folder / word, folder / word)
                elif (self.folder / word).is_file():
                    shutil.copy2(self.folder / word, folder / word)
            words = ("fit", *CASES[case], *every_round(case))
            fork = Fork(command(*words, "--out", "out"), folder)
            number = int(rng.integers(1, 6))  # of the checkpoint after which it is killed
            while not any(int(path.name) >= number for path in folder.glob("out/checkpoint/0*/")) and not fork.ended:
                fork.wait(0.001)
            fork.send(signal.SIGKILL)
            if not fork.end().killed or not any(folder.glob("out/checkpoint/*/")):
                return case, [], {"fits that had ended": 1}
            flipped = Fork(lambda: flip(folder / CASES[case][0], rng)).end()
            assert flipped.code == 0, flipped
            ended = tpca(*words, "--out", "out", "--resume", folder=folder)
            outcome = ended.outcome
            if outcome == "done":
                tpca(*words, "--out", "anew", folder=folder)
                outcome = "right" if result_of(folder / "out") == result_of(folder / "anew") else "wrong"
            return case, [(outcome, ended.output)], {"changed data": 1}


def flip(path, rng):
    """Change the sign of one sample, where it is stored."""
    if path.is_dir() and path.suffix != ".zarr":
        path = sorted(path.iterdir())[int(rng.integers(len(list(path.iterdir()))))]
    if path.suffix == ".npy":
        samples = np.load(path)
        samples[int(rng.integers(len(samples)))] *= -1
        np.save(path, samples)  # in memory, a file that is written through a map keeps its time of last change
    elif path.suffix == ".zarr":
        import zarr

        samples = zarr.open_array(path, mode="r+")
        at = int(rng.integers(samples.shape[0]))
        samples[at] = -samples[at]
    else:
        import h5py

        with h5py.File(path, "r+") as file:
            at = int(rng.integers(len(file["x"])))
            file["x"][at] = -file["x"][at]
