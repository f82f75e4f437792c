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

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import MemoryBudgetError, StreamError
from tpca.inference.flips import p_values
from tpca.inference.scatter import slope
from tpca.randomness import generator
from tpca.solvers.estimate import Component, Recovery, StopReason
from tpca.solvers.least_squares.components import best_rank_one, fits, outer
from tpca.solvers.least_squares.solver import check_dependence, check_resamples
from tpca.solvers.memory import budget
from tpca.solvers.options import ClaimingSolver, option
from tpca.solvers.rank_one import oriented
from tpca.solvers.run import Ask, refuse_all_left_out
from tpca.tensors.accumulators import Accumulator
from tpca.tensors.blocks import Array
from tpca.wording import amount

FLIPS = 99
HEADS, RANDOM_STARTS = 3, 3
SWEEPS, STILL = 100, 1e-20
FLIP_SWEEPS, POWER_STEPS = 6, 12
TESTED = 2**22  # numbers of the rows that are tested, and left out by turns
UNITS = 32
DEPENDENT = (0.1, 3.0)  # mean cosine of neighbouring samples, and its z
PASS_SWEEPS = 12
ROUNDS = 32

Moments = Callable[[list[list[Array]], int], list[Array]]


@kept
class Spread:
    """``n``, ``mean`` and Σ|T − mean|², and with ``scatter`` the second moment (E, E) about the mean."""

    def __init__(self, n: int, mean: Any, energy: float, scatter: Any = None) -> None:
        self.n, self.mean, self.energy, self.scatter = n, mean, energy, scatter

    def plus(self, other: Spread) -> Spread:
        """Both (Chan, Golub & LeVeque 1979): nothing cancels."""
        n = self.n + other.n
        shift, factor = other.mean - self.mean, self.n * other.n / n
        scatter = None
        if self.scatter is not None:
            scatter = self.scatter + other.scatter + factor * np.outer(shift, shift)
        energy = self.energy + other.energy + factor * float(shift @ shift)
        return Spread(n, self.mean + shift * (other.n / n), energy, scatter)


class Rows(Accumulator):
    """The spread of all samples, and the samples at every ``stride``-th place, ``most`` at most."""

    def __init__(self, squares: bool, stride: int, most: int) -> None:
        super().__init__(squares, stride, most)
        self.most = most  # also of one that comes from a worker, without what it was asked
        self.spread: Spread | None = None
        self.rows: dict[int, Any] = {}

    def add(self, batch: Any, at: int) -> None:  # noqa: ARG002
        """Add the samples."""
        assert self.question is not None
        squares, stride, most = self.question
        for some, samples, _ in batch.dense_pieces():
            flat = samples.reshape(len(samples), -1)
            mean = flat.mean(axis=0)
            left = flat - mean
            own = Spread(len(flat), mean, float(np.vdot(left, left)), left.T @ left if squares else None)
            self.spread = own if self.spread is None else self.spread.plus(own)
            places = batch.places[some]
            for j in np.flatnonzero(places % stride == 0):
                if len(self.rows) < most:
                    self.rows[int(places[j])] = flat[j].copy()
        self.n += len(batch)

    def merge(self, other: Rows) -> None:
        """Both."""
        if other.spread is not None:
            self.spread = other.spread if self.spread is None else self.spread.plus(other.spread)
        for place, row in other.rows.items():
            if len(self.rows) < self.most:
                self.rows[place] = row
        self.n += other.n

    @property
    def nbytes(self) -> int:
        """What is held."""
        held = sum(row.nbytes for row in self.rows.values())
        if self.spread is not None:
            held += self.spread.mean.nbytes + (0 if self.spread.scatter is None else self.spread.scatter.nbytes)
        return int(held)


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
        assert self.question is not None
        mean, before, starts, mode = self.question
        for _, samples, _ in batch.dense_pieces():
            flat = samples.reshape(len(samples), -1) - mean
            flat = flat - (flat @ before.T) @ before
            left = flat.reshape(samples.shape)
            each = [slope(left, vectors, mode) for vectors in starts]
            own = np.stack([s.T @ s for s in each])
            self.moments = own if self.moments is None else self.moments + own
        self.n += len(batch)


def in_memory(Z: Array) -> Moments:
    """Second moments of held rows (n, *dims)."""
    return lambda starts, mode: [s.T @ s for s in (slope(Z, vectors, mode) for vectors in starts)]


