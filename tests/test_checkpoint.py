import dataclasses
import enum
import errno
import hashlib
import inspect
import io
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

import killed_fit
import tpca.checkpoint
from kills import kills
from noises import serial
from research.law import LawEngine
from stream_suite import take
from tpca import PaperSolver, RaceSolver, SpikedTensor, open_stream
from tpca.checkpoint import Checkpoints, CheckpointWarning
from tpca.engines import open_engine
from tpca.errors import CheckpointError, RunInterrupted, SolverError
from tpca.files import alone_in
from tpca.solvers.estimate import StopReason
from tpca.solvers.race.run import RaceRun
from tpca.solvers.run import Keeper

MINUTE = 60.0


# -- A comparison of everything: types, bits, and what is shared with what.


def same(a, b, place="it", known=None):
    """Assert that two trees of objects are the same: types, bits, layouts, and what is shared with what."""
    known = {} if known is None else known
    assert type(a) is type(b), place
    if a is None or isinstance(a, bool | int | str | enum.Enum):
        assert a == b, place
    elif isinstance(a, float | np.generic):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() or (a != a and b != b), place
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for i, pair in enumerate(zip(a, b, strict=True)):
            same(*pair, f"{place}[{i}]", known)
    elif isinstance(a, dict):
        assert list(a) == list(b), place
        for key in a:
            same(a[key], b[key], f"{place}[{key!r}]", known)
    elif id(a) in known or id(b) in known:
        assert known.get(id(a), (None, None))[1] is b, f"{place} is shared with something else"
        assert known.get(id(b), (None, None))[1] is a, f"{place} is shared with something else"
    else:
        known[id(a)], known[id(b)] = (a, b), (b, a)  # both are held, so that their ids stay theirs
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), place
            assert a.flags.c_contiguous == b.flags.c_contiguous, place
        elif isinstance(a, np.random.Generator):
            assert a.bit_generator.state == b.bit_generator.state, place
        else:
            fields = [f.name for f in dataclasses.fields(a)] if dataclasses.is_dataclass(a) else sorted(vars(a))
            assert dataclasses.is_dataclass(a) or fields == sorted(vars(b)), place
            for name in fields:
                same(getattr(a, name), getattr(b, name, None), f"{place}.{name}", known)


def test_the_comparison_sees_every_difference():
    array = np.arange(3.0)
    pairs = [(1, 1.0), ([1], (1,)), (0.0, -0.0), (1.0, np.float64(1.0)), (array, array.astype(np.float32))]
    pairs += [([array, array], [array.copy(), array.copy()]), ([array, array.copy()], [array, array])]
    pairs += [(RaceSolver(random_state=1), RaceSolver(random_state=2))]
    for a, b in [*pairs, (np.random.default_rng(0), np.random.default_rng(1))]:
        same(a, a)
        with pytest.raises(AssertionError):
            same(a, b)


# -- The codec.


@dataclasses.dataclass(frozen=True)
class KeptFrozen:
    array: np.ndarray
    other: object


class KeptPlain:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class KeptColour(enum.Enum):
    RED = "a sentence"
    BLUE = "another"


@pytest.fixture(autouse=True)
def own_kept_classes(monkeypatch):
    for cls in (KeptFrozen, KeptPlain, KeptColour):
        monkeypatch.setitem(tpca.checkpoint._KEPT, cls.__name__, cls)


def round_trip(value, folder):
    Checkpoints(folder).save({"value": value})
    return Checkpoints(folder).load()["value"]


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
dtypes = st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "u8", "?", "c16", "M8[s]"])
arrays = hypothesis_numpy.arrays(dtypes, st.lists(st.integers(0, 3), max_size=3).map(tuple))
scalars = arrays.filter(lambda a: a.size).map(lambda a: a.reshape(-1)[0])
leaves = numbers | arrays | scalars | st.sampled_from(KeptColour) | st.integers(0, 9).map(np.random.default_rng)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(numbers.filter(lambda key: key == key) | st.tuples(st.integers(), st.text()), inner)
        | st.builds(KeptFrozen, arrays, inner)
        | st.builds(KeptPlain, a=inner, b=inner)
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values)
def test_every_kind_of_value_comes_back(tmp_path, value):
    same(value, round_trip(value, tmp_path))


