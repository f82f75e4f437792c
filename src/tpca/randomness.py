"""Random generators with a purpose: one seed for truth, samples and solver must not mean the same numbers."""

from __future__ import annotations

import zlib

import numpy as np

from tpca.errors import TpcaError


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``purpose``, independent of that of any other purpose."""
    if seed < 0:
        raise TpcaError(f"seed must be a non-negative integer, got {seed}.")
    return np.random.default_rng([int(seed), zlib.crc32(purpose.encode())])
