r"""Several rank-one components of one tensor, fitted together (CP decomposition, PARAFAC).

The model :math:`\hat T = \sum_r a_{1r}\otimes\dots\otimes a_{kr}` is fitted by least squares; its derivatives are in
:mod:`tpca.tensors.cp`.  From three axes on the fit is unique under mild conditions (Kruskal 1977), so that a component
is a source and not only a direction in a space of such.  A matrix has no unique fit: its components are singular
vectors.

**Steps** are damped (Levenberg-Marquardt): near-collinear components make alternating least squares crawl for thousands
of sweeps, and cost Gauss-Newton a few steps more.  **Starts** of rank R are the components taken out one after the
other, those of rank R - 1 with the best rank-one fit of what they leave, and some random ones, which climb in step;
the best one is the answer.  All seeds are fixed, so that no seed of the user's moves an estimate.

**Large tensors** are compressed for the search (CANDELINC; Carroll, Pruzansky & Kruskal 1980): into the leading
singular vectors of every unfolding and the vectors of the starts.  The answer is settled on the tensor itself.

**Degenerate fits.**  A tensor may have no best fit: two components grow without bound and cancel.  Where that is seen,
the fit is made again with a ridge :math:`\rho\sum_r\lambda_r^2`, the smallest that ends it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from tpca.errors import SampleError
from tpca.solvers.rank_one import best_rank_one, top_pairs, units
from tpca.solvers.rank_one import fits as rank_one_fits
from tpca.tensors.blocks import Array
from tpca.tensors.cp import (
    SMALLEST,
    Factors,
    damped_steps,
    descent_directions,
    free_directions,
    reconstruct,
    squared_residuals,
    unfold,
)

RANDOM_STARTS = 12
PART_STARTS = 2
"""Random starts of a joint fit, and of those of parts of the samples."""
SEARCH_STEPS = 30
SEARCHED = 1e-2
"""Largest relative change of a factor after which a start is compared with the others."""
SETTLE_STEPS = 300
NEARLY_SETTLED = 1e-6
SETTLED = 1e-10
"""Largest relative change of a factor in a step after which there is no other."""
FIRST_DAMPING = 1e-2
"""Damping of a search; what is nearly settled begins with the least."""
LEAST_DAMPING = 1e-7
"""Small enough for components that are 100 times weaker than others, and nearly alike."""
MOST_DAMPING = 1e6
"""Damping at which no step is short enough to gain anything."""
ROUNDING = 1e-14
"""Change of the cost, relative to the tensor's energy, that is no more than rounding."""
NOTHING = 1e-13
"""Share of a tensor below which what is left is rounding."""
UNCOMPRESSED = 10_000
"""Entries of a tensor that is searched as it is."""
CORE = 20_000
"""About so many entries has the core of a large tensor, on which it is searched."""
DEPENDENT = 1e-6
"""Length of a unit vector beyond those before it that is rounding."""
OPPOSED = -0.5
RUNAWAY = 10.0
"""Cosine of two components that cancel, and lengths, in those of the tensor, that they have then."""
RIDGES = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Components:
    """A joint fit: unit columns in ``vectors[m]`` (d_m, R), falling ``strengths`` (R,), and the squared residual.

    ``ridge`` is that of a fit which would have run away without.
    """

    vectors: Factors
    strengths: Array
    cost: float
    ridge: float = 0.0

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.strengths)

    @property
    def factors(self) -> Factors:
        """Factors of the model, the strengths with those of the first axis."""
        return [self.vectors[0] * self.strengths, *self.vectors[1:]]


# Damped Gauss-Newton steps --------------------------------------------------------------------------------------------


