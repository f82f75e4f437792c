import numpy as np
import pytest

from tpca import SpikedTensor
from tpca.errors import TpcaError
from tpca.randomness import generator


def test_purposes_do_not_share_numbers():
    drawn = [generator(5, purpose).standard_normal(4) for purpose in ("truth", "samples", "paper", "race", "law")]
    assert len({tuple(d) for d in drawn}) == 5
    np.testing.assert_array_equal(generator(5, "race").standard_normal(4), drawn[3])


def test_one_seed_for_truth_and_samples_leaks_nothing():
    # With a shared generator the first noise entries would be the truth's own normals, up to scale: correlation 1.
    truth = SpikedTensor.random((50, 2), 1e-9, random_state=3)
    noise = next(iter(truth.stream(random_state=3, batch_size=1)))[0].ravel()[:50]
    # |correlation| of 50 independent pairs exceeds 0.7 with probability 1e-8.
    assert abs(np.corrcoef(noise, truth.vectors[0])[0, 1]) < 0.7


def test_negative_seeds_are_refused():
    with pytest.raises(TpcaError, match="random_state must be a whole number of at least 0, got -1"):
        generator(-1, "truth")
