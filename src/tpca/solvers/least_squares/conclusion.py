"""From sums of units to what is said: components, p-values of each and of every entry, intervals, advice."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpca.errors import StreamError
from tpca.inference.flips import CHUNK, draw_signs, entry_p_values, least_p, resampled, usual_resamples
from tpca.inference.scatter import Errors, Tangents, errors_of, slopes
from tpca.inference.units import TOTAL, Contributions, Dependence, dependence
from tpca.inference.whitening import LoudDirections, Whitening, learn_whitening, longest_within, loud_directions, sphere
from tpca.randomness import generator
from tpca.solvers.estimate import Component, Recovery, StopReason, Verdict
from tpca.solvers.least_squares.components import OPPOSED, components_of, cosine, deflated, lengths
from tpca.solvers.least_squares.residuals import Fitted, Residuals, Scatter
from tpca.solvers.rank_one import oriented
from tpca.tensors.blocks import Array

if TYPE_CHECKING:
    from tpca.solvers.least_squares.run import LeastSquaresRun

HEAVY = 9.0  # kurtosis of residuals that is worth a word
SKEWED = 0.5
LOUD_SAMPLE = 0.25  # share of all energy in one sample
UNLIKE = 0.8
ALIKE, SHARED = 0.6, 0.98  # cosines of two components that are hard to tell apart
LEVEL_SMALL = 1e-10
ROUNDING = 1e3  # rounding errors, in units of the last place, that a sum may have


class Answer:
    """One question: its contributions, and the components of the estimate."""

    def __init__(self, name: str, parts: Contributions, solver: Any) -> None:
        self.name, self.parts = name, parts
        if not np.isfinite(np.vdot(parts.C, parts.C)):
            raise StreamError("sums of squares of the samples are not finite; divide them by some power of ten.")
        self.whitening: Whitening | None = None
        if solver.whiten == "modes":
            longest = longest_within(solver.budget())
            self.whitening = learn_whitening(sphere(parts.C), int(parts.stacked), longest)
            vectors, sizes = components_of(self.whitening(parts.D[None])[0], solver.n_components)
            vectors, sizes = _carried_back(self.whitening, vectors, sizes)
        else:
            vectors, sizes = components_of(parts.D, solver.n_components)
        self.vectors = [list(oriented(v)) for v in vectors]
        self.fitted = Fitted(parts, Tangents(self.vectors, sizes))

    @property
    def sizes(self) -> Array:
        """Lengths of the components."""
        return self.fitted.tangents.strengths


def _padded(whitening: Whitening, leading: int) -> Whitening:
    """The same for tensors with more modes in front."""
    return Whitening((None,) * leading + whitening.maps, (None,) * leading + whitening.inverses)


def _carried_back(whitening: Whitening, vectors: Any, sizes: Array) -> tuple[list[list[Array]], Array]:
    found, strengths = [], []
    for own, size in zip(vectors, sizes, strict=True):
        back = whitening.back(own)
        norms = [float(np.linalg.norm(v)) for v in back]
        found.append([v / max(norm, 1e-300) for v, norm in zip(back, norms, strict=True)])
        strengths.append(size * math.prod(norms))
    return found, np.array(strengths)


def _shared(one: Sequence[Array], other: Sequence[Array]) -> float:
    """How alike two components are: the product of their two largest cosines, or the largest where that is near 1.

    Two that share a mode are a matrix, which can be divided in many ways.
    """
    cosines = sorted(abs(float(v @ u)) for v, u in zip(one, other, strict=True))
    if len(cosines) < 3:
        return 0.0
    return cosines[-1] if cosines[-1] > SHARED else cosines[-1] * cosines[-2]


def conclude(run: LeastSquaresRun) -> Recovery:
    """What is said of all questions, in their order."""
    _refuse_constant(run)
    solver = run.solver
    rng = generator(solver.random_state, "flips")
    found = [_Conclusion(run, number, answer, rng) for number, answer in enumerate(run.answers)]
    components = tuple(one for each in found for one in each.components())
    tested = [each.p for each in found if not math.isnan(each.p)]
    signal_p = min(1.0, len(tested) * min(tested)) if tested else math.nan  # of several covariates: Bonferroni
    verdict = Verdict.NOT_TESTED
    if tested:
        verdict = Verdict.SIGNAL if signal_p <= 1 - solver.confidence else Verdict.NO_SIGNAL
    first = found[0]
    limited = solver.max_samples is not None and run.n >= solver.max_samples
    stop = StopReason.MAX_SAMPLES if limited else StopReason.STREAM_ENDED
    if verdict is not Verdict.SIGNAL:
        stop = StopReason.NO_SIGNAL if verdict is Verdict.NO_SIGNAL else StopReason.UNTESTABLE
    return Recovery(
        solver="least_squares",
        components=components,
        stop_reason=stop,
        signal_p=signal_p,
        n_samples=run.n,
        state_bytes=run.state_bytes,
        n_passes=1 if run.residuals is None else 2,
        noise_level=first.noise_level,
        entry_p_values=tuple(each.entries for each in found),
        rank_one_shares=tuple(each.rank_one_share for each in found),
        n_units=len(first.parts),
        n_resamples=first.n_resamples,
        inflation=first.dependence.inflation,
        notes=tuple(dict.fromkeys(note for each in found for note in each.notes())),
        observed=_rates(run),
    )


def _refuse_constant(run: LeastSquaresRun) -> None:
    """Refuse samples that differ by rounding alone: flips of rounding are no test."""
    parts, look = run.answers[0].parts, run.residuals
    if look is None or look.shape is None:
        noise = float(np.linalg.norm(parts.without_estimate())) / math.sqrt(len(parts))
    elif look.copies < parts.n - 1:
        return
    else:
        noise = math.sqrt(look.shape.square / parts.n)
    rounding = ROUNDING * float(np.finfo(run.dtype).eps)
    if noise <= rounding * (float(np.linalg.norm(parts.background)) + float(np.linalg.norm(parts.D))):
        raise StreamError(
            "all samples are the same: there is no noise to tell a signal from; give samples that differ."
        )


def _rates(run: LeastSquaresRun) -> tuple[Array, ...] | None:
    """Share of the entries of every slice that was observed."""
    sums = [unit for number, unit in run.sums.items() if number != TOTAL]
    if all(unit.grams is None for unit in sums):
        return None
    total = sum(unit.entrywise()[0, 0] for unit in sums)
    whole = sum(unit.gram[0, 0] for unit in sums)
    rates = np.asarray(total) / whole
    return tuple(rates.mean(axis=tuple(j for j in range(rates.ndim) if j != m)) for m in range(rates.ndim))


class _Conclusion:
    """All that is said of one question."""

    def __init__(self, run: LeastSquaresRun, number: int, answer: Answer, rng: np.random.Generator) -> None:
        solver = run.solver
        self._run, self._number, self._answer, self._solver = run, number, answer, solver
        self.parts = parts = answer.parts
        self.dependence = Dependence()
        if solver.dependence == "auto" and run.design.groups is None:
            self.dependence = dependence(parts, answer.vectors[0])
        entries = math.prod(parts.shape)
        asked = usual_resamples(entries) if solver.n_resamples == "auto" else solver.n_resamples
        self.signs = draw_signs(len(parts), asked, rng)
        self.n_resamples = len(self.signs) - 1
        self.least_p = least_p(len(parts), asked)
        self.why_not = self._untestable()
        unknown = np.full(parts.shape, math.nan)
        self.p, self.entries = math.nan, unknown
        self.own_p: list[float] = []
        self.seen: list[float] = []  # the statistic of every component, and what flips gave for it
        self.nulls: list[Array] = []
        if not self.why_not:
            self._test()
        self.errors = self._errors()

    def _untestable(self) -> str:
        """Why no claim can be made, with what would help; empty if one can."""
        units, level = len(self.parts), 1 - self._solver.confidence
        if not self.dependence.testable:
            r = self.dependence.likeness
            return (
                f"Not tested: neighbouring samples are correlated ({r:.2f}) over so many that too few are independent. "
                "If their order is meaningless, use dependence=None; if they belong to groups, give groups=."
            )
        if self.least_p > level * (1 + 1e-9):
            what = "groups" if self._run.design.groups is not None else "independent units of samples"
            return (
                f"Not tested: {units} {what} give no p-value below {self.least_p:.2g}, and confidence "
                f"{self._solver.confidence:g} needs {level:.2g}. Give more, or a lower confidence."
            )
        return ""

    def _versions(self) -> Mapping[str, Callable[[], Array]]:
        """Contributions as they are, whitened, and with loud directions taken down; each is made in its turn."""
        parts, C = self.parts, self.parts.C
        if self._answer.whitening is not None:
            return {"plain": functools.partial(self._answer.whitening, C)}
        if self._solver.whiten is None or C[0].size < 2:
            return {"plain": lambda: C}
        lead = int(parts.stacked)
        whitening, loud = self._learnt(lead)
        self.loud = loud

        def quiet() -> Array:
            white = whitening(C)
            return loud.taken_down(white.reshape(-1, *parts.dims)).reshape(white.shape)

        versions: dict[str, Callable[[], Array]] = {"plain": lambda: C, "white": lambda: whitening(C)}
        return versions | ({"quiet": quiet} if len(loud) else {})

    def _learnt(self, lead: int) -> tuple[Whitening, LoudDirections]:
        """From samples that were kept, or from the contributions themselves: moments that flips leave alone."""
        look = self._run.residuals
        if look is not None and len(look.samples) > 1:
            rows = np.stack([look.samples[place] for place in sorted(look.samples)])
            rows = rows.reshape(-1, *self.parts.dims)
        else:
            rows = sphere(self.parts.C.reshape(-1, *self.parts.dims))
        whitening = learn_whitening(rows, longest=longest_within(self._solver.budget()))
        return _padded(whitening, lead), loud_directions(whitening(rows))

    def _test(self) -> None:
        parts, signs = self.parts, self.signs
        scale = parts.scales(signs, self.dependence.enlarged)
        most = min(CHUNK, self._solver.budget() // 64)  # an eighth of the memory, beside copies of that size
        found = resampled(self._versions(), lengths, signs, scale, most)
        self.p, p, null = found.adjusted, found.adjusted_for("plain"), found.values[0, 1:]
        self.own_p, self.seen, self.nulls = [p], [float(found.values[0, 0])], [null]
        self.statistics = {name: float(found.p[i, 0]) for i, name in enumerate(found.names)}
        self.entries = entry_p_values(parts.C, signs, scale, most)
        if self._answer.whitening is not None:
            C = self._answer.whitening(parts.C)
            before = [self._answer.whitening.of_vectors(own) for own in self._answer.vectors]
        else:
            C, before = parts.C, self._answer.vectors
        for vectors, size in zip(before[:-1], self._answer.sizes[1:], strict=True):
            C = deflated(C, vectors)
            if not size > 0:
                self.own_p.append(1.0)
                self.seen.append(0.0)
                self.nulls.append(np.zeros(self.n_resamples))
                continue
            later = resampled({"plain": functools.partial(np.asarray, C)}, lengths, signs, scale, most)
            self.own_p.append(max(later.adjusted, self.own_p[-1]))  # given the earlier ones
            self.seen.append(float(later.values[0, 0]))
            self.nulls.append(later.values[0, 1:])

    def _errors(self) -> list[Errors]:
        """From samples or groups of the second pass, else from bins."""
        parts, tangents = self.parts, self._answer.fitted.tangents
        look = self._run.residuals
        confidence = self._solver.confidence
        if look is not None:
            scatter = look.scatters[self._number]
            if scatter.units:
                count = len(scatter.units)
                squares = sum(changes**2 for changes in scatter.units.values()) * (count / max(count - 1, 1))
                return errors_of(tangents, np.asarray(squares), count - 1, confidence)
            n, rank = parts.n, parts.rank
            inflation = self._sample_inflation(scatter)
            squares = scatter.squares * (parts.n_observed / max(parts.n_observed - rank, 1)) * inflation
            return errors_of(tangents, squares, (n - rank) / self.dependence.inflation, confidence)
        G = len(parts)
        E = parts.without_estimate()
        changes = tangents.changes([slopes(E, v) for v in self._answer.vectors])
        squares = np.einsum("gci,gci->ci", changes, changes) * (G / max(G - 1, 1)) * self.dependence.inflation
        return errors_of(tangents, squares, G - 1, confidence)

    def _sample_inflation(self, scatter: Scatter) -> float:
        """By how much the variance of a sum of samples exceeds that of independent ones: within bins, and between."""
        if self._solver.dependence != "auto" or len(self.parts) < 8:
            return 1.0
        E, _, freedom = self.parts.left_over()
        rank = self.parts.rank
        energies = np.vecdot(E, E)
        samples = scatter.energy / (self.parts.S * max(1 - rank / self.parts.n_observed, 1e-3))
        if samples <= 0:
            return 1.0
        ratio = float(energies.sum()) / freedom / samples
        error = float(energies.std(ddof=1)) / float(energies.mean() + 1e-300) / math.sqrt(len(energies))
        within = ratio if ratio - 1 > error else 1.0
        return within * self.dependence.inflation

    @property
    def noise_level(self) -> float:
        """Standard deviation of one entry of one sample."""
        look = self._run.residuals
        if look is None or look.shape is None or not look.shape.n:
            return math.nan
        return math.sqrt(look.shape.square / look.shape.n)

    @property
    def rank_one_share(self) -> float:
        """|fit|²/|D|²: how much of the estimate is of rank one."""
        whole = float(np.vdot(self.parts.D, self.parts.D))
        return min(1.0, float(self._answer.sizes[0]) ** 2 / whole) if whole > 0 else math.nan

    def components(self) -> list[Component]:
        """Always as many as were asked for."""
        parts, found = self.parts, []
        level = 1 - self._solver.confidence
        for c, (vectors, error) in enumerate(zip(self._answer.vectors, self.errors, strict=True)):
            p = self.own_p[c] if self.own_p else math.nan
            empty = not self._answer.sizes[c] > 0
            amplitudes = None
            own, errors = vectors, error.vectors
            if parts.stacked:
                amplitudes = self._amplitudes(vectors[0], error.strength)
                own, errors = vectors[1:], errors[1:]
            if parts.observed is not None:
                modes = range(parts.observed.ndim)
                seen = [parts.observed.any(axis=tuple(j for j in modes if j != m)) for m in modes]
                errors = tuple(np.where(known, e, np.inf) for known, e in zip(seen, errors, strict=True))
            found.append(
                Component(
                    vectors=tuple(own),
                    strength=0.0 if empty else error.strength,
                    strength_interval=(0.0, 0.0) if empty else error.interval,
                    standard_errors=tuple(errors),
                    p_value=p,
                    significant=bool(p <= level),
                    length=float(self._answer.sizes[c]),
                    statistic=self.seen[c] if self.seen else math.nan,
                    null=self.nulls[c] if self.nulls else None,
                    effect=self._answer.name,
                    label_amplitudes=amplitudes,
                )
            )
        return found

    def _amplitudes(self, direction: Array, strength: float) -> dict[str, float]:
        """Amplitude of the pattern with every label; they sum to zero over the samples.

        D̃ = (S/W)^(1/2) D, so that the columns of y have the coefficients (S/W)^(-1/2) u λ.
        """
        labels = self._run.design.labels
        coefficients = np.append(self.parts.K @ direction * strength, 0.0)
        design = self._run.design
        assert design.columns is not None
        origin = np.zeros(design.n_columns) if design.origin is None else design.origin
        raw = (design.columns + origin)[:, design.n_nuisance :]
        weights = np.ones(len(raw)) if design.weights is None else design.weights
        shares = weights @ raw / weights.sum()
        shares = np.append(shares, 1 - shares.sum())
        centred = coefficients - shares @ coefficients
        return {label: float(value) for label, value in zip(labels, centred, strict=True)}

    # Advice -----------------------------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """One line each, with a number and one action."""
        return [note for note in [self.why_not, *self._of_test(), *self._of_samples(), *self._of_design()] if note]

    def _of_test(self) -> list[str]:
        found: list[str] = []
        level = 1 - self._solver.confidence
        if self.dependence.inflation > 1.05 and self.dependence.testable:
            found.append(
                f"Neighbouring samples are correlated ({self.dependence.likeness:.2f}): errors and flips are enlarged "
                f"by {self.dependence.enlarged:.2f}. If their order is meaningless, use dependence=None."
            )
        if self.own_p and self.p <= level < self.own_p[0]:
            found.append(
                f"There is a signal (p = {self.p:.3g}), but the pattern shown is not itself significant "
                f"(p = {self.own_p[0]:.3g}): it is seen where loud noise is taken down. whiten='modes' shows it."
            )
        sizes = self._answer.sizes
        vectors = self._answer.vectors
        for i in range(len(sizes)):
            for j in range(i + 1, len(sizes)):
                if sizes[j] > 0 and (inner := cosine(vectors[i], vectors[j])) < OPPOSED:
                    found.append(
                        f"Components {i + 1} and {j + 1} nearly cancel (cosine {inner:.2f}): use n_components={j}."
                    )
                elif j == i + 1 and sizes[i] > 0 and sizes[j] > UNLIKE * sizes[i]:
                    found.append(
                        f"Components {i + 1} and {j + 1} are nearly equally strong (ratio {sizes[j] / sizes[i]:.2f}): "
                        "their vectors may be mixtures; interpret them together."
                    )
                if sizes[j] > 0 and (shared := _shared(vectors[i], vectors[j])) > ALIKE:
                    found.append(
                        f"Components {i + 1} and {j + 1} are nearly alike in all axes but one ({shared:.2f}): how "
                        f"they divide what they share is unsure. Interpret them together, or use n_components={j}."
                    )
        first = self.errors[0]
        if self.own_p and self.own_p[0] <= level and first.interval[0] == 0:
            found.append(
                f"There is a signal (p = {self.own_p[0]:.3g}), but its strength is not known well: the interval of the "
                "strength begins at 0. Give more samples."
            )
        if self.own_p and first.interval[1] < sizes[0]:
            found.append(
                f"A fit flatters its own samples: they score {sizes[0]:.3g}, and the strength is at most "
                f"{first.interval[1]:.3g}. Use score on other samples."
            )
        return found

    def _of_samples(self) -> list[str]:
        if self._number:
            return []
        found: list[str] = []
        look: Residuals | None = self._run.residuals
        whole = float(np.linalg.norm(self.parts.D))
        if self._answer.name == "" and look is not None and look.shape is not None:
            noise = math.sqrt(look.shape.square / max(self.parts.n, 1) / max(self.parts.n, 1))
            if whole <= LEVEL_SMALL * noise:
                found.append(
                    f"The mean of all samples is zero to rounding ({whole:.1e}): it seems to have been subtracted. "
                    "Give the samples as they were, or use target='variance' or 'effect'."
                )
        if look is None or look.shape is None:
            return found
        shape = look.shape
        if shape.kurtosis > HEAVY:
            found.append(
                f"Heavy tails: the kurtosis of residuals is {shape.kurtosis:.0f} (3 for normal noise). Clipping may "
                "help: preprocess=lambda x: np.clip(x, low, high)."
            )
        if self.parts.n >= 12 and shape.loudest > max(LOUD_SAMPLE, 6 / self.parts.n) * shape.square:
            found.append(
                f"One sample has {shape.loudest / shape.square:.0%} of all noise energy. Look at it; leave it out if "
                "it is damaged."
            )
        if self._answer.name == "" and shape.skewness > SKEWED and self.parts.n >= 8:
            found.append(
                f"Entries are skewed (median {shape.skewness:.1f}), and p-values of single entries assume symmetric "
                "noise: do not rely on entry_p_values_ here."
            )
        if look.copies:
            found.append(
                f"Exact copies among the samples ({look.copies}) break every test. Remove them, or give "
                "groups= with one label for all copies."
            )
        loud = getattr(self, "loud", None)
        if loud is not None and len(loud) and float(loud.factors.min()) < 0.35:
            found.append(
                f"{len(loud)} direction{'s are' if len(loud) > 1 else ' is'} up to {1 / float(loud.factors.min()):.0f} "
                "times as loud as the others. If they are artefacts, take them out with preprocess=."
            )
        return found

    def _of_design(self) -> list[str]:
        design = self._run.design
        found: list[str] = []
        if design.columns is None or self._number:
            return found
        y = design.columns[:, -1]
        if design.doses:
            found.append(
                f"y has {len(np.unique(y))} whole numbers, taken as a dose. For labels, give strings: y.astype(str)."
            )
        n = len(y)
        if n >= 8 and design.groups is None and self._solver.dependence == "auto":
            r = abs(float(np.corrcoef(np.arange(n), y)[0, 1])) if y.std() > 0 else 0.0
            if r > 0.8:
                found.append(
                    f"y follows the order of the samples (correlation {r:.2f}): a drift cannot be told from its "
                    "effect. Mix the order of measurement."
                )
        return found
