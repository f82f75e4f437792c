r"""What is known of every sample: the columns of the least-squares design, weights, groups.

A sample :math:`T_i` has columns of interest :math:`y_i` and nuisances :math:`a_i`.  For the mean, y is 1 and there are
no nuisances.  For an effect the nuisances are a constant and what the user names.  K > 2 labels are K − 1 columns, one
question; several covariates are one question each, the others being nuisances.

====================  ==========================================================
symbol                code
====================  ==========================================================
z = (a, y)            ``Design.columns``, nuisances first
w                     ``Design.weights``
unit of a sample      :class:`~tpca.solvers.least_squares.sums.SampleSums`
====================  ==========================================================
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tpca.errors import SampleError, SolverError
from tpca.tensors.blocks import Array

Indices = NDArray[np.intp]

TARGETS = ("mean", "effect", "variance")
FEW_VALUES = 6  # whole numbers of so few values may be meant as labels
DETERMINED = 1e-10  # share of a column that is left beside the others, below which these determine it
LEAST_SIZE, LARGEST_SIZE = 1e-70, 1e70  # of numbers whose fourth powers are formed
GROWTH = 2.0  # of the memory for rows of a design, when it is full


class RowBuffer:
    """Memory for arrays of as many rows each, with room behind them.

    Rows are appended, and those that are there never change: who holds a view of the first rows may keep it.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.memory = dict(arrays or {})
        self.n_rows = len(next(iter(self.memory.values()), ()))
        self.n_copied = 0
        """Rows that were copied, as the memory was full."""

    def __reduce__(self) -> tuple[type[RowBuffer], tuple[()]]:
        """A copy of a design, or one from a file, has rows of its own, and this memory is not theirs."""
        return RowBuffer, ()

    def ends_with(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Whether these arrays are views of all rows: the room behind others is taken."""
        for name, array in arrays.items():
            if name not in self.memory or array.base is not self.memory[name] or len(array) != self.n_rows:
                return False
        return True

    def append(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Write rows behind all others; views of all rows."""
        start = self.n_rows
        stop = start + len(next(iter(arrays.values())))
        for name, rows in arrays.items():
            memory = self.memory[name]
            if stop > len(memory):
                memory = np.empty((int(GROWTH * stop), *memory.shape[1:]), memory.dtype)
                memory[:start] = self.memory[name][:start]
                self.memory[name] = memory
                self.n_copied += start
            memory[start:stop] = rows
        self.n_rows = stop
        return {name: memory[:stop] for name, memory in self.memory.items()}


class GroupNames(Sequence[str]):
    """Names of groups, in the order in which they first appear.

    Longer ones share their memory: they have the same names, and others behind them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._codes = {name: code for code, name in enumerate(self._names)}
        self._count = len(self._names)

    def extended(self, names: Iterable[str]) -> tuple[GroupNames, Indices]:
        """These names, and behind them those of ``names`` that are new; and the codes of all ``names``."""
        longer = GroupNames(self) if self._count < len(self._names) else copy.copy(self)
        codes = []
        for name in names:
            code = longer._codes.get(name)
            if code is None or code >= longer._count:
                code = longer._count
                longer._names.append(name)
                longer._codes[name] = code
                longer._count += 1
            codes.append(code)
        return longer, np.array(codes, dtype=np.intp)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return self._names[: self._count][place]
        return self._names[range(self._count)[place]]


@dataclass(frozen=True, eq=False)
class Design:
    """One row for every sample; without ``columns`` and the like, every sample counts the same.

    ``columns`` (n, p + q) has the p nuisances, then the q columns of interest, named by ``names``.  Of more than two
    ``labels`` the columns of interest are the indicators of all labels but the last.  ``groups`` are codes of units.
    """

    columns: Array | None = None
    n_nuisance: int = 0
    names: tuple[str, ...] = ("",)
    labels: tuple[str, ...] = ()
    weights: Array | None = None
    groups: Indices | None = None
    group_names: Sequence[str] = ()
    doses: bool = False
    """Whether y was whole numbers of few values, taken as a dose."""
    origin: Array | None = None
    """What was subtracted from all columns but the constant: no information, but sums that do not cancel."""
    weight_exponent: int = 0
    """``weights`` are those that were given over two to this power, about the largest of them: only ratios matter."""
    buffer: RowBuffer | None = field(default=None, repr=False)
    """Memory of all rows, with room for those of a design that follows."""

    @property
    def n_columns(self) -> int:
        """Columns of z; one, of ones, for the mean."""
        return 1 if self.columns is None else int(self.columns.shape[1])

    @property
    def stacked(self) -> bool:
        """Whether all columns of interest are one question: the pattern that separates more than two labels."""
        return len(self.labels) > 2

    @property
    def questions(self) -> tuple[tuple[str, Indices], ...]:
        """The name of every question, and its columns of interest; all others are its nuisances."""
        interest = np.arange(self.n_nuisance, self.n_columns)
        each = [interest] if self.stacked else list(interest[:, None])
        return tuple(zip(self.names, each, strict=True))

    def rows(self, places: Indices) -> tuple[Array, Array]:
        """Columns z (n, c) and weights w (n,) of the samples at some places."""
        ones = np.ones(len(places))
        z = ones[:, None] if self.columns is None else self.columns[places]
        return z, ones if self.weights is None else self.weights[places]

    def __len__(self) -> int:
        given = next((one for one in (self.columns, self.weights, self.groups) if one is not None), None)
        return 0 if given is None else len(given)

    @property
    def plain(self) -> bool:
        """Whether nothing is known of the samples one by one."""
        return self.columns is None and self.weights is None and self.groups is None

    @property
    def digest(self) -> str:
        """Tells this design from others: a checkpoint is good for this one only."""
        if self.plain:
            return ""
        found = hashlib.blake2b(repr((self.n_nuisance, self.names, self.labels)).encode(), digest_size=8)
        for one in (self.columns, self.origin, self.weights, self.groups):
            found.update(b"-" if one is None else repr(one.shape).encode() + np.ascontiguousarray(one).tobytes())
        return found.hexdigest()

    def followed_by(self, other: Design) -> Design:
        """The design of these samples and of those of another one, of the same columns, that come next.

        Its rows are written behind those of this one, so that n samples that come batch by batch take O(n) steps.
        """
        if self.plain and other.plain:
            return self
        before = self._arrays()
        following = other._arrays()
        if before.keys() != following.keys():
            raise SampleError("all batches must come with the same of y, nuisance, sample_weight and groups.")
        names = self.group_names
        if "groups" in following:
            if not isinstance(names, GroupNames):
                names = GroupNames(names)
            names, codes = names.extended(other.group_names)
            following["groups"] = codes[following["groups"]]
        buffer = self.buffer
        if buffer is None or not buffer.ends_with(before):
            buffer = RowBuffer(before)
        arrays = buffer.append(following)
        return replace(
            self,
            columns=arrays.get("columns"),
            weights=arrays.get("weights"),
            groups=arrays.get("groups"),
            group_names=names,
            buffer=buffer,
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays with a row for every sample, by name."""
        arrays = {"columns": self.columns, "weights": self.weights, "groups": self.groups}
        return {name: array for name, array in arrays.items() if array is not None}

    def check(self) -> None:
        """Refuse what cannot be answered: a column that the nuisances determine."""
        if self.columns is None:
            return
        w = np.ones(len(self.columns)) if self.weights is None else self.weights
        for name, interest in self.questions:
            z = self.columns * np.sqrt(w)[:, None]
            a, y = np.delete(z, interest, axis=1), z[:, interest]
            left = y - a @ np.linalg.lstsq(a, y, rcond=None)[0]
            if (np.sum(left**2, axis=0) <= DETERMINED * np.sum(y**2, axis=0)).any():
                what = "y" if name in ("", "y") else f"y ({name})"
                raise SampleError(
                    f"{what} is constant, or the nuisances and other columns determine it: nothing can be told apart; "
                    "give values that differ, drop the nuisance, or use target='mean'."
                )


PLAIN = Design()
"""Nothing is known of the samples one by one."""


def read_design(
    target: str,
    n: int | None,
    y: Any = None,
    nuisance: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    like: Design | None = None,
    labels: tuple[str, ...] = (),
    part: bool = False,
) -> Design:
    """All that is given of ``n`` samples, checked.

    ``like`` is the design of earlier samples, ``labels`` are those known already; of a ``part`` of a stream y may be
    constant, and labels must be known.
    """
    if not isinstance(target, str) or target not in TARGETS:
        raise SolverError(f"target must be 'mean', 'effect' or 'variance', got {target!r}.")
    if target == "effect" and y is None:
        raise SampleError(
            "target='effect' needs y, a number or a label for every sample; give fit(X, y), or use target='mean'."
        )
    if target != "effect" and nuisance is not None:
        raise SampleError(f"nuisance is for target='effect', not for target={target!r}; leave it out.")
    if target == "variance":
        for name, given in (("sample_weight", sample_weight), ("groups", groups)):
            if given is not None:
                raise SampleError(f"target='variance' takes no {name}; leave it out.")
        return PLAIN
    design = PLAIN
    if target == "effect":
        interest, design = _columns_of_interest(y, n, labels or (() if like is None else like.labels), part)
        n = len(interest)
        extra = np.zeros((n, 0)) if nuisance is None else _numbers("nuisance", nuisance, n)
        refuse_extreme_size("nuisance", float(np.max(np.abs(extra), initial=0.0)))
        columns = np.column_stack([np.ones(n), extra, interest])
        # Columns are told from those of the first sample, which is the same however samples are cut into batches.
        origin = np.concatenate([[0.0], columns[0, 1:]]) if like is None else like.origin
        if origin is None or origin.shape != columns.shape[1:]:
            raise SampleError(
                f"y and nuisance must have as many columns as in the first batch, got {columns.shape[1]}."
            )
        design = replace(design, columns=columns - origin, origin=origin, n_nuisance=1 + extra.shape[1])
    if sample_weight is not None:
        weights = _numbers("sample_weight", sample_weight, n)
        if weights.shape[1] != 1 or weights.min() < 0 or not (part or weights.any()):
            bad = f"shape {np.shape(sample_weight)}" if weights.shape[1] != 1 else f"{weights.min():.6g} among them"
            raise SampleError(f"sample_weight must be one number from 0 on for every sample, not all zero, got {bad}.")
        exponent = math.frexp(float(weights.max()))[1]
        if like is not None and like.weights is not None:
            exponent = like.weight_exponent
        design = replace(design, weights=np.ldexp(weights[:, 0], -exponent), weight_exponent=exponent)
        n = len(weights)
    if groups is not None:
        values = _array("groups", groups, n)
        if values.dtype.kind == "f":
            raise SampleError(f"groups must be labels or whole numbers, got {values.dtype}, {values.flat[0]!r} first.")
        names, first, codes = np.unique(_labels("groups", values), return_index=True, return_inverse=True)
        turn = np.argsort(first)  # in the order in which groups first appear
        design = replace(design, groups=np.argsort(turn)[codes], group_names=tuple(map(str, names[turn])))
    if not part:
        design.check()
    return design


def _columns_of_interest(y: Any, n: int | None, known: tuple[str, ...], part: bool) -> tuple[Array, Design]:
    """Columns of y, and a design with their names and the labels.

    Numbers are as they are, two labels are the second less the first in sorted order, more are indicators.
    """
    values = _array("y", y, n)
    if values.dtype.kind in "USb" or (values.dtype.kind == "O" and not _are_numbers(values)):
        return _labelled(_labels("y", values), known, part)
    columns = _numbers("y", values, n)
    refuse_extreme_size("y", float(np.max(np.abs(columns), initial=0.0)))
    single = columns.shape[1] == 1
    for j, column in enumerate(columns.T):
        if not part and column.min() == column.max():
            raise SampleError(
                f"{'y' if single else f'column {j} of y'} is {column[0]:.6g} for all {len(column)} samples: nothing "
                "can follow it; give values that differ, or use target='mean'."
            )
    given = getattr(y, "columns", None)  # of a data frame; a series has a name
    given = [getattr(y, "name", None)] if given is None else list(given)
    names = ("y",) if single else tuple(f"y[{j}]" for j in range(columns.shape[1]))
    if len(set(given)) == len(names) and all(isinstance(name, str) and name for name in given):
        names = tuple(given)
    few = single and 2 < len(np.unique(columns)) <= FEW_VALUES and bool((columns == np.round(columns)).all())
    return columns, Design(names=names, doses=few)


def _are_numbers(values: NDArray[Any]) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return not any(isinstance(one, str | bytes | bool | np.bool_) for one in values.ravel()[:100])


def _labelled(values: NDArray[Any], known: tuple[str, ...], part: bool) -> tuple[Array, Design]:
    found, codes = np.unique(values, return_inverse=True)
    if part and not known:
        raise SampleError(
            f"the labels of all samples must be known from the first batch on; give partial_fit(X, y, "
            f"classes={[str(one) for one in found]!r}), with those still to come."
        )
    labels = known or tuple(map(str, found))
    unknown = [str(one) for one in found if str(one) not in labels]
    if unknown:
        raise SampleError(f"y has the label {unknown[0]!r}; known are {', '.join(map(repr, labels))}.")
    if len(labels) < 2:
        raise SampleError(
            f"y has one label, {labels[0]!r}, for all {len(values)} samples: there is nothing to compare it with; "
            "give samples of two, or use target='mean'."
        )
    if not part and len(labels) > 2 and len(values) < 2 * len(labels):
        raise SampleError(
            f"y has {len(labels)} labels for {len(values)} samples; give numbers, or labels that each occur often."
        )
    each = np.eye(len(labels))[np.array([labels.index(str(one)) for one in found], dtype=np.intp)[codes]]
    if len(labels) == 2:
        return each[:, 1:], Design(names=(f"{labels[1]} - {labels[0]}",), labels=labels)
    return each[:, :-1], Design(names=(f"between {len(labels)} labels",), labels=labels)


def _labels(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Labels (n,) as text."""
    if values.ndim != 1:
        raise SampleError(
            f"{name} must be one label for every sample, got shape {values.shape}; give one column, or numbers for "
            "several covariates."
        )
    missing = [i for i, one in enumerate(values) if one is None or one != one]
    if missing:
        raise SampleError(f"{name} has no label for sample {missing[0]}; give one, or leave the sample out.")
    return values.astype(str)


def _numbers(name: str, values: Any, n: int | None) -> Array:
    """Columns (n, q) of finite numbers."""
    given = _array(name, values, n)
    if given.dtype.kind in "mM":
        raise SampleError(
            f"{name} must be numbers, got times ({given.dtype}), of which nobody knows the unit that is meant; give "
            f"({name} - {name}[0]) / numpy.timedelta64(1, 'D'), or another unit."
        )
    try:
        if given.dtype.kind == "c":
            raise TypeError
        columns = given.astype(np.float64)
    except (TypeError, ValueError):
        raise SampleError(
            f"{name} must be real numbers, got {given.dtype}; give numbers, labels as columns of 0 and 1."
        ) from None
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not columns.shape[1]:
        raise SampleError(f"{name} must have shape (n,) or (n, q), got {given.shape}; give columns.")
    finite = np.isfinite(columns).all(axis=1)
    if not finite.all():
        raise SampleError(
            f"{name} is NaN or Inf for sample {int(np.argmin(finite))}; give its value, or leave the sample out."
        )
    return columns


def largest_entry(array: Array) -> float:
    """The largest entry in size, without a copy of all."""
    return max(float(array.max()), -float(array.min()))


def refuse_extreme_size(name: str, size: float) -> None:
    """Refuse numbers, the largest of which has this ``size``, whose products overflow or vanish; 0 is no size."""
    if size == 0 or LEAST_SIZE <= size <= LARGEST_SIZE:
        return
    remedy = "divide by a power of ten"
    if math.isfinite(size):
        remedy = f"multiply by 1e{-round(math.log10(size)):+d}"
    raise SampleError(
        f"{name} must be of a size between {LEAST_SIZE:.0e} and {LARGEST_SIZE:.0e}, got {size:.0e}; {remedy}."
    )


def _array(name: str, values: Any, n: int | None) -> NDArray[Any]:
    """Whatever was given as an array with a row for each of n samples."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        place = int(np.argmax(np.ma.getmaskarray(values).reshape(len(values), -1).any(axis=1)))
        raise SampleError(f"{name} is masked for sample {place}; give its value, or leave the sample out.")
    try:
        found = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise SampleError(
            f"{name} must have as many values for every sample; give an array with a row for each."
        ) from None
    if found.ndim == 0 or (n is not None and len(found) != n):
        got = f"{len(found)}" if found.ndim else "one value"
        if isinstance(found[()], str):
            got = f"the text {str(found)!r}; give the column itself, such as table[{str(found)!r}]"
        raise SampleError(f"{name} must have a row for every sample, {'n' if n is None else n} of them, got {got}.")
    return found
