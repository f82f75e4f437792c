import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpca.streams import KINDS
from tpca.studies import paper_plan, race_checks, race_targets
from tpca.studies.catalogue import STUDIES
from tpca.studies.store import Store
from tpca.studies.table import as_markdown

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_the_example_of_the_readme_runs(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert "accurate" in printed[0]
    overlaps = [float(x) for x in re.findall(r"\d\.\d+", printed[1])]
    assert len(overlaps) == 4
    assert min(overlaps) > 0.95


@pytest.mark.parametrize("name", ["data.md", "views.md", "planning.md"])
def test_the_examples_of_a_page_run(name):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(), re.S)
    assert blocks
    exec(compile("\n".join(blocks), name, "exec"), {})


def test_the_example_of_the_views_runs_and_draws(tmp_path):
    picture = tmp_path / "digits.png"
    command = [sys.executable, ROOT / "examples" / "multiview_digits.py", "--out", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "TensorCCA, component 0" in done.stdout
    assert "pairwise CCA" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_page_names_every_stream_and_command():
    page = (ROOT / "docs" / "data.md").read_text().lower()
    assert [kind for kind in KINDS if kind not in page] == []
    assert [command for command in ("generate", "fit", "score", "info", "demo") if f"tpca {command}" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_page_shows_the_stored_race():
    stored = json.loads((ROOT / "docs" / "race-targets.json").read_text())
    page = (ROOT / "docs" / "race.md").read_text()
    for line in race_targets.markdown(stored).splitlines():
        assert line in page
    for line in race_checks.markdown(json.loads((ROOT / "docs" / "race-checks.json").read_text())).splitlines():
        assert line in page
    assert {(r["order"], r["dim"], r["kind"]) for r in stored["rows"]} >= {
        (3, 48, "weak"),
        (4, 32, "weak"),
        (6, 10, "equal"),
    }


def test_the_page_shows_the_stored_benchmark():
    stored = ROOT / "benchmarks" / "results" / "tensor_cca.json"
    command = [sys.executable, ROOT / "benchmarks" / "tensor_cca.py", "--show", stored]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "views.md").read_text()
    assert [line for line in shown.splitlines() if line not in page] == []
    assert len(shown.splitlines()) == 8


def test_the_page_shows_what_the_schedule_asks_for():
    page = (ROOT / "docs" / "paper.md").read_text()
    for line in paper_plan.rows():
        assert line in page


@pytest.mark.parametrize("name", ["initialisation", "noise", "convergence", "race"])
def test_the_page_shows_the_stored_study(name):
    """The cheap ones; the others are written by the same command."""
    study, page = STUDIES[name], (ROOT / "docs" / "reproduction.md").read_text()
    findings = {name: study.findings(Store(ROOT / "docs" / "reproduction").records(study))}
    assert as_markdown([study], findings, {name: f"figures/reproduction/{name}.png"}) in page


def test_the_page_shows_every_study():
    page = (ROOT / "docs" / "reproduction.md").read_text()
    for name in STUDIES:
        assert f"### {name}: " in page
        for suffix in ("png", "svg"):
            assert (ROOT / "docs" / "figures" / "reproduction" / f"{name}.{suffix}").exists()
