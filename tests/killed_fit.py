"""A fit in a process of its own, to be killed by tests/test_checkpoint.py."""

import time

from tpca.data import open_stream
from tpca.solvers.race.run import RaceSolver


def fit(data, folder, options, stream, pause):
    """A race that leaves a checkpoint after every round, goes on from the last, and pauses after every round."""
    kept = {"checkpoint": folder, "checkpoint_every": 0, "resume": True, "callbacks": [lambda _: time.sleep(pause)]}
    RaceSolver(**options, **kept).run(open_stream(data, **stream))
