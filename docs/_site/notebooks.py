"""The examples as notebooks, made from their scripts: no copies that could fall behind.

The text at the top is the first cell, then imports and constants, every function, and a run of the quick version.

    python docs/_site/notebooks.py --out notebooks [--execute]
"""

import argparse
import ast
import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = """from IPython.display import Image

found = main(["--quick", "--out", "found.png"])  # without --quick: the data of the gallery
Image("found.png")"""


def notebook(example: Path) -> str:
    """The notebook of an example, as a file holds it."""
    source = example.read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    title, _, story = (ast.get_docstring(tree) or "").partition("\n")
    story = re.sub(r"\n +python examples/.*", "", story)  # how to run the script
    cells = [new_markdown_cell(f"# {title.rstrip('.')}\n{story}".strip())]
    cells += [new_code_cell("\n".join(lines[first:last]).strip()) for first, last in _pieces(tree)]
    made = new_notebook(cells=[*cells, new_code_cell(RUN)])
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"  # the same file every time
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.validate(made)
    return str(nbformat.writes(made))


def _pieces(tree: ast.Module) -> list[tuple[int, int]]:
    """Ranges of lines, with the comments before them: a function each, and what stands between functions."""
    pieces: list[tuple[int, int]] = []
    before, loose = tree.body[0].end_lineno or 0, False
    for node in tree.body[1:]:
        if isinstance(node, ast.If):  # __name__ == "__main__"
            continue
        own = isinstance(node, ast.FunctionDef | ast.ClassDef)
        first, last = before, node.end_lineno or 0
        if pieces and loose and not own:
            first = pieces.pop()[0]
        pieces.append((first, last))
        before, loose = last, not own
    return pieces


def main() -> None:
    """Write them all; with ``--execute`` also run them, each in a kernel of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("notebooks"))
    parser.add_argument("--execute", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(exist_ok=True)
    for example in sorted(EXAMPLES.glob("*.py")):
        made = nbformat.reads(notebook(example), as_version=4)
        if asked.execute:
            from nbclient import NotebookClient

            NotebookClient(made, timeout=600, resources={"metadata": {"path": str(asked.out)}}).execute()
        nbformat.write(made, asked.out / f"{example.stem}.ipynb")


if __name__ == "__main__":
    main()
