"""The planner: formulas against what is really held, sizes against the real strategies, the command."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from tpca import RaceSolver, SpikedTensor
from tpca.cli import app
from tpca.engines import LawEngine
from tpca.errors import ModelError, SolverError, TpcaError
from tpca.lab.planning.constants import constant, frontier, stored, this_machine
from tpca.lab.planning.methods import METHODS, least_race_bytes, matrices, race_size
from tpca.lab.planning.plan import make_plan
from tpca.lab.planning.problem import Problem, parse_correlation, parse_samples, tensor_dims
from tpca.lab.studies.memory_methods import METHODS as RUNS
from tpca.lab.studies.memory_methods import ladder_samples
from tpca.solvers.choice import choose_solver
from tpca.solvers.race.strategies.choice import strategies_within

runner = CliRunner()


@pytest.mark.parametrize(
    ("text", "value"),
    [("4d^2", 2304), ("1e4", 10000), ("2.5 d^1.5", 294), ("d^(3/2)", 118), ("2(d+1)", 50), (7, 7), ("d**2/2", 288)],
)
def test_numbers_of_samples(text, value):
    assert parse_samples(text, (24,) * 4) == value


@pytest.mark.parametrize("text", ["", "0", "-3", "4x", "d^", "__import__('os')", "1/0", "nan", "9**9**9**9", "d d"])
def test_what_is_no_number_of_samples_is_refused(text):
    with pytest.raises(SolverError, match="samples must be at least 1"):
        parse_samples(text, (24,) * 4)


def test_d_is_the_geometric_mean_of_the_dims():
    assert parse_samples("d^3", (10, 20, 30)) == 6000


def test_dims_come_in_two_ways():
    assert tensor_dims(3, 5, None) == (5, 5, 5)
    assert tensor_dims(None, None, "10,20, 30") == (10, 20, 30)
    for bad, says in (
        ((None, 5, None), "say how large"),
        ((3, 5, "4,4"), "not both"),
        ((None, None, "4,x"), "got '4,x'"),
        ((1, 5, None), "at least 2 modes"),
    ):
        with pytest.raises(TpcaError, match=says):
            tensor_dims(*bad)


def test_bad_problems_are_refused():
    with pytest.raises(ModelError, match="strength"):
        Problem((4, 4), strength=-1.0)
    with pytest.raises(ModelError, match="noise"):
        Problem((4, 4), noise=math.nan)
    with pytest.raises(ModelError, match="correlation"):
        Problem((4, 4), correlation=2.0)
    with pytest.raises(ModelError, match="equal vectors"):
        Problem((4, 5), symmetric=True)
    with pytest.raises(SolverError, match="rate"):
        make_plan(Problem((4, 4)), rate=0.0)
    with pytest.raises(SolverError, match="workers"):
        make_plan(Problem((4, 4)), workers=0)


@pytest.mark.parametrize("dims", [(16,) * 3, (8, 9, 30), (10,) * 4, (6,) * 5, (6,) * 6, (12, 12), (5, 6, 7, 8, 9)])
def test_the_race_is_sized_as_it_lines_up(dims):
    for nbytes in np.geomspace(2e3, 1e7, 12).astype(int):
        found = race_size(dims, int(nbytes))
        try:
            searches = strategies_within(dims, int(nbytes), None, 0.05, np.random.default_rng(0))
        except TpcaError:
            assert found is None
            assert nbytes < least_race_bytes(dims)
            continue
        main = searches[0].strategy
        count = main.replicas if main.name == "singles" else main.columns
        assert (found.strategy, found.count) == (main.name, count)
        assert found.symmetric == any(c.name == "symmetric" for c in searches)
        assert 8 * found.floats <= nbytes


def test_the_state_of_a_race_is_what_its_size_says():
    """The plan counts what is held, but for what is learnt of the noise in passing: that is in the limit as well."""
    truth = SpikedTensor.random((8,) * 4, 1.0, random_state=0)
    found = race_size(truth.dims, 60_000)
    recovery = RaceSolver(memory_limit=60_000, max_samples=100).run(LawEngine(truth, random_state=1))
    assert 0.5 * 8 * found.floats <= recovery.state_bytes <= 60_000


@pytest.mark.parametrize("order", [3, 4, 5])
def test_state_formulas_hold(order):
    """The formulas of all methods against the arrays that their runs held, within a tenth."""
    dim = {3: 12, 4: 7, 5: 5}[order]
    for method in METHODS:
        run = RUNS.get(method.name)
        problem = Problem((dim,) * order, symmetric=bool(run and run.symmetric))
        if run is None or order not in run.orders or method.obstacle(problem) or method.name in ("paper", "tensorly"):
            continue
        options = {"correlation": 1.0, "symmetric": True} if run.symmetric else {}
        truth = SpikedTensor.random((dim,) * order, 1.0, random_state=0, **options)
        outcome = run.run(truth, ladder_samples(run, order, dim, run.start), 0)
        assert outcome.state == pytest.approx(method.state(problem), rel=0.12, abs=8 * dim), method.name


def test_correlation_helps_the_papers_matrices():
    """Order 6: d^4 without correlation, d^3 with equal vectors (γ = d^(-1/2) + 1/d, which bends small d)."""
    none, half, full = (matrices(Problem((1000,) * 6, correlation=c)) for c in (0.0, 0.5, 1.0))
    assert none == pytest.approx(1e12)
    assert full < half < none
    assert full == pytest.approx(1e9, rel=0.2)
    assert matrices(Problem((100,) * 5, correlation=0.0)) == pytest.approx(1e6)  # d^(k̄-2): the vector block is idle


def test_few_correlated_pairs_ask_for_no_more_than_none():
    """The corollary's min: one pair of three with Cor = 1 makes d² max γ⁴ ∏γ⁻² d^5 against Case II's d^4."""
    one, all_three, none = (matrices(Problem((256,) * 6, correlation=c)) for c in ((1.0, 0.0, 0.0), (1.0,) * 3, 0.0))
    assert one == pytest.approx(none)
    assert all_three < none / 100
    with pytest.raises(ModelError, match="one for each of 3 pairs"):
        Problem((8,) * 6, correlation=(1.0, 0.0))
    result = runner.invoke(app, ["plan", "--order", "6", "--dim", "64", "--correlation", "1,0,0"])
    assert result.exit_code == 0, result.output
    assert "correlation 1, 0, 0 inside pairs" in " ".join(result.output.split())
    assert parse_correlation("0.5") == 0.5
    with pytest.raises(SolverError, match=r"correlation must be a number, .* got 'much'"):
        parse_correlation("much")


def test_constants_have_their_provenance():
    made = stored()["provenance"]
    assert made["study"] == "memory"
    assert made["store"] == "docs/reproduction/memory.jsonl"
    assert made["trials"] > 100
    assert constant("mean", 4).measured
    assert not constant("mean", 9).measured
    assert constant("mean", 4).basis(12) == "measured"
    assert constant("mean", 4).basis(500) == "extrapolated"
    assert constant("mean", 9).basis(12) == "theory"
    for method in METHODS:
        for order in (3, 4, 5, 6):
            value = constant(method.measured_as(order), order)
            assert 0 < value.low <= value.value <= value.high or not value.measured


@pytest.mark.parametrize(
    ("order", "dim"), [(4, 32), (6, 100), (3, 500), (3, 20), (2, 50), (7, 10)]
)  # the first three are those of docs/planning.md
@pytest.mark.parametrize("memory", ["100MB", "10GB", None])
def test_the_recommendation_is_what_the_estimator_would_take(order, dim, memory):
    problem = Problem((dim,) * order)
    plan = make_plan(problem, memory_limit=memory)
    assert plan.recommended == choose_solver(problem.dims, memory).solver
    assert plan.recommendation.startswith("Use ")
    assert plan.recommendation.endswith(".")
    row = next(r for r in plan.rows if r.name == plan.recommended)
    if not row.obstacle:
        assert row.state_bytes <= plan.memory_limit


def test_samples_are_judged():
    words = {n: make_plan(Problem((10,) * 4), samples=n).recommendation for n in ("0.2d^2", "20d^2")}
    assert "are too few" in words["0.2d^2"]
    assert "are enough" in words["20d^2"]


def test_strength_and_noise_scale_all_samples():
    one, two = make_plan(Problem((20,) * 4)), make_plan(Problem((20,) * 4, strength=0.5, noise=2.0))
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a.name == b.name
        if math.isfinite(a.samples):
            assert b.samples == pytest.approx(16 * a.samples)
            assert b.product == pytest.approx(a.product)


def test_nothing_lies_below_the_bound_but_methods_for_equal_vectors():
    for order, dim in ((3, 100), (4, 50), (5, 30), (6, 30)):
        for row in make_plan(Problem((dim,) * order), memory_limit="1TB").rows:
            assert not row.product < 0.1


def test_more_memory_never_costs_samples():
    for order, dim in ((4, 32), (6, 20)):
        needed = [make_plan(Problem((dim,) * order), memory_limit=m).rows[0].samples for m in ("200kB", "2MB", "200MB")]
        assert needed == sorted(needed, reverse=True)


def test_workers_and_rate_set_the_time():
    problem = Problem((30,) * 4)
    one, four = make_plan(problem), make_plan(problem, workers=4)
    assert four.rows[0].seconds_by_workers == pytest.approx(one.rows[0].seconds / 4)
    sgd = next(r for r in four.rows if r.name == "vector-sgd")
    assert sgd.seconds_by_workers == sgd.seconds
    slow = make_plan(problem, rate=1.0)
    assert slow.rows[0].seconds == pytest.approx(slow.rows[0].samples)
    assert this_machine().bandwidth > 1e8


def test_the_command_prints_a_table_and_a_sentence():
    done = runner.invoke(
        app,
        ["plan", "--order", "4", "--dim", "32", "--memory-limit", "100MB", "--samples", "4d^2"],
        env={"COLUMNS": "118"},
    )
    assert done.exit_code == 0, done.output
    for word in ("mean (MeanSolver)", "race", "Not possible:", "only for equal vectors", "Use MeanSolver", "enough"):
        assert word in done.output
    assert max(map(len, done.output.splitlines())) <= 118


def test_the_command_as_json_and_its_figure(tmp_path):
    figure = tmp_path / "plan.png"
    done = runner.invoke(app, ["plan", "--dims", "10,20,30", "--json", "--plot", str(figure)])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["recommended"] == "mean"
    assert content["constants"]["study"] == "memory"
    assert {row["name"] for row in content["rows"]} == {"race", *(m.name for m in METHODS)}
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--order", "4"), "say how large"),
        (("--dims", "3,a"), "dims must be whole numbers with commas, such as 10,20,30, got '3,a'"),
        (("--order", "4", "--dim", "8", "--samples", "zebra"), "samples must be at least 1"),
        (("--order", "4", "--dim", "8", "--samples", "zebra"), "got 'zebra'"),
        (("--order", "4", "--dim", "8", "--memory-limit", "lots"), "got 'lots'"),
        (("--order", "4", "--dim", "8", "--strength", "0"), "strength must be a positive finite number, got 0.0"),
    ],
)
def test_bad_input_is_named(arguments, says):
    done = runner.invoke(app, ["plan", *arguments])
    assert isinstance(done.exception, TpcaError)
    assert says in str(done.exception)


@pytest.mark.parametrize("memory", ["68kB", "120kB", "300kB", "1MB", "80MB"])
def test_the_race_is_never_planned_below_what_was_measured(memory):
    """Far beyond the sizes measured its form would promise less than the smallest S·K·N of any method."""
    plan = make_plan(Problem((100,) * 6), memory_limit=memory)
    (race,) = [row for row in plan.rows if row.name == "race"]
    assert race.product >= 0.999 * frontier()


def test_what_only_takes_too_long_is_told_apart_from_what_does_not_fit():
    rows = {row.name: row for row in make_plan(Problem((100,) * 6), memory_limit="2GB").rows}
    assert rows["race"].endless
    assert rows["als"].obstacle
    assert not rows["als"].endless


def test_a_method_that_fits_is_named_when_ours_do_not():
    plan = make_plan(Problem((10,) * 4), memory_limit="2kB", samples=10**5)
    assert "give more memory, or use vectors by online SGD" in plan.recommendation
    assert plan.recommended == "vector-sgd"


def test_huge_problems_are_planned_or_refused_at_once():
    assert "Nothing fits" in make_plan(Problem((10**9,) * 4)).recommendation
    with pytest.raises(ModelError, match="orders up to 12, got order 20"):
        Problem((10,) * 20)
