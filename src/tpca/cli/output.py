"""Where results go, looked at before the work; and what is printed.

One rule for all places: missing folders on the way are made; what is in the way is refused.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.errors import OutputError, StreamError, TpcaError, one_line
from tpca.files import check_folder
from tpca.wording import printable

if TYPE_CHECKING:
    from tpca.result import Result

# What `tpca fit` ends with, by the verdict.
EXIT_CODES = {"signal": 0, "no signal": 3, "not tested": 4}


def put_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity, which JSON does not have, become null."""
    sys.stdout.write(json.dumps(_finite(value)) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    value = value.item() if hasattr(value, "item") else value  # a number of NumPy
    return None if isinstance(value, float) and not math.isfinite(value) else value


def put(text: str) -> None:
    """Lines on standard output, in a terminal no wider than that; names from outside cannot redraw the screen."""
    lines = [printable(line) for line in text.split("\n")]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        lines = [part for line in lines for part in folded(line, width)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def folded(line: str, width: int) -> list[str]:
    """A line in parts that fit; those of ``  name  a: 1 ± 1, b: 2 ± 1`` begin below a, and no entry is cut."""
    head = re.match(r" +(?:.*? {2,})?|- |", line)
    indent = len(head[0]) if head else 0
    if not line.startswith(" "):
        return textwrap.wrap(line, width, subsequent_indent=" " * indent) or [""]
    whole = re.sub(r"(?<!,) ", "\xa0", line[indent:])  # only behind a comma
    parts = textwrap.wrap(whole, max(width - indent, 20), break_long_words=False) or [""]
    return [
        line[:indent] + parts[0].replace("\xa0", " "),
        *(" " * indent + part.replace("\xa0", " ") for part in parts[1:]),
    ]


def note(text: str) -> None:
    """Lines on standard error, beside the answer."""
    sys.stderr.write("".join(f"{printable(line)}\n" for line in text.split("\n")))


def check_place(path: Path) -> None:
    """Refuse a place where a folder cannot be made, or not be written into."""
    _check_above(path, _nearest(path))


def check_file(path: Path, made: Path | None = None) -> None:
    """Refuse a place where a file cannot be written; its folder must be there, or the one that is ``made``."""
    if path.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: it is a folder; give the name of a file.")
    if made is None or path.parent.absolute() != made.absolute():
        check_folder(path)
    _check_above(path, _nearest(path.parent))


def _check_above(path: Path, above: Path) -> None:
    if not above.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: {str(above)!r} is not a folder; choose another place.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {str(path)!r}: no permission in {str(above)!r}; choose another place.")


def _nearest(path: Path) -> Path:
    """The place itself, or the nearest above it that is there."""
    whole = path.absolute()
    return next((place for place in (whole, *whole.parents) if os.path.lexists(place)), whole)


def room_at(path: Path) -> int:
    """Free bytes of the disk that ``path`` would be on."""
    return shutil.disk_usage(_nearest(path.parent)).free


def check_result(out: Path, source: Any, settings: dict[str, Any]) -> None:
    """Refuse a folder that holds the result of another fit; the same fit once more has the same bytes."""
    from tpca.result import load

    if not (out / "result.json").exists():
        return
    try:
        stored = load(out)
        other = _difference(stored.source, stored.settings, source, json.loads(json.dumps(settings)))
    except TpcaError:
        other = "one that cannot be read"
    if other:
        raise OutputError(
            f"{str(out)!r} holds the result of another fit ({other}); name another --out, or give --overwrite."
        )


def _difference(source: Any, settings: dict[str, Any], now: Any, asked: dict[str, Any]) -> str:
    """How a fit differs from what is asked now; nothing if it does not."""
    if source != now:
        return f"of {', '.join(source) if isinstance(source, list) else source}"
    if settings.get("data") != asked["data"]:
        return "the data have changed since"
    changed = [name for name in asked if settings.get(name) != asked[name]]
    return f"{changed[0]} was {settings.get(changed[0])!r}, now {asked[changed[0]]!r}" if changed else ""


def write_report(result: Result, path: Path, read: Callable[[], tuple[Any, Any]] | None) -> None:
    """Write a report, with the scores and y that ``read`` gives; without, and a word on why, where it cannot."""
    scores = y = None
    if read is not None:
        try:
            scores, y = read()
        except TpcaError as error:
            note(f"the report has no scores: {error}")
    result.report(path, scores, y)


@contextlib.contextmanager
def using_result(folder: Path) -> Iterator[None]:
    """What fails with a result that could be read is the result's fault: fields that do not fit each other."""
    try:
        yield
    except TpcaError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as cause:
        said = f"cannot use the result in {str(folder)!r}: its result.json is damaged ({one_line(cause)})"
        raise StreamError(f"{said}; fit again.") from cause
