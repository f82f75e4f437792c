"""Docstrings are written for people who read the code; here they become Markdown.

``:class:`~tpca.RaceSolver``` becomes code, ``.. math::`` a formula, double backticks single ones.
"""

import re
import textwrap
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|mod|meth|attr):`~?([^`]+)`")
INLINE = re.compile(r":math:`([^`]+)`", re.S)
DISPLAY = re.compile(r"^\.\. math::[ ]*(.*(?:\n(?:[ ]+\S.*|[ ]*(?=\n[ ]+\S)))*)", re.M)


def as_markdown(text: str) -> str:
    """The same docstring as mkdocstrings wants it."""
    text = INLINE.sub(lambda m: f"${' '.join(m[1].split())}$", text)
    text = DISPLAY.sub(lambda m: f"\n$$\n{textwrap.dedent(m[1]).strip()}\n$$\n", text)
    text = ROLE.sub(lambda m: f"`{m[1]}`", text)
    return text.replace("``", "`")


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring as it is found."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
