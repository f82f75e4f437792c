"""What a solver returns: components, or a guess, and how they are put together."""

import dataclasses

import numpy as np

from tpca.solvers.estimate import Component, Evidence, Recovery, StopReason, Verdict

VECTORS = (np.array([1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
RUN = {"solver": "race", "n_samples": 50, "state_bytes": 1000}


def one(reason, **known):
    return Recovery.of_one(vectors=VECTORS, stop_reason=reason, **RUN, **{"strength": 2.0, **known})


def test_one_component_is_proven_not_proven_or_not_tested():
    found = one(StopReason.STREAM_ENDED, p_value=0.01, evidence=Evidence("log evidence", 5.0, 3.0))
    assert (found.found, len(found.components), found.first.significant) == (True, 1, True)
    assert found.first is found.components[0]
    assert (found.vectors, found.strength, found.p_value, found.evidence.needed) == (VECTORS, 2.0, 0.01, 3.0)
    nothing = one(StopReason.NO_SIGNAL, strength=0.0, strength_interval=(0.0, 1.5))
    assert (nothing.verdict, len(nothing.components), nothing.first.significant) == (Verdict.NO_SIGNAL, 1, False)
    assert (nothing.vectors, nothing.strength_interval) == (VECTORS, (0.0, 1.5))
    untested = one(StopReason.ITERATED)
    assert (untested.verdict, untested.found, len(untested.components)) == (Verdict.NOT_TESTED, False, 1)
    assert (untested.standard_errors, untested.strength_interval) == (None, None)


def test_components_of_several_runs_come_together():
    first, second = one(StopReason.STREAM_ENDED), one(StopReason.NOT_ACCURATE, strength=1.0)
    second = dataclasses.replace(second, n_samples=70, n_passes=2)
    both = first.with_others([second], history=[{"component": 0}])
    assert [c.strength for c in both.components] == [2.0, 1.0]
    assert all(isinstance(c, Component) for c in both.components)
    assert (both.n_samples, both.n_passes, both.stop_reason) == (70, 2, StopReason.STREAM_ENDED)
    assert both.history == [{"component": 0}]
    assert len(first.components) == 1  # nothing of it is changed
