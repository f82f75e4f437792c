"""Samples that come in one order only, batch by batch, with what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, StreamError
from tpca.streams.checks import all_finite, to_floats, usable
from tpca.streams.conditions import Conditions
from tpca.streams.iterables import IterableStream
from tpca.streams.protocol import Stream
from tpca.tensors import Batch, DenseBatch
from tpca.tensors.blocks import Array
from tpca.tensors.dense import missing


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of some samples in a row: columns Z, weights s, and groups, ``None`` for blocks by number."""

    columns: Array
    weight: Array
    groups: NDArray[np.intp] | None

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, some: Any) -> Rows:
        return Rows(self.columns[some], self.weight[some], None if self.groups is None else self.groups[some])

    @classmethod
    def of(cls, told: Conditions, origin: Array) -> Rows:
        """Those of conditions; ``origin`` is subtracted from covariates and nuisances, which costs no information."""
        given = [told.nuisance] if told.covariates is None else [told.nuisance, told.covariates.columns]
        columns = np.hstack([np.ones((len(told), 1)), np.hstack(given) - origin])
        return cls(columns, told.weight, told.groups)


def origin_of(told: Conditions) -> Array:
    """Means of nuisances and covariates."""
    given = [told.nuisance] if told.covariates is None else [told.nuisance, told.covariates.columns]
    means: Array = np.hstack(given).mean(axis=0)
    return means


def with_rows(stream: Stream, rows: Rows) -> Iterator[tuple[Batch, Rows]]:
    """Batches of a stream, each with what is known of its samples; their numbers must agree."""
    seen, n = 0, len(rows)
    for batch, kept, read in raw_batches(stream):
        if seen + read > n:
            raise SampleError(f"y has {n} rows, and there are more samples; give a row for every sample.")
        own = rows[seen : seen + read]
        seen += read
        yield batch, own if kept is None else own[kept]
    if seen < n:
        raise SampleError(f"y has {n} rows for {seen} samples; give a row for every sample, and no more.")


def raw_batches(stream: Stream) -> Iterator[tuple[Batch, NDArray[np.bool_] | None, int]]:
    """Batches, which of their samples were kept (``None``: all), and how many were read."""
    if not isinstance(stream, IterableStream):
        for batch in stream.batches():
            if batch.dropped:
                raise StreamError("nobody can say which samples this stream leaves out; give y to those it keeps.")
            yield batch, None, len(batch)
        return
    seen = 0
    for block in stream.blocks:
        floats = to_floats(block)
        if stream.nan_policy == "raise" and not all_finite(floats):
            raise missing(seen + int(np.argmin(np.isfinite(floats).reshape(len(floats), -1).all(axis=1))))
        samples, exposure, kept = usable(floats, stream.nan_policy)
        seen += len(block)
        yield DenseBatch(samples, dropped=len(block) - len(samples), exposure=exposure), kept, len(block)
