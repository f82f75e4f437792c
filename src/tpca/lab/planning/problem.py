"""What is asked: a tensor, a signal, and what there is to find it with; and ``4d^2`` read as a number."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpca.errors import ModelError, SolverError
from tpca.model.spiked import check_strength
from tpca.tensors.blocks import Partition, check_dims

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


MAX_MODES = 12


@dataclass(frozen=True)
class Problem:
    """Dims, λ, σ, the correlation inside pairs (``None``: not known), and whether all vectors are the same.

    The correlation is one number, or one for every pair, that of the shortest modes first.
    """

    dims: tuple[int, ...]
    strength: float = 1.0
    noise: float = 1.0
    correlation: float | tuple[float, ...] | None = None
    symmetric: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", check_dims(self.dims))
        if len(self.dims) > MAX_MODES:
            raise ModelError(
                f"a plan covers orders up to {MAX_MODES}, got order {len(self.dims)}; group modes together."
            )
        check_strength(self.strength)
        if not (math.isfinite(self.noise) and self.noise > 0):
            raise ModelError(f"noise must be a positive finite number, got {self.noise}.")
        for each in self.inside_pairs:
            if not 0.0 <= each <= 1.0:
                raise ModelError(f"correlation must lie in [0, 1], got {each}.")
        if len(self.inside_pairs) != self.order // 2:
            raise ModelError(
                f"correlation must be one number, or one for each of {self.order // 2} pairs, got {self.correlation}."
            )
        if self.symmetric and self.correlation not in (None, 1.0):
            raise ModelError(f"equal vectors have correlation 1, got {self.correlation}; leave one of the two out.")
        if self.symmetric and len(set(self.dims)) > 1:
            raise ModelError(f"equal vectors need equal dims, got {self.dims}.")

    @property
    def order(self) -> int:
        """k̄."""
        return len(self.dims)

    @property
    def inside_pairs(self) -> tuple[float, ...]:
        """Cor of every pair of the paper's blocks; 0 where it is not known."""
        if isinstance(self.correlation, tuple):
            return self.correlation
        return (1.0 if self.symmetric else (self.correlation or 0.0),) * (self.order // 2)

    @property
    def entries(self) -> int:
        """Entries of a sample, ∏d."""
        return math.prod(self.dims)

    @property
    def unit(self) -> float:
        """√∏d, which is d^(k̄/2): the natural unit of samples."""
        return math.sqrt(self.entries)

    @property
    def ratio(self) -> float:
        """σ²/λ²: all numbers of samples are proportional to it."""
        return (self.noise / self.strength) ** 2

    @property
    def halves(self) -> tuple[int, int]:
        """Entries of the two blocks of the balanced unfolding, the smaller first."""
        small, large = sorted(Partition.halves(self.dims).sizes)
        return small, large

    @property
    def least_product(self) -> float:
        """∏d σ²/λ²: the least S·K·N, up to constants and logs, for vectors that may differ (Dudeja & Hsu 2024)."""
        return self.entries * self.ratio


def tensor_dims(order: int | None, dim: int | None, dims: str | Sequence[int] | None) -> tuple[int, ...]:
    """Dims from ``order`` and ``dim``, or from a list such as ``"10,20,30"``."""
    if dims is not None:
        if order is not None or dim is not None:
            raise SolverError("give either dims, or order and dim, not both.")
        if isinstance(dims, str):
            if not re.fullmatch(r"\s*\d+(\s*[,x×]\s*\d+)*\s*", dims):
                raise SolverError(f"dims must be whole numbers with commas, such as 10,20,30, got {dims!r}.")
            dims = [int(part) for part in re.split(r"[,x×]", dims)]
        return check_dims(dims)
    if order is None or dim is None:
        raise SolverError("say how large a sample is: order and dim, or dims.")
    return check_dims((dim,) * order)


def parse_correlation(text: str | None) -> float | tuple[float, ...] | None:
    """``0.5``, or one number for every pair: ``1,0,0``."""
    if text is None:
        return None
    try:
        each = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SolverError(
            f"correlation must be a number, or numbers with commas such as 1,0,0, got {text!r}."
        ) from None
    return each if len(each) > 1 else each[0]


def parse_samples(text: str | float, dims: Sequence[int]) -> int:
    """A number of samples: ``2304``, ``1e6``, or in d as ``4d^2`` and ``0.5*d^(3/2)``; d is the geometric mean of dims.

    Only numbers, d, ``+ - * / ^`` and parentheses are understood; a factor before d needs no sign.
    """
    if isinstance(text, str):
        spelled = re.sub(r"(?<=[0-9.)])\s*(?=[d(])", "*", text.strip().replace("^", "**"))
        try:
            value = _evaluate(ast.parse(spelled, mode="eval").body, math.prod(dims) ** (1 / len(dims)))
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
            value = math.nan
    else:
        value = float(text)
    if not (math.isfinite(value) and round(value) >= 1):
        raise SolverError(f"samples must be at least 1, as a number or in d such as 4d^2, got {text!r}.")
    return round(value)


def _evaluate(node: ast.expr, d: float) -> float:
    """The value of an expression made of numbers, d and the four operations."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.Name) and node.id == "d":
        return d
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, d)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_evaluate(node.left, d), _evaluate(node.right, d))
        return float(value) if isinstance(value, (int, float)) else math.nan
    raise ValueError