def test_what_is_shared_stays_shared(tmp_path):
    array, rng = np.arange(4.0), np.random.default_rng(0)
    inner = KeptPlain(array=array, rng=rng)
    inner.me = inner  # also in a circle
    value = round_trip({"first": inner, "second": KeptFrozen(array, [inner, rng]), "third": (array, rng)}, tmp_path)
    assert value["first"].me is value["first"] is value["second"].other[0]
    assert value["first"].array is value["second"].array is value["third"][0]
    assert value["first"].rng is value["second"].other[1] is value["third"][1]
    value["first"].array[0] = 9.0  # and can be written to, as before
    assert value["third"][0][0] == 9.0


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Path("not kept"), "class PosixPath cannot be part"),
        (type("Candidate", (), {})(), "class Candidate cannot be part"),  # the name of a marked class is not enough
        (b"bytes", "class bytes cannot be part"),
        ({1, 2}, "class set cannot be part"),
        (np.arange(6.0)[::2], "C-contiguous"),
        (np.zeros((2, 3)).T, "C-contiguous"),
        (np.array([None, 1]), "C-contiguous numbers"),
        (np.random.Generator(np.random.Philox(0)), "not JSON serializable"),
    ],
)
def test_other_values_are_refused_and_leave_nothing_behind(value, says, tmp_path):
    keeper = Checkpoints(tmp_path / "run")
    keeper.save({"value": 1})
    with pytest.raises(TypeError, match=says):
        keeper.save({"value": [value]})
    assert os.listdir(tmp_path / "run") == ["00000001"]
    assert keeper.load() == {"value": 1}


# -- Nothing is pickled.


def newest(folder):
    return max(path for path in Path(folder).iterdir() if path.name.isdigit())


def forge(checkpoint, change_body=None, arrays=None):
    """Change a checkpoint and make its checksums right again."""
    head, body, _ = (checkpoint / "tpca-state.json").read_text().split("\n")
    head = json.loads(head)
    if change_body is not None:
        body = change_body(body)
    if arrays is not None:
        (checkpoint / "tpca-arrays.npz").write_bytes(arrays)
    head["body"] = hashlib.sha256(body.encode()).hexdigest()
    head["arrays"] = hashlib.sha256((checkpoint / "tpca-arrays.npz").read_bytes()).hexdigest()
    (checkpoint / "tpca-state.json").write_text(f"{json.dumps(head)}\n{body}\n")


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("bomb-went-off"),))


def test_a_forged_pickle_among_the_arrays_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Checkpoints("run").save({"value": np.arange(3.0)})
    packed = io.BytesIO()
    np.savez(packed, a0=np.array([Bomb()], dtype=object))
    forge(newest("run"), arrays=packed.getvalue())
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoints("run").load()
    assert not Path("bomb-went-off").exists()


FORGED = '{"array":7} {"array":-1.5} {"same":7} {"scalar":"0"} {"enum":"KeptPlain","name":"RED"} {} {"dict":[[1]]} '
FORGED += '{"enum":"KeptColour","name":"GREEN"} {"object":"KeptPlain"} {"object":"os.system","fields":{"a":"id"}} '
FORGED += '{"rng":{}} {"rng":{"bit_generator":"Philox"}}'


@pytest.mark.parametrize("forged", [*FORGED.split(), pytest.param("[" * 10**5 + "]" * 10**5, id="a very deep one")])
def test_a_forged_leaf_and_a_tree_that_is_no_state_are_refused(forged, tmp_path):
    Checkpoints(tmp_path).save({"value": np.arange(3.0)})
    forge(newest(tmp_path), lambda body: body.replace('{"array":0}', forged))
    with pytest.raises(CheckpointError, match=r"checkpoint 1 in .* is damaged"):
        Checkpoints(tmp_path).load()
    forge(newest(tmp_path), lambda _: forged)
    with pytest.raises(CheckpointError, match=r"checkpoint 1 in .* is damaged"):
        Checkpoints(tmp_path).load()


