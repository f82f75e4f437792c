"""What a solver asks of data, and what it gets: gradients and rewards of replicas, the paper's access model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.blocks import Array, Partition


@dataclass(frozen=True)
class Query:
    """Replicas of the blocks of a partition, and the blocks whose gradients are wanted (``None``: all)."""

    partition: Partition
    replicas: tuple[NDArray[Any], ...]
    wanted: tuple[int, ...] | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose gradients are wanted."""
        return tuple(range(len(self.partition))) if self.wanted is None else self.wanted


@dataclass(frozen=True)
class Answer:
    """Gradients for one query, by block, each of shape ``(R, *block shape)``, and the rewards ``(R,)``."""

    gradients: dict[int, Array]
    rewards: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the gradients and rewards."""
        return sum(g.nbytes for g in self.gradients.values()) + self.rewards.nbytes


def rewards(gradients: dict[int, Array], replicas: Sequence[Array]) -> Array:
    """Rewards from any block's gradient, by 1-homogeneity: R = <grad_m R, W_m> (paper, Section 3.1)."""
    block = min(gradients, key=lambda m: gradients[m].size)
    count = len(replicas[block])
    products: Array = np.einsum("ri,ri->r", gradients[block].reshape(count, -1), replicas[block].reshape(count, -1))
    return products
