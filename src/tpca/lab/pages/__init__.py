"""Pages and figures about experiments; from the folder of one to its page."""

from __future__ import annotations

from pathlib import Path

from tpca.errors import StreamError
from tpca.lab.pages.comparison import comparison_document
from tpca.lab.pages.reproduction import studies_document
from tpca.report.document import Document, write_document


def write_page(folder: Path, path: Path) -> None:
    """Write the page on stored trials of a reproduction, or on a comparison."""
    write_document(path, document_of(folder))


def document_of(folder: Path) -> Document:
    """The page on what a folder holds."""
    return comparison_document(folder) if kind_of(folder) == "a comparison" else studies_document(folder)


def kind_of(folder: Path) -> str:
    """What a folder holds: ``"a comparison"`` or ``"a reproduction"``."""
    if (folder / "comparison.json").is_file():
        return "a comparison"
    if any(folder.glob("*.jsonl")):
        return "a reproduction"
    raise StreamError(
        f"there is nothing to report on in {str(folder)!r}; give a folder of `tpca fit --out`, `tpca compare --out` or "
        "`tpca reproduce --store`."
    )
