r"""What varies from sample to sample: rank-one patterns with the largest variance of ⟨T − T̄, ⊗v⟩.

With Z the centred samples, mode m of a pattern is the leading eigenvector of the d_m × d_m second moment of Z
contracted with the vectors of all other modes; one mode after the other until none moves, from the rank-one fits of the
leading principal components and a few fixed random starts.  The next component is that of Z without its scores,
:math:`Z_i \leftarrow Z_i - \langle Z_i, p\rangle p` with :math:`p = \otimes v`.

Small data are held.  Of large ones there are passes, one for every mode and sweep, in Σd² memory; of samples that pass
by once the second moment of all entries is kept, where it fits.

**Test.**  Every centred entry gets a random sign, and the largest variance of the data is compared with those, times
√(n/(n−1)) for the mean that was subtracted.  It says that entries are correlated, no more.

**Errors** by leaving out one of up to 32 units of samples at a time (jackknife).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import MemoryBudgetError, StreamError
from tpca.inference.flips import own_order, p_values
from tpca.inference.halves import half_agreements
from tpca.inference.scatter import slope
from tpca.randomness import generator
from tpca.solvers.estimate import Component, Estimate, StopReason
from tpca.solvers.options import ClaimingSolver, budget, check_dependence, check_resamples, option
from tpca.solvers.rank_one import best_rank_one, fits, oriented, outer
from tpca.solvers.run import Ask, Run, refuse_all_left_out
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array
from tpca.wording import amount

FLIPS = 99
HEADS, RANDOM_STARTS = 3, 3
TRIAL, SWEEPS, STILL = 10, 100, 1e-20  # sweeps of all starts, and of the best one until none of its vectors moves
PASS_TRIAL, PASS_SWEEPS, PASS_STILL = 2, 10, 1e-12  # the same where every mode of a sweep takes a pass
FLIP_SWEEPS, POWER_STEPS, UNIT_SWEEPS = 6, 12, 3
TESTED = 2**22  # numbers of the rows that are tested, and left out by turns
UNITS = 32
DEPENDENT = (0.1, 3.0)  # mean cosine of neighbouring samples, and its z
ROUNDS = 32


# What is kept of samples ----------------------------------------------------------------------------------------------


@kept
class Rows(Accumulator):
    """``mean`` and Σ|T − mean|² of all samples, and the samples at every ``stride``-th place, ``most`` at most.

    With ``squares`` also their second moment (E, E) about the mean, ``scatter``.
    """

    def __init__(self, squares: bool, stride: int, most: int) -> None:
        super().__init__(squares, stride, most)
        self.most = most  # also of one that comes from a worker, without what it was asked
        self.mean: Any = None
        self.energy = 0.0
        self.scatter: Any = None
        self.rows: dict[int, Any] = {}

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Add the samples."""
        squares, stride, most = self.question
        for some, samples, _ in batch.dense_pieces():
            flat = samples.reshape(len(samples), -1)
            mean = flat.mean(axis=0)
            left = flat - mean
            self._include(len(flat), mean, float(np.vdot(left, left)), left.T @ left if squares else None)
            places = batch.places[some]
            for j in np.flatnonzero(places % stride == 0):
                if len(self.rows) < most:
                    self.rows[int(places[j])] = flat[j].copy()

    def merge(self, other: Rows) -> None:
        """Both."""
        self._include(other.n, other.mean, other.energy, other.scatter)
        for place, row in other.rows.items():
            if len(self.rows) < self.most:
                self.rows[place] = row

    def _include(self, n: int, mean: Any, energy: float, scatter: Any) -> None:
        """Take the moments of ``n`` more samples (Chan, Golub & LeVeque 1979): nothing cancels."""
        if not self.n or not n:
            if n:
                self.n, self.mean, self.energy, self.scatter = n, mean, energy, scatter
            return
        total = self.n + n
        shift, factor = mean - self.mean, self.n * n / total
        if scatter is not None:
            self.scatter = self.scatter + scatter + factor * np.outer(shift, shift)
        self.energy = self.energy + energy + factor * float(shift @ shift)
        self.n, self.mean = total, self.mean + shift * (n / total)

    @property
    def nbytes(self) -> int:
        """What is held."""
        arrays = [*self.rows.values(), *(one for one in (self.mean, self.scatter) if one is not None)]
        return int(sum(one.nbytes for one in arrays))


