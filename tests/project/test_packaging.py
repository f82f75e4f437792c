"""The wheel and the source package: what is in them, and that an installed wheel works outside of the checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import tpca
from tpca.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source package, built with the tools that are installed: nothing is fetched."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    assert {"tpca/py.typed", "tpca/__init__.py"} <= names
    assert {name.split("/")[0] for name in names} == {"tpca", f"tpca-{tpca.__version__}.dist-info"}
    here = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "tpca").rglob("*") if p.is_file()}
    assert {name for name in here if "__pycache__" not in name} <= names


@pytest.mark.slow
def test_the_source_package_can_be_built_from(built):
    with tarfile.open(built[1]) as package:
        names = {name.partition("/")[2] for name in package.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/tpca/__init__.py", "src/tpca/py.typed"} <= names
    assert not any(name.startswith(("tests", "docs", ".venv")) for name in names)


@pytest.mark.slow
def test_an_index_would_take_them(built):
    """Metadata and README as an index of packages renders them, warnings being errors."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((ROOT / "packaging" / "conda-forge" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert recipe["context"]["version"] == tpca.__version__
    run = [line.replace(" ", "") for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    assert run == project["project"]["dependencies"]
    entry = recipe["build"]["python"]["entry_points"]
    assert entry == [f"tpca = {project['project']['scripts']['tpca']}"]


def test_every_citation_of_the_paper_has_an_entry():
    text, entries = ((ROOT / "paper" / name).read_text() for name in ("paper.md", "paper.bib"))
    cited = set(re.findall(r"@([a-z]\w+)", text))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", entries, re.M))


@pytest.mark.slow
def test_a_plain_install_fits_saves_and_names_what_is_missing(built, tmp_path):
    """With the required packages only: those of the extras cannot be imported there."""
    extras = (
        *("matplotlib", "jinja2", "zarr", "h5py", "dask", "xarray", "pyarrow", "pandas", "h5netcdf", "distributed"),
        "numba",  # of research only
    )
    program = f"""
import sys
sys.modules.update(dict.fromkeys({extras!r}))
import numpy as np, tpca
X = next(iter(tpca.SpikedTensor.random((5, 4, 3), 3.0, random_state=1).stream(random_state=2, batch_size=200)))
np.save("d.npy", X)
pca = tpca.TensorPCA(random_state=0).fit("d.npy")
pca.save("r")
print(pca.verdict_)
open("a.h5", "wb").write(bytes.fromhex("894844460d0a1a0a"))
asks = (lambda: pca.plot(X), lambda: pca.report("r.html"), pca.result_.to_xarray, lambda: tpca.open_stream("a.h5"))
for ask in asks:
    try:
        ask()
    except tpca.TpcaError as error:
        print(error)
"""
    wheel = str(built[0])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))} | {"PYTHONPATH": wheel}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdict, *refused = done.stdout.splitlines()
    assert verdict == "signal"
    assert [re.search(r"tpca\[(\w+)\]", line)[1] for line in refused] == ["plots", "plots", "xarray", "hdf5"]


@pytest.mark.slow
def test_one_version(built):
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)?", tpca.__version__)
    assert f"-{tpca.__version__}-" in built[0].name
    assert f"\nversion: {tpca.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {tpca.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    metadata = zipfile.ZipFile(built[0]).read(f"tpca-{tpca.__version__}.dist-info/METADATA").decode()
    assert f"Version: {tpca.__version__}\n" in metadata
    assert "Requires-Python: >=3.11" in metadata


@pytest.mark.slow
def test_an_installed_wheel_works(built, tmp_path):
    """In a new environment that sees the packages of this one but not the checkout."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-warn-script-location", "--target", site, built[0]]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    # A .pth file is read as text: the packages of this environment, not its own .pth files, which name the checkout.
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = (
        "import tpca, tpca.cli; truth = tpca.SpikedTensor.random((5, 4, 3), 3.0, random_state=1);"
        "r = tpca.RaceSolver(max_samples=300).run(truth.stream(random_state=2));"
        "print(tpca.__file__, min(truth.overlaps(r.vectors)) > 0.8)"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}

    def run(*words):
        done = subprocess.run([python, *words], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where, found = run("-c", program).split()
    assert where.startswith(str(tmp_path))
    assert found == "True"
    assert "fit" in run("-m", "tpca.cli", "--help")
    entry = zipfile.ZipFile(built[0]).read(f"tpca-{tpca.__version__}.dist-info/entry_points.txt").decode()
    assert "tpca = tpca.cli:main" in entry


def test_the_demo_needs_no_matplotlib(monkeypatch, tmp_path):
    """A plain install has none: the table is printed, and how to get the figure is said."""
    from tpca.cli import demo as module

    truth = tpca.SpikedTensor.random((6, 5, 4), 2.0, random_state=0)
    found = tpca.RaceSolver(random_state=0, max_samples=200).run(truth.stream(random_state=1))
    monkeypatch.setattr(module, "_both", lambda *_: [module.Watched(found, [], [])] * 2)
    monkeypatch.setattr("tpca.model.SpikedTensor.random", lambda *_, **__: truth)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "signal proven after" in done.output
    assert 'pip install "tpca[plots]"' in done.output.replace("\n", "")
    assert not (tmp_path / "out").exists()