# -- A checkpoint appears whole or not at all.


def test_a_kill_at_any_step_of_writing_or_clearing_leaves_good_checkpoints_or_none(tmp_path, monkeypatch):
    """Half a checkpoint would be damage to whoever goes on there."""
    clearing = [(shutil, "rmtree"), (os, "replace"), (os, "unlink"), (os, "rmdir")]
    writing = [*clearing, (os, "fsync"), (os, "open"), (np, "savez"), (Path, "write_text"), (Path, "mkdir")]

    def save(folder, *numbers):
        for number in numbers:
            Checkpoints(folder).save({"number": number, "array": np.full(5, number)})

    for folder in kills(monkeypatch, tmp_path / "w", lambda f: save(f, 1, 2), lambda f: save(f, 3), writing, 6):
        loaded = Checkpoints(folder).load()  # a warning would be an error here
        assert loaded["number"] in (2, 3)
        np.testing.assert_array_equal(loaded["array"], np.full(5, loaded["number"]))
        save(folder, 4)
        assert Checkpoints(folder).load()["number"] == 4
        assert not list(folder.glob(".writing-*"))
        assert len(list(folder.iterdir())) == 2
    clear = kills(monkeypatch, tmp_path / "c", lambda f: save(f, 1, 2), lambda f: Checkpoints(f).clear(), clearing, 6)
    for folder in clear:
        loaded = Checkpoints(folder).load()
        assert loaded is None or loaded["number"] == 2
        Checkpoints(folder).clear()
        assert not folder.exists()


def test_two_checkpoints_are_kept_and_other_files_are_left_alone(tmp_path):
    (tmp_path / "results").mkdir()
    keeper = Checkpoints(tmp_path)
    for number in range(5):
        keeper.save({"number": number})
    assert sorted(os.listdir(tmp_path)) == ["00000004", "00000005", "results"]
    keeper.clear()
    assert os.listdir(tmp_path) == ["results"]
    assert keeper.load() is None


