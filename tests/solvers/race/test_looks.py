"""Who looks after every batch: the race may be looked at as often as one likes, the mean test says that it was."""

import numpy as np

from amounts import few_or_many
from tpca import TensorPCA


@few_or_many(4, 60)
def test_the_race_claims_nothing_in_noise_however_often_one_looks(runs):
    """20 looks each.  If 5 % of the runs ever claimed: P(X >= 12 of 60) = 4e-5, P(X >= 4 of 4) = 6e-6."""
    claims = 0
    for seed in range(runs):
        noise = np.random.default_rng(seed).standard_normal((400, 5, 4, 3))
        pca, found = TensorPCA(solver="race", random_state=seed), False
        for batch in np.array_split(noise, 20):
            found |= pca.partial_fit(batch).found_
        claims += found
        assert "Tested" not in str(pca.summary())
    assert claims < {60: 12, 4: 4}[runs]


def test_the_mean_test_says_how_often_it_was_looked_at():
    noise = np.random.default_rng(0).standard_normal((120, 5, 4, 3))
    pca = TensorPCA(solver="least_squares", random_state=0)
    for looks, batch in enumerate(np.array_split(noise, 3), start=1):
        pca.partial_fit(batch)
        assert (f"Tested {looks} times" in str(pca.summary())) == (looks > 1)
        assert pca.p_values_[0] <= 1  # more of the same look
    once = TensorPCA(solver="least_squares", random_state=0)
    for batch in np.array_split(noise, 3):
        once.partial_fit(batch)
    assert once.p_values_[0] == pca.p_values_[0]
    assert "Tested" not in str(once.summary())
