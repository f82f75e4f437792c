"""Damaged files of every format: they are read as their own library reads them, or refused in one line."""

import contextlib
import io
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from attack.cases import Part
from attack.forks import SECONDS, Fork
from damage import read_damaged
from damage_kinds import KINDS
from tpca.checkpoint import CheckpointWarning
from tpca.errors import StreamWarning

SOME = [kind for kind in KINDS if kind != "checkpoint"]
BATCH = 40  # files that one fork reads


class Mutated(Part):
    """A trial is some files of one kind, each damaged by itself, read in one fork as long as that lives."""

    def trial(self, number, rng):
        kind = SOME[number % len(SOME)]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            (folder / "good").mkdir()
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                made = Fork(lambda: KINDS[kind][0](folder / "good")).end()
            assert made.code == 0, made
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
            outcome, why = read_damaged(kind, folder, np.random.default_rng(seed))
            lines.write(f"{outcome} {f'seed {seed}: {why!r}' if why else ''}\n")
            lines.flush()
