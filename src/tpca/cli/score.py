"""``tpca score``: how a result does on data, and how far it is from the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli.applies import refuse_idle
from tpca.cli.data import DATA, Missing, Modes, Sample, SampleDim, Value, layout_as_fitted
from tpca.cli.outputs import put_json
from tpca.wording import with_error

if TYPE_CHECKING:
    from tpca.results import StoredResult
    from tpca.tensors.blocks import Array


WORDS = ("rewards", "variances", "slopes")  # of what all samples share, of what varies, and of what follows y
SAID = {"rewards": "mean score", "variances": "variance of the scores", "slopes": "slope of the scores"}


def score(
    ctx: typer.Context,
    paths: Annotated[list[str], typer.Argument(help=DATA, show_default=False, metavar="PATH")],
    result: Annotated[Path, typer.Argument(help="Folder that tpca fit wrote.", show_default=False)],
    truth: Annotated[bool, typer.Option("--truth", help="Compare with the truth beside the data.")] = False,
    y: Annotated[str | None, typer.Option(help="Of an effect: a number or label per sample, as in fit.")] = None,
    nuisance: Annotated[str | None, typer.Option(help="Of an effect: columns whose effect is taken out.")] = None,
    nan_policy: Annotated[str, typer.Option(help="NaN, Inf: raise, omit (the sample), zero (use the rest).")] = "raise",
    items: Annotated[str, typer.Option(help="What each file of a folder is: batches, samples, or auto.")] = "auto",
    sample_dim: SampleDim = None,  # noqa: ARG001
    sample: Sample = None,  # noqa: ARG001
    modes: Modes = None,  # noqa: ARG001
    value: Value = None,  # noqa: ARG001
    missing: Missing = "raise",  # noqa: ARG001
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Try a result on other data: mean score, standard error.

    Of a fit with --target variance, the variance of the rewards; with --target effect, their slope on --y.

    With --truth also the overlap of every vector with the planted one (1 is perfect).

    Axes and columns are those of the fit, unless they are given.

    Of a fit of views, the correlation of the scores; give one PATH for every view.
    """
    import numpy as np

    from tpca.engines import mean_and_error, open_engine, reward_pieces
    from tpca.errors import StreamError
    from tpca.results import names_of, read_result
    from tpca.streams import open_stream
    from tpca.streams.writing import read_truth, truth_path

    stored = read_result(result)
    effects = [str(c.get("effect") or "") for c in stored.summary["components"]]
    refuse_idle(ctx, "effects" if any(effects) else str(stored.summary.get("kind", "samples")))
    if stored.vectors and stored.summary.get("kind") == "views":
        _score_views(paths, stored, nan_policy, as_json)
        return
    if not stored.vectors:
        raise StreamError(f"no signal was found in {str(result)!r}: there is nothing to score; fit more samples.")
    if len(paths) > 1:
        raise StreamError(f"one PATH holds the samples, got {len(paths)}; several are for a fit of views.")
    (path,) = paths
    how = layout_as_fitted(ctx.params, stored.summary.get("settings", {}), stored.labels)
    stream = open_stream(path, items=items, nan_policy=nan_policy, **how)  # type: ignore[arg-type]
    fitted = tuple(v.shape[1] for v in stored.vectors)
    if stream.dims != fitted:
        raise StreamError(f"the samples have shape {stream.dims}, the result {fitted}; give samples of that shape.")
    if stored.labels and stream.labels and (other := stored.labels.difference(stream.labels)):
        raise StreamError(f"the samples are labelled in another way than the result: {other}; put them in that order.")
    known = read_truth(truth_path(path)) if truth else None
    pieces, components = reward_pieces(open_engine(stream), stored.vectors), len(stored.vectors[0])
    varying = stored.summary["solver"] == "variance"
    if any(effects):
        means, errors, count = _slopes(np.concatenate(list(pieces)), stored, effects, y, nuisance)
    else:
        found = mean_and_error(_squares(pieces) if varying else pieces, components)
        means, errors, count = found[0].tolist(), found[1].tolist(), found[2]
    word = WORDS[2 if any(effects) else varying]
    report: dict[str, Any] = {"samples": count, word: means, "standard_errors": errors}
    if known is not None:
        each = [known.overlaps([v[c] for v in stored.vectors]) for c in range(len(means))]
        best = max(range(len(each)), key=lambda c: float(each[c].min()))
        report |= {
            "modes": list(names_of(stored.summary)),
            "component": best,
            "overlaps": [float(o) for o in each[best]],
            "strength": known.strength,
        }
    if as_json:
        put_json(report)
        return
    _print(report)


