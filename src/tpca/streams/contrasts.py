r"""Contrasts within blocks: an effect as the mean of a derived stream.

With :math:`T_i = B + y_i\lambda v_1\otimes\dots\otimes v_k + \text{noise}` and any background tensor B, samples are put
into blocks b, and within each

.. math::
    w_i = s_i\,(y_i - \hat y_i), \qquad S_b = \sum_{i\in b} w_iy_i, \qquad
    T'_b = \frac1c\sum_{i\in b} w_iT_i, \qquad c = \frac1{N'}\sum_b S_b ,

:math:`\hat y_i` what a constant and the nuisances of the block explain of y (least squares with the weights s_i).
:math:`\sum_b w_i = 0`, so that B cancels in every block; the mean of all N' derived samples is

.. math:: \frac1{N'}\sum_b T'_b = \frac{\sum_iw_iT_i}{\sum_iw_iy_i} = \lambda v_1\otimes\dots\otimes v_k + \text{noise},

the least-squares coefficient of y with an intercept, and nuisances, for every block.  One c for all keeps that exact;
derived samples then hold unequal *shares* S_b/c of the signal, one on average, and noise of unequal levels, S_bσ²/c²,
σ²/c on average.  A batch says which shares its samples have: a sum of them is S_b/c samples' worth, of signal and of
noise alike, and so it is counted where groups of them are compared (:mod:`tpca.solvers.mean.grouping`); the tests allow
for unequal levels anyway.

*The price* is a degree of freedom for every block and every nuisance: of the sum of squares of y the share
``efficiency`` :math:`= \sum_b S_b/S_{all}` lies within blocks, 1 - 1/m on average for y in random order and blocks of
m, and so much of the samples' information is used.

*Order.*  Neighbours make a block (:mod:`tpca.streams.blocking`), so that drifts slower than a block cancel with the
background.  Where they differ too little in y, samples are dealt within windows of 8m, 64m, ... samples, or all.

*More than two labels*, with indicators E of K labels and their Gram matrix :math:`G = \frac1{N'}\sum_b E_b^\top W_b =
UDU^\top` of rank K - 1: :math:`T'_b = D^{-1/2}U^\top W_b^\top T_b/\sqrt{\bar m}` has one mode more, of length K - 1,
along which its noise is white.  Its leading component is the pattern that separates the labels most; its strength is
the standard deviation of the amplitudes within blocks; those of labels are :math:`\sqrt{\bar m}\,UD^{-1/2}u\lambda`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.streams.blocking import block_length, contrast_targets, dealt, neighbours
from tpca.streams.conditions import Conditions
from tpca.streams.plan import NOTHING, Plan, residual_weights
from tpca.tensors.blocks import Array

COUNTED = 4  # blocks with contrast, at least, where most of y varies between them
STEP = 8  # a window is so many times as long as the one before
GOOD, POOR = 0.7, 0.02  # efficiencies: from here on neighbours may stay together; below there is nothing to go by


def plans(told: Conditions, block: int | None = None, any_order: bool = True) -> list[Plan]:
    """One plan for every question: each covariate beside the others, or all labels at once; or the mean."""
    covariates = told.covariates
    if covariates is None:
        return [_mean_plan(told)]
    least = len(covariates.labels) if covariates.stacked else 1
    length = block or max(block_length(len(told), told.freedom), least)
    windows = [0]
    while any_order and told.groups is None and windows[-1] < len(told):
        windows.append(min(STEP * max(windows[-1], length), len(told)))
    best: list[Plan] = []
    for window in windows:
        found = _at_window(told, length, window, block is not None)
        if not best or _worst(found) > _worst(best):
            best = found
        if _worst(best) >= GOOD:
            break
    for name, plan in zip(covariates.questions, best, strict=True):
        if plan.efficiency < POOR or (len(plan) < COUNTED and plan.efficiency < GOOD):
            raise _no_contrast(name, plan, told, any_order)
    return best


def _at_window(told: Conditions, length: int, window: int, fixed: bool) -> list[Plan]:
    order, starts, stops = _blocks(told, length, window, fixed)
    return [_plan(told, question, order, starts, stops, window) for question in _questions(told)]


def _questions(told: Conditions) -> list[tuple[Array, Array]]:
    """What is asked for, and what is taken out of it, as columns."""
    assert told.covariates is not None
    columns = told.covariates.columns - told.covariates.columns.mean(axis=0)
    nuisance = told.nuisance - told.nuisance.mean(axis=0)
    if told.covariates.stacked:
        return [(columns, nuisance)]
    each = range(columns.shape[1])
    return [(columns[:, [j]], np.hstack([nuisance, np.delete(columns, j, axis=1)])) for j in each]


def _blocks(
    told: Conditions, length: int, window: int, fixed: bool
) -> tuple[NDArray[np.intp] | None, NDArray[np.int64], NDArray[np.int64]]:
    """Blocks of neighbours, of groups, or dealt within windows; samples without weight are in none."""
    used = np.flatnonzero(told.weight)
    if told.groups is not None:
        turn = used[np.argsort(told.groups[used], kind="stable")]
        edges = np.flatnonzero(np.diff(told.groups[turn], prepend=-1, append=-2))
        return _ordered(turn, len(told)), edges[:-1], edges[1:]
    used = dealt(used, length, window) if window else used
    columns = np.zeros((len(used), 0)) if told.covariates is None else told.covariates.columns[used]
    targets = None if fixed else contrast_targets(columns, told.weight[used], length)
    edges = neighbours(columns, told.weight[used], targets, length if fixed else None)
    return _ordered(used, len(told)), edges[:-1], edges[1:]


def _ordered(order: NDArray[np.intp], n: int) -> NDArray[np.intp] | None:
    return None if np.array_equal(order, np.arange(n)) else order


def _plan(
    told: Conditions,
    question: tuple[Array, Array],
    order: NDArray[np.intp] | None,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    window: int,
) -> Plan:
    """Weights of one question in given blocks."""
    pick = slice(None) if order is None else order
    y, extra, s = question[0][pick], question[1][pick], told.weight[pick]
    w = np.zeros_like(y)
    for size in np.unique(stops - starts):
        places = starts[stops - starts == size][:, None] + np.arange(size)
        w[places] = residual_weights(y[places], extra[places], s[places])
    energy = np.add.reduceat(np.einsum("ij,ij->i", w, y), starts)
    around = float(np.sum(residual_weights(y[None], extra[None, :, :0], s[None])[0] * y))
    all_of_it = float(np.sum(residual_weights(y[None], extra[None], s[None])[0] * y))
    full = energy > NOTHING * around
    efficiency = float(energy[full].sum() / all_of_it) if all_of_it > NOTHING * around else 0.0
    known: dict[str, Any] = {"efficiency": efficiency, "idle": int(np.sum(~full)), "window": window}
    known["design"] = (y, extra, s)
    starts, stops, energy = starts[full], stops[full], energy[full]
    if not full.any():
        return Plan(order, starts, stops, w, energy, 1.0, **known)
    if told.covariates is not None and told.covariates.stacked:
        return _stacked_plan(told.covariates.labels, order, starts, stops, w, y, **known)
    scale = float(energy.mean())
    return Plan(order, starts, stops, w / scale, energy / scale, scale, **known)


def _stacked_plan(
    labels: tuple[str, ...],
    order: NDArray[np.intp] | None,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    w: Array,
    y: Array,
    **known: Any,
) -> Plan:
    """Contrasts of more than two labels, white among each other."""
    inside = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    gram = y[inside].T @ w[inside] / len(starts)
    values, axes = np.linalg.eigh(gram)
    if values[1] < POOR * values[-1]:
        lonely = labels[int(np.argmax(np.abs(axes[:, 1])))]
        raise SampleError(
            f"label {lonely!r} hardly shares a block with another: it cannot be compared; give more samples of it, or "
            "a larger block_size."
        )
    mean_length = float(np.mean(stops - starts))
    root = axes[:, 1:] / np.sqrt(values[1:])
    shares = np.add.reduceat(np.einsum("ij,ij->i", w @ root, y @ root), starts) / (len(labels) - 1)
    return Plan(
        order, starts, stops, w @ root / np.sqrt(mean_length), shares, mean_length,
        basis=np.sqrt(mean_length) * root, **known,
    )  # fmt: skip


def _mean_plan(told: Conditions) -> Plan:
    """The weighted mean: a derived sample is a sample times its weight, or the weighted sum of a group."""
    order, starts, stops = _blocks(told, 1, 0, fixed=True)
    s = told.weight if order is None else told.weight[order]
    energy = np.add.reduceat(s, starts)
    scale = float(energy.mean())
    return Plan(order, starts, stops, s[:, None] / scale, energy / scale, scale, 1.0)


def _worst(found: list[Plan]) -> float:
    return min(plan.efficiency for plan in found)


def _no_contrast(name: str, plan: Plan, told: Conditions, any_order: bool) -> SampleError:
    """The error for y that does not vary within blocks."""
    share = f"{plan.efficiency:.2g} of its variation lies within them"
    if told.groups is not None:
        return SampleError(
            f"{name} does not vary within groups, {share}: an effect is what differs within a group; leave groups out, "
            "with one sample, such as its mean, for every group."
        )
    if plan.efficiency <= 0 and any_order:
        several = told.covariates is not None and len(told.covariates.names) > 1 and not told.covariates.stacked
        others = "other columns of y and nuisances" if several else "nuisances"
        return SampleError(f"{name} is explained by the {others}, nothing of it is left; leave some of them out.")
    return SampleError(
        f"{name} hardly varies among samples that follow each other, {share}: a stream is read once, in its order, and "
        "the background cancels within blocks; give an array or stored data, which can be read in any order, mix the "
        "conditions where samples are made, or set a larger block_size."
    )
