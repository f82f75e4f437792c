"""What is known of every sample besides the sample: covariates or labels, nuisances, weights, groups.

All of it is checked here, once, and becomes arrays with a row for every sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.tensors.blocks import Array

MANY_LABELS = 2  # samples for every label, at least: of labels that occur once there is nothing to compare


@dataclass(frozen=True, eq=False)
class Covariates:
    """``columns`` (n, q) of numbers with their ``names``; of more than two ``labels``, one indicator for each."""

    columns: Array
    names: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def stacked(self) -> bool:
        """Whether all columns are one question, the leading pattern over all contrasts of labels."""
        return len(self.labels) > 2

    @property
    def questions(self) -> tuple[str, ...]:
        """One for every test: the columns, or all labels at once."""
        return (f"between {len(self.labels)} labels",) if self.stacked else self.names


@dataclass(frozen=True, eq=False)
class Conditions:
    """Everything that a fit is told of n samples; ``covariates`` is ``None`` where their mean is wanted."""

    covariates: Covariates | None
    nuisance: Array
    weight: Array
    groups: NDArray[np.intp] | None = None
    group_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def freedom(self) -> int:
        """Degrees of freedom that every block loses: its background, nuisances, and covariates beside the one asked."""
        if self.covariates is None:
            return 0
        others = 0 if self.covariates.stacked else self.covariates.columns.shape[1] - 1
        return 1 + int(self.nuisance.shape[1]) + int(others)


def read_conditions(
    target: str,
    n: int | None,
    y: Any,
    nuisance: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    labels: tuple[str, ...] | None = None,
    part: bool = False,
) -> Conditions:
    """All that is told of ``n`` samples, where that is known; ``labels``: those that were told of earlier ones.

    Of a ``part`` of a stream, y may be constant.
    """
    if target == "effect" and y is None:
        raise SampleError(
            "target='effect' needs y, a number or a label for every sample; give fit(X, y), or use target='mean'."
        )
    covariates = None if target == "mean" else read_covariates(y, n, labels or (), part)
    rows = n if covariates is None else len(covariates.columns)
    if rows is None:
        given = {"sample_weight": sample_weight, "groups": groups, "nuisance": nuisance}
        rows = next(len(_array(name, one)) for name, one in given.items() if one is not None)
    if nuisance is not None and target == "mean":
        raise SampleError("nuisance is for target='effect': the mean of all samples has none; leave it out.")
    extra = np.zeros((rows, 0)) if nuisance is None else _numbers("nuisance", nuisance, rows)
    codes, names = (None, ()) if groups is None else _read_groups(groups, rows)
    return Conditions(covariates, extra, _read_weight(sample_weight, rows), codes, names)


def read_covariates(y: Any, n: int | None, known: tuple[str, ...] = (), part: bool = False) -> Covariates:
    """Numbers as they are, two labels as the second against the first in sorted order, more as indicators."""
    values = _array("y", y)
    _check_length("y", values, n)
    if values.dtype.kind in "OUSb":
        try:
            numbers = values.dtype.kind == "O" and np.isfinite(values.astype(np.float64)).size >= 0
        except (TypeError, ValueError):
            numbers = False
        if not numbers:
            return _read_labels(values, known)
    columns = _numbers("y", values, n)
    for j, column in enumerate(columns.T):
        if not part and column.size and column.min() == column.max():
            which = "y" if columns.shape[1] == 1 else f"column {j} of y"
            raise SampleError(
                f"{which} is {column[0]:.6g} for all {len(column)} samples: nothing can follow it; give values that "
                "differ, or use target='mean'."
            )
    names = ("y",) if columns.shape[1] == 1 else tuple(f"y[{j}]" for j in range(columns.shape[1]))
    return Covariates(columns, names)


def _read_labels(values: NDArray[Any], known: tuple[str, ...]) -> Covariates:
    if values.ndim != 1:
        raise SampleError(
            f"labels come one for every sample, got y of shape {values.shape}; "
            "give one column, or numbers for several covariates."
        )
    missing = [i for i, one in enumerate(values) if one is None or one != one]
    if missing:
        raise SampleError(f"y has no label for sample {missing[0]}; give one, or leave the sample out.")
    if values.dtype.kind == "O":
        values = values.astype(str)
    found, codes = np.unique(values, return_inverse=True)
    labels = known or tuple(map(str, found))
    if known:
        unknown = [str(one) for one in found if str(one) not in known]
        if unknown:
            raise SampleError(f"y has the label {unknown[0]!r}, the first samples had {_listed(known)}; call fit.")
        codes = np.array([known.index(str(one)) for one in found], dtype=np.intp)[codes]
    if len(labels) < 2:
        raise SampleError(
            f"y has one label, {labels[0]!r}, for all {len(values)} samples: there is nothing to compare it with; "
            "give samples of two, or use target='mean'."
        )
    if len(labels) == 2:
        return Covariates(codes[:, None].astype(np.float64), (f"{labels[1]} - {labels[0]}",), labels)
    if len(values) < MANY_LABELS * len(labels):
        raise SampleError(
            f"y has {len(labels)} labels for {len(values)} samples; give numbers, or labels that each occur often."
        )
    return Covariates(np.eye(len(labels))[codes], labels, labels)


def _read_groups(groups: Any, n: int) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Codes in the order in which groups first appear, and their names."""
    values = _array("groups", groups)
    _check_length("groups", values, n)
    if values.ndim != 1:
        raise SampleError(f"groups come one label for every sample, got shape {values.shape}; give one column.")
    missing = [i for i, one in enumerate(values) if one is None or one != one]
    if missing:
        raise SampleError(f"groups is {values[missing[0]]} for sample {missing[0]}; every sample belongs to one.")
    found, first, codes = np.unique(values.astype(str), return_index=True, return_inverse=True)
    turn = np.argsort(first)
    place = np.empty(len(found), dtype=np.intp)
    place[turn] = np.arange(len(found))
    return place[codes], tuple(str(found[i]) for i in turn)


