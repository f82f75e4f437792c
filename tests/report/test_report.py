"""Reports: what they say, what they rest on, and that nothing in the data can break out of them."""

import dataclasses
import functools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kurtosis
from typer.testing import CliRunner

from tpca import PaperSolver, RaceSolver, SpikedTensor, TensorCCA
from tpca.cli import app
from tpca.cli.report import OutputOptions
from tpca.errors import OptionError, OutputError, StreamError, StudyError
from tpca.lab.pages import write_page
from tpca.lab.studies.comparison import read_comparison
from tpca.labels import parse_labels, plain_labels
from tpca.report import document
from tpca.report.checks import run_checks
from tpca.report.component_pictures import component_figure
from tpca.report.cost import cost_parts
from tpca.report.document import Document, Safe, Section, Verdict, render, safe, script_json, tag
from tpca.report.folder import write_report
from tpca.report.pictures import DASHES, SYMBOLS, Axis
from tpca.report.race_pictures import read_samples
from tpca.report.residuals import BINS, KEPT, RANDOM, Residuals
from tpca.report.verdict import verdict_on
from tpca.results import read_result, views_scores, write_result, write_run, write_views_result
from tpca.solvers.mean.solver import MeanSolver
from tpca.streams.views import open_views

runner = CliRunner()
EVIL = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'quoted' & <b>bold</b>",
    "%{x} @ink $x$",
]


