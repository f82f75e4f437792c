"""Every kind of file that tpca reads: how to make a good one, and all that reads it."""

import contextlib
import itertools
import json
import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import scipy.io
import zarr

from research.reproduce import STUDIES
from research.studies.store import Store
from tpca import SpikedTensor, TensorCCA, TensorPCA, TpcaError, load, open_stream, open_views
from tpca.checkpoint import Checkpoints
from tpca.cli import app
from tpca.data.write import read_truth, write_samples
from tpca.labels import Axis, Labels, read_labels

STORE = Path(__file__).parent.parent / "docs" / "reproduction"
DIMS = (5, 4, 3)
SAMPLES = 60


# What there is to damage: every maker writes into an empty folder.


def samples():
    truth = SpikedTensor.random(DIMS, 4.0, random_state=1)
    return truth, next(iter(truth.stream(random_state=2, batch_size=SAMPLES)))


def make_npy(folder):
    np.save(folder / "d.npy", samples()[1])


def make_folder(folder):
    (folder / "d").mkdir()
    for i, part in enumerate(np.split(samples()[1], 3)):
        np.save(folder / "d" / f"{i}.npy", np.asfortranarray(part) if i == 1 else part)


def make_views(folder):
    rows = np.random.default_rng(3).standard_normal((SAMPLES, 9))
    np.save(folder / "a.npy", rows[:, :5])
    np.save(folder / "b.npy", rows[:, 5:])


def make_zarr(folder, version=3):
    whole = (SAMPLES, *DIMS)
    array = zarr.open_array(
        folder / "d.zarr", mode="w", shape=whole, chunks=(8, *DIMS), dtype="f8", zarr_format=version
    )
    array[:] = samples()[1]


def make_zarr_blosc(folder):
    shards = {"shards": (16, *DIMS), "compressors": zarr.codecs.BloscCodec()}
    array = zarr.create_array(folder / "d.zarr", shape=(SAMPLES, *DIMS), chunks=(4, *DIMS), dtype="f8", **shards)
    array[:] = samples()[1]


def make_zarr_group(folder, version=3):
    group = zarr.open_group(folder / "d.zarr", mode="w", zarr_format=version)
    for name, part in zip(("a", "b/c"), np.split(samples()[1], 2), strict=True):
        group.create_array(name, shape=part.shape, chunks=(8, *DIMS), dtype="f8")[:] = part


def make_hdf5(folder):
    with h5py.File(folder / "d.h5", "w") as file:
        file.create_dataset("samples", data=samples()[1], chunks=(8, *DIMS), compression="gzip")
        file.create_group("other").create_dataset("rows", data=np.arange(12.0).reshape(4, 3))


def make_hdf5_plain(folder):
    with h5py.File(folder / "d.h5", "w", libver="latest") as file:
        file["samples"] = samples()[1]
        file["samples"].attrs["unit"] = "V"


def make_netcdf(folder):
    with h5py.File(folder / "d.h5", "w") as file:
        file.create_dataset("samples", data=samples()[1], chunks=(8, *DIMS))
        for axis, (name, length) in enumerate(zip("abcd", (SAMPLES, *DIMS), strict=True)):
            file[name] = np.arange(float(length))
            file[name].attrs["units"] = "days since 2020-01-01"
            file[name].make_scale(name)
            file["samples"].dims[axis].attach_scale(file[name])
        file["samples"].attrs["scale_factor"] = 0.5


def make_zarr_named(folder):
    group = zarr.open_group(folder / "d.zarr", mode="w")
    named = {"dimension_names": ("n", "x", "y", "z"), "attributes": {"_FillValue": 0.5}}
    group.create_array("eeg", shape=(SAMPLES, *DIMS), chunks=(8, *DIMS), dtype="f8", **named)[:] = samples()[1]
    group.create_array("x", shape=DIMS[:1], dtype="f8", dimension_names=("x",))[:] = np.arange(5.0)


def make_npz(folder):
    np.savez(folder / "d.npz", data=samples()[1], dims=["n", "x", "y", "z"], x=list("abcde"))
    np.savez_compressed(folder / "e.npz", data=samples()[1][:9])


def make_mat(folder):
    scipy.io.savemat(folder / "d.mat", {"x": samples()[1]}, do_compression=True)


def table_of(data):
    """A long table of samples of order three: a row for every entry."""
    names = pd.MultiIndex.from_product(map(range, data.shape), names=["n", "x", "y", "z"])
    return pd.DataFrame({"v": data.ravel()}, names).reset_index()


def make_csv(folder):
    table_of(samples()[1][:6]).to_csv(folder / "d.csv", index=False)


def make_parquet(folder):
    table_of(samples()[1][:6]).to_parquet(folder / "d.parquet", row_group_size=100)


def read_npz(folder):
    for name in ("d.npz", "e.npz"):
        with refused():
            read_stream(folder / name)


def read_table(path):
    stream = open_stream(path, sample="n", modes=["x", "y", "z"], value="v", missing="zero")
    for batch in itertools.islice(stream.batches(), 3):
        batch.content()


def make_truth(folder):
    truth = samples()[0]
    write_samples(folder / "d.npy", truth.stream(random_state=1), 3, truth, overwrite=True)
    (folder / "d.npy").unlink()


