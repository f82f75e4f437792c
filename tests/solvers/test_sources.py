"""Independent sources of a table: gradients against the moment built, whitening, tests and weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

import naive
from tpca.data.rows import open_rows
from tpca.engines import LocalEngine
from tpca.errors import MemoryBudgetError, SampleError, SolverError
from tpca.solvers import sources as tools
from tpca.solvers.folds import FoldedRows, Folds, Passes, leading_directions

SEEDS = st.integers(0, 2**32 - 1)


def fit(rows, **options):
    return tools.fit_sources(open_rows(rows), LocalEngine, tools.SourcesOptions(**options))


def contrasts_of(rows, weights, chosen, tried):
    """Gradients by functions, and V of all that are tried."""
    none_held = Folds(np.ones(len(rows), np.int8), np.arange(len(rows)), 1)
    passes = Passes(FoldedRows(open_rows(rows), none_held, [np.zeros(rows.shape[1])], [None]), LocalEngine, 1e9)
    found, moments = tools.contrasts(passes, weights, np.broadcast_to(chosen, len(weights)), tried)
    return found, tools.variances(moments)


def table(seed):
    """Some rows of skewed numbers, many of them zero, and weights."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    return rng.exponential(size=(n, d)) * (rng.random((n, d)) < 0.5), rng.standard_normal((2, d)), rng


def cumulant(rows, order):
    """The cumulant tensor of the rows, built."""
    x = rows - rows.mean(axis=0)
    if order == 3:
        return np.einsum("na,nb,nc->abc", x, x, x) / len(x)
    c = x.T @ x / len(x)
    pairs = sum(np.einsum(how, c, c) for how in ("ab,cd->abcd", "ac,bd->abcd", "ad,bc->abcd"))
    return np.einsum("na,nb,nc,nd->abcd", x, x, x, x) / len(x) - pairs


def contracted(tensor, weights):
    for _ in range(tensor.ndim - 1):
        tensor = np.tensordot(weights, tensor, axes=(0, 0))
    return tensor


@given(SEEDS, st.sampled_from([3, 4]))
def test_gradients_of_cumulants_are_those_of_the_tensor(seed, order):
    """At order 3 whatever the centre that sums are taken about."""
    rows, weights, rng = table(seed)
    shifted = rows + rng.standard_normal(rows.shape[1]) if order == 3 else rows - rows.mean(axis=0)
    expected = [contracted(cumulant(rows, order), w) for w in weights]
    # Sums of products of up to four numbers of size ten, in double precision.
    found, _ = contrasts_of(shifted, weights, tools.FUNCTION_OF[order], (tools.FUNCTION_OF[order],))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("order", [3, 4])
def test_the_search_finds_all_parts_of_a_built_tensor(order):
    """Orthogonal parts of a dense tensor, climbed by its own contractions: the reference of the climb."""
    rng = np.random.default_rng(order)
    basis, strengths = np.linalg.qr(rng.standard_normal((6, 6)))[0][:4], np.array([4.0, 3.0, 2.0, 1.0])
    tensor = sum(s * naive.outer_product([v] * order) for s, v in zip(strengths, basis, strict=True))
    found = tools.search(lambda us: np.array([contracted(tensor, u) for u in us]), 6, 4, order, rng)
    np.testing.assert_allclose(np.sort(np.abs(found @ basis.T).ravel()), [0.0] * 12 + [1.0] * 4, atol=1e-5)


def test_leading_directions_are_those_of_the_matrix_and_adjusted_p_values_those_of_holm():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    matrix = basis @ np.diag(np.r_[9.0, 7.0, 5.0, np.full(57, 0.5)]) @ basis.T
    (vectors,) = leading_directions(lambda b: b @ matrix, (1, 5, 60))
    np.testing.assert_allclose(np.abs(np.sum(vectors[:3] * basis[:, :3].T, axis=1)), 1, atol=1e-5)
    p = np.random.default_rng(0).random(7) ** 3
    np.testing.assert_allclose(tools.holm(p), multipletests(p, method="holm")[1])


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("n", [30, 60, 200])
def test_gaussian_scores_have_p_values_that_are_no_smaller_than_chance(order, n):
    """Of 8000 scores, either sign asked for, at the levels of one, two and three components; the false alarm of each
    count is 1e-6 at the stated level, and rates were 0.35 to 0.99 of it (10^5 draws, 20 to 200 rows)."""
    rng, each = np.random.default_rng([order, n]), []
    for _ in range(20):
        each.append(tools.moment_p_values(rng.standard_normal((400, n)), order, rng.choice([-1.0, 1.0], 400)))
    for level in (0.05, 0.05 / 2, 0.05 / 3):
        assert np.sum(np.concatenate(each) < level) <= stats.binom.isf(1e-6, 8000, level)


def unmixed(z, balance):
    """Vectors that all components of order 4 reach together from the truth on; by size, as the polar factor."""
    u = np.eye(z.shape[1])
    for _ in range(12):
        g, (own,) = contrasts_of(z, u, tools.FUNCTION_OF[4], (tools.FUNCTION_OF[4],))
        signs = np.sign(np.sum(u * g, axis=1))[:, None]
        u = tools.balanced(g, u, own).vectors if balance else tools.orthonormal(signs * g)
    return u


