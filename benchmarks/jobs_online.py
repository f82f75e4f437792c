"""One sample at a time: ``partial_fit`` of single samples, against a matrix-vector product with each of them."""

import itertools
from collections.abc import Iterator

import numpy as np
from suite import Row, compare

from tpca import TensorPCA

DIMS, COUNT, TARGET, FROM_FIRST = (16,) * 4, 2000, 5.0, 10.0
BEFORE = 20_000  # samples that the race has seen: its rounds are then long, as they are in any long stream


def push(model: TensorPCA, samples: np.ndarray) -> None:
    for i in range(len(samples)):
        model.partial_fit(samples[i : i + 1])


def _race() -> TensorPCA:
    return TensorPCA(solver="race", random_state=0)


def racing(samples: np.ndarray):
    """A race in full swing, given the next samples: noise and its negative in turns, so that nothing is found."""
    model = _race()
    turns = itertools.cycle([samples, -samples])
    for _ in range(BEFORE // COUNT):
        model.partial_fit(next(turns))
    return lambda: push(model, next(turns))


def rows() -> Iterator[Row]:
    for dtype in (np.float32, np.float64):
        samples = np.random.default_rng(0).standard_normal((COUNT, *DIMS), dtype=dtype)
        vector = np.ones(DIMS[0] * DIMS[1], dtype)

        def products(samples=samples, vector=vector):
            for sample in samples:
                sample.reshape(len(vector), -1) @ vector

        jobs = {
            "": (lambda samples=samples: push(TensorPCA(random_state=0), samples), TARGET),
            f", race after {BEFORE} samples": (racing(samples), TARGET),
            ", race from the first sample on": (lambda samples=samples: push(_race(), samples), FROM_FIRST),
        }
        for name, (job, target) in jobs.items():
            took = compare(job, products, repeats=5)
            note = f"{COUNT} samples, {1e6 * took.seconds / COUNT:.0f} µs each"
            what = f"partial_fit of one sample, order 4, d = 16, {dtype.__name__}{name}"
            yield took.row(what, "a numpy GEMV (256 x 256) per sample", target, note)
