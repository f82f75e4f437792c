"""Products in the form that BLAS is quickest at are the plain ones."""

import numpy as np
import pytest

from tpca.tensors.products import FEW, gram_of


@pytest.mark.parametrize("shape", [(1, 9), (7, 50), (5, 8, 64), (2, 3, 11, 40), (120, 200)])
def test_gram_matrices_are_products_of_rows_with_themselves(shape):
    rows = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_allclose(gram_of(rows), rows @ np.swapaxes(rows, -1, -2), atol=1e-10)


def test_both_ways_are_tested():
    assert 60 * 120 * 200 > FEW > 6 * 11 * 40
