"""What a solver asks of data, and what it gets: gradients and rewards of replicas, the paper's access model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array, Partition


@dataclass(frozen=True)
class RankOne:
    """A component that is known already: ``strength`` times the outer product of ``vectors``."""

    strength: float
    vectors: tuple[Array, ...]


@dataclass(frozen=True)
class Query:
    """Replicas of the blocks of a partition, and ``gradients_of`` which blocks to take gradients (``None``: all).

    ``traced`` names square blocks whose one replica is the identity: what is contracted with it is traced.
    ``deflate`` holds components to subtract from every sample.  They are subtracted inside the contraction, where they
    are a few inner products; no sample is ever changed.
    ``by_part`` names blocks whose gradients are wanted for every sub-batch of the samples, too, of one replica only;
    rewards come with them, or (``()``) alone.  ``None``: nothing is.
    """

    partition: Partition
    replicas: tuple[NDArray[Any], ...]
    gradients_of: tuple[int, ...] | None = None
    deflate: tuple[RankOne, ...] = ()
    traced: tuple[int, ...] = ()
    by_part: tuple[int, ...] | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose gradients are asked for."""
        return tuple(range(len(self.partition))) if self.gradients_of is None else self.gradients_of

    @property
    def is_trace(self) -> bool:
        """Whether every gradient asked for is contracted with identities only."""
        others = [m for m in range(len(self.partition)) if m not in self.traced]
        return bool(self.traced) and (not others or (len(others) == 1 and list(self.blocks) == others))

    def for_gradients(self) -> Query:
        """The same without what sums of gradients do not need: known components, replicas of the block asked for."""
        own = self.blocks[0] if len(self.blocks) == 1 else None
        replicas = list(self.replicas)
        if own is not None:
            replicas[own] = np.broadcast_to(np.zeros((), replicas[own].dtype), replicas[own].shape)
        return dataclasses.replace(self, replicas=tuple(replicas), deflate=(), by_part=None)

    def __reduce__(self) -> Any:
        """Pickled with what is the same along an axis (a stride of 0) only once."""
        once = [tuple(slice(0, 1) if stride == 0 else slice(None) for stride in w.strides) for w in self.replicas]
        blocks = [(np.ascontiguousarray(w[some]), w.shape) for w, some in zip(self.replicas, once, strict=True)]
        return _unpickled, (self.partition, blocks, self.gradients_of, self.deflate, self.traced, self.by_part)


def _unpickled(partition: Partition, blocks: Sequence[Any], *more: Any) -> Query:
    return Query(partition, tuple(np.broadcast_to(small, shape) for small, shape in blocks), *more)


@dataclass(frozen=True)
class SubBatches:
    """Mean gradients ``(m, *block shape)`` and rewards ``(m,)`` of m sub-batches of ``sizes`` samples, in their order.

    What sub-batches the samples are cut into was fixed before they came (:mod:`tpca.tensors.gradients`).
    """

    sizes: Array
    gradients: dict[int, Array]
    rewards: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return sum(g.nbytes for g in self.gradients.values()) + self.rewards.nbytes + self.sizes.nbytes


@dataclass(frozen=True)
class Answer:
    """Gradients for one query, by block, each of shape ``(R, *block shape)``, and the rewards ``(R,)``.

    With :attr:`Query.by_part` also those of every sub-batch.
    """

    gradients: dict[int, Array]
    rewards: Array
    by_part: SubBatches | None = None

    @classmethod
    def empty(cls, query: Query) -> Answer:
        """Room for the answer: gradients in the dtype of their replicas, rewards in float64."""
        count, shapes = len(query.replicas[0]), query.partition.shapes
        gradients = {m: np.empty((count, *shapes[m]), dtype=query.replicas[m].dtype) for m in query.blocks}
        return cls(gradients, np.empty(count))

    @property
    def nbytes(self) -> int:
        """Bytes of the gradients and rewards."""
        parts = 0 if self.by_part is None else self.by_part.nbytes
        return sum(g.nbytes for g in self.gradients.values()) + self.rewards.nbytes + parts


def rewards(gradients: dict[int, Array], replicas: Sequence[Array]) -> Array:
    """Rewards from any block's gradient, by 1-homogeneity: R = <grad_m R, W_m> (paper, Section 3.1)."""
    block = min(gradients, key=lambda m: gradients[m].size)
    count = len(replicas[block])
    products: Array = np.einsum("ri,ri->r", gradients[block].reshape(count, -1), replicas[block].reshape(count, -1))
    return products


def subtract(gradients: dict[int, Array], vectors: Sequence[Array], query: Query) -> dict[int, Array]:
    r"""Gradients without the components ``query.deflate``; ``vectors[m]`` are the replicas' blocks as rows.

    The gradient of a component :math:`c\,u_1\otimes\dots\otimes u_k` is
    :math:`c\prod_{i\ne m}\langle w_i, u_i\rangle\,u_m`.
    """
    for known in query.deflate:
        rays = [ray.reshape(-1) for ray in query.partition.outer(known.vectors)]
        inner = np.stack([w @ ray for w, ray in zip(vectors, rays, strict=True)])
        for m in gradients:
            others = known.strength * np.delete(inner, m, axis=0).prod(axis=0)
            gradients[m] = gradients[m] - np.multiply.outer(others, rays[m])
    return gradients
