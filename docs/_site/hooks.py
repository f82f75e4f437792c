r"""What mkdocs does besides: formulas as MathML, links to files outside of docs/, lists as GitHub reads them.

- ``$x$`` and ``$$x$$`` (left by pymdownx.arithmatex as ``\(x\)`` and ``\[x\]``) become MathML, which browsers draw by
  themselves: no script, no fonts, nothing fetched.
- A link to ``../src/…`` or ``../examples/…`` leads to a copy of that file in the site.
- Every page of the gallery leads to its example as a notebook, made while building (``notebooks.py``).
- A list that follows a line of text without a blank line between is a list.
"""

import html
import importlib.util
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent.parent
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
LINK = re.compile(r"(\]\()((?:\.\./)+(?!\.\./)[^)#]+)(?=[)#])")
EXAMPLE = re.compile(r"\]\(\.\./\.\./examples/(\w+)\.py\)")
ITEM = re.compile(r"(?:[-*] |\d+\. )")
COPIES = "files"
TEXT = {".py", ".json", ".toml", ".md", ".cff", ".jsonl"}


def on_files(files: Files, config: Any) -> Files:
    """Copies of what pages link to outside of docs/."""
    linked: set[str] = set()
    for page in files.documentation_pages():
        folder = posixpath.dirname("docs/" + page.src_uri)
        for _, target in LINK.findall(Path(page.abs_src_path or "").read_text(encoding="utf-8")):
            linked.add(posixpath.normpath(posixpath.join(folder, target)))
    for path in sorted(linked):
        if not path.startswith(("docs/", "..")) and (ROOT / path).suffix in TEXT and (ROOT / path).is_file():
            copy = f"{COPIES}/{path}" + (".txt" if path.endswith((".py", ".md")) else "")
            files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
    for example in (ROOT / "examples").glob("*.py"):
        files.append(File.generated(config, f"gallery/{example.stem}.ipynb", content=_notebooks().notebook(example)))
    return files


def _notebooks() -> Any:
    """The script beside this one: hooks are no package."""
    spec = importlib.util.spec_from_file_location("notebooks", Path(__file__).with_name("notebooks.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links and lists."""
    folder = posixpath.dirname("docs/" + page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("docs/"):
            return match[0]
        copy = f"docs/{COPIES}/{path}" + (".txt" if path.endswith((".py", ".md")) else "")
        return match[1] + posixpath.relpath(copy, folder)

    example = EXAMPLE.search(markdown) if page.file.src_uri.startswith("gallery/") else None
    if example and page.file.src_uri == f"gallery/{example[1]}.md":
        markdown = EXAMPLE.sub(rf"\g<0> ([as a notebook]({example[1]}.ipynb))", markdown, count=1)
    return _lists(LINK.sub(lead, markdown).replace("<!-- commands -->", _commands()))


def on_page_content(content: str, **_: Any) -> str:
    """Formulas."""

    def formula(match: re.Match[str]) -> str:
        return str(convert(html.unescape(match[3]).strip(), display="block" if match[2] == "[" else "inline"))

    return FORMULA.sub(formula, content)


def _lists(markdown: str) -> str:
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        before = lines[-1] if lines else ""
        starts = ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith((" ", "#"))
        if starts and not fenced and not before.startswith("|"):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _commands() -> str:
    """Every command of ``tpca`` with its options, from the program itself."""
    import typer.main

    from tpca.cli import app

    lines: list[str] = []
    group: Any = typer.main.get_command(app)
    for name, command in ((name, group.get_command(None, name)) for name in group.commands):
        lines += [
            f"## tpca {name}",
            "",
            *(command.help or "").split("\n"),
            "",
            "| option | default | means |",
            "|---|---|---|",
        ]
        for option in command.params:
            names = ", ".join(f"`{o}`" for o in (*option.opts, *option.secondary_opts))
            default = "" if option.default in (None, (), False) or callable(option.default) else f"`{option.default}`"
            means = (getattr(option, "help", None) or "").replace("|", "\\|")
            lines.append(f"| {names} | {default} | {means} |")
        lines.append("")
    return "\n".join(lines)