def gauss_newton(
    tensors: Array,
    starts: Factors,
    ridge: float = 0.0,
    first_damping: float = LEAST_DAMPING,
    tolerance: float = SETTLED,
    max_steps: int = SETTLE_STEPS,
) -> tuple[Factors, Array]:
    """Factors (b, d_m, R) of least squares near starts (b, d_m, R), and their costs (b,).

    ``tensors`` (b, d_1, ..., d_k) has one for every start, or one for all.  A start ends when no factor changes by more
    than ``tolerance``, relative to its size.  A step that changes the cost by no more than rounding is taken if it does
    not make the gradient longer: where the model bends much, Gauss-Newton steps would go too far, to and fro for ever.
    """
    factors = balanced(starts)
    costs = squared_residuals(tensors, factors, ridge)
    energies = np.sum(tensors * tensors, axis=tuple(range(1, tensors.ndim)))
    rounding = ROUNDING * np.max(energies)
    damping = np.full(len(costs), first_damping)
    active = np.arange(len(costs))
    for _ in range(max_steps):
        current = [factor[active] for factor in factors]
        targets = tensors if len(tensors) == 1 else tensors[active]
        slopes = descent_directions(targets, current, ridge)
        changes = damped_steps(current, slopes, damping[active], ridge)
        proposal = balanced([factor + change for factor, change in zip(current, changes, strict=True)])
        proposed_costs = squared_residuals(targets, proposal, ridge)
        lower = proposed_costs < costs[active] - rounding
        level = ~lower & (proposed_costs <= costs[active] + rounding)
        if level.any():
            level &= steepness(descent_directions(targets, proposal, ridge)) <= steepness(slopes)
        accepted = lower | level
        still = accepted & (largest_changes(current, proposal) <= tolerance)
        stuck = ~accepted & (damping[active] > MOST_DAMPING)
        for factor, proposed in zip(factors, proposal, strict=True):
            factor[active[accepted]] = proposed[accepted]
        costs[active[accepted]] = proposed_costs[accepted]
        lowered = np.maximum(damping[active] / 3, LEAST_DAMPING)
        damping[active] = np.where(accepted, lowered, 4 * damping[active])
        active = active[~(still | stuck)]
        if not len(active):
            break
    return factors, np.maximum(costs, 0.0)


def steepness(slopes: Factors) -> Array:
    """Lengths (b,) of gradients."""
    squares = [np.sum(slope * slope, axis=(1, 2)) for slope in slopes]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def largest_changes(before: Factors, after: Factors) -> Array:
    """Largest relative change of a factor, (b,)."""
    changes = []
    for old, new in zip(before, after, strict=True):
        size = np.linalg.norm(old, axis=(1, 2)) + SMALLEST
        changes.append(np.linalg.norm(new - old, axis=(1, 2)) / size)
    return np.asarray(np.max(changes, axis=0))


def balanced(factors: Factors) -> Factors:
    """Factors of an unchanged model whose columns have equal lengths along all axes."""
    lengths = [np.linalg.norm(factor, axis=1, keepdims=True) + SMALLEST for factor in factors]
    common = np.exp(sum(np.log(length) for length in lengths) / len(factors))
    return [factor * (common / length) for factor, length in zip(factors, lengths, strict=True)]


# The fit --------------------------------------------------------------------------------------------------------------


def fit_ranks(tensor: Array) -> Iterator[Components]:
    """Joint fits of ranks 1, 2, 3, ...; they end where one leaves nothing, and a tensor of zeros has none.

    Rank one is :func:`~tpca.solvers.rank_one.best_rank_one`, as it is.  An axis of length one takes no part; with two
    axes or one the components are singular vectors.  Joint fits are settled to six digits: :func:`settled` does the
    rest for the one that is wanted.
    """
    size = float(np.linalg.norm(tensor))
    if not size > 0:
        return
    fit = one_component(tensor)
    yield fit
    core = without_short_axes(tensor)
    if core.ndim == 1:
        return
    if core.ndim < tensor.ndim:
        fit = one_component(core)
    joint = [factor[None] for factor in fit.factors]
    greedy = joint
    while True:
        joint_residual = core - reconstruct(joint)[0]
        if core.ndim > 2 and np.linalg.norm(joint_residual) <= NEARLY_SETTLED * size:
            joint, _ = gauss_newton(core[None], joint, fit.ridge)  # of exact sums only a settled fit leaves nothing
            joint_residual = core - reconstruct(joint)[0]
        greedy_residual = core - reconstruct(greedy)[0]
        if min(np.linalg.norm(joint_residual), np.linalg.norm(greedy_residual)) <= NOTHING * size:
            return
        greedy = joined(greedy, leading_component(greedy_residual))
        if core.ndim == 2:
            fit = sorted_components(greedy, core)
        else:
            extended = joined(joint, leading_component(joint_residual))
            fit = joint_fit(core, [greedy, extended])
        joint = [factor[None] for factor in fit.factors]
        yield with_short_axes(fit, tensor.shape)


