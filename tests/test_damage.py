"""Damaged files: whatever is wrong with them, reading ends well, or in one line of ours."""

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import Blosc
from zarr.codecs import BloscCodec
from zarr.storage import LocalStore

import command
import damage_kinds as kinds
from damage import read_damaged
from research import StudyError
from research.reproduce import STUDIES
from research.studies.store import Store
from tpca import SpikedTensor, TpcaError
from tpca.cli import main
from tpca.data import open_stream
from tpca.data.write import read_truth
from tpca.errors import StreamError, reading
from tpca.result import load

# Libraries in C can crash or hang beyond all catching: these are read by `make attack` only, in processes of their own.
IN_C = [kind for kind in kinds.KINDS if kind.startswith(("zarr", "hdf5", "parquet", "csv", "mat"))]
COUNTS = {kind: 100 for kind in kinds.KINDS if kind not in IN_C}
COUNTS |= {"result": 12, "result-mean": 12, "result-views": 12}  # all commands read each


def run(*words, cwd):
    words = [sys.executable, "-m", "tpca.cli", *map(str, words)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("kind", COUNTS)
def test_damaged_files_are_read_or_refused(kind, tmp_path):
    (tmp_path / "good").mkdir()
    kinds.KINDS[kind][0](tmp_path / "good")
    with contextlib.redirect_stdout(io.StringIO()):
        kinds.KINDS[kind][1](tmp_path / "good")  # whole, it can be read
    for number in range(COUNTS[kind]):
        outcome, why = read_damaged(kind, tmp_path, np.random.default_rng([0, number]), oddly=0.0)
        assert outcome in ("right", "read", "error"), (number, outcome, why)


COMMANDS = {
    "npy": ("info", "d.npy"),
    "folder": ("fit", "d", "--out", "o"),
    "views": ("fit", "a.npy", "b.npy", "--out", "o"),
    "zarr": ("fit", "d.zarr", "--out", "o"),
    "hdf5": ("fit", "d.h5", "--out", "o"),
    "result": ("info", "r"),
    "result-mean": ("report", "r"),
    "result-views": ("score", "0.npy", "1.npy", "r"),
}


# What is in C needs a process.
@pytest.mark.parametrize("kind", COMMANDS)
def test_the_command_says_one_line_and_exits_with_two(kind, tmp_path):
    kinds.KINDS[kind][0](tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file() and not (kind.startswith("result") and path.suffix == ".npy"):
            path.write_bytes(path.read_bytes()[: os.path.getsize(path) // 2])
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    done = (run if kind in IN_C else command.run)(*COMMANDS[kind], cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.startswith("tpca: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


# One test for each thing that once came through.


def test_a_header_without_its_bracket_and_labels_nested_too_deeply(tmp_path):
    np.save(tmp_path / "d.npy", np.zeros((4, 3, 2)))
    (tmp_path / "l.json").write_text("[" * 10**5)
    done = command.run("fit", "d.npy", "--labels", "l.json", "--out", "o", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "cannot read labels" in done.stderr
    data = (tmp_path / "d.npy").read_bytes()
    for old, new in ((b"), }", b"   }"), (b", }", b",  "), (b"'<f8'", b"'<\\d'"), (b"(4, 3, 2)", b"(4, -3,2)")):
        (tmp_path / "d.npy").write_bytes(data.replace(old, new))
        with pytest.raises(StreamError, match="has no readable"):
            open_stream(tmp_path / "d.npy")


def test_a_name_that_would_redraw_the_terminal(tmp_path):
    kinds.make_result(tmp_path)
    result = load(tmp_path / "r")
    result.settings["preprocess"] = "\x1b[2J\n"
    with pytest.raises(TpcaError) as refused:
        result.score(tmp_path / "d.npy")
    assert str(refused.value).isprintable()


def test_damaged_zip_files(tmp_path):
    kinds.make_result(tmp_path)
    kinds.make_truth(tmp_path)
    for path, read in ((tmp_path / "r" / "vectors.npz", load), (tmp_path / "d.npy.truth.npz", read_truth)):
        good = path.read_bytes()
        method = good.index(b"PK\x01\x02") + 10  # of compression, which there are not so many of
        for bad in (good[:-30], good[:method] + b"c" + good[method + 1 :], good.replace(b"NUMPY", b"NUMPI"), b""):
            path.write_bytes(bad)
            with pytest.raises(StreamError, match=r"cannot read|does not belong"):
                read(path.parent if read is load else path)


def test_stored_trials_that_make_no_sense(tmp_path):
    kinds.make_store(tmp_path)
    path = tmp_path / "s" / "chances.jsonl"
    lines = path.read_text().splitlines()
    odd = json.dumps({**json.loads(lines[0]), "result": {"odd": 1}})
    path.write_text("\n".join([odd, *lines[1:], "\xff", "[" * 10**5, json.dumps({**json.loads(odd), "params": []})]))
    store = Store(tmp_path / "s")
    assert len(store.records(STUDIES["chances"])) == len(lines)  # what is no trial is passed over
    with pytest.raises(StudyError, match=r"cannot make sense of the trials in .*chances.jsonl.*remove the damaged"):
        store.findings(list(STUDIES.values()))


def zarr_store(folder, **changes):
    kinds.make_zarr(folder)
    path = folder / "d.zarr" / "zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder / "d.zarr"


def test_shapes_that_would_be_read_for_ever_and_a_chunk_length_of_zero(tmp_path):
    for number, shape in enumerate(([10**12, 5, 4, 3], [60, 10**15, 10**15, 3], [60, 10**18, 10**30, 3])):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(StreamError, match=r"chunks, and there are 8 files|they go from 0"):
            open_stream(zarr_store(tmp_path / str(number), shape=shape))
    grid = {"name": "regular", "configuration": {"chunk_shape": [0, *kinds.DIMS]}}
    with pytest.raises(StreamError, match=r"lengths \(0, 5, 4, 3\), and they go from 1"):
        open_stream(zarr_store(tmp_path, chunk_grid=grid))
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("x", (10**15, 5, 4), "f8", chunks=(100, 5, 4))
    with pytest.raises(StreamError, match="and the file"):
        open_stream(tmp_path / "d.h5")


@pytest.mark.parametrize(("version", "codec"), [(2, Blosc()), (3, BloscCodec())])
def test_a_chunk_that_would_crash_blosc(version, codec, tmp_path):
    path, data = tmp_path / "d.zarr", kinds.samples()[1]
    how = {"chunks": data.shape, "compressors": codec, "zarr_format": version}
    zarr.create_array(path, shape=data.shape, dtype="f8", **how)[:] = data
    assert np.array_equal(next(open_stream(path).batches()).samples, data)
    chunk = next(p for p in path.rglob("*") if p.is_file() and "zarr" not in p.name and p.name[0] != ".")
    chunk.write_bytes(chunk.read_bytes()[:12] + b"\xff\xff\xff\x7f" + chunk.read_bytes()[16:])
    with pytest.raises(StreamError, match="its header says 2147483647"):
        next(open_stream(path).batches())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "not enough memory;"),
        (MemoryError("Unable to allocate 7.1 PiB"), "not enough memory: Unable to allocate 7.1 PiB;"),
        (RecursionError("maximum recursion depth exceeded"), "recursion depth"),
    ],
)
def test_limits_of_the_machine_are_one_line(error, says, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr("tpca.cli.app", fail)
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr().err
    assert stop.value.code == 2
    assert says in told
    assert told.count("\n") == 1


def test_the_door_lets_our_own_errors_those_of_a_users_generator_and_interrupts_pass():
    batches = open_stream((np.zeros((3, 4, 5)) if i else 1 / i for i in (1, 0)), items="batches").batches()
    next(batches)
    with pytest.raises(ZeroDivisionError):
        next(batches)
    for error in (TpcaError("ours."), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)) as raised, reading("cannot read 'x'", "write it again"):
            raise error
        assert raised.value is error
    with pytest.raises(StreamError, match=r"^cannot read 'x': there is no 'a'; write it again\.$"):  # noqa: SIM117
        with reading("cannot read 'x'", "write it again"):
            {}["a"]


def test_nothing_of_a_failed_read_is_left_running(tmp_path, monkeypatch):
    """zarr-python reads chunks in an event loop of its own: at the first that fails, others are still under way."""
    data = next(iter(SpikedTensor.random((8, 8), 1.0, random_state=1).stream(random_state=1, batch_size=64)))
    zarr.create_array(tmp_path / "d.zarr", shape=data.shape, chunks=(4, 8, 8), dtype="f8")[:] = data
    torn = tmp_path / "d.zarr" / "c" / "0" / "0" / "0"
    torn.write_bytes(torn.read_bytes()[:50])
    get, loops = LocalStore.get, []

    async def slow(self, key, *args, **kwargs):
        if "c/" in key and "c/0/" not in key:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0.3)
            raise OSError(f"late failure at {key}")
        return await get(self, key, *args, **kwargs)

    monkeypatch.setattr(LocalStore, "get", slow)
    with pytest.raises(StreamError, match="cannot read samples 0 to 63"):
        next(open_stream(tmp_path / "d.zarr").batches())
    assert loops
    assert asyncio.all_tasks(loops[0]) == set()
