"""What part of the mean is of rank one, against what was planted."""

import functools

import numpy as np
import pytest

from tpca import TensorPCA
from tpca.report.share import Share, explained, share_of

DIMS, N = (6, 5, 7), 400


def planted(rng, strength, rest):
    """A pattern of rank one, and something else orthogonal to it, of these lengths."""
    vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
    ray = functools.reduce(np.multiply.outer, vectors)
    other = rng.standard_normal(DIMS)
    other -= np.sum(other * ray) * ray
    return strength * ray, rest * other / np.linalg.norm(other)


def test_the_share_is_that_of_what_was_planted_within_its_error():
    """The mean of 40 shares lies within five standard errors of the truth (two-sided normal: a false alarm in 2e6).

    Coloured noise, ten times as loud along one mode, takes nothing from it: no noise is in a product of two stretches.
    """
    rng = np.random.default_rng(0)
    signal, other = planted(rng, 2.0, 1.0)
    noise = np.linspace(0.3, 3, DIMS[0])[:, None, None]
    shares = [
        explained((signal + other + noise * rng.standard_normal((8, *DIMS)) / 7).reshape(8, -1), signal.ravel())
        for _ in range(40)
    ]
    values = np.array([one.value for one in shares])
    assert abs(values.mean() - 4 / 5) < 5 * values.std(ddof=1) / np.sqrt(40)
    # Jackknife errors of 8 groups scatter by 27 % or so each, their mean of 40 by 4 %: within a half of the truth.
    assert 0.5 < np.mean([one.error for one in shares]) / values.std(ddof=1) < 2


def test_a_report_tells_the_share(tmp_path):
    rng = np.random.default_rng(1)
    signal, other = planted(rng, 3.0, 1.5)
    X = signal + other + 0.5 * rng.standard_normal((N, *DIMS))
    pca = TensorPCA(random_state=0).fit(X)
    found = share_of(pca._result(), pca._reader(X, None))
    left, whole = signal + other - pca.inverse_transform([pca.strengths_])[0], signal + other
    assert abs(found.value - (1 - np.sum(left**2) / np.sum(whole**2))) < 5 * found.error
    assert "of the squared length of the mean, noise taken out" in pca.report(tmp_path / "r.html", X).read_text()


TOLD = [(0.987, 0.01, "About 99 % (± 1 %)"), (0.5, np.nan, "do not tell"), (0.5, 0.2, "do not tell")]


@pytest.mark.parametrize(("value", "error", "told"), TOLD)
def test_a_share_is_told_only_where_it_is_known(value, error, told):
    assert told in Share(value, error).told


def test_too_few_samples_tell_nothing():
    rng = np.random.default_rng(2)
    X = planted(rng, 9.0, 0)[0] + rng.standard_normal((15, *DIMS))
    pca = TensorPCA(random_state=0).fit(X)
    assert share_of(pca._result(), pca._reader(X, None)) is None