class Page(HTMLParser):
    """A page taken apart as a browser would."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.scripts, self._inside = [], [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes.append((name, dict(attributes)))
        self._inside = name
        if name == "script":
            self.scripts.append([dict(attributes), ""])

    def handle_endtag(self, name):
        self._inside = None

    def handle_data(self, text):
        if self._inside == "script":
            self.scripts[-1][1] += text
        elif self._inside != "style":
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def figures(self):
        found = [text for attributes, text in self.scripts if attributes.get("id") == "figures"]
        return json.loads(found[0]) if found else {}


def page_of(path):
    return Page(Path(path).read_text(encoding="utf-8"))


def samples(dims, strength, count, seed=1, further=()):
    truth = SpikedTensor.random(dims, strength, random_state=seed)
    drawn = next(iter(truth.stream(random_state=seed + 1, batch_size=count)))
    for i, more in enumerate(further):
        vectors = SpikedTensor.random(dims, more, random_state=seed + 10 + i).vectors
        drawn = drawn + more * functools.reduce(np.multiply.outer, vectors)
    return drawn


def stored(folder, data, solver, **settings):
    """A result as ``tpca fit`` leaves it, and its data beside it."""
    path = folder.with_suffix(".npy")
    np.save(path, data)
    recovery = solver.run(path)
    name = {RaceSolver: "race", MeanSolver: "mean", PaperSolver: "paper"}[type(solver)]
    write_result(
        folder, recovery, str(path), {"solver": name, "solver_reason": "asked for", "confidence": 0.95} | settings
    )
    return recovery


def report(folder, **options):
    path = folder.with_suffix(".html")
    write_report(folder, path, **options)
    return page_of(path)


def check_page(page):
    """What holds for every report."""
    kinds = dict(page.attributes[::-1])
    assert kinds["html"]["lang"] == "en"
    assert "title" in page.tags
    assert page.tags.count("h1") == 1
    assert not {"link", "iframe", "img", "object", "base"} & set(page.tags)
    ids = [a["id"] for _, a in page.attributes if "id" in a]
    assert len(ids) == len(set(ids))
    for name, attributes in page.attributes:
        assert not any(word.startswith("on") for word in attributes), (name, attributes)
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        if attributes.get("role") == "tab":
            assert attributes["aria-controls"] in ids
        if attributes.get("class") == "plot":
            assert len(attributes["aria-label"]) > 20
            assert attributes["data-figure"] in page.figures
    for figure in page.figures.values():
        check_figure(figure)


COLOUR = re.compile(r"\A(c[0-5]|ink|soft|good|bad)\Z")
AXIS = {field.name for field in dataclasses.fields(Axis)}


def check_figure(figure):
    """What the script of the page draws: nothing that it does not know, and a number or a gap for every value."""
    assert set(figure["x"]) == set(figure["y"]) == AXIS
    for trace in figure["traces"]:
        assert trace["kind"] in ("line", "points", "band", "bars", "map", "upright")
        assert trace["kind"] == "map" or COLOUR.match(trace["colour"])
        lists = [v for name, v in trace.items() if isinstance(v, list) and name not in ("hover", "text", "z", "down")]
        assert all(isinstance(v, int | float | None) for values in lists for v in values)
        if trace["kind"] == "map":
            cells = [[a * b for b in trace["across"]] for a in trace["down"]] if "down" in trace else trace["z"]
            assert (len(trace["y"]), {len(trace["x"])}) == (len(cells), {len(row) for row in cells})
        else:
            assert {len(values) for values in (*lists, trace.get("hover", lists[0]))} == {len(trace["x"])}
        assert trace.get("symbol", "x") in (*SYMBOLS, "x")


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race") / "r"
    recovery = stored(folder, samples((6, 5, 4), 2.0, 400), RaceSolver(random_state=0))
    write_run(folder, {"seconds": 1.5, "trace": [(1, 0.1), (200, 0.7), (400, 1.5)], "made_with": {"tpca": "0"}})
    return folder, recovery


def test_a_race_is_told_with_its_own_numbers(race):
    folder, recovery = race
    page = report(folder)
    check_page(page)
    low, high = recovery.strength_interval
    assert (
        f"Its strength is {recovery.strength:.3g}, with a 95 % confidence interval of {low:.3g} to {high:.3g}"
        in page.text
    )
    assert "On pure noise the method claims a signal in at most 5 % of runs" in page.text
    assert "probability that there is a signal" not in page.text
    assert {"evidence-0", "strength-0", "mode-0", "mode-2", "quantiles", "stream", "levels", "memory", "pace"} <= set(
        page.figures
    )
    evidence = page.figures["evidence-0"]["traces"]
    names = [trace.get("name") for trace in evidence]
    assert "needed by the candidate" in names
    assert "new candidate" in names
    assert any(name.startswith("strategy: ") for name in names)
    first = page.figures["mode-0"]["traces"][0]
    np.testing.assert_allclose(first["y"], recovery.vectors[0], atol=1e-5)
    np.testing.assert_allclose(first["above"], 2 * recovery.standard_errors[0], rtol=1e-4)
    assert "one more pass over the 400 samples that were fitted" in page.text
    assert Path(folder.with_suffix(".html")).stat().st_size < 3e6


def test_the_bound_on_false_alarms_is_villes(race):
    folder, recovery = race
    proven = [r for r in recovery.history if r.get("found") and r.get("log_evidence") is not None][-1]
    evidence = recovery.evidence
    assert evidence.kind == "log evidence"
    assert (evidence.value, evidence.needed) == (proven["log_evidence"], proven["needed"])
    assert recovery.p_value == pytest.approx(0.05 * math.exp(evidence.needed - evidence.value))
    assert read_result(folder).summary["components"][0]["p_value"] == recovery.p_value


@pytest.mark.parametrize(("strength", "components"), [(2.0, 1), (0.35, 2)])
def test_the_mean_is_told_with_what_it_had_to_exceed(strength, components, tmp_path):
    """A signal plain to see is proven without fits to noise, any other one with them."""
    recovery = stored(tmp_path / "m", samples((6, 5, 4), strength, 400), MeanSolver(n_components=components))
    page = report(tmp_path / "m")
    check_page(page)
    record = next(r for r in recovery.history if r["phase"] == "fit")
    assert record["fit"] > record["needed"] > 0
    # At 0.95 one of 39 flips may reach as far: the fit must exceed the second of them.
    assert not record["noise_fits"] or record["needed"] == sorted(record["noise_fits"])[-2]
    assert bool(record["noise_fits"]) or components == 1
    assert f"has length {record['fit']:.3g}, and {record['needed']:.3g} was needed" in page.text
    drawn = page.figures["mean"]["traces"]
    assert drawn[0]["x"] == pytest.approx([record["fit"]], rel=1e-5)
    if record["noise_fits"]:
        assert drawn[1]["x"] == pytest.approx(record["noise_fits"], rel=1e-5)


@pytest.mark.parametrize("solver", [RaceSolver(random_state=0), MeanSolver()])
def test_no_signal_is_a_limit_and_not_a_proof(solver, tmp_path):
    recovery = stored(tmp_path / "n", _noise((150, 6, 5, 4)), solver)
    assert not recovery.found  # a false alarm has 5 %; the seed is fixed
    page = report(tmp_path / "n")
    check_page(page)
    assert "No signal was found" in page.text
    assert f"its strength is below {recovery.strength_interval[1]:.3g}, with 95 % confidence" in page.text
    assert "That is not a proof that there is none." in page.text
    assert "no component to show" in page.text
    assert "four random directions" in page.text


def _noise(shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("count", [1, 2, 12])
def test_too_few_samples_limit_nothing(count, tmp_path):
    recovery = stored(tmp_path / "f", _noise((count, 4, 3)), RaceSolver(random_state=0))
    assert not math.isfinite(recovery.strength_interval[1])
    page = report(tmp_path / "f")
    check_page(page)
    assert "too few samples to say how strong" in page.text
    assert "it takes 20 samples" in page.text


def test_the_papers_algorithm_proves_nothing_and_the_page_says_so(tmp_path):
    stored(tmp_path / "p", samples((4, 4, 4, 4), 3.0, 3000), PaperSolver(strength=3.0, random_state=1))
    page = report(tmp_path / "p")
    check_page(page)
    assert "has no test of whether there is a signal" in page.text
    assert "found" not in page_headline(tmp_path / "p.html")
    assert "paper" in page.figures
    assert "no standard errors" in page.text


def page_headline(path):
    return re.search(r"<h2>(.*?)</h2>", path.read_text()).group(1)


@pytest.mark.parametrize("dims", [(7, 3), (4, 3, 2), (3, 2, 3, 2, 3), (2,) * 8, (700, 3)])
def test_any_order_and_shape(dims, tmp_path):
    stored(tmp_path / "o", samples(dims, 3.0 if len(dims) < 8 else 4.0, 150), MeanSolver())
    page = report(tmp_path / "o")
    check_page(page)
    assert {f"mode-{i}" for i in range(len(dims))} <= set(page.figures)


def test_several_components_each_have_their_race(tmp_path):
    data = samples((8, 7, 6), 4.0, 600, further=(3.0,))
    recovery = stored(tmp_path / "c", data, RaceSolver(n_components=2, random_state=0))
    assert len(recovery.components) == 2
    page = report(tmp_path / "c")
    check_page(page)
    assert {"evidence-0", "evidence-1", "strengths"} <= set(page.figures)
    assert "2 components found" in page.text
    summary = read_result(tmp_path / "c").summary
    assert {r["component"] for r in summary["history"]} == {0, 1}
    assert [t["name"] for t in page.figures["mode-0"]["traces"]] == ["component 0", "component 1"]


def test_later_passes_come_after_the_first():
    records = [{"pass": p, "samples": n} for p, n in ((1, 50), (1, 100), (3, 80), (3, 100))]
    assert read_samples(records) == [50, 100, 280, 300]


def test_long_modes_are_thinned_honestly():
    vector = np.random.default_rng(0).standard_normal((1, 5000)) / 70
    vector[0, 4321] = 0.9
    figure = component_figure(0, vector, np.full((1, 5000), 0.01), plain_labels((5000,)))
    assert len(script_json(figure.traces)) < 30_000
    band, largest = figure.traces
    assert max(band["high"]) == 0.9
    assert min(band["low"]) == vector.min()
    assert 4321 in largest["x"]
    assert "5,000 entries are too many to draw" in figure.note


def test_many_components_are_a_heat_map():
    vectors = np.random.default_rng(0).standard_normal((9, 30))
    figure = component_figure(0, vectors, None, plain_labels((30,)))
    assert figure.traces[0]["kind"] == "map"
    np.testing.assert_allclose(figure.traces[0]["z"], vectors)


def test_pages_are_small_however_much_there_is_to_show(tmp_path):
    """Under a megabyte, which any mailbox takes: here 40 components of three modes of 3000 entries."""
    rng = np.random.default_rng(0)
    vectors = tuple(rng.standard_normal((40, 3000)) for _ in range(3))
    labels = plain_labels((3000,) * 3)
    figures = [component_figure(mode, one, None, labels) for mode, one in enumerate(vectors)]
    figures += [component_figure(mode, one[:6], np.abs(one[:6]), labels) for mode, one in enumerate(vectors)]
    page = Document("many", "", Verdict("good", "", []), [Section("all", "all", figures)], "")
    assert len(render(page)) < 1_000_000


def test_nothing_in_the_data_breaks_out(tmp_path):
    """Names of files, modes and entries that look like HTML, or scripts are shown as text."""
    name = "\"><script>alert(3)<script> & 'x'"
    folder = tmp_path / name
    stored(folder, samples((4, 5), 2.0, 200), MeanSolver())
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"0": {"name": EVIL[0], "entries": EVIL}, "1": ["a", *EVIL]}))
    write_report(folder, tmp_path / "e.html", labels)
    text = (tmp_path / "e.html").read_text(encoding="utf-8")
    page = Page(text)
    check_page(page)
    assert page.tags.count("script") == 3  # figures, what draws them, the page's own
    assert "b" not in page.tags
    assert all(word in page.text for word in EVIL)
    assert name in page.text
    assert "</script><script>alert" not in text
    shown = page.figures["mode-1"]["traces"][0]["hover"]
    assert shown[2].startswith('"><img src=x onerror=alert(2)>: ')


def test_labels_that_do_not_fit_are_refused(tmp_path):
    for found, says in (
        ([1], "must hold an object"),
        ({"7": ["a"]}, "modes go from 0 to 1"),
        ({"0": ["a"]}, "a list of 4 names, got 1"),
        ({"0": "abcd"}, "got str"),
    ):
        with pytest.raises(StreamError, match=says):
            parse_labels(found, (4, 5))
    with pytest.raises(StreamError, match="cannot read labels"):
        OutputOptions(None, tmp_path / "none.json", True, False, False, False).check((4, 5))


def test_data_that_are_gone_or_changed_are_not_checked(race, tmp_path):
    folder, _ = race
    data = folder.with_suffix(".npy")
    copy = tmp_path / "copy.npy"
    assert "Not checked: it was not asked for." in report(folder, checks=False).text
    assert "could not be read again" in report(folder, data=[str(copy)]).text
    np.save(copy, np.load(data)[:100])
    assert "have 100 samples now, and 400 were fitted" in report(folder, data=[str(copy)]).text
    np.save(copy, np.load(data)[:, :5])
    assert "was fitted" in report(folder, data=[str(copy)]).text
    run = json.loads((folder / "run.json").read_text())
    write_run(folder, {**run, "identity": "another"})
    page = report(folder)
    assert "they have changed since they were fitted" in page.text
    assert "quantiles" not in page.figures
    write_run(folder, run)


def test_residuals_are_those_of_all_scores_at_once():
    scores = np.random.default_rng(3).standard_t(5, size=(1234, 1 + RANDOM)) + 3
    found, place = Residuals(1), 0
    for width in (1, 7, 100, 3, 500, 623):
        found.add(scores[place : place + width])
        place += width
    off = scores - scores.mean(axis=0)
    np.testing.assert_allclose(found.mean, scores.mean(axis=0))
    np.testing.assert_allclose(found.variance, scores.var(axis=0, ddof=1))
    np.testing.assert_allclose(found.kurtosis, kurtosis(scores, fisher=False))
    np.testing.assert_allclose(found.neighbours, (off[1:] * off[:-1]).sum(axis=0) / (off**2).sum(axis=0))
    _, counts, means, variances = found.bins()
    width = int(counts[0])
    assert len(counts) <= BINS
    np.testing.assert_allclose(means[2], scores[2 * width : 3 * width].mean(axis=0))
    np.testing.assert_allclose(variances[2], scores[2 * width : 3 * width].var(axis=0, ddof=1))
    places, kept = found.kept
    assert KEPT // 2 <= len(places) <= KEPT
    np.testing.assert_array_equal(kept, scores[places])
    assert found.extremes[0][-1] == (scores[:, 0].max(), int(scores[:, 0].argmax()))
    assert found.extremes[0][0] == (scores[:, 0].min(), int(scores[:, 0].argmin()))


def alarms(scores, shuffled=False):
    found = Residuals(1)
    for first in range(0, len(scores), 700):
        found.add(scores[first : first + 700])
    return {check.name for check in run_checks(found, shuffled) if check.state == "bad"}


def test_checks_are_silent_on_noise_as_assumed():
    """Simulated, 1.7 % of such data sets alarm; more than 5 of 40 have a chance below 1e-4."""
    rng = np.random.default_rng(11)
    signal = np.array([2, 0, 0, 0, 0])
    drawn = (rng.standard_normal((1500, 1 + RANDOM)) + signal for _ in range(40))
    assert sum(bool(alarms(scores)) for scores in drawn) <= 5


def test_few_samples_are_checked_for_what_few_can_tell():
    """At most four checks of level 0.2 % each: more than 10 alarms in 200 data sets have a chance below 1e-5."""
    rng = np.random.default_rng(12)
    drawn = [rng.standard_normal((count, 1 + RANDOM)) for count in (25, 60) for _ in range(100)]
    assert sum(bool(alarms(scores)) for scores in drawn) <= 10
    wild, related = drawn[0].copy(), np.repeat(drawn[-1], 5, axis=0)[:60]
    wild[7, 1] = 100.0
    assert alarms(wild) == {"outlier samples"}
    assert "independent samples" in alarms(related)  # fives are the same: 0.8, and 0.46 would do
    assert alarms(rng.standard_normal((25, 1 + RANDOM)) * [5, 1, 1, 1, 1]) == set()  # levels: not of so few


def test_checks_see_what_is_wrong():
    """Each of these is so wrong that the check misses it with a chance far below 1e-4."""
    rng = np.random.default_rng(12)
    n = 3000
    plain = rng.standard_normal((n, 1 + RANDOM))
    assert "normal scores" in alarms(rng.standard_t(2, size=plain.shape))
    wild = plain.copy()
    wild[1234, 0] += 12
    assert "outlier samples" in alarms(wild)
    related = plain.copy()
    related[1:] += 0.5 * plain[:-1]
    assert "independent samples" in alarms(related)
    assert "independent samples" not in alarms(related, shuffled=True)
    drift = plain + np.linspace(0, 2, n)[:, None] * [1, 0, 0, 0, 0]
    assert "steady signal" in alarms(drift)
    assert "steady noise" in alarms(plain * np.linspace(1, 2, n)[:, None])
    assert "same noise everywhere" in alarms(plain * [1.5, 1, 1, 1, 1])


def test_outliers_are_named_by_their_place(tmp_path):
    data = samples((5, 4), 1.0, 500)
    data[321] *= 15
    stored(tmp_path / "w", data, MeanSolver())
    page = report(tmp_path / "w")
    check_page(page)
    assert "321" in page.figures["stream"]["traces"][-1]["hover"][0]
    assert "Look at the noise" in page.text


def views(strength, rows=1500, seed=5):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal(rows)
    return [strength * np.outer(factor, _unit(rng, d)) + rng.standard_normal((rows, d)) for d in (6, 5, 4, 7)]


def _unit(rng, length):
    v = rng.standard_normal(length)
    return v / np.linalg.norm(v)


def test_views_are_fitted_scored_and_reported(tmp_path):
    given = views(3.0)
    files = [str(tmp_path / f"{name}.npy") for name in "abcd"]
    for file, view in zip(files, given, strict=True):
        np.save(file, view)
    out, html = tmp_path / "r", tmp_path / "v.html"
    done = runner.invoke(
        app, ["fit", "--views", *files, "--out", str(out), "--clip", "2", "--report", str(html), "--quiet"]
    )
    assert (done.exit_code, done.output) == (0, "")
    page = page_of(html)
    check_page(page)
    component = json.loads((out / "recovery.json").read_text())["components"][0]
    assert f"the correlation is {component['correlation']:.2f} ±" in page.text
    assert page.text.startswith("Fit of the views a.npy, b.npy, c.npy, d.npy")
    assert {"correlations", "mode-0", "mode-3", "products"} <= set(page.figures)
    assert "1,500 rows were read again" in page.text
    scored = runner.invoke(app, ["score", *files, str(out), "--json"])
    told = json.loads(scored.output)
    expected = TensorCCA(random_state=0, clip=2.0).fit(given).score(given)
    assert told["correlations"][0] == pytest.approx(float(expected), rel=1e-9)
    assert told["rows"] == 1500
    assert "correlation" in runner.invoke(app, ["score", *files, str(out)]).output
    refused = runner.invoke(app, ["score", *files[:3], str(out)])
    assert isinstance(refused.exception, StreamError)


def test_the_command_writes_report_and_says_so(tmp_path):
    np.save(tmp_path / "d.npy", samples((6, 5, 4), 2.0, 300))
    data, out, html = str(tmp_path / "d.npy"), tmp_path / "r", tmp_path / "r" / "r.html"
    done = runner.invoke(app, ["fit", data, "--out", str(out), "--report", str(html)])
    assert done.exit_code == 0, done.output
    assert "report in" in done.output
    check_page(page_of(html))
    assert json.loads((out / "run.json").read_text())["seconds"] > 0
    again = runner.invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    assert (out / "report.html").is_file()
    assert "solver mean" in runner.invoke(app, ["info", str(out)]).output
    quiet = runner.invoke(app, ["fit", data, "--out", str(out), "--quiet"])
    assert (quiet.exit_code, quiet.output) == (0, "")
    both = runner.invoke(app, ["fit", data, "--out", str(out), "--quiet", "--live"])
    assert isinstance(both.exception, OptionError)
    assert runner.invoke(app, ["--version"]).output.startswith("tpca ")
    empty = runner.invoke(app, ["report", str(tmp_path / "deep")])
    assert isinstance(empty.exception, StreamError)


def test_the_paper_by_the_command(tmp_path):
    np.save(tmp_path / "d.npy", samples((4, 4, 4, 4), 3.0, 2500))
    base = ["fit", str(tmp_path / "d.npy"), "--out", str(tmp_path / "r"), "--solver", "paper"]
    for options, says in (
        ([], "must be told the strength"),
        (["--strength", "3", "--n-components", "2"], "--n-components is for --solver mean or race and --views"),
        (["--strength", "3", "--tol", "0.1"], "--tol is for --solver race, not for --solver paper"),
    ):
        assert says in str(runner.invoke(app, [*base, *options]).exception)
    wrong = runner.invoke(app, [*base[:-1], "race", "--strength", "3"])
    assert "--strength is for --solver paper, not for --solver race" in str(wrong.exception)
    done = runner.invoke(app, [*base, "--strength", "3", "--json"])
    assert done.exit_code == 4, done.output
    assert json.loads(done.output)["solver"] == "paper"


def test_a_report_that_cannot_be_written(race, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write the report"):
        write_report(race[0], tmp_path / "file" / "r.html", checks=False)


COMPARE = ["compare", "--dims", "5,5,5", "--strength", "2", "--samples", "200", "--methods", "race,mean,als"]


def test_a_comparison_is_kept_trial_by_trial(tmp_path, monkeypatch):
    """An interrupt loses the trial under way and no other; the same command goes on."""
    from tpca.lab.studies import compare

    out, html, real = tmp_path / "c", tmp_path / "c.html", compare.trial

    def interrupted(setting, methods, seed, progress=None):
        if seed == 2:
            raise KeyboardInterrupt
        return real(setting, methods, seed)

    monkeypatch.setattr(compare, "trial", interrupted)
    stopped = runner.invoke(app, [*COMPARE, "--trials", "4", "--out", str(out)])
    assert stopped.exit_code == 130, stopped.output
    assert "Interrupted with 2 finished trials, kept in" in stopped.output
    assert "2/2" in stopped.output
    before = read_comparison(out)
    assert sorted(before.trials) == [0, 1]
    monkeypatch.setattr(compare, "trial", real)
    done = runner.invoke(app, [*COMPARE, "--trials", "4", "--out", str(out), "--report", str(html)])
    assert done.exit_code == 0, done.output
    after = read_comparison(out)
    assert sorted(after.trials) == [0, 1, 2, 3]
    assert after.trials[1] == before.trials[1]
    page = page_of(html)
    check_page(page)
    assert {"success", "errors", "cost"} <= set(page.figures)
    assert "All 3 methods succeeded equally often" in page.text
    other = runner.invoke(app, [*COMPARE, "--samples", "300", "--out", str(out)])
    assert isinstance(other.exception, StudyError)
    assert "other samples" in str(other.exception)
    lost = runner.invoke(app, [*COMPARE, "--report", str(html)])
    assert isinstance(lost.exception, StudyError)


def test_a_store_of_studies_is_reported(tmp_path):
    source = Path(__file__).parents[2] / "docs" / "reproduction" / "stages.jsonl"
    (tmp_path / "stages.jsonl").write_text(source.read_text())
    write_page(tmp_path, tmp_path / "s.html")
    page = page_of(tmp_path / "s.html")
    check_page(page)
    assert page.tags.count("svg") == 1
    assert "2 of 2 predictions agree with what was measured" in page.text


def test_markup_escapes_unless_it_is_safe():
    assert (
        tag("p", "<b>", Safe("<i>"), class_='a"b', hidden=True, x=None) == '<p class="a&quot;b" hidden>&lt;b&gt;<i></p>'
    )
    assert safe(safe("<")) == "&lt;"
    text = script_json({"a": "</script><!--&\u2028", "b": math.nan, "c": np.float64(1 / 3), "d": np.arange(2)})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028", "b": None, "c": 0.333333, "d": [0, 1]}


def test_the_bound_on_the_state_that_was_asked_for_is_told(race):
    summary = read_result(race[0]).summary
    limited = summary | {"settings": {**summary["settings"], "memory_limit": "64MB"}}
    told = [" ".join(map(str, cost_parts(one, {}))) for one in (summary, limited)]
    assert ["64MB" in one for one in told] == [False, True]


def test_a_verdict_on_an_old_result_without_settings(race):
    summary = read_result(race[0]).summary | {"settings": {}}
    assert verdict_on(summary, [], None).headline == "A signal was found"


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_contrast_and_series_differ_without_colour():
    """WCAG 2.2: 4.5 for text, 3 for graphics, in light and in dark."""
    style = (Path(document.__file__).parent / "assets" / "page.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    for part in (light, dark.split("* {", 1)[0]):
        colours = dict(re.findall(r"--([a-z]+[0-9]?): (#[0-9a-f]{6})", part))

        def contrast(name, ground, colours=colours):
            high, low = sorted((_luminance(colours[name]), _luminance(colours[ground])), reverse=True)
            return (high + 0.05) / (low + 0.05)

        for ground in ("ground", "card"):
            for name in ("ink", "soft", "good", "bad", "open"):
                assert contrast(name, ground) >= 4.5, (name, ground)
        for number in range(6):
            assert contrast(f"c{number}", "ground") >= 3, number
    assert len(set(DASHES)) == len(set(SYMBOLS)) == 6


def test_rows_of_views_are_thinned_where_there_are_many(tmp_path):
    given = views(3.0)
    cca = TensorCCA(random_state=0).fit(given)
    write_views_result(tmp_path, cca.recovery_, ["a"] * 4)
    result = read_result(tmp_path)
    whole = views_scores(result, open_views(given))
    split = [tuple(v[i : i + 100] for v in given) for i in range(0, 1500, 100)]
    some = views_scores(result, open_views(split), step=7)
    assert [len(s) for s in some] == [215] * 4
    for all_rows, few in zip(whole, some, strict=True):
        chosen = all_rows[::7, 0]
        np.testing.assert_allclose(few[:, 0], (chosen - chosen.mean()) / chosen.std(), rtol=1e-6, atol=1e-9)