def starts_of(Z: Array, count: int = HEADS, random: int = RANDOM_STARTS) -> list[list[Array]]:
    """Rank-one fits of the leading principal components of rows (n, *dims), and fixed random vectors."""
    flat, dims = Z.reshape(len(Z), -1), Z.shape[1:]
    if len(flat) <= flat.shape[1]:
        leading = np.linalg.eigh(flat @ flat.T)[1][:, ::-1][:, :count].T @ flat
    else:
        leading = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :count].T
    found = [best_rank_one(head.reshape(dims), rough=True)[0] for head in leading if np.linalg.norm(head) > 0]
    rng = np.random.default_rng(0)  # fixed: the answer has no seed
    drawn = [[np.asarray(v / np.linalg.norm(v)) for v in map(rng.standard_normal, dims)] for _ in range(random)]
    return [*found, *(drawn if len(dims) > 1 or not found else [])]


def climb(moments: Moments, starts: list[list[Array]], sweeps: int) -> tuple[list[list[Array]], Array]:
    """Every start, one mode after the other at its leading eigenvector, until none moves; values are Σ scores²."""
    values = np.zeros(len(starts))
    starts = [list(start) for start in starts]
    for _ in range(sweeps):
        moved = 0.0
        for mode in range(len(starts[0])):
            for c, moment in enumerate(moments(starts, mode)):
                top, axes = np.linalg.eigh(moment)
                v, before = axes[:, -1], starts[c][mode]
                v = v if v @ before >= 0 else -v
                moved = max(moved, float(np.sum((v - before) ** 2)))
                starts[c][mode], values[c] = v, top[-1]
        if moved < STILL:
            break
    return starts, values


def largest(moments: Moments, starts: list[list[Array]], sweeps: int = SWEEPS) -> tuple[list[Array], float]:
    """The pattern with the largest Σ scores², and that."""
    tried, values = climb(moments, starts, min(10, sweeps))
    best = int(np.argmax(values))
    found, value = climb(moments, [tried[best]], sweeps)
    return found[0], float(value[0])


def without(flat: Array, patterns: Array) -> Array:
    """Rows without orthonormal patterns."""
    return flat - (flat @ patterns.T) @ patterns


def orthonormal(patterns: Sequence[Array], size: int) -> Array:
    """Patterns, each without those before it, as rows."""
    rows = np.zeros((0, size))
    for pattern in patterns:
        own = without(pattern.reshape(1, -1), rows)
        norm = float(np.linalg.norm(own))
        rows = np.vstack([rows, own / norm]) if norm > 1e-12 else rows
    return rows


def _definite(pattern: Sequence[Array]) -> tuple[Array, ...]:
    """The pattern with a sign of its own: that of scores means nothing here, and must not depend on their order."""
    *first, last = oriented(pattern)
    return (*first, last if last[np.argmax(np.abs(last))] > 0 else -last)


def sign_test(Z: Array, n_resamples: int, rng: np.random.Generator) -> Array:
    """The largest variance of rows, and after it those of rows whose entries have random signs."""

    def statistic(rows: Array) -> float:
        flat = rows.reshape(len(rows), -1)
        x = np.random.default_rng(0).standard_normal(flat.shape[1])
        for _ in range(POWER_STEPS):
            x = (flat @ x) @ flat
            x = x / max(float(np.linalg.norm(x)), 1e-300)
        start = [v[0] for v in fits(x.reshape(1, *rows.shape[1:]))[0]]
        return float(climb(in_memory(rows), [start], FLIP_SWEEPS)[1][0])

    factor = len(Z) / (len(Z) - 1)
    values = [statistic(Z)]
    values += [statistic(Z * rng.choice([-1.0, 1.0], size=Z.shape)) * factor for _ in range(n_resamples)]
    return np.array(values)


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

    def budget(self) -> int:
        """Bytes that may be held."""
        return budget(self.memory_limit)


