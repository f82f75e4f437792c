"""Seeds from what scikit-learn calls a random state."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from tpca.checkpoint import Checkpoints
from tpca.integers import check_integer


def seed_from(random_state: Any, resumed: str | os.PathLike[str] | None = None) -> int:
    """A seed from a whole number, a generator, or ``None``, which gives a new one every time.

    A fit that is ``resumed`` from a folder takes, if none is given, that of its last checkpoint there.
    """
    if random_state is None and resumed is not None:
        with warnings.catch_warnings():  # the run itself will say what is wrong with a checkpoint
            warnings.simplefilter("ignore")
            stored = Checkpoints(resumed).load()
        if stored is not None:
            return int(stored["settings"]["random_state"])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31))
    return check_integer("random_state", random_state, 0, instead=", a random generator or None")
