"""What a fit gave, of samples or of views: to save, load, print, draw, and to use on other samples.

A saved result is a folder with two files.  ``result.json`` has all numbers and words; ``vectors.npz`` has arrays, for
every axis m of a sample ``mode_m`` (components as rows), ``standard_error_m``, and where they are known
``loading_m``, ``mean_m``, ``observed_m``, ``entry_p_values``, ``null_distribution`` and ``sample_labels``.  The bytes
of both depend on the result only.  ``result.json`` knows the checksum of ``vectors.npz``: both are of one fit, or they
are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tpca import __version__
from tpca.data import Stream
from tpca.data.alignment import SampleLabels, align, aligned_with, labels_of_samples
from tpca.data.iterables import Preprocessed
from tpca.data.numpy_files import npz_bytes, read_npz
from tpca.data.rows import open_views
from tpca.data.stores import package
from tpca.engines import DaskEngine, Engine, StreamEngine, is_engine, mean_and_error, open_engine, reward_pieces
from tpca.engines.local import reader, rows_opened
from tpca.errors import JSON_BYTES, SampleError, StreamError, check_regular, reading
from tpca.files import Kind, named_place, replacing
from tpca.inference.design import Design, read_design
from tpca.labels import Axis, Labels, parse_labels
from tpca.solvers.components import Matching, match_components
from tpca.solvers.estimate import Estimate, StopReason, Verdict
from tpca.solvers.rank_one import oriented
from tpca.solvers.views import ViewsFit, standardised
from tpca.tensors import Rewards
from tpca.tensors.blocks import Array
from tpca.tensors.namespaces import to_device, working_like
from tpca.tensors.rows import BatchLists, placed_scores
from tpca.wording import count, percent, printable

if TYPE_CHECKING:
    from tpca.report.words import Summary

    Number = float
else:

    class _Floats(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, float)

    class Number(metaclass=_Floats):
        """A float; NaN and infinity are null in JSON, which has neither."""


Count = Annotated[int, msgspec.Meta(ge=0)]
MANY_LEFT_OUT = 0.1  # of all samples, from which on a line says so
TRIES, PAUSE = 10, 0.01  # at reading a result that somebody is writing, and seconds between them


class Score(float):
    """A number with its ``standard_error``, of ``n_samples`` samples; ``n_skipped`` were left out."""

    standard_error: float
    n_samples: int
    n_skipped: int

    def __new__(cls, value: float, standard_error: float, n_samples: int = 0, n_skipped: int = 0) -> Self:
        """The number ``value`` and its ``standard_error``."""
        score = super().__new__(cls, value)
        score.standard_error = standard_error
        score.n_samples = n_samples
        score.n_skipped = n_skipped
        return score

    @classmethod
    def mean(cls, pieces: Iterable[Array]) -> Score:
        """The mean of rows of numbers, each the sum of its columns."""
        mean, error, n_samples = mean_and_error((piece.sum(axis=1, keepdims=True) for piece in pieces), 1)
        return cls(float(mean[0]), float(error[0]), n_samples)

    def with_skipped(self, n_skipped: int) -> Score:
        """The same, and how many samples were left out."""
        return Score(float(self), self.standard_error, self.n_samples, n_skipped)

    def __repr__(self) -> str:
        text = f"{float(self):.6g} ± {self.standard_error:.2g}"
        if self.n_skipped:
            text += f" ({count(self.n_samples, 'sample')}, {self.n_skipped:,} left out)"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (Score, (float(self), self.standard_error, self.n_samples, self.n_skipped))


@dataclass(frozen=True, eq=False)
class SampleScores:
    """Scores ``(n, rows)`` of samples, NaN where one was left out; which were ``used``; their labels, if they have any.

    ``like`` is an array of the device that the samples are on.
    """

    values: Array
    used: NDArray[np.bool_]
    labels: SampleLabels | None
    like: Any = None


class Component(msgspec.Struct, kw_only=True, frozen=True):
    """One component in numbers; what a method does not tell is NaN.

    ``strength`` is that of the pattern; of views the correlation on held-out rows, whose standard error is
    ``correlation_error``.  ``statistic`` is what the test compares with the null distribution; ``length`` is the mean
    score of the very samples that were fitted.
    ``half_agreement`` is the cosine of the patterns that two halves of the samples show, averaged over five splits.
    ``joint_share`` is the share of the estimate that a joint fit of this component and those before it is.
    """

    strength: Number
    strength_interval: tuple[Number, Number] | None = None
    p_value: Number = math.nan
    significant: bool = False
    effect: str = ""
    label_amplitudes: dict[str, Number] | None = None
    variance: Number = math.nan
    variance_ratio: Number = math.nan
    length: Number = math.nan
    statistic: Number = math.nan
    e_value: Number = math.nan
    half_agreement: Number = math.nan
    joint_share: Number = math.nan
    correlation_error: Number = math.nan
    moment: Number = math.nan


class Settings(msgspec.Struct):
    """What must hold of settings that are used again; of others nothing is asked."""

    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95
    target: Literal["mean", "effect", "variance"] = "mean"
    nan_policy: Literal["raise", "omit", "zero"] = "raise"
    dim: str | int | None = None
    classes: list[str] = []
    preprocess: str | None = None


class Record(msgspec.Struct, kw_only=True, eq=False, tag_field="format", tag="tpca result 1"):
    """What ``result.json`` holds."""

    kind: Literal["samples", "views"]
    source: str | list[str]
    settings: dict[str, Any]
    solver: str
    verdict: Verdict
    stop_reason: str
    p_value: Number
    dims: Annotated[list[Annotated[int, msgspec.Meta(ge=1)]], msgspec.Meta(min_length=1)]
    names: dict[str, Any] = msgspec.field(name="labels", default_factory=dict)
    components: Annotated[list[Component], msgspec.Meta(min_length=1)]
    advice: list[str] = []
    n_samples: Count
    n_skipped: Count = 0
    n_passes: Count = 1
    n_units: Count = 0
    n_resamples: Count = 0
    noise_level: Number = math.nan
    inflation: Number = 1.0
    rank_one_shares: list[Number] = []
    state_bytes: Count = 0
    buffer_bytes: Count = 0
    tpca_version: str = ""
    vectors_sha256: str = ""


RECORD = Record.__struct_fields__


class Result(Record, kw_only=True, eq=False, tag_field="format", tag="tpca result 1", dict=True):
    """What a fit gave.

    Attributes
    ----------
    kind : {"samples", "views"}
    verdict, found, p_value : Verdict, bool, float
        "signal", "no signal" or "not tested"; whether it is the first; and p of there being any signal.
    components : list of Component
        ``strength``, ``strength_interval``, ``p_value``, ``significant``, ``effect`` and the like, strongest first.
    vectors, errors : lists of arrays ``(rows, d_m)``, one per axis of a sample
        Unit vectors and their standard errors, NaN where a method has none.  Of views ``vectors`` are weights
        of columns; ``loadings`` are what to look at: correlations with scores.
    entry_p_values : array ``(d_1, ..., d_k)``, with q covariates ``(q, d_1, ..., d_k)``, or None
    null_distribution : array ``(rows, n_resamples)`` or None
    labels : Labels
        Names of axes and of their entries.
    sample_labels : array ``(n,)`` or None
        Labels of the samples that were given, those left out among them: the index of a frame, the coordinate of a
        ``DataArray``, the samples of a long table.
    advice : list of str
        A line each, with a number and one action.
    dims, n_samples, n_skipped, n_units, n_resamples, solver, settings, source
        Of what the fit was, and how it was done.
    preprocess : callable, optional
        The function of the fit.  A file keeps its name only: set it again before ``transform`` and ``score``.
    """

    vectors: list[Any]
    errors: list[Any]
    loadings: list[Any] = []
    means: list[Any] = []
    observed: list[Any] = []
    entry_p_values: Any = None
    null_distribution: Any = None
    sample_labels: Any = None
    preprocess: Any = None

    # From a fit -------------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, estimate: Estimate, source: str = "", settings: dict[str, Any] | None = None) -> Result:
        """The result of a fit of samples; ``settings`` say what was asked for, ``source`` where the samples were."""
        rows = estimate.components
        dims = [len(v) for v in rows[0].vectors]
        unknown = tuple(np.full(d, math.nan) for d in dims)
        entries, nulls = estimate.entry_p_values, [c.null for c in rows]
        fields = {name: getattr(estimate, name) for name in RECORD if name in Estimate.__dataclass_fields__}
        fields |= {
            "advice": list(estimate.advice),
            "rank_one_shares": [float(share) for share in estimate.rank_one_shares],
            "p_value": estimate.signal_p,
            "source": source,
            "dims": dims,
            "vectors": [np.stack(mode) for mode in zip(*(oriented(c.vectors) for c in rows), strict=True)],
            "errors": [np.stack(mode) for mode in zip(*(c.standard_errors or unknown for c in rows), strict=True)],
            "observed": list(estimate.observed or ()),
            "entry_p_values": None if not entries else entries[0] if len(entries) == 1 else np.stack(entries),
            "null_distribution": None if any(one is None for one in nulls) else np.stack(nulls),  # type: ignore[arg-type]
        }
        return cls._ended("samples", estimate.stop_reason, settings, estimate.labels, fields)

    @classmethod
    def of_views(
        cls, fit: ViewsFit, sources: Sequence[str], settings: dict[str, Any] | None = None, labels: Labels | None = None
    ) -> Result:
        """The result of a fit of views, which go by their ``sources`` where ``labels`` do not name them."""
        plain = Labels(tuple(Axis(PurePath(str(one)).name) for one in sources))
        z = float(ndtri(0.5 + float((settings or {}).get("confidence", 0.95)) / 2))
        each = {"strength": fit.correlations, "correlation_error": fit.correlation_errors, "moment": fit.moments}
        each["strength_interval"] = fit.correlations[:, None] + z * np.outer(fit.correlation_errors, [-1, 1])
        fields = {
            "source": [str(one) for one in sources],
            "solver": "moments",
            "n_samples": fit.n_samples,
            "n_skipped": fit.n_skipped,
            "p_value": float(fit.p_values[0]),
            "dims": [len(mean) for mean in fit.means],
            "components": _rows(each | {"p_value": fit.p_values, "significant": fit.significant}),
            "advice": fit.advice,
            "vectors": fit.weights,
            "errors": [np.full(w.shape, math.nan) for w in fit.weights],
            "loadings": fit.loadings,
            "means": list(fit.means),
        }
        reason = StopReason.STREAM_ENDED if fit.significant.any() else StopReason.NO_SIGNAL
        return cls._ended("views", reason, settings, plain if labels is None else labels.with_others(plain), fields)

    @classmethod
    def _ended(
        cls, kind: str, reason: StopReason, settings: Any, labels: Labels | None, fields: dict[str, Any]
    ) -> Result:
        """Numbers of NumPy become Python's, and settings are as a file would give them back."""
        components = msgspec.convert(fields["components"], list[Component], from_attributes=True, dec_hook=_number)
        names = {} if labels is None else labels.as_json()
        samples = None if labels is None else labels.samples
        left_out = left_out_advice(int(fields["n_samples"]), int(fields["n_skipped"]), settings or {})
        fields = fields | {"advice": [*fields["advice"], *left_out], "sample_labels": samples}
        plain = msgspec.json.decode(msgspec.json.encode(settings or {}, enc_hook=_builtin))
        ended = {"verdict": reason.verdict, "stop_reason": reason.name, "tpca_version": __version__}
        return cls(**(fields | ended | {"kind": kind, "settings": plain, "names": names, "components": components}))

    # What it says -----------------------------------------------------------------------------------------------------

    @property
    def found(self) -> bool:
        """Whether a signal was proven."""
        return self.verdict is Verdict.SIGNAL

    @property
    def n_proven(self) -> int:
        """How many components are proven."""
        return sum(component.significant for component in self.components)

    @functools.cached_property
    def labels(self) -> Labels:
        """Names of axes and of their entries; numbers where there are none."""
        return parse_labels(self.names, self.dims)

    @property
    def confidence(self) -> float:
        """The level of intervals; at most ``1 - confidence`` of all fits to noise say "signal"."""
        return float(self.settings.get("confidence", 0.95))

    @property
    def target(self) -> str:
        """What was looked for: "mean", "effect" or "variance"."""
        return str(self.settings.get("target", "mean"))

    @property
    def shown(self) -> list[Array]:
        """What is looked at, ``(rows, d_m)`` for every axis: vectors, or loadings of views."""
        return list(self.loadings or self.vectors)

    def __repr__(self) -> str:
        return f"<tpca.Result of {self.n_samples:,} {'samples' if self.kind == 'samples' else 'rows'}: {self.verdict}>"

    def summary(self) -> Summary:
        """What was found, in a few lines; ``print`` gives text, a notebook shows a table."""
        from tpca.report.words import summary_of

        return summary_of(self)

    def methods(self) -> str:
        """A paragraph for a paper: what was fitted, and what p-values and intervals rest on."""
        from tpca.report.words import methods_of

        return methods_of(self)

    def plot(self, scores: Any = None, y: Any = None, pair: Sequence[str | int] | None = None) -> Any:
        """Draw the components, and ``scores`` of samples ``(n, rows)``, over ``y`` if given; a matplotlib figure.

        ``pair`` names the two axes of the map, by name or number.
        """
        from tpca.report.figures import overview

        return overview(self, scores, y, pair)

    def report(
        self, path: str | os.PathLike[str], scores: Any = None, y: Any = None, *, overwrite: bool = False
    ) -> Path:
        """Write a report, one HTML file that needs no network and runs no script; returns its path.

        A report that is there is replaced, any other file only with ``overwrite``.
        """
        from tpca.report.page import write_page

        return write_page(named_place(path), self, scores, y, overwrite)

    def match(self, other: Any) -> Matching:
        """Which component of another fit belongs to each of these: a :class:`~tpca.solvers.components.Matching`.

        ``other`` is a result, a fitted estimator, or a list of arrays ``(rows, d_m)``, one for every axis.
        """
        theirs = getattr(other, "result_", other)
        return match_components(self.vectors, getattr(theirs, "vectors", theirs))

    def to_xarray(self) -> Any:
        """An ``xarray.Dataset``: for every axis m ``vector_m``, ``standard_error_m`` and ``interval_m``, with names.

        An interval is an entry and z standard errors to either side, z the normal quantile of the confidence.  Numbers
        of components are variables along ``component``; what is said of the whole fit is among the attributes.
        """
        xarray = package("xarray", "xarray", "to_xarray")
        z = float(ndtri(0.5 + self.confidence / 2))
        own = ("component", "bound", "label", "effect", *Component.__struct_fields__)
        variables: dict[str, Any] = {}
        coords: dict[str, Any] = {"component": np.arange(len(self.components)), "bound": ["low", "high"]}
        axes: list[str] = []
        for mode, (axis, shown, errors) in enumerate(zip(self.labels.axes, self.shown, self.errors, strict=True)):
            name = axis.name.replace(" ", "_") if axis.name else f"axis_{mode}"
            axes.append(name := f"{name}_axis" if name in own else name)
            coords |= {} if axis.coords is None else {name: axis.coords}
            variables[f"vector_{name}"] = (("component", name), shown)
            variables[f"standard_error_{name}"] = (("component", name), errors)
            ends = np.stack([shown - z * errors, shown + z * errors], axis=-1)
            variables[f"interval_{name}"] = (("component", name, "bound"), ends, {"confidence": self.confidence})
        effects = [c.effect for c in self.components]
        if self.entry_p_values is not None:
            several = self.entry_p_values.ndim > len(axes)
            coords |= {"effect": list(dict.fromkeys(effects))} if several else {}
            variables["entry_p_value"] = ((*["effect"] * several, *axes), self.entry_p_values)
        for name in Component.__struct_fields__:
            each, along = [getattr(c, name) for c in self.components], ["component"]
            if name == "strength_interval":
                each, along = [ends or (math.nan, math.nan) for ends in each], ["component", "bound"]
            if name == "label_amplitudes" and each[0]:
                coords["label"] = list(each[0])
                each, along = [list((one or {}).values()) for one in each], ["component", "label"]
            if name != "effect" and each[0] is not None:
                variables[name] = (along, each)
        variables["component_effect"] = ("component", effects)
        told = {name: getattr(self, name) for name in RECORD}
        attributes = {name: one for name, one in told.items() if isinstance(one, str | float | int)}
        attributes |= {"verdict": str(self.verdict), "advice": " ".join(self.advice), "sample_dim": self.labels.sample}
        return xarray.Dataset(variables, coords, attributes)

    # Other samples ----------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Scores ``(n, rows)`` of samples like those fitted; of views a list of them; of a DataArray, a DataArray.

        Several components of the mean, or of an effect, explain a sample together: their scores are least squares.
        There is a row for every sample, of NaN where ``nan_policy`` leaves the sample out.  Of samples on a device the
        scores are an array of the same library there.
        """
        if self.kind != "samples":
            scores, _ = self._row_scores(X)
            return scores
        return self._as_given(X, self._sample_scores(X))

    def transform_with(self, X: Any, y: Any) -> tuple[Any, Any]:
        """The scores that :meth:`transform` gives, and ``y`` in the order of the samples, by the labels of both."""
        if self.kind != "samples":
            scores, labels = self._row_scores(X)
            in_order, _ = align("y", y, labels)
            return scores, in_order
        scored = self._sample_scores(X)
        in_order, _ = align("y", y, scored.labels)
        return self._as_given(X, scored), in_order

    def _as_given(self, X: Any, scored: SampleScores) -> Any:
        """Scores in the form of the samples: a DataArray, or an array on their device."""
        rewards = scored.values
        if hasattr(X, "dims") and hasattr(X, "coords"):  # a DataArray, whose samples have coordinates
            dim = self.settings.get("dim")
            axis = X.dims[0] if dim is None else dim if isinstance(dim, str) else X.dims[dim]
            coords = {name: one for name, one in X.coords.items() if one.dims == (axis,)}
            coords["component"] = np.arange(rewards.shape[1])
            return type(X)(rewards, coords=coords, dims=(axis, "component"))
        return rewards if scored.like is None else to_device(rewards, working_like(scored.like))

    def score(self, X: Any, y: Any = None, *, nuisance: Any = None) -> Score:
        """What samples show of the components, summed over these, with its standard error.

        Of the mean, the mean score; of an effect, the slope of scores on ``y`` beside ``nuisance``; of variation, the
        variance of the scores; of views, the mean product of standardised scores.  ``y`` and ``nuisance`` are matched
        with the samples by label where both have labels.  The score counts samples that were left out as ``n_skipped``.
        """
        if self.kind == "views":
            by_view = np.stack([view.T for view in self.transform(X)])  # (views, c, n)
            used = np.isfinite(by_view).all(axis=(0, 1))
            refuse_unscored(int(np.sum(used)), int(np.sum(~used)))
            each = standardised(by_view[:, :, used])
            return Score.mean([np.prod(each, axis=0).T]).with_skipped(int(np.sum(~used)))
        if self.target == "mean":
            engine = self._engine(X)
            score = Score.mean(reward_pieces(engine, self.vectors, self._fitted_together()))
            refuse_unscored(score.n_samples, engine.n_skipped)
            return score.with_skipped(engine.n_skipped)
        scored = self._sample_scores(X)
        skipped = int(np.sum(~scored.used))
        refuse_unscored(len(scored.used) - skipped, skipped)
        scores = scored.values[scored.used]
        if self.target == "variance":
            squares = (scores - scores.mean(axis=0)) ** 2 * (len(scores) / max(len(scores) - 1, 1))
            return Score.mean([squares]).with_skipped(skipped)
        in_order, _ = aligned_with(scored.labels, y=y, nuisance=nuisance)
        labels = tuple(self.settings.get("classes") or self.components[0].label_amplitudes or ())
        design = read_design("effect", len(scored.values), **in_order, labels=labels, part=True)
        assert design.columns is not None
        used_design = dataclasses.replace(design, columns=design.columns[scored.used])
        return self._slope_score(scores, used_design).with_skipped(skipped)

    def _fitted_together(self) -> list[list[int]]:
        """Rows of components that explain a sample together: those of one effect, where there are several."""
        if self.target == "variance":
            return []
        rows: dict[str, list[int]] = {}
        for row, component in enumerate(self.components):
            rows.setdefault(component.effect, []).append(row)
        return [block for block in rows.values() if len(block) > 1]

    def _sample_scores(self, X: Any) -> SampleScores:
        """The score of every sample of ``X``, in the order of the samples."""
        engine = self._engine(X)
        rewards = engine.reduce(Rewards(self.vectors, self._fitted_together()))
        labels = labels_of_samples(X, engine.labels)
        like = getattr(engine, "like", None)
        values, used = in_order_of_data(rewards.rewards, rewards.places, engine.n_skipped)
        return SampleScores(values, used, labels, like)

    def _row_scores(self, X: Any) -> tuple[list[Array], SampleLabels | None]:
        """Scores of every view, in the order of the rows; and the labels of these."""
        policy = str(self.settings.get("nan_policy", "raise"))
        if isinstance(X, Stream) or is_engine(X):
            policy = "raise"  # its own is kept
        stream, reads = rows_opened(X, functools.partial(open_views, nan_policy=policy))
        if stream.dims != tuple(self.dims):
            raise SampleError(f"views must have the columns that were fitted, {tuple(self.dims)}, got {stream.dims}.")
        engine = reads(stream)
        *scores, places = engine.reduce(BatchLists(placed_scores, self.vectors, self.means)).joined()
        return [in_order_of_data(view, places, engine.n_skipped)[0] for view in scores], stream.samples

    def _slope_score(self, scores: Array, design: Design) -> Score:
        """Sum over components of the slope of their scores; errors of unequal size allowed for (White, 1980)."""
        assert design.columns is not None
        effects = list(dict.fromkeys(component.effect for component in self.components))
        total, influence, n, width = 0.0, np.zeros(len(scores)), len(scores), 0
        for own, component in zip(scores.T, self.components, strict=True):
            _, asked = design.questions[min(effects.index(component.effect), len(design.questions) - 1)]
            a, target = np.delete(design.columns, asked, axis=1), design.columns[:, asked]
            if component.label_amplitudes:
                amplitudes = np.array(list(component.label_amplitudes.values()))
                whole = np.column_stack([target, -target.sum(axis=1)])
                target = whole @ amplitudes[:, None] / max(component.strength, 1e-300)
            left = target[:, 0] - a @ np.linalg.lstsq(a, target[:, 0], rcond=None)[0]
            energy = float(left @ left)
            if not energy > 0:
                raise SampleError(
                    "y is constant in these samples, or the nuisances determine it; give values that differ."
                )
            rest = own - a @ np.linalg.lstsq(a, own, rcond=None)[0]
            slope = float(left @ rest) / energy
            total += slope
            influence += left * (rest - slope * left) / energy
            width = max(width, a.shape[1] + 1)
        error = math.sqrt(float(influence @ influence) * n / (n - width)) if n > width else math.nan
        return Score(total, error, n)

    def _engine(self, X: Any) -> Engine:
        """Reads samples like those fitted."""
        if self.preprocess is None and (name := self.settings.get("preprocess")):
            raise SampleError(
                f"the samples of the fit were changed by preprocess={printable(str(name))}, and a file keeps only "
                "its name; set result.preprocess to that function first."
            )
        dim = None if isinstance(X, Stream) or is_engine(X) else self.settings.get("dim")
        policy = str(self.settings.get("nan_policy", "raise"))
        if isinstance(X, Stream) or is_engine(X):
            policy = "raise"  # its own is kept
        engine = reader(X, tuple(self.dims), policy, dim, self.labels if self.names else None)
        return engine if self.preprocess is None else open_engine(preprocessed_data(engine, self.preprocess))

    # Files ------------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write ``result.json`` and ``vectors.npz``, which appear whole or not at all; returns the folder.

        A result that is there is replaced, other files of these names only with ``overwrite``.
        """
        place = named_place(folder)
        arrays = {
            f"{name}_{m}": array for name, field in ARRAYS.items() for m, array in enumerate(getattr(self, field))
        }
        arrays |= {name: array for name in WHOLE if (array := getattr(self, name)) is not None}
        with replacing(*result_files(place), kinds=KINDS, overwrite=overwrite) as (about, vectors):
            with vectors.open("wb") as file:
                np.savez(file, **arrays)
            self.vectors_sha256 = hashlib.sha256(vectors.read_bytes()).hexdigest()
            about.write_bytes(self.to_json() + b"\n")
        return place

    def to_json(self) -> bytes:
        """What ``result.json`` holds."""
        record = Record(**{name: getattr(self, name) for name in RECORD})
        return msgspec.json.format(msgspec.json.encode(record, enc_hook=_builtin), indent=1)


