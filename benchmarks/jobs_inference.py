"""A fit with its test: p of the component and of every entry by 999 resamples, for the effect of a label.

The same work by others: TensorLy and pyttb refitted to every flip (p of the component only), and MNE's cluster test of
as many permutations (p of clusters only).
"""

from collections.abc import Callable, Iterator

import numpy as np
from suite import Row, interleave, seconds_of

from tpca import TensorPCA

DIMS, SAMPLES, RESAMPLES, STRENGTH = (12, 10, 8), 400, 999, 1.0
REFITS, CLUSTERS = 0.1, 1.0  # targets
REPEATS = 3


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Two labels, whose means differ by a rank-one pattern, in white noise."""
    rng = np.random.default_rng(1)
    vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
    pattern = STRENGTH * np.einsum("i,j,k->ijk", *vectors)
    y = np.arange(SAMPLES) % 2
    return rng.standard_normal((SAMPLES, *DIMS)) + np.multiply.outer(y - 0.5, pattern), y


def ours(X: np.ndarray, y: np.ndarray) -> float:
    """P of the component; that of every entry, intervals and errors come with it."""
    labels = np.where(y == 1, "b", "a")
    pca = TensorPCA(target="effect", n_resamples=RESAMPLES, random_state=0).fit(X, labels)
    assert pca.entry_p_values_ is not None
    return float(pca.p_values_[0])


def refitted(X: np.ndarray, y: np.ndarray, length: Callable[[np.ndarray], float]) -> float:
    """P by random signs of what every sample adds to the difference of means, one fit for each."""
    added = (np.where(y == 1, 2.0, -2.0) / len(y))[:, None] * (X - X.mean(axis=0)).reshape(len(X), -1)
    rng = np.random.default_rng(0)
    own = length(added.sum(axis=0).reshape(DIMS))
    flips = (rng.choice([-1.0, 1.0], size=len(X)) @ added for _ in range(RESAMPLES))
    return (1 + sum(length(flip.reshape(DIMS)) >= own for flip in flips)) / (1 + RESAMPLES)


def tensorly_length(tensor: np.ndarray) -> float:
    """Of the best rank-one fit."""
    from tensorly.decomposition import parafac

    return float(np.prod([np.linalg.norm(factor) for factor in parafac(tensor, 1, init="svd").factors]))


def pyttb_length(tensor: np.ndarray) -> float:
    """Of the best rank-one fit."""
    import pyttb

    return float(pyttb.cp_als(pyttb.tensor(tensor), 1, init="nvecs", printitn=0)[0].weights[0])


def mne_clusters(X: np.ndarray, y: np.ndarray) -> float:
    """The least p of any cluster of neighbouring entries."""
    from mne.stats import permutation_cluster_test

    found = permutation_cluster_test([X[y == 1], X[y == 0]], n_permutations=RESAMPLES, rng=0, verbose="error")
    return float(min(found[2], default=1.0))


def rows() -> Iterator[Row]:
    """One row for each peer."""
    X, y = problem()
    peers = {
        "TensorLy parafac refitted to every flip": (lambda: refitted(X, y, tensorly_length), REFITS, REPEATS),
        "pyttb cp_als refitted to every flip": (lambda: refitted(X, y, pyttb_length), REFITS, REPEATS),
        "MNE permutation_cluster_test": (lambda: mne_clusters(X, y), CLUSTERS, REPEATS),
    }
    what = f"TensorPCA(target='effect').fit, {SAMPLES} × {DIMS}, two labels, {RESAMPLES} flips: fit, p, errors"
    p = ours(X, y)
    for name, (peer, target, repeats) in peers.items():
        other = peer()
        took = interleave({"ours": lambda: seconds_of(lambda: ours(X, y))}, lambda peer=peer: seconds_of(peer), repeats)
        note = f"p = {p:.3f}; theirs {other:.3f}"
        yield took["ours"].row(what, f"{name}, {RESAMPLES} resamples", target, note)