def test_checkpoints_are_as_far_apart_as_asked(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    keeper = Checkpoints(tmp_path, every=60.0)
    for later, due in ((0.0, False), (59.0, False), (1.0, True)):
        now += later
        assert keeper.due() == due
    keeper.save({})
    assert not keeper.due()
    assert Checkpoints(tmp_path, every=0).due()
    for bad in (-1.0, math.nan):
        with pytest.raises(CheckpointError, match="checkpoint_every must be a number of seconds, 0 or more"):
            Checkpoints(tmp_path, every=bad)


# -- Stopped and resumed: the same bits.  One case for every strategy and every phase.


@dataclasses.dataclass(frozen=True)
class Case:
    """A race that is short but goes through much; ``strategies`` and ``phases`` say what, and are checked."""

    dims: tuple
    strategies: list
    phases: set
    n: int = 80  # 13 rounds: beside what a signal of strength 3 needs until it is found, several more to refine it
    truth: dict = dataclasses.field(default_factory=lambda: STRONG)
    solver: dict = dataclasses.field(default_factory=dict)
    components: int = 1
    later: bool = False  # found, but not in the first pass
    noise: Callable | None = None

    def samples(self):
        truth = SpikedTensor.random(self.dims, random_state=0, **self.truth)
        if self.noise is not None:
            return self.noise(self.n, self.dims, np.random.default_rng(1)) + truth.signal()
        samples = take(truth, self.n)
        for number in range(1, self.components):
            samples += SpikedTensor.random(self.dims, strength=3.0 + 2.0 * number, random_state=number).signal()
        return samples


WEAK, STRONG = {"strength": 0.5}, {"strength": 3.0}
ONE_PASS = {"scale", "search", "refinement", "done"}
PASSES = {"scale", "search", "again", "trial", "done"}
NOTHING = {"scale", "search", "done"}
SAME_VECTORS = {"strength": 2.0, "correlation": 1.0, "symmetric": True}
SOME_PASSES = {"n_components": 2, "memory_limit": 9_000, "max_passes": 3}
WHOLE = ["whole", "symmetric"]


def dependent_noise(n, dims, rng):
    return serial(n, dims, rng, 0.7)


CASES = {
    "whole": Case((6,) * 3, WHOLE, ONE_PASS, 70),
    "flow": Case((7,) * 4, ["flow"], ONE_PASS, solver={"memory_limit": 11_000}),
    "flow, several passes": Case((7,) * 4, ["flow"], PASSES, 60, WEAK, {"memory_limit": 11_000, "max_passes": 3}),
    "found in a later pass": Case(
        (10,) * 4, ["flow"], PASSES, 300, {"strength": 0.8}, {"memory_limit": 9_920, "max_passes": 16}, later=True
    ),
    "found in the first pass, better in a later one": Case(
        (7,) * 4, ["flow"], PASSES, 60, {"strength": 1.8}, {"memory_limit": 11_000, "max_passes": 4}, later=True
    ),
    "singles": Case((5,) * 5, ["singles"], ONE_PASS, 150, solver={"memory_limit": 13_000}),
    "symmetric and symmetric pairs beside a flow": Case(
        (5,) * 6, ["flow", "symmetric", "symmetric pairs"], ONE_PASS, 80, SAME_VECTORS, {"memory_limit": 100_000}
    ),
    "neighbours that are alike": Case((6,) * 3, WHOLE, NOTHING, 80, {"strength": 2.0}, noise=dependent_noise),
    "three components": Case((6,) * 3, WHOLE, ONE_PASS, 130, solver={"n_components": 3}, components=3),
    "components and passes": Case((6,) * 4, ["flow"], PASSES | {"refinement"}, 90, WEAK, SOME_PASSES, components=2),
}


class StoppedError(Exception):
    """A run that was stopped after a round; it holds what was in memory then."""


@pytest.fixture
def stopping(monkeypatch):
    """``stopping(k)`` makes every run stop after its k-th round, and returns the list of runs that did."""
    after_round = Keeper.after_round

    def stop_after(k):
        stopped, rounds = [], itertools.count(1)

        def stop(keeper, run, engine):
            after_round(keeper, run, engine)
            if next(rounds) % k == 0:
                stopped.append(run)
                raise StoppedError

        monkeypatch.setattr(Keeper, "after_round", stop)
        return stopped

    return stop_after


def in_pieces(solver, options, folder, make_source, look=lambda: None):
    """A run that is resumed in new objects until it is finished."""
    for _ in range(1000):
        try:
            return solver(**options, checkpoint=folder, checkpoint_every=0, resume=True).run(make_source())
        except StoppedError:
            look()
    raise AssertionError("no progress")


# Three components are stopped by a callback below; of the others, each part is in a case that is not long.
LONG = {"three components", "components and passes"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CASES]
)
def test_a_run_stopped_after_every_round_ends_with_the_same_bits(name, tmp_path, stopping):
    case = CASES[name]
    samples, options = case.samples(), {"random_state": 3} | case.solver
    first = RaceRun(RaceSolver(**options), open_engine(samples)).races[0]
    assert [candidate.strategy.name for candidate in first.candidates] == case.strategies
    whole = RaceSolver(**options).run(samples)
    stopped, phases = stopping(1), {"done"}

    def look():
        phases.update(race.phase for race in stopped[-1].races)

    same(whole, in_pieces(RaceSolver, options, tmp_path, lambda: samples, look))
    assert phases == case.phases
    assert case.truth is not STRONG or len(whole.components) == case.components
    assert not case.later or (whole.found and whole.n_passes > 1)
    assert len(stopped) >= len(whole.history)  # as many stops as rounds


def test_a_callback_that_raises_stops_a_run_that_can_be_resumed(tmp_path):
    samples, seen, stops = CASES["three components"].samples(), itertools.count(1), []
    options = {"random_state": 3, "n_components": 3}

    def fail(record):
        if next(seen) % 11 == 0:
            raise StoppedError

    found = in_pieces(RaceSolver, options | {"callbacks": [fail]}, tmp_path, lambda: samples, lambda: stops.append(1))
    same(RaceSolver(**options).run(samples), found)
    assert len(stops) > 2


