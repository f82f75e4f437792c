r"""Short sub-batches of large samples, on two cores: each adds up one half of the entries.

A half is half of the rows of an unfolding, which goes through all sub-batches of a batch by itself: samples are added,
and wherever a sub-batch ends it is contracted with the few vectors asked about (:mod:`tpca.tensors.sub_batches`).  The
halves are the same however many cores there are (:func:`tpca.threads.share`), and so is what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tpca.tensors.adding import adder
from tpca.tensors.blocks import Array
from tpca.tensors.few_replicas import FewReplicas
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
) -> list[dict[int, Array]]:
    """Add ``weight`` times the samples to ``total``, in place; of every query the gradients where sub-batches end."""
    matrix, each = total.reshape(few.rows, -1), samples.reshape(len(samples), few.rows, -1)
    looks = few.looks(sum(cut.ends for cut in cuts))

    def work(number: int) -> None:
        rows, moment = looks.halves[number], 0
        half = matrix[rows]
        add = adder(half.reshape(-1), each[:, rows].reshape(len(each), half.size), weight)
        for cut in cuts:
            add(cut.start, cut.stop)
            if cut.ends:
                looks.take(number, moment, half)
                moment += 1

    share(work, range(len(looks.halves)), worth=samples.size >= SHARED)
    return looks.gradients()