def settled(fit: Components, tensor: Array) -> Components:
    """The joint fit after as many steps as change anything; one component and those of a matrix are as they are."""
    core = without_short_axes(tensor)
    if fit.rank == 1 or core.ndim < 3:
        return fit
    start = [vectors[None] for vectors, length in zip(fit.vectors, tensor.shape, strict=True) if length > 1]
    start[0] = start[0] * fit.strengths
    factors, _ = gauss_newton(core[None], start, fit.ridge)
    return with_short_axes(sorted_components(factors, core, fit.ridge), tensor.shape)


def without_short_axes(tensor: Array) -> Array:
    """The tensor without its axes of length one."""
    return tensor.reshape([length for length in tensor.shape if length > 1] or [1])


def one_component(tensor: Array) -> Components:
    """The best rank-one fit."""
    vectors, strength = best_rank_one(tensor)
    cost = float(np.vdot(tensor, tensor)) - strength**2
    return Components([vector[:, None] for vector in vectors], np.array([strength]), max(cost, 0.0))


def with_short_axes(fit: Components, shape: Sequence[int]) -> Components:
    """The fit of a tensor without its axes of length one, for the tensor with them."""
    long_vectors = iter(fit.vectors)
    vectors = []
    for length in shape:
        if length > 1:
            vectors.append(next(long_vectors))
        else:
            vectors.append(np.ones((1, fit.rank)))
    return Components(vectors, fit.strengths, fit.cost, fit.ridge)


def joint_fit(tensor: Array, starts: Sequence[Factors]) -> Components:
    """The best of several starts, random ones among them; with a ridge if it would run away without."""
    size = float(np.linalg.norm(tensor))
    for ridge in (0.0, *RIDGES):
        fit = sorted_components(settled_search(tensor, starts, ridge), tensor, ridge)
        if not runs_away(fit, size):
            break
    return fit


def settled_search(tensor: Array, starts: Sequence[Factors], ridge: float) -> Factors:
    """Search on the tensor, or on its core where it is large, and settle the best start on the tensor itself."""
    if tensor.size <= UNCOMPRESSED:
        best = searched(tensor, starts, ridge)
    else:
        best = searched_in_bases(tensor, starts, ridge)
    factors, _ = gauss_newton(tensor[None], best, ridge, tolerance=NEARLY_SETTLED)
    return factors


def searched_in_bases(tensor: Array, starts: Sequence[Factors], ridge: float) -> Factors:
    """The best of all starts on the core of a large tensor, in the tensor's coordinates."""
    bases = search_bases(tensor, starts)
    core_starts = []
    for start in starts:
        core_starts.append([np.matmul(basis.T, factor) for basis, factor in zip(bases, start, strict=True)])
    best = searched(compressed(tensor, bases), core_starts, ridge)
    return [np.matmul(basis, factor) for basis, factor in zip(bases, best, strict=True)]


def searched(tensor: Array, starts: Sequence[Factors], ridge: float) -> Factors:
    """The best of the starts given and some random ones, nearly settled."""
    rank = starts[0][0].shape[2]
    drawn = random_starts(tensor.shape, rank, float(np.linalg.norm(tensor)), RANDOM_STARTS)
    together = [np.concatenate(factors) for factors in zip(drawn, *starts, strict=True)]
    factors, costs = gauss_newton(tensor[None], together, ridge, FIRST_DAMPING, SEARCHED, SEARCH_STEPS)
    best = int(np.argmin(costs))
    return [factor[best : best + 1] for factor in factors]


def random_starts(shape: Sequence[int], rank: int, size: float, count: int) -> Factors:
    """Random factors (count, d_m, R) of models of about this size."""
    rng = np.random.default_rng(rank)
    scale = (size / rank) ** (1 / len(shape))
    return [scale / math.sqrt(length) * rng.standard_normal((count, length, rank)) for length in shape]


def search_bases(tensor: Array, starts: Sequence[Factors]) -> list[Array]:
    """Orthonormal columns (d_m, r_m) for every axis: vectors of the starts, then leading singular vectors."""
    rank = starts[0][0].shape[2]
    most = max(rank + 1, int(CORE ** (1 / tensor.ndim)))
    bases = []
    for axis, length in enumerate(tensor.shape):
        count = min(length, most)
        rng = np.random.default_rng(axis)
        _, leading_rows, _ = top_pairs(unfold(tensor[None], axis)[0], count, rng)
        columns = np.hstack([*[start[axis][0] for start in starts], leading_rows.T])
        bases.append(orthonormal_columns(columns)[:, :count])
    return bases