@pytest.mark.parametrize("kind", ["law", "law that ends", "synthetic stream", "iterable"])
def test_data_that_are_drawn_are_drawn_again(kind, tmp_path, stopping):
    truth = SpikedTensor.random((5, 6, 7), 1.5, random_state=0)
    samples = take(truth, 120)
    sources = {
        "law": lambda: LawEngine(truth, random_state=1),
        "law that ends": lambda: LawEngine(truth, random_state=1, max_samples=90),
        "synthetic stream": lambda: truth.stream(random_state=1, batch_size=4),
        "iterable": lambda: open_stream((samples[i : i + 7] for i in range(0, 120, 7)), items="batches"),
    }
    options = {"random_state": 2, "tol": 0.25}
    whole = RaceSolver(**options).run(sources[kind]())
    stopped = stopping(2)
    same(whole, in_pieces(RaceSolver, options, tmp_path, sources[kind]))
    assert len(stopped) > 3


@pytest.mark.parametrize("n", [2000, 700])
@pytest.mark.parametrize(("order", "pairing"), [(4, "neighbours"), (4, "search"), (5, "neighbours")])
def test_the_papers_algorithm_is_taken_up_after_any_turn(order, pairing, n, tmp_path, stopping):
    samples = take(SpikedTensor.random((3,) * order, 8.0, random_state=0), n * (order - 3))
    options = {"random_state": 2, "strength": 8.0, "pairing": pairing}
    whole = PaperSolver(**options).run(samples)
    assert whole.stop_reason is (StopReason.SCHEDULE_DONE if n == 2000 else StopReason.STREAM_ENDED_EARLY)
    stopped = stopping(1)
    kept = {"checkpoint": tmp_path, "resume": True}
    for _ in range(2):  # the second time from its end
        same(whole, in_pieces(PaperSolver, options, tmp_path, lambda: samples))
    assert len(stopped) >= len([record for record in whole.history if record["phase"] != "search"])
    for other in (PaperSolver(**{**options, "random_state": 3}, **kept), RaceSolver(random_state=2, **kept)):
        with pytest.raises(CheckpointError, match=r"was made with (random_state|solver)="):
            other.run(samples)


def test_skipped_samples_are_counted_once_whatever_the_passes(tmp_path, monkeypatch):
    monkeypatch.setattr("tpca.data.stored.BATCH_ENTRIES", 8 * 60)
    samples = np.random.default_rng(0).standard_normal((120, 3, 4, 5))
    samples[[3, 50, 51, 119], 0, 0, 0] = np.nan
    estimate = RaceSolver(max_passes=4).run(open_stream(samples, nan_policy="omit"))
    assert estimate.n_passes > 1
    assert estimate.n_skipped == 4
    assert estimate.n_samples == 116


# -- Damaged checkpoints.


def change_version(checkpoint):
    text = (checkpoint / "tpca-state.json").read_text()
    now = f'"version": {tpca.checkpoint.VERSION}'
    assert now in text
    (checkpoint / "tpca-state.json").write_text(text.replace(now, '"version": 99', 1))


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


DAMAGES = {
    "arrays cut short": (lambda c: truncate(c / "tpca-arrays.npz"), "checksum of tpca-arrays.npz"),
    "arrays empty": (lambda c: (c / "tpca-arrays.npz").write_bytes(b""), "checksum of tpca-arrays.npz"),
    "no arrays": (lambda c: (c / "tpca-arrays.npz").unlink(), "No such file"),
    "state cut short": (lambda c: truncate(c / "tpca-state.json"), "checksum of tpca-state.json"),
    "state empty": (lambda c: (c / "tpca-state.json").write_text(""), "damaged"),
    "state not an object": (lambda c: (c / "tpca-state.json").write_text("[1]\n{}\n"), "not one of tpca's"),
    "not text": (lambda c: (c / "tpca-state.json").write_bytes(b"\xff\xfe\x00"), "damaged"),
    "another version": (change_version, "version 99, this tpca reads version"),
    "no state": (lambda c: (c / "tpca-state.json").unlink(), "No such file"),
}


