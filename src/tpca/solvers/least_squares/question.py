"""One question, once all samples were read: what units contribute to it, its components, and its test by flips.

A later component is tested on what the *joint* fit of all before it leaves: contributions of units without the tangent
space of that fit.  The statistic is the gain of a joint fit of one component more, to first order.  The p-value of
component c + 1 says that there are at least so many components.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tpca.inference.dependence import BinScatter, Dependence, dependence_of_bins
from tpca.inference.design import Design, Indices, largest_entry, refuse_extreme_size
from tpca.inference.flips import Progress, draw_signs, least_p, own_order, resampled, usual_resamples
from tpca.inference.regression import Contributions, Regression, UnitSum, contributions, grams_of, residuals_of_all
from tpca.inference.scatter import Tangents
from tpca.inference.whitening import Whitening, by_pieces, learn_whitening, longest_within, sphere
from tpca.solvers.components import Components, fit_ranks, settled
from tpca.solvers.rank_one import fits, oriented
from tpca.tensors.blocks import Array
from tpca.tensors.cp import beyond_tangent_space, joint_gains, reconstruct, tangent_space

MOST_COMPONENTS = 10
"""Components of ``n_components="auto"``."""
EMPTY = 1e-12
"""Share of the contributions beyond a tangent space that is rounding."""


class Test(NamedTuple):
    """The p-value of one component, and the statistic of the data and of all flips."""

    p: float = math.nan
    values: Array | None = None


@dataclass
class SignTests:
    """Tests of one question by flips of the signs of contributions.

    ``contributions`` (G, *shape) are those of the units, whitened where all is done in whitened coordinates; ``plain``
    are those that are not.  ``order`` is one that their numbers alone decide where units have none.  ``scatter`` is
    that of bins of neighbours, if there are any.  ``why_not`` says why there is no test.
    """

    contributions: Array
    plain: Array
    order: Indices
    signs: Array
    scale: Array
    dependence: Dependence
    scatter: BinScatter | None
    chunk: int
    why_not: str
    progress: Progress | None = None
    later: dict[int, Test] = field(default_factory=dict)

    def of_versions(self, versions: Iterable[Array]) -> tuple[Array, Array]:
        """Statistics of several versions of the contributions, and the p-value of each adjusted for the others."""
        return resampled(versions, rank_one_lengths, self.signs, self.scale, self.chunk, self.progress)

    def of_plain(self) -> float:
        """The p-value of any component by the plain statistic alone."""
        _, (p,) = self.of_versions([self.contributions])
        return float(p)

    def beyond(self, fit: Components) -> Test:
        """The test of a component more than a joint fit has; it is worked out once."""
        if fit.rank not in self.later:
            self.later[fit.rank] = self._beyond(fit)
        return self.later[fit.rank]

    def _beyond(self, fit: Components) -> Test:
        space = tangent_space(fit.vectors)
        remainder = by_pieces(lambda rows: beyond_tangent_space(rows, space), self.contributions)
        if np.vdot(remainder, remainder) <= EMPTY**2 * np.vdot(self.contributions, self.contributions):
            return Test(1.0, np.zeros(len(self.signs)))  # the fit can follow whatever the data are

        def gains(stack: Array) -> Array:
            vectors, _ = fits(stack)
            return joint_gains(stack, vectors, space)

        values, (p,) = resampled([remainder], gains, self.signs, self.scale, self.chunk, self.progress)
        return Test(float(p), values[0])


def rank_one_lengths(stack: Array) -> Array:
    """The statistic of any signal: the length of the best rank-one fit, by one procedure for all."""
    return fits(stack)[1]


def sign_tests(
    units: Sequence[UnitSum],
    regression: Regression,
    parts: Contributions,
    whitened: Array,
    leading: Sequence[Array],
    solver: Any,
    design: Design,
    rng: np.random.Generator,
    chunk: int,
    progress: Progress | None,
) -> SignTests:
    """Draw the flips of one question, whose first component has the vectors ``leading``."""
    grouped = design.groups is not None
    dependence = Dependence()
    scatter = None
    if solver.dependence == "auto" and not grouped:
        residuals = residuals_of_all(units, regression, parts)
        dependence, scatter = dependence_of_bins(residuals, grams_of(units), regression, leading)
        scatter = replace(scatter, products=scatter.products * parts.size**2)
    n_resamples = solver.n_resamples
    if n_resamples == "auto":
        n_resamples = usual_resamples(math.prod(regression.shape))
    unit_count = len(parts)
    order: Indices = np.arange(unit_count)
    if grouped:  # bins of digests have an order of their own
        order = own_order(parts.values)
    signs = draw_signs(unit_count, n_resamples, rng)[:, np.argsort(order)]
    scale = parts.scales(signs, dependence.enlarged) / parts.size
    unit_name = "groups" if grouped else "independent units of samples"
    why_not = why_untestable(unit_count, unit_name, n_resamples, solver.confidence, dependence)
    return SignTests(whitened, parts.values, order, signs, scale, dependence, scatter, chunk, why_not, progress)


def why_untestable(count: int, name: str, n_resamples: int, confidence: float, found_dependence: Dependence) -> str:
    """Why no claim can be made, with what would help; empty if one can."""
    if not found_dependence.testable:
        return (
            f"Not tested: neighbouring samples are correlated ({found_dependence.correlation:.2f}) over so many "
            "that too few are independent. If their order is meaningless, use dependence=None; if they belong to "
            "groups, give groups=."
        )
    level = 1 - confidence
    least = least_p(count, n_resamples)
    if least > level * (1 + 1e-9):
        return (
            f"Not tested: {count} {name} give no p-value below {least:.2g}, and confidence {confidence:g} needs "
            f"{level:.2g}. Give more, or a lower confidence."
        )
    return ""


@dataclass
class Answer:
    """The components of one question, and how they follow small changes of the estimate.

    ``vectors`` has those of every component, and ``sizes`` their lengths in the joint ``fit``, in the coordinates of
    the data; zeros where there is no more to fit.  ``shares`` (c,) are those of the whole estimate that joint fits of
    1, 2, ... components are.  ``joint_fits``, of 1, 2, ... components, have the coordinates of the test.
    """

    name: str
    regression: Regression
    whitening: Whitening | None
    joint_fits: list[Components]
    vectors: list[list[Array]]
    sizes: Array
    shares: Array
    tangents: Tangents

    @property
    def fit(self) -> Components | None:
        """The joint fit of all components; there is none of an estimate of zeros."""
        if self.joint_fits:
            return self.joint_fits[-1]
        return None

    @property
    def rank_one_share(self) -> float:
        """Share of the whole estimate that the joint fit is."""
        return float(self.shares[-1])


def answer_of(
    name: str,
    regression: Regression,
    whitening: Whitening | None,
    joint_fits: Sequence[Components],
    count: int,
) -> Answer:
    """The answer with ``count`` components, from joint fits of 1, 2, ... components, as many as there are."""
    vectors: list[list[Array]] = []
    lengths: list[float] = []
    if joint_fits:
        components, lengths = carried_back(joint_fits[-1], whitening)
        vectors = [list(oriented(component)) for component in components]
    for _ in range(count - len(vectors)):
        vectors.append([np.zeros(length) for length in regression.shape])
        lengths.append(0.0)
    sizes = np.array(lengths)
    shares = joint_shares(regression.estimate, joint_fits, whitening, count)
    tangents = Tangents(vectors, sizes)
    return Answer(name, regression, whitening, list(joint_fits), vectors, sizes, shares, tangents)


def carried_back(fit: Components, whitening: Whitening | None) -> tuple[list[list[Array]], list[float]]:
    """Unit vectors and lengths of all components of a fit in the coordinates of the data, the longest first."""
    components = []
    lengths = []
    for c in range(fit.rank):
        vectors = [vectors_of_axis[:, c] for vectors_of_axis in fit.vectors]
        length = float(fit.strengths[c])
        if whitening is not None:
            vectors = whitening.back(vectors)
            norms = [float(np.linalg.norm(vector)) for vector in vectors]
            vectors = [vector / norm for vector, norm in zip(vectors, norms, strict=True)]
            length *= math.prod(norms)
        components.append(vectors)
        lengths.append(length)
    order = sorted(range(fit.rank), key=lambda c: -lengths[c])
    return [components[c] for c in order], [lengths[c] for c in order]


def first_component_of(answer: Answer) -> Answer:
    """The answer of a fit of one component."""
    return answer_of(answer.name, answer.regression, answer.whitening, answer.joint_fits[:1], 1)


def joint_shares(D: Array, joint_fits: Sequence[Components], whitening: Whitening | None, count: int) -> Array:
    """Shares 1 - |D - fit|²/|D|² of joint fits of 1, 2, ..., ``count`` components."""
    energy = float(np.vdot(D, D))
    shares = []
    for fit in joint_fits:
        cost = fit.cost
        if whitening is not None:
            components, lengths = carried_back(fit, whitening)
            factors = [np.stack(vectors, axis=1)[None] for vectors in zip(*components, strict=True)]
            factors[0] = factors[0] * lengths
            residual = D - reconstruct(factors)[0]
            cost = float(np.vdot(residual, residual))
        shares.append(min(1.0, max(0.0, 1 - cost / energy)))
    last = shares[-1] if shares else math.nan
    return np.array(shares + [last] * (count - len(shares)))


def answer_question(
    name: str,
    units: Sequence[UnitSum],
    regression: Regression,
    solver: Any,
    design: Design,
    rng: np.random.Generator,
    chunk: int,
    progress: Progress | None = None,
) -> tuple[Answer, SignTests]:
    """Fit the components of one question, as many as were asked for or are proven, and draw its flips.

    With ``whiten="modes"`` components are those of the whitened estimate, carried back.
    """
    parts = contributions(units, regression)
    what = "sums of samples times y" if name else "sums of samples"
    refuse_extreme_size(what, largest_entry(parts.values) * parts.size)
    whitening = None
    D = regression.estimate
    C = parts.values
    if solver.whiten == "modes":
        rows = sphere(C).reshape(-1, *regression.dims)
        whitening = learn_whitening(rows, longest_within(solver.budget()))
        D = whitening(D[None])[0]
        C = whitening(C)
    further_fits = fit_ranks(D)
    joint_fits = list(itertools.islice(further_fits, 1))
    leading = answer_of(name, regression, whitening, joint_fits, 1).vectors[0]
    tests = sign_tests(units, regression, parts, C, leading, solver, design, rng, chunk, progress)
    count = solver.n_components
    if count == "auto":
        joint_fits += proven_fits(tests, joint_fits, further_fits, 1 - solver.confidence)
        count = max(1, len(joint_fits))
    else:
        joint_fits += itertools.islice(further_fits, count - 1)
    if joint_fits:
        joint_fits[-1] = settled(joint_fits[-1], D)
    return answer_of(name, regression, whitening, joint_fits, count), tests


def proven_fits(
    tests: SignTests, joint_fits: Sequence[Components], further_fits: Iterator[Components], level: float
) -> list[Components]:
    """Joint fits of 2, 3, ... components, as long as a test says that there are so many."""
    proven: list[Components] = []
    if not joint_fits or tests.why_not or tests.of_plain() > level:
        return proven
    last = joint_fits[-1]
    while last.rank < MOST_COMPONENTS and tests.beyond(last).p <= level:
        following = next(further_fits, None)
        if following is None:
            break
        proven.append(following)
        last = following
    return proven
