"""What is measured of every set: the answer, its distance from plain NumPy, orders, halves, claims without a signal.

Everything goes through the public face.  Runs are deterministic, from the name of the set.
"""

from __future__ import annotations

import math
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tpca
from research.noise.tables import LEVEL
from research.real import plain
from research.real.sets import DataSet, Samples

Row = dict[str, Any]
Rng = np.random.Generator
TARGETS = {"mean": "mean", "labels": "effect", "dose": "effect", "variation": "variance"}
ORDERS, HALVES, NULLS = 10, 10, 100
NULL_RESAMPLES = 199


def generator(name: str, purpose: str) -> Rng:
    """Random numbers of one purpose for one set."""
    return np.random.default_rng([zlib.crc32(name.encode()), zlib.crc32(purpose.encode())])


def fitted(one: DataSet, data: Samples, **options: Any) -> Any:
    """The estimator with its defaults, but for what the data need and what a measure asks for."""
    options = {"random_state": 0, **one.options, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorCCA warns where nothing is proven
        if one.question == "views":
            return tpca.TensorCCA(**options).fit(data.X)
        return tpca.TensorPCA(target=TARGETS[one.question], **options).fit(data.X, data.y)


def vectors(fit: Any) -> list[Any]:
    """The first component: one vector per axis, or per view the correlations of its columns with its score."""
    each = fit.loadings_ if hasattr(fit, "loadings_") else fit.components_
    return [rows[0] / max(float(np.linalg.norm(rows[0])), 1e-300) for rows in each]


def taken(data: Samples, places: Any) -> Samples:
    """Some samples, in this order."""
    X = [view[places] for view in data.X] if isinstance(data.X, list) else data.X[places]
    return replace(data, X=X, y=None if data.y is None else data.y[places])


def answer(one: DataSet, data: Samples) -> Row:
    """What a fit with defaults says, what it takes, and what it says if the order of samples means nothing."""
    fitted(one, data)  # what is imported at the first fit of its kind
    began = time.process_time()
    fit = fitted(one, data)
    seconds = time.process_time() - began
    free = fitted(one, data, dependence=None)
    shared = {
        "verdict": str(fit.verdict_),
        "p": float(fit.p_values_[0]),
        "p_any_order": float(free.p_values_[0]),
        "verdict_any_order": str(free.verdict_),
        "signal_p": float(fit.result_.p_value),
        "signal_p_any_order": float(free.result_.p_value),
        "seconds": seconds,
        "notes": fit.result_.advice,
    }
    if one.question == "views":
        count = min(3, *(view.shape[1] for view in data.X))
        each = fitted(one, data, dependence=None, n_components=count).correlations_
        return {**shared, "n": len(data.X[0]), "dims": [view.shape[1] for view in data.X],
                "strength": float(fit.correlations_[0]), "correlations": [float(r) for r in each]}  # fmt: skip
    found, both = fit.result_, zip(vectors(fit), data.ticks, strict=True)
    row = {**shared, "n": len(data.X), "dims": list(fit.shape_in_), "strength": float(fit.strengths_[0]),
           "interval": [float(end) for end in fit.strength_intervals_[0]], "length": found.components[0].length,
           "entries": _claimed(fit), "units": found.n_units,
           "flips": found.n_resamples, "inflation": found.inflation, "rank_one_share": fit.rank_one_share_,
           "top": [str(list(ticks)[int(np.argmax(np.abs(v)))]) for v, ticks in both]}  # fmt: skip
    if one.question == "variation":
        three = fitted(one, data, n_components=3, n_resamples=19)
        row["shares"] = [float(share) for share in three.explained_variance_ratio_]
    return row


def _claimed(fit: Any) -> int:
    """Entries with a family-wise p of at most 5 %."""
    return -1 if fit.entry_p_values_ is None else int(np.sum(fit.entry_p_values_ <= LEVEL))


def distance(one: DataSet, data: Samples, fit: Any) -> Row:
    """1 − cosine and the relative difference of lengths from the plain answer."""
    D = plain.estimate(data, one.question)
    length, fitted_vectors = plain.rank_one(D)
    own = fitted_vectors[len(fitted_vectors) - len(fit.shape_in_) :]  # without labels or samples in front
    if one.question == "variation":
        length /= math.sqrt(len(D))  # strengths and lengths are of n samples; explained_variance_ is over n - 1
    ours = fit.result_.components[0].length
    return {"cosine_gap": 1 - plain.cosine(own, vectors(fit)), "length_gap": abs(ours / length - 1)}


def orders(one: DataSet, data: Samples) -> Row:
    """The largest change over ten orders of the samples, of each way to treat their dependence; p over ten seeds."""
    rng = generator(one.name, "orders")
    seeds = [float(fitted(one, data, dependence=None, random_state=seed).p_values_[0]) for seed in range(1, ORDERS + 1)]
    found: Row = {"seeds": [min(seeds), max(seeds)]}
    places = [rng.permutation(len(data.X[0]) if one.question == "views" else len(data.X)) for _ in range(ORDERS)]
    for name, dependence in (("any_order", None), ("auto", "auto")):
        fits = [fitted(one, taken(data, order), dependence=dependence) for order in places]
        first = fitted(one, data, dependence=dependence)
        p = [float(fit.p_values_[0]) for fit in fits]
        known = [value for value in p if not math.isnan(value)]
        row = {"cosine_gap": max(1 - plain.cosine(vectors(first), vectors(fit)) for fit in fits),
               "p": [min(known), max(known)] if known else None,
               "signals": sum(bool(fit.found_) for fit in fits), "not_tested": ORDERS - len(known)}  # fmt: skip
        if one.question != "views":
            size = first.result_.components[0].length
            row["length_gap"] = max(abs(fit.result_.components[0].length / size - 1) for fit in fits)
            strengths = np.array([[fit.strengths_[0], *fit.strength_intervals_[0]] for fit in (first, *fits)])
            if not np.isfinite(strengths).all():
                strengths = strengths[:, :1]
            same = strengths if dependence is None else strengths[1:]
            row["strength_gap"] = float(np.max(np.ptp(same, axis=0)) / size)
        found[name] = row
    return found


def halves(one: DataSet, data: Samples) -> Row:
    """Cosine between the patterns of random halves, and how many of the pairs are both claimed."""
    rng = generator(one.name, "halves")
    count = len(data.X[0]) if one.question == "views" else len(data.X)
    if one.question == "views" and count < 40:  # of fewer than 20 rows nothing is fitted
        return {"median": None, "least": None, "both_claimed": None}
    cosines, both = [], 0
    for _ in range(HALVES):
        order = rng.permutation(count)
        if one.question == "labels":  # as many of every label in both
            order = order[np.argsort(data.y[order], kind="stable")]
        pair = [fitted(one, taken(data, rng.permutation(order[half::2])), n_resamples=NULL_RESAMPLES, dependence=None)
                for half in (0, 1)]  # fmt: skip
        cosines.append(plain.cosine(*(vectors(fit) for fit in pair)))
        both += all(bool(fit.found_) for fit in pair)
    return {"median": float(np.median(cosines)), "least": min(cosines), "both_claimed": both}


def null(one: DataSet, data: Samples, rng: Rng) -> Samples:
    """The same data without the signal.

    Random signs of samples (mean), labels or doses in random order, every entry in an order of its own over the samples
    (variation), rows of every view but the first in random order.
    """
    if one.question == "mean":
        signs = rng.choice([-1.0, 1.0], len(data.X))
        return replace(data, X=data.X * signs.reshape(-1, *[1] * (data.X.ndim - 1)))
    if one.question == "variation":
        return replace(data, X=rng.permuted(data.X, axis=0))
    if one.question == "views":
        return replace(data, X=[data.X[0], *(view[rng.permutation(len(view))] for view in data.X[1:])])
    return replace(data, y=rng.permutation(data.y))


def claims(one: DataSet, data: Samples, others: dict[str, Callable[[Samples], float]]) -> Row:
    """Claims at 5 % over many versions without a signal: ours, and those of ``others`` on the same versions."""
    rng = generator(one.name, "nulls")
    counts: dict[str, Any] = {"runs": NULLS, "claims": 0, "entries": 0, "not_tested": 0, "others": {}}
    resamples = {} if one.question == "variation" else {"n_resamples": NULL_RESAMPLES}
    for _ in range(NULLS):
        version = null(one, data, rng)
        fit = fitted(one, version, **resamples)
        counts["claims"] += int(bool(fit.found_))
        counts["not_tested"] += int(str(fit.verdict_) == "not tested")
        if one.question in ("mean", "labels", "dose"):
            counts["entries"] += int(_claimed(fit) > 0)
        for name, test in others.items():
            counts["others"][name] = counts["others"].get(name, 0) + int(test(version) <= LEVEL)
    return counts
