"""What an estimator found, to look at: in a few lines, as a figure, as a page.

The pages and figures are those of :mod:`tpca.report`, imported when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpca.engines import Engine
from tpca.estimators.amplitudes import Amplitudes
from tpca.estimators.learnt_rows import LearntTable, LearntViews
from tpca.solvers.options import parameters_of

if TYPE_CHECKING:
    from tpca.labels import Labels
    from tpca.report.answer import Summary
    from tpca.results import StoredResult

# Options of an estimator that a report tells.
OPTIONS: tuple[str, ...] = ("target", "confidence", "n_components", "memory_limit", "max_samples", "tol", "whiten")
OPTIONS += ("clip", "nan_policy", "groups", "shuffle")


class ShowsComponents(Amplitudes):
    """``summary``, ``plot`` and ``report`` of a fit of samples."""

    solver_: str
    solver_reason_: str

    def summary(self) -> Summary:
        """What was found, in a few lines: strengths, and the largest entries of every vector by name, with errors.

        ``print`` gives text; a notebook shows it as a table.
        """
        from tpca.report.answer import summary_of

        return summary_of(self._result())

    def plot(self, X: Any = None, y: Any = None, *, pair: Sequence[str | int] | None = None) -> Any:
        """Draw what was found; returns the ``matplotlib`` figure.

        For every component the vector of every mode with two standard errors to either side, and two modes as a
        map in the units of the samples, at the largest entries of the other modes.

        Parameters
        ----------
        X
            Samples, whose scores are drawn, too; whatever :meth:`transform` takes.
        y
            A number or label for every sample, over which the scores are drawn; by default over their order.
        pair
            The two modes of the map, down and across, by name or number; by default the two longest.
        """
        from tpca.report.plots import components_figure

        scores = None if X is None else self.transform(X)
        return components_figure(self._result(), scores, y, pair)

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> Path:
        """Write a report, one HTML file that needs no network; returns its path.

        With the samples ``X`` of the fit it also shows their scores, over ``y`` if that is given (a number or label
        for every sample), and checks the noise in one more pass.
        """
        from tpca.report.folder import write_fit_report

        place = Path(path)
        write_fit_report(place, self._result(), None if X is None else self._reader(X, None), y)
        return place

    def _result(self) -> StoredResult:
        """The recovery as it would be read back from a folder."""
        from tpca.results import as_result

        recovery, given = self.recovery_, parameters_of(self)
        settings: dict[str, Any] = {"solver": self.solver_, "solver_reason": self.solver_reason_}
        settings |= {name: given[name] for name in OPTIONS}
        settings |= {name: [str(mode) for mode in given[name]] for name in ("center_modes", "project") if given[name]}
        return as_result(recovery, f"{recovery.n_samples:,} samples", settings)


class ShowsTable(LearntTable):
    """``summary`` of a fit of a table."""

    def summary(self) -> Summary:
        """What was found, in a few lines: how strong, and the largest entries of every direction, with errors."""
        from tpca.labels import Axis, Labels
        from tpca.report.answer import table_summary

        _ = self.recovery_  # refuses what was not fitted
        return table_summary(self, Labels((Axis("column", getattr(self, "feature_names_in_", None)),)))


class ShowsViews(LearntViews):
    """``summary``, ``plot`` and ``report`` of a fit of views."""

    _labels: Labels | None = None  # names of views and columns, where the data have them

    def summary(self) -> Summary:
        """What the views share, in a few lines: correlations, and the largest weights of every view."""
        from tpca.report.answer import summary_of

        return summary_of(self._result())

    def plot(self) -> Any:
        """Draw the loadings of every view, a row for every component; returns the ``matplotlib`` figure.

        A loading is the correlation of a column with the score of its view.
        """
        from tpca.report.plots import loadings_figure

        return loadings_figure(self._result())

    def report(self, path: str | os.PathLike[str], X: Any = None) -> Path:
        """Write a report, one HTML file that needs no network; returns its path.

        With the views ``X`` of the fit it also shows which rows carry the correlation.
        """
        from tpca.report.folder import write_views_report

        place = Path(path)
        write_views_report(place, self._result(), None if X is None else self._views_reader(X))
        return place

    def _result(self) -> StoredResult:
        from tpca.results import as_views_result

        recovery, given = self.recovery_, parameters_of(self)
        settings = {name: given[name] for name in given if name not in ("callbacks", "random_state")}
        plain = [f"view {i}" for i in range(len(self.shape_in_))]
        names = plain if self._labels is None else list(self._labels.modes)
        return as_views_result(recovery, names, settings, self._labels)

    def _views_reader(self, X: Any) -> Engine:
        """Reads views like those that were fitted."""
        raise NotImplementedError
