"""Formulas of published methods against what their runs really held."""

import pytest

from research.methods import METHODS, Problem, matrices
from research.studies.memory_methods import METHODS as RUNS
from research.studies.memory_methods import ladder_samples
from tpca import SpikedTensor
from tpca.errors import ModelError


def test_bad_problems_are_refused():
    with pytest.raises(ModelError, match="correlation"):
        Problem((4, 4), correlation=2.0)
    with pytest.raises(ModelError, match="equal vectors need"):
        Problem((4, 5), symmetric=True)
    with pytest.raises(ModelError, match="equal vectors have correlation 1"):
        Problem((4, 4, 4), correlation=0.3, symmetric=True)


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
        formula = method.state(problem)
        if method.name == "mean":  # the formula is for eight units; the samples may fill only five of them
            assert 0.5 * formula < outcome.state <= formula
        else:
            assert outcome.state == pytest.approx(formula, rel=0.12, abs=8 * dim), method.name


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
