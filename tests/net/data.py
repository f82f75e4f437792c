"""The data of a row: arrays from a seed, and the forms in which they are given to a fit.  Nothing here is of tpca."""

import numpy as np
import scipy.sparse


def vectors_of(dims, rank, rng, paired=False):
    """For every mode ``rank`` orthonormal rows; ``paired`` modes of one length, 1 and 2, 3 and 4, ... share theirs."""
    vectors = [np.linalg.qr(rng.standard_normal((d, max(rank, 1))))[0].T[:rank] for d in dims]
    if paired:
        for second in range(1, len(dims), 2):
            if dims[second] == dims[second - 1]:
                vectors[second] = vectors[second - 1]
    return vectors


def outer(vectors, component):
    """v_1 ⊗ ... ⊗ v_k of one component."""
    tensor = np.ones(())
    for rows in vectors:
        tensor = np.multiply.outer(tensor, rows[component])
    return tensor


def signal_of(dims, strengths, rng, paired=False):
    """The vectors of all modes, and the sum of the components."""
    vectors = vectors_of(dims, len(strengths), rng, paired)
    signal = np.zeros(dims)
    for c, strength in enumerate(strengths):
        signal += strength * outer(vectors, c)
    return vectors, signal


def spiked(dims, n, seed, strengths=(), dtype="float64", noise=1.0, paired=False, missing=0.0):
    """Samples of one signal in white noise; a share of ``missing`` entries is NaN."""
    rng = np.random.default_rng(seed)
    _, signal = signal_of(tuple(dims), strengths, rng, paired)
    X = signal + noise * rng.standard_normal((n, *dims))
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
    return {"X": X.astype(dtype)}


def endless(dims, seed, strength=1.0, paired=False, batch=2048):
    """Samples without an end, in batches, with the truth that a theorem's schedule asks for."""
    rng = np.random.default_rng(seed)
    vectors, signal = signal_of(tuple(dims), [strength], rng, paired)

    def batches():
        while True:
            yield signal + rng.standard_normal((batch, *dims))

    return {"X": batches(), "truth": ([rows[0] for rows in vectors], strength)}


