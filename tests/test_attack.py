"""Some minutes of ``make attack``, every part of it, and the table that it fills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tpca
from attack import table
from attack.__main__ import GOALS

HERE = Path(__file__).parent
STORED = HERE.parent / "docs" / "reliability.json"
SHARE = {
    "kills": 0.05,
    "files": 0.1,
    "checkpoints": 0.03,
    "disks": 0.1,
    "clusters": 0.04,
    "replaced": 0.1,
    "codecs": 0.2,
    "readers": 0.1,
    "changed": 0.1,
    "interrupted": 0.05,
    "odd": 0.3,
}
SHARE |= {"sources": 0.1, "writers": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize("part", SHARE)
def test_a_part_of_the_attack_ends_well(part, tmp_path):
    if part == "disks" and os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    words = [sys.executable, "-m", "attack", "--out", str(tmp_path / "c.json"), "--parts", part]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(tpca.__file__).parent.parent), str(HERE)])  # the code tested here
    done = subprocess.run([*words, "--share", str(SHARE[part])], capture_output=True, text=True, env=env, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    found = table.counts(json.loads((tmp_path / "c.json").read_text())["parts"][part])
    assert found["right"] + found["read"] + found["error"] > 0
    assert not any(found[word] for word in table.BAD)


def test_what_is_stored_is_of_every_part_and_nothing_bad():
    parts = json.loads(STORED.read_text())["parts"]
    assert set(parts) == set(table.ROWS)
    for name, part in parts.items():
        assert part["bad"] == []
        assert not any(table.counts(part)[word] for word in table.BAD)
        assert all(outcome in (*table.GOOD, "hdf5 crash") for found in part["outcomes"].values() for outcome in found)
        for what, goal in GOALS[name].items():
            assert part["done"][what] >= 0.1 * goal  # `make attack` goes on with what is stored