def unfinished(folder, source, rounds, stopping, **options):
    stopping(rounds)
    with pytest.raises(StoppedError):
        RaceSolver(**options, checkpoint=folder, checkpoint_every=0).run(source)
    stopping(10**9)


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_the_checkpoint_before_a_damaged_one_is_used(damage, tmp_path):
    for number in (1, 2):
        Checkpoints(tmp_path).save({"number": number, "array": np.arange(900.0), "text": 900 * "x"})
    inflict, says = DAMAGES[damage]
    inflict(newest(tmp_path))
    with pytest.warns(CheckpointWarning, match=rf"checkpoint 2 in .*{says}.*going on from checkpoint 1") as caught:
        assert Checkpoints(tmp_path).load()["number"] == 1
    assert len(caught) == 1


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one_and_if_all_are_that_is_an_error(tmp_path, stopping):
    samples, folder = CASES["whole"].samples(), tmp_path / "run"
    whole = RaceSolver(random_state=3).run(samples)
    unfinished(folder, samples, 9, stopping, random_state=3)  # of 12 rounds
    shutil.copytree(folder, tmp_path / "other")
    for checkpoint, damage in zip(sorted(folder.iterdir()), ("arrays cut short", "another version"), strict=True):
        DAMAGES[damage][0](checkpoint)
    for resume in (True, False):
        with pytest.raises(CheckpointError, match=r"checkpoint 9 .*version 99.*checkpoint 8 .*checksum.*empty folder"):
            RaceSolver(random_state=3, checkpoint=folder, resume=resume).run(samples)
    truncate(newest(tmp_path / "other") / "tpca-arrays.npz")
    kept = {"random_state": 3, "checkpoint": tmp_path / "other", "resume": True}
    with pytest.warns(CheckpointWarning, match="going on from checkpoint 8"):
        same(whole, RaceSolver(**kept).run(samples))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(whole, RaceSolver(**kept).run(samples))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.booleans(), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(tmp_path, in_state, where, bit):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    states = [{"n": n, "x": [np.arange(9.0) + n, "text", 1e-3 * n, (True, None)]} for n in (1, 2)]
    for state in states:
        Checkpoints(folder).save(state)
    path = newest(folder) / ("tpca-state.json" if in_state else "tpca-arrays.npz")
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = Checkpoints(folder).load()
    harmless = not caught  # white space between the entries of the head
    assert harmless or [w.category for w in caught] == [CheckpointWarning]
    same(states[1 if harmless else 0], loaded)
    assert not harmless or in_state


# -- A disk that takes no more.


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for owner in [(np, "savez"), (Path, "write_text"), (os, "replace"), (os, "fsync"), (Path, "mkdir")]:
        keeper = Checkpoints(tmp_path / owner[1])
        keeper.save({"number": 1})
        with monkeypatch.context() as patch:
            patch.setattr(*owner, full)
            with pytest.raises(CheckpointError, match=r"cannot write a checkpoint to .*No space left.*make room"):
                keeper.save({"number": 2})
        assert os.listdir(tmp_path / owner[1]) == ["00000001"]
        assert Checkpoints(tmp_path / owner[1]).load() == {"number": 1}
        keeper.save({"number": 3})
        assert Checkpoints(tmp_path / owner[1]).load() == {"number": 3}
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
            RaceSolver(checkpoint=folder, checkpoint_every=0).run(np.random.default_rng(0).random((9, 3, 4)))
    assert (tmp_path / "file").read_text() == "in the way"


# -- The wrong checkpoint.


