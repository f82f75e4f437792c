"""What users read calls an axis an axis."""

import ast
import re
from pathlib import Path

import tpca

SOURCES = sorted(Path(tpca.__file__).parent.rglob("*.py"))
# The word for an axis of formulas; as the name of a parameter or an option it is quoted, or ends in a sign.
MODE = re.compile(r"(?<![-'\"`_.{])\bmodes?\b(?![='\"`_:,])")


def sentences(tree):
    """Texts of a program with a space in them, but docstrings: messages, help, headings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " in node.value and id(node) not in docstrings:
            yield node.value


def test_no_message_speaks_of_modes():
    found = [
        (path.name, text)
        for path in SOURCES
        for text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        if MODE.search(text)
    ]
    assert not found
