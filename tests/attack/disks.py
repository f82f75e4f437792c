"""Disks that are full or read-only: one line, before the work where that can be; with room again, the same bytes."""

import os
import subprocess

from attack.cases import CASES, Part, emptied, every_round
from attack.forks import tpca

SIZE = 2**23  # bytes of the disk: more than a fit needs
SOME = ("race npy", "least squares zarr", "paper hdf5", "variance zarr", "effect npy", "views")
READ_ONLY = 4  # one trial in so many


class Disks(Part):
    """A trial is one fit whose result, checkpoints and report go to a small disk in memory (Linux, as root)."""

    def __init__(self, undisturbed):
        super().__init__(undisturbed)
        self.disk = self.folder / "disk"

    def __enter__(self):
        self.disk.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs")
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.disk)], check=True)

    def _mount(self, *words):
        subprocess.run(["mount", *words, str(self.disk)], check=True)

    def trial(self, number, rng):
        case, out = SOME[number % len(SOME)], self.disk / f"o{number}"
        words = ("fit", *CASES[case], "--out", out, *every_round(case))
        if rng.random() < 0.3:
            words += ("--report", self.disk / "r.html")
        with emptied(out):
            read_only = number % READ_ONLY == 0
            ended = self._read_only(words) if read_only else self._full(words, rng)
            if ended.outcome == "done":  # there was room enough
                outcome = self.undisturbed.judge(case, ended, out)
            elif ended.outcome == "error":
                outcome = self._with_room(case, words, out, ended)
            else:
                outcome = ended.outcome
            (self.disk / "r.html").unlink(missing_ok=True)
            done = {"read-only": int(read_only), "full": int(not read_only and ended.outcome == "error")}
            return case, [(outcome, ended.output)], done

    def _full(self, words, rng):
        """All but some bytes are taken."""
        taken = self.disk / "taken"
        free = os.statvfs(self.disk)
        room = int(10 ** rng.uniform(3, 5.5))
        with taken.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - room))
        try:
            return tpca(*words, folder=self.folder)
        finally:
            taken.unlink()

    def _read_only(self, words):
        self._mount("-o", "remount,ro")
        try:
            return tpca(*words, folder=self.folder)
        finally:
            self._mount("-o", "remount,rw")

    def _with_room(self, case, words, out, before):
        """Gone on with, or begun again, where there is room: what it says now."""
        again = tpca(*words, *(() if case == "views" else ("--resume",)), folder=self.folder)
        judged = self.undisturbed.judge(case, again, out)
        return "error" if judged == "right" else judged
