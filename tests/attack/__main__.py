"""Run the attack, part by part."""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

import tpca
from attack.cases import Undisturbed, warm_up, write_data
from attack.clusters import Clusters, Replaced
from attack.disks import Disks
from attack.forks import Fork, import_all
from attack.interrupted import Interrupted, Odd
from attack.killed import Changed, Checkpoints, Killed
from attack.mutated import Hostile, Mutated
from attack.readers import Readers
from attack.writers import Sources, Writers

PARTS = {"kills": Killed, "files": Mutated, "checkpoints": Checkpoints, "disks": Disks, "clusters": Clusters}
PARTS["readers"] = Readers
PARTS |= {"replaced": Replaced, "codecs": Hostile, "changed": Changed}
PARTS |= {"interrupted": Interrupted, "odd": Odd}
PARTS |= {"sources": Sources, "writers": Writers}
GOALS = {"kills": {"kills": 1000}, "files": {"files": 10_000}, "checkpoints": {"checkpoints": 2000}}
GOALS |= {"disks": {"full": 150, "read-only": 50}, "readers": {"reads": 8000}}
GOALS |= {"clusters": {"workers killed": 50, "workers stopped": 50, "workers paused": 50, "all workers paused": 25}}
GOALS["clusters"] |= {"schedulers killed": 25, "commands killed": 25}
GOALS |= {"replaced": {"clusters replaced": 20}, "codecs": {"hostile stores": 210}, "changed": {"changed data": 200}}
GOALS |= {"interrupted": {"interrupts": 300}, "odd": {"commands": 130}}
GOALS |= {"sources": {"hostile places": 200}, "writers": {"places": 200}}
TOLD = 20  # bad trials of a part that are kept in full
SAVED = 5.0  # seconds between two writings of the counts
GOOD = ("right", "read", "error", "hdf5 crash")  # the last one is the decoder's own, and counted apart


def code_digest():
    """Of all source files: counts of other code are not added to."""
    home = Path(tpca.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(str(path.relative_to(home)).encode() + path.read_bytes())
    return digest.hexdigest()[:8]


class Counts:
    """What has been done, in a JSON file: it appears whole or not at all.  A part of other code begins anew."""

    def __init__(self, path):
        self.path, self._saved, self._code = Path(path), time.monotonic(), code_digest()
        self.known = json.loads(self.path.read_text()) if self.path.exists() else {"parts": {}}
        self.known["machine"] = f"{platform.system()}, {os.cpu_count()} processors, Python {platform.python_version()}"

    def part(self, name):
        parts = self.known["parts"]
        if parts.get(name, {}).get("code") != self._code:
            parts[name] = {"code": self._code, "trials": 0, "seconds": 0.0, "done": {}, "outcomes": {}, "bad": []}
        return parts[name]

    def note(self, name, case, outcomes, done, seconds):
        """One trial more: pairs of an outcome and what to say of it, if that is bad."""
        part = self.part(name)
        part["trials"] += 1
        part["seconds"] = round(part["seconds"] + seconds, 2)
        part["done"] = dict(Counter(part["done"]) + Counter(done))  # none is not counted
        by_case = part["outcomes"].setdefault(case, {})
        for outcome, why in outcomes:
            by_case[outcome] = by_case.get(outcome, 0) + 1
            if outcome not in GOOD and len(part["bad"]) < TOLD:
                part["bad"].append([part["trials"] - 1, case, outcome, why[-1500:]])
        if time.monotonic() - self._saved > SAVED:
            self.close()

    def close(self):
        """Write, whatever ends the attack."""
        draft = self.path.with_suffix(".part")
        draft.write_text(json.dumps(self.known, indent=1) + "\n")
        draft.replace(self.path)
        self._saved = time.monotonic()


def attack(name, part, counts, share):
    """Go on until the goal, or ``share`` of it, is reached."""
    while any(counts.part(name)["done"].get(what, 0) < share * goal for what, goal in GOALS[name].items()):
        number, began = counts.part(name)["trials"], time.monotonic()
        rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        case, outcomes, done = part.trial(number, rng)
        for outcome, why in outcomes:
            if outcome not in GOOD:
                sys.stderr.write(f"{name} {number}, {case}: {outcome}: {why[-600:]}\n")
        counts.note(name, case, outcomes, done, time.monotonic() - began)


def main():
    """Parse, and go through the parts."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--out", required=True, help="JSON file of the counts; what it has is not done again")
    parser.add_argument("--share", type=float, default=1.0, help="of the goals")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--work", help="folder to work in; one in memory, where there is such a thing")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    import_all()
    counts = Counts(asked.out)
    with tempfile.TemporaryDirectory(dir=asked.work or memory, prefix="attack-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        assert Fork(lambda: write_data(folder)).end().code == 0
        warm_up(folder)
        undisturbed = Undisturbed(folder)
        with contextlib.closing(counts):
            for part in asked.parts:
                if part == "disks" and os.geteuid() != 0:
                    sys.stderr.write("disks: left out, for only root may mount one\n")
                    continue
                with PARTS[part](undisturbed) as ready:
                    attack(part, ready, counts, asked.share)
                sys.stderr.write(f"{part}: {counts.part(part)['done']}\n")
    return int(any(counts.part(name)["bad"] for name in asked.parts))


if __name__ == "__main__":
    sys.exit(main())
