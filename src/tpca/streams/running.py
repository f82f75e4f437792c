r"""Derived samples of what passes by once: sums of a block are held, never its samples.

With the columns Z = (1, nuisances, covariates) of a block's samples and their weights s, the tensors
:math:`M = \sum_i s_iz_i\otimes T_i`, one for every column, and the Gram matrix :math:`G = \sum_i s_iz_iz_i^\top` are
all that is needed: with A the columns that are taken out of covariate y,

.. math:: \sum_i w_iT_i = M_y - G_{yA}G_{AA}^{+}M_A, \qquad S_b = G_{yy} - G_{yA}G_{AA}^{+}G_{Ay} .

Where entries are missing there is a G for every entry (:mod:`tpca.streams.plan`), as long as the block lasts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import numpy as np

from tpca.errors import SampleError, StreamError
from tpca.streams.blocking import Contrast
from tpca.streams.conditions import Conditions
from tpca.streams.plan import NOTHING, Plan, entry_contrast, entry_grams
from tpca.streams.protocol import Stream
from tpca.streams.rows import Rows, origin_of, with_rows
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.blocks import Array
from tpca.tensors.digest import digest

LARGEST = 2**22  # entries of a sample that may be held a few times over


class RunningBlocks:
    """Sums up the block at hand; derived samples of all ``questions`` come out when it is complete.

    A block ends by ``rule``, or is a group where there is none.  ``scales`` are c of every question, whose covariates
    are the last columns.  The mean is a question whose only column is the constant one, which is then not taken out.
    Where samples may be ``partial``, derived ones say how much every entry counts.
    """

    def __init__(
        self,
        dims: tuple[int, ...],
        rule: Contrast | None,
        scales: Sequence[float],
        mean: bool,
        partial: bool = False,
    ) -> None:
        self.dims, self._rule, self.scales, self._mean, self._partial = dims, rule, tuple(scales), mean, partial
        self.energies, self.blocks, self.idle = np.zeros(len(scales)), np.zeros(len(scales), dtype=int), 0
        self._sums: Array | None = None
        self._gram: Array | None = None
        self._grams: Array | None = None  # of every entry, of the samples of which some are missing
        self._count, self._group, self._over = 0, -1, set[int]()

    @property
    def nbytes(self) -> int:
        """Bytes of the sums held."""
        return sum(0 if held is None else held.nbytes for held in (self._sums, self._grams))

    @property
    def factors(self) -> Array:
        """By what strengths of derived samples are multiplied: c over the mean of S_b, one where c was known ahead.

        Also where derived samples say how much they count.
        """
        if self._partial:
            return np.ones(len(self.scales))
        return np.asarray(self.scales) * np.maximum(self.blocks, 1) / np.where(self.energies > 0, self.energies, 1.0)

    def take(self, batch: Batch, rows: Rows) -> Iterator[list[DenseBatch | None]]:
        """Add samples; of every complete block a derived sample for each question, or none without contrast."""
        start = 0
        for stop, ends in self._cut(rows):
            if self._begins_group(rows, start):
                yield self._close()
            self._add(batch[start:stop], rows[start:stop])
            if ends:
                yield self._close()
            start = stop

    def copied(self) -> RunningBlocks:
        """A copy that can be brought to its end; the sums, which that leaves as they are, are shared."""
        twin = copy.copy(self)
        twin.energies, twin.blocks = self.energies.copy(), self.blocks.copy()
        return twin

    def end(self) -> list[DenseBatch | None] | None:
        """What is left at the end: a last, shorter block, or a group."""
        return self._close() if self._count else None

    def _cut(self, rows: Rows) -> Iterator[tuple[int, bool]]:
        """Where the samples of one block stop, and whether it ends there."""
        if self._rule is None:
            assert rows.groups is not None
            yield from ((int(i) + 1, False) for i in np.flatnonzero(np.diff(rows.groups)))
            yield len(rows), False
            return
        covariates = rows.columns[:, rows.columns.shape[1] - len(self._rule.targets or ()) :]
        stop = 0
        for i, (row, weight) in enumerate(zip(covariates.tolist(), rows.weight.tolist(), strict=True)):
            if self._rule.add(row, weight):
                stop = i + 1
                yield stop, True
        if stop < len(rows):
            yield len(rows), False

    def _begins_group(self, rows: Rows, start: int) -> bool:
        """Whether a group is over and a new one begins, which must be one that was not there before."""
        if self._rule is not None:
            return False
        assert rows.groups is not None
        group, last = int(rows.groups[start]), self._group
        self._group = group
        if group == last:
            return False
        if group in self._over:
            raise SampleError(
                f"group {group} comes back after others: samples of a stream that is read once are summed up group by "
                "group; bring those of a group together, or give an array."
            )
        self._over.add(group)
        return self._count > 0

    def _add(self, batch: Batch, rows: Rows) -> None:
        weighted = rows.columns * rows.weight[:, None]
        if self._sums is None:
            self._sums = np.zeros((rows.columns.shape[1], int(np.prod(self.dims))))
            self._gram = np.zeros((rows.columns.shape[1],) * 2)
        assert self._gram is not None
        if isinstance(batch, DenseBatch):
            self._sums += weighted.T @ batch.samples.reshape(len(batch), -1)
        else:
            for i, row in enumerate(weighted):
                for total, w in zip(self._sums, row, strict=True):
                    batch[i : i + 1].add_to(total.reshape(self.dims), float(w))
        if isinstance(batch, DenseBatch) and batch.exposure is not None:
            grams = entry_grams(rows.columns, rows.weight, batch.exposure.reshape(len(batch), -1))
            self._grams = grams if self._grams is None else self._grams + grams
        else:
            self._gram += weighted.T @ rows.columns
        self._count += len(batch)

    def _close(self) -> list[DenseBatch | None]:
        """Derived samples of the block at hand, which begins anew."""
        sums, gram = self._sums, self._gram
        assert sums is not None
        assert gram is not None
        gram = gram if self._grams is None else self._grams + gram[:, :, None]
        self._count, self._sums, self._gram, self._grams = 0, None, None, None
        first = len(gram) - len(self.scales)
        found = [self._question(sums, gram, 0 if self._mean else first + j, j) for j in range(len(self.scales))]
        self.idle += all(one is None for one in found)
        return found

    def _question(self, sums: Array, gram: Array, own: int, j: int) -> DenseBatch | None:
        others = [] if self._mean else [i for i in range(len(gram)) if i != own]
        if gram.ndim == 3:
            contrast, exposure = entry_contrast(sums, gram, own, others)
            return self._counted(contrast, exposure, j) if exposure.any() else None
        taken = gram[own, others] @ np.linalg.pinv(gram[np.ix_(others, others)], rcond=1e-12, hermitian=True)
        energy = float(gram[own, own] - taken @ gram[others, own])
        if energy <= NOTHING * max(self.scales[j], float(gram[own, own])):
            return None
        return self._counted(sums[own] - taken @ sums[others], np.array([energy]), j)

    def _counted(self, contrast: Array, energy: Array, j: int) -> DenseBatch:
        """A derived sample of question ``j``, in units of c."""
        self.energies[j] += float(energy.mean())
        self.blocks[j] += 1
        derived = (contrast / self.scales[j]).reshape(1, *self.dims)
        if not self._partial:
            return DenseBatch(derived, shares=energy / self.scales[j])
        each = np.broadcast_to(energy / self.scales[j], contrast.shape).reshape(derived.shape)
        return DenseBatch(derived, exposure=each)


class DerivedPassing(Stream):
    """Samples that come in one order only, block by block: for one question, known ahead for all of them."""

    def __init__(self, stream: Stream, told: Conditions, plan: Plan, question: int, rule: Contrast | None) -> None:
        if np.prod(stream.dims) > LARGEST:
            raise StreamError(
                f"samples of {np.prod(stream.dims):,} entries that pass by once are too large for sums of blocks; "
                "store them, in an array or a file."
            )
        self._source, self._told, self._question = stream, told, question
        self._scale, self._rule = plan.scale, rule
        self.dims, self.dtype, self.kind = stream.dims, np.dtype(np.float64), stream.kind
        self.length = None if stream.length is None else len(plan)
        self.rereadable, self.nan_policy, self.labels = stream.rereadable, stream.nan_policy, stream.labels
        self.blocks = self._fresh()

    @property
    def identity(self) -> str:
        """Which samples, and what is known of them."""
        rows = Rows.of(self._told, origin_of(self._told))
        known = [rows.columns, rows.weight, *([] if rows.groups is None else [rows.groups])]
        rule = "groups" if self._rule is None else f"{self._rule.length} {self._rule.targets}"
        return f"{self._source.identity} blocks {rule} {self._question} {digest(known)}"

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Derived samples, those of one batch of the source together; those before ``start`` are drawn and dropped."""
        self.blocks, first, dropped = self._fresh(), 0, 0
        for batch, rows in with_rows(self._source, self._rows()):
            found = [one[0] for one in self.blocks.take(batch, rows) if one[0] is not None]
            dropped += batch.dropped
            if found:
                yield from self._batch(found, first, start, dropped)
                first, dropped = first + len(found), 0
        last = self.blocks.end()
        if last is not None and last[0] is not None:
            yield from self._batch([last[0]], first, start, dropped)

    def _batch(self, found: list[DenseBatch], first: int, start: int, dropped: int) -> Iterator[Batch]:
        if first >= start:
            shares = [one.shares for one in found if one.shares is not None]
            each = [one.exposure for one in found if one.exposure is not None]
            yield DenseBatch(
                np.concatenate([one.samples for one in found]),
                first,
                dropped,
                shares=np.concatenate(shares) if shares else None,
                exposure=np.concatenate(each) if each else None,
            )

    def _fresh(self) -> RunningBlocks:
        rule = copy.deepcopy(self._rule)
        return RunningBlocks(self.dims, rule, [self._scale], self._told.covariates is None, self.partial)

    def _rows(self) -> Rows:
        """Columns with the covariate that is asked for last: all others are taken out of it."""
        rows = Rows.of(self._told, origin_of(self._told))
        if self._told.covariates is None:
            return rows
        own = rows.columns.shape[1] - len(self._told.covariates.names) + self._question
        turn = [i for i in range(rows.columns.shape[1]) if i != own] + [own]
        return Rows(rows.columns[:, turn], rows.weight, rows.groups)
