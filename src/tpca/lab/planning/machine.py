"""The machine at hand, measured in a moment: how fast samples are added up, how fast arrays are multiplied."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ADDED = (8, 2**19)  # entries: 32 MB, more than most caches hold
SQUARE = 384


@dataclass(frozen=True)
class Machine:
    """Bytes of samples added up a second and floating-point operations a second, by one worker; and its cores."""

    bandwidth: float
    flops: float
    cores: int

    def seconds(self, nbytes: float, flops: float, workers: int = 1) -> float:
        """Time to read and add up ``nbytes`` of samples and to compute ``flops``, shared by ``workers``."""
        return (nbytes / self.bandwidth + flops / self.flops) / workers


@functools.cache
def this_machine() -> Machine:
    """Measured once a process, the best of a few tries, in well under a second."""
    samples, square = np.ones(ADDED), np.ones((SQUARE, SQUARE))
    adding = min(_timed(lambda: samples.sum(axis=0)) for _ in range(4))
    multiplying = min(_timed(lambda: square @ square) for _ in range(4))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(samples.nbytes / adding, 2 * SQUARE**3 / multiplying, cores)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-6)
