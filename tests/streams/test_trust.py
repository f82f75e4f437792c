"""Files that lead elsewhere, leave parts out, or unpack to more than they declare: none is read as if it were whole."""

import os
import subprocess
import sys
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import GZip, Zlib, Zstd

from tpca import TpcaError, open_stream
from tpca.errors import StreamError, StreamWarning
from tpca.streams.npy import read_npz

SAMPLES = np.random.default_rng(0).standard_normal((20, 4, 5))


def all_of(path):
    return np.concatenate([batch.samples for batch in open_stream(path).batches()])


def virtual(folder, *, gone=None):
    """A dataset put together from two files, one of which, or its dataset, may go missing."""
    layout = h5py.VirtualLayout(shape=SAMPLES.shape, dtype="f8")
    for number, half in enumerate((slice(0, 10), slice(10, 20))):
        with h5py.File(folder / f"part{number}.h5", "w") as part:
            part["other" if gone == "dataset" and number else "x"] = SAMPLES[half]
        layout[half] = h5py.VirtualSource(f"part{number}.h5", "x", shape=(10, 4, 5))
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    if gone == "file":
        (folder / "part1.h5").unlink()
    return folder / "v.h5"


def test_a_virtual_dataset_whose_parts_are_there_is_read(tmp_path):
    np.testing.assert_array_equal(all_of(virtual(tmp_path)), SAMPLES)


@pytest.mark.parametrize("gone", ["file", "dataset"])
def test_a_virtual_dataset_with_a_lost_part_is_no_zeros(gone, tmp_path):
    path = virtual(tmp_path, gone=gone)
    with h5py.File(path) as file:
        assert not file["x"][10:].any()  # what HDF5 makes of it
    with pytest.raises(StreamError, match=r"'x' of 'part1.h5' is missing, which would be read as zeros; bring it back"):
        open_stream(path)


def test_samples_in_a_raw_file_are_refused_by_path_and_taken_from_the_hand(tmp_path):
    SAMPLES.tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file.create_dataset("x", SAMPLES.shape, "f8", external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])
    with pytest.raises(StreamError, match=r"lie in another file, '.*raw', which may hold anything; copy them"):
        open_stream(tmp_path / "e.h5")
    with h5py.File(tmp_path / "e.h5") as file:
        np.testing.assert_array_equal(all_of(file["x"]), SAMPLES)


@pytest.mark.parametrize("soft", [False, True])
def test_a_link_to_another_file_is_refused(soft, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/x"] = SAMPLES
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["out"] = h5py.ExternalLink("other.h5", "/g")
        file["x"] = h5py.SoftLink("/out/x") if soft else h5py.ExternalLink("other.h5", "/g/x")
    with pytest.raises(StreamError, match=r"leads to another file, '.*other.h5'; name that one"):
        open_stream(f"{tmp_path / 'l.h5'}::x")


def saved(folder, **options):
    path = folder / "d.zarr"
    array = zarr.create_array(path, shape=SAMPLES.shape, chunks=(4, 4, 5), dtype="f8", **options)
    array[:] = SAMPLES
    return path


def chunk_of(path):
    """The last file with samples."""
    about = ("zarr.json", ".zarray", ".zattrs")
    return max(file for file in path.rglob("*") if file.is_file() and file.name not in about)


def test_missing_chunks_are_counted_and_said(tmp_path):
    path = saved(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(all_of(path), SAMPLES)
    chunk_of(path).unlink()
    chunk_of(path).unlink()
    with pytest.warns(StreamWarning, match=r"^2 of the 5 chunks of '.*d.zarr' are missing, and are read as 0.0; if "):
        open_stream(path)


def test_the_command_says_it_in_one_line(tmp_path):
    path = saved(tmp_path)
    chunk_of(path).unlink()
    done = subprocess.run([sys.executable, "-m", "tpca.cli", "info", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("tpca: 1 of the 5 chunks of ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_link_out_of_a_store_is_refused(whole_folder, tmp_path):
    path = saved(tmp_path)
    inner = chunk_of(path)
    place = path / "c" if whole_folder else inner
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StreamError, match=r"is a link out of the store, to '.*elsewhere'; check the path"):
        open_stream(path)


def test_a_link_inside_a_store_and_to_a_store_are_followed(tmp_path):
    path = saved(tmp_path)
    inner = chunk_of(path)
    inner.rename(path / "moved")
    inner.symlink_to(path / "moved")
    (tmp_path / "l.zarr").symlink_to(path)
    np.testing.assert_array_equal(all_of(tmp_path / "l.zarr"), SAMPLES)


@pytest.mark.parametrize("chunks", [(10**15, 4, 5), (1, 10**12, 5)])
def test_chunks_that_no_machine_can_read_are_refused_at_once(chunks, tmp_path):
    zarr.create_array(tmp_path / "d.zarr", shape=np.maximum(chunks, 20), chunks=chunks, dtype="f8")
    with pytest.raises(StreamError, match=r"its metadata give chunks of .* bytes, which cannot be read"):
        open_stream(tmp_path / "d.zarr")


BOMB = 10**8  # bytes of zeros: a hundred times what a chunk of 640 bytes may have beside its spare bytes


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", [GZip(9), Zlib(9), Zstd(9)], ids=lambda codec: codec.codec_id)
def test_a_chunk_that_unpacks_to_more_than_declared_is_refused(codec, version, tmp_path):
    name = codec.codec_id
    if version == 3 and name == "zlib":
        pytest.skip("Zarr 3 has no zlib codec")
    new = {"gzip": zarr.codecs.GzipCodec, "zstd": zarr.codecs.ZstdCodec}
    path = saved(tmp_path, zarr_format=version, compressors=new[name]() if version == 3 else codec)
    np.testing.assert_array_equal(all_of(path), SAMPLES)
    chunk_of(path).write_bytes(codec.encode(bytes(BOMB)))
    with pytest.raises(StreamError, match=r"a chunk unpacks to .* bytes, more than its metadata declare"):
        all_of(path)


def test_a_result_that_unpacks_to_more_than_it_has_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "v.npz", "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("a.npy", bytes(10**7))
    with pytest.raises(ValueError, match="it unpacks to 10000000 bytes, more than it has"):
        read_npz(tmp_path / "v.npz")


@pytest.mark.parametrize("name", ["d.npy", "d.h5", "d.npz"])
def test_pipes_and_devices_are_no_files(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(TpcaError, match="is not a regular file but a pipe, socket or device; write the samples to a"):
        open_stream(tmp_path / name)
    (tmp_path / f"link-{name}").symlink_to("/dev/zero")
    with pytest.raises(TpcaError, match="is not a regular file"):
        open_stream(tmp_path / f"link-{name}")
