"""How figures look: readable on light and on dark ground, told apart without colour vision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpca.errors import OutputError, TpcaError, one_line
from tpca.files import Kind, replacing

# Okabe–Ito without black and yellow, which vanish on dark or light ground.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
# Contrast of about 4.3 against white and against #111.
INK = "#7f7f7f"
FIGURE = Kind("a figure of tpca", b"Software\0tpca")  # the first words of a PNG file


def pyplot() -> Any:
    """Matplotlib's pyplot, with the backend that the user has; needs matplotlib (``pip install "tpca[plots]"``)."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise TpcaError('a figure needs matplotlib; install it with: pip install "tpca[plots]"') from error
    except ValueError as error:
        raise unusable_backend(error) from error
    return plt


def unusable_backend(cause: Exception) -> OutputError:
    """The error where matplotlib cannot draw with the backend that the environment names."""
    name = os.environ.get("MPLBACKEND")
    return OutputError(
        f"matplotlib cannot draw with the backend MPLBACKEND={name!r} ({one_line(cause)}); unset MPLBACKEND, or set it "
        "to Agg."
    )


def settings() -> dict[str, Any]:
    """Of matplotlib, for all of our figures."""
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "axes.titlecolor")
    chosen: dict[str, Any] = dict.fromkeys(ink, INK)
    chosen |= {"axes.grid": True, "grid.color": INK, "grid.alpha": 0.25, "grid.linewidth": 0.6}
    chosen |= {"legend.frameon": False, "legend.labelcolor": INK, "font.size": 10, "axes.titlesize": 11}
    return chosen | {"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tpca"}


@contextmanager
def drawing() -> Iterator[Any]:
    """Pyplot with our settings, drawing into files only."""
    plt = pyplot()
    plt.switch_backend("Agg")
    with plt.rc_context(settings()):
        yield plt
    plt.close("all")


def save(figure: Any, path: Path, overwrite: bool = False) -> Path:
    """Write the figure in the format of the suffix, on transparent ground.

    A file there that is no PNG of ours is replaced only with ``overwrite``.
    """
    form = path.suffix.removeprefix(".").lower()
    if form not in figure.canvas.get_supported_filetypes():
        raise OutputError(f"cannot write the figure {str(path)!r}: no format {form!r}; give a .png or .svg file.")
    metadata = {"png": {"Software": "tpca"}, "svg": {"Date": None}}.get(form)  # the same figure is the same file
    with replacing(path, kinds=[FIGURE], overwrite=overwrite) as (draft,):
        figure.savefig(draft, dpi=110, transparent=True, metadata=metadata, format=form)
    return path
