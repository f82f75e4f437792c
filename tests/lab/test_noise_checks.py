"""The judge of noise that is not white: laws, nulls, planted signals, and what is made of the trials."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tpca.errors import StudyError
from tpca.lab.pages.noise_figure import draw
from tpca.lab.studies import noise_checks
from tpca.lab.studies.noise_laws import LAWS, coloured, random_direction, scale_roots, serial, smooth_root
from tpca.lab.studies.noise_planted import ROOTS, VECTORS, planted
from tpca.lab.studies.noise_summary import allowed, summarised, targets
from tpca.lab.studies.noise_tables import TABLES
from tpca.lab.studies.noise_trials import CHUNK, RUN, NoiseChecks
from tpca.lab.studies.real_nulls import GROUP, SETS, null_of, samples_of
from tpca.lab.studies.store import Store, key
from tpca.lab.studies.study import Record, Verdict

DIMS = (3, 4, 2)


@pytest.mark.parametrize("name", list(LAWS))
def test_every_law_draws_samples_of_mean_zero(name):
    """The sum of all entries over 60 draws is zero within 6 standard errors: false alarms, all laws, < 1e-5."""
    draws = [LAWS[name](np.random.default_rng(seed), 30, DIMS) for seed in range(60)]
    assert all(draw.shape == (30, *DIMS) and np.isfinite(draw).all() for draw in draws)
    np.testing.assert_array_equal(draws[0], LAWS[name](np.random.default_rng(0), 30, DIMS))
    sums = np.array([draw.sum() for draw in draws])
    assert abs(sums.mean()) < 6 * sums.std(ddof=1) / math.sqrt(len(sums))


def test_the_laws_are_those_that_were_asked_for():
    assert len(LAWS) >= 25
    page = (Path(__file__).parents[2] / "docs" / "noise.md").read_text()
    assert [name for name in LAWS if f"| {name} |" not in page] == []


@pytest.mark.parametrize(
    ("name", "variance"), [("dir8", 64.0), ("resonances", 100.0), ("slow-direction", 17.0), ("dirsign8", 64.0)]
)
def test_strong_directions_are_as_strong_as_said(name, variance):
    """The largest eigenvalue of 4000 samples' covariance is that of the direction.

    Its relative error is at most √(2/n_eff) ≈ 0.1 at the 210 independent samples of an AR(0.9) in 4000, five times
    which is allowed; false alarms < 1e-5.
    """
    noise = LAWS[name](np.random.default_rng(1), 4000, (6, 6, 6)).reshape(4000, -1)
    top = np.linalg.eigvalsh(np.cov(noise.T))[-1]
    assert top == pytest.approx(variance, rel=0.5)


def test_serial_noise_follows_its_recursion():
    noise = np.random.default_rng(0).standard_normal((50, 2, 3))
    samples = serial(0.9)(np.random.default_rng(0), noise)
    np.testing.assert_allclose(samples[0], noise[0])
    np.testing.assert_allclose(samples[1:] - 0.9 * samples[:-1], math.sqrt(1 - 0.81) * noise[1:], atol=1e-12)


def test_a_kronecker_product_of_roots(rng):
    roots = [smooth_root(0.9, d) for d in DIMS]
    np.testing.assert_allclose((roots[1] @ roots[1].T)[0], 0.9 ** np.arange(4))
    noise = rng.standard_normal((5, *DIMS))
    whole = np.einsum("ai,bj,ck,nijk->nabc", *roots, noise)
    np.testing.assert_allclose(coloured(noise, roots), whole)
    assert all(np.count_nonzero(root) == len(root) for root in scale_roots(rng, DIMS))


@pytest.mark.parametrize("vectors", list(VECTORS))
@pytest.mark.parametrize("law", list(ROOTS))
def test_the_whitened_signal_has_the_strength_asked_for(law, vectors):
    drawn = planted(law, vectors, 1.7, np.random.default_rng(5), 10, DIMS)
    rng = np.random.default_rng(5)
    v = [VECTORS[vectors](rng, d) for d in DIMS]
    roots = ROOTS[law](rng, DIMS)
    np.testing.assert_allclose(drawn.truth.vectors[1], v[1])
    inverse = [np.linalg.inv(root) for root in roots]
    assert np.linalg.norm(coloured(drawn.truth.signal()[None], inverse)) == pytest.approx(1.7)
    white = coloured(drawn.samples - drawn.truth.signal(), inverse)
    np.testing.assert_allclose(white, rng.standard_normal((10, *DIMS)), atol=1e-9)


def test_a_signal_in_other_noise_is_added_as_it_is():
    drawn = planted("factors", "rough", 2.0, np.random.default_rng(2), 10, DIMS)
    rng = np.random.default_rng(2)
    for d in DIMS:
        VECTORS["rough"](rng, d)
    np.testing.assert_allclose(drawn.samples - drawn.truth.signal(), LAWS["factors"](rng, 10, DIMS))


def test_a_random_direction_has_rank_one_and_norm_one(rng):
    w = random_direction(rng, DIMS)
    assert np.linalg.norm(w) == pytest.approx(1.0)
    assert [np.linalg.matrix_rank(np.moveaxis(w, m, 0).reshape(DIMS[m], -1)) for m in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("name", list(SETS))
def test_real_data_keep_their_size_and_lose_their_signs(name, rng):
    samples = samples_of(name)
    assert samples.ndim >= 3
    assert np.isfinite(samples).all()
    flipped = null_of(name, "single", rng)
    np.testing.assert_array_equal(np.abs(flipped), np.abs(samples))
    differences = null_of(name, "centred", rng)
    wanted = (samples[1] - samples[0]) / math.sqrt(2)
    np.testing.assert_allclose(np.abs(differences[0]), np.abs(wanted))
    assert len(differences) == len(samples) // 2


def test_a_group_shares_its_sign(rng):
    flipped, samples = null_of("china", "groups", rng), samples_of("china")
    plain = (samples[1::2] - samples[::2]) / math.sqrt(2)
    signs = np.sign(np.sum(flipped * plain, axis=(1, 2, 3))).reshape(-1, GROUP)
    assert np.all(np.abs(signs.sum(axis=1)) == GROUP)
    assert set(signs[:, 0]) == {-1.0, 1.0}
    with pytest.raises(StudyError, match="form must be one of single, centred for 'iris', got 'groups'"):
        null_of("iris", "groups", rng)


def test_there_are_sets_from_three_packages():
    assert len(SETS) >= 6
    assert {data.package for data in SETS.values()} == {"scikit-learn", "TensorLy", "statsmodels"}


def test_allowed_is_what_five_per_cent_rarely_exceeds():
    assert allowed(200) == 18


def test_quick_trials_are_part_of_the_full_ones_and_plain():
    study = NoiseChecks(7)
    quick, full = ([key(params) for params in study.grid(scale)] for scale in ("quick", "full"))
    assert len(set(full)) == len(full)
    assert set(quick) <= set(full)
    assert all(json.loads(text)["first"] == 7 for text in quick)
    assert all(study.cost(params) > 0 for params in study.grid("quick"))


@pytest.mark.parametrize("kind", list(RUN))
def test_a_trial_of_every_kind_says_what_it_should(kind):
    """One run of the smallest setting of each kind; what it finds is not asked here."""
    settings = [params for group in NoiseChecks.settings().values() for params in group]
    params = next(p for p in settings if p["kind"] == kind and p["solver"] == "mean")
    result = RUN[kind](params, 3)
    assert json.loads(json.dumps(result)) == result
    assert result == RUN[kind](params, 3)


def records(claims, samples, inside):
    """Trials of all settings in which every run comes out the same."""
    trials = NoiseChecks(0).grid("full")
    trials += [{**params, "whiten": "auto"} for params in trials if params.get("whiten", "auto") is None]
    made = []
    for params in {key(params): params for params in trials}.values():
        result = {"claims": {"found": claims}, "real": {"found": claims, "samples": 50}}
        result["power"] = {"proven": samples, "right": True, "limit_held": True}
        result["coverage"] = {"right": True, "inside": inside, "strength_inside": True, "ratio": 1.0}
        made.append(Record(params, {name: [v] * CHUNK for name, v in result[params["kind"]].items()}, 0.1))
    return made


def test_summary_and_targets_of_known_trials(tmp_path):
    good, bad = (summarised(records(claims, 80, 0.95)) for claims in (False, True))
    assert all(row["claims"] == 0 for row in good["claims"])
    assert {row["runs"] for row in good["claims"]} == {200, 60}
    assert all(row["ratio"] == 1.0 for row in good["power"] if row["solver"] == "race")
    met, missed = ({f.label: f.verdict for f in targets(summary)} for summary in (good, bad))
    assert met["claims on noise, race, pooled"] is Verdict.AGREES
    assert met["samples until proven, race, whitened"] is Verdict.AGREES
    assert met["coverage, entries, race"] is Verdict.AGREES
    assert met["coverage, strength, race"] is Verdict.DIFFERS  # 400 of 400 is more than 97 %
    assert missed[f"claims on noise, mean, {len(LAWS)} settings"] is Verdict.DIFFERS
    assert missed["claims on sign-flipped real data, race"] is Verdict.DIFFERS
    content = {"before": bad, "now": good}
    shown = {name: show(content) for name, show in TABLES.items()}
    assert "| white | **200 of 200** | 0 of 200, 0.0–1.8 % | **200 of 200** | 0 of 200, 0.0–1.8 % |" in shown["claims"]
    assert "| digits (scikit-learn) | image, 8×8 | as they are | 50 | **100 of 100** |" in shown["real"]
    assert "| 40 claims, 40 right of 40, at 80 | 1.00 [1.00, 1.00] |" in shown["power"]
    draw(content, tmp_path / "noise.png")
    assert (tmp_path / "noise.png").stat().st_size > 5000


def test_a_signal_that_is_never_proven_takes_for_ever():
    summary = summarised(records(False, None, 0.95))
    assert {row["median"] for row in summary["power"]} == {None}
    assert "| ∞ [∞, ∞] |" in TABLES["power"]({"now": summary})
    assert {f.label: f.verdict for f in targets(summary)}["samples until proven, race, whitened"] is Verdict.DIFFERS


def test_an_interrupted_run_goes_on_and_a_finished_one_is_followed_by_new_seeds(tmp_path, monkeypatch):
    store = Store(tmp_path)
    study, trial = NoiseChecks(5000), {"kind": "claims", "solver": "mean", "chunk": 0}
    monkeypatch.setattr(NoiseChecks, "grid", lambda self, _: [{**trial, "first": self.first}])
    assert noise_checks.study_in(store, "quick", 5000).first == 5000
    store.add(study, {**trial, "first": 5000, "chunk": 1}, {"found": [False]}, 0.1)
    assert noise_checks.study_in(store, "quick").first == 5000
    store.add(study, {**trial, "first": 5000}, {"found": [False]}, 0.1)
    assert noise_checks.study_in(store, "quick").first != 5000
    assert [r.params["chunk"] for r in noise_checks.records_of(study, store)] == [0]


def test_what_is_written_keeps_what_was_before(tmp_path, capsys):
    out = tmp_path / "checks.json"
    before = summarised(records(True, None, 0.5))
    noise_checks.write(out, "before", {"first_seed": 1, **before})
    noise_checks.write(out, "now", {"first_seed": 2, **summarised(records(False, 80, 0.95))})
    stored = json.loads(out.read_text())
    assert (stored["before"]["first_seed"], stored["now"]["first_seed"]) == (1, 2)
    assert stored["before"]["claims"] == json.loads(json.dumps(before["claims"]))
    noise_checks.main(["--show", "--out", str(out)])
    assert "| white, order 4 | **60 of 60** | 0 of 60" in capsys.readouterr().out


def test_the_checks_run_in_processes_and_are_stored(tmp_path, monkeypatch):
    """Two cheap trials from the first seed to the file."""
    chosen = [p for p in NoiseChecks(3).grid("quick") if p["kind"] == "real" and p["solver"] == "mean"][:2]
    monkeypatch.setattr(NoiseChecks, "grid", lambda *_: chosen)
    out = tmp_path / "checks.json"
    arguments = ["--quick", "--store", str(tmp_path / "store"), "--out", str(out), "--first-seed", "3"]
    noise_checks.main([*arguments, "--processes", "1"])
    stored = json.loads(out.read_text())["now"]
    assert stored["runs"] == 2 * CHUNK
    assert [row["runs"] for row in stored["real"]] == [20]