def test_other_settings_and_data_are_refused_and_nothing_is_overwritten(tmp_path, stopping):
    samples, folder = CASES["whole"].samples(), tmp_path / "run"
    usual = {"random_state": 3, "memory_limit": "1MB", "max_samples": 100, "confidence": 0.95, "n_components": 2}
    unfinished(folder, samples, 5, stopping, **usual)
    before = sorted(folder.rglob("*"))
    others = {"random_state": 4, "memory_limit": "2MB", "max_samples": None, "max_passes": 2, "confidence": 0.9}
    others |= {"tol": 0.1, "n_components": 1, "partition": [(0,), (1, 2)]}
    for name, value in others.items():
        with pytest.raises(CheckpointError, match=rf"was made with {name}=.*, now it is .*same settings"):
            RaceSolver(**usual | {name: value}, checkpoint=folder, resume=True).run(samples)
    given_to = set(inspect.signature(RaceSolver.__init__).parameters) - {"self"}
    apart = {"callbacks", "checkpoint", "checkpoint_every", "resume"}  # change no result
    assert set(RaceSolver().settings()) == given_to - apart | {"solver"}
    np.save(tmp_path / "data.npy", samples)
    changed = samples.copy()
    changed[0, 0, 0, 0] += 1e-9
    others = [samples[:-1], samples.astype(np.float32), changed, samples[:, :, :, :5], tmp_path / "data.npy"]
    others += [open_stream(samples, shuffle=True), open_stream(samples, nan_policy="omit")]
    for other in [*others, open_stream([samples], items="batches")]:
        with pytest.raises(CheckpointError, match="was made on other data"):
            RaceSolver(**usual, checkpoint=folder, resume=True).run(other)
    with pytest.raises(CheckpointError, match=r"unfinished run; .*resume=True"):
        RaceSolver(**usual, checkpoint=folder, checkpoint_every=0).run(samples)
    assert sorted(folder.rglob("*")) == before
    whole = RaceSolver(**usual).run(samples)
    for name in ("run", "new"):  # where there is nothing, it starts anew
        again = RaceSolver(**usual | {"memory_limit": 10**6}, checkpoint=tmp_path / name, resume=True).run(samples)
        same(whole, again)
    with pytest.raises(SolverError, match="resume=True needs checkpoint"):
        RaceSolver(resume=True)


def test_a_finished_run_is_resumed_at_once_and_may_be_overwritten(tmp_path):
    samples, seen = CASES["three components"].samples(), []
    options = {"n_components": 3, "checkpoint": tmp_path, "checkpoint_every": MINUTE}
    usual = signal.getsignal(signal.SIGINT)
    first = RaceSolver(random_state=3, **options).run(samples)
    assert signal.getsignal(signal.SIGINT) is usual
    assert len(os.listdir(tmp_path)) == 1  # no time for more than the last
    same(first, RaceSolver(random_state=3, **options, resume=True, callbacks=[seen.append]).run(samples))
    assert seen == []  # not a single round
    second = RaceSolver(random_state=4, **options).run(samples)
    same(second, RaceSolver(random_state=4, n_components=3).run(samples))
    same(second, RaceSolver(random_state=4, **options, resume=True).run(samples))


# -- Processes that are killed or interrupted.


@pytest.mark.parametrize(
    ("n", "options", "stream"),
    [
        (250, {"random_state": 1, "n_components": 3}, {}),
        (150, {"random_state": 1, "memory_limit": 10_000, "max_passes": 6}, {"nan_policy": "omit", "shuffle": True}),
    ],
    ids=["components", "passes"],
)
@pytest.mark.slow
def test_a_fit_killed_again_and_again_ends_with_the_same_bits(n, options, stream, tmp_path):
    """Kills fall at random moments, in rounds, in pauses and while checkpoints are written.

    The outcome must be the same for every choice of moments, so there is no seed.
    """
    dims, data = ((8, 8, 8) if "n_components" in options else (8,) * 4), tmp_path / "data.npy"
    samples = np.random.default_rng(0).standard_normal((n, *dims), dtype=np.float32)
    for number in range(options.get("n_components", 0)):
        samples += SpikedTensor.random(dims, 3.0 + 2.0 * number, random_state=number).signal()
    if stream:
        samples[::13, 0, 0] = np.nan
    np.save(data, samples)
    whole = RaceSolver(**options).run(open_stream(data, **stream))
    rounds, pause, hits, chain = len(whole.history), 0.005, 0, 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tpca.solvers.race.run", "tpca.data"])
    while hits < 12:
        folder, code = tmp_path / f"chain {chain}", None
        chain += 1
        assert chain < 50
        while code != 0:
            process = context.Process(target=killed_fit.fit, args=(data, folder, options, stream, pause))
            process.start()
            if hits < 12:
                process.join(random.uniform(0.0, 0.3 + rounds * pause))
                process.kill()
            process.join()
            code = process.exitcode
            assert code in (0, -signal.SIGKILL)
            hits += code != 0 and folder.exists()
        ended = RaceSolver(**options, checkpoint=folder, resume=True).run(open_stream(data, **stream))
        same(whole, ended)
        assert all(path.name.isdigit() for path in folder.iterdir())  # nothing half-written is left