def _slopes(
    rewards: Array, stored: StoredResult, effects: list[str], y: str | None, nuisance: str | None
) -> tuple[list[float], list[float], int]:
    """For every component the slope of its rewards on what it is the effect of, beside all else that is told."""
    import numpy as np

    from tpca.cli.effects import COLUMNS, read_columns
    from tpca.errors import StreamError
    from tpca.estimators.amplitudes import regressors, slope_score
    from tpca.streams.conditions import read_conditions

    if y is None:
        raise StreamError(f"the result is {_of(effects[0])}: the score is the slope on --y; give {COLUMNS}.")
    amplitudes = [c.get("label_amplitudes") or {} for c in stored.summary["components"]]
    known = tuple(amplitudes[0]) or None
    told = read_conditions("effect", len(rewards), read_columns(y), read_columns(nuisance), labels=known)
    assert told.covariates is not None
    asked = told.covariates.questions
    if unknown := [effect for effect in effects if effect not in asked]:
        raise StreamError(
            f"the result is {_of(unknown[0])}, and --y {y} has {', '.join(map(_of, asked))}; give the same labels, or "
            "columns, as for the fit."
        )
    of_labels = np.array([list(one.values()) for one in amplitudes]) if known else None
    strengths = np.array([c["strength"] for c in stored.summary["components"]])
    each = regressors(told.covariates, effects, of_labels, strengths)
    found = [slope_score(rewards[:, [c]], [own], told.nuisance) for c, own in enumerate(each)]
    return [float(one) for one in found], [one.standard_error for one in found], len(rewards)


def _of(effect: str) -> str:
    return f"the effect {effect}" if effect.startswith("between ") else f"the effect of {effect}"


def _squares(pieces: Iterable[Any]) -> list[Any]:
    """Squares of rewards about their mean, whose mean is the variance; rewards, unlike samples, can be held."""
    import numpy as np

    rewards = np.concatenate(list(pieces))
    return [(rewards - rewards.mean(axis=0)) ** 2 * (len(rewards) / max(1, len(rewards) - 1))]


def _score_views(paths: list[str], stored: StoredResult, nan_policy: str, as_json: bool) -> None:
    """Mean product of the standardised scores of all views, by component, with its standard error."""
    import numpy as np

    from tpca.errors import StreamError
    from tpca.results import views_scores
    from tpca.streams.views import open_views

    stream = open_views(paths, nan_policy=nan_policy)
    fitted = tuple(v.shape[1] for v in stored.vectors)
    if stream.dims != fitted:
        raise StreamError(f"the views have widths {stream.dims}, the result {fitted}; give views of those widths.")
    products = np.prod(views_scores(stored, stream), axis=0)
    count = len(products)
    errors = products.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else np.full(products.shape[1], math.nan)
    report = {"rows": count, "correlations": products.mean(axis=0).tolist(), "standard_errors": errors.tolist()}
    if as_json:
        put_json(report)
        return
    for c, (mean, error) in enumerate(zip(report["correlations"], report["standard_errors"], strict=True)):
        print(f"component {c}: correlation {with_error(mean, error)} over {count:,} rows")


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    kind = next(name for name in WORDS if name in report)
    for c, (mean, error) in enumerate(zip(report[kind], report["standard_errors"], strict=True)):
        told = f"component {c}: {SAID[kind]} {with_error(mean, error)}"
        console.print(f"{told} over {report['samples']:,} samples")
    if "overlaps" in report:
        console.print(f"Component {report['component']} against the truth of strength {report['strength']:g}:")
        table = Table("", "overlap")
        for name, overlap in zip(report["modes"], report["overlaps"], strict=True):
            table.add_row(escape(name), f"{overlap:.4f}")
        console.print(table)
