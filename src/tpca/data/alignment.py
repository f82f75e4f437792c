"""Alignment: what is known of every sample, put in the order of the samples by the labels of both.

Samples have labels where their data have: the index of a data frame of pandas, the coordinate of xarray along the axis
of the samples, the column of samples of a long table.  So may y, groups, nuisance and weights have, and so may views.

1. Labels in the same order: nothing is done.
2. The same labels in another order, each once: values are put in the order of the samples.
3. Other labels, or labels that occur more than once and stand in another order: refused.

Where one side has no labels, values are matched by position.  The index 0, 1, 2, … that pandas makes where none is
given only counts: beside labels that are not the same, it is like none.  Beside other numbers that is a guess, since
both may be rows of one table, and a line says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError
from tpca.labels import Coords, Labels, as_coords, as_text
from tpca.tensors.namespaces import library
from tpca.wording import count

NUMBERS = "fiu"


@dataclass(frozen=True, eq=False)
class SampleLabels:
    """``values`` are the labels ``(n,)`` of samples, ``dim`` is the name of their axis, empty where it has none.

    ``counted``: they are the index 0, 1, 2, … that pandas makes where none is given.
    """

    values: Coords
    dim: str = ""
    counted: bool = False


def labels_of_samples(source: Any, labels: Labels | None = None) -> SampleLabels | None:
    """The labels of the samples in ``source``, which has ``labels`` as opened data; ``None`` where it has none."""
    if _is_frame(source):
        return _labels_of_index(source.index)
    if labels is not None and labels.samples is not None:
        return SampleLabels(labels.samples, labels.sample)
    return None


def labels_of_rows(table: Any) -> SampleLabels | None:
    """The labels of the rows of a table in memory: an index of pandas, or a coordinate along the first dimension."""
    if _is_frame(table):
        return _labels_of_index(table.index)
    if _is_labelled_array(table) and table.ndim:
        return _labels_along(table, 0)
    return None


def align(name: str, values: Any, samples: SampleLabels | None) -> tuple[Any, int]:
    """``values``, called ``name``, in the order of the ``samples``; and how many of them stood in another place."""
    if samples is None:
        return values, 0
    if _is_frame(values):
        order = _order_of(name, values, _labels_of_index(values.index), samples)
        if order is None:
            return values, 0
        return values.iloc[order], _displaced(order)
    if _is_labelled_array(values) and values.ndim:
        values = samples_first(values, samples.dim)
        dim = values.dims[0]
        labels = _labels_along(values, 0)
        if labels is None:
            return values, 0
        order = _order_of(name, values, labels, samples)
        if order is None:
            return values, 0
        return values.isel({dim: order}), _displaced(order)
    return values, 0


def samples_first(values: Any, dim: str) -> Any:
    """``values`` with the axis ``dim`` in front, if they are a ``DataArray`` that has one."""
    if _is_labelled_array(values) and dim in values.dims[1:]:
        return values.transpose(dim, ...)
    return values


def aligned_with(samples: SampleLabels | None, **values: Any) -> tuple[dict[str, Any], list[str]]:
    """All ``values`` in the order of the samples, by name; and a line of advice for every one that stood in another."""
    in_order: dict[str, Any] = {}
    advice: list[str] = []
    for name, entries in values.items():
        if entries is None:
            in_order[name] = None
            continue
        in_order[name], displaced = align(name, entries, samples)
        if displaced:
            advice.append(reordered(name, displaced, len(in_order[name]), _by_position(name, entries)))
        elif _is_guess(labels_of_rows(entries), samples):
            advice.append(
                f"{name} was matched with the samples by position: one of them has the index 0, 1, 2, …, and the other "
                f"has other numbers. Give both one index to match by label, or give {_by_position(name, entries)}."
            )
    return in_order, advice


def aligned_views(views: Mapping[Any, Any] | Sequence[Any]) -> tuple[list[Any], SampleLabels | None, list[str]]:
    """Views with their rows in the order of the first that has labels; these labels; and advice.

    A view that is ``None`` stays so.
    """
    if isinstance(views, Mapping):
        names = [f"view {name!r}" for name in views]
        tables = list(views.values())
    else:
        names = [f"view {number}" for number in range(len(views))]
        tables = list(views)
    samples: SampleLabels | None = None
    advice: list[str] = []
    for number, (name, table) in enumerate(zip(names, tables, strict=True)):
        labels = labels_of_rows(table)
        if labels is None:
            continue
        tables[number], displaced = align(name, table, samples)
        if displaced:
            advice.append(reordered(name, displaced, len(labels.values), "its values as an array"))
        if samples is None:
            samples = labels
        elif samples.counted and not labels.counted:
            samples = labels_of_rows(tables[number])
    return tables, samples, advice


def reordered(name: str, displaced: int, total: int, by_position: str) -> str:
    """The line that says that values were put in another order."""
    return (
        f"{name} was matched with the samples by label: {displaced:,} of {count(total, 'row')} stood in another place. "
        f"If positions were meant, give {by_position}."
    )


def _is_frame(values: Any) -> bool:
    """Whether it is a data frame or a series of pandas."""
    return library(values) == "pandas" and hasattr(values, "iloc")


def _is_labelled_array(values: Any) -> bool:
    """Whether it is a ``DataArray``."""
    return library(values) == "xarray" and type(values).__name__ == "DataArray"


def index_values(index: Any) -> Coords:
    """The labels of an index of pandas; times with a zone are those of UTC."""
    if getattr(index, "tz", None) is not None:
        index = index.tz_convert(None)
    return as_coords(np.asarray(index))


def is_counted(index: Any) -> bool:
    """Whether an index of pandas is 0, 1, 2, …, which pandas makes where none is given."""
    return type(index).__name__ == "RangeIndex" and bool(index.start == 0 and index.step == 1)


def _labels_of_index(index: Any) -> SampleLabels:
    return SampleLabels(index_values(index), "", is_counted(index))


def _labels_along(array: Any, axis: int) -> SampleLabels | None:
    """The coordinate of a ``DataArray`` along one of its dimensions."""
    dim = array.dims[axis]
    if dim not in array.coords:
        return None
    return SampleLabels(as_coords(array[dim].values), str(dim))


def _order_of(name: str, values: Any, labels: SampleLabels, samples: SampleLabels) -> NDArray[np.intp] | None:
    """Where the value of every sample is; ``None`` where values stay as they are."""
    value_labels, sample_labels = _comparable(labels.values, samples.values)
    if _same(value_labels, sample_labels):
        return None
    value_order = np.argsort(value_labels, kind="stable")
    sample_order = np.argsort(sample_labels, kind="stable")
    sorted_labels = sample_labels[sample_order]
    same_labels = _same(value_labels[value_order], sorted_labels)
    repeated = sorted_labels[1:] == sorted_labels[:-1]
    if same_labels and not repeated.any():
        order = np.empty(len(sample_labels), np.intp)
        order[sample_order] = value_order
        return order
    if labels.counted or samples.counted:
        return None
    by_position = _by_position(name, values)
    if same_labels:
        twice = as_text(sorted_labels[1:][repeated][0])
        raise SampleError(
            f"{name} must be in the order of the samples where labels occur more than once, and {twice!r} does; sort "
            f"both in the same way, or give {by_position} if the order is that of the samples."
        )
    absent = np.setdiff1d(sample_labels, value_labels)
    surplus = np.setdiff1d(value_labels, sample_labels)
    if len(absent):
        problem = f"has none for {as_text(absent[0])!r}"
    elif len(surplus):
        problem = f"has one for {as_text(surplus[0])!r}, which is no sample"
    else:
        problem = "has another number of them for some"
    raise SampleError(
        f"{name} must have a row for the label of every sample, and {problem}; give {_by_label(name, values)} to "
        f"choose by label, or {by_position} if the order is that of the samples."
    )


def _is_guess(labels: SampleLabels | None, samples: SampleLabels | None) -> bool:
    """Whether only one of two indexes of numbers counts 0, 1, 2, …, and the other has other numbers."""
    if labels is None or samples is None or labels.counted == samples.counted:
        return False
    if not {labels.values.dtype.kind, samples.values.dtype.kind} <= set("iu"):
        return False
    return not _same(np.sort(labels.values), np.sort(samples.values))


def _comparable(first: Coords, second: Coords) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two sets of labels as numbers of one precision, as times, or as text."""
    kinds = {first.dtype.kind, second.dtype.kind}
    if np.dtype(np.float32) in (first.dtype, second.dtype) and kinds <= set(NUMBERS):
        return first.astype(np.float32), second.astype(np.float32)
    if kinds <= set(NUMBERS) or len(kinds) == 1:
        return first, second
    return _texts(first), _texts(second)


def _texts(labels: Coords) -> NDArray[Any]:
    return np.array([as_text(label) for label in labels], dtype=str)


def _same(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether two arrays of labels are the same; a missing number or time is like another."""
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fmM" and second.dtype.kind in "fmM")


def _displaced(order: NDArray[np.intp]) -> int:
    return int(np.count_nonzero(order != np.arange(len(order))))


def _by_position(name: str, values: Any) -> str:
    """How to give values that are to be matched by position."""
    if name.startswith("view"):
        return "its values as an array"
    if _is_frame(values):
        return f"{name}.to_numpy()"
    return f"{name}.values"


def _by_label(name: str, values: Any) -> str:
    """How to choose the values of the samples by their labels."""
    if name.startswith("view"):
        return "views of the same rows (.loc, .sel)"
    if _is_frame(values):
        return f"{name}.loc[X.index]"
    dim = values.dims[0]
    return f"{name}.sel({dim}=X.{dim})"


def without_samples(labels: Labels | None) -> Labels | None:
    """Labels of axes alone, of samples that are only a part of all."""
    if labels is None:
        return None
    return dataclasses.replace(labels, samples=None)
