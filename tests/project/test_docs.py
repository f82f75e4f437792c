import importlib
import importlib.util
import re
import shlex
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tpca
from research.__main__ import app as experiments
from research.reproduce import STUDIES, as_markdown
from research.studies.store import Store
from tpca.cli import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / ".github").rglob("*.md")),
]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.S | re.M)
# Commands that take minutes, and what stands in for them here.  The rest of a page's commands run as printed.
QUICK = {
    "python -m research reproduce --quick": "python -m research reproduce --list",  # test_studies.py runs studies
    "python -m research reproduce worst-case symmetric --quick": "python -m research reproduce --list",
    "python -m research reproduce --full": "python -m research reproduce --list",
}
NOT_HERE = ("pip ", "git ", "cd ")  # what a newcomer types once; tests/project/test_packaging.py installs for real


def blocks(page):
    """The page's blocks in order: (language, text)."""
    return BLOCK.findall(page.read_text())


def id_of(page):
    return str(page.relative_to(ROOT))


def run_console(text):
    """Run the `tpca` commands of a block; check that make targets and scripts exist."""
    for line in re.findall(r"^\$ (.*)$", text, re.M):
        command = " ".join(shlex.split(line, comments=True))
        words = shlex.split(QUICK.get(command, command))
        if words[0] == "tpca":
            done = CliRunner().invoke(app, words[1:])  # in this process: starting one takes longer than most commands
            assert done.exit_code == 0, f"{command}: {done.output}"
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), command
        elif words[:3] == ["python", "-m", "research"]:
            done = CliRunner().invoke(experiments, words[3:])
            assert done.exit_code == 0, f"{command}: {done.output}"
        elif words[0] == "python":
            assert (ROOT / words[1]).exists(), command
        else:
            assert command.startswith(NOT_HERE), f"nobody runs {command!r}"


def run_page(page):
    """All blocks in the order of the page, names kept from block to block; those that need torch where it is."""
    names, left_out = {"__name__": "page"}, 0
    for language, text in blocks(page):
        if "import torch" in text and importlib.util.find_spec("torch") is None:
            left_out += 1
            continue
        with warnings.catch_warnings():
            if language == "console":
                warnings.simplefilter("ignore")  # a user of the command is not stopped by one either
                run_console(text)
            else:
                exec(compile(text, str(page), "exec"), names)
    if left_out:
        pytest.skip(f"torch is not installed: {left_out} blocks of {id_of(page)} did not run, all others did")


def page_with_blocks(page):
    """The page; those about clusters start some, and JAX compiles for seconds."""
    slow = page.name in ("big.md", "arrays.md")
    return pytest.param(page, marks=[pytest.mark.slow] if slow else [], id=id_of(page))


@pytest.mark.parametrize("page", [page_with_blocks(page) for page in PAGES[1:] if blocks(page)])
def test_every_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_the_blocks_of_the_readme_print_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(README)
    *printed, race, shown, published = capsys.readouterr().out.splitlines()
    answers = re.findall(r"^```text\n(.*?)^```", README.read_text(), re.S | re.M)
    command = CliRunner().invoke(app, ["fit", "d.npy"]).output
    number = r"-?\d+\.\d+"
    for answer, found in zip(answers, ("\n".join(printed), command), strict=True):
        assert re.sub(number, "", found).split() == re.sub(number, "", answer).split()
        for wanted, got in zip(re.findall(number, answer), re.findall(number, found), strict=True):
            assert abs(float(wanted) - float(got)) < 0.02  # another BLAS may round the last digit the other way
    assert race.startswith("race took")
    for line in (shown, published):
        overlaps = [float(x) for x in re.findall(r"\d\.\d+", line)]
        assert len(overlaps) == 4
        assert min(overlaps) > 0.95


def test_the_readme_is_short_and_shows_the_two_commands_first():
    text = README.read_text()
    assert len(text.split()) <= 1200
    first = text.split("\n## ")[0]
    assert "make demo" in first
    assert "make test" in first


def test_what_pages_quote_is_what_is_stored():
    spec = importlib.util.spec_from_file_location("fill", ROOT / "docs" / "_site" / "fill.py")
    fill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fill)
    assert [id_of(page) for page in fill.pages() if fill.filled(page.read_text()) != page.read_text()] == []


def test_every_public_name_is_in_the_reference():
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    assert [name for name in tpca.__all__ if f"::: tpca.{name}\n" not in reference] == []


def test_links_lead_somewhere():
    lost = []
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        lost += [(id_of(page), target) for target in targets if not (page.parent / target).exists()]
    assert lost == []


@pytest.mark.parametrize("name", ["initialisation", "stages"])
def test_the_page_shows_the_stored_study(name):
    """The cheap ones; the others are written by the same command."""
    study, page = STUDIES[name], (ROOT / "docs" / "reproduction.md").read_text()
    findings = {name: study.findings(Store(ROOT / "docs" / "reproduction").records(study))}
    drawn = {name: f"figures/reproduction/{name}.png"} if name == "stages" else {}  # a table of rates has no figure
    assert as_markdown([study], findings, drawn) in page
    assert all(f"### {other}: " in page for other in STUDIES)


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_files_and_functions_that_a_page_names_are_there(page):
    text = page.read_text()
    folders = ("src", "research", "tests", "benchmarks", "docs", "examples")
    files = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [
        name for name in re.findall(r"\b\w[\w/]*\.py\b", text) if not any(f.endswith(f"/{name}") for f in files)
    ] == []
    for name in sorted(set(re.findall(r"\b(?:tpca|research)(?:\.[A-Za-z_]\w*)+", text))):
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
                break
            except ModuleNotFoundError:
                continue
        for attribute in parts[cut:]:
            assert hasattr(found, attribute), name
            found = getattr(found, attribute)
