"""Damaged files of every format, and hostile Zarr stores, whose chunks unpack to far more than they declare.

They are read as their own library reads them, or refused in one line.
"""

import contextlib
import io
import json
import os
import pickle
import struct
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from attack.cases import Part, emptied
from attack.forks import SECONDS, Fork, tpca
from damage import read_damaged
from damage_kinds import KINDS
from tpca.checkpoint import CheckpointWarning
from tpca.errors import StreamWarning

SOME = [kind for kind in KINDS if kind != "checkpoint"]
BATCH = 40  # files that one fork reads


class Mutated(Part):
    """A trial is some files of one kind, each damaged by itself, read in one fork as long as that lives."""

    def trial(self, number, rng):
        kind = SOME[number % len(SOME)]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            (folder / "good").mkdir()
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                made = Fork(lambda: KINDS[kind][0](folder / "good")).end()
            assert made.code == 0, made
            seeds = rng.integers(2**32, size=BATCH)
            return kind, _read_all(kind, folder, [int(seed) for seed in seeds]), {"files": BATCH}


def _read_all(kind, folder, seeds):
    """The outcome of every file, with what is worth telling; a fork that dies is followed by another."""
    outcomes, told = [], folder / "told"
    while len(outcomes) < len(seeds):
        told.write_text("")
        ended = Fork(partial(_read_some, kind, folder, seeds[len(outcomes) :], told)).end(2 * SECONDS + BATCH)
        outcomes += [line.partition(" ")[::2] for line in told.read_text().splitlines()]
        if len(outcomes) < len(seeds):
            assert ended.code, ended
            ill = "hang" if ended.hung else "hdf5 crash" if kind.startswith("hdf5") else "crash"
            outcomes.append((ill, f"seed {seeds[len(outcomes)]}: {ended.output[-1500:]!r}"))
    return outcomes


def _read_some(kind, folder, seeds, told):
    warnings.simplefilter("error")
    for category in (StreamWarning, CheckpointWarning):  # one line of the command
        warnings.simplefilter("ignore", category)
    with told.open("a") as lines:
        for seed in seeds:
            outcome, why = read_damaged(kind, folder, np.random.default_rng(seed))
            lines.write(f"{outcome} {f'seed {seed}: {why!r}' if why else ''}\n")
            lines.flush()


SHAPE, CHUNK = (40, 6, 5, 4), (20, 6, 5, 4)
BOMB = 2**27  # bytes of zeros, in chunks of 19 kB; more than twice what a fit takes beside
NAMES = ("bz2", "zlib", "gzip", "lzma", "zstd", "lz4", "blosc")
PLACES = ("compressor 2", "filter 2", "twice 2", "format 3", "shard")
OTHERS = ("pickle", "json2", "msgpack2", "packbits", "astype")


class Hostile(Part):
    """A trial is one store: a codec, where it stands, and how much it unpacks to."""

    def __init__(self, undisturbed):
        super().__init__(undisturbed)
        self._bombs = {}

    def trial(self, number, rng):
        path, out, mark = self.folder / "hostile.zarr", self.folder / "hostile out", self.folder / "run by a chunk"
        with emptied(path, out, mark):
            if number % 6 == 5:
                name, place = str(rng.choice(OTHERS)), "filter 2"
                chunk = pickle.dumps(_Evil(str(mark)))
                write(path, {"id": name}, place, chunk)
            else:
                name, place = NAMES[number % len(NAMES)], str(rng.choice(PLACES))
                write(path, {"id": name}, place, self._bomb(name))
            ended = tpca("fit", path, "--out", out, "--quiet", folder=self.folder)
            unpacked = ended.peak > BOMB // 2
            outcome = "wrong" if ended.outcome == "done" or mark.exists() or unpacked else ended.outcome
        return f"{name}, {place}", [(outcome, f"{ended.peak:,} bytes: {ended.output}")], {"hostile stores": 1}

    def _bomb(self, name):
        """Zeros, packed once for all trials."""
        import numcodecs

        if name not in self._bombs:
            zeros = np.zeros(BOMB, np.uint8)
            self._bombs[name] = bytes(numcodecs.get_codec({"id": name}).encode(zeros))
        return self._bombs[name]


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def write(path, codec, place, chunk):
    """A store whose metadata say one thing, and whose first chunk holds another."""
    path.mkdir()
    if place.endswith("2"):
        filters = {"filter 2": [codec], "twice 2": [codec]}.get(place)
        compressor = {"compressor 2": codec, "twice 2": {"id": "zlib", "level": 1}}.get(place)
        about = {"zarr_format": 2, "shape": SHAPE, "chunks": CHUNK, "dtype": "<f8", "fill_value": 0, "order": "C"}
        (path / ".zarray").write_text(json.dumps({**about, "filters": filters, "compressor": compressor}))
        for number in range(2):
            (path / f"{number}.0.0.0").write_bytes(chunk)
        return
    new = codec["id"] if codec["id"] in ("gzip", "zstd", "blosc") else f"numcodecs.{codec['id']}"
    options = {"gzip": {"level": 1}, "zstd": {"level": 1, "checksum": False}}
    options["blosc"] = {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 8, "blocksize": 0}
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    codecs = [plain, {"name": new, "configuration": options.get(new, {})}]
    if place == "shard":
        inside = {"chunk_shape": CHUNK, "codecs": codecs, "index_codecs": [plain]}
        codecs = [{"name": "sharding_indexed", "configuration": inside}]
        chunk += struct.pack("<QQ", 0, len(chunk))
    about = {"zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "float64", "fill_value": 0}
    about["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": CHUNK}}
    about["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "."}}
    (path / "zarr.json").write_text(json.dumps({**about, "codecs": codecs, "attributes": {}}))
    for number in range(2):
        (path / f"c.{number}.0.0.0").write_bytes(chunk)
