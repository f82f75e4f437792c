"""Effects by contrasts of neighbours, where the sums of least squares do not fit."""

import numpy as np
import pytest

from amounts import few_or_many
from tpca import RaceSolver, TensorPCA, open_stream
from tpca.errors import CheckpointError, MemoryBudgetError, SolverError
from tpca.inference.design import read_design
from tpca.solvers.race.contrasts import contrasts

DIMS = (7, 6, 5)


def planted(seed, n=500, strength=2.0, background=10.0, labels=False):
    """Samples of noise one on a background, y, and the vectors of the effect."""
    rng = np.random.default_rng(seed)
    vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
    y = rng.choice(["rest", "task"], n) if labels else rng.standard_normal(n)
    amounts = (y == "task").astype(float) if labels else y
    X = background * rng.standard_normal(DIMS) + rng.standard_normal((n, *DIMS))
    return X + strength * np.multiply.outer(amounts, np.einsum("i,j,k->ijk", *vectors)), y, vectors


def effect(**options):
    return TensorPCA(target="effect", solver="race", random_state=0, **options)


@pytest.mark.parametrize("background", [10.0, 1e6])
@pytest.mark.parametrize("labels", [False, True])
def test_an_effect_is_found_on_a_background_far_above_the_noise(labels, background):
    """A z-value of 2·√(0.75 · 500 · Var(y)), 19 with two labels: squared errors of vectors are 0.02 at most."""
    X, y, vectors = planted(1, background=background, labels=labels)
    pca = effect().fit(X, y)
    assert pca.found_
    assert pca.effects_ == (["task - rest"] if labels else ["y"])
    assert min(abs(c[0] @ v) for c, v in zip(pca.components_, vectors, strict=True)) > 0.95
    assert pca.strengths_[0] == pytest.approx(2.0, abs=0.5)
    assert pca.p_values_[0] == pytest.approx(1 / pca.e_value_)
    assert 0.9 * len(X) < pca.n_samples_seen_ <= len(X)
    assert pca.result_.noise_level == pytest.approx(1.0, rel=0.15)


def test_least_squares_is_taken_wherever_its_sums_fit():
    X, y, _ = planted(2)
    assert TensorPCA(target="effect", random_state=0).fit(X, y).solver_ == "least_squares"
    pca = TensorPCA(target="effect", memory_limit="20kB", random_state=0).fit(X, y)
    assert pca.solver_ == "race"
    assert pca.found_
    assert pca.result_.state_bytes <= 20_000
    assert "of the information about the effect" in str(pca.summary())


@few_or_many(8, 60)
@pytest.mark.parametrize("labels", [False, True])
def test_a_y_that_says_nothing_is_claimed_to_have_an_effect_in_at_most_five_percent_of_runs(labels, runs):
    """If the rate were 5 %: P(X >= 12 of 60) = 4e-5, P(X >= 5 of 8) = 2e-5; none of 120 was seen."""
    claims = 0
    for seed in range(runs):
        X, y, _ = planted(100 + seed, 300, 2.0, 10.0, labels)
        claims += effect().fit(X, np.random.default_rng(seed).permutation(y)).found_
    assert claims < {60: 12, 8: 5}[runs]


@pytest.mark.parametrize("size", [1, 7, 400])
def test_contrasts_are_slopes_of_blocks_however_the_batches_are_cut(size):
    X, y, _ = planted(3, 400)
    batches = open_stream(iter([X[a : a + size] for a in range(0, 400, size)]), items="batches")
    stream = contrasts(batches, read_design("effect", 400, y))
    found = np.concatenate([batch.samples for batch in stream.batches()])
    assert len(found) == stream.length
    first = 0
    for contrast, end in zip(found, stream.ends, strict=True):
        own = y[first:end] - y[first:end].mean()
        assert own @ own >= 3 * y.var()
        assert own[:-1].size < 2 or np.sum((y[first : end - 1] - y[first : end - 1].mean()) ** 2) < 3 * y.var()
        np.testing.assert_allclose(contrast, np.tensordot(own, X[first:end], 1) / (own @ own), atol=1e-9)
        first = end


def test_samples_that_are_left_out_most_samples_and_ways_to_give_them_that_are_refused():
    X, y, _ = planted(4)
    X[[5, 100]] = np.nan
    pca = effect(nan_policy="omit").fit(X, y)
    assert pca.found_
    assert pca.n_skipped_ == 2
    some = effect(nan_policy="omit", max_samples=200).fit(X, y)
    assert 150 < some.n_samples_seen_ <= 200
    X, y, _ = planted(7)
    with pytest.raises(SolverError, match="give samples in random order"):
        effect().fit(X, np.sort(y))
    with pytest.raises(SolverError, match="least squares"):
        effect().partial_fit(X, y)
    X[0, 0] = np.nan
    with pytest.raises(SolverError, match="missing entries"):
        effect(nan_policy="zero").fit(X, y)


def test_an_interrupted_fit_goes_on_with_the_same_bits(tmp_path):
    X, y, _ = planted(5)
    np.save(tmp_path / "x.npy", X)
    whole = effect().fit(str(tmp_path / "x.npy"), y)

    def stop(record):
        if record["samples"] > 40:
            raise InterruptedError

    design, solver = read_design("effect", len(X), y), {"random_state": 0, "max_passes": "auto"}
    kept = {"checkpoint": tmp_path / "kept", "checkpoint_every": 0}
    with pytest.raises(InterruptedError):
        RaceSolver(**solver, **kept, callbacks=[stop]).run(open_stream(tmp_path / "x.npy"), design)
    again = RaceSolver(**solver, **kept, resume=True).run(open_stream(tmp_path / "x.npy"), design)
    assert again.strength == whole.strengths_[0]
    other = read_design("effect", len(X), y[::-1])
    with pytest.raises(CheckpointError, match="other data"):
        RaceSolver(**solver, **kept, resume=True).run(open_stream(tmp_path / "x.npy"), other)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nuisance": np.arange(500.0)}, "a nuisance"),
        ({"sample_weight": np.ones(500)}, "sample_weight"),
        ({"groups": np.arange(500) // 10}, "groups"),
        ({"y": np.array(list("abc"))[np.arange(500) % 3]}, "3 labels"),
        ({"y": np.random.default_rng(0).standard_normal((500, 2))}, "2 columns of y"),
    ],
)
def test_what_contrasts_cannot_answer_is_refused_in_words(given, said):
    X, y, _ = planted(6)
    given = {"y": y, **given}
    with pytest.raises(SolverError, match=f"one number or two labels for every sample, not {said}"):
        effect().fit(X, **given)
    with pytest.raises(MemoryBudgetError):
        TensorPCA(target="effect", memory_limit="20kB").fit(X, **given)
