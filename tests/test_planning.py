"""The planner: sizes against the real strategies, recommendations, the command."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from research.law import LawEngine
from tpca import RaceSolver, SpikedTensor
from tpca.errors import MemoryBudgetError, ModelError, SolverError, TpcaError
from tpca.inference.design import Design
from tpca.planning import FRONTIER, Problem, make_plan, needed, parse_samples, race_size, tensor_dims
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.race.strategies import candidates_within, least_bytes


def test_samples_may_be_written_in_d_and_dims_come_in_two_ways():
    written = {"4d^2": 2304, "1e4": 10000, "2.5 d^1.5": 294, "0.5*d^(3/2)": 59, 7: 7, "d**2": 576}
    assert {text: parse_samples(text, (24,) * 4) for text in written} == written
    assert parse_samples("d^3", (10, 20, 30)) == 6000  # d is the geometric mean
    for text in ["", "0", "-3", "4x", "d^", "__import__('os')", "d^(1/0)", "nan", "9d^999", "d d"]:
        with pytest.raises(SolverError, match="samples must be at least 1"):
            parse_samples(text, (24,) * 4)
    assert tensor_dims(3, 5, None) == (5, 5, 5)
    assert tensor_dims(None, None, "10,20, 30") == (10, 20, 30)
    for bad, says in (
        ((None, 5, None), "say how large"),
        ((3, 5, "4,4"), "not both"),
        ((None, None, "4,x"), "got '4,x'"),
        ((1, 5, None), "at least 2 axes"),
    ):
        with pytest.raises(TpcaError, match=says):
            tensor_dims(*bad)


def test_bad_problems_are_refused_and_huge_ones_planned_at_once():
    for dims, options, says in (
        ((4, 4), {"strength": -1.0}, "strength"),
        ((4, 4), {"noise": math.nan}, "noise"),
        ((10,) * 20, {}, "orders up to 12, got order 20"),
    ):
        with pytest.raises(ModelError if "strength" in options else SolverError, match=says):
            Problem(dims, **options)
    for options in ({"rate": 0.0}, {"workers": 0}):
        with pytest.raises(SolverError, match=next(iter(options))):
            make_plan(Problem((4, 4)), **options)
    assert "Nothing fits" in make_plan(Problem((10**9,) * 4)).recommendation


@pytest.mark.parametrize("dims", [(16,) * 3, (8, 9, 30), (10,) * 4, (6,) * 5, (6,) * 6, (12, 12), (5, 6, 7, 8, 9)])
def test_the_race_is_sized_as_it_lines_up(dims):
    for nbytes in np.geomspace(2e3, 1e7, 12).astype(int):
        found = race_size(dims, int(nbytes))
        try:
            candidates = candidates_within(dims, int(nbytes), None, 0.05, np.random.default_rng(0))
        except TpcaError:
            assert found is None
            assert nbytes < least_bytes(dims)
            continue
        main = candidates[0].strategy
        assert (found.main, found.size) == (main.name, main.size)
        assert found.symmetric == any(c.strategy.name == "symmetric" for c in candidates)
        assert 8 * found.floats <= nbytes


def test_the_state_of_a_race_is_what_its_size_says():
    """The plan counts what is held, but for what is learnt of the noise in passing: that is in the limit as well."""
    truth = SpikedTensor.random((8,) * 4, 1.0, random_state=0)
    found = race_size(truth.dims, 60_000)
    estimate = RaceSolver(memory_limit=60_000, max_samples=100).run(LawEngine(truth, random_state=1))
    assert 0.5 * 8 * found.floats <= estimate.state_bytes <= 60_000


# The first three are those of docs/planning.md.
@pytest.mark.parametrize(("order", "dim"), [(4, 32), (6, 100), (3, 500), (3, 20), (2, 50), (7, 10)])
@pytest.mark.parametrize("memory", ["100MB", "10GB", None])
def test_the_recommendation_is_what_the_estimator_would_take(order, dim, memory):
    problem = Problem((dim,) * order)
    plan = make_plan(problem, memory_limit=memory)
    data = SimpleNamespace(dims=problem.dims, length=100, partial=False, endless=False)
    try:
        LeastSquares(memory_limit=memory).plan(data, Design())
        taken = "least_squares"
    except MemoryBudgetError:
        taken = "race"
    assert plan.recommended == taken
    assert plan.recommendation.startswith("Use ")
    assert plan.recommendation.endswith(".")
    row = next(r for r in plan.rows if r.name == plan.recommended)
    if not row.obstacle:
        assert row.state_bytes <= plan.memory_limit


def test_samples_are_judged_what_numbers_rest_on_is_told_and_nothing_is_planned_below_the_bound():
    words = {n: make_plan(Problem((10,) * 4), samples=n).recommendation for n in ("0.2d^2", "20d^2")}
    assert "are too few" in words["0.2d^2"]
    assert "are enough" in words["20d^2"]
    assert [needed("mean", Problem((d,) * 4))[1] for d in (12, 500)] == ["measured", "extrapolated"]
    assert needed("race", Problem((4,) * 9)) == (4**4.5, "theory")
    # Far beyond the sizes measured the race's form would promise less than the smallest S·K·N of any method.
    for order, dim in ((3, 100), (4, 50), (5, 30), (6, 30)):
        for row in make_plan(Problem((dim,) * order), memory_limit="1TB").rows:
            assert not row.product < 0.1
    for memory in ("68kB", "120kB", "300kB", "1MB", "80MB"):
        race, _ = make_plan(Problem((100,) * 6), memory_limit=memory).rows
        assert race.product >= 0.999 * FRONTIER


def test_strength_and_noise_scale_samples_memory_saves_them_workers_and_rate_set_the_time():
    one, two = make_plan(Problem((20,) * 4)), make_plan(Problem((20,) * 4, strength=0.5, noise=2.0))
    for a, b in zip(one.rows, two.rows, strict=True):
        assert (a.name, b.samples, b.product) == (b.name, pytest.approx(16 * a.samples), pytest.approx(a.product))
    for order, dim in ((4, 32), (6, 20)):
        needed = [make_plan(Problem((dim,) * order), memory_limit=m).rows[0].samples for m in ("200kB", "2MB", "200MB")]
        assert needed == sorted(needed, reverse=True)
    one, four, slow = (make_plan(Problem((30,) * 4), **own) for own in ({}, {"workers": 4}, {"rate": 1.0}))
    for shared, alone in zip(four.rows, one.rows, strict=True):
        assert shared.seconds == pytest.approx(alone.seconds / 4)
    assert slow.rows[0].seconds == pytest.approx(slow.rows[0].samples)
    assert one.bandwidth > 1e8