# Arrays of a file, one for every axis of a sample, and the fields that they are; what is not there is an empty list.
ARRAYS = {
    "mode": "vectors", "standard_error": "errors", "loading": "loadings", "mean": "means", "observed": "observed"
}  # fmt: skip
WHOLE = ("entry_p_values", "null_distribution", "sample_labels")
# How the two files of a result begin: with the tag of the record, and with the name of the first array.
KINDS = (Kind("a result of tpca", b'"format": "tpca result'), Kind("vectors of a result of tpca", b"mode_0.npy"))


def result_files(folder: Path) -> tuple[Path, Path]:
    """What a result consists of."""
    return folder / "result.json", folder / "vectors.npz"


def load(folder: str | os.PathLike[str]) -> Result:
    """Read what :meth:`Result.save`, ``TensorPCA.save`` or ``tpca fit --out`` wrote.

    Each file is read once: what is checked is what is used, whoever writes there meanwhile.  Between the renames of
    another fit that is written the two do not belong together; then they are read again.
    """
    place = Path(folder)
    with reading(f"cannot read a result from {str(folder)!r}", "give the folder that `tpca fit --out` or `save` wrote"):
        for _ in range(TRIES):
            check_regular(place / "result.json", JSON_BYTES)
            record = msgspec.json.decode((place / "result.json").read_bytes(), type=Record, dec_hook=_number)
            content = npz_bytes(place / "vectors.npz")
            if record.vectors_sha256 == hashlib.sha256(content).hexdigest():
                return _checked(record, read_npz(content))
            time.sleep(PAUSE)
        raise StreamError(
            f"{str(place / 'vectors.npz')!r} does not belong to the result.json beside it: it is damaged, or of "
            "another fit, and writing was cut short; fit again, or finish with `tpca fit --resume`."
        )


