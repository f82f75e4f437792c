import json
import subprocess
import sys


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "tpca.cli", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_demo_shows_overlaps_samples_and_state_and_writes_the_figure(tmp_path):
    done = run("demo", "--out", "figures", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for solver in ("race", "paper"):
        assert min(result[solver]["overlaps"]) >= 0.95
        assert result[solver]["state_bytes"] > 0
    assert result["race"]["n_samples"] * 20 < result["paper"]["n_samples"]
    picture = (tmp_path / "figures" / "alignment.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_help_names_the_commands_and_errors_have_no_traceback(tmp_path):
    assert "demo" in run("--help", cwd=tmp_path).stdout
    bad = run("demo", "--seed", "-1", cwd=tmp_path)
    assert bad.returncode == 2
    assert "seed must be a non-negative integer" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_import_loads_no_optional_package():
    code = "import sys, tpca; print([m for m in ('matplotlib', 'plotly', 'zarr', 'h5py', 'dask') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
