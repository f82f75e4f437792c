r"""Starts, pairings, and the way from blocks to vectors.

**The paper's initialisation** (Eq. init-setting and init-setting-odd), all sign combinations.

.. math::
    W_m^{(0)} = \pm\frac{1}{2\sqrt{d}}\,(I\;0) \;\pm\; \frac12\,\bar u\,\bar u'^\top, \qquad
    w_1^{(0)} = \pm\bar u \;\text{(odd order)},

u, u' standard normal, drawn once and shared by all starts: 4^k starts at order 2k, 2^{2k+1} at order 2k+1, 2^k̄
either way.

At odd order half of them are the other half over again: −w_1 with a pair's W_m is w_1 with −W_m.  With ``spare`` the
second choice of the vector block is another random vector instead of −w_1: a vector that stands still in Phase I has
nothing but its start, and of two starts the better one counts.

**Which modes make a pair**: the reference-parameter search over all pairings at once.  The paper pairs neighbours and
profits from Cor(v_1, v_2), Cor(v_3, v_4), … alone: with v_1 = v_3 it gains nothing.  The score of the c_3 search (Eq.
esti-cor-event), :math:`\langle\bigotimes_m (I\;0), T\rangle`, has mean :math:`\lambda\prod_m Cor_m` for every pairing,
and one sample serves all :math:`(\bar k-1)!!` of them (15 at order 6), at one number each.  So a test of the search
takes the pairing with the largest |mean score| and compares that with the threshold.  With ``MARGIN`` times as many
samples the threshold is 4 standard deviations of a score, which one of 15 pairings passes by chance with probability
0.1 %.

**From a block to its vectors**: the estimator step of the paper (Section simple-top-eig).  A converged block is close
to :math:`v v'^\top`: v is the top eigenvector of :math:`W W^\top` and v' that of :math:`W^\top W`.  Two ways, as in the
paper: the power method, and gradient ascent on :math:`\langle v, W W^\top v\rangle` (Eq. compute-top-eigenvector-GA).
Erratum 2: at odd order block m yields :math:`\hat v_{2m-2}, \hat v_{2m-1}`.

Either vector alone is known up to sign; the two are given the signs with which :math:`\langle W, \hat v \hat
v'^\top\rangle \ge 0`, so that the tensor of all vectors has the sign of the tensor of all blocks (erratum 13).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tpca.errors import SolverError
from tpca.solvers.rank_one import split_blocks
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition, Replicas, unit


def sign_starts(partition: Partition, rng: np.random.Generator, spare: bool = False) -> Replicas:
    """All 2^k̄ starts as replicas: one array ``(2^k̄, *block shape)`` per block."""
    choices = [_choices(shape, rng, spare) for shape in partition.shapes]
    starts = list(itertools.product(*choices))
    return tuple(np.stack([start[m] for start in starts]) for m in range(len(choices)))


def identity(shape: tuple[int, ...]) -> Array:
    """(I 0): ones on the diagonal of a d × d' block, d ≤ d'."""
    rows, columns = shape
    return np.eye(rows, columns)


def _choices(shape: tuple[int, ...], rng: np.random.Generator, spare: bool) -> list[Array]:
    """What a block may begin with: all signs of identity and random part of a pair; of a vector ±u, or u and u'."""
    vectors = [unit(rng.standard_normal(length)) for length in shape]
    if len(shape) == 1:
        return [vectors[0], unit(rng.standard_normal(shape[0])) if spare else -vectors[0]]
    parts = [identity(shape) / (2 * np.sqrt(shape[0])), np.multiply.outer(*vectors) / 2]
    return [e * parts[0] + f * parts[1] for e, f in itertools.product((1.0, -1.0), repeat=2)]


MARGIN = 2.0


def pairings_of(dims: Sequence[int]) -> list[Partition]:
    """All pairings, neighbours first; at odd order the shortest mode stays alone."""
    usual = Partition.pairs(dims)
    single = [group for group in usual.groups if len(group) == 1]
    rest = [n for group in usual.groups if len(group) == 2 for n in group]
    return [Partition(tuple(dims), (*single, *pairs)) for pairs in _matchings(tuple(rest))]


def score_query(partition: Partition, vector: Array) -> Query:
    """The score of Eq. esti-cor-event: identities for pairs; ``vector`` is the start of the vector block, if any."""
    shapes = partition.shapes
    blocks = [identity(shape) if len(shape) == 2 else vector for shape in shapes]
    square = tuple(m for m, shape in enumerate(shapes) if len(shape) == 2 and shape[0] == shape[1])
    return Query(partition, tuple(block[None] for block in blocks), gradients_of=(0,), traced=square)


def _matchings(modes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to pair ``modes``, which are in order of length, the first with the second in the first of them."""
    if not modes:
        yield ()
        return
    first, *others = modes
    for partner in others:
        left = tuple(n for n in others if n != partner)
        yield from (((first, partner), *pairs) for pairs in _matchings(left))


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
