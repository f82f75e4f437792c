"""Files that lead elsewhere, leave parts out, or unpack to more than they declare: none is read as if it were whole."""

import contextlib
import functools
import io
import json
import operator
import os
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, GZip, Shuffle, Zlib, Zstd

import damage_kinds as kinds
from tpca import TpcaError, open_stream
from tpca.data.numpy_files import npz_bytes, read_npz
from tpca.errors import CheckpointError, StreamError, StreamWarning
from tpca.files import alone_in

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


@pytest.mark.parametrize("gone", ["file", "dataset"])
def test_a_virtual_dataset_is_read_and_with_a_lost_part_is_no_zeros(gone, tmp_path):
    np.testing.assert_array_equal(all_of(virtual(tmp_path)), SAMPLES)
    path = virtual(tmp_path, gone=gone)
    with h5py.File(path) as file:
        assert not file["x"][10:].any()  # what HDF5 makes of it
    with pytest.raises(StreamError, match=r"'x' of 'part1.h5' is missing, which would be read as zeros; bring it back"):
        open_stream(path)


@pytest.mark.parametrize("way", ["raw file", "link", "link to a link"])
def test_samples_in_another_file_are_refused_by_path_and_taken_from_the_hand(way, tmp_path):
    SAMPLES.tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/x"] = SAMPLES
    with h5py.File(tmp_path / "d.h5", "w") as file:
        if way == "raw file":
            file.create_dataset("x", SAMPLES.shape, "f8", external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])
        else:
            file["out"] = h5py.ExternalLink("other.h5", "/g")
            file["x"] = h5py.SoftLink("/out/x") if way == "link to a link" else h5py.ExternalLink("other.h5", "/g/x")
    with pytest.raises(StreamError, match=r"lie in another file, '.*(raw|other.h5)'; name that one"):
        open_stream(f"{tmp_path / 'd.h5'}::x")
    with h5py.File(tmp_path / "d.h5") as file:
        np.testing.assert_array_equal(all_of(file["x"]), SAMPLES)


def put_together(path, part, inner="x", *, growing=False):
    """A file whose dataset ``x`` is virtual, over one part; one that may grow opens its part to know its length."""
    longest = (None, 4, 5) if growing else None
    layout = h5py.VirtualLayout(shape=SAMPLES.shape, maxshape=longest, dtype="f8")
    source = h5py.VirtualSource(part, inner, shape=SAMPLES.shape, maxshape=longest)
    if growing:
        layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    else:
        layout[:] = source
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def write_hostile(folder):
    """Files that HDF5 hangs or crashes over; what is asked of each, and what it is refused for."""
    os.mkfifo(folder / "pipe")
    for growing in (False, True):
        put_together(folder / f"pipe {growing}.h5", "pipe", growing=growing)
        put_together(folder / f"circle {growing}.h5", "." if not growing else f"circle {growing}.h5", growing=growing)
    put_together(folder / "one.h5", "two.h5")
    put_together(folder / "two.h5", "one.h5")
    with h5py.File(folder / "link.h5", "w") as file:
        file["x"] = h5py.ExternalLink("pipe", "/x")
        file["soft"] = h5py.SoftLink("/x")
    put_together(folder / "behind a link.h5", "link.h5", "soft")
    with h5py.File(folder / "round.h5", "w") as file:
        file["x"] = h5py.SoftLink("/y")
        file["y"] = h5py.SoftLink("/x")
    put_together(folder / "scale.h5", "pipe")
    with h5py.File(folder / "scale.h5", "a") as file:
        layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
        layout[:] = h5py.VirtualSource("pipe", "s", shape=(4,))
        file.create_virtual_dataset("scale", layout)
        file["data"] = SAMPLES
        file["scale"].make_scale("channel")
        file["data"].dims[1].attach_scale(file["scale"])
    pipe, part, elsewhere = "is not a regular file", "is put together itself", "lie in another file, 'pipe'"
    return {
        "pipe False.h5": pipe,
        "pipe True.h5": pipe,
        "pipe True.h5::x": pipe,
        "circle False.h5": part,
        "circle True.h5": part,
        "one.h5": part,
        "link.h5::x": elsewhere,
        "link.h5::soft": elsewhere,
        "behind a link.h5": elsewhere,
        "round.h5::x": "leads nowhere",
        "scale.h5::data": pipe,
        "scale.h5": pipe,
    }


OPENED = """
import sys, tpca
for place in sys.argv[1:]:
    try:
        stream = tpca.open_stream(place)
        print("read", sum(len(batch) for batch in stream.batches()))
    except tpca.TpcaError as error:
        print(error)
"""


