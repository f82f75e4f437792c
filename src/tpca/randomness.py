"""Random generators with a purpose: one seed for truth, samples and solver must not mean the same numbers."""

from __future__ import annotations

import zlib

import numpy as np

from tpca.errors import TpcaError, check_integer


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``purpose``, independent of that of any other purpose."""
    return np.random.default_rng([check_integer("random_state", seed, 0, TpcaError), zlib.crc32(purpose.encode())])
