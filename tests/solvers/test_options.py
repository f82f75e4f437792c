"""No option is dropped without a word, whole numbers are whole, and nothing is overwritten or begun in vain."""

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

from tpca import MeanSolver, PaperSolver, RaceSolver, SpikedTensor, TensorCCA, TensorPCA, open_stream
from tpca.cli import COMMANDS, app
from tpca.engines import LocalEngine
from tpca.errors import OutputError, SolverError, StreamError, TpcaError
from tpca.lab.baselines import ALS
from tpca.lab.planning.problem import Problem
from tpca.lab.studies.catalogue import write_markdown
from tpca.streams.views import open_views

TRUTH = SpikedTensor.random((4, 3, 3, 3), 3.0, random_state=1)
DATA = next(iter(TRUTH.stream(random_state=2, batch_size=60)))
ROWS = [DATA[:, 0, 0, 0], DATA[:, 1, 1, 1]]
LOADED = typer.main.get_command(app).commands


def tpca(*arguments):
    """Run a command in this process; errors come as they are."""
    name, *rest = map(str, arguments)
    return LOADED[name].main(rest, prog_name=name, standalone_mode=False)


def refusal(*arguments):
    """The one line with which a command refuses."""
    with pytest.raises(TpcaError) as refused:
        tpca(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Samples, views, a result of each, and the folder of a comparison."""
    place = tmp_path_factory.mktemp("options")
    np.save(place / "d.npy", DATA)
    rng = np.random.default_rng(3)
    factor = rng.standard_normal(300)
    for name in "ab":
        np.save(place / f"{name}.npy", 2 * factor[:, None] * np.ones(3) + rng.standard_normal((300, 3)))
    assert tpca("fit", place / "d.npy", "--out", place / "r", "--quiet") == 0
    assert tpca("fit", "--views", place / "a.npy", place / "b.npy", "--out", place / "v", "--quiet") == 0
    (place / "c").mkdir()
    (place / "c" / "comparison.json").write_text("{}")
    return place


# -- the command ------------------------------------------------------------------------------------------------------

ANY = ("views", "auto", "mean", "race", "paper")
SAMPLES = ("auto", "mean", "race", "paper")
# Every option of fit, with a value and the kinds of fit that it means something to.
FIT = {
    "--shrinkage": ("0.5", ("views",)),
    "--clip": ("2", ("views", "auto", "mean", "race")),
    "--solver": (None, SAMPLES),
    "--strength": ("1", ("paper",)),
    "--n-components": ("2", ("views", "auto", "mean", "race")),
    "--memory-limit": ("1MB", ("views", "auto", "mean", "race")),
    "--max-samples": ("10", ("auto", "mean", "race")),
    "--max-passes": ("2", ("auto", "race")),
    "--tol": ("0.1", ("auto", "race")),
    "--confidence": ("0.9", ("views", "auto", "mean", "race")),
    "--whiten": ("modes", ("auto", "mean", "race")),
    "--groups": ("2", ("auto", "mean", "race")),
    "--center-modes": ("0", ("auto", "mean", "race")),
    "--project": ("p.npz", ("auto", "mean", "race")),
    "--target": ("effect", SAMPLES),
    "--y": ("y.npy", SAMPLES),
    "--nuisance": ("n.npy", SAMPLES),
    "--group-by": ("g.npy", SAMPLES),
    "--block-size": ("4", SAMPLES),
    "--random-state": ("1", ANY),
    "--shuffle": (None, SAMPLES),
    "--nan-policy": ("omit", ANY),
    "--items": ("samples", SAMPLES),
    "--sample-dim": ("trial", SAMPLES),
    "--sample": ("trial", SAMPLES),
    "--modes": ("gene,cell", SAMPLES),
    "--value": ("count", SAMPLES),
    "--missing": ("zero", SAMPLES),
    "--checkpoint": ("kept", SAMPLES),
    "--checkpoint-every": ("1", SAMPLES),
    "--resume": (None, SAMPLES),
    "--restart": (None, SAMPLES),
    "--overwrite": (None, ANY),
    "--scheduler": ("tcp://nowhere:1", ANY),
    "--workers": ("1", ANY),
    "--report": ("r.html", ANY),
    "--labels": ("l.json", ANY),
    "--live": (None, ANY),
    "--quiet": (None, ANY),
    "--json": (None, ANY),
}
OF_EFFECTS = ("--y", "--nuisance", "--block-size")  # these mean something beside --target effect only
KIND = {"views": ["--views"], "auto": [], **{name: ["--solver", name] for name in ("mean", "race", "paper")}}


@pytest.mark.parametrize("kind", ANY)
@pytest.mark.parametrize("option", FIT)
def test_an_option_of_fit_is_refused_where_it_means_nothing(option, kind, tmp_path):
    """Refused by name, before anything is read; where it does mean something it is the missing file that is."""
    value, kinds = FIT[option]
    mine = ["--solver", "race"] if option == "--solver" else [option] if value is None else [option, value]
    mine += ["--target", "effect"] if option in OF_EFFECTS and kind != "views" else []
    said = refusal("fit", "missing.npy", "missing.npy", "--out", tmp_path / "r", *KIND[kind], *mine)
    if kind in kinds:
        assert "no such file" in said or "one PATH holds the samples" in said
    else:
        assert said.startswith(f"{option} is for ")
        assert said.endswith("; leave it out.")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("option", OF_EFFECTS)
def test_an_option_for_effects_is_refused_without_them(option, tmp_path):
    said = refusal("fit", "missing.npy", "--out", tmp_path / "r", option, FIT[option][0])
    assert said == f"{option} is for --target effect; give that, or leave it out."


def test_no_option_of_fit_is_left_out_above():
    named = {option.opts[0] for option in LOADED["fit"].params if option.opts[0].startswith("--")}
    assert named == {*FIT, "--views", "--out", "--checks"}


LAYOUT = ("--sample-dim", "--sample", "--modes", "--value", "--missing")
# What else means nothing beside another option, or for what a folder holds: every row names the option that is refused.
IDLE = [
    ("--checks", ("fit", "d.npy", "--out", "x", "--checks")),
    ("--no-checks", ("fit", "d.npy", "--out", "x", "--no-checks")),
    ("--no-checks", ("fit", "--views", "a.npy", "b.npy", "--out", "x", "--no-checks")),
    ("--live", ("fit", "d.npy", "--out", "x", "--live", "--quiet")),
    ("--json", ("fit", "d.npy", "--out", "x", "--json", "--quiet")),
    ("--resume", ("fit", "d.npy", "--out", "x", "--resume", "--restart")),
    ("--labels", ("report", "c", "--labels", "l.json")),
    ("--data", ("report", "c", "--data", "d.npy")),
    ("--checks", ("report", "c", "--checks")),
    ("--no-checks", ("report", "c", "--no-checks")),
    ("--data", ("report", "r", "--data", "d.npy", "--no-checks")),
    ("--data", ("report", "v", "--data", "a.npy", "--data", "b.npy", "--no-checks")),
    ("--truth", ("score", "a.npy", "b.npy", "v", "--truth")),
    ("--items", ("score", "a.npy", "b.npy", "v", "--items", "samples")),
    *((option, ("score", "a.npy", "b.npy", "v", option, "y.npy")) for option in ("--y", "--nuisance")),
    *((option, ("score", "d.npy", "r", option, "y.npy")) for option in ("--y", "--nuisance")),
    ("--items", ("info", "r", "--items", "samples")),
    *((option, ("score", "a.npy", "b.npy", "v", option, "zero")) for option in LAYOUT),
    *((option, ("info", "r", option, "zero")) for option in LAYOUT),
    ("--order", ("generate", "--dims", "4,3", "--order", "2", "--out", "g.npy")),
    ("--dim", ("generate", "--dims", "4,3", "--dim", "2", "--out", "g.npy")),
    ("--correlation", ("generate", "--strength", "0", "--correlation", "0.5", "--out", "g.npy")),
    ("--processes", ("reproduce", "--show", "--processes", "2")),
    ("--workers", ("reproduce", "--show", "--workers", "2")),
    ("--scheduler", ("reproduce", "--report", "r.html", "--scheduler", "tcp://nowhere:1")),
    ("--processes", ("reproduce", "--quick", "--processes", "2", "--workers", "2")),
    *((option, ("reproduce", "--list", option)) for option in ("--quick", "--full", "--show", "--json")),
    *(
        (option, ("reproduce", "--list", option, "2"))
        for option in ("--store", "--figures", "--report", "--markdown", "--processes", "--scheduler", "--workers")
    ),
]


@pytest.mark.parametrize(("option", "arguments"), IDLE, ids=lambda value: value if isinstance(value, str) else value[0])
def test_an_option_is_refused_beside_what_makes_it_idle(option, arguments, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    said = refusal(*arguments)
    assert said.startswith(f"{option} ")
    assert re.search(r"leave|choose|give", said)
    assert sorted(os.listdir(folder)) == before


def test_every_option_of_every_command_is_known_here():
    """A new option must be entered above, or here, where it always means something or is refused by other words."""
    always = {
        "report": {"--out"},
        "score": {"--nan-policy", "--json"},
        "info": {"--json"},
        "generate": {"--out", "--dims", "--strength", "--samples", "--noise", "--dtype", "--random-state"}
        | {"--overwrite", "--json"},
        "demo": {"--out", "--random-state", "--json"},
        "plan": {"--order", "--dim", "--dims", "--strength", "--noise", "--correlation", "--symmetric", "--samples"}
        | {"--memory-limit", "--rate", "--workers", "--plot", "--json"},
        "compare": {"--order", "--dim", "--dims", "--strength", "--samples", "--correlation", "--symmetric", "--trials"}
        | {"--methods", "--memory-limit", "--law", "--random-state", "--out", "--report", "--json"},
        "reproduce": {"--list"},
    }
    for name in set(COMMANDS) - {"fit"}:
        refused = {option.replace("--no-", "--") for option, arguments in IDLE if arguments[0] == name}
        named = {option.opts[0] for option in LOADED[name].params if option.opts[0].startswith("--")}
        assert named == refused | always[name], name


def test_equal_vectors_have_one_correlation():
    for command in ("plan", "compare"):
        said = refusal(command, "--order", "3", "--dim", "4", "--symmetric", "--correlation", "0.3")
        assert said == "equal vectors have correlation 1, got 0.3; leave one of the two out."
    assert Problem((4, 4, 4), correlation=1.0, symmetric=True).symmetric


def test_labels_are_kept_for_a_later_report_and_live_goes_with_json(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    names = {"0": {"name": "channel", "entries": ["Fz", "Cz", "Pz", "Oz"]}}
    (tmp_path / "l.json").write_text(json.dumps(names))
    arguments = ["fit", "d.npy", "--out", str(tmp_path / "r"), "--labels", str(tmp_path / "l.json"), "--live", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["found"]
    assert "tpca fit d.npy, 60 samples" in done.stderr
    tpca("report", tmp_path / "r", "--no-checks")
    assert "Oz" in (tmp_path / "r" / "report.html").read_text()


# -- the estimators ---------------------------------------------------------------------------------------------------

BOTH = ("auto", "mean", "race")
NAMED = ("auto", "mean", "race", "paper")
PCA = {  # a value other than the default, and the solvers to which the option means something
    "max_samples": (50, BOTH),
    "max_passes": (1, ("auto", "race")),
    "memory_limit": ("1MB", BOTH),
    "tol": (0.5, ("auto", "race")),
    "n_components": (2, BOTH),
    "random_state": (3, NAMED),
    "callbacks": ([print], NAMED),
    "verbose": (0, (*NAMED, "given")),
    "confidence": (0.9, BOTH),
    "whiten": ("modes", BOTH),
    "groups": (2, BOTH),
    "center_modes": ((0,), BOTH),
    "project": ({1: (1.0, 0.0, 0.0)}, BOTH),
    "nan_policy": ("omit", (*NAMED, "given")),
    "shuffle": (True, (*NAMED, "given")),
    "checkpoint": ("kept", NAMED),
    "checkpoint_every": (0.0, NAMED),
    "resume": (True, NAMED),
}


@pytest.mark.parametrize("solver", [*NAMED, "given"])
@pytest.mark.parametrize("option", PCA)
def test_an_option_of_tensor_pca_is_refused_where_it_means_nothing(option, solver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value, solvers = PCA[option]
    pca = TensorPCA(RaceSolver() if solver == "given" else solver, **{option: value})
    if option == "resume" and solver in solvers:
        pca.set_params(checkpoint="kept")
    if solver in solvers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert pca.fit(DATA).shape_in_ == (4, 3, 3, 3)
        return
    said = "beside a solver that is given; give it to that RaceSolver" if solver == "given" else f"to solver='{solver}'"
    with pytest.raises(SolverError, match=rf"^{option}=.+ means nothing {said}.*\.$"):
        pca.fit(DATA)
    assert not hasattr(pca, "shape_in_")


@pytest.mark.parametrize("option", ["checkpoint", "checkpoint_every", "resume", "shuffle"])
def test_what_is_for_stored_samples_is_refused_by_partial_fit(option):
    folder = {"checkpoint": "kept"} if option == "resume" else {}
    pca = TensorPCA(items="batches", **folder, **{option: PCA[option][0]})
    with pytest.raises(SolverError, match=r"means nothing to partial_fit; leave it out, or use fit\.$"):
        pca.partial_fit(DATA)
    with pytest.raises(SolverError, match="max_passes=3 needs samples that can be read again"):
        TensorPCA("race", max_passes=3, items="batches").partial_fit(DATA)


@pytest.mark.parametrize("option", [{"shuffle": True}, {"nan_policy": "omit"}])
def test_options_of_reading_come_too_late_for_what_is_open(option):
    for source in (open_stream(DATA), LocalEngine(DATA)):
        with pytest.raises(StreamError, match=r"comes too late: .* give them to its own open_stream\.$"):
            TensorPCA(random_state=0, **option).fit(source)
    same = TensorPCA(random_state=0, **option).fit(open_stream(DATA, **option))
    assert same.n_samples_seen_ == len(DATA)


def test_sparse_samples_have_no_policy_for_nan():
    from scipy import sparse

    samples = [sparse.random(5, 4, 0.5, random_state=seed) for seed in range(30)]
    with pytest.raises(StreamError, match="nan_policy='omit' is for dense samples"):
        open_stream(samples, nan_policy="omit")


@pytest.mark.parametrize("option", [{"validation_fraction": 0.4}, {"refit": False}])
def test_options_of_tensor_cca_for_stored_views_are_refused_where_views_pass_by(option, folder):
    views = [np.load(folder / f"{name}.npy") for name in "ab"]
    cca = TensorCCA(random_state=0, **option).fit(views)
    weights = cca.weights_
    for fit in (lambda: cca.fit(iter([tuple(views)])), lambda: cca.partial_fit(views)):
        with pytest.raises(SolverError, match=r"means nothing to views that pass by once; leave it out, or fit arrays"):
            fit()
    assert all(np.array_equal(a, b) for a, b in zip(cca.weights_, weights, strict=True))  # nothing is lost
    with pytest.raises(StreamError, match="nan_policy='omit' comes too late"):
        TensorCCA(nan_policy="omit").fit(open_views(views))


def test_the_class_of_a_solver_is_no_solver():
    with pytest.raises(SolverError, match=r"solver must be a solver, got the class RaceSolver; .* RaceSolver\(\)"):
        TensorPCA(solver=RaceSolver).fit(DATA)


WHOLE = {
    "TensorPCA n_components": lambda n: TensorPCA(n_components=n).fit(DATA),
    "TensorPCA race n_components": lambda n: TensorPCA("race", n_components=n).fit(DATA),
    "TensorPCA max_samples": lambda n: TensorPCA(max_samples=n).fit(DATA),
    "TensorPCA max_passes": lambda n: TensorPCA("race", max_passes=n).fit(DATA),
    "TensorPCA random_state": lambda n: TensorPCA(random_state=n).fit(DATA),
    "TensorCCA n_components": lambda n: TensorCCA(n_components=n).fit(ROWS),
    "TensorCCA random_state": lambda n: TensorCCA(random_state=n).fit(ROWS),
    "RaceSolver random_state": lambda n: RaceSolver(random_state=n),
    "RaceSolver max_samples": lambda n: RaceSolver(max_samples=n),
    "RaceSolver max_passes": lambda n: RaceSolver(max_passes=n),
    "RaceSolver n_components": lambda n: RaceSolver(n_components=n),
    "MeanSolver random_state": lambda n: MeanSolver(random_state=n),
    "MeanSolver max_samples": lambda n: MeanSolver(max_samples=n),
    "MeanSolver n_components": lambda n: MeanSolver(n_components=n),
    "PaperSolver random_state": lambda n: PaperSolver(random_state=n),
    "ALS restarts": lambda n: ALS(restarts=n),
    "ALS max_samples": lambda n: ALS(max_samples=n),
    "SpikedTensor random_state": lambda n: SpikedTensor.random((3, 3), random_state=n),
    "SpikedTensor dims": lambda n: SpikedTensor.random((n, 3)),
    "SpikedTensor batch_size": lambda n: TRUTH.stream(batch_size=n),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_whole(name):
    option = {"dims": "the length of a mode"}.get(name.split()[-1], name.split()[-1])
    for bad in (2.5, 2.0, True, "2", -1):
        with pytest.raises(TpcaError, match=rf"^{option} must be a .*, got {re.escape(repr(bad))}\.$"):
            WHOLE[name](bad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert WHOLE[name](np.int64(2)) is not None


# -- where results go -------------------------------------------------------------------------------------------------


def test_samples_that_no_disk_holds_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for suffix in ("npy", "zarr", "h5"):
        said = refusal("generate", "--order", "8", "--dim", "100", "--samples", "1000", "--out", f"deep/g.{suffix}")
        assert re.search(r"take 8e\+04 PB, and the disk has [\d.]+ \w?B left; ask for fewer or smaller samples", said)
    monkeypatch.setattr("tpca.cli.generate.room_at", lambda _: 10**30)
    said = refusal("generate", "--order", "8", "--dim", "100", "--samples", "1000", "--out", "deep/g.npy")
    assert re.search(r"one takes 160 PB of memory, and this machine has [\d.]+ \w?B; ask for smaller samples", said)
    assert "the disk has" in refusal("generate", "--order", "3000", "--dim", "100", "--out", "deep/g.npy")
    assert os.listdir(tmp_path) == []


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """A folder with data and the result of a fit, and that fit."""
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", DATA)
    np.save("e.npy", DATA[::-1])
    command = ("fit", "d.npy", "--out", "r", "--quiet")
    assert tpca(*command) == 0
    return command


def stored():
    return {name: Path("r", name).read_bytes() for name in ("recovery.json", "vectors.npz")}


def test_the_result_of_another_fit_is_not_overwritten(fitted, monkeypatch):
    """Refused before the fit, naming what is other, unless it is asked for; the same fit once more is welcome."""
    before = stored()
    others = {
        ("--random-state", "1"): "random_state was 0, now 1",
        ("--solver", "race"): "solver was 'mean', now 'race'",
        ("--memory-limit", "2MB"): "memory_limit was None, now '2MB'",
        ("--nan-policy", "omit"): "the data have changed since",
    }
    with monkeypatch.context() as patch:
        patch.setattr("tpca.cli.fit._run", lambda *_: pytest.fail("the fit was begun"))
        for options, other in others.items():
            assert f"'r' holds the result of another fit ({other}" in refusal(*fitted, *options)
        said = refusal("fit", "e.npy", "--out", "r")
        assert re.search(r"another fit \(of .*d\.npy\); name another --out, or give --overwrite\.$", said)
    assert stored() == before
    for same in ((), ("--solver", "mean"), ("--report", "r.html"), ("--resume",), ("--restart",), ("--overwrite",)):
        assert tpca(*fitted, *same) == 0
        assert json.loads(stored()["recovery.json"])["settings"]["random_state"] == 0
    assert tpca(*fitted, "--random-state", "1", "--overwrite") == 0
    assert json.loads(stored()["recovery.json"])["settings"]["random_state"] == 1
    np.save("d.npy", DATA[::-1])
    assert "the data have changed since" in refusal(*fitted, "--random-state", "1")


def test_a_result_that_cannot_be_read_is_not_overwritten_either(fitted):
    Path("r/recovery.json").write_text("{")
    assert "another fit (one that cannot be read)" in refusal(*fitted)
    assert tpca(*fitted, "--overwrite") == 0


def test_views_and_samples_do_not_overwrite_each_other(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    views = ("fit", "--views", "a.npy", "b.npy", "--out", "v", "--quiet")
    assert tpca(*views) == 0
    assert "another fit (clip was None, now 2.0)" in refusal(*views, "--clip", "2")
    assert "another fit (of views)" in refusal("fit", "d.npy", "--out", "v")
    assert "another fit (of samples)" in refusal(*views[:-2], "r")


def test_what_is_refused_throws_no_checkpoint_away(fitted):
    kept = "r/checkpoint/00000001"
    os.makedirs(kept)
    assert "another fit" in refusal(*fitted, "--random-state", "1", "--restart")
    assert "--resume needs" in refusal(*fitted, "--resume", "--restart")
    assert os.path.isdir(kept)


IN_THE_WAY = [
    ("fit", "d.npy", "--out", "file"),
    ("fit", "d.npy", "--out", "file/r"),
    ("fit", "d.npy", "--out", "x", "--report", "file/r.html"),
    ("fit", "d.npy", "--out", "x", "--report", "."),
    ("fit", "d.npy", "--out", "x", "--checkpoint", "file/c"),
    ("fit", "--views", "a.npy", "b.npy", "--out", "file/r"),
    ("report", "r", "--out", "file/r.html"),
    ("generate", "--out", "file/d.npy"),
    ("demo", "--out", "file/x"),
    ("plan", "--order", "3", "--dim", "4", "--plot", "file/p.png"),
    ("compare", "--order", "3", "--dim", "4", "--out", "file/c"),
    ("compare", "--order", "3", "--dim", "4", "--out", "x", "--report", "file/r.html"),
    ("reproduce", "--quick", "--store", "file/s"),
    ("reproduce", "--quick", "--store", "x", "--figures", "file/f"),
    ("reproduce", "--quick", "--store", "x", "--markdown", "file/m.md"),
    ("reproduce", "--quick", "--store", "x", "--report", "file/r.html"),
]


@pytest.mark.parametrize("arguments", IN_THE_WAY, ids=lambda a: f"{a[0]} {a[-2]}")
def test_a_file_in_the_way_is_one_line_before_the_work(arguments, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "file").write_text("in the way")
    before = sorted(os.listdir(folder))
    assert "cannot write" in refusal(*arguments)
    assert sorted(os.listdir(folder)) == before
    (folder / "file").unlink()


def test_missing_folders_are_made_for_results_and_data(folder, tmp_path, monkeypatch):
    """Those of pages and pictures are more likely slips, and refused (tests/test_slips.py)."""
    monkeypatch.chdir(folder)
    tpca("fit", "d.npy", "--out", tmp_path / "a/b/r", "--quiet")
    tpca("generate", "--dims", "3,3", "--samples", "2", "--out", tmp_path / "g/h/d.npy")
    write_markdown(tmp_path / "k/l/m.md", [], {}, {})
    for made in ("a/b/r/recovery.json", "g/h/d.npy", "k/l/m.md"):
        assert (tmp_path / made).is_file()
    with pytest.raises(OutputError, match=r"no format 'foo'; give a \.png"):
        tpca("plan", "--order", "3", "--dim", "4", "--plot", tmp_path / "p.foo")
    assert not (tmp_path / "p.foo").exists()


# -- what is said of it -----------------------------------------------------------------------------------------------


def test_one_bound_on_rows_is_advised_everywhere():
    from tpca.report.views_page import row_check
    from tpca.solvers.options import CLIP

    assert TensorCCA().clip is None  # nothing is clipped unless it is asked for
    said = " ".join(TensorCCA.__doc__.split())
    assert f"By default nothing is clipped. Moments of high order have heavy tails: {CLIP} is a good choice" in said
    (option,) = (option for option in LOADED["fit"].params if option.name == "clip")
    assert f"such as {CLIP}; none by default" in option.help
    assert f"--clip {CLIP}." in row_check(np.r_[np.ones(999), 1e9]).meaning
    root = Path(__file__).parents[2]
    for page in (*root.glob("docs/**/*.md"), root / "README.md"):
        assert set(re.findall(r"clip[= ](\d+)", page.read_text())) <= {str(CLIP)}, page