def orthonormal_columns(columns: Array) -> Array:
    """Orthonormal columns of the same span, in the order given; those that others span already are left out."""
    unit_columns = columns / (np.linalg.norm(columns, axis=0) + SMALLEST)
    independent: list[Array] = []
    for column in unit_columns.T:
        rest = column
        for _ in range(2):  # twice is enough (Kahan)
            for known in independent:
                rest = rest - (known @ rest) * known
        length = float(np.linalg.norm(rest))
        if length > DEPENDENT:
            independent.append(rest / length)
    return np.stack(independent, axis=1)


def compressed(tensor: Array, bases: Sequence[Array]) -> Array:
    """The tensor in coordinates of orthonormal bases (d_m, r_m)."""
    core = tensor
    for axis, basis in enumerate(bases):
        core = np.moveaxis(np.tensordot(core, basis, (axis, 0)), -1, axis)
    return np.ascontiguousarray(core)


def leading_component(tensor: Array) -> Factors:
    """About the best rank-one fit, to climb from, as factors (1, d_m, 1)."""
    vectors, strength = best_rank_one(tensor, rough=tensor.ndim > 2)
    columns = [vector[None, :, None] for vector in vectors]
    columns[0] = strength * columns[0]
    return columns


def joined(factors: Factors, further: Factors) -> Factors:
    """The components of both models."""
    return [np.concatenate(pair, axis=2) for pair in zip(factors, further, strict=True)]


def sorted_components(factors: Factors, tensor: Array, ridge: float = 0.0) -> Components:
    """Unit vectors and strengths of one model, the strongest first."""
    columns = [factor[0] for factor in factors]
    lengths = [np.linalg.norm(column, axis=0) + SMALLEST for column in columns]
    strengths = np.prod(lengths, axis=0)
    order = np.argsort(-strengths, kind="stable")
    vectors = [(column / length)[:, order] for column, length in zip(columns, lengths, strict=True)]
    residual = tensor - reconstruct(factors)[0]
    return Components(vectors, strengths[order], float(np.vdot(residual, residual)), ridge)


def cosines(vectors: Factors, others: Factors) -> Array:
    """Cosines (R, S) of the unit tensors of two sets of components (d_m, R) and (d_m, S)."""
    product = np.ones((vectors[0].shape[1], others[0].shape[1]))
    for mine, theirs in zip(vectors, others, strict=True):
        product = product * (mine.T @ theirs)
    return product


def runs_away(fit: Components, size: float) -> bool:
    """Whether two components cancel that are far longer than a tensor of this size."""
    product = cosines(fit.vectors, fit.vectors)
    for first, second in itertools.combinations(range(fit.rank), 2):
        if product[first, second] < OPPOSED and min(fit.strengths[first], fit.strengths[second]) > RUNAWAY * size:
            return True
    return False


def told_apart(shape: Sequence[int], rank: int) -> bool:
    """Whether so many components of tensors of this shape are unique, at least among those that are near.

    Almost all are, or almost none: random ones decide.
    """
    rng = np.random.default_rng(0)
    return free_directions([units(rng.standard_normal((rank, length))).T for length in shape]) == 0


# Which is which -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matching:
    """Pairs of components of two fits: row ``rows[i]`` of the one belongs to row ``others[i]`` of the other.

    ``cosines`` are those of their unit tensors, negative where the patterns have opposite signs.  The assignment is
    that of the largest total size of cosines.  A component without a partner stands in no pair.
    """

    rows: NDArray[np.intp]
    others: NDArray[np.intp]
    cosines: Array


