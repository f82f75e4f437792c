"""How large the house is: ``python -m research rooms`` counts every room, and the files that two fits walk through.

Per room: files, lines, functions, the median length of a body (lines without the docstring) and the constants of its
modules that hold numbers.  The walks are counted by a profile hook: files of ``src/tpca`` with a function that is
called.
"""

from __future__ import annotations

import ast
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import tpca
from research import markdown_table

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tpca"
BEGIN, END = "<!-- python -m research rooms --write -->\n", "<!-- end -->"

# Name of a room: its folders and files below src/tpca, and its budget of lines (None: design.md gives none).
ROOMS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "`cli/`": (("cli",), 1400),
    "`estimators/`": (("estimators",), 1400),
    "`report/`": (("report",), 1300),
    "`solvers/least_squares/`, `variation.py`": (("solvers/least_squares", "solvers/variation.py"), 700),
    "`solvers/race/`": (("solvers/race",), 2000),
    "`solvers/paper/`": (("solvers/paper",), 1000),
    "`solvers/views.py`, `folds.py`": (("solvers/views.py", "solvers/folds.py"), 1200),
    "`solvers/`, what they share": (("solvers",), 1000),
    "`inference/`": (("inference",), 1100),
    "`engines/`": (("engines",), 1200),
    "`data/`": (("data",), 3500),
    "`tensors/`": (("tensors",), 2400),
    "`result.py`, `model.py`, `planning.py`, and below": (("",), 1770),
}


def rooms(
    write: Annotated[bool, typer.Option("--write", help="Put the tables into CONTRIBUTING.md.")] = False,
) -> None:
    """Count files, lines, functions and constants of every room, and the files that two fits visit."""
    text = f"{sizes()}\n{walks()}"
    if write:
        page = ROOT / "CONTRIBUTING.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8")
    typer.echo(text)


def sizes() -> str:
    """The table of rooms, as Markdown."""
    left = sorted(SOURCE.rglob("*.py"))
    lines = []
    for name, (places, budget) in ROOMS.items():
        own = [p for p in left if any(p.relative_to(SOURCE).is_relative_to(place) for place in places)]
        left = [p for p in left if p not in own]
        lines.append(_row(name, own, budget))
    lines.append(_row("**`src/tpca`**", sorted(SOURCE.rglob("*.py")), 20_000))
    for name, budget in (("research", 5000), ("tests", 18_000), ("benchmarks", None)):
        lines.append(_row(f"`{name}/`", sorted((ROOT / name).rglob("*.py")), budget))
    return markdown_table(("room", "files", "lines", "budget", "functions", "median body", "constants"), lines)


def _row(name: str, files: list[Path], budget: int | None) -> tuple[str, ...]:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    bodies = [body for tree in trees for body in _bodies(tree)]
    total = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    constants = sum(_constant(node) for tree in trees for node in tree.body)
    median = f"{statistics.median(bodies):g}" if bodies else ""
    limit = "" if budget is None else f"{budget:,}"
    return (name, str(len(files)), f"{total:,}", limit, f"{len(bodies):,}", median, str(constants))


def _bodies(tree: ast.Module) -> Iterator[int]:
    """Lines of the body of every function, its docstring left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _constant(node: ast.stmt) -> bool:
    """Whether a statement of a module gives a number to a name in capitals."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    leaves = [leaf.value for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)]
    return all(isinstance(target, ast.Name) and target.id.isupper() for target in targets) and any(
        type(value) in (int, float) for value in leaves
    )


def walks() -> str:
    """Files that a fit of an array visits, and a race over Zarr."""
    import zarr

    rng = np.random.default_rng(0)
    samples = rng.standard_normal((60, 6, 5, 4)) + 0.5
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.zarr")
        zarr.create_array(path, data=samples)
        least_squares = visited(lambda: tpca.TensorPCA(random_state=0).fit(samples))
        race = visited(lambda: tpca.TensorPCA(solver="race", random_state=0).fit(path))
    lines = [("`TensorPCA().fit(X)`", str(len(least_squares)), "20"),
             ('`TensorPCA(solver="race").fit("x.zarr")`', str(len(race)), "30")]  # fmt: skip
    return markdown_table(("walk", "files with a function that is called", "aim"), lines)


def visited(fit: Callable[[], Any]) -> list[str]:
    """Files of the package with a function that ``fit`` calls, in any thread; what imports do does not count."""
    fit()  # what is imported on first use
    found: set[str] = set()
    here = str(SOURCE)

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(here):
            found.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        fit()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(str(Path(name).relative_to(SOURCE)) for name in found)
