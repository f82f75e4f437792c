"""Words about a result: one line of verdict, one line for every concern, numbers of the result, names of the data."""

import re

import numpy as np
import pandas
import pytest
import xarray
from sklearn.exceptions import NotFittedError

from tpca import PaperSolver, SpikedTensor, TensorCCA, TensorPCA
from tpca.wording import with_error

DIMS = (4, 30, 5)
TRUTH = SpikedTensor.random(DIMS, 4.0, random_state=1)
X = next(iter(TRUTH.stream(random_state=2, batch_size=120)))
LABELS = np.array(["a", "b", "c"])[np.arange(120) % 3]


def fit(samples=X, y=None, count=1, **options):
    return TensorPCA(count, random_state=0, **options).fit(samples, y)


def effect(samples, y):
    """What is said of an effect, and its fit."""
    pca = fit(X + np.multiply.outer(samples, TRUTH.signal()), y, target="effect")
    return str(pca.summary()), pca


def first_line(estimator):
    return str(estimator.summary()).splitlines()[0]


def test_verdict_components_and_methods_have_the_numbers_of_the_fit():
    pca = fit()
    low, high = pca.strength_intervals_[0]
    assert pca.p_values_[0] == 1 / 1000  # the least that 999 flips can say
    assert first_line(pca) == (
        f"Signal: strength {pca.strengths_[0]:.2f} (95 % interval {low:.2f} to {high:.2f}), p ≤ 0.001."
    )
    assert str(pca.summary()).splitlines()[1].startswith("120 samples of 4 × 30 × 5; least squares, 60 units, ")
    assert repr(pca.summary()) == str(pca.summary())
    pca = fit(count=3)
    assert f"{int(pca.significant_.sum())} of 3 components is proven" in first_line(pca)
    assert pca.n_proven_ == int(pca.significant_.sum())
    told = str(pca.summary())
    assert re.findall(r"^(component .*?):", told, re.MULTILINE) == [f"component {i}" for i in (1, 2, 3)]
    assert "(not significant)" in told
    told, plain = (fit(n_resamples=199, whiten=w).result_.methods() for w in ("auto", None))
    for part in ("120 samples of 4 × 30 × 5", "199 random sign flips of 60 independent units", "tpca 0."):
        assert part in told
    assert "whitening" in told
    assert "whitening" not in plain


def test_no_signal_comes_with_p_a_limit_and_what_would_help_and_few_entries_are_pointed_at():
    noise = X - X.mean(axis=0)
    pca = TensorPCA(random_state=0).fit(np.concatenate([noise, -noise]))  # its mean is zero
    limit = pca.strength_intervals_[0, 1]
    says = rf"No signal: p = [\d.]+( over all tests)?; if there is one, its strength is below {limit:.3g} \(95 % conf"
    assert re.match(says, first_line(pca))
    assert f"Four times as many samples would lower the limit to about {limit / 2:.2g}." in str(pca.summary())
    # One entry of 600 is 0.5, 7 standard errors; the best fit to noise has length (√6 + 2√10)/√200 = 0.62.
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((200, 6, 10, 10))
    noise -= noise.mean(axis=0)
    noise += 0.02 * rng.standard_normal((6, 10, 10))
    noise[:, 2, 3, 4] += 0.5
    pca = TensorPCA(random_state=0, whiten=None).fit(noise)
    assert (pca.entry_p_values_ <= 0.05).sum() == 1
    assert not pca.found_
    assert pca.entry_p_values_.min() == 1 / 1000  # the least that 999 flips can say
    assert "1 entry is significant (least p ≤ 0.001): the signal may be in few entries" in str(pca.summary())
    assert "whiten='auto'" in str(pca.summary())


def test_components_beside_the_proven_ones_are_said_to_blur_them():
    pca = fit(count=3, n_resamples=199)
    assert pca.n_proven_ == 1
    assert "n_components=1" in str(pca.summary())
    assert "a fit of one is not the first of two" in str(pca.summary()).replace("\n  ", " ")
    flat = fit(X[:, 0], count=2, n_resamples=199)  # singular vectors: the first of two is that of a fit of one
    assert "n_components=1" not in str(flat.summary())
    assert "not the first of two" not in str(flat.summary()).replace("\n  ", " ")


def test_what_was_not_tested_or_never_observed_or_cannot_be_had_is_said():
    few = TensorPCA(random_state=0).fit(X[:4, :, :3, :3])
    assert first_line(few).startswith("Not tested: ")
    assert "confidence" in first_line(few)
    assert str(few.summary()).count("Not tested") == 1  # not once more among the concerns
    four = np.random.default_rng(0).standard_normal((50, 3, 4, 3, 4))
    paper = TensorPCA(solver=PaperSolver(strength=4.0, random_state=0)).fit(four)
    assert first_line(paper).startswith("Not tested: the samples ended before the schedule did.")
    assert "p = " not in str(paper.summary())
    holed = X.copy()
    holed[:, 2] = np.nan
    told = str(TensorPCA(nan_policy="zero", random_state=0).fit(holed).summary())
    assert "Never observed: 2 of axis 0." in told
    # Samples of one axis have one component of the mean; the second is zero.
    table = TensorPCA(2, random_state=0, n_resamples=19).fit(X[:, :, 0, 0] + 3)
    assert table.p_values_[1] == 1
    summary = table.summary()
    assert summary.parts[1].strength == "nothing is left to fit"
    assert "component 2: nothing is left to fit" in str(summary)


