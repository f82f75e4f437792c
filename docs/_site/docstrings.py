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


SEVERAL = re.compile(r"^(\w+(?:, \w+)+)([ ]:.*)?\n((?:[ ]+\S.*\n?|\n(?=[ ]))+)", re.M)


def _apart(match: re.Match[str]) -> str:
    """``a, b`` with one text becomes two entries with that text: else both get the type and default of the first."""
    text = match[3].rstrip("\n") + "\n"
    return "".join(f"{name}{match[2] or ''}\n{text}" for name in match[1].split(", "))


def as_markdown(text: str) -> str:
    """The same docstring as mkdocstrings wants it."""
    text = INLINE.sub(lambda m: f"${' '.join(m[1].split())}$", text)
    text = DISPLAY.sub(lambda m: f"\n$$\n{textwrap.dedent(m[1]).strip()}\n$$\n", text)
    text = ROLE.sub(lambda m: f"`{m[1]}`", text)
    return SEVERAL.sub(_apart, text).replace("``", "`")


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring as it is found."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