def match_components(vectors: Sequence[Array], others: Sequence[Array]) -> Matching:
    """Match components ``(rows, d_m)`` with others, one array for every axis."""
    shapes = []
    for components in (vectors, others):
        is_list = isinstance(components, list | tuple) and all(np.ndim(rows) == 2 for rows in components)
        if not is_list or len({len(rows) for rows in components}) != 1:
            raise SampleError(
                "components to match must be a result, a fitted estimator, or a list of arrays (rows, d_m), one for "
                f"every axis, got {type(components).__name__}."
            )
        shapes.append(tuple(np.shape(rows)[1] for rows in components))
    if shapes[0] != shapes[1]:
        raise SampleError(
            f"components to match must be of samples of the same shape, expected {shapes[0]}, got {shapes[1]}."
        )
    columns = [units(np.asarray(rows, dtype=np.float64)).T for rows in vectors]
    other_columns = [units(np.asarray(rows, dtype=np.float64)).T for rows in others]
    product = cosines(columns, other_columns)
    rows, partners = linear_sum_assignment(np.abs(product), maximize=True)
    return Matching(rows, partners, product[rows, partners])


# Parts of the samples -------------------------------------------------------------------------------------------------


def fit_each(tensors: Array, whole: Components) -> list[Factors]:
    """Vectors (d_m, R) of joint fits of some tensors (b, d_1, ..., d_k), with as many components as that of the whole.

    Each is the best of several starts: components taken out one after the other, random ones, and those of the whole.
    All climb in step, where the tensors are small.  Fits are nearly settled: they are compared, no more.
    """
    greedy = greedy_components(tensors, whole.rank)
    long_axes = [m for m, length in enumerate(tensors.shape[1:]) if length > 1]
    if whole.rank == 1 or len(long_axes) < 3:
        vectors = []
        for number, tensor in enumerate(tensors):
            vectors.append(sorted_components([factor[number : number + 1] for factor in greedy], tensor).vectors)
        return vectors
    cores = tensors.reshape(len(tensors), *[tensors.shape[1 + m] for m in long_axes])
    greedy_starts = [greedy[m] for m in long_axes]
    whole_start = [whole.factors[m][None] for m in long_axes]
    if cores[0].size <= UNCOMPRESSED:
        factors = searched_together(cores, greedy_starts, whole_start)
    else:
        factors = []
        for number, core in enumerate(cores):
            start = [factor[number : number + 1] for factor in greedy_starts]
            factors.append(searched_in_bases(core, [start, whole_start], whole.ridge))
    fits = [sorted_components(factor, core) for factor, core in zip(factors, cores, strict=True)]
    return [with_short_axes(fit, tensors.shape[1:]).vectors for fit in fits]


def numbers_of_a_fit(shape: Sequence[int], rank: int) -> int:
    """About how many numbers :func:`fit_each` holds for a tensor: its copies, and normal matrices, of all starts."""
    unknowns = rank * sum(min(length, rank) for length in shape)
    return (2 + PART_STARTS) * (math.prod(shape) + 2 * unknowns**2)


def greedy_components(tensors: Array, rank: int) -> Factors:
    """Factors (b, d_m, R) of components that are taken out one after the other, as flips are fitted."""
    residuals = tensors
    columns = []
    for _ in range(rank):
        vectors, lengths = rank_one_fits(residuals)
        component = [vector[:, :, None] for vector in vectors]
        component[0] = component[0] * lengths[:, None, None]
        columns.append(component)
        residuals = residuals - reconstruct(component)
    return [np.concatenate(factor, axis=2) for factor in zip(*columns, strict=True)]


def searched_together(tensors: Array, greedy: Factors, whole: Factors) -> list[Factors]:
    """The best fit (1, d_m, R) of every tensor from three kinds of starts, all in one stack."""
    count = len(tensors)
    rank = whole[0].shape[2]
    drawn = random_starts(tensors.shape[1:], rank, float(np.linalg.norm(tensors[0])), PART_STARTS)
    starts = []
    for axis, factor in enumerate(greedy):
        others = np.concatenate([whole[axis], drawn[axis]])
        starts.append(np.concatenate([factor, np.tile(others, (count, 1, 1))]))
    tensor_of_start = np.concatenate([np.arange(count), np.repeat(np.arange(count), 1 + PART_STARTS)])
    factors, costs = gauss_newton(tensors[tensor_of_start], starts, 0.0, FIRST_DAMPING, SEARCHED, SEARCH_STEPS)
    best_factors = []
    for number in range(count):
        of_tensor = np.flatnonzero(tensor_of_start == number)
        best = of_tensor[np.argmin(costs[of_tensor])]
        best_factors.append([factor[best : best + 1] for factor in factors])
    return best_factors
