import itertools
import math
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from tpca import open_views
from tpca.engines import LocalEngine
from tpca.errors import SolverError
from tpca.solvers.moments import climb as climbing
from tpca.solvers.moments import judge
from tpca.solvers.moments.accumulators import NONE, HeldScores, total
from tpca.solvers.moments.climb import (
    ALONE,
    FEW,
    JUDGED,
    REPORTED,
    TOP,
    UNMOVED,
    Objective,
    shared_starts,
    step_on_all_rows,
    steps_to_the_top,
)
from tpca.solvers.moments.judge import (
    aside,
    choose,
    combined,
    correlation,
    inflation,
    p_value,
    pairs_p_value,
    standardised,
)
from tpca.solvers.moments.rows import Rows, Split
from tpca.solvers.moments.solver import MomentSolver
from tpca.solvers.moments.starts import Effort, Starts, distinct
from tpca.solvers.rank_one import units
from tpca.streams.vectors import KeptVectors
from tpca.streams.whitening import RunningMoments, Whitener
from tpca.tensors import Accumulator, RankOne, ViewsBatch
from tpca.tensors.blocks import unit


def white(view):
    moments = RunningMoments(view.shape[1])
    moments.add(view)
    return Whitener.learn(moments, 0.0, True, 0)(view)


def planted(rng, n, dims, strength=1.5, skewed=False):
    """Whitened views with one shared factor."""
    shared = rng.exponential(size=n) - 1 if skewed else rng.standard_normal(n)
    vectors = [unit(rng.standard_normal(d)) for d in dims]
    return [white(strength * np.outer(shared, v) + rng.standard_normal((n, len(v)))) for v in vectors]


def wine():
    """Real data, skewed and correlated: 178 wines, 13 measurements in three views."""
    from sklearn.datasets import load_wine

    return [white(view) for view in np.split(load_wine().data, [4, 9], axis=1)]


def digits():
    """Real data: the upper, middle and lower rows of images of digits, coarsened, and their left edges."""
    from sklearn.datasets import load_digits

    images = load_digits().images[:600]
    coarse = images.reshape(600, 8, 4, 2).mean(axis=3)
    return [white(view) for view in (coarse[:, 1], coarse[:, 4], coarse[:, 6], images[:, 2:5, 2])]


def batches_of(views, cuts=()):
    ends = [0, *sorted(min(cut, len(views[0])) for cut in cuts), len(views[0])]
    return [ViewsBatch([view[i:j] for view in views]) for i, j in itertools.pairwise(ends)]


def rows_of(views, share=0.2, memory=1e9):
    return Rows(LocalEngine(open_views(views)), Split.into(share), memory)


def is_kept(rows):
    return isinstance(rows._engine.stream, KeptVectors)


def nowhere(count):
    """What starts leave out that leave out nothing."""
    return np.full(count, NONE)


