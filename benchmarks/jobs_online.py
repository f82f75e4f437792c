"""One sample at a time: ``partial_fit`` of single samples, against a matrix-vector product with each of them."""

from collections.abc import Iterator

import numpy as np
from suite import Row, compare

from tpca import TensorPCA

DIMS, COUNT, TARGET = (16,) * 4, 2000, 5.0


def rows() -> Iterator[Row]:
    for dtype in (np.float32, np.float64):
        samples = np.random.default_rng(0).standard_normal((COUNT, *DIMS), dtype=dtype)
        vector = np.ones(DIMS[0] * DIMS[1], dtype)

        def products(samples=samples, vector=vector):
            for sample in samples:
                sample.reshape(len(vector), -1) @ vector

        for solver in ("race", "mean"):

            def online(samples=samples, solver=solver):
                model = TensorPCA(solver=solver, random_state=0)
                for i in range(len(samples)):
                    model.partial_fit(samples[i : i + 1])

            took = compare(online, products, repeats=5)
            what = f"partial_fit of one sample, order 4, d = 16, {dtype.__name__}, solver={solver!r}"
            note = f"{COUNT} samples, {1e6 * took.seconds / COUNT:.0f} µs each"
            yield took.row(what, "a numpy GEMV (256 x 256) per sample", TARGET, note)