def test_sources_balanced_against_each_other_are_more_accurate_than_by_size():
    """A source of two values, whose fourth moment has no error, beside one of heavy tails, whose has a large one.

    V is 1/4 and 25/4.  By the formulas the variance of the turn, n times, is (V₁V₂ - 1/16)/(V₁ + V₂ + 1/2) = 0.21 if
    weighted, and with weights 2/5 and 3/5, those of |κ|, 2.2.  Over 30 tables the ratio of mean squares is about F
    with 30 and 30 degrees of freedom, times 10: below 2.5 with a chance of 1e-4.
    """
    squares = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        s = np.stack([rng.choice([-1.0, 1.0], 1000), rng.laplace(size=1000) / np.sqrt(2)], axis=1)
        z = white(s)
        squares.append([unmixed(z, balance)[0, 1] ** 2 for balance in (False, True)])
    by_size, weighted = np.mean(squares, axis=0)
    assert weighted < by_size / 2.5


def white(sources):
    values, basis = np.linalg.eigh(np.cov(sources.T, ddof=0))
    return (sources - sources.mean(axis=0)) @ (basis / np.sqrt(values)) @ basis.T


@given(SEEDS)
def test_gradients_by_several_functions_at_once_are_those_of_each(seed):
    """Of whitened rows."""
    rng = np.random.default_rng(seed)
    rows = white(rng.exponential(size=(50, 3)))
    vectors = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    found, _ = contrasts_of(rows, vectors, tools.CONTRASTS, tools.CONTRASTS)
    np.testing.assert_allclose(found[0], contracted(cumulant(rows, 4), vectors[0]), atol=1e-9)
    for u, own, steep in zip(vectors[1:], found[1:], (1, 2), strict=True):
        g = np.tanh(steep * rows @ u)
        np.testing.assert_allclose(own, g @ rows / 50 - steep * np.mean(1 - g**2) * u, atol=1e-9)


@pytest.mark.parametrize(("law", "function"), [("uniform", 0), ("laplace", 2), ("t", 1)])
def test_every_source_takes_the_function_that_tells_it_best(law, function):
    """V of its law, by 10^6 draws: 0.68, 0.94, 1.4; 6.3, 2.2, 1.8; 15, 4.2, 4.5, known here to some hundredths."""
    rng, n = np.random.default_rng(0), 200_000
    y = {"uniform": rng.uniform(-1, 1, n), "laplace": rng.laplace(size=n), "t": rng.standard_t(5, n)}[law]
    rows = ((y - y.mean()) / y.std())[:, None]
    _, own = contrasts_of(rows, np.eye(1), 1, tools.CONTRASTS)
    assert np.argmin(own, axis=0) == [function]


def test_v_is_the_variance_of_a_turn():
    """⟨c₁, u₂⟩/κ₁ of two Laplace sources in their true places, n = 1000, whitened symmetrically, 400 tables.

    The variance of 400 normal numbers is known to a factor 1 ± sqrt(2/400): 5 of those, 0.35.
    """
    turns, expected = [], []
    for seed in range(400):
        rows = white(np.random.default_rng(seed).laplace(size=(1000, 2)))
        c, own = contrasts_of(rows, np.eye(2), 2, (2,))
        turns.append(c[0, 1] / c[0, 0])
        expected.append(own[0, 0])
    assert 1000 * np.var(turns) == pytest.approx(np.mean(expected), rel=0.35)


BAD = [
    ({"order": 5}, SolverError, "order must be 3 or 4, got 5"),
    ({"order": True}, SolverError, "order must be 3 or 4"),
    ({"n_components": 6}, SolverError, "n_components must be at most the 5 columns of the rows, got 6"),
    ({"whiten_rank": 6}, SolverError, "whiten_rank must be at most the 5 columns"),
    ({"whiten_rank": 2, "n_components": 3}, SolverError, "n_components must be at most whiten_rank=2, got 3"),
    ({"shrinkage": 1.0}, SolverError, "shrinkage must be at least 0 and less than 1"),
    ({"validation_fraction": -1}, SolverError, "validation_fraction must be at least 0"),
    ({"memory_limit": 100}, MemoryBudgetError, "memory_limit is 0.0001 MB; raise it"),
]


@pytest.mark.parametrize(("options", "error", "words"), BAD)
def test_bad_options_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        fit(np.random.default_rng(0).standard_normal((100, 5)), **options)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (np.s_[:, 2], 7, "column 2 is constant"),
        (np.s_[:, 1], np.random.default_rng(0).standard_normal((100, 5))[:, 0], ".* rows cannot tell 5 columns apart"),
        (np.s_[5:], None, ". rows cannot tell 5 columns apart"),
    ],
    ids=["constant", "twice", "few"],
)
def test_bad_rows_are_refused_and_shrinkage_takes_them(place, value, words):
    rows = np.random.default_rng(0).standard_normal((100, 5))
    if value is None:
        rows = np.delete(rows, place, axis=0)
    else:
        rows[place] = value
    with pytest.raises(SampleError, match=f"the table cannot be whitened: {words}"):
        fit(rows)
    assert np.isfinite(fit(rows, shrinkage=0.2).components).all()
    assert np.isfinite(fit(rows, whiten_rank=1).components).all()


def test_independent_columns_are_their_own_sources():
    """Counts: the three most skewed columns."""
    rng = np.random.default_rng(508)
    rows = np.floor(rng.exponential(size=(1500, 5)) * (rng.random((1500, 5)) < 0.4) * 4)
    found, skewness = fit(rows, n_components=3), stats.skew(rows)
    order = np.argsort(-skewness)[:3]
    np.testing.assert_array_equal(np.argmax(np.abs(found.components * rows.std(axis=0)), axis=1), order)
    # Turned by some hundredths towards each other, which leaves strengths next to the skewness of the columns.
    np.testing.assert_allclose(found.strengths, skewness[order], rtol=0.03)
