r"""From a block to its vectors: the estimator step of the paper (Section simple-top-eig).

A converged block is close to :math:`v v'^\top`: v is the top eigenvector of :math:`W W^\top` and v' that of
:math:`W^\top W`.  Two ways, as in the paper: the power method, and gradient ascent on
:math:`\langle v, W W^\top v\rangle` (Eq. compute-top-eigenvector-GA).  Erratum 2: at odd order block m yields
:math:`\hat v_{2m-2}, \hat v_{2m-1}`.

Either vector alone is known up to sign; the two are given the signs with which
:math:`\langle W, \hat v \hat v'^\top\rangle \ge 0`, so that the tensor of all vectors has the sign of the tensor of
all blocks (erratum 13).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpca.errors import SolverError
from tpca.solvers.rank_one import split_blocks
from tpca.tensors.blocks import Array, Partition, unit

MAX_ITERATIONS = 10_000
# Squared change of a unit vector at which iterating stops: far below any statistical error, above rounding.
MOVE_TOL = 1e-24


def power_method(matrix: Array, rng: np.random.Generator) -> Array:
    """Iterate v ← W Wᵀ v / ‖·‖ until it stands still."""
    return _iterate(lambda v: matrix @ (matrix.T @ v), len(matrix), rng)


def gradient_ascent(matrix: Array, rng: np.random.Generator) -> Array:
    """Iterate v ← v + η ∇⟨v, W Wᵀ v⟩ = (I + 2η W Wᵀ) v, with η = 1/‖W‖²; rescaled, which changes no direction."""
    eta = 1.0 / float(np.sum(matrix**2))
    return _iterate(lambda v: v + 2 * eta * (matrix @ (matrix.T @ v)), len(matrix), rng)


def _iterate(advance: Callable[[Array], Array], length: int, rng: np.random.Generator) -> Array:
    v = unit(rng.standard_normal(length))
    for _ in range(MAX_ITERATIONS):
        new = unit(advance(v))
        moved = float(np.sum((new - v) ** 2))
        v = new
        if moved < MOVE_TOL:
            break
    return v


METHODS = {"power": power_method, "ascent": gradient_ascent}


def block_vectors(
    partition: Partition, blocks: tuple[Array, ...], method: str, rng: np.random.Generator
) -> tuple[Array, ...]:
    """The top vectors of every block of one replica, in the user's mode order; ⟨W_m, v̂ v̂′ᵀ⟩ ≥ 0 for every pair."""
    if method not in METHODS:
        raise SolverError(f"estimator must be one of {', '.join(METHODS)}, got {method!r}.")

    def split(block: Array) -> list[Array]:
        if block.ndim == 1:
            return [unit(block)]
        left, right = METHODS[method](block, rng), METHODS[method](block.T, rng)
        return [left, -right if left @ block @ right < 0 else right]

    return tuple(split_blocks(partition.groups, blocks, split))
