"""Where results go, looked at before the work; and what is printed.

One rule for all places: missing folders on the way are made; what is in the way is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.cli.streams import say
from tpca.errors import OutputError, StreamError, TpcaError, one_line
from tpca.files import check_folder, check_replaceable
from tpca.wording import printable

if TYPE_CHECKING:
    from tpca.result import Result

# What `tpca fit` ends with, by the verdict.
EXIT_CODES = {"signal": 0, "no signal": 3, "not tested": 4}


def put_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity, which JSON does not have, become null."""
    import msgspec

    text = msgspec.json.encode(value, enc_hook=lambda one: one.tolist()).decode()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text))  # escapes that are JSON
    sys.stdout.write(text + "\n")


def put(text: str) -> None:
    """Lines on standard output; names from outside cannot redraw the screen."""
    sys.stdout.write(_printable_lines(text))


def note(text: str) -> None:
    """Lines on standard error, beside the answer."""
    say(_printable_lines(text))


def _printable_lines(text: str) -> str:
    return "".join(f"{printable(line)}\n" for line in text.split("\n"))


def check_text(params: Mapping[str, Any]) -> None:
    """Refuse names that are not UTF-8, which no result can hold."""
    for value in params.values():
        for word in value if isinstance(value, list) else [value]:
            try:
                str(word if isinstance(word, str) else "").encode()
            except UnicodeEncodeError:
                raise StreamError(
                    f"{word!r} is not UTF-8, and a result could not hold that name; rename the file, or give a link to "
                    "it."
                ) from None


def check_page(path: Path, overwrite: bool, made: Path | None = None, data: Iterable[Any] = ()) -> None:
    """Refuse a place for a report where somebody's file is, or one of the ``data`` (``FILE::array`` as well).

    Say as well what a page needs and is missing.
    """
    from tpca.report.page import PAGE, check_installed

    check_place(path, file=True, made=made)
    places = [str(place).partition("::")[0] for place in data if place is not None]
    check_replaceable(path, PAGE, overwrite, places)
    check_installed()


def check_place(path: Path, file: bool = False, made: Path | None = None) -> None:
    """Refuse a place where a folder cannot be made or not be written into.

    Of a ``file``, the folder must be there, or be the one that is ``made``.
    """
    if file and (made is None or path.parent.absolute() != made.absolute()):
        check_folder(path)
    above = _nearest(path.parent if file else path)
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


def check_result_files(out: Path, overwrite: bool, data: Iterable[Any]) -> None:
    """Refuse a folder for a result where somebody's files have the same names, or are among the ``data``."""
    from tpca.result import KINDS, result_files

    check_place(out)
    places = [str(place).partition("::")[0] for place in data if place is not None]
    for path, kind in zip(result_files(out), KINDS, strict=True):
        check_replaceable(path, kind, overwrite, places)


def check_result(out: Path, source: Any, settings: dict[str, Any]) -> None:
    """Refuse a folder that holds the result of another fit; the same fit once more has the same bytes."""
    from tpca.result import load

    if not (out / "result.json").exists():
        return
    try:
        stored, asked = load(out), json.loads(json.dumps(settings))
        changed = [name for name in asked if stored.settings.get(name) != asked[name]]
        if stored.source != source:
            other = f"of {', '.join(stored.source) if isinstance(stored.source, list) else stored.source}"
        elif "data" in changed:
            other = "the data have changed since"
        elif changed:
            other = f"{changed[0]} was {stored.settings.get(changed[0])!r}, now {asked[changed[0]]!r}"
        else:
            return
    except TpcaError:
        other = "one that cannot be read"
    raise OutputError(
        f"{str(out)!r} holds the result of another fit ({other}); name another --out, or give --overwrite."
    )


def write_report(
    result: Result, path: Path, read: Callable[[], tuple[Any, Any]] | None, overwrite: bool = False
) -> None:
    """Write a report, with the scores and y that ``read`` gives; without, and a word on why, where it cannot."""
    scores = y = None
    if read is not None:
        try:
            scores, y = read()
        except TpcaError as error:
            note(f"the report has no scores: {error}")
    result.report(path, scores, y, overwrite=overwrite)


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
