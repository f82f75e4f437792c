"""The same questions, asked with the tools that people use now; functions say what each does.

TensorLy and pyttb fit one component to the mean, the contrast, the centred samples; MNE tests means and labels,
scikit-learn predicts labels and doses; variation: scikit-learn's PCA, eofs and xeofs; views: cca-zoo.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from research.real import plain
from research.real.measures import Row
from research.real.sets import DataSet, Samples
from tpca.tensors.blocks import Array

PERMUTATIONS = 999
SCORED = 99  # permutations where each takes five fits, or a whole CCA
MODULES = ("tensorly.decomposition", "pyttb", "mne.stats", "sklearn.model_selection", "cca_zoo.linear", "eofs.standard",
           "xeofs")  # fmt: skip


def installed(name: str) -> bool:
    """Whether a package is there."""
    return importlib.util.find_spec(name) is not None


def load_all() -> None:
    """Import whoever is there, so that no peer's time is that of its import."""
    with quiet():
        for name in MODULES:
            if installed(name.partition(".")[0]):
                importlib.import_module(name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Peers warn of what is not our matter."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def timed(call: Callable[..., Row], *given: Any) -> Row:
    """What it gives, with its seconds; a peer that cannot do it says why."""
    began = time.process_time()
    try:
        with quiet():
            found = call(*given)
    except Exception as problem:  # whatever it is, it is a row of the table, and the others go on
        return {"failed": f"{type(problem).__name__}: {problem}"[:200]}
    return {**found, "seconds": time.process_time() - began}


def flat(data: Samples) -> Array:
    """Samples as rows of a table."""
    return np.asarray(data.X).reshape(len(data.X), -1)


def tensorly_rank_one(D: Array) -> tuple[float, list[Array]]:
    """Length and vectors by TensorLy."""
    from tensorly.decomposition import parafac

    weights, factors = parafac(D, rank=1, init="svd", n_iter_max=500, tol=1e-12, normalize_factors=True)
    return float(weights[0]), [np.asarray(factor)[:, 0] for factor in factors]


def pyttb_rank_one(D: Array) -> tuple[float, list[Array]]:
    """Length and vectors by pyttb."""
    pyttb: Any = importlib.import_module("pyttb")  # what it exports is not said in its types
    found, _, _ = pyttb.cp_als(
        pyttb.tensor(np.asfortranarray(D)), 1, init="nvecs", stoptol=1e-12, maxiters=500, printitn=0
    )
    return float(found.weights[0]), [factor[:, 0] for factor in found.factor_matrices]


def rank_one_row(D: Array, fit: Any, solve: Callable[[Array], tuple[float, list[Array]]]) -> Row:
    """How near the peer's fit is to ours, and its length over ours: of least squares the longer one is the better."""
    length, vectors = solve(D)
    own = [rows[0] for rows in fit.components_]
    rest = D
    for vector in reversed(own):
        rest = np.tensordot(rest, vector, axes=(-1, 0))
    cosine = plain.cosine(vectors[len(vectors) - len(own) :], own)
    return {"cosine": cosine, "length_share": length / float(np.linalg.norm(rest))}


def adjacency(data: Samples) -> Any:
    """Neighbours along the axes where neighbours mean something; MNE's lattice has them along all."""
    from scipy import sparse

    whole: Any = sparse.csr_array((1, 1))
    for d, ordered in zip(np.asarray(data.X).shape[1:], data.ordered, strict=True):
        one = sparse.diags_array([[1.0] * (d - 1)] * 2, offsets=[-1, 1]) if ordered else sparse.csr_array((d, d))
        whole = sparse.kron(whole, sparse.eye_array(d)) + sparse.kron(sparse.eye_array(whole.shape[0]), one)
    return sparse.coo_array(whole)


def mne_p(data: Samples, question: str, neighbours: Any, permutations: int) -> float:
    """Least p of any entry (``neighbours=False``) or cluster; 1 where no entry exceeds the threshold."""
    from mne.stats import permutation_cluster_1samp_test, permutation_cluster_test, permutation_t_test

    rows, common = flat(data), {"n_jobs": 1, "rng": 0, "verbose": "error"}
    clusters = {"n_permutations": permutations, "adjacency": neighbours, "out_type": "mask", **common}
    with quiet():
        if question != "mean":
            p = permutation_cluster_test([rows[data.y == label] for label in np.unique(data.y)], **clusters)[2]
        elif neighbours is False:
            p = permutation_t_test(np.nan_to_num(rows), permutations, **common)[1]
        else:
            p = permutation_cluster_1samp_test(np.nan_to_num(rows), **clusters)[2]
    return float(min(p, default=1.0))


# scikit-learn ---------------------------------------------------------------------------------------------------------


def predicted_p(data: Samples, question: str) -> Row:
    """Whether labels or doses can be predicted: score over five folds, p by permutations."""
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.model_selection import KFold, StratifiedKFold, permutation_test_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    split, ridge = (KFold, Ridge) if question == "dose" else (StratifiedKFold, RidgeClassifier)
    folds, model = split(5, shuffle=True, random_state=0), make_pipeline(StandardScaler(), ridge(1.0))
    score, _, p = permutation_test_score(model, flat(data), data.y, cv=folds, n_permutations=SCORED, random_state=0)
    return {"p": float(p), "score": float(score)}


def shares(data: Samples, tool: str) -> Row:
    """Shares of the first three components of scikit-learn's PCA, or EOFs of eofs or xeofs."""
    rows = flat(data)
    count = min(3, *rows.shape)
    if tool == "scikit-learn":
        from sklearn.decomposition import PCA

        found = PCA(count, svd_solver="full").fit(rows).explained_variance_ratio_
    elif tool == "eofs":
        from eofs.standard import Eof

        found = Eof(rows).varianceFraction(neigs=count)
    else:
        import xarray
        import xeofs

        model = xeofs.single.EOF(n_modes=count, random_state=0)
        places = {"sample": np.arange(len(rows)), "entry": np.arange(rows.shape[1])}
        model.fit(xarray.DataArray(rows, places, ("sample", "entry")), dim="sample")
        found = model.explained_variance_ratio().values
    return {"shares": [float(s) for s in found]}


def cca_row(data: Samples) -> Row:
    """cca-zoo's ridge CCA of two views, MCCA of more: correlation on held-out rows (five folds), and p."""
    from cca_zoo.linear import MCCA, RidgeCCA
    from cca_zoo.model_selection import permutation_test_significance
    from sklearn.model_selection import KFold

    views = [(view - view.mean(axis=0)) / view.std(axis=0) for view in data.X]
    wide = max(view.shape[1] for view in views) > len(views[0]) / 4
    model: Any = RidgeCCA(shrinkage=0.5 if wide else 0.01) if len(views) == 2 else MCCA(shrinkage=0.01)
    scores: list[Any] = []
    for fit, held in KFold(5, shuffle=True, random_state=0).split(views[0]):
        own = model.fit([view[fit] for view in views])
        scores.append([score[:, 0] for score in own.transform([view[held] for view in views])])
    each = [np.concatenate(parts) for parts in zip(*scores, strict=True)]
    pairs = [np.corrcoef(a, b)[0, 1] for i, a in enumerate(each) for b in each[:i]]
    tested = permutation_test_significance(model, views, n_permutations=SCORED, random_state=0)
    return {"correlation": float(np.mean(pairs)), "model": type(model).__name__, "p": float(tested.p_values[0])}


def compared(one: DataSet, data: Samples, fit: Any) -> dict[str, Row]:
    """Every peer that answers the question."""
    if one.question == "views":
        return {"cca-zoo": timed(cca_row, data)}
    found: dict[str, Row] = {}
    D = plain.estimate(data, one.question)
    if D.ndim > 1:
        found["TensorLy"] = timed(rank_one_row, D, fit, tensorly_rank_one)
        found["pyttb"] = timed(rank_one_row, D, fit, pyttb_rank_one)
    for name, test in mne_tests(one, data, PERMUTATIONS).items():
        found[name] = timed(lambda test=test: {"p": test(data)})
    if one.question in ("labels", "dose"):
        found["scikit-learn"] = timed(predicted_p, data, one.question)
    if one.question == "variation":
        for name in ("scikit-learn", *filter(installed, ("eofs", "xeofs"))):
            found[name] = timed(shares, data, name)
    return found


def mne_tests(one: DataSet, data: Samples, permutations: int) -> dict[str, Callable[[Samples], float]]:
    """MNE's tests: of the data as they are, and of every version without a signal."""
    if one.question not in ("mean", "labels"):
        return {}

    def test(near: Any) -> Callable[[Samples], float]:
        return lambda version: mne_p(version, one.question, near, permutations)

    return {"MNE max": test(False), "MNE clusters": test(adjacency(data))}