@pytest.fixture
def interruptible():
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_round_and_its_checkpoint_and_a_second_does_not(asking, tmp_path):
    samples, seen = CASES["three components"].samples(), []
    options = {"random_state": 3, "n_components": 3, "checkpoint_every": 0, "resume": True}

    def ask_to_stop(record, times=1):
        seen.append(record)
        for _ in range(times if len(seen) == 5 else 0):
            os.kill(os.getpid(), asking)
            time.sleep(0.01)

    with pytest.raises(RunInterrupted, match=re.escape(f"stopped; everything so far is in {str(tmp_path / 'one')!r}.")):
        RaceSolver(**options, checkpoint=tmp_path / "one", callbacks=[ask_to_stop]).run(samples)
    assert not (tmp_path / "one" / ".lock").exists()
    stored = Checkpoints(tmp_path / "one").load()
    assert not stored["finished"]
    assert 5 <= len(seen) <= 7  # of the same round: every component speaks for itself
    assert sum(len(race.history) for race in stored["run"]["races"]) == len(seen)
    whole = RaceSolver(random_state=3, n_components=3).run(samples)
    same(whole, RaceSolver(**options, checkpoint=tmp_path / "one").run(samples))
    if asking == signal.SIGINT:
        seen.clear()
        with pytest.raises(KeyboardInterrupt) as stopped:
            RaceSolver(**options, checkpoint=tmp_path / "two", callbacks=[lambda r: ask_to_stop(r, 2)]).run(samples)
        assert stopped.type is KeyboardInterrupt  # had the first been enough, it would have been RunInterrupted
        assert len(seen) == 5
        same(whole, RaceSolver(**options, checkpoint=tmp_path / "two").run(samples))


@pytest.mark.parametrize("asking", [signal.SIGINT, signal.SIGTERM])
def test_a_round_that_may_last_for_ever_is_ended_also_where_ctrl_c_is_ignored(asking, tmp_path, monkeypatch):
    engine = open_engine(np.ones((20, 3, 3)))
    monkeypatch.setattr(engine, "stops_within", 0.2, raising=False)
    monkeypatch.setattr(engine, "reduce", lambda *_: os.kill(os.getpid(), asking) or time.sleep(MINUTE))
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do for jobs in the background
    began = time.monotonic()
    try:
        with pytest.raises(RunInterrupted, match="stopped before the round was done"):
            RaceSolver(checkpoint=tmp_path / "run").run(engine)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)
    assert time.monotonic() - began < MINUTE / 2


def test_a_folder_is_of_one_run_at_a_time_and_a_dead_one_holds_nothing(tmp_path):
    samples, words = CASES["whole"].samples(), "import sys, pathlib, tpca.files as f\n"
    words += "with f.alone_in(pathlib.Path(sys.argv[1])): print('held', flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", words, str(tmp_path / "run")], **pipes) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="is in use by another run; wait until it has ended"):
            RaceSolver(checkpoint=tmp_path / "run").run(samples)
        other.kill()
    assert (tmp_path / "run" / ".lock").exists()
    same(RaceSolver(random_state=3).run(samples), RaceSolver(random_state=3, checkpoint=tmp_path / "run").run(samples))
    assert not (tmp_path / "run" / ".lock").exists()
    with alone_in(tmp_path / "new"):  # threads do not share one either
        with pytest.raises(CheckpointError, match="is in use by another run"), alone_in(tmp_path / "new"):
            pass
        assert (tmp_path / "new" / ".lock").exists()
    assert not (tmp_path / "new").exists()
