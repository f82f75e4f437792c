"""Fits that are killed and gone on with: as they are, with other data, or from checkpoints that were damaged.

They end with the bytes of the fit that nobody disturbed, or say in one line that they cannot; data that changed are
refused, or fitted from their beginning.
"""

import shutil
import signal
from collections import Counter

import numpy as np

from attack.cases import CASES, Part, emptied, every_round, result_of, resuming
from attack.forks import INTERRUPTED, Fork, command, tpca
from damage import ODDLY, damage, replace

MAX_SIGNALS = 6  # signals to one fit; then it is let be
ASKING = 0.2  # share of signals that only ask to stop
STOPPED = (*INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)


class Killed(Part):
    """A trial is one fit to its end."""

    def trial(self, number, rng):
        case, out, sent = list(CASES)[number % len(CASES)], f"killed {number}", Counter()
        with emptied(self.folder / out):
            while True:
                ended = self._once(case, out, rng, sent)
                if ended.hung or ended.code not in STOPPED:
                    return case, [(self.undisturbed.judge(case, ended, self.folder / out), ended.output)], sent

    def _once(self, case, out, rng, sent):
        """Begin, or go on; unless it was stopped often enough, send a signal some time before the end."""
        more, (_, _, seconds) = resuming(case) if sent else (), self.undisturbed(case)
        fork = Fork(command("fit", *CASES[case], "--out", out, *every_round(case), *more), self.folder)
        if sent.total() == MAX_SIGNALS:
            return fork.end()
        fork.wait(seconds * rng.uniform(0, 1.1))
        asking = rng.random() < ASKING
        fork.send(int(rng.choice([signal.SIGINT, signal.SIGTERM])) if asking else signal.SIGKILL)
        ended = fork.end()
        if ended.code in STOPPED:
            sent["asked to stop" if asking else "kills"] += 1
        return ended


CHANGED = ("race npy", "least squares zarr", "race hdf5", "race folder", "variance zarr", "effect npy")


class Changed(Part):
    """A trial is one fit that is killed; then one sample, read or not, changes its sign."""

    def trial(self, number, rng):
        case, folder = CHANGED[number % len(CHANGED)], self.folder / f"changed {number}"
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


DAMAGED = (
    "race npy",
    "least squares zarr",
    "paper hdf5",
    "race zarr, shuffled, two components",
    "variance zarr",
    "effect npy",
)


class Checkpoints(Part):
    """A trial is one damaged copy of the folder of a fit that was killed."""

    def trial(self, number, rng):
        case, out = DAMAGED[number % len(DAMAGED)], self.folder / f"damaged {number}"
        with emptied(out):
            shutil.copytree(self._killed(case), out)
            files = sorted(path for path in out.rglob("*") if path.is_file())
            for path in rng.choice(files, size=min(len(files), int(rng.integers(1, 4))), replace=False):
                if rng.random() < ODDLY:
                    replace(path, rng)
                else:
                    path.write_bytes(damage(path.read_bytes() or b"\0", path.name, rng))
            ended = Fork(command("fit", *CASES[case], "--out", out, *every_round(case), "--resume"), self.folder).end()
            return case, [(self.undisturbed.judge(case, ended, out), ended.output)], {"checkpoints": 1}

    def _killed(self, case):
        """The folder of a fit that was killed with two checkpoints or more; made once."""
        out, wait = self.folder / f"stopped {case}", 0.8
        while not _has_two(out):
            shutil.rmtree(out, ignore_errors=True)
            fork = Fork(command("fit", *CASES[case], "--out", out, *every_round(case)), self.folder)
            fork.wait(self.undisturbed(case)[2] * wait)
            fork.send(9)
            fork.end()
            wait = 0.2 + (wait + 0.07) % 0.8
        return out


def _has_two(out):
    return len([path for path in out.glob("checkpoint/*") if path.name.isdigit()]) > 1