class VariationRun:
    """One pass for the mean, rows and second moments; further passes where these do not fit."""

    def __init__(self, solver: Variation, data: Data) -> None:
        if data.partial:
            raise StreamError("target='variance' takes no missing entries; use nan_policy='omit'.")
        self._solver, self._data = solver, data
        entries, limit = math.prod(data.dims), solver.budget()
        length = (
            data.length if data.length is None or solver.max_samples is None else min(data.length, solver.max_samples)
        )
        self._length, self._entries = length, entries
        rows = max(2, limit // 4 // (8 * entries))  # rows, centred rows, flipped rows and slopes
        self._all_rows = length is not None and length <= rows
        self._squares = not self._all_rows and 3 * 8 * entries**2 <= limit
        if not self._squares and not self._all_rows and not data.rereadable:
            raise MemoryBudgetError(
                f"variation of samples that pass by once takes the second moment of all {entries} entries, "
                f"{amount(3 * 8 * entries**2)}, and the memory is {amount(limit)}; give data that can be read again, "
                "or raise memory_limit."
            )
        if not self._all_rows:
            rows = max(2, min(rows, TESTED // entries if self._squares else rows))
            rows = max(2, min(rows, (limit - (16 * entries**2 if self._squares else 0)) // (32 * entries)))
        self._stride = 1 if length is None or self._all_rows else max(1, -(-length // rows))
        self._most = int(length if length is not None and self._all_rows else rows)
        self._n, self._read, self._ended = 0, 0, False
        self._part: Rows | None = None
        self._passes = 1
        # of further passes
        self._before: list[list[Array]] = []
        self._values: list[float] = []
        self._starts: list[list[Array]] | None = None
        self._tried: Array = np.zeros(0)
        self._sweep, self._mode, self._moved = 0, 0, 0.0
        self._sum: SlopeMoments | None = None

    def ask(self) -> Ask[Any] | None:
        """The next samples."""
        if not self._ended:
            wanted = self._round(self._n)
            if wanted:
                return Ask(Rows(self._squares, self._stride, self._most), wanted)
            self._end_first()
        if self._by_passes and self._n > 1 and len(self._before) < self._solver.n_components:
            blank = SlopeMoments(self._mean, self._taken_out, self._going, self._mode)
            return Ask(blank, min(max(1, -(-self._n // ROUNDS)), self._n - self._read), rewind=self._read == 0)
        return None

    def _round(self, n: int) -> int:
        limit = math.inf if self._solver.max_samples is None else self._solver.max_samples
        if self._length is None:
            return int(min(max(1, TESTED // 4 // self._entries), limit - n))
        return int(min(max(1, -(-self._length // ROUNDS)), self._length - n))

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        phase = "directions" if self._ended else "moments"
        if not self._ended:
            wanted = self._round(self._n)
            if self._part is None:
                self._part = part
            else:
                self._part.merge(part)
            self._n += part.n
            if part.n < wanted:
                self._end_first()
        else:
            if self._sum is None:
                self._sum = part
            else:
                self._sum.merge(part)
            self._read += part.n
            if self._read >= self._n or not part.n:
                self._step()
        for callback in self._solver.callbacks:
            callback({"samples": self._n, "pass": self._passes, "phase": phase, "component": len(self._before)})

    def close(self) -> None:
        """No more samples."""
        self._ended = True

    def _end_first(self) -> None:
        self._ended = True

    # Passes -----------------------------------------------------------------------------------------------------------

    @property
    def _by_passes(self) -> bool:
        return not self._all_rows and not self._squares and self._ended and self._data.rereadable

    @property
    def _mean(self) -> Array:
        assert self._part is not None
        assert self._part.spread is not None
        return np.asarray(self._part.spread.mean)

    @property
    def _taken_out(self) -> Array:
        return orthonormal([outer(v) for v in self._before], self._entries)

    @property
    def _going(self) -> list[list[Array]]:
        if self._starts is None:
            self._starts = starts_of(self._held(self._taken_out), random=1)
            self._tried = np.zeros(len(self._starts))
            self._sweep = self._mode = 0
            self._moved = 0.0
        return self._starts

    def _step(self) -> None:
        """One mode of all starts, after a whole pass."""
        assert self._sum is not None
        starts = self._going
        for c, moment in enumerate(self._sum.moments):
            top, axes = np.linalg.eigh(moment)
            v, before = axes[:, -1], starts[c][self._mode]
            v = v if v @ before >= 0 else -v
            self._moved = max(self._moved, float(np.sum((v - before) ** 2)))
            starts[c][self._mode], self._tried[c] = v, top[-1]
        self._sum, self._read, self._passes = None, 0, self._passes + 1
        self._mode += 1
        if self._mode < len(starts[0]):
            return
        self._mode, self._sweep = 0, self._sweep + 1
        if self._sweep == 2 and len(starts) > 1:  # the best goes on
            best = int(np.argmax(self._tried))
            self._starts, self._tried = [starts[best]], self._tried[best : best + 1]
        elif self._moved < 1e-12 or self._sweep >= PASS_SWEEPS:
            best = int(np.argmax(self._tried))
            self._before.append(starts[best])
            self._values.append(float(self._tried[best]))
            self._starts = None
        self._moved = 0.0

    def _held(self, taken_out: Array) -> Array:
        """The rows that are held, centred, without patterns."""
        assert self._part is not None
        rows = np.stack([self._part.rows[place] for place in sorted(self._part.rows)])
        return without(rows - self._mean, taken_out).reshape(-1, *self._data.dims)

    # The answer -------------------------------------------------------------------------------------------------------

    def recovery(self) -> Recovery:
        """Components, largest first, with their shares."""
        refuse_all_left_out(self._n, self._data)
        if self._n < 2 or self._part is None or self._part.spread is None:
            raise StreamError(f"variation needs two samples at least, got {self._n}; give more.")
        solver, spread, n = self._solver, self._part.spread, self._n
        total = spread.energy / n
        if spread.energy <= (1e3 * np.finfo(np.float64).eps) ** 2 * n * float(self._mean @ self._mean):
            raise StreamError("all samples are the same: they do not vary; give samples that differ.")
        notes: list[str] = []
        patterns = self._before if self._by_passes else self._patterns()
        values = self._values if self._by_passes else self._found_values
        p, nulls, tested = self._tests(patterns, notes)
        errors, spreads = self._jackknife(patterns)
        components = []
        for c in range(solver.n_components):
            if c >= len(patterns) or values[c] <= 1e-13 * spread.energy:
                zero = tuple(np.zeros(d) for d in self._data.dims)
                components.append(
                    Component(
                        zero, 0.0, (0.0, 0.0), zero, 1.0 if tested else math.nan, variance=0.0, variance_ratio=0.0
                    )
                )
                continue
            variance = values[c] / n
            error = spreads[c]
            ends = (
                None
                if math.isnan(error)
                else tuple(math.sqrt(max(variance + s * 1.959964 * error, 0)) for s in (-1, 1))
            )
            components.append(
                Component(
                    vectors=_definite(patterns[c]),
                    strength=math.sqrt(variance),
                    strength_interval=ends,  # type: ignore[arg-type]
                    standard_errors=tuple(errors[c]),
                    p_value=p[c],
                    variance=variance * n / (n - 1),
                    variance_ratio=variance / total if total > 0 else math.nan,
                    significant=bool(p[c] <= 1 - solver.confidence),
                    length=math.sqrt(variance),
                    statistic=math.nan if nulls[c] is None else float(nulls[c][0]),
                    null=None if nulls[c] is None else nulls[c][1:],
                )
            )
        stop = StopReason.STREAM_ENDED
        if not tested:
            stop = StopReason.UNTESTABLE
        elif not p[0] <= 1 - solver.confidence:
            stop = StopReason.NO_SIGNAL
        held = self._part.nbytes * (4 if self._all_rows else 3)
        return Recovery(
            solver="variation",
            components=tuple(components),
            stop_reason=stop,
            signal_p=p[0] if tested else math.nan,
            n_samples=n,
            state_bytes=held + sum(8 * d * d for d in self._data.dims) * (HEADS + RANDOM_STARTS),
            n_passes=self._passes,
            n_units=n,
            n_resamples=0 if nulls[0] is None else len(nulls[0]) - 1,
            notes=tuple(notes),
        )

    def _patterns(self) -> list[list[Array]]:
        """From rows or a second moment in memory."""
        assert self._part is not None
        assert self._part.spread is not None
        if self._squares:
            values, axes = np.linalg.eigh(self._part.spread.scatter)
            factor = (axes * np.sqrt(np.maximum(values, 0))).T
        else:
            factor = self._held(np.zeros((0, self._entries))).reshape(-1, self._entries)
            if len(factor) > 2 * factor.shape[1]:
                factor = np.linalg.qr(factor, mode="r")
        found: list[list[Array]] = []
        self._found_values: list[float] = []
        for _ in range(self._solver.n_components):
            Z = without(factor, orthonormal([outer(v) for v in found], self._entries)).reshape(-1, *self._data.dims)
            if not float(np.vdot(Z, Z)) > 1e-26 * self._part.spread.energy:
                break
            pattern, value = largest(in_memory(Z), starts_of(Z))
            found.append(pattern)
            self._found_values.append(value)
        return found

    def _tests(self, patterns: list[list[Array]], notes: list[str]) -> tuple[list[float], list[Any], bool]:
        """P of every component on the rows that are held, and whether they can be tested."""
        unknown = [math.nan] * len(patterns), [None] * max(1, len(patterns))
        assert self._part is not None
        solver, places = self._solver, sorted(self._part.rows)
        plain = self._held(np.zeros((0, self._entries)))
        if len(plain) < 4 or not patterns:
            return [*unknown[0], math.nan][: max(1, len(patterns))], unknown[1], False
        if solver.dependence is not None and self._stride == 1 and len(plain) > 8:
            flat = plain.reshape(len(plain), -1)
            size = np.sqrt(np.vecdot(flat, flat)) + 1e-300
            near = np.vecdot(flat[:-1], flat[1:]) / (size[:-1] * size[1:]) + 1 / len(flat)
            r, z = float(near.mean()), float(near.mean() / (near.std(ddof=1) / math.sqrt(len(near)) + 1e-300))
            if r > DEPENDENT[0] and z > DEPENDENT[1]:
                notes.append(
                    f"Not tested: neighbouring samples are correlated ({r:.2f}), and the test takes them as "
                    "independent. If their order is meaningless, use dependence=None."
                )
                return unknown[0], unknown[1], False
        most = max(4, TESTED // self._entries)
        if len(plain) > most or len(places) < self._n:
            used = min(most, len(plain))
            notes.append(f"The test used {used} of {self._n} samples; a larger memory_limit may allow more.")
            plain = plain[np.linspace(0, len(plain) - 1, used).astype(int)]
        rng = generator(solver.random_state, "signs")
        asked = FLIPS if solver.n_resamples == "auto" else int(solver.n_resamples)
        p: list[float] = []
        nulls: list[Any] = []
        for c in range(len(patterns)):
            taken = orthonormal([outer(v) for v in patterns[:c]], self._entries)
            Z = without(plain.reshape(len(plain), -1), taken).reshape(plain.shape)
            values = sign_test(Z, asked, rng)
            p.append(max([float(p_values(values)[0]), *p[-1:]]))
            nulls.append(values)
        return p, nulls, True

    def _jackknife(self, patterns: list[list[Array]]) -> tuple[list[list[Array]], list[float]]:
        """Standard errors of all vectors and variances; NaN where not all rows are held."""
        unknown = [[np.full(d, math.nan) for d in self._data.dims] for _ in patterns]
        if not self._all_rows or self._n < 8 or self._n * self._entries > TESTED:
            return unknown, [math.nan] * len(patterns)
        raw = self._held(np.zeros((0, self._entries))).reshape(-1, self._entries)
        n = len(raw)
        units = min(UNITS, n)
        unit = np.arange(n) * units // n
        each: list[list[Array]] = [[] for _ in patterns]
        for g in range(units):
            rows = raw[unit != g]
            rows = rows - rows.mean(axis=0)
            found: list[list[Array]] = []
            for c, pattern in enumerate(patterns):
                Z = without(rows, orthonormal([outer(v) for v in found], self._entries)).reshape(-1, *self._data.dims)
                own, value = climb(in_memory(Z), [pattern], 3)
                found.append(own[0])
                each[c].append(np.concatenate([[value[0] / len(rows)], *own[0]]))
        errors, spreads = [], []
        for rows_of in each:
            stack = np.stack(rows_of)
            own = np.sqrt(np.sum((stack - stack.mean(axis=0)) ** 2, axis=0) * (units - 1) / units)
            spreads.append(float(own[0]))
            errors.append(np.split(own[1:], np.cumsum(self._data.dims)[:-1]))
        return errors, spreads

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that the next step needs."""
        part = self._part
        names = (
            "_n",
            "_read",
            "_ended",
            "_passes",
            "_before",
            "_values",
            "_starts",
            "_tried",
            "_sweep",
            "_mode",
            "_moved",
        )
        state = {name: getattr(self, name) for name in names}
        state["part"] = None if part is None else [part.spread, part.rows, part.n]
        state["sum"] = None if self._sum is None else [self._sum.moments, self._sum.n]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, value in state.items():
            if name.startswith("_"):
                setattr(self, name, value)
        if state["part"] is not None:
            self._part = Rows(self._squares, self._stride, self._most)
            self._part.spread, rows, self._part.n = state["part"]
            self._part.rows = {int(place): row for place, row in rows.items()}
        if state["sum"] is not None:
            self._sum = SlopeMoments(self._mean, self._taken_out, self._going, self._mode)
            self._sum.moments, self._sum.n = state["sum"]

    def silent_copy(self) -> Self:
        """A copy that calls nobody back."""
        twin = copy.copy(self)
        twin._solver = copy.copy(self._solver)
        twin._solver.callbacks = ()
        twin._part = copy.deepcopy(self._part)
        return twin