def test_hdf5_files_that_hang_or_crash_the_library_are_refused(tmp_path):
    """In a process of its own, which may hang or die."""
    asked = write_hostile(tmp_path)
    words = [sys.executable, "-c", OPENED, *asked]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    for place, said in zip(asked, done.stdout.splitlines(), strict=True):
        assert asked[place] in said, (place, said)


def test_a_soft_link_and_a_part_behind_one_are_followed_inside_their_file(tmp_path):
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["group/x"] = SAMPLES
        file["soft"] = h5py.SoftLink("group")
        file["group/near"] = h5py.SoftLink("x")
    put_together(tmp_path / "v.h5", "part.h5", "/soft/near")
    for place in ("part.h5::soft/x", "part.h5::/group/near", "part.h5::soft/near", "v.h5"):
        np.testing.assert_array_equal(all_of(str(tmp_path / place)), SAMPLES)
    with pytest.raises(StreamError, match="no array 'group/none'"):
        open_stream(f"{tmp_path / 'part.h5'}::group/none")


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
    path = saved(tmp_path, fill_value=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(all_of(path), SAMPLES)
    chunk_of(path).unlink()
    chunk_of(path).unlink()
    with pytest.warns(StreamWarning, match=r"^2 of the 5 chunks of '.*d.zarr' are not stored, .* read as 2.0, as "):
        np.testing.assert_array_equal(all_of(path)[12:], np.full((8, 4, 5), 2.0))


@pytest.mark.parametrize("whole_folder", [False, True])
def test_links_inside_a_store_and_to_one_are_followed_and_one_out_of_it_is_refused(whole_folder, tmp_path):
    path = saved(tmp_path)
    place = path / "c" if whole_folder else chunk_of(path)
    place.rename(path / "moved")
    place.symlink_to(path / "moved")
    (tmp_path / "l.zarr").symlink_to(path)
    np.testing.assert_array_equal(all_of(tmp_path / "l.zarr"), SAMPLES)
    place.unlink()
    (path / "moved").rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StreamError, match=r"is a link out of the store, to '.*elsewhere'; check the path"):
        open_stream(path)


@pytest.mark.parametrize("chunks", [(10**15, 4, 5), (1, 10**12, 5)])
def test_chunks_that_no_machine_can_read_are_refused_at_once(chunks, tmp_path):
    zarr.create_array(tmp_path / "d.zarr", shape=np.maximum(chunks, 20), chunks=chunks, dtype="f8")
    with pytest.raises(StreamError, match=r"its metadata give chunks of .*, and 2.15 GB are the most"):
        open_stream(tmp_path / "d.zarr")


BOMB = 10**8  # bytes of zeros, in a chunk of 640
PLAIN = {codec.codec_id: codec for codec in (GZip(9), Zlib(9), Zstd(9), LZ4(), Blosc())}
NEW = {"zlib": "numcodecs.Zlib", "lz4": "numcodecs.LZ4"}
NEW |= {"gzip": "GzipCodec", "zstd": "ZstdCodec", "blosc": "BloscCodec"}


def new(name):
    """A codec of format 3."""
    return operator.attrgetter(NEW[name])(zarr.codecs)()


def sharded(name):
    """One chunk in each shard, with an index that has no checksum."""
    inner = [zarr.codecs.BytesCodec(), new(name)]
    sharding = zarr.codecs.ShardingCodec(chunk_shape=(4, 4, 5), codecs=inner, index_codecs=inner[:1])
    return {"serializer": sharding, "compressors": None}


PLACES = {
    "a compressor of format 2": lambda name: {"zarr_format": 2, "compressors": PLAIN[name]},
    "a filter of format 2": lambda name: {"zarr_format": 2, "filters": [PLAIN[name]], "compressors": None},
    "format 3": lambda name: {"compressors": new(name)},
    "inside a shard": sharded,
}


@functools.cache
def packed(name, length):
    """So many zeros, packed; those of a bomb take a codec half a second."""
    return bytes(PLAIN[name].encode(bytes(length)))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PLAIN)
