"""Places that cannot be written to are found before the work, not after it."""

import os

import numpy as np
import pytest

import command

PLACES = {
    "out": ("fit", "d.npy", "--out", "x/o"),
    "report": ("fit", "d.npy", "--out", "o", "--report", "x/r.html"),
    "checkpoint": ("fit", "d.npy", "--out", "o", "--checkpoint", "x/c"),
    "views": ("fit", "--views", "a.npy", "b.npy", "--out", "x/o"),
    "views report": ("fit", "--views", "a.npy", "b.npy", "--out", "o", "--report", "x/r.html"),
    "generate": ("generate", "--dims", "4,3,2", "--strength", "1", "--samples", "9", "--out", "x/d.npy"),
    "compare": ("compare", "--dims", "4,3,2", "--strength", "1", "--samples", "9", "--out", "x/c"),
    "demo": ("demo", "--out", "x/demo"),
    "plan": ("plan", "--dims", "4,4,4", "--strength", "1", "--plot", "x/p.png"),
    "reproduce": ("reproduce", "--quick", "--store", "x/s"),
}


@pytest.mark.parametrize("closed", [False, True], ids=["a file in the way", "no permission"])
@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_cannot_be_written_to_is_found_before_the_work(name, closed, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "d.npy", rng.standard_normal((40, 4, 3)))
    for view in "ab":
        np.save(tmp_path / f"{view}.npy", rng.standard_normal((40, 4)))
    if closed:
        if name == "compare":
            pytest.skip("it writes its first file there, and the file system says no")
        (tmp_path / "x").mkdir()
        allowed = os.access  # root may write where nobody else may: what the system would say to others
        monkeypatch.setattr(os, "access", lambda path, how: str(path) != str(tmp_path / "x") and allowed(path, how))
    else:
        (tmp_path / "x").touch()
    for work in ("tpca.cli.fit._run", "tpca.streams.writing.write_samples", "tpca.cli.compare._run"):
        monkeypatch.setattr(work, None)
    done = command.run(*PLACES[name], cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("tpca: cannot write 'x")
    assert not (tmp_path / "o" / "recovery.json").exists()
