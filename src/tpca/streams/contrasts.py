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
background.  Where they differ too little in y, or leave too few blocks, samples are dealt within windows of 8m, 64m,
... samples, or all.

*More than two labels*, with indicators E of K labels, their Gram matrices :math:`G_b = E_b^\top W_b`, the mean of
these, :math:`G = UDU^\top` of rank K - 1, c the mean length of a block times the efficiency: with :math:`B =
\sqrt c\,UD^{-1/2}`, :math:`M_b = B^\top G_bB/c` (the unit matrix on average) and the share :math:`s_b =
\operatorname{tr}M_b/(K-1)`, :math:`T'_b = s_bM_b^{-1}B^\top W_b^\top T_b/c` has one mode more, of length K - 1.
:math:`M_b^{-1}` makes the same signal of all blocks, but for their shares: what they differ by would look like noise
along it, and a strong effect would be whitened away.  It costs some of the efficiency, and is left out where a block
does not have all labels.  B is turned such that the noise is white along the new mode.  The leading component is the
pattern that separates the labels most; its strength is the standard deviation of the amplitudes over all samples; those
of labels are :math:`Bu\lambda`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.streams.blocking import ENOUGH, FEW, block_length, contrast_targets, dealt, even, neighbours
from tpca.streams.conditions import Conditions
from tpca.streams.plan import NOTHING, Plan, label_weights, residual_weights
from tpca.tensors.blocks import Array

COUNTED = 4  # blocks with contrast, at least, where most of y varies between them
STEP = 8  # a window is so many times as long as the one before
GOOD, POOR = 0.7, 0.02  # efficiencies: from here on neighbours may stay together; below there is nothing to go by


def plans(told: Conditions, block: int | None = None, any_order: bool = True) -> list[Plan]:
    """One plan for every question: each covariate beside the others, or all labels at once; or the mean."""
    covariates = told.covariates
    if covariates is None:
        return [_mean_plan(told)]
    best = _first_good(told, block, any_order)
    for name, plan in zip(covariates.questions, best, strict=True):
        if plan.lonely:
            raise _lonely(plan.lonely)
        if plan.efficiency < POOR or (len(plan) < COUNTED and plan.efficiency < GOOD):
            raise _no_contrast(name, plan, told, any_order)
    return best


def _first_good(told: Conditions, block: int | None, any_order: bool) -> list[Plan]:
    """Plans of neighbours, or of samples dealt within the shortest window that serves; else the best of all."""
    assert told.covariates is not None
    labels = len(told.covariates.labels) if told.covariates.stacked else 0
    length = block or block_length(len(told), told.freedom, labels)
    windows = [0]
    while any_order and told.groups is None and windows[-1] < len(told):
        windows.append(len(told) if labels else min(STEP * max(windows[-1], length), len(told)))
    wanted = 1 if told.groups is not None else max(1, min(ENOUGH if labels else FEW, len(told) // length))
    best: list[Plan] = []
    for window in windows:
        found = _at_window(told, length, window, block is not None)
        if not best or _worst(found, wanted) > _worst(best, wanted):
            best = found
        if _worst(best, wanted) >= GOOD:
            break
    return best


def _at_window(told: Conditions, length: int, window: int, fixed: bool) -> list[Plan]:
    order, starts, stops = _blocks(told, length, window, fixed)
    if window and told.covariates is not None and told.covariates.stacked and order is not None:
        window = int(np.median([np.ptp(order[a:b]) for a, b in zip(starts, stops, strict=True)])) + 1
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
    stacked = told.covariates is not None and told.covariates.stacked
    columns = np.zeros((len(used), 0)) if told.covariates is None else told.covariates.columns[used]
    if stacked and window:
        turn, edges = even(np.argmax(columns, axis=1), length)
        return _ordered(used[turn], len(told)), edges[:-1], edges[1:]
    turn = dealt(np.arange(len(used)), length, window) if window else np.arange(len(used))
    used, columns = used[turn], columns[turn]
    targets = None if fixed else contrast_targets(columns, told.weight[used], length)
    edges = neighbours(columns, told.weight[used], targets, length if fixed else None, rest=not stacked)
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
    blocks = [slice(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
    grams = np.stack([y[own].T @ w[own] for own in blocks])
    values, axes = np.linalg.eigh(grams.mean(axis=0))
    m = float(np.mean(stops - starts))
    if values[1] < POOR * values[-1]:
        known["lonely"] = labels[int(np.argmax(np.abs(axes[:, 1])))]
        return Plan(order, starts, stops, w, np.ones(len(starts)), m, **known)
    within = known["efficiency"]  # B is such that strengths are standard deviations over all samples, not within blocks
    basis, scale = np.sqrt(m * within) * axes[:, 1:] / np.sqrt(values[1:]), m * within
    shares = np.einsum("kr,bkl,lr->b", basis, grams, basis) / (scale * (len(labels) - 1))
    own_weights = [label_weights(w[own], y[own], basis, scale, s) for own, s in zip(blocks, shares, strict=True)]
    if any(one is None for one in own_weights):
        return Plan(order, starts, stops, w @ basis / scale, shares, scale, basis=basis, **known)
    weights = np.zeros((len(w), basis.shape[1]))
    for own, one in zip(blocks, own_weights, strict=True):
        weights[own] = one
    level = known["design"][2][:, None]
    noise = weights.T @ (weights / level) * (scale / len(starts))  # of derived samples, per σ²/c: about h times the
    levels, turns = np.linalg.eigh(noise)  # unit matrix, with h what it costs that every block stands for itself
    h = float(np.mean(levels))
    whiten, unwhiten = (turns * levels**power @ turns.T for power in (-0.5, 0.5))
    known["efficiency"] = within / h
    weights, basis = weights @ whiten * np.sqrt(h), basis @ unwhiten / np.sqrt(h)
    return Plan(order, starts, stops, weights, shares, scale / h, basis=basis, even=True, **known)


def _mean_plan(told: Conditions) -> Plan:
    """The weighted mean: a derived sample is a sample times its weight, or the weighted sum of a group."""
    order, starts, stops = _blocks(told, 1, 0, fixed=True)
    s = told.weight if order is None else told.weight[order]
    energy = np.add.reduceat(s, starts)
    scale = float(energy.mean())
    return Plan(order, starts, stops, s[:, None] / scale, energy / scale, scale, 1.0)


def _worst(found: list[Plan], wanted: int) -> float:
    """How good plans are: efficiency, less with fewer blocks than ``wanted``, nothing with a lonely label."""
    return min(plan.efficiency * min(1.0, len(plan) / wanted) * (not plan.lonely) for plan in found)


def _lonely(label: str) -> SampleError:
    return SampleError(
        f"label {label!r} hardly shares a block with another: it cannot be compared; give more samples of it, or a "
        "larger block_size."
    )


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
