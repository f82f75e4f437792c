"""TensorCCA on real data: one answer, whatever the seed and the order of the rows, and no worse than a built tensor."""

import functools
import itertools
import string

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from amounts import few_or_many
from tpca import TensorCCA

SHRINKAGE = 0.3


def scaled(view):
    """Centred, of mean variance 1, so that shrinking towards the identity means the same to everybody."""
    view = view[:, view.std(axis=0) > 1e-8]
    view = view - view.mean(axis=0)
    return view / np.sqrt(np.mean(view**2))


@functools.cache
def cancer():
    """569 tumours, three views of 10 columns: means, errors and worst values of the same measurements."""
    data = load_breast_cancer().data
    return [scaled(view) for view in np.split((data - data.mean(axis=0)) / data.std(axis=0), 3, axis=1)]


@functools.cache
def quadrants():
    """1797 images of digits, a view of 16 pixels for every quarter."""
    images = load_digits().images / 16
    images = images[np.random.default_rng(1).permutation(len(images))]
    corners = itertools.product((0, 4), (0, 4))
    return [scaled(images[:, i : i + 4, j : j + 4].reshape(len(images), 16)) for i, j in corners]


def cosines(one, other):
    """|cos| of all weight vectors of two fits with the same number of components."""
    assert one.significant_.tolist() == other.significant_.tolist()
    pairs = itertools.chain.from_iterable(
        zip(a, b, strict=True) for a, b in zip(one.weights_, other.weights_, strict=True)
    )
    return [abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]


@few_or_many(2, 20)
@pytest.mark.parametrize("data", [pytest.param(quadrants, marks=pytest.mark.slow), cancer])
def test_the_same_components_whatever_the_seed(data, runs):
    rows = [view[:1500] for view in data()]
    fits = [TensorCCA(2, SHRINKAGE, random_state=seed).fit(rows) for seed in range(runs)]
    for one, other in itertools.combinations(fits, 2):
        assert min(cosines(one, other)) > 0.999
        np.testing.assert_array_equal(one.correlations_, other.correlations_)  # what is judged knows no seed
        np.testing.assert_array_equal(one.p_values_, other.p_values_)
        np.testing.assert_allclose(one.moments_, other.moments_, rtol=1e-6)
    assert fits[0].significant_.all()


@pytest.mark.parametrize("data", [quadrants, cancer])
def test_the_order_of_the_rows_does_not_matter(data):
    rows = [view[:1500] for view in data()]
    first = TensorCCA(shrinkage=SHRINKAGE, dependence=None, random_state=0).fit(rows)
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(rows[0]))
        other = TensorCCA(shrinkage=SHRINKAGE, dependence=None, random_state=seed)
        other.fit([view[order] for view in rows])
        assert min(cosines(first, other)) > 0.999
        assert other.p_values_ == pytest.approx(first.p_values_)
        assert other.correlations_ == pytest.approx(first.correlations_, rel=1e-3)


def dense(rows, starts=64, sweeps=200):
    """Weights of the best rank-one part of the built, whitened moment tensor, by power iteration from many starts."""
    covariances = [
        (1 - SHRINKAGE) * np.cov(v.T) + SHRINKAGE * np.mean(v.var(axis=0)) * np.eye(v.shape[1]) for v in rows
    ]
    roots = [np.linalg.inv(np.linalg.cholesky(c)).T for c in covariances]
    white = [(v - v.mean(axis=0)) @ root for v, root in zip(rows, roots, strict=True)]
    letters, rng = string.ascii_lowercase[: len(rows)], np.random.default_rng(0)
    tensor = np.einsum(",".join("z" + x for x in letters) + "->" + letters, *white, optimize=True) / len(rows[0])
    vectors = [rng.standard_normal((starts, d)) for d in tensor.shape]
    for _, mode in itertools.product(range(sweeps), range(tensor.ndim)):
        others = [i for i in range(tensor.ndim) if i != mode]
        terms = ",".join("z" + letters[i] for i in others)
        spelled = f"{letters},{terms}->z{letters[mode]}"
        gradient = np.einsum(spelled, tensor, *[vectors[i] for i in others], optimize=True)
        moments = np.linalg.norm(gradient, axis=1)
        vectors[mode] = gradient / moments[:, None]
    best = int(np.argmax(moments))
    return [root @ v[best] for root, v in zip(roots, vectors, strict=True)]


def held_out(views, weights):
    """Mean product of the standardised scores, with the sign that makes it positive."""
    scores = [view @ w for view, w in zip(views, weights, strict=True)]
    return abs(float(np.mean(np.prod([(s - s.mean()) / s.std() for s in scores], axis=0))))


def of_cca_zoo(rows):
    linear = pytest.importorskip("cca_zoo.linear")
    return [w[:, 0] for w in linear.TCCA(shrinkage=SHRINKAGE).fit(rows).weights_]


@pytest.mark.parametrize("built", [dense, pytest.param(of_cca_zoo, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("data", "rows"), [(quadrants, 1500), (cancer, 400)])
def test_held_out_rows_are_as_related_as_with_a_built_tensor(data, rows, built):
    train, test = [view[:rows] for view in data()], [view[rows:] for view in data()]
    cca = TensorCCA(shrinkage=SHRINKAGE, random_state=0).fit(train)
    # Both climb to the same top, the one to 1e-6, the other by 200 sweeps.
    assert held_out(test, [w[0] for w in cca.weights_]) > (1 - 1e-2) * held_out(test, built(train))