def _checked(record: Record, arrays: dict[str, Any]) -> Result:
    """The result, if the arrays are those that its numbers speak of."""
    msgspec.convert(record.settings, Settings)
    dims, rows = record.dims, len(record.components)
    fields: dict[str, Any] = {name: getattr(record, name) for name in RECORD}
    for name, field in ARRAYS.items():
        each = [arrays[key] for m in range(len(dims)) if (key := f"{name}_{m}") in arrays]
        fields[field] = each
        if not each and field not in ("vectors", "errors"):
            continue
        shapes = [(d,) if field in ("means", "observed") else (rows, d) for d in dims]
        if [a.shape for a in each] != shapes or any(a.dtype.kind != "f" for a in each):
            raise ValueError(f"the arrays {name}_0, ... of vectors.npz do not fit {rows} components of dims {dims}")
        if field in ("vectors", "loadings", "means") and not all(np.isfinite(a).all() for a in each):
            raise ValueError(f"the arrays {name}_0, ... of vectors.npz hold NaN or Inf")
    entries, null, samples = (arrays.get(name) for name in WHOLE)
    if entries is not None and (list(entries.shape[-len(dims) :]) != dims or entries.ndim > len(dims) + 1):
        raise ValueError(f"entry_p_values of vectors.npz has shape {entries.shape}, and samples have {tuple(dims)}")
    if null is not None and (null.ndim != 2 or len(null) != rows):
        raise ValueError(f"null_distribution of vectors.npz has shape {null.shape}, and there are {rows} components")
    if samples is not None and (samples.ndim != 1 or samples.dtype.kind not in "fiubmMU"):
        raise ValueError(f"sample_labels of vectors.npz has shape {samples.shape} and type {samples.dtype}")
    result = Result(**fields, entry_p_values=entries, null_distribution=null, sample_labels=samples)
    _ = result.labels  # refuses names that do not fit
    return result


