"""What an estimator's options ask for: a seed, a solver, and lines of text that say how far a fit is."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from tpca.checkpoint import Checkpoints
from tpca.errors import check_integer
from tpca.solvers.options import check_folder

KNOWN = ("strength", "error", "log_evidence", "reward")  # numbers of a record that a line tells


def seed_from(random_state: Any, resumed: str | os.PathLike[str] | None = None) -> int:
    """A seed from a whole number, a generator, or ``None``, which gives a new one every time.

    A fit that is ``resumed`` from a folder takes, if none is given, that of its last checkpoint there.
    """
    if random_state is None and resumed is not None:
        with warnings.catch_warnings():  # the run itself will say what is wrong with a checkpoint
            warnings.simplefilter("ignore")
            stored = Checkpoints(check_folder("checkpoint", resumed)).load()
        if stored is not None:
            return int(stored["settings"]["random_state"])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31))
    return check_integer("random_state", random_state, 0, instead=", a random generator or None")


class Lines:
    """A line on standard output whenever the samples have doubled, or (``verbose`` above 1) after every round."""

    def __init__(self, verbose: int) -> None:
        self._every = 2.0 if verbose == 1 else 1.0
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        """Tell what the record of a round says."""
        samples = int(record["samples"])
        if samples < self._next:
            return
        self._next = self._every * samples
        numbers = "  ".join(f"{name} {record[name]:.4g}" for name in KNOWN if name in record)
        say(f"{samples:,} sample{'s' if samples != 1 else ''}  {record['phase']}  {numbers}")


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(f"[TensorPCA] {text}".rstrip() + "\n")
