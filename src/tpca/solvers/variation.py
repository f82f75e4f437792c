r"""What varies from sample to sample: rank-one patterns with the largest variance of ⟨T − T̄, ⊗v⟩.

With Z the centred samples, mode m of a pattern is the leading eigenvector of the d_m × d_m second moment of Z
contracted with the vectors of all other modes; one mode after the other until none moves, from the rank-one fits of the
leading principal components and a few fixed random starts.  The next component is that of Z without its scores,
:math:`Z_i \leftarrow Z_i - \langle Z_i, p\rangle p` with :math:`p = \otimes v`.

Small data are held.  Of large ones there are passes, one for every mode and sweep, in Σd² memory; of samples that pass
by once the second moment of all entries is kept, where it fits.

**Test.**  Every centred entry gets a random sign, and the largest variance of the data is compared with those, times
√(n/(n−1)) for the mean that was subtracted.  Leading rows of data and flips alike come from block Lanczos iteration,
and a few sweeps from there: a start that misses what the fit has found would make p large.  It says that entries are
correlated, no more.

**Errors** by leaving out one of up to 32 units of samples at a time (jackknife).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from tpca.checkpoint import kept
from tpca.engines import Data
from tpca.errors import MemoryBudgetError, StreamError
from tpca.inference.design import refuse_extreme_size
from tpca.inference.flips import Progress, own_order, p_values
from tpca.inference.scatter import half_agreements, slope, unit_halves
from tpca.randomness import generator
from tpca.solvers.estimate import Component, Estimate, StopReason
from tpca.solvers.options import ClaimingSolver, budget, check_dependence, check_resamples, option
from tpca.solvers.rank_one import best_rank_one, fits, oriented, outer, units
from tpca.solvers.run import Ask, Run, refuse_all_left_out, tell_flips
from tpca.tensors.accumulators import Accumulator, plus
from tpca.tensors.blocks import Array
from tpca.tensors.rows import BatchSums
from tpca.wording import amount

FLIPS = 99
HEADS, RANDOM_STARTS = 3, 3
TRIAL, SWEEPS, STILL = 10, 100, 1e-20  # sweeps of all starts, and of the best one until none of its vectors moves
PASS_TRIAL, PASS_SWEEPS, PASS_STILL = 2, 10, 1e-12  # the same where every mode of a sweep takes a pass
FLIP_HEADS, FLIP_TRIAL, FLIP_SWEEPS = 6, 3, 4  # with 3 heads p misses some weak patterns that the fit finds
UNIT_SWEEPS = 3
BLOCK, LANCZOS_STEPS = 2, 10
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

    SUMS = ("mean", "scatter", "rows")  # what is held

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
            flat, places, own = samples.reshape(len(samples), -1), batch.places[some], Rows(squares, stride, most)
            own.n, own.mean = len(flat), flat.mean(axis=0)
            left = flat - own.mean
            own.energy, own.scatter = float(np.vdot(left, left)), left.T @ left if squares else None
            chosen = np.flatnonzero(places % stride == 0)[: most - len(self.rows)]
            own.rows = {int(places[j]): flat[j].copy() for j in chosen}
            self.merge(own)

    def merge(self, other: Rows) -> None:
        """Both; nothing cancels (Chan, Golub & LeVeque 1979)."""
        if self.n and other.n:
            total = self.n + other.n
            shift, factor = other.mean - self.mean, self.n * other.n / total
            if other.scatter is not None:
                self.scatter = self.scatter + other.scatter + factor * np.outer(shift, shift)
            self.energy += other.energy + factor * float(shift @ shift)
            self.n, self.mean = total, self.mean + shift * (other.n / total)
        elif other.n:
            self.n, self.mean, self.energy, self.scatter = other.n, other.mean, other.energy, other.scatter
        self.rows |= dict(itertools.islice(other.rows.items(), self.most - len(self.rows)))


def slope_sums(batch: Any, mean: Array, before: Array, starts: Sequence[Sequence[Array]], mode: int) -> list[Array]:
    """Second moments of the samples of a batch, centred and without orthonormal patterns ``before`` (c, E)."""
    total = np.zeros((len(starts), *2 * (len(starts[0][mode]),)))
    for _, samples, _ in batch.dense_pieces():
        left = without(samples.reshape(len(samples), -1) - mean, before).reshape(samples.shape)
        total += slope_moments(left, starts, mode)
    return list(total)


def slope_moments(Z: Array, patterns: Sequence[Sequence[Array]], mode: int) -> list[Array]:
    """Second moments of rows (n, *dims) contracted with all vectors but one, of every pattern."""
    return [s.T @ s for s in (slope(Z, vectors, mode) for vectors in patterns)]


def without(flat: Array, patterns: Array) -> Array:
    """Rows without orthonormal patterns."""
    return flat - (flat @ patterns.T) @ patterns if len(patterns) else flat


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


def components_of(
    rows: Array, count: int, starts: Sequence[Sequence[Array]] | None = None, sweeps: int = SWEEPS
) -> list[tuple[list[Array], float]]:
    """Patterns of centred rows (n, *dims) with their Σ scores², each of what those before it leave.

    Each from its own of some ``starts``, or from all there are (:func:`starts_of`).  Fewer where nothing is left.
    """
    flat, found = rows.reshape(len(rows), -1), list[tuple[list[Array], float]]()
    if len(flat) > 2 * flat.shape[1]:
        flat = np.asarray(np.linalg.qr(flat, mode="r"))
    for c in range(count):
        Z = without(flat, orthonormal([own for own, _ in found], flat.shape[1])).reshape(-1, *rows.shape[1:])
        if c and not float(np.vdot(Z, Z)) > 1e-26 * float(np.vdot(flat, flat)):
            break
        climb = VarianceClimb(starts_of(Z) if starts is None else [starts[c]], TRIAL, sweeps)
        while not climb.done:
            climb.step(slope_moments(Z, climb.starts, climb.mode))
        found.append((climb.starts[0], float(climb.values[0])))
    return found


# Test and errors ------------------------------------------------------------------------------------------------------


def sign_test(Z: Array, n_resamples: int, rng: np.random.Generator, progress: Progress | None = None) -> Array:
    """About the largest variance of rows, and after it those of rows whose entries have random signs.

    All by the same procedure, :func:`largest_variance`.
    """
    values = np.zeros(1 + n_resamples)
    for number in range(1 + n_resamples):
        rows = Z
        if number:
            rows = Z * rng.choice([-1.0, 1.0], size=Z.shape)
        values[number] = largest_variance(rows)
        if progress is not None:
            progress(number + 1, 1 + n_resamples)
    values[1:] *= len(Z) / (len(Z) - 1)
    return values


def largest_variance(rows: Array) -> float:
    """About the largest Σ scores² of a pattern of rows (n, *dims): a few sweeps from rank-one fits of leading rows."""
    flat = rows.reshape(len(rows), -1)
    if len(flat) > 2 * flat.shape[1]:
        flat = np.asarray(np.linalg.qr(flat, mode="r"))
    heads = leading_rows(flat, FLIP_HEADS)
    if rows.ndim == 2:
        scores = flat @ heads[0]
        return float(scores @ scores)
    vectors, _ = fits(heads.reshape(-1, *rows.shape[1:]))
    starts = [[v[c] for v in vectors] for c in range(len(heads))]
    climb = VarianceClimb(starts, FLIP_TRIAL, FLIP_SWEEPS)
    Z = flat.reshape(-1, *rows.shape[1:])
    while not climb.done:
        climb.step(slope_moments(Z, climb.starts, climb.mode))
    return float(climb.values[0])


def leading_rows(flat: Array, count: int) -> Array:
    """About the ``count`` leading principal components (c, E) of rows (n, E), by block Lanczos iteration.

    With F the rows, or their transpose where that is shorter, the span of X, FFᵀX, … (FFᵀ)^(k−1)X of two fixed random
    columns X; and in it the leading eigenvectors of FFᵀ.  All columns are kept orthogonal to those before them.
    """
    wide = flat if len(flat) <= flat.shape[1] else flat.T
    block = np.linalg.qr(np.random.default_rng(0).standard_normal((len(wide), min(BLOCK, len(wide)))))[0]
    basis = np.empty((len(wide), 0))
    images = np.empty((0, wide.shape[1]))  # basisᵀF
    for _ in range(min(LANCZOS_STEPS, len(wide) // block.shape[1])):
        fresh_images = block.T @ wide
        basis = np.hstack([basis, block])
        images = np.vstack([images, fresh_images])
        block = wide @ fresh_images.T
        for _ in range(2):  # once is not enough in floating point
            block = block - basis @ (basis.T @ block)
        block = np.linalg.qr(block)[0]
    axes = np.linalg.eigh(images @ images.T)[1]
    top = axes[:, ::-1][:, :count]
    heads = top.T @ images if wide is flat else (basis @ top).T
    return units(heads)


def jackknife(rows: Array, patterns: Sequence[Sequence[Array]]) -> Array:
    """Errors (c, 1 + Σd) of the variance and of all vectors of every pattern, by leaving out units of rows in turn."""
    n, count = len(rows), min(UNITS, len(rows))
    unit, each = np.arange(n) * count // n, []
    for g in range(count):
        left = rows[unit != g]
        found = components_of(left - left.mean(axis=0), len(patterns), patterns, UNIT_SWEEPS)
        found += [([np.zeros(d) for d in rows.shape[1:]], 0.0)] * (len(patterns) - len(found))
        each.append([np.concatenate([[value / len(left)], *own]) for own, value in found])
    stack = np.array(each)
    return np.asarray(np.sqrt(np.sum((stack - stack.mean(axis=0)) ** 2, axis=0) * (count - 1) / count))


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

    kept = ("_rows", "_ended", "_passes", "_found", "_climb", "_read", "_moments")

    def __init__(self, solver: Variation, data: Data) -> None:
        super().__init__(solver)
        if data.partial:
            raise StreamError("target='variance' takes no missing entries; use nan_policy='omit'.")
        length, entries, limit = data.length, math.prod(data.dims), budget(solver.memory_limit)
        if length is not None and solver.max_samples is not None:
            length = min(length, solver.max_samples)
        self._data, self._length, self._entries = data, length, entries
        rows, self._way = max(2, limit // (4 * 8 * entries)), "passes"  # rows, centred rows, flipped rows and slopes
        if length is not None and length <= rows:
            self._way = "rows"
        elif 3 * 8 * entries**2 <= limit:
            self._way = "moments"
            rows = max(2, min(rows, TESTED // entries, (limit - 16 * entries**2) // (32 * entries)))
        elif not data.rereadable:
            raise MemoryBudgetError(
                f"variation of samples that pass by once takes the second moment of all {entries} entries, "
                f"{amount(3 * 8 * entries**2)}, and the memory is {amount(limit)}; give data that can be read again, "
                "or raise memory_limit."
            )
        self._stride = 1 if length is None else max(1, -(-length // rows))
        self._most = int(rows)
        self._rows, self._ended, self._passes = Rows(self._way == "moments", self._stride, self._most), False, 1
        self._found: list[tuple[list[Array], float]] = []  # patterns, and their Σ scores²
        # Of further passes.
        self._climb: VarianceClimb | None = None
        self._read = 0
        self._moments: Any = None

    def ask(self) -> Ask[Any] | None:
        """The next samples."""
        if not self._ended:
            wanted = self._round()
            if wanted:
                return Ask(Rows(self._way == "moments", self._stride, self._most), wanted)
            self._ended = True
        n = self._rows.n
        if self._way != "passes" or n < 2 or len(self._found) >= self.solver.n_components:
            return None
        taken = orthonormal([vectors for vectors, _ in self._found], self._entries)
        if self._climb is None:
            left = without(self._held().reshape(-1, self._entries), taken).reshape(-1, *self._data.dims)
            self._climb = VarianceClimb(starts_of(left, random=1), PASS_TRIAL, PASS_SWEEPS, PASS_STILL)
        blank = BatchSums(slope_sums, self._rows.mean, taken, self._climb.starts, self._climb.mode)
        return Ask(blank, min(max(1, -(-n // ROUNDS)), n - self._read), rewind=self._read == 0)

    def _round(self) -> int:
        """Samples of the next round of the first pass; 0 when there are enough."""
        if self._length is None:
            limit = math.inf if self.solver.max_samples is None else self.solver.max_samples
            return int(min(max(1, TESTED // 4 // self._entries), limit - self._rows.n))
        return int(min(max(1, -(-self._length // ROUNDS)), self._length - self._rows.n))

    def tell(self, part: Any) -> None:
        """Take what was asked for."""
        phase = "directions" if self._ended else "moments"
        if not self._ended:
            self._ended = part.n < self._round()
            self._rows.merge(part)
        else:
            self._moments, self._read = plus(self._moments, part.sums), self._read + part.n
            if self._read >= self._rows.n or not part.n:  # one mode of all starts, after a whole pass
                assert self._climb is not None
                self._climb.step(self._moments)
                self._moments, self._read, self._passes = None, 0, self._passes + 1
                if self._climb.done:
                    self._found.append((self._climb.starts[0], float(self._climb.values[0])))
                    self._climb = None
        self.call({"samples": self._rows.n, "pass": self._passes, "phase": phase, "component": len(self._found)})

    def close(self) -> None:
        """No more samples."""
        self._ended = True

    def _held(self) -> Array:
        """The rows that are held, centred; in an order of their own where theirs means nothing."""
        rows = np.stack([self._rows.rows[place] for place in sorted(self._rows.rows)])
        if self.solver.dependence is None:
            rows = rows[own_order(rows)]
        return np.asarray((rows - self._rows.mean).reshape(-1, *self._data.dims))

    # The answer -------------------------------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        """Components, largest first, with their shares."""
        solver, rows, n, dims = self.solver, self._rows, self._rows.n, self._data.dims
        refuse_all_left_out(n, self._data)
        if n < 2:
            raise StreamError(f"variation needs two samples at least, got {n}; give more.")
        refuse_extreme_size("samples", max(float(np.max(np.abs(row))) for row in rows.rows.values()))
        if rows.energy <= (1e3 * np.finfo(np.float64).eps) ** 2 * n * float(rows.mean @ rows.mean):
            raise StreamError("all samples are the same: they do not vary; give samples that differ.")
        if self._way == "rows":
            self._found = components_of(self._held(), solver.n_components)
        elif self._way == "moments":
            values, axes = np.linalg.eigh(rows.scatter)
            factor = (axes * np.sqrt(np.maximum(values, 0))).T
            self._found = components_of(factor.reshape(-1, *dims), solver.n_components)
        p, nulls, agreements, advice = self._test()
        found = len(self._found)
        errors = np.full((found, 1 + sum(dims)), math.nan)
        if self._way == "rows" and n >= 8 and n * self._entries <= TESTED and found:
            errors = jackknife(self._held(), [vectors for vectors, _ in self._found])
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
                    standard_errors=tuple(np.split(errors[c, 1:], np.cumsum(dims)[:-1])),
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
        zero = tuple(np.zeros(d) for d in dims)
        nothing = Component(zero, 0.0, (0.0, 0.0), zero, 1.0 if nulls else math.nan, variance=0.0, variance_ratio=0.0)
        components += [nothing] * (solver.n_components - len(components))
        stop = StopReason.STREAM_ENDED
        if not (nulls and p[0] <= 1 - solver.confidence):
            stop = StopReason.NO_SIGNAL if nulls else StopReason.UNTESTABLE
        held = rows.nbytes * (4 if self._way == "rows" else 3)
        return Estimate(
            solver="variation",
            components=tuple(components),
            stop_reason=stop,
            signal_p=p[0] if nulls else math.nan,
            n_samples=n,
            state_bytes=held + sum(8 * d * d for d in dims) * (HEADS + RANDOM_STARTS),
            n_passes=self._passes,
            n_units=n,
            n_resamples=len(nulls[0]) - 1 if nulls else 0,
            advice=tuple(advice),
        )

    def _test(self) -> tuple[list[float], list[Array], Array, list[str]]:
        """Of every component p, null distribution and agreement of halves, on rows that are held; and advice."""
        rows, solver, p, n, why = self._held(), self.solver, [math.nan] * len(self._found), self._rows.n, ""
        if len(rows) < 4 or not p:
            action = "Give 4 or more." if n < 4 else "A larger memory_limit allows for more."
            why = f"{len(rows)} samples are too few. {action}"
        elif solver.dependence is not None and self._stride == 1 and len(rows) > 8 and (r := neighbours_alike(rows)):
            why = f"neighbouring samples are correlated ({r:.2f}), and the test takes them as independent. "
            why += "If their order is meaningless, use dependence=None."
        if why:
            return p, [], np.array(p), [f"Not tested: {why}"]
        used, advice = min(max(4, TESTED // self._entries), len(rows)), []
        if used < n:
            advice = [f"The test used {used} of {n} samples; a larger memory_limit may allow more."]
            rows = rows[np.linspace(0, len(rows) - 1, used).astype(int)]
        rng = generator(solver.random_state, "signs")
        asked = FLIPS if solver.n_resamples == "auto" else int(solver.n_resamples)
        nulls, least, patterns = [], 0.0, [vectors for vectors, _ in self._found]
        for c in range(len(p)):
            Z = without(rows.reshape(used, -1), orthonormal(patterns[:c], self._entries)).reshape(rows.shape)
            nulls.append(sign_test(Z, asked, rng, functools.partial(tell_flips, self.solver.callbacks, n)))
            p[c] = least = max(float(p_values(nulls[c])[0]), least)

        def fitted(some: Any) -> list[list[Array]]:
            own = rows[some]
            found = [vectors for vectors, _ in components_of(own - own.mean(axis=0), len(p))]
            return found + [[np.zeros(d) for d in rows.shape[1:]]] * (len(p) - len(found))

        halves = [fitted(half) for half in unit_halves(used)]
        return p, nulls, half_agreements(halves, patterns, signed=False), advice