class Seen(Accumulator):
    """The batches, as they come."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def add(self, batch, at=0):
        self.batches.append(batch)
        self.n += len(batch)

    def merge(self, other):
        self.batches += other.batches
        self.n += other.n


def flat(batches):
    return [np.concatenate(view) for view in zip(*(batch.views for batch in batches), strict=True)]


def held(rows, fold):
    """The rows of a fold, batch by batch."""
    return [batch[batch.held()[fold]] for batch in total(rows, Seen()).batches]


def learnt(rows, fold):
    """All rows but those of a fold, batch by batch."""
    parts = ((batch, batch.held()[fold]) for batch in total(rows, Seen()).batches)
    return [piece for batch, own in parts for piece in (batch[: own.start], batch[own.stop :])]


# -- slow references on the built tensor ------------------------------------------------------------------------------


def built(views, deflate=()):
    """The moment tensor, deflate some components."""
    letters = string.ascii_lowercase[: len(views)]
    terms = ",".join("z" + letter for letter in letters)
    tensor = np.einsum(f"{terms}->{letters}", *views, optimize=True) / len(views[0])
    for known in deflate:
        tensor = tensor - known.strength * np.einsum(f"{','.join(letters)}->{letters}", *known.vectors)
    return tensor


def contracted(tensor, vectors, mode):
    """Contract with all vectors but that of ``mode``."""
    letters = string.ascii_lowercase[: tensor.ndim]
    others = [i for i in range(tensor.ndim) if i != mode]
    subscripts = f"{letters},{','.join(letters[i] for i in others)}->{letters[mode]}"
    return np.einsum(subscripts, tensor, *[vectors[i] for i in others], optimize=True)


def power_iteration(tensor, starts, sweeps=100):
    """Moments reached from many starts, ``starts[i]`` being ``(starts, d_i)``."""
    letters, vectors = string.ascii_lowercase[: tensor.ndim], list(starts)
    for _, mode in itertools.product(range(sweeps), range(tensor.ndim)):
        others = [i for i in range(tensor.ndim) if i != mode]
        terms = ",".join("z" + letters[i] for i in others)
        gradient = np.einsum(f"{letters},{terms}->z{letters[mode]}", tensor, *[vectors[i] for i in others])
        moments = np.linalg.norm(gradient, axis=1)
        vectors[mode] = gradient / moments[:, None]
    return moments


# -- the climb --------------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(2, 5), min_size=2, max_size=5).map(tuple)


@settings(max_examples=30, deadline=None)
@given(
    dims=shapes,
    n=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    known=st.integers(0, 2),
    seed=...,
)
def test_gradients_are_those_of_the_built_tensor(dims, n, cuts, known, seed: int):
    rng = np.random.default_rng(abs(seed))
    views = [rng.standard_normal((n, d)) for d in dims]
    deflate = [RankOne(rng.standard_normal(), tuple(unit(rng.standard_normal(d)) for d in dims)) for _ in range(known)]
    vectors = [rng.standard_normal((3, d)) for d in dims]
    tensor = built(views, deflate)
    for mode in range(len(dims)):
        objective = Objective(batches_of(views, cuts), dims, None, {NONE: deflate})
        found = objective.gradient(vectors, mode, nowhere(3))
        expected = [contracted(tensor, [v[r] for v in vectors], mode) for r in range(3)]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * (1 + np.abs(expected).max()))


def test_a_clipped_score_counts_at_most_the_bound(rng):
    views = [rng.standard_normal((50, d)) for d in (2, 3, 4)]
    vectors = [rng.standard_normal((2, d)) for d in (2, 3, 4)]
    objectives = [Objective(batches_of(views, [20]), (2, 3, 4), clip) for clip in (0.5, 1e6, None)]
    found, loose, free = (objective.gradient(vectors, 1, nowhere(2)) for objective in objectives)
    first, third = (np.clip(views[i] @ vectors[i].T, -0.5, 0.5) for i in (0, 2))
    np.testing.assert_allclose(found, (first * third).T @ views[1] / 50, atol=1e-12)
    np.testing.assert_allclose(loose, free, rtol=1e-12)


@pytest.mark.parametrize("memory", [0.0, 2e4, 1e9])  # read again, kept without scores, kept with them
@pytest.mark.parametrize("order", [2, 3, 4])
def test_climbs_that_leave_out_a_fold_each_are_those_of_the_other_rows(order, memory, monkeypatch, rng):
    monkeypatch.setattr("tpca.streams.vectors.BATCH_ENTRIES", 900)
    dims = (4, 3, 5, 2)[:order]
    views = planted(rng, 150, dims, 0.5)
    rows = rows_of(views, memory=memory)
    assert is_kept(rows) == (memory > 0)
    known = {fold: [RankOne(0.3, tuple(unit(rng.standard_normal(d)) for d in dims))] for fold in (NONE, 0, 3)}
    out = np.array([3, NONE, 0, 3])
    starts = Starts.at([units(rng.standard_normal((4, d))) for d in dims], out)
    together = Objective(rows, dims, 2.0, known).climb(starts, 4, 1e-3)
    for i, fold in enumerate(out):
        own = batches_of(views) if fold == NONE else learnt(rows, fold)
        alone = Objective(own, dims, 2.0, {NONE: known[fold]})
        reached = alone.climb(Starts.at([v[[i]] for v in starts.vectors], nowhere(1)), 4, 1e-3)
        assert together.heights[i] == pytest.approx(reached.heights[0], rel=1e-9)
        for v, w in zip(together.vectors, reached.vectors, strict=True):
            np.testing.assert_allclose(v[i], w[0], rtol=1e-9, atol=1e-9)
    shared = Objective(rows, dims).shared([3, 1])
    for fold, first in ((3, 0), (1, len(shared.out) // 2)):
        (alone,) = zip(*Objective(learnt(rows, fold), dims).shared([NONE])[:1].vectors, strict=True)
        for v, w in zip(shared[first].vectors, alone, strict=True):
            assert abs(v @ w) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize("subtract", [False, True])
def test_without_clipping_every_sweep_climbs(seed, order, subtract):
    rng = np.random.default_rng([seed, order])
    dims = (4, 3, 5, 2, 3)[:order]
    views = [rng.standard_normal((60, d)) for d in dims]
    deflate = [RankOne(0.5, tuple(unit(rng.standard_normal(d)) for d in dims))] if subtract else []
    starts = Starts.at([np.stack([unit(rng.standard_normal(d)) for _ in range(5)]) for d in dims], nowhere(5))
    objective, heights = Objective(batches_of(views, [25]), dims, None, {NONE: deflate}), []
    for sweeps in range(1, 9):
        reached = objective.climb(starts, sweeps)
        heights.append(reached.heights)
    assert np.min(np.diff(heights, axis=0)) > -1e-12
    tensor = built(views, deflate)
    for r, moment in enumerate(reached.heights):
        here = [v[r] for v in reached.vectors]
        assert all(np.linalg.norm(v) == pytest.approx(1) for v in here)
        assert contracted(tensor, here, 0) @ here[0] == pytest.approx(moment, rel=1e-9)


def test_a_climb_stops_when_it_is_at_rest(rng):
    views, passes = planted(rng, 300, (3, 4)), []

    class CountedPasses:
        def __iter__(self):
            passes.append(1)
            return iter(batches_of(views))

    tolerance = REPORTED.tolerance
    starts = Starts.at([unit(rng.standard_normal(d))[None] for d in (3, 4)], nowhere(1))
    vectors = Objective(CountedPasses(), (3, 4)).climb(starts, 1000, tolerance).vectors
    assert 0 < len(passes) < 400
    left, values, right = np.linalg.svd(built(views))
    # At rest the squared change is 1e-9, and what is left to go is that times 1 / (1 - ratio) of the singular values.
    ratio = (values[1] / values[0]) ** 2
    for v, best in zip(vectors, (left[:, 0], right[0]), strict=True):
        assert 1 - abs(v[0] @ best) < tolerance / (1 - ratio) ** 2


# -- the starts -------------------------------------------------------------------------------------------------------


def test_shared_starts_are_the_leading_directions_of_all_views_side_by_side(rng):
    dims = (8, 9, 7)
    views = planted(rng, 2000, dims, 2.0)
    starts = [part[0] for part in shared_starts(batches_of(views, [900]), dims, nowhere(1), rng)]
    assert [start.shape for start in starts] == [(climbing.SHARED, d) for d in dims]
    beside = np.concatenate(views, axis=1)
    best = np.split(np.linalg.eigh(beside.T @ beside)[1][:, -1], np.cumsum(dims)[:-1])
    for found, v in zip(starts, best, strict=True):
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
        # The leading value is nearly 3, all others are about 1: six passes leave 3^-6 of the angle, squared 2e-6.
        assert abs(found[0] @ unit(v)) > 0.9999


def test_shared_starts_of_narrow_views(rng):
    views = planted(rng, 100, (2, 5))
    starts = shared_starts(batches_of(views), (2, 5), nowhere(1), rng)
    assert [start.shape for start in starts] == [(1, 2, 2), (1, 2, 5)]


@pytest.mark.parametrize("name", ["wine", "digits", "noise", "planted"])
@pytest.mark.parametrize("seed", range(3))
def test_no_power_iteration_from_fifty_random_starts_climbs_higher(name, seed):
    rng = np.random.default_rng([seed, 5])
    if name in ("wine", "digits"):
        views = {"wine": wine, "digits": digits}[name]()
    else:
        views = planted(rng, 150, (3, 4, 3), strength=0.0 if name == "noise" else 0.7, skewed=True)
    rows = rows_of(views)
    objective = Objective(rows, rows.dims)
    for effort in (JUDGED, ALONE):
        steps, tops = steps_to_the_top(objective, range(5), seed, effort)
        train = flat(learnt(rows, 1))
        tensor = built(train)
        others = power_iteration(tensor, [rng.standard_normal((50, d)) for d in tensor.shape])
        found = steps[1].steps
        assert found[TOP].strength > (1 - 1e-3) * others.max()
        for step in found:  # each with the moment that it says
            assert contracted(tensor, step.vectors, 0) @ step.vectors[0] == pytest.approx(step.strength, rel=1e-3)
        assert found[TOP].strength >= found[FEW].strength >= found[UNMOVED].strength - 1e-12
    tensor = built(views)
    others = power_iteration(tensor, [rng.standard_normal((50, d)) for d in tensor.shape])
    assert step_on_all_rows(objective, TOP, tops, seed, REPORTED).strength > (1 - 1e-6) * others.max()


def test_steps_that_are_not_at_the_top_do_not_depend_on_the_seed(rng):
    views = planted(rng, 200, (5, 4, 6, 3), 0.5)
    objective = Objective(batches_of(views), (5, 4, 6, 3))
    one, other = (steps_to_the_top(objective, [NONE], seed, JUDGED)[0][NONE] for seed in (0, 1))
    for step in (FEW, UNMOVED):
        for a, b in zip(one.steps[step].vectors, other.steps[step].vectors, strict=True):
            np.testing.assert_array_equal(a, b)


def test_wide_views_have_fewer_random_starts():
    effort = Effort(random=100, second=10, finalists=4, sweeps=5, tolerance=0.0)
    assert [effort.starts((width,) * 4) for width in (10, 2**9, 2**13)] == [100, 16, 10]


def test_climbs_that_ended_at_the_same_place_count_once():
    first = np.array([[1.0, 0.0], [-1.0, 1e-3], [0.0, 1.0], [0.6, 0.8]])
    second = np.array([[0.0, 1.0], [1e-3, 1.0], [0.0, 1.0], [1.0, 0.0]])
    moments = np.array([1.0, 3.0, 2.0, 0.5])
    assert distinct([first, second], moments, 4) == [1, 2, 3]  # 0 is 1 with other signs
    assert distinct([first, second], moments, 2) == [1, 2]


# -- the verdict ------------------------------------------------------------------------------------------------------


def draws(law, rng, n):
    return rng.standard_normal(n) if law == "normal" else rng.exponential(size=n)


def p_of(steps, rng, clip=None, chosen=0, shufflings=99):
    return p_value(steps, chosen, clip, rng, shufflings)


@pytest.mark.parametrize("law", ["normal", "exponential"])
@pytest.mark.parametrize("order", [2, 4])
def test_p_values_of_unrelated_scores_are_uniform(law, order):
    # Under independence all shufflings are equally likely, so p is uniform on 1/100, ..., 1 whatever the law (products
    # of continuous scores have no ties).  Dvoretzky, Kiefer, Wolfowitz: P(sup |F_n - F| > e) <= 2 exp(-2 n e²),
    # 1e-6 for n = 400 and e = 0.135.
    rng, fits = np.random.default_rng([order, law == "normal"]), 400
    found = [p_of([[draws(law, rng, 40) for _ in range(order)]], rng) for _ in range(fits)]
    grid = np.arange(1, 101) / 100
    shares = np.mean(np.array(found)[:, None] <= grid + 1e-9, axis=0)
    assert np.abs(shares - grid).max() < math.sqrt(math.log(2e6) / (2 * fits))
    # The end that matters, more closely: binomial, 1e-6.
    assert sum(p <= 0.05 + 1e-9 for p in found) <= binom.isf(1e-6, fits, 0.05)


@pytest.mark.parametrize("rows", [40, judge.EXACT_ROWS + 1])
def test_the_best_of_several_steps_is_no_better_than_chance(rows):
    # The step with the highest mean is judged: p is at most 0.05 in 5 % of all fits, and more in 1e-6 of all runs.
    rng, fits, claims = np.random.default_rng(rows), 300, 0
    for _ in range(fits):
        common = rng.standard_normal((3, rows))
        steps = [list(common + 0.5 * rng.standard_normal((3, rows))) for _ in range(3)]
        best = int(np.argmax([judge.products(views, None).mean() for views in steps]))
        claims += p_of(steps, rng, chosen=best) <= 0.05
    assert claims <= binom.isf(1e-6, fits, 0.05)


@pytest.mark.parametrize("clip", [None, 2.0])
def test_p_values_of_many_unrelated_rows_are_uniform(clip):
    # Above EXACT_ROWS the mean of the products is taken as normal.  The same inequality, n = 800, 1e-6: 0.095.
    rng, rows, fits = np.random.default_rng(1), judge.EXACT_ROWS + 1, 800
    found = np.sort([p_of([list(rng.standard_normal((2, rows)))], rng, clip) for _ in range(fits)])
    ranks = np.arange(fits + 1) / fits
    furthest = max(np.abs(found - ranks[1:]).max(), np.abs(found - ranks[:-1]).max())
    assert furthest < math.sqrt(math.log(2e6) / (2 * fits))


@pytest.mark.parametrize("rows", [60, judge.EXACT_ROWS + 1])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_related_scores_are_told_from_chance(rows, order):
    # A correlation of 0.9 each: shuffled it is never so much in 199 times, and after 4001 rows it is 40 errors away.
    rng = np.random.default_rng([rows, order])
    shared = rng.exponential(size=rows)
    views = [shared + 0.3 * rng.standard_normal(rows) for _ in range(order)]
    assert p_of([views], rng, shufflings=199) <= 1 / 200
    products = np.prod([(view - view.mean()) / view.std() for view in views], axis=0)
    mean, error = correlation(judge.products(views, None))
    assert mean == pytest.approx(products.mean())
    assert error == pytest.approx(products.std(ddof=1) / math.sqrt(rows))


def test_p_does_not_depend_on_the_order_of_the_rows(rng):
    shared = rng.standard_normal(80)
    steps = [[shared + 2 * rng.standard_normal(80) for _ in range(3)] for _ in range(2)]
    order = rng.permutation(80)
    one = p_of(steps, np.random.default_rng(0))
    other = p_of([[view[order] for view in views] for views in steps], np.random.default_rng(0))
    assert one == other
    pairs = [pairs_p_value(views, np.random.default_rng(0), 99) for views in (steps[0], [v[order] for v in steps[0]])]
    assert pairs[0] == pairs[1]


def test_scores_against_each_other_are_no_evidence(rng):
    shared = rng.standard_normal(200)
    assert p_of([[shared, -shared]], rng) == 1.0


def test_too_few_or_constant_scores_prove_nothing(rng):
    for rows in (0, 1, 2):
        views = list(rng.standard_normal((2, rows)))
        assert all(math.isnan(x) for x in correlation(np.ones(rows)))
        assert p_of([views], rng) == pairs_p_value(views, rng, 9) == 1.0
    for rows in (50, judge.EXACT_ROWS + 1):
        assert p_of([[np.ones(rows), rng.standard_normal(rows)]], rng) == 1.0


def test_pairs_of_views_are_told_from_chance():
    # p of unrelated scores is uniform, as above; those with a common factor of their own size are never so unrelated.
    rng, fits, claims = np.random.default_rng(8), 200, 0
    for _ in range(fits):
        claims += pairs_p_value(list(rng.standard_normal((3, 30))), rng, 39) <= 0.05
    assert claims <= binom.isf(1e-6, fits, 0.05)
    shared = rng.standard_normal(200)
    assert pairs_p_value([shared + rng.standard_normal(200) for _ in range(3)], rng, 99) == 1 / 100


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
@pytest.mark.parametrize("degree", [1, 3])
def test_p_values_of_folds_make_one_for_fits_to_the_sum_of_the_others(folds, degree):
    # Moments of a fold are d normal numbers; the fit is along the sum of those of the others, or along its cubes: no
    # fit may claim more than 5 %.  Binomial, 1e-6.
    rng, runs, claims = np.random.default_rng([folds, degree]), 2000, 0
    for _ in range(runs):
        moments = rng.standard_normal((folds, 2))
        fits = units((moments.sum(axis=0) - moments) ** degree)
        claims += combined(list(ndtr(-np.sum(moments * fits, axis=1)))) <= 0.05
    assert claims <= binom.isf(1e-6, runs, 0.05)


def test_the_bound_on_the_dependence_of_folds():
    assert [inflation(folds) for folds in (2, 3, 4, 5)] == pytest.approx([2, 2, 1 + 4 / 3, 1 + 27 / 16])
    for folds in range(2, 30):  # no degree has more, however high
        degrees = np.arange(1, 500)
        assert np.max(degrees * ((folds - 2) / (folds - 1)) ** (degrees - 1.0)) <= inflation(folds) - 1 + 1e-12


def test_one_fold_does_not_decide():
    assert combined([0.03]) == 0.03
    assert combined([1e-300, 0.4, 0.5, 0.6, 0.7]) > 0.1
    assert combined([0.9, 0.01, 0.01, 0.01, 0.01]) < 0.05
    assert combined([0.1] * 5) < 0.05 < combined([0.15] * 5)
    assert combined([1.0] * 5) > 0.999
    assert combined([0.0] * 5) > 0


def test_scores_are_standardised_and_bounded(rng):
    views = [5 + 3 * rng.standard_normal(1000).astype(np.float32), np.ones(1000)]
    first, second = standardised(views, None)
    assert first.dtype == np.float64
    assert (first.mean(), first.std()) == pytest.approx((0, 1), abs=1e-6)
    assert not second.any()
    np.testing.assert_allclose(standardised(views, 1.5)[0], np.clip(first, -1.5, 1.5))


def test_the_top_is_chosen_unless_less_is_clearly_better(rng):
    shared, noise = rng.standard_normal(500), rng.standard_normal((3, 500))
    good, bad = (judge.products(v, None) for v in ([shared, shared + 0.1 * noise[0]], [noise[1], noise[2]]))
    assert choose([good, good, good]) == 0
    assert choose([good, bad, bad]) == 0
    assert choose([bad, good, bad]) == 1
    assert choose([bad, bad, good]) == 2
    assert choose([good[:1]] * 3) == 0


@pytest.mark.parametrize(("rows", "decide"), [(1, False), (2, False), (3, False), (9, True)])
def test_a_few_rows_however_far_out_do_not_choose_the_step(rows, decide):
    still, few = np.zeros(1000), np.zeros(1000)
    few[:rows] = 1e9
    assert choose([still, few]) == int(decide)


def test_what_known_components_have_no_part_in(rng):
    known = [RankOne(1.0, tuple(unit(rng.standard_normal(d)) for d in (4, 5))) for _ in range(2)]
    vectors = [unit(rng.standard_normal(d)) for d in (4, 5)]
    for v, left, *others in zip(vectors, aside(vectors, known), *(one.vectors for one in known), strict=True):
        assert np.linalg.norm(left) == pytest.approx(1)
        assert all(abs(left @ u) < 1e-12 for u in others)
        assert left @ v > 0
    for v, left in zip(vectors, aside(vectors, ()), strict=True):
        np.testing.assert_allclose(left, v)


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "folds"), [(0.2, 5), (0.3, 3), (0.5, 2), (0.9, 1), (0.01, 10)])
def test_rows_are_split_once_and_for_all(monkeypatch, share, folds):
    monkeypatch.setattr("tpca.streams.vectors.BATCH_ENTRIES", 70)  # 10 rows a batch
    views = [np.arange(2.0 * 1003).reshape(1003, 2), np.arange(5.0 * 1003).reshape(1003, 5)]
    kept, read = (rows_of(views, share, memory) for memory in (1e9, 1.0))
    assert is_kept(kept)
    assert not is_kept(read)
    assert kept.split.count == folds
    both, never = flat(total(kept, Seen()).batches), set(range(1003))
    for fold in range(folds):
        train, judged = (flat(part(kept, fold)) for part in (learnt, held))
        for part in range(2):  # disjoint and complete, and the same rows of all views
            together = np.concatenate([train[part], judged[part]])
            np.testing.assert_array_equal(np.sort(together, axis=0), views[part])
            np.testing.assert_array_equal(np.sort(both[part], axis=0), views[part])
            np.testing.assert_array_equal(train[part][:, 0] / len(views[part][0]), train[0][:, 0] / 2)
        # Binomial with 1003 rows: six standard deviations, 2e-9.
        assert abs(len(judged[0]) - 1003 * share) < 6 * math.sqrt(1003 * share * (1 - share))
        numbers = set((judged[0][:, 0] / 2).astype(int))
        assert numbers <= never  # in one fold only
        never -= numbers
        for _ in range(2):  # pass after pass, kept or not
            for one, other in zip(learnt(kept, fold), learnt(read, fold), strict=True):
                for a, b in zip(one.views, other.views, strict=True):
                    np.testing.assert_array_equal(a, b)
    assert (len(never) == 0) == (folds * share > 0.999)


@pytest.mark.parametrize("size", [70, 700, 10**6])
def test_folds_depend_on_what_is_in_the_rows(monkeypatch, size, rng):
    monkeypatch.setattr("tpca.streams.vectors.BATCH_ENTRIES", size)
    views = [rng.standard_normal((200, 2)), rng.standard_normal((200, 5))]
    views = [np.concatenate([view, view[:50]]) for view in views]  # copies
    order = rng.permutation(250)
    one, other = (flat(held(rows_of(v), 1)) for v in (views, [view[order] for view in views]))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a[np.lexsort(a.T)], b[np.lexsort(b.T)])
    copies, judged = {tuple(row) for row in views[0][:50]}, [tuple(row) for row in one[0]]
    assert all(judged.count(row) == 2 for row in copies & set(judged))
    single = [view.astype(np.float32) for view in views]
    np.testing.assert_allclose(flat(held(rows_of(single), 1))[0], one[0], rtol=1e-6)


@pytest.mark.parametrize("memory", [1.0, 1e9])
def test_rows_of_a_fold_are_scored_along_its_own_vectors(monkeypatch, memory, rng):
    monkeypatch.setattr("tpca.streams.vectors.BATCH_ENTRIES", 70)
    rows = rows_of([rng.standard_normal((60, 3)), rng.standard_normal((60, 4))], memory=memory)
    vectors = [[rng.standard_normal((2, d)) for d in (3, 4)] for _ in range(5)]
    scores = total(rows, HeldScores(vectors))
    for fold, own in enumerate(vectors):
        for found, view, v in zip(scores.joined(fold), flat(held(rows, fold)), own, strict=True):
            np.testing.assert_allclose(found, view @ v.T, rtol=1e-12)


def test_rows_are_kept_if_they_fit():
    views = [np.zeros((100, 2)), np.zeros((100, 3))]
    assert is_kept(rows_of(views, 0.2, 4000))
    assert not is_kept(rows_of(views, 0.2, 3999))
    single = [view.astype(np.float32) for view in views]
    assert is_kept(rows_of(single, 0.2, 2000))


# -- the solver -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_components(rng):
    views = planted(rng, 300, (3, 4, 3), skewed=True)
    one, other = (MomentSolver(random_state=5, n_components=2).run(open_views(views)) for _ in range(2))
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a.moment, a.correlation, a.correlation_error, a.p_value) == (
            b.moment,
            b.correlation,
            b.correlation_error,
            b.p_value,
        )
        for v, w in zip(a.vectors, b.vectors, strict=True):
            np.testing.assert_array_equal(v, w)


@pytest.mark.parametrize("refit", [False, True])
def test_the_moment_is_that_of_the_rows_it_was_fitted_to(rng, refit):
    views = planted(rng, 500, (3, 4, 3, 4))
    solver = MomentSolver(random_state=2, refit=refit)
    (found,) = solver.run(open_views(views))
    rows = rows_of(views)
    fitted = views if refit else flat(learnt(rows, 0))
    assert contracted(built(fitted), found.vectors, 0) @ found.vectors[0] == pytest.approx(found.moment, rel=1e-6)
    assert all(np.linalg.norm(v) == pytest.approx(1) for v in found.vectors)


def test_it_stops_after_the_first_component_that_is_not_proven(rng):
    views = [white(rng.standard_normal((100, 3))) for _ in range(3)]
    found = MomentSolver(n_components=3, confidence=0.99999).run(open_views(views))
    assert len(found) == 1
    assert found[0].p_value > 1e-5


def test_refusals(rng):
    for share in (0, 1, -0.1, 1.5):
        with pytest.raises(SolverError, match=f"validation_fraction must lie strictly between 0 and 1, got {share}"):
            MomentSolver(validation_fraction=share)
    views = [rng.standard_normal((19, 3)) for _ in range(2)]
    with pytest.raises(SolverError, match="at least 20 rows are needed to learn from and to judge by, got 19"):
        MomentSolver().run(open_views(views))
    views = [rng.standard_normal((20, 3)) for _ in range(2)]
    with pytest.raises(
        SolverError, match=r"validation_fraction=0.9999999 leaves 0 of 20 rows to learn from; hold out fewer"
    ):
        MomentSolver(validation_fraction=0.9999999).run(open_views(views))


def test_every_pass_is_told(rng):
    views, told = planted(rng, 300, (3, 4)), []
    (found,) = MomentSolver(callbacks=[told.append]).run(open_views(views))
    assert all(one["samples"] <= other["samples"] for one, other in itertools.pairwise(told))
    assert told[0]["samples"] == 300
    assert told[-2]["samples"] % 300 == 0
    phases = list(dict.fromkeys(record["phase"] for record in told))
    assert phases == [f"component 1, {phase}" for phase in ("reading", "folds", "all rows", "judged")]
    last = told[-1]
    assert (last["strength"], last["strength_error"]) == (found.correlation, found.correlation_error)
    assert last["found"]
    assert last["measure"] == "correlation"
