"""How a row of the net is fitted: the only file that knows the names of parameters and attributes.

Rows use words of their own: ``method`` ("race", "paper", "mean", "effect", "variation", "views"), and
``options`` by the names that users know.  Where a name of the public face changes, this file changes, and no row does.
"""

import contextlib
import warnings

import numpy as np

import tpca
from tpca.engines import DaskEngine
from tpca.solvers.least_squares.solver import LeastSquares
from tpca.solvers.paper.schedule import Leg, Schedule
from tpca.solvers.variation import Variation

TARGETS = {"race": "mean", "mean": "mean", "effect": "effect", "variation": "variance"}
SOLVERS = {"race": tpca.RaceSolver, "mean": LeastSquares, "effect": LeastSquares, "variation": Variation}
NAMES = {"race": "race", "mean": "least_squares", "effect": "least_squares", "variation": "auto"}
REFUSED = tpca.TpcaError
OF_SOLVERS_ALONE = ("partition", "tol", "max_passes")  # which TensorPCA has no word for
OF_DATA = ("nan_policy", "target")


def estimator_of(method, options, truth=None, checkpoint=None, on_round=None):
    """An estimator that was not fitted yet; with a checkpoint it goes on from what is there.

    ``on_round`` is called after every round with the samples used so far.
    """
    keeping = {} if checkpoint is None else {"checkpoint": checkpoint, "checkpoint_every": 0.0, "resume": True}
    if on_round is not None:
        keeping["callbacks"] = [lambda record: on_round(int(record["samples"]))]
    if method == "views":
        return tpca.TensorCCA(random_state=0, **options)
    if method == "paper":
        schedule = options.get("schedule")
        if schedule == "theorem":
            options = {**options, "truth": tpca.SpikedTensor(tuple(truth[0]), truth[1])}
        if isinstance(schedule, dict):
            options = {**options, "schedule": _schedule(**schedule)}
        return tpca.TensorPCA(solver=tpca.PaperSolver(random_state=0, **options, **keeping))
    if keeping or any(name in options for name in OF_SOLVERS_ALONE):
        own = {name: value for name, value in options.items() if name not in OF_DATA}
        solver = SOLVERS[method](random_state=0, **own, **keeping)
        rest = {name: value for name, value in options.items() if name in OF_DATA}
        return tpca.TensorPCA(solver=solver, target=TARGETS[method], **rest)
    return tpca.TensorPCA(solver=NAMES[method], target=TARGETS[method], random_state=0, **options)


def _schedule(stages, ascent, selection, estimation):
    """A schedule of one's own, from pairs of a step size and a number of steps for every block."""

    def legs(pairs):
        return tuple(Leg(*pair) for pair in pairs)

    return Schedule("own", tuple(legs(stage) for stage in stages), legs(ascent), selection, legs(estimation))


def opened(source, opening):
    """Samples that need a word on how to read them."""
    return tpca.open_stream(source, **opening) if opening else source


def on_cluster(client, source):
    """Stored samples, or paths of views, read by the workers of a Dask client."""
    return DaskEngine(client, tpca.open_views(source) if isinstance(source, list) else source)


@contextlib.contextmanager
def nothing_said():
    """Warnings are of no interest here: that nothing was proven, or that y follows the order of the samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit(estimator, X, told):
    """The fit of all samples at once."""
    with nothing_said():
        return estimator.fit(X, **told)


def fit_in_parts(estimator, parts):
    """The fit of samples that are handed in, batch by batch, each with what is told of it."""
    parts = list(parts)
    y = [told["y"] for _, told in parts if told.get("y") is not None]
    labels = {"classes": np.unique(np.concatenate(y))} if y and np.asarray(y[0]).dtype.kind in "US" else {}
    with nothing_said():
        for X, told in parts:
            estimator.partial_fit(X, **told, **labels)
    return estimator


def answer_of(method, estimator):
    """What a fit says, as plain numbers.

    ``found``, ``n_samples``, ``strengths`` and ``vectors`` (by component, then by mode) are what a row asserts;
    ``noted`` is the rest, which a row only records.
    """
    with nothing_said():
        if method == "views":
            vectors, strengths = _by_component(estimator.weights_), estimator.moments_
            noted = {"correlations": estimator.correlations_, "p_values": estimator.p_values_}
        else:
            vectors, strengths = _by_component(estimator.components_), estimator.strengths_
            noted = {
                "p_values": estimator.p_values_,
                "intervals": estimator.strength_intervals_,
                "errors": _by_component(estimator.standard_errors_),
            }
        return {
            "found": bool(estimator.found_),
            "n_samples": int(estimator.n_samples_seen_),
            "strengths": _plain(strengths),
            "vectors": _plain(vectors),
            "noted": {name: _plain(value) for name, value in noted.items()},
        }


def _by_component(modes):
    return [[rows[c] for rows in modes] for c in range(len(modes[0]))]


def _plain(value):
    """Numbers, arrays and sequences of these as nested lists of floats."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    array = np.asarray(value, dtype=float)
    return array.tolist()
