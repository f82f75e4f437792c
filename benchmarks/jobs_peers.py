"""The same work by others: a fit with its test and its errors; and, for orientation, their plain fits without a test.

===============  ====================================================================================================
question         who answers it, and how
===============  ====================================================================================================
effect of label  TensorLy and pyttb, refitted to every flip (p of the component); MNE's cluster test (p of clusters)
variation        xeofs' EOFs with its bootstrap (errors and p of components)
flips            TensorLy, one fit of a tensor of that shape; ours per flip and statistic of a whole test
plain fit        TensorLy and pyttb, rank one of the mean: no p, no errors
===============  ====================================================================================================
"""

import functools
import importlib.util
import tracemalloc
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from suite import Row, compare, interleave, seconds_of

from tpca import SpikedTensor, TensorPCA
from tpca.inference.flips import draw_signs, entry_p_values, resampled, rows_to_flip
from tpca.inference.whitening import learn_whitening, loud_directions
from tpca.solvers.least_squares.question import rank_one_lengths

DIMS, SAMPLES, RESAMPLES, STRENGTH = (12, 10, 8), 400, 999, 1.5
REFITS, CLUSTERS, BOOTSTRAP = 0.1, 1.0, 1.0  # targets
BOOTSTRAPS = 99
FLIPPED = (  # shape, flips, target
    ((8,) * 3, 999, 0.05),
    ((12, 10, 8), 999, 0.05),
    ((20,) * 3, 999, 0.1),
    ((64,) * 3, 199, 0.5),
    ((32,) * 4, 49, 0.5),
)
UNITS, KEPT = 32, 64  # units whose signs are flipped, samples for whitening
STATISTICS = 3
PLAIN = ((1000, (20,) * 3, 0.5), (200, (64,) * 3, 2.0))  # samples, shape, strength


def labelled() -> tuple[np.ndarray, np.ndarray]:
    """Two labels, whose means differ by a rank-one pattern, in white noise."""
    rng = np.random.default_rng(1)
    vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
    pattern = STRENGTH * np.einsum("i,j,k->ijk", *vectors)
    y = np.arange(SAMPLES) % 2
    return rng.standard_normal((SAMPLES, *DIMS)) + np.multiply.outer(y - 0.5, pattern), y


def effect(X: np.ndarray, y: np.ndarray) -> TensorPCA:
    """P of the component and of every entry, intervals and errors."""
    return TensorPCA(target="effect", n_resamples=RESAMPLES, random_state=0).fit(X, np.where(y == 1, "b", "a"))


def tensorly_length(tensor: np.ndarray) -> float:
    """Of the rank-one fit from its best start."""
    from tensorly.decomposition import parafac

    return float(np.prod([np.linalg.norm(factor) for factor in parafac(tensor, 1, init="svd").factors]))


def pyttb_length(tensor: np.ndarray) -> float:
    """Of the rank-one fit from its best start."""
    import pyttb

    return float(pyttb.cp_als(pyttb.tensor(tensor), 1, init="nvecs", printitn=0)[0].weights[0])


def refitted(X: np.ndarray, y: np.ndarray, length: Callable[[np.ndarray], float]) -> float:
    """P by random signs of what every sample adds to the difference of means, one fit for each."""
    added = (np.where(y == 1, 2.0, -2.0) / len(y))[:, None] * (X - X.mean(axis=0)).reshape(len(X), -1)
    rng = np.random.default_rng(0)
    own = length(added.sum(axis=0).reshape(DIMS))
    flips = (rng.choice([-1.0, 1.0], size=len(X)) @ added for _ in range(RESAMPLES))
    return (1 + sum(length(flip.reshape(DIMS)) >= own for flip in flips)) / (1 + RESAMPLES)


def mne_clusters(X: np.ndarray, y: np.ndarray) -> float:
    """The least p of any cluster of neighbouring entries."""
    from mne.stats import permutation_cluster_test

    found = permutation_cluster_test([X[y == 1], X[y == 0]], n_permutations=RESAMPLES, rng=0, verbose="error")
    return float(min(found[2], default=1.0))


def tested() -> Iterator[Row]:
    """The effect of a label, with p."""
    X, y = labelled()
    peers = {
        "TensorLy parafac, refitted to 999 flips": (lambda: refitted(X, y, tensorly_length), REFITS, 1),
        "pyttb cp_als, refitted to 999 flips": (lambda: refitted(X, y, pyttb_length), REFITS, 1),
        "MNE permutation_cluster_test, 999 permutations": (lambda: mne_clusters(X, y), CLUSTERS, 5),
    }
    job = f"effect of a label, {SAMPLES} × {'×'.join(map(str, DIMS))}: fit, errors, p of 999 flips"
    p = effect(X, y).p_values_[0]
    for name, (peer, target, repeats) in peers.items():
        note = f"p {p:.3f}, theirs {peer():.3f}"  # which warms up, too
        yield compare(lambda: effect(X, y), peer, repeats, warm=False).row(job, name, target, note)


