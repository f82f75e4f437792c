"""``tpca fit``: the estimators, from files.  Python and the command cannot differ: both take the same way."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpca.cli import options
from tpca.cli.cluster import cluster as on_cluster
from tpca.cli.options import either, option, place
from tpca.cli.output import (
    EXIT_CODES,
    check_page,
    check_place,
    check_result,
    check_result_files,
    check_text,
    note,
    put,
    put_json,
    write_report,
)
from tpca.cli.progress import FitProgress
from tpca.cli.streams import check_output_is_open
from tpca.errors import RunInterrupted, SolverError

if TYPE_CHECKING:
    from tpca.labels import Labels
    from tpca.result import Result

SAVED = "tpca.saved"  # whether the result is in its folder, in the meta of a context
KNOWN = ("y", "nuisance", "weights", "groups")  # of every sample, from files


def fit(
    ctx: typer.Context,
    data: options.Data,
    target: Annotated[str | None, option("mean (what all share), effect (of --y), or variance.")] = None,
    y: options.Y = None,
    nuisance: options.Nuisance = None,
    weights: Annotated[str | None, option("How much every sample counts.")] = None,
    groups: Annotated[str | None, option("Subject or session of every sample, as in --y.")] = None,
    n_components: Annotated[int, option("Components to fit.", min=1)] = 1,
    solver: Annotated[
        str, option("least_squares; race: one pass in bounded memory; paper; auto: what fits into memory.")
    ] = "auto",
    confidence: Annotated[float, option("Level of intervals; 1 - confidence is the chance of a false alarm.")] = 0.95,
    n_resamples: Annotated[str, either("Flips of the test, or auto.")] = "auto",
    whiten: Annotated[str, either("auto: whitened statistics help the test; modes: fit whitened data; none.")] = "auto",
    dependence: Annotated[
        str,
        either("auto: correlated neighbours are allowed for; none: independent samples; m: units of m."),
    ] = "auto",
    memory_limit: Annotated[str | None, option("Memory for the fit, such as 64MB.")] = None,
    max_samples: Annotated[int | None, option("Most samples to use.")] = None,
    random_state: Annotated[int, option("Seed of the test, and of random starts.")] = 0,
    tol: Annotated[float | None, option("Of --solver race: error of a vector at which to stop early.")] = None,
    max_passes: Annotated[str | None, either("Of --solver race: most passes over the data, or auto.")] = None,
    strength: Annotated[float | None, option("Of --solver paper: the strength, which it must know.")] = None,
    shrinkage: Annotated[str, either("Of views: shrinkage of the covariances, 0 to 1, or auto.")] = "auto",
    nan_policy: options.NanPolicy = "raise",
    dim: options.Dim = None,
    items: options.Items = "auto",
    shuffle: Annotated[bool, option("Read in random order: data that are sorted or drift.", "--shuffle")] = False,
    sample: options.Sample = None,
    modes: options.Modes = None,
    value: options.Value = None,
    missing: options.Missing = "raise",
    labels: options.Names = None,
    out: Annotated[Path | None, place("Folder for the result, and for checkpoints.")] = None,
    overwrite: options.Overwrite = False,
    report: Annotated[Path | None, place("Write a report, one HTML file.")] = None,
    scores: options.Scores = True,
    checkpoint: Annotated[Path | None, place("Folder for checkpoints; OUT/checkpoint by default.")] = None,
    checkpoint_every: Annotated[float, option("Seconds between checkpoints; 0: every round.")] = 60.0,
    resume: Annotated[bool, option("Go on from the last checkpoint in --out.", "--resume")] = False,
    restart: Annotated[bool, option("Throw the checkpoints away and start afresh.", "--restart")] = False,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    quiet: Annotated[bool, option("Print nothing but errors; the exit code still says.", "--quiet")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Find the pattern that samples share, or say there is none.

    Prints the answer. With --out it is also saved, as result.json and vectors.npz, and a fit that was interrupted, by
    Ctrl-C, SIGTERM or anything else, goes on with --resume.

    With --y the pattern is what follows a condition or a dose; with --target variance, what varies from sample to
    sample. --y, --nuisance, --weights and --groups take a .npy file, an array of another file as d.npz::y, or columns
    of a CSV file with a header, as t.csv::dose. Two or more DATA are views, tables of the same rows: the answer is what
    they share.

    Least squares is taken where its sums fit into memory; where not, the race reads samples in one pass. With --workers
    or --cluster the workers of a Dask cluster read the data.

    Exit code 0: signal; 3: no signal; 4: not tested (--solver paper has no test); 2: bad usage or data; 130 or 143:
    interrupted by Ctrl-C or SIGTERM.
    """
    from tpca.solvers.build import SOLVERS

    ctx.params["target"] = wanted = target or ("mean" if y is None else "effect")
    options.check_word("--target", wanted, ("mean", "effect", "variance"))
    options.check_word("--solver", solver, ("auto", *SOLVERS))
    options.refuse_idle(ctx, "views" if len(data) > 1 else "variance" if wanted == "variance" else solver)
    if wanted == "effect" and y is None:
        raise SolverError(f"--target effect needs --y, a number or a label for every sample; give {options.COLUMNS}.")
    if not quiet:
        check_output_is_open()
    check_text(ctx.params)
    files = [*data, y, nuisance, weights, groups, labels]
    if out is not None:
        check_result_files(out, overwrite, files)
    if report is not None:
        check_page(report, overwrite, made=out, data=files)
    try:
        result = (_fit_views if len(data) > 1 else _fit_samples)(ctx)
    except RunInterrupted as stop:
        note(f"interrupted: {stop} {_command_to_go_on()}")
        raise typer.Exit(128 + stop.signal) from None
    except KeyboardInterrupt:
        note(f"interrupted: {_kept(ctx)}")
        raise typer.Exit(130) from None
    raise typer.Exit(EXIT_CODES[result.verdict])