def make_result(folder, solver="race"):
    np.save(folder / "d.npy", samples()[1])
    named = Labels((Axis("x", np.arange(5.0)), Axis("y", np.arange(4).astype("datetime64[D]")), Axis()), "trial")
    result = TensorPCA(solver=solver, random_state=0).fit(samples()[1]).result_
    result.source, result.names = str(folder / "d.npy"), named.as_json()
    result.save(folder / "r")


def make_result_of_views(folder):
    shared = np.random.default_rng(4).standard_normal((400, 1))
    paths = []
    for i, width in enumerate((4, 3)):
        paths.append(str(folder / f"{i}.npy"))
        np.save(paths[-1], shared + np.random.default_rng(i).standard_normal((400, width)))
    cca = TensorCCA(random_state=0).fit([np.load(path) for path in paths])
    assert cca.found_
    result = cca.result_
    result.source = paths
    result.save(folder / "r")


def make_labels(folder):
    (folder / "l.json").write_text(json.dumps({"0": list("abcde"), "2": {"name": "time", "entries": ["x", "y", "z"]}}))


def make_store(folder):
    (folder / "s").mkdir()
    for name in ("chances", "stages"):
        stored = (STORE / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "s" / f"{name}.jsonl").write_bytes(b"".join(stored[:40]))


def make_checkpoint(folder):
    kept = Checkpoints(folder / "k", 0)
    for number in range(2):
        kept.save({"number": number, "vectors": np.arange(20.0), "rng": np.random.default_rng(number)})


# How it is read: every reader ends well, or in an error of ours.


@contextlib.contextmanager
def refused(said=None):
    """Errors of ours, each of them one line that can be printed; they are added to what was ``said``."""
    try:
        yield
    except TpcaError as error:
        if said is not None:
            said.append(str(error))
        if not str(error).isprintable() or len(str(error)) > 1000:
            raise AssertionError(f"not one line: {error!r}") from error


def command(*arguments):
    """The command, in this process; what it raises comes through."""
    with contextlib.suppress(SystemExit):
        app(list(arguments), standalone_mode=False)


def read_stream(place, inner=""):
    stream = open_stream(f"{place}{inner}", items="batches")
    command("info", f"{place}{inner}", "--items", "batches")
    assert stream.identity
    vectors = [np.ones((1, d)) for d in stream.dims] if sum(stream.dims) < 10**6 else None
    for batch in itertools.islice(stream.batches(), 50):
        if vectors:
            batch.scores(vectors)


def read_views(folder):
    stream = open_views([str(folder / "a.npy"), str(folder / "b.npy")])
    assert stream.identity
    for _ in itertools.islice(stream.batches(), 50):
        pass


def read_groups(folder):
    for inner in ("", "::/a", "::/b/c", "::/gone"):
        with refused():
            read_stream(folder / "d.zarr", inner)


def read_hdf5(folder):
    for inner in ("", "::/samples", "::/gone"):
        with refused():
            read_stream(folder / "d.h5", inner)


def read_result(folder):
    data = sorted(map(str, folder.glob("*.npy")))
    for use in (
        lambda: command("info", str(folder / "r")),
        lambda: command("info", str(folder / "r"), "--json"),
        lambda: command("score", *data, str(folder / "r")),
        lambda: load(folder / "r").report(folder / "report.html"),
    ):
        with refused():
            use()


def read_names(folder):
    labels = read_labels(folder / "l.json", DIMS)
    assert [labels.entry(mode, 0) for mode in range(3)]


def read_store(folder):
    store = Store(folder / "s")
    store.pending(STUDIES["chances"], STUDIES["chances"].grid("quick"))
    store.findings(list(STUDIES.values()))


def read_checkpoint(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a damaged one was passed over
        Checkpoints(folder / "k", 0).load()


KINDS = {
    "npy": (make_npy, lambda folder: read_stream(folder / "d.npy")),
    "folder": (make_folder, lambda folder: read_stream(folder / "d")),
    "views": (make_views, read_views),
    "zarr": (make_zarr, lambda folder: read_stream(folder / "d.zarr")),
    "zarr2": (lambda folder: make_zarr(folder, 2), lambda folder: read_stream(folder / "d.zarr")),
    "zarr-group": (make_zarr_group, read_groups),
    "zarr-blosc": (make_zarr_blosc, lambda folder: read_stream(folder / "d.zarr")),
    "zarr2-group": (lambda folder: make_zarr_group(folder, 2), read_groups),
    "hdf5": (make_hdf5, read_hdf5),
    "hdf5-plain": (make_hdf5_plain, read_hdf5),
    "hdf5-scales": (make_netcdf, read_hdf5),
    "zarr-named": (make_zarr_named, lambda folder: read_stream(f"{folder / 'd.zarr'}::/eeg")),
    "npz": (make_npz, read_npz),
    "mat": (make_mat, lambda folder: read_stream(folder / "d.mat")),
    "csv": (make_csv, lambda folder: read_table(folder / "d.csv")),
    "parquet": (make_parquet, lambda folder: read_table(folder / "d.parquet")),
    "truth": (make_truth, lambda folder: read_truth(folder / "d.npy.truth.npz")),
    "result": (make_result, read_result),
    "result-mean": (lambda folder: make_result(folder, "least_squares"), read_result),
    "result-views": (make_result_of_views, read_result),
    "labels": (make_labels, read_names),
    "store": (make_store, read_store),
    "checkpoint": (make_checkpoint, read_checkpoint),
}
