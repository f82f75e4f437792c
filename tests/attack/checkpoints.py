"""Damaged checkpoints: the fit goes on from the one before with the same bytes, or says in one line that it cannot."""

import shutil

from attack.cases import CASES, Part, emptied, every_round
from attack.forks import Fork, command
from damage import ODDLY, damage, replace

SOME = (
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
        case, out = SOME[number % len(SOME)], self.folder / f"damaged {number}"
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
