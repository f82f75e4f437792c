r"""Which modes make a pair: the reference-parameter search over all pairings at once.

The paper pairs neighbours and profits from Cor(v_1, v_2), Cor(v_3, v_4), … alone: with v_1 = v_3 it gains nothing.  The
score of the c_3 search (Eq. esti-cor-event), :math:`\langle\bigotimes_m (I\;0), T\rangle`, has mean
:math:`\lambda\prod_m Cor_m` for every pairing, and one sample serves all :math:`(\bar k-1)!!` of them (15 at order 6),
at one number each.  So a test of the search takes the pairing with the largest |mean score| and compares that with the
threshold.  With ``MARGIN`` times as many samples the threshold is 4 standard deviations of a score, which one of 15
pairings passes by chance with probability 0.1 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpca.solvers.paper.starts import identity
from tpca.tensors import Query
from tpca.tensors.blocks import Array, Partition

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