def test_effects_are_named_and_variation_is_told_as_shares():
    y, dose = np.where(np.arange(120) % 2, "on", "off"), np.linspace(0, 1, 120)
    assert "effect of on - off: strength" in effect(y == "on", y)[0]
    assert "effect of y, per unit: strength" in effect(dose, dose)[0]
    told, three = effect(LABELS == "b", LABELS)
    assert "effect between 3 labels: strength" in told
    amplitudes = three.label_amplitudes_[0]
    assert f"a: −{-amplitudes[0]:.2g}, b: {amplitudes[1]:.2g}, c: −{-amplitudes[2]:.2g}" in told
    assert "a: " not in first_line(three)  # the verdict stays short
    rng = np.random.default_rng(5)
    varied = rng.standard_normal((150, *DIMS)) + np.multiply.outer(2 * rng.standard_normal(150), TRUTH.signal())
    pca = TensorPCA(target="variance", random_state=0).fit(varied)
    assert f"{100 * pca.explained_variance_ratio_[0]:.3g} % of the variance" in first_line(pca)
    assert "entries vary together, no more" in str(pca.summary())


def test_notebooks_show_tables_and_names_are_text():
    names = ["Fz", "<b>Cz</b>", "Pz\x1b[2J", "Oz"]
    named = xarray.DataArray(X, dims=("trial", "channel", "time", "band"), coords={"channel": names})
    summary = TensorPCA(random_state=0).fit(named).summary()
    assert str(summary).splitlines()[1].startswith("120 samples of channel 4 × time 30 × band 5;")
    assert "\x1b" not in str(summary)
    page = summary._repr_html_()
    assert page.count("<table>") == 1
    assert "<b>" not in page


def test_views_are_summed_up_with_the_names_of_their_columns():
    rng = np.random.default_rng(5)
    shared = rng.exponential(size=900) - 1
    rows = (np.outer(shared, np.ones(3)) + 0.3 * rng.standard_normal((900, 3)) for _ in range(2))
    names = ([f"{name}{i}" for i in range(3)] for name in ("gene ", "protein "))
    views = [pandas.DataFrame(view, columns=own) for view, own in zip(rows, names, strict=True)]
    cca = TensorCCA(random_state=0).fit(views)
    told = str(cca.summary())
    correlation = with_error(cca.correlations_[0], cca.correlation_errors_[0])
    assert told.startswith(f"Signal: correlation {correlation} on held-out rows")
    assert "\n900 rows of 2 views, 3 × 3 columns\n" in told
    assert "view 1  protein " in told
    assert "loadings: correlations with the score of their view" in told
    named = TensorCCA(random_state=0).fit(pandas.concat({"left": views[0], "right": views[1]}, axis=1))
    assert "  left   gene " in str(named.summary())


def test_numbers_and_their_errors_in_words():
    assert with_error(0.1, 0.004) == "0.100 ± 0.004"
    assert with_error(-0.9, 0.02) == "−0.90 ± 0.02"
    assert with_error(0.4, np.inf) == with_error(0.4, np.nan) == "0.400"
    assert with_error(3e7, 2e6) == "3·10⁷ ± 2·10⁶"
    assert with_error(None, None) == "—"


def test_before_a_fit_there_is_nothing_to_show():
    estimators = (TensorPCA(), TensorCCA())
    for show in (lambda e: e.summary(), lambda e: e.plot(), lambda e: e.report("r.html"), lambda e: e.save("r")):
        for estimator in estimators:
            with pytest.raises(NotFittedError):
                show(estimator)


def test_along_a_continuous_axis_peaks_are_listed_and_not_their_neighbours():
    time = np.linspace(0, 1, 50)
    wave = np.exp(-(((time - 0.3) / 0.1) ** 2)) - 0.8 * np.exp(-(((time - 0.7) / 0.1) ** 2))
    rng = np.random.default_rng(0)
    data = 5 * wave + 0.1 * rng.standard_normal((40, 50))
    X = xarray.DataArray(data, dims=("trial", "time"), coords={"time": np.arange(50)})
    pca = TensorPCA(random_state=0, n_resamples=19).fit(X)
    ((_, entries),) = pca.summary().parts[0].axes
    first, second = (int(entry.split(":")[0]) for entry in entries[:2])
    assert first == np.argmax(np.abs(pca.components_[0][0]))
    assert abs(second - first) > 5
    assert pca.components_[0][0][first] * pca.components_[0][0][second] < 0  # the trough comes second
    assert max(map(len, str(pca.summary()).splitlines()[2:])) <= 80