def test_a_chunk_unpacks_to_what_is_declared_or_is_refused_before_it_unpacks(name, place, tmp_path):
    """Peaks of memory: a bomb's 100 MB would all be counted; 2 MB are four times the bytes it comes from."""
    path = saved(tmp_path, **PLACES[place](name))
    np.testing.assert_array_equal(all_of(path), SAMPLES)
    for wrong in (BOMB, 632, 648):
        chunk = packed(name, wrong)
        index = struct.pack("<QQ", 0, len(chunk)) if place == "inside a shard" else b""
        chunk_of(path).write_bytes(chunk + index)
        tracemalloc.start()
        try:
            with pytest.raises(StreamError, match=r"a chunk (unpacks to|does not unpack to) .*640 bytes"):
                all_of(path)
            assert tracemalloc.get_traced_memory()[1] < 2e6 < BOMB
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"filters": [{"id": "pickle"}]}, "'pickle'"),
        ({"filters": [{"id": "bz2"}], "compressor": None}, "'bz2'"),
        ({"filters": [{"id": "zlib", "level": 1}]}, "'zstd' after a compressor"),
        ({"filters": [{"id": "zlib"}, {"id": "shuffle"}], "compressor": None}, "'shuffle' after a compressor"),
        ({"filters": [{"id": "vlen-utf8"}]}, "'vlen-utf8'"),
    ],
)
def test_other_codecs_are_refused_by_name(changed, named, tmp_path):
    path = saved(tmp_path, zarr_format=2, filters=[Shuffle(8)], compressors=Zstd(1))
    np.testing.assert_array_equal(all_of(path), SAMPLES)
    about = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**about, **changed}))
    with pytest.raises(StreamError, match=named):
        open_stream(path)


@pytest.mark.parametrize("metadata", [False, True])
def test_a_file_of_a_store_longer_than_any_is_refused_before_it_is_read(metadata, tmp_path):
    path = saved(tmp_path, compressors=None)
    os.truncate(path / "zarr.json" if metadata else chunk_of(path), 2**40)  # zeros that take no room on the disk
    with pytest.raises(StreamError, match=r"has 1,099,511,627,776 bytes, (too many|and a chunk at most)"):
        open_stream(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("metadata", [False, True])
def test_a_pipe_in_a_store_is_not_waited_for(version, metadata, tmp_path):
    path = saved(tmp_path, zarr_format=version)
    place = path / ("zarr.json" if version == 3 else ".zarray") if metadata else chunk_of(path)
    place.unlink()
    os.mkfifo(place)
    for name in (path, tmp_path):
        with pytest.raises(StreamError, match=r"is not a regular file|no samples|there is no"):
            open_stream(name if name == path else f"{path}::/x")


def test_an_npz_file_that_unpacks_to_more_than_it_has_or_has_a_flipped_bit_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "v.npz", "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("a.npy", bytes(10**7))
    with pytest.raises(ValueError, match="it unpacks to 10000000 bytes, more than it has"):
        read_npz(npz_bytes(tmp_path / "v.npz"))
    np.savez(tmp_path / "d.npz", data=SAMPLES)
    np.testing.assert_array_equal(all_of(tmp_path / "d.npz"), SAMPLES)
    data = bytearray((tmp_path / "d.npz").read_bytes())
    data[len(data) // 2] ^= 1  # among the samples
    (tmp_path / "d.npz").write_bytes(data)
    with pytest.raises(StreamError, match="Bad CRC-32"):
        open_stream(tmp_path / "d.npz")


@pytest.mark.parametrize("name", ["d.npy", "d.h5", "d.npz", "d.mat", "d.csv", "d.parquet"])
def test_pipes_and_devices_are_no_files(name, tmp_path):
    table = {"sample": "n", "modes": ["x", "y"], "value": "v"} if name in ("d.csv", "d.parquet") else {}
    os.mkfifo(tmp_path / name)
    with pytest.raises(TpcaError, match="is not a regular file but a folder, pipe, socket or device; bring the"):
        open_stream(tmp_path / name, **table)
    (tmp_path / f"link-{name}").symlink_to("/dev/zero")
    with pytest.raises(TpcaError, match="is not a regular file"):
        open_stream(tmp_path / f"link-{name}", **table)


def test_pipes_in_results_checkpoints_and_stores_of_trials_are_not_waited_for(tmp_path):
    kinds.make_result(tmp_path)
    kinds.make_checkpoint(tmp_path)
    kinds.make_store(tmp_path)
    reads = {"r": kinds.read_result, "k": kinds.read_checkpoint, "s": kinds.read_store}
    for name, read in reads.items():
        for path in sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()):
            good = path.read_bytes()
            path.unlink()
            os.mkfifo(path)
            with contextlib.suppress(TpcaError), contextlib.redirect_stdout(io.StringIO()):
                read(tmp_path)  # ends
            path.unlink()
            path.write_bytes(good)


def test_a_lock_file_of_somebody_stays(tmp_path):
    (tmp_path / ".lock").write_text("data")
    with (
        pytest.raises(CheckpointError, match=r"cannot write a checkpoint to.*choose another folder"),
        alone_in(tmp_path),
    ):
        pass
    assert (tmp_path / ".lock").read_text() == "data"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("precious"), os.mkdir])
def test_a_lock_that_is_no_file_is_refused_and_harms_nothing(make, tmp_path):
    (tmp_path / "precious").write_text("data")
    make(tmp_path / ".lock")
    with pytest.raises(CheckpointError, match="cannot write a checkpoint to"), alone_in(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "data"