def _command_to_go_on() -> str:
    """The command that goes on from a checkpoint, in a sentence."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
    return f"Go on with:\n  {shlex.join(['tpca', *words, '--resume'])}"


def _kept(ctx: typer.Context) -> str:
    """What is there after an interrupt that waited for nothing."""
    from tpca.checkpoint import Checkpoints

    out, folder = ctx.params["out"], _checkpoint_folder(ctx.params)
    if SAVED in ctx.meta:
        return f"the result is in {str(out)!r}."
    if folder is not None and len(ctx.params["data"]) == 1 and Checkpoints(folder, 0.0).any():
        return f"what was kept before is in {str(folder)!r}. {_command_to_go_on()}"
    if out is None:
        return "nothing is kept without --out DIR, which --resume goes on from."
    return "nothing was kept."


def _checkpoint_folder(given: dict[str, Any]) -> Path | None:
    """Where checkpoints are left, if anywhere."""
    if given["checkpoint"] is not None or given["out"] is None:
        folder: Path | None = given["checkpoint"]
        return folder
    return Path(given["out"] / "checkpoint")


def _fit_samples(ctx: typer.Context) -> Result:
    """TensorPCA of one file of samples."""
    from tpca.checkpoint import Checkpoints
    from tpca.data.base import check_axis
    from tpca.files import alone_in

    given = ctx.params
    (path,), out, seed = given["data"], given["out"], given["random_state"]
    reading = {name: given[name] for name in ("items", "nan_policy")}
    stream = options.opened(path, given, shuffle=given["shuffle"], random_state=seed, **reading)
    stream.labels = _labels(given["labels"], stream.dims, stream.labels)
    known = {name: options.read_columns(given[name], labels=name == "groups") for name in KNOWN}
    if given["sample"] is None:  # a table has no axes
        check_axis(None, stream, given["dim"], **{f"--{name}": one for name, one in known.items()})
    folder = _checkpoint_folder(given)
    kept = None if folder is None else Checkpoints(folder, given["checkpoint_every"])
    keeping = {} if kept is None else {name: given[name] for name in ("checkpoint_every", "resume")}
    keeping |= {} if kept is None else {"checkpoint": folder}
    progress = FitProgress(given["quiet"])
    pca, settings = _estimator(given, {"random_state": seed, "callbacks": [progress], **keeping})
    settings |= {name: given[name] for name in (*options.LAYOUT, "items", "shuffle", "nan_policy", *KNOWN)}
    settings |= {"random_state": seed, "data": stream.identity}
    if kept is not None:
        check_place(kept.folder)
        if given["restart"]:
            with alone_in(kept.folder):
                kept.clear()
    # What a fit that is gone on with left half written is its own.
    if out is not None and not given["overwrite"] and not (given["resume"] and kept is not None and kept.any()):
        check_result(out, path, settings)
    limits = [one for one in (stream.length, given["max_samples"]) if one is not None]
    with on_cluster(given["cluster"], given["workers"], stream) as source, progress.watching(min(limits, default=None)):
        pca._fit(source, seed, tuple(known.values()), given["dim"], keeping, [progress])
    result: Result = pca.result_
    result.source, result.settings = path, {**result.settings, **settings}
    if out is not None:
        result.save(out, overwrite=given["overwrite"])
        ctx.meta[SAVED] = True
    if kept is not None:
        kept.clear()
    _show(given, result, lambda: (result.transform(options.opened(path, given, **reading)), known["y"]))
    return result


def _estimator(given: dict[str, Any], more: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """TensorPCA with the options given, and these as settings; a solver with options of its own is made with them."""
    from tpca.estimators import TensorPCA
    from tpca.solvers.build import SOLVERS
    from tpca.solvers.options import OPTIONS

    asked = {name: given[name] for name in OPTIONS}
    own = {name: given[name] for name in options.OF_ONE if given[name] is not None}
    of_fit = {"target": given["target"], "nan_policy": given["nan_policy"]}
    settings = {**asked, **own, **of_fit, "solver_asked": given["solver"]}
    if given["solver"] == "paper" and "strength" not in own:
        raise SolverError("--solver paper must know the strength: give --strength, or use --solver race.")
    if not own:
        return TensorPCA(**asked, **of_fit, solver=given["solver"]), settings
    kind = SOLVERS[given["solver"]]
    shared = {name: one for name, one in asked.items() if hasattr(kind, name)}
    return TensorPCA(**of_fit, solver=kind(**shared, **own, **more)), settings


def _fit_views(ctx: typer.Context) -> Result:
    """TensorCCA of one file for every view."""
    from tpca.data.rows import open_views
    from tpca.estimators import TensorCCA
    from tpca.result import Result

    given, progress = ctx.params, FitProgress(ctx.params["quiet"])
    names = ("shrinkage", "n_components", "confidence", "memory_limit", "random_state", "nan_policy")
    settings: dict[str, Any] = {name: given[name] for name in names}
    cca = TensorCCA(**settings, callbacks=[progress])
    stream = open_views(given["data"], nan_policy=given["nan_policy"])
    labels = _labels(given["labels"], stream.dims)
    settings["data"] = stream.identity
    if given["out"] is not None and not given["overwrite"]:
        check_result(given["out"], given["data"], settings)
    with (
        on_cluster(given["cluster"], given["workers"], stream) as source,
        progress.watching(None),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the answer says it
        cca.fit(source)
    result = Result.of_views(cca.fit_, given["data"], settings, labels)
    if given["out"] is not None:
        result.save(given["out"], overwrite=given["overwrite"])
        ctx.meta[SAVED] = True
    _show(given, result, lambda: (result.transform(stream), None))
    return result


def _show(given: dict[str, Any], result: Result, read: Callable[[], tuple[Any, Any]]) -> None:
    """Write the report if one was asked for, with the scores that ``read`` gives; and print the answer."""
    if given["report"] is not None:
        write_report(result, given["report"], read if given["scores"] else None, given["overwrite"])
    if given["as_json"]:
        put_json(json.loads(result.to_json()))
    elif not given["quiet"]:
        put(str(result.summary()))
        for word, path in (("saved to", given["out"]), ("report in", given["report"])):
            if path is not None:
                put(f"{word} {path}")


def _labels(path: Path | None, dims: tuple[int, ...], own: Labels | None = None) -> Labels | None:
    """The names given, and beside them those that the data have."""
    from tpca.labels import read_labels

    if path is None:
        return own
    given = read_labels(path, dims)
    return given if own is None else given.with_others(own)
