r"""Short sub-batches of large samples, on two cores: each adds up one half of the entries.

A half is half of the rows of an unfolding, which goes through all sub-batches of a batch by itself: samples are added,
and wherever a sub-batch ends it is contracted with the few vectors asked about (:mod:`tpca.tensors.sub_batches`).  The
halves are the same however many cores there are (:func:`tpca.threads.share`), and so is what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tpca.tensors.adding import add_rows
from tpca.tensors.blocks import Array
from tpca.tensors.few_replicas import FewReplicas, HalfLooks
from tpca.threads import share

LARGE = 2**17  # entries of samples that are cut, whether there is one of them or many: sums do not depend on that
SHARED = 2**20  # entries of all samples together that another thread is woken for: reading them takes some 0.2 ms


class Cut(NamedTuple):
    """Samples ``start`` to ``stop`` of a batch, of one ``sub_batch``, and whether they end it."""

    sub_batch: int
    start: int
    stop: int
    ends: bool


def add_in_halves(
    total: NDArray[Any], samples: NDArray[Any], weight: float, cuts: Sequence[Cut], few: FewReplicas
) -> list[list[dict[int, Array]]]:
    """Add ``weight`` times the samples to ``total``, in place; the gradients wherever a sub-batch ends."""
    rows = few.rows
    matrix, each = total.reshape(rows, -1), samples.reshape(len(samples), rows, -1)

    def work(looks: HalfLooks) -> None:
        half = matrix[looks.rows]
        for cut in cuts:
            added = each[cut.start : cut.stop, looks.rows]
            add_rows(half.reshape(-1), added.reshape(len(added), half.size), weight)
            if cut.ends:
                looks.take(half)

    first, second = few.looks(slice(0, rows // 2)), few.looks(slice(rows // 2, rows))
    share(work, (first, second), worth=samples.size >= SHARED)
    return few.together(first, second)