def preprocessed_data(data: Any, function: Callable[[Any], Any]) -> Any:
    """A stream or engine of samples that a function changes, batch by batch."""
    if isinstance(data, DaskEngine):
        return DaskEngine(data.cluster.client, Preprocessed(data.stream, function))
    return Preprocessed(data.stream if isinstance(data, StreamEngine) else data, function)


def in_order_of_data(scores: Array, places: NDArray[np.intp], n_skipped: int) -> tuple[Array, NDArray[np.bool_]]:
    """Scores with a row for every sample of the data, NaN for those left out; and which were not left out.

    ``scores`` ``(n, c)`` are in the order in which samples were read, ``places`` ``(n,)`` say where these are in the
    data.
    """
    total = len(scores) + n_skipped
    used = np.zeros(total, bool)
    used[places[places < total]] = True
    if np.count_nonzero(used) < len(scores):  # the samples that an engine has left, or a user's own batches
        if n_skipped:
            raise SampleError(
                f"{n_skipped:,} samples were left out, and the stream does not say which; give the samples as an array "
                "or a file, or take those with NaN or Inf out."
            )
        return scores, np.ones(total, bool)
    whole = np.full((total, scores.shape[1]), math.nan, scores.dtype)
    whole[places] = scores
    return whole, used


def refuse_unscored(n_samples: int, n_skipped: int) -> None:
    """Say so where all samples, or rows, were left out."""
    if n_skipped and not n_samples:
        raise SampleError(
            f"all samples, {n_skipped:,} of them, were left out for NaN or Inf, so there is no score; give samples "
            "without."
        )


def left_out_advice(n_samples: int, n_skipped: int, settings: Mapping[str, Any]) -> list[str]:
    """A line where more than a tenth of the samples, or rows, were left out."""
    total = n_samples + n_skipped
    if n_skipped <= MANY_LEFT_OUT * total:
        return []
    why = "for NaN or Inf among their entries"
    way_out = "Drop the columns or entries that are missing most, or fill them in."
    if settings.get("nan_policy") == "zero":
        why = "as none of their entries was observed"
        way_out = "Look at why."
    elif settings.get("target") in ("mean", "effect") and len(settings.get("classes") or ()) <= 2:
        way_out = 'nan_policy="zero" uses their other entries.'
    share = percent(round(n_skipped / total, 2))
    return [f"{n_skipped:,} of {total:,} ({share}) were left out {why}. {way_out}"]


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """What arrays say of every component."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def _number(_: Any, value: Any) -> float:
    """A field of JSON that is a :class:`Number`."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"expected a number or null, got {str(value)[:40]!r}")
    return math.nan if value is None else float(value)


def _builtin(value: Any) -> Any:
    """What JSON does not know: numbers of NumPy, and whatever else by its name."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return getattr(value, "__name__", None) or str(value)
