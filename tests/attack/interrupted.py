"""Batches that are handed in and interrupted, and commands whose streams, names and data are not as they should be."""

import contextlib
import copy
import hashlib
import os
import signal
import sys
import uuid

import numpy as np

from attack.cases import Part, emptied
from attack.forks import Fork, command
from tpca import SpikedTensor, TensorPCA
from tpca.errors import BatchError

# Batches -------------------------------------------------------------------------------------------------------------

N_BATCHES, BATCH = 40, 400  # samples of a batch
FEWER = {"variance": 25}  # whose answer takes longer
OPTIONS = {
    "least squares": {"solver": "least_squares", "n_resamples": 99},
    "race": {"solver": "race"},
    "effect": {"target": "effect", "n_resamples": 99},
    "variance": {"target": "variance", "n_resamples": 19},
}
TAKEN = 0.05  # seconds that a fork takes for some batches
MOST = 4  # interrupts of one trial
# Ctrl-C from outside, two of them at once, and an alarm whose handler raises, as timeouts do.
KINDS = ("ctrl-c", "twice", "alarm")


class Interrupted(Part):
    """A trial is one fit of batches that are handed in, with an exception at random moments.

    After each the fork counts the samples that are in, which must be whole batches, and goes on behind them; the end is
    the answer of a fit that nobody interrupted, or one sentence that refuses half a batch.
    """

    def __init__(self, undisturbed):
        super().__init__(undisturbed)
        truth = SpikedTensor.random((8, 7, 6), 1.5, random_state=1)
        self._data = next(iter(truth.stream(random_state=2, batch_size=BATCH * N_BATCHES)))
        self._y = np.random.default_rng(3).standard_normal(len(self._data))
        self._answers = {}

    def trial(self, number, rng):
        case = list(OPTIONS)[number % len(OPTIONS)]
        kind = KINDS[number // len(OPTIONS) % len(KINDS)]
        if case not in self._answers:
            undisturbed = Fork(lambda: self._fed(case, 0.0)).end()
            assert undisturbed.outcome == "done", undisturbed
            self._answers[case] = undisturbed.output
        delay = rng.uniform(0.2, 4) * TAKEN
        fork = Fork(lambda: self._fed(case, delay if kind == "alarm" else 0.0))
        for _ in range(0 if kind == "alarm" else int(rng.integers(1, MOST + 1))):
            fork.wait(delay)
            if not fork.ended:
                fork.send(signal.SIGINT)
            if kind == "twice" and not fork.ended:
                fork.send(signal.SIGINT)
        ended = fork.end()
        outcome = ended.outcome
        if outcome == "done":
            outcome = "right" if ended.output == self._answers[case] else "wrong"
        return f"{case}, {kind}", [(outcome, ended.output)], {"interrupts": 1}

    def _fed(self, case, delay):
        """What a fork does: all batches, whatever comes; its answer, or a refusal."""
        pca = TensorPCA(**OPTIONS[case], random_state=0)
        if delay:
            signal.signal(signal.SIGALRM, _raise_timeout)
            signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            while True:
                with contextlib.suppress(KeyboardInterrupt, TimeoutError):
                    self._feed(pca, case)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    sys.stdout.write(_digest(pca))
                    return 0
        except BatchError as error:
            sys.stdout.write(f"tpca: {error}\n")
            return 2

    def _feed(self, pca, case):
        """The batches that are not in yet."""
        n_seen = copy.deepcopy(pca).n_samples_seen_ if getattr(pca, "_feed", None) is not None else 0
        size = FEWER.get(case, BATCH)
        assert n_seen % size == 0, f"{n_seen} samples are no whole batches"
        for first in range(n_seen, N_BATCHES * size, size):
            some = slice(first, first + size)
            pca.partial_fit(self._data[some], self._y[some] if case == "effect" else None)


def _raise_timeout(*_):
    raise TimeoutError


def _digest(pca):
    """Of the bytes of an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arrays = [*pca.components_, pca.strengths_, pca.p_values_]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


# Commands ------------------------------------------------------------------------------------------------------------


class Odd(Part):
    """A trial is one command whose streams, names or data are odd: it works, or says in one line why not."""

    def trial(self, number, rng):
        case = list(ODD)[number % len(ODD)]
        words, surroundings = ODD[case]
        folder = self.folder / f"odd {number}"
        with emptied(folder):
            folder.mkdir()
            _write_odd(folder, rng)
            ended = Fork(_within(surroundings, command(*words)), folder).end()
            # Where nothing can be told, the exit code must still be that of a refusal.
            silent = surroundings in ("closed error", "all closed") and ended.code == 2 and not ended.output
            outcome = "error" if silent else "right" if ended.outcome == "done" else ended.outcome
        return case, [(outcome, ended.output)], {"commands": 1}


NOT_UTF8 = os.fsdecode(b"bad\xff.npy")
TABLE = ("--sample", "n", "--modes", "x,y", "--value", "v")
ODD = {f"name not UTF-8: {name}": (words, "") for name, words in {
    "data": ("fit", NOT_UTF8, "--out", "r"),
    "y": ("fit", "d.npy", "--y", NOT_UTF8, "--out", "r"),
    "out": ("fit", "d.npy", "--out", os.fsdecode(b"r\xff"), "--report", os.fsdecode(b"r\xff.html")),
    "info": ("info", NOT_UTF8),
}.items()}  # fmt: skip
ODD |= {
    f"{surroundings}: {words[0]}": (words, surroundings)
    for surroundings in ("ascii", "cp1252", "closed output", "closed error", "all closed")
    for words in (("fit", "d.npy", "--out", "r"), ("info", "d.npy"), ("plan", "--order", "3", "--dim", "9"))
}
ODD |= {
    "closed error: refused": (("info", "none.npy"), "closed error"),
    "backend": (("fit", "d.npy", "--report", "r.html"), "backend"),
}
ODD |= {
    f"table of {kind}": (("fit", f"{kind}.parquet", *TABLE), "") for kind in ("uuid", "json", "struct", "map", "list")
}


def _write_odd(folder, rng):
    """Samples, under a name that is no text, too, and tables with columns of odd types."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    data = rng.standard_normal((30, 4, 3))
    np.save(folder / "d.npy", data)
    np.save(folder / NOT_UTF8, data)
    columns = dict(zip("nxy", np.indices(data.shape).reshape(3, -1), strict=True))
    numbers = columns["x"].tolist()
    ids = arrow.array([uuid.UUID(int=i).bytes for i in numbers], arrow.binary(16))
    kinds = {
        "uuid": arrow.ExtensionArray.from_storage(arrow.uuid(), ids),
        "json": arrow.ExtensionArray.from_storage(arrow.json_(), arrow.array([str(i) for i in numbers])),
        "struct": arrow.array([{"a": i} for i in numbers]),
        "map": arrow.array([[("a", i)] for i in numbers], arrow.map_(arrow.string(), arrow.int64())),
        "list": arrow.array([[i] for i in numbers]),
    }
    for kind, column in kinds.items():
        parquet.write_table(arrow.table(columns | {"x": column, "v": data.ravel()}), folder / f"{kind}.parquet")


def _within(surroundings, work):
    """Work in a process with other streams, or with another environment."""

    def surrounded():
        if surroundings in ("ascii", "cp1252"):
            sys.stdout = open(os.dup(1), "w", encoding=surroundings)  # noqa: SIM115 (open until the fork ends)
        if surroundings in ("closed output", "all closed"):
            os.close(1)
            sys.stdout = None
        if surroundings in ("closed error", "all closed"):
            os.close(2)
            sys.stderr = None
        if surroundings == "backend":
            os.environ["MPLBACKEND"] = "nonsense"
            for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
                del sys.modules[name]
        return work()

    return surrounded