def _read_weight(sample_weight: Any, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    weight = _numbers("sample_weight", sample_weight, n)
    if weight.shape[1] != 1 or weight.min() < 0 or not weight.any():
        bad = f"shape {np.shape(sample_weight)}" if weight.shape[1] != 1 else f"{weight.min():.6g} among them"
        raise SampleError(f"sample_weight must be one number from 0 on for every sample, not all 0, got {bad}.")
    return weight[:, 0]


def _numbers(name: str, values: Any, n: int | None) -> Array:
    """Columns (n, q) of finite numbers."""
    given = _array(name, values)
    _check_length(name, given, n)
    if given.dtype.kind in "mM":
        raise SampleError(
            f"{name} must be numbers, got times ({given.dtype}), of which nobody knows the unit that is meant; give "
            f"({name} - {name}[0]) / numpy.timedelta64(1, 'D'), or another unit."
        )
    wrong = SampleError(f"{name} must be real numbers, got {given.dtype}; give numbers, labels as columns of 0 and 1.")
    if given.dtype.kind == "c":
        raise wrong
    try:
        columns = given.astype(np.float64)
    except (TypeError, ValueError):
        raise wrong from None
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not columns.shape[1]:
        raise SampleError(f"{name} must have shape (n,) or (n, q), got {given.shape}; give columns.")
    finite = np.isfinite(columns).all(axis=1)
    if not finite.all():
        raise SampleError(
            f"{name} is NaN or Inf for sample {int(np.argmin(finite))}; give its value, or leave the sample out."
        )
    return columns


def _array(name: str, values: Any) -> NDArray[Any]:
    """Whatever was given as an array."""
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths
        sizes = [np.size(row) for row in values]
        odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), 0)
        raise SampleError(
            f"{name} must have one value, or as many as all others, for every sample, got {sizes[0]} for sample 0 and "
            f"{sizes[odd]} for sample {odd}; give an array with a row for every sample."
        ) from None


def _check_length(name: str, values: NDArray[Any], n: int | None) -> None:
    if values.ndim == 0 or (n is not None and len(values) != n):
        got = "one value" if values.ndim == 0 else f"{len(values)}"
        raise SampleError(f"{name} must have a row for every sample, {'n' if n is None else n} of them, got {got}.")


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(map(repr, names))
