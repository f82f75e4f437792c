"""Where results go, looked at before the work: a long fit must not end with nowhere to put its result.

One rule for all commands: missing folders on the way are made; what is in the way is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tpca.errors import OutputError


def check_place(path: Path) -> None:
    """Refuse a place where a folder cannot be made, or not be written into."""
    _check_above(path, _nearest(path))


def check_file(path: Path) -> None:
    """Refuse a place where a file cannot be written."""
    if path.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: it is a folder; give the name of a file.")
    _check_above(path, _nearest(path.parent))


def _check_above(path: Path, above: Path) -> None:
    if not above.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: {str(above)!r} is not a folder; choose another place.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {str(path)!r}: no permission in {str(above)!r}; choose another place.")


def room_at(path: Path) -> int:
    """Free bytes of the disk that ``path`` would be on."""
    return shutil.disk_usage(_nearest(path.parent)).free


def check_result(out: Path, data: list[str], identity: str, settings: dict[str, Any], overwrite: bool) -> None:
    """Refuse a folder that cannot be written to, or that holds the result of another fit.

    The same fit once more is no other: its result has the same bytes.
    """
    check_place(out)
    if overwrite or not (out / "recovery.json").exists():
        return
    other = _difference(out, data, identity, settings)
    if other:
        raise OutputError(
            f"{str(out)!r} holds the result of another fit ({other}); name another --out, or give --overwrite."
        )


def places(data: list[str]) -> list[str]:
    """Where data are, wherever the command is run."""
    return [path if "://" in path else os.path.abspath(path) for path in data]


def _difference(out: Path, data: list[str], identity: str, settings: dict[str, Any]) -> str:
    """How the fit in ``out`` differs from this one, as far as the folder tells; nothing if it does not."""
    from tpca.errors import TpcaError
    from tpca.results import finite, read_result, read_run

    try:
        summary, run = read_result(out).summary, read_run(out)
    except TpcaError:
        return "one that cannot be read"
    before, now = summary.get("settings", {}), json.loads(json.dumps(finite(settings)))
    if ("shrinkage" in before) != ("shrinkage" in now):
        return "of samples" if "shrinkage" in now else "of views"
    source = summary["source"]
    fitted = run.get("data") or places(source if isinstance(source, list) else [source])
    if fitted != places(data):
        return f"of {', '.join(fitted)}"
    if run.get("identity", identity) != identity:
        return "the data have changed since"
    changed = [name for name in now if name != "solver_reason" and name in before and before[name] != now[name]]
    return f"{changed[0]} was {before[changed[0]]!r}, now {now[changed[0]]!r}" if changed else ""


def _nearest(path: Path) -> Path:
    """The place itself, or the nearest above it that is there."""
    whole = path.absolute()
    return next((place for place in (whole, *whole.parents) if os.path.lexists(place)), whole)
