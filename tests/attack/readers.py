"""Results that are read while another writes there: one fit's numbers, and the vectors of the same fit."""

import io
import itertools
import signal

import numpy as np

from attack.cases import RESULT, Part, emptied
from attack.forks import Fork
from tpca import TpcaError
from tpca.files import replacing
from tpca.result import load

CASES = ("race npy", "least squares npy")  # whose results are written in turn
READS = 200  # of a trial


class Readers(Part):
    """A trial is some reads of a folder into which a fork writes one result and the other, without a pause."""

    def trial(self, number, rng):
        out = self.folder / f"read {number}"
        results = [self.undisturbed(case)[0] for case in CASES]
        with emptied(out):
            out.mkdir()
            _write(out, results[0])
            writer = Fork(lambda: [_write(out, result) for result in itertools.cycle(results)])
            outcomes = [_read(out, results) for _ in range(READS)]
            writer.send(signal.SIGKILL)
            ended = writer.end()
        assert ended.killed, ended  # it was at work to the last read
        return "a result", outcomes, {"reads": READS}


def _write(out, contents):
    """As a fit writes its result."""
    with replacing(*(out / name for name in RESULT)) as drafts:
        for draft, content in zip(drafts, contents, strict=True):
            draft.write_bytes(content)


def _read(out, results):
    """What came of one read."""
    try:
        stored = load(out)
    except TpcaError as error:
        return "error", str(error)
    except Exception as error:
        return "traceback", repr(error)
    for about, vectors in results:
        if stored.to_json().strip() == about.strip():
            with np.load(io.BytesIO(vectors)) as known:
                same = all(np.array_equal(own, known[f"mode_{i}"]) for i, own in enumerate(stored.vectors))
            return ("right", "") if same else ("wrong", "the vectors are those of another fit")
    return "wrong", "the numbers are those of no fit"
