"""Our solvers on the same samples as mean + pyttb ``cp_als(init="nvecs")`` and mean + TensorLy ``parafac(init="svd")``.

Peers get the fastest mean there is (``ones @ X``) in the type that suits them best (float64), and stop by their own
rules.  Memory is the peak of what is allocated besides the samples, one sample's worth taken off.
"""

import os
import statistics
import tracemalloc
import warnings
from collections.abc import Iterator

import numpy as np
from suite import Measured, Row, compare, interleave, on_cores, seconds_of
from threadpoolctl import threadpool_limits

from tpca import RaceSolver, SpikedTensor, TensorPCA
from tpca.solvers import LeastSquares

DIMS, STRENGTH, SAMPLES, BATCH = (32,) * 4, 2.0, 500, 50
FASTER, LESS_MEMORY = 0.6, 0.1
ALONE, ALONE_MEMORY = 0.9, 0.7  # of TensorPCA() against pyttb, and against the smaller peer
SAME = 1e-3  # overlaps closer than this are equal
REPEATS = 3


def samples(truth: SpikedTensor) -> np.ndarray:
    """Two gigabytes in memory."""
    array = np.empty((SAMPLES, *DIMS), np.float32)
    stream = iter(truth.stream(random_state=2, batch_size=BATCH, dtype=np.float32))
    for first in range(0, SAMPLES, BATCH):
        array[first : first + BATCH] = next(stream)
    return array


def mean(array):
    total = np.ones(len(array), array.dtype) @ array.reshape(len(array), -1)
    return total.reshape(array.shape[1:]).astype(np.float64) / len(array)


def pyttb_fit(array):
    import pyttb

    found, _, _ = pyttb.cp_als(pyttb.tensor(mean(array)), 1, init="nvecs", printitn=0)
    return [factor[:, 0] for factor in found.factor_matrices]


def tensorly_fit(array):
    from tensorly.decomposition import parafac

    return [factor[:, 0] for factor in parafac(mean(array), 1, init="svd").factors]


def unit(vectors):
    return [np.asarray(v, np.float64) / np.linalg.norm(v) for v in vectors]


def memory_beyond_a_sample(fit, array) -> int:
    """Peak bytes allocated during a fit, one sample's worth taken off."""
    tracemalloc.start()
    try:
        fit(array)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return max(0, peak - array[0].nbytes)


OURS = {
    "LeastSquares": lambda array: LeastSquares(random_state=1).run(array).vectors,
    "RaceSolver (1MB)": lambda array: RaceSolver(random_state=1, memory_limit="1MB").run(array).vectors,
}
DEFAULT = "TensorPCA()"
PYTTB = "mean + pyttb cp_als(nvecs)"
PEERS = {PYTTB: pyttb_fit, "mean + TensorLy parafac(svd)": tensorly_fit}


def default_fit(array):
    return [v[0] for v in TensorPCA(random_state=1).fit(array).components_]


def with_cores(array, count: int) -> Measured:
    """TensorPCA().fit against pyttb, both with so many cores and as many threads of BLAS."""
    some = set(sorted(os.sched_getaffinity(0))[:count])
    with on_cores(some), threadpool_limits(count, user_api="blas"):
        return compare(lambda: default_fit(array), lambda: pyttb_fit(array))


def default_rows(array, overlaps: dict[str, float], peaks: dict[str, int]) -> Iterator[Row]:
    """The fit that a user gets without any option: time with one core and with all, memory."""
    what = f"{DEFAULT}.fit, order 4, d = 32, {SAMPLES} samples in memory"
    note = f"overlap {overlaps[DEFAULT]:.4f}, {PYTTB} {overlaps[PYTTB]:.4f}"
    equal = overlaps[DEFAULT] >= overlaps[PYTTB] - SAME
    for count in sorted({1, len(os.sched_getaffinity(0))}):
        threads = f"{count} thread" + ("s" if count != 1 else "")
        yield with_cores(array, count).row(f"{what}, {threads}", f"{PYTTB}, {threads}", ALONE, note, equal)
    least = min(PEERS, key=peaks.__getitem__)
    sizes = f"{peaks[DEFAULT] / 1e6:.1f} MB; {', '.join(f'{peer} {peaks[peer] / 1e6:.1f} MB' for peer in PEERS)}"
    ratio = peaks[DEFAULT] / peaks[least]
    yield Row(f"{what}: peak memory beyond a sample", f"{least}, the smaller of two", ratio, ALONE_MEMORY, note=sizes)


def rows() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # theirs
    truth = SpikedTensor.random(DIMS, STRENGTH, random_state=1)
    array = samples(truth)
    every = {**PEERS, **OURS, DEFAULT: default_fit}
    overlaps = {name: float(np.mean(truth.overlaps(unit(fit(array))))) for name, fit in every.items()}
    peaks = {name: memory_beyond_a_sample(fit, array) for name, fit in every.items()}
    times = {
        name: statistics.median(seconds_of(lambda fit=fit: fit(array)) for _ in range(3)) for name, fit in PEERS.items()
    }
    faster = min(PEERS, key=times.__getitem__)
    jobs = {name: (lambda fit=fit: seconds_of(lambda: fit(array))) for name, fit in OURS.items()}
    took = interleave(jobs, lambda: seconds_of(lambda: PEERS[faster](array)), REPEATS, warm=False)
    best = max(overlaps[name] for name in PEERS)
    for name in OURS:
        what = f"{name}, order 4, d = 32, {SAMPLES} samples in memory"
        note = f"overlap {overlaps[name]:.4f}; {', '.join(f'{peer} {overlaps[peer]:.4f}' for peer in PEERS)}"
        equal = overlaps[name] >= best - SAME
        yield took[name].row(f"{what}: time", f"{faster}, the faster of two", FASTER, note, equal)
        least = min(PEERS, key=peaks.__getitem__)
        sizes = f"{peaks[name] / 1e6:.1f} MB; {', '.join(f'{peer} {peaks[peer] / 1e6:.1f} MB' for peer in PEERS)}"
        ratio = peaks[name] / peaks[least]
        yield Row(
            f"{what}: peak memory beyond a sample", f"{least}, the smaller of two", ratio, LESS_MEMORY, note=sizes
        )
    yield from default_rows(array, overlaps, peaks)