def effect(
    dims, n, seed, strengths, y="dose", covariates=1, nuisances=0, weights=False, groups=0, missing=0.0, sorted_y=False
):
    """Samples whose signal follows ``y``, on a background, maybe beside nuisances, weights and groups."""
    rng = np.random.default_rng(seed)
    dims = tuple(dims)
    X = rng.standard_normal((n, *dims)) + rng.standard_normal(dims)
    given = {}
    if y == "dose":
        columns = rng.standard_normal((n, covariates))
        given["y"] = columns if covariates > 1 else columns[:, 0]
    else:
        classes = int(y)
        labels = rng.permutation(np.arange(n) % classes)
        labels = np.sort(labels) if sorted_y else labels
        columns = (labels - (classes - 1) / 2)[:, None]
        given["y"] = np.array([f"label {label}" for label in labels])
    for column in columns.T:
        X += np.multiply.outer(column, signal_of(dims, strengths, rng)[1])
    if nuisances:
        given["nuisance"] = rng.standard_normal((n, nuisances))
        X += np.tensordot(given["nuisance"], rng.standard_normal((nuisances, *dims)), 1)
    if weights:
        given["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if groups:
        given["groups"] = np.arange(n) * groups // n
        X += 0.5 * rng.standard_normal((groups, *dims))[given["groups"]]
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
    return {"X": X, **given}


def varying(dims, n, seed, strengths, background=0.0, dtype="float64"):
    """Samples along whose components amplitudes vary about zero."""
    rng = np.random.default_rng(seed)
    dims = tuple(dims)
    X = rng.standard_normal((n, *dims)) + background * rng.standard_normal(dims)
    vectors = vectors_of(dims, len(strengths), rng)
    for c, strength in enumerate(strengths):
        X += np.multiply.outer(strength * rng.standard_normal(n), outer(vectors, c))
    return {"X": X.astype(dtype)}


class Coordinates:
    """A sparse sample of any order: where its entries are, and what they are."""

    def __init__(self, tensor):
        self.coords = np.array(np.nonzero(tensor))
        self.data = tensor[tuple(self.coords)]
        self.shape = tensor.shape


def sparse(dims, n, seed, strength, density=0.2):
    """Sparse samples: a signal seen at a few entries, in noise at a few entries."""
    rng = np.random.default_rng(seed)
    _, signal = signal_of(tuple(dims), [strength], rng)
    seen = rng.random((n, *dims)) < density
    X = np.where(seen, signal + rng.standard_normal((n, *dims)), 0.0)
    make = scipy.sparse.coo_array if len(dims) == 2 else Coordinates
    return {"X": [make(sample) for sample in X]}


def views(dims, n, seed, strengths, skewed=False):
    """Tables with a common factor for every strength, along directions of their own; skewed ones for odd orders."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, len(strengths)))
    factors = factors**2 - 1 if skewed else factors
    tables = []
    for d in dims:
        loadings = np.asarray(strengths)[:, None] * vectors_of((d,), len(strengths), rng)[0]
        tables.append(factors @ loadings + rng.standard_normal((n, d)))
    return {"X": tables}


KINDS = {made.__name__: made for made in (spiked, endless, effect, varying, sparse, views)}


def made(spec):
    """The data of a row: ``X`` and what else is told of it."""
    options = dict(spec)
    return KINDS[options.pop("kind")](**options)


# ---------------------------------------------------------------------------------------------------------------------
# Forms: the same samples as a file, a store, a table, an iterator.  What a form returns is (source, how to open it).

BATCH = 37  # samples of a batch of an iterable, of a file of a folder and of a chunk: it divides none of the lengths


def batches(X):
    """The samples in batches."""
    return [X[first : first + BATCH] for first in range(0, len(X), BATCH)]


def formed(form, X, folder):
    """The samples in a form, and what must be said to open it."""
    path, chunks, axes = folder / f"x.{form}", (BATCH, *X.shape[1:]), [f"axis{m}" for m in range(X.ndim - 1)]
    if form in ("npy", "npz", "folder"):
        if form == "folder":
            path.mkdir()
            for number, batch in enumerate(batches(X)):
                np.save(path / f"{number:04}.npy", batch)
            return path, {"items": "batches"}
        np.save(path, X) if form == "npy" else np.savez(path, x=X)
    elif form == "zarr":
        import zarr

        zarr.create_array(path, data=X, chunks=chunks)
    elif form == "hdf5":
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=X, chunks=chunks)
    elif form in ("netcdf", "xarray"):
        import xarray

        named = xarray.DataArray(X, dims=["trial", *axes], name="x")
        if form == "xarray":
            return named, {}
        path = folder / "x.nc"
        named.to_netcdf(path, engine="h5netcdf")
    elif form in ("csv", "parquet", "frame"):
        import pandas

        index = pandas.MultiIndex.from_product([range(length) for length in X.shape], names=["trial", *axes])
        frame = pandas.DataFrame({"x": X.ravel()}, index).reset_index()
        if form == "csv":
            frame.to_csv(path, index=False)
        elif form == "parquet":
            frame.to_parquet(path, row_group_size=1000)
        return frame if form == "frame" else path, {"sample": "trial", "modes": axes, "value": "x"}
    elif form == "dask":
        import dask.array

        return dask.array.from_array(X, chunks=chunks), {}
    else:
        return {
            "list": lambda: (list(X), {"items": "samples"}),
            "iterable": lambda: (iter(batches(X)), {"items": "batches"}),
            "samples": lambda: (iter(list(X)), {"items": "samples"}),
            "fortran": lambda: (np.asfortranarray(X), {}),
            "strided": lambda: (np.repeat(X, 2, axis=0)[::2], {}),
        }[form]()
    return path, {}


def views_formed(form, tables, folder):
    """Views, each as a file of its own, or together as an iterable of batches."""
    if form == "iterable":
        return iter([tuple(part) for part in zip(*(batches(table) for table in tables), strict=True)])
    sources = []
    for number, table in enumerate(tables):
        (folder / str(number)).mkdir()
        sources.append(formed(form, table, folder / str(number))[0])
    return sources
