"""Errors of several components: singular vectors turn into each other; components that are nearly alike are unsure."""

import numpy as np
import pytest

import tpca
from tpca.inference.scatter import Tangents, slopes


def signed(u, like):
    return u * np.sign(np.sum(u * like))


def test_singular_vectors_change_as_a_small_step_changes_them(rng):
    q = [np.linalg.qr(rng.standard_normal((d, 2)))[0].T for d in (5, 4)]
    strengths = np.array([3.0, 2.2])
    vectors = [[q[0][c], q[1][c]] for c in range(2)]
    D = sum(s * np.outer(*v) for s, v in zip(strengths, vectors, strict=True))
    E, step = rng.standard_normal((5, 4)), 1e-6
    u, s, vt = np.linalg.svd(D + step * E)
    found = Tangents(vectors, strengths).changes([slopes(E[None], v) for v in vectors])[0]
    for c in range(2):
        left, right = signed(u[:, c], vectors[c][0]), signed(vt[c], vectors[c][1])
        wanted = np.concatenate(
            [
                [(s[c] - strengths[c]) / step],
                strengths[c] * (left - vectors[c][0]) / step,
                strengths[c] * (right - vectors[c][1]) / step,
            ]
        )
        np.testing.assert_allclose(found[c, : len(wanted)], wanted, atol=1e-4)


def test_components_that_share_a_mode_are_unsure_but_not_nothing(rng):
    """Nearly the same vector in one mode: how the two divide the rest is unknown, that they are there is not."""
    a, b = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    c, d = np.linalg.qr(rng.standard_normal((40, 2)))[0].T
    e = np.array([1.0, 0.0])
    f = np.array([np.cos(0.01), np.sin(0.01)])
    pattern = 4 * np.einsum("i,j,k->ijk", a, c, e) + 2 * np.einsum("i,j,k->ijk", b, d, f)
    X = pattern + rng.standard_normal((200, 2, 40, 2))
    pca = tpca.TensorPCA(n_components=2, n_resamples=19, random_state=0).fit(X)
    assert pca.strengths_ == pytest.approx([4.0, 2.0], rel=0.25)
    assert (pca.strength_intervals_[:, 1] >= pca.strengths_).all()
    assert pca.strength_intervals_[0, 1] > 4.0
    assert any("nearly alike" in note for note in pca.result_.advice)