def varying() -> Iterator[Row]:
    """Variation of samples, with errors and p by 99 resamples; xeofs' components need not be of rank one."""
    job = f"variation, 200 × {'×'.join(map(str, DIMS))}: three components, errors, p of {BOOTSTRAPS} flips"
    reference = f"xeofs EOF and EOFBootstrapper, {BOOTSTRAPS} bootstraps"
    if importlib.util.find_spec("xeofs") is None:
        yield Row(job, reference, target=BOOTSTRAP, note="xeofs is not installed: `make bench` installs it")
        return
    import xarray
    import xeofs

    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, *DIMS))
    for size in (3.0, 2.0, 1.5):
        vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, DIMS)]
        X += np.multiply.outer(4 * size * rng.standard_normal(200), np.einsum("i,j,k->ijk", *vectors))
    names = ("sample", "a", "b", "c")
    array = xarray.DataArray(X, {name: np.arange(d) for name, d in zip(names, X.shape, strict=True)}, names)

    def bootstrapped() -> None:
        model = xeofs.single.EOF(n_modes=3, random_state=0).fit(array, dim="sample")
        xeofs.validation.EOFBootstrapper(n_bootstraps=BOOTSTRAPS, seed=0).fit(model)

    def ours() -> None:
        TensorPCA(3, target="variance", n_resamples=BOOTSTRAPS, random_state=0).fit(X)

    yield compare(ours, bootstrapped, 3).row(job, reference, BOOTSTRAP)


def test_by_flips(rows: np.ndarray, samples: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """P of every entry; p of contributions as they are, whitened, and with loud directions taken down."""
    scale = np.ones(len(signs))
    entry_p_values(rows, signs, scale)

    def versions() -> Iterator[np.ndarray]:
        yield rows
        white = samples.copy()
        whitening = learn_whitening(white)
        loud = loud_directions(white)
        del white
        whitened = whitening(rows_to_flip(rows)[0])
        yield whitened
        loud.take_down(whitened)
        yield whitened

    return resampled(versions(), rank_one_lengths, signs, scale)[1]


def flipping() -> Iterator[Row]:
    """A whole test by flips, over a refit by others: its time by the number of flips and statistics."""
    for dims, flips, target in FLIPPED:
        rng = np.random.default_rng(3)
        vectors = [v / np.linalg.norm(v) for v in map(rng.standard_normal, dims)]
        size = 3 * np.sqrt(sum(dims) / UNITS)
        pattern = size * functools.reduce(np.multiply.outer, vectors)
        rows = rng.standard_normal((UNITS, *dims)) + pattern
        samples = rng.standard_normal((KEPT, *dims), dtype=np.float32) / np.float32(np.sqrt(pattern.size))
        signs = draw_signs(UNITS, flips, rng)
        tensor = rows.sum(axis=0)

        def each(rows: np.ndarray = rows, samples: np.ndarray = samples, signs: np.ndarray = signs) -> float:
            return seconds_of(lambda: test_by_flips(rows, samples, signs)) / (STATISTICS * len(signs))

        def refit(tensor: np.ndarray = tensor) -> float:
            return seconds_of(lambda: tensorly_length(tensor))

        took = interleave({"flip": each}, refit, 3)["flip"]
        job = f"flips of {'×'.join(map(str, dims))}, per flip and statistic"
        yield took.row(job, "TensorLy parafac, one refit", target, f"{flips} flips, p of {STATISTICS} statistics")


def peak(fit: Callable[[np.ndarray], object], array: np.ndarray) -> int:
    """Bytes allocated at most during a fit, beside the samples."""
    tracemalloc.start()
    try:
        fit(array)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def untested() -> Iterator[Row]:
    """Our fit with its test, over the quickest mean there is and a peer's fit of it: for orientation."""

    def mean(array: np.ndarray) -> np.ndarray:
        total = np.ones(len(array), array.dtype) @ array.reshape(len(array), -1)
        return total.reshape(array.shape[1:]).astype(np.float64) / len(array)

    def ours(array: np.ndarray) -> TensorPCA:
        return TensorPCA(random_state=0).fit(array)

    peers = {"TensorLy parafac": tensorly_length, "pyttb cp_als": pyttb_length}
    for samples, dims, strength in PLAIN:
        truth = SpikedTensor.random(dims, strength, random_state=1)
        array = next(iter(truth.stream(random_state=2, batch_size=samples, dtype=np.float32)))
        job = f"mean, {samples} × {dims[0]}³: fit, errors, p of three statistics"
        own = peak(ours, array) / 1e6
        for name, length in peers.items():
            took = compare(lambda a=array: ours(a), lambda a=array, length=length: length(mean(a)), 2)
            theirs = peak(lambda a, length=length: length(mean(a)), array) / 1e6
            note = f"peak memory beside the samples {own:.1f} MB, theirs {theirs:.1f} MB"
            yield took.row(job, f"mean and {name} of it, no test", None, note)


def rows() -> Iterator[Row]:
    warnings.simplefilter("ignore")  # theirs
    yield from tested()
    yield from varying()
    yield from flipping()
    yield from untested()
