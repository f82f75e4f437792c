r"""From trials to slopes: N at 50 % and at 90 % success, power laws in d, and bootstrap intervals.

*N₅₀, N₉₀*: for every d, success counts at growing N are made monotone (isotonic regression) and interpolated at ½, or
at 0.9, linearly in log N.  *Slope*: least squares of :math:`\log N_{50}(d) - \log c(d)` on :math:`\log d`, c a known
correction such as the number of stages.  *Interval*: 95 % of bootstrap slopes, in which both the values of d and the
outcomes of the trials are drawn again, and the place of the crossing between two rungs of the ladder where success
jumps, so that neither the noise of counts, nor the coarseness of the ladder, nor a jitter between neighbouring d (h* is
rounded up) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from research.studies.study import Finding, Records
from tpca.randomness import generator
from tpca.tensors.blocks import Array

DRAWS = 400
HALF, NINETY = 0.5, 0.9
Correction = Callable[[float], float]
Draw = Callable[[np.random.Generator, float], float]


@dataclass(frozen=True)
class Curve:
    """Success counts at growing numbers of samples, for one value of d."""

    samples: Array
    wins: Array
    runs: Array

    @classmethod
    def gather(cls, points: Sequence[tuple[float, int, int]]) -> Curve:
        """From (samples, wins, runs), points at the same level added up."""
        levels: dict[float, list[float]] = {}
        for samples, wins, runs in points:
            level = levels.setdefault(round(math.log(samples), 2), [0.0, 0.0, 0.0])
            level[0] += math.log(samples) * runs
            level[1] += wins
            level[2] += runs
        rows = np.array([[np.exp(s / r), w, r] for _, (s, w, r) in sorted(levels.items())])
        return cls(*rows.T)

    def at(self, rate: float = HALF) -> float:
        """N at which success reaches ``rate``, or infinity where it never does; at most the smallest N of the curve."""
        return self._crossing(self.wins, rate, 0.5)

    def redrawn(self, rng: np.random.Generator, rate: float = HALF) -> float:
        """That of trials drawn again, and of another place between two rungs of the ladder.

        Where success jumps from one rung to the next the crossing lies anywhere between them.
        """
        wins: Array = rng.binomial(self.runs.astype(int), self.wins / self.runs).astype(float)
        return self._crossing(wins, rate, rng.random())

    def _crossing(self, wins: Array, rate: float, place: float) -> float:
        """Where the isotonic success curve crosses ``rate``; ``place`` in [0, 1] is ½ for its linear interpolation."""
        rates = isotonic_regression(wins / self.runs, weights=self.runs).x
        logs = np.log(self.samples)
        above = int(np.argmax(rates >= rate))
        if rates[above] < rate:
            return math.inf
        if above == 0 or rates[above] == rates[above - 1]:
            return float(self.samples[above])
        jump = rates[above] - rates[above - 1]
        share = (rate - rates[above - 1]) / jump + jump * (place - 0.5)
        return float(np.exp(logs[above - 1] + share * (logs[above] - logs[above - 1])))


@dataclass(frozen=True)
class Ratio:
    """How many times more samples one curve needs than another."""

    top: Curve
    bottom: Curve

    def at(self, rate: float = HALF) -> float:
        """The ratio of both N at a rate of success."""
        below = self.bottom.at(rate)
        return self.top.at(rate) / below if math.isfinite(below) else math.nan

    def redrawn(self, rng: np.random.Generator, rate: float = HALF) -> float:
        """The ratio of trials drawn again."""
        below = self.bottom.redrawn(rng, rate)
        return self.top.redrawn(rng, rate) / below if math.isfinite(below) else math.nan


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def holds(self, predicted: float) -> bool:
        """Whether the interval contains ``predicted``."""
        return self.low <= predicted <= self.high

    def text(self, digits: int = 2) -> str:
        """``2.03 [1.95, 2.11]``, or a dash."""
        if not math.isfinite(self.value):
            return "—"
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"

    def short(self) -> str:
        """``1.3e+12 [1.1e+12, 1.6e+12]``, for numbers of any size, or "beyond the ladder"."""
        if not math.isfinite(self.value):
            return "beyond the ladder"
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


def interval_of(curve: Curve | Ratio, rate: float = HALF) -> Interval:
    """N at a rate of success with its bootstrap interval, which is open where the smallest N of a ladder was enough."""
    rng = generator(0, "crossing")
    drawn = [x for x in (curve.redrawn(rng, rate) for _ in range(100)) if not math.isnan(x)]
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest") if drawn else (math.nan, math.nan)
    top, bottom = (curve.top, curve.bottom) if isinstance(curve, Ratio) else (curve, None)
    low = 0.0 if top.at(rate) == top.samples[0] else float(low)
    high = math.inf if bottom is not None and bottom.at(rate) == bottom.samples[0] else float(high)
    return Interval(curve.at(rate), low, high)


@dataclass(frozen=True)
class PowerLaw:
    """y ≈ exp(intercept) · c(x) · x^slope."""

    slope: Interval
    intercept: float
    points: dict[float, float]
    correction: Correction
    ninety: Interval | None = None
    """The slope of N₉₀, where success was counted."""
    last: str = ""
    """N₅₀ and N₉₀ at the largest x."""

    def upper(self) -> float:
        """The slope through the larger half of the points, where a prediction for large d should do better."""
        finite = {x: y for x, y in self.points.items() if math.isfinite(y) and y > 0}
        half = {x: finite[x] for x in sorted(finite)[len(finite) // 2 - 1 :]} if len(finite) > 3 else finite
        return _line(half.items(), self.correction)[0] if len(half) > 1 else math.nan

    def at(self, x: float) -> float:
        """The line at x."""
        return float(math.exp(self.intercept) * self.correction(x) * x**self.slope.value)


def flat(_: float) -> float:
    """No correction."""
    return 1.0


def power_law(curves: Mapping[float, Curve] | Mapping[float, Ratio], correction: Correction = flat) -> PowerLaw:
    """The slope of N₅₀ against d, and that of N₉₀, from success curves."""
    laws = []
    for rate in (HALF, NINETY):
        points = {x: curves[x].at(rate) for x in sorted(curves)}
        laws.append(_fit(points, lambda rng, x, rate=rate: curves[x].redrawn(rng, rate), correction))  # type: ignore[misc]
    half, ninety = laws
    if not curves:
        return half
    x = max(curves)
    told = [f"{name} {interval_of(curves[x], rate).short()}" for name, rate in (("N₅₀", HALF), ("N₉₀", NINETY))]
    return replace(half, ninety=ninety.slope, last=f"At {x:.3g}: {', '.join(told)}.")


def power_law_of(values: Mapping[float, Sequence[float]], correction: Correction = flat) -> PowerLaw:
    """The slope of the median of repeated measurements."""
    points = {x: float(np.median(values[x])) for x in sorted(values)}
    return _fit(points, lambda rng, x: float(np.median(rng.choice(values[x], len(values[x])))), correction)


def _fit(points: dict[float, float], draw: Draw, correction: Correction) -> PowerLaw:
    finite = {x: y for x, y in points.items() if math.isfinite(y) and y > 0}
    if len(finite) < 3:
        return PowerLaw(Interval(math.nan, math.nan, math.nan), math.nan, points, correction)
    slope, intercept = _line(finite.items(), correction)
    rng = generator(0, "bootstrap")
    xs = np.array(list(finite))
    slopes: list[float] = []
    while len(slopes) < DRAWS:
        chosen = rng.choice(xs, len(xs))
        again = [(x, draw(rng, x)) for x in chosen]
        kept = [(x, y) for x, y in again if math.isfinite(y) and y > 0]
        if len({x for x, _ in kept}) >= min(3, len(xs)):
            slopes.append(_line(kept, correction)[0])
    low, high = np.quantile(slopes, [0.025, 0.975])
    return PowerLaw(Interval(slope, float(low), float(high)), intercept, points, correction)


def _line(points: Iterable[tuple[float, float]], correction: Correction) -> tuple[float, float]:
    pairs = list(points)
    slope, intercept = np.polyfit(np.log([x for x, _ in pairs]), np.log([y / correction(x) for x, y in pairs]), 1)
    return float(slope), float(intercept)


def rate_interval(wins: int, runs: int) -> Interval:
    """A success rate with its Clopper–Pearson interval."""
    from scipy.stats import beta

    low = float(beta.ppf(0.025, wins, runs - wins + 1)) if wins else 0.0
    high = float(beta.ppf(0.975, wins + 1, runs - wins)) if wins < runs else 1.0
    return Interval(wins / runs, low, high)


@dataclass(frozen=True)
class Slope:
    """The prediction of a slope and how it is measured; ``line`` is its name in the figure, if it is drawn.

    A claim that is an upper ``bound`` agrees unless all of the 95 % interval lies above it; other claims agree if the
    interval holds the prediction.  ``form`` names what the law divides out.
    """

    label: str
    predicted: float
    law: PowerLaw | Callable[[Records], PowerLaw]
    note: str | Callable[[PowerLaw, Records], str] = ""
    form: str = ""
    bound: bool = True
    line: str = ""

    def measure(self, records: Records) -> PowerLaw:
        """The law of the trials."""
        return self.law if isinstance(self.law, PowerLaw) else self.law(records)

    def __call__(self, records: Records) -> list[Finding]:
        """What the trials say."""
        law = self.measure(records)
        told = f"slope {'at most ' if self.bound else ''}{self.predicted:g}"
        told += f", {self.form} divided out" if self.form else ""
        measured = law.slope.text() + (f"; N₉₀ {law.ninety.text()}" if law.ninety is not None else "")
        if not math.isfinite(law.slope.value):
            return [Finding(self.label, told, measured, None, "fewer than three values reached 50 % success.")]
        below = self.bound and law.slope.high < self.predicted
        agrees = below or law.slope.holds(self.predicted)
        note = self.note if isinstance(self.note, str) else self.note(law, records)
        more = "" if agrees else f"slope through the larger half of the points {law.upper():.2f}."
        more = "Below the bound: not tight here." if below else more
        reason = " ".join(part for part in (note, law.last, more) if part)
        return [Finding(self.label, told, measured, agrees, reason)]


def spread(law: PowerLaw, exponent: float) -> tuple[float, float]:
    """The smallest and the largest y/(c(x)·x^exponent): equal if all curves collapse."""
    scaled = [y / (law.correction(x) * x**exponent) for x, y in law.points.items() if math.isfinite(y)]
    return (min(scaled), max(scaled)) if scaled else (math.nan, math.nan)
