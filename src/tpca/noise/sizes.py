"""Logarithms of the sizes of entries: medians, means of rows and histograms, wherever the samples are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import cast, entries, fused, lowered, namespace, to_device, to_host

ROUGHLY = 2**11  # entries that tell the median size of a sample well enough
SWEEPS = 4  # over the modes, to take out the means of rows of which entries are missing


def log_sizes(values: Any) -> Any:
    """log2|x| of every entry; minus infinity of zeros."""
    xp = namespace(values)
    with np.errstate(divide="ignore"):
        return xp.log2(xp.abs(values))


def medians(logs: Any, there: Any) -> Array:
    """About the median of every sample; ``there`` says which entries are, ``None``: all."""
    xp, count = namespace(logs), logs.shape[0]
    flat, step = xp.reshape(logs, (count, -1)), 1 + entries(logs) // count // ROUGHLY
    if xp is np and there is None:
        return np.asarray(np.median(flat[:, ::step], axis=1))
    if xp is np:
        pairs = zip(flat, there.reshape(flat.shape), strict=True)
        return np.array([np.median(row[own][::step]) if own.any() else -math.inf for row, own in pairs])
    if there is None:
        return to_host(fused(_middles, step)(flat)).astype(np.float64)
    seen = xp.reshape(there, flat.shape)
    ordered = xp.sort(xp.where(seen, flat, xp.full_like(flat, math.inf)), axis=1)
    amounts = to_host(xp.sum(cast(seen, xp.int32), axis=1))
    middles = np.stack([np.maximum(amounts - 1, 0) // 2, np.minimum(amounts // 2, ordered.shape[1] - 1)], axis=1)
    places = middles + np.arange(count)[:, None] * ordered.shape[1]
    both = xp.take(xp.reshape(ordered, (-1,)), xp.asarray(places.reshape(-1), device=ordered.device))
    with np.errstate(invalid="ignore"):
        middle = to_host(both).astype(np.float64).reshape(-1, 2).mean(axis=1)
    return np.where(amounts > 0, middle, -math.inf)


def _middles(step: int, flat: Any) -> Any:
    """Medians of rows, of every step-th entry."""
    ordered = namespace(flat).sort(flat[:, ::step], axis=1)
    count = ordered.shape[1]
    return (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2


def taken_out(logs: Any) -> tuple[Any, Any, list[Any]]:
    """Logarithms, used up, without means of samples and, beside them, of rows of all modes; these means."""
    xp, axes = namespace(logs), tuple(range(1, logs.ndim))
    means = xp.reshape(xp.mean(xp.reshape(logs, (logs.shape[0], -1)), axis=1), (-1, *[1] * len(axes)))
    logs = lowered(logs, means)
    rows = [xp.mean(logs, axis=tuple(j for j in axes if j != i), keepdims=True) for i in axes]
    for row in rows:
        logs = lowered(logs, row)
    return logs, means, rows


def taken_out_partly(logs: Any, there: Any) -> tuple[Any, Any, list[Any]]:
    """The same, of what is there: least squares, a few sweeps over the modes."""
    xp, axes = namespace(logs), tuple(range(1, logs.ndim))
    seen = cast(there, logs.dtype)
    logs = xp.where(there, logs, xp.zeros_like(logs))
    means = xp.sum(logs, axis=axes, keepdims=True) / xp.sum(seen, axis=axes, keepdims=True)
    logs = lowered(logs, means * seen)
    rows: list[Any] = [0.0 for _ in axes]
    for _ in range(SWEEPS):
        for place, i in enumerate(axes):
            others = tuple(j for j in axes if j != i)
            counts = xp.sum(seen, axis=others, keepdims=True)
            more = xp.sum(logs, axis=others, keepdims=True) / xp.where(counts > 0, counts, xp.ones_like(counts))
            logs = lowered(logs, more * seen)
            rows[place] = rows[place] + more
    return logs, means, rows


def row_means(logs: Any, places: Sequence[NDArray[Any]], dims: Sequence[int]) -> tuple[Any, list[Array]]:
    """Some entries of a sample, used up, at ``places`` along every mode, less the means of their rows; these means."""
    xp = namespace(logs)
    rows = []
    if xp is np:
        for place, d in zip(places, dims, strict=True):
            rows.append(np.bincount(place, logs, d) / np.maximum(np.bincount(place, minlength=d), 1))
        for place, row in zip(places, rows, strict=True):
            logs -= row[place]
        return logs, rows
    left = logs
    for place, d in zip(places, dims, strict=True):
        counts = np.maximum(np.bincount(place, minlength=d), 1)
        own = xp.asarray(np.array(place), device=logs.device)
        belongs = cast(own[:, None] == xp.arange(d, device=logs.device, dtype=own.dtype)[None, :], logs.dtype)
        rows.append(to_host(logs @ belongs).astype(np.float64) / counts)
        left = left - belongs @ to_device(rows[-1], logs)
    return left, rows


def histogram(values: Any, places: Any, bins: int) -> NDArray[np.int64]:
    """How many entries below and above zero are in each bin, ``(2, bins)``; ``places`` are whole numbers from 0 on."""
    xp = namespace(values)
    if xp is np:
        whole = places.astype(np.int16)
        return np.stack([np.bincount(whole[these], minlength=bins) for these in (values < 0, values > 0)])
    key = xp.where(values < 0, places, places + bins)
    key = xp.reshape(xp.where(values == 0, xp.full_like(key, 2 * bins), key), (-1,))
    edges = to_device(np.arange(2 * bins + 1) - 0.5, key)
    found = to_host(xp.searchsorted(xp.sort(key), edges))
    return np.diff(found).reshape(2, bins)
