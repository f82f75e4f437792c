"""An endless, reproducible source of samples: signal plus noise, drawn batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpca.errors import ModelError
from tpca.integers import check_integer
from tpca.model.noise import check_dtype, noise_law
from tpca.randomness import generator
from tpca.tensors.blocks import check_dims

# A batch of about this many entries keeps the buffer small and BLAS busy.
BATCH_ENTRIES = 2**20


class Samples:
    """Endless batches ``signal + E`` of shape ``(batch_size, *dims)``; every ``iter`` starts the same stream again.

    The samples do not depend on ``batch_size``: noise is drawn in sample order from one generator.
    With ``signal=None`` the samples are pure noise.
    """

    def __init__(
        self,
        dims: tuple[int, ...],
        signal: NDArray[Any] | None = None,
        noise: str = "gaussian",
        random_state: int = 0,
        batch_size: int | None = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.dims = check_dims(dims)
        self.noise = noise
        self.random_state = random_state
        self.dtype = check_dtype(dtype)
        usual = max(1, BATCH_ENTRIES // math.prod(self.dims))
        self.batch_size = usual if batch_size is None else check_integer("batch_size", batch_size, error=ModelError)
        self._law = noise_law(noise)
        self._signal = None if signal is None else np.asarray(signal, dtype=self.dtype)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rng = generator(self.random_state, "samples")
        while True:
            batch = self._law(rng, self.batch_size, self.dims, self.dtype)
            if self._signal is not None:
                batch += self._signal
            yield batch

    def __repr__(self) -> str:
        asked = f"noise={self.noise!r}, random_state={self.random_state}, batch_size={self.batch_size}"
        return f"Samples(dims={self.dims}, {asked})"