@kept
class SlopeMoments(Accumulator):
    """Second moments (d_m, d_m) of centred samples contracted with all vectors but one, for several patterns.

    ``before`` are orthonormal patterns (c, E) that have been taken out.
    """

    SUMS = ("moments",)

    def __init__(self, mean: Array, before: Array, starts: Sequence[Sequence[Array]], mode: int) -> None:
        super().__init__(mean, before, starts, mode)
        self.moments: Any = None

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Add the samples."""
        mean, before, starts, mode = self.question
        for _, samples, _ in batch.dense_pieces():
            left = without(samples.reshape(len(samples), -1) - mean, before).reshape(samples.shape)
            own = np.stack(slope_moments(left, starts, mode))
            self.moments = own if self.moments is None else self.moments + own
        self.n += len(batch)


def slope_moments(Z: Array, patterns: Sequence[Sequence[Array]], mode: int) -> list[Array]:
    """Second moments of rows (n, *dims) contracted with all vectors but one, of every pattern."""
    return [s.T @ s for s in (slope(Z, vectors, mode) for vectors in patterns)]


def without(flat: Array, patterns: Array) -> Array:
    """Rows without orthonormal patterns."""
    return flat - (flat @ patterns.T) @ patterns


def orthonormal(patterns: Sequence[Sequence[Array]], size: int) -> Array:
    """The tensors of patterns, each without those before it, as rows."""
    rows = np.zeros((0, size))
    for vectors in patterns:
        own = without(outer(vectors).reshape(1, -1), rows)
        norm = float(np.linalg.norm(own))
        rows = np.vstack([rows, own / norm]) if norm > 1e-12 else rows
    return rows


# The climb ------------------------------------------------------------------------------------------------------------


@kept
class VarianceClimb:
    """Patterns on their way to the largest Σ scores²: one mode after the other at its leading eigenvector.

    All ``starts`` go for ``trial`` sweeps, the best of them for ``sweeps`` more, or until none of its vectors moves.
    """

    def __init__(self, starts: Sequence[Sequence[Array]], trial: int, sweeps: int, still: float = STILL) -> None:
        self.starts, self.values = [list(start) for start in starts], np.zeros(len(starts))
        self.trial, self.sweeps, self.still = trial, sweeps, still
        self.mode, self.sweep, self.moved, self.done = 0, 0, 0.0, False

    def step(self, moments: Sequence[Array]) -> None:
        """The mode whose turn it is, of every start, from second moments of slopes."""
        for c, moment in enumerate(moments):
            top, axes = np.linalg.eigh(moment)
            v, before = axes[:, -1], self.starts[c][self.mode]
            v = v if v @ before >= 0 else -v
            self.moved = max(self.moved, float(np.sum((v - before) ** 2)))
            self.starts[c][self.mode], self.values[c] = v, top[-1]
        self.mode = (self.mode + 1) % len(self.starts[0])
        if self.mode:
            return
        self.sweep += 1
        settled, self.moved = self.moved < self.still, 0.0
        if len(self.starts) > 1:
            if settled or self.sweep >= self.trial:
                best = int(np.argmax(self.values))
                self.starts, self.values, self.sweep = [self.starts[best]], self.values[best : best + 1], 0
        else:
            self.done = settled or self.sweep >= self.sweeps


def climbed(Z: Array, starts: Sequence[Sequence[Array]], sweeps: int = SWEEPS) -> tuple[list[Array], float]:
    """The pattern of rows (n, *dims) that a climb ends with, and its Σ scores²."""
    climb = VarianceClimb(starts, TRIAL, sweeps)
    while not climb.done:
        climb.step(slope_moments(Z, climb.starts, climb.mode))
    return climb.starts[0], float(climb.values[0])


def starts_of(Z: Array, random: int = RANDOM_STARTS) -> list[list[Array]]:
    """Rank-one fits of the leading principal components of rows (n, *dims), and fixed random vectors."""
    flat, dims = Z.reshape(len(Z), -1), Z.shape[1:]
    if len(flat) <= flat.shape[1]:
        leading = np.linalg.eigh(flat @ flat.T)[1][:, ::-1][:, :HEADS].T @ flat
    else:
        leading = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :HEADS].T
    found = [best_rank_one(head.reshape(dims), rough=True)[0] for head in leading if np.linalg.norm(head) > 0]
    rng = np.random.default_rng(0)  # fixed: the answer has no seed
    drawn = [[np.asarray(v / np.linalg.norm(v)) for v in map(rng.standard_normal, dims)] for _ in range(random)]
    return [*found, *(drawn if len(dims) > 1 or not found else [])]


# Test and errors ------------------------------------------------------------------------------------------------------


def leading(rows: Array) -> tuple[list[Array], float]:
    """About the pattern of largest variance of rows, and its Σ scores²: from power steps, by a few sweeps."""
    flat = rows.reshape(len(rows), -1)
    x = np.random.default_rng(0).standard_normal(flat.shape[1])
    for _ in range(POWER_STEPS):
        x = (flat @ x) @ flat
        x = x / max(float(np.linalg.norm(x)), 1e-300)
    start = [v[0] for v in fits(x.reshape(1, *rows.shape[1:]))[0]]
    return climbed(rows, [start], FLIP_SWEEPS)


def leading_of_some(rows: Array, count: int, some: Array) -> list[list[Array]]:
    """The patterns of some rows, each of what those before it leave; from all starts, as those of all rows."""
    flat = rows[some].reshape(len(some), -1)
    flat = flat - flat.mean(axis=0)
    found: list[list[Array]] = []
    for _ in range(count):
        Z = without(flat, orthonormal(found, flat.shape[1])).reshape(-1, *rows.shape[1:])
        found.append(climbed(Z, starts_of(Z))[0])
    return found


def sign_test(Z: Array, n_resamples: int, rng: np.random.Generator) -> Array:
    """The largest variance of rows, and after it those of rows whose entries have random signs."""
    factor = len(Z) / (len(Z) - 1)
    values = [leading(Z)[1]]
    values += [leading(Z * rng.choice([-1.0, 1.0], size=Z.shape))[1] * factor for _ in range(n_resamples)]
    return np.array(values)


def jackknife(rows: Array, patterns: Sequence[Sequence[Array]]) -> Array:
    """Errors (c, 1 + Σd) of the variance and of all vectors of every pattern, by leaving out units of rows in turn."""
    n, dims = len(rows), rows.shape[1:]
    units = min(UNITS, n)
    unit = np.arange(n) * units // n
    each = []
    for g in range(units):
        left = rows[unit != g].reshape(-1, math.prod(dims))
        left = left - left.mean(axis=0)
        found: list[list[Array]] = []
        numbers = []
        for pattern in patterns:
            Z = without(left, orthonormal(found, left.shape[1])).reshape(-1, *dims)
            own, value = climbed(Z, [pattern], UNIT_SWEEPS)
            found.append(own)
            numbers.append(np.concatenate([[value / len(left)], *own]))
        each.append(numbers)
    stack = np.array(each)
    return np.asarray(np.sqrt(np.sum((stack - stack.mean(axis=0)) ** 2, axis=0) * (units - 1) / units))


def neighbours_alike(rows: Array) -> float:
    """The mean cosine of neighbouring rows, where it is large, and more than chance; else 0."""
    flat = rows.reshape(len(rows), -1)
    size = np.sqrt(np.vecdot(flat, flat)) + 1e-300
    near = np.vecdot(flat[:-1], flat[1:]) / (size[:-1] * size[1:]) + 1 / len(flat)
    r, z = float(near.mean()), float(near.mean() / (near.std(ddof=1) / math.sqrt(len(near)) + 1e-300))
    return min(r, 1.0) if r > DEPENDENT[0] and z > DEPENDENT[1] else 0.0


# The solver -----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class Variation(ClaimingSolver):
    """Patterns that vary from sample to sample, largest share of the variance first.

    Parameters
    ----------
    n_components, confidence, max_samples, memory_limit, random_state
        As of :class:`~tpca.solvers.least_squares.solver.LeastSquares`; the seed is that of the test's signs only.
    dependence
        ``"auto"``: correlated neighbours are not tested; ``None`` takes all samples as independent.
    n_resamples
        Random signs of the test; 99 by default.
    """

    name = "variation"

    dependence: str | int | None = option("auto", check_dependence)
    n_resamples: int | str = option("auto", check_resamples)

    def start(self, data: Data) -> VariationRun:
        """A run that asks for its first samples."""
        return VariationRun(self, data)


class VariationRun(Run):
    """One pass for the mean, rows and second moments; where neither fits, a pass for every mode of every sweep."""

    kept = ("_n", "_read", "_ended", "_passes", "_found", "_climb", "_part", "_sum")

    def __init__(self, solver: Variation, data: Data) -> None:
        super().__init__(solver)
        if data.partial:
            raise StreamError("target='variance' takes no missing entries; use nan_policy='omit'.")
        self._data = data
        length, entries, limit = data.length, math.prod(data.dims), budget(solver.memory_limit)
        if length is not None and solver.max_samples is not None:
            length = min(length, solver.max_samples)
        self._length, self._entries = length, entries
        rows = max(2, limit // (4 * 8 * entries))  # rows, centred rows, flipped rows and slopes
        self._all_rows = length is not None and length <= rows
        self._squares = not self._all_rows and 3 * 8 * entries**2 <= limit
        self._by_passes = not self._all_rows and not self._squares
        if self._by_passes and not data.rereadable:
            raise MemoryBudgetError(
                f"variation of samples that pass by once takes the second moment of all {entries} entries, "
                f"{amount(3 * 8 * entries**2)}, and the memory is {amount(limit)}; give data that can be read again, "
                "or raise memory_limit."
            )
        if self._squares:
            rows = max(2, min(rows, TESTED // entries, (limit - 16 * entries**2) // (32 * entries)))
        self._stride = 1 if length is None or self._all_rows else max(1, -(-length // rows))
        self._most = int(rows)
        self._n, self._ended = 0, False
        self._part: Rows | None = None
        self._passes = 1
        self._found: list[tuple[list[Array], float]] = []  # patterns, and their Σ scores²
        # of further passes
        self._climb: VarianceClimb | None = None
        self._read = 0
        self._sum: SlopeMoments | None = None

    def ask(self) -> Ask[Any] | None:
        """The next samples."""
        if not self._ended:
            wanted = self._round()
            if wanted:
                return Ask(Rows(self._squares, self._stride, self._most), wanted)
            self._ended = True
        if not self._by_passes or self._n < 2 or len(self._found) >= self.solver.n_components:
            return None
        taken = self._taken_out(len(self._found))
        if self._climb is None:
            self._climb = VarianceClimb(starts_of(self._held(taken), random=1), PASS_TRIAL, PASS_SWEEPS, PASS_STILL)
        blank = SlopeMoments(self._rows.mean, taken, self._climb.starts, self._climb.mode)
        return Ask(blank, min(max(1, -(-self._n // ROUNDS)), self._n - self._read), rewind=self._read == 0)

    def _round(self) -> int:
        """Samples of the next round of the first pass; 0 when there are enough."""
        if self._length is None:
            limit = math.inf if self.solver.max_samples is None else self.solver.max_samples
            return int(min(max(1, TESTED // 4 // self._entries), limit - self._n))
        return int(min(max(1, -(-self._length // ROUNDS)), self._length - self._n))

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        phase = "directions" if self._ended else "moments"
        if not self._ended:
            wanted = self._round()
            if self._part is None:
                self._part = part
            else:
                self._part.merge(part)
            self._n += part.n
            self._ended = part.n < wanted
        else:
            if self._sum is None:
                self._sum = part
            else:
                self._sum.merge(part)
            self._read += part.n
            if self._read >= self._n or not part.n:
                self._step()
        self.call({"samples": self._n, "pass": self._passes, "phase": phase, "component": len(self._found)})

    def _step(self) -> None:
        """One mode of all starts, after a whole pass."""
        assert self._climb is not None
        assert self._sum is not None
        self._climb.step(self._sum.moments)
        self._sum, self._read, self._passes = None, 0, self._passes + 1
        if self._climb.done:
            self._found.append((self._climb.starts[0], float(self._climb.values[0])))
            self._climb = None

    def close(self) -> None:
        """No more samples."""
        self._ended = True

    @property
    def _rows(self) -> Rows:
        """What the first pass gave."""
        assert self._part is not None
        return self._part

    def _taken_out(self, count: int) -> Array:
        """The first patterns, orthonormal."""
        return orthonormal([vectors for vectors, _ in self._found[:count]], self._entries)

    def _held(self, taken_out: Array) -> Array:
        """The rows that are held, centred, without patterns; in an order of their own where theirs means nothing."""
        rows = np.stack([self._rows.rows[place] for place in sorted(self._rows.rows)])
        if self.solver.dependence is None:
            rows = rows[own_order(rows)]
        return without(rows - self._rows.mean, taken_out).reshape(-1, *self._data.dims)

    # The answer -------------------------------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        """Components, largest first, with their shares."""
        refuse_all_left_out(self._n, self._data)
        if self._n < 2:
            raise StreamError(f"variation needs two samples at least, got {self._n}; give more.")
        solver, rows, n = self.solver, self._rows, self._n
        if rows.energy <= (1e3 * np.finfo(np.float64).eps) ** 2 * n * float(rows.mean @ rows.mean):
            raise StreamError("all samples are the same: they do not vary; give samples that differ.")
        if not self._by_passes:
            self._find()
        p, nulls, agreements, advice = self._test()
        found = len(self._found)
        errors = np.full((found, 1 + sum(self._data.dims)), math.nan)
        if self._all_rows and n >= 8 and n * self._entries <= TESTED and found:
            errors = jackknife(self._held(self._taken_out(0)), [vectors for vectors, _ in self._found])
        z = float(ndtri(0.5 + solver.confidence / 2))
        components = []
        for c, (vectors, value) in enumerate(self._found):
            if value <= 1e-13 * rows.energy:
                break
            variance, (error, *_) = value / n, errors[c]
            ends = tuple(math.sqrt(max(variance + sign * z * error, 0)) for sign in (-1, 1))
            *first, last = oriented(vectors)  # with a sign of its own: that of scores means nothing here
            components.append(
                Component(
                    vectors=(*first, last if last[np.argmax(np.abs(last))] > 0 else -last),
                    strength=math.sqrt(variance),
                    strength_interval=None if math.isnan(error) else (ends[0], ends[1]),
                    standard_errors=tuple(np.split(errors[c, 1:], np.cumsum(self._data.dims)[:-1])),
                    p_value=p[c],
                    variance=variance * n / (n - 1),
                    variance_ratio=value / rows.energy,
                    significant=bool(p[c] <= 1 - solver.confidence),
                    length=math.sqrt(variance),
                    statistic=float(nulls[c][0]) if nulls else math.nan,
                    null=nulls[c][1:] if nulls else None,
                    half_agreement=float(agreements[c]),
                )
            )
        zero = tuple(np.zeros(d) for d in self._data.dims)
        nothing = Component(zero, 0.0, (0.0, 0.0), zero, 1.0 if nulls else math.nan, variance=0.0, variance_ratio=0.0)
        components += [nothing] * (solver.n_components - len(components))
        stop = StopReason.STREAM_ENDED
        if not (nulls and p[0] <= 1 - solver.confidence):
            stop = StopReason.NO_SIGNAL if nulls else StopReason.UNTESTABLE
        held = rows.nbytes * (4 if self._all_rows else 3)
        return Estimate(
            solver="variation",
            components=tuple(components),
            stop_reason=stop,
            signal_p=p[0] if nulls else math.nan,
            n_samples=n,
            state_bytes=held + sum(8 * d * d for d in self._data.dims) * (HEADS + RANDOM_STARTS),
            n_passes=self._passes,
            n_units=n,
            n_resamples=len(nulls[0]) - 1 if nulls else 0,
            advice=tuple(advice),
        )

    def _find(self) -> None:
        """All patterns, from rows or a second moment in memory."""
        self._found = []
        if self._squares:
            values, axes = np.linalg.eigh(self._rows.scatter)
            factor = (axes * np.sqrt(np.maximum(values, 0))).T
        else:
            factor = self._held(self._taken_out(0)).reshape(-1, self._entries)
            if len(factor) > 2 * factor.shape[1]:
                factor = np.linalg.qr(factor, mode="r")
        for c in range(self.solver.n_components):
            Z = without(factor, self._taken_out(c)).reshape(-1, *self._data.dims)
            if not float(np.vdot(Z, Z)) > 1e-26 * self._rows.energy:
                break
            self._found.append(climbed(Z, starts_of(Z)))

    def _test(self) -> tuple[list[float], list[Array], Array, list[str]]:
        """Of every component p, null distribution and agreement of halves, on rows that are held; and advice."""
        rows, solver, p = self._held(self._taken_out(0)), self.solver, [math.nan] * len(self._found)
        unknown = np.array(p)
        if len(rows) < 4 or not p:
            action = "Give 4 or more." if self._n < 4 else "A larger memory_limit allows for more."
            return p, [], unknown, [f"Not tested: {len(rows)} samples are too few. {action}"]
        if solver.dependence is not None and self._stride == 1 and len(rows) > 8 and (r := neighbours_alike(rows)):
            return (
                p,
                [],
                unknown,
                [
                    f"Not tested: neighbouring samples are correlated ({r:.2f}), and the test takes them as "
                    "independent. If their order is meaningless, use dependence=None."
                ],
            )
        used, advice = min(max(4, TESTED // self._entries), len(rows)), []
        if used < self._n:
            advice = [f"The test used {used} of {self._n} samples; a larger memory_limit may allow more."]
            rows = rows[np.linspace(0, len(rows) - 1, used).astype(int)]
        rng = generator(solver.random_state, "signs")
        asked = FLIPS if solver.n_resamples == "auto" else int(solver.n_resamples)
        nulls, least = [], 0.0
        for c in range(len(p)):
            Z = without(rows.reshape(used, -1), self._taken_out(c)).reshape(rows.shape)
            nulls.append(sign_test(Z, asked, rng))
            p[c] = least = max(float(p_values(nulls[c])[0]), least)
        fitted = functools.partial(leading_of_some, rows, len(p))
        return p, nulls, half_agreements(used, fitted, [own for own, _ in self._found], signed=False), advice
