"""A rhythm without a phase: what the average of all trials cannot show.

Trials of 20 channels and half a second each.  A rhythm of 10 Hz over the back of the head waxes and wanes in every
trial, at any phase, so that it averages to nothing; how strong it is goes with how fast the answer comes.  The average
shows the evoked response only, and the background, which is smooth along the scalp and in time, varies more than the
rhythm does.  A filter of one's own, in ``preprocess``, leaves the band from 7 to 13 Hz.  The data are made here.

    python examples/induced_rhythm.py [--out rhythm.png] [--quick]
"""

import argparse
from pathlib import Path

import numpy as np
import xarray
from sklearn.decomposition import IncrementalPCA

import tpca
from tpca.report.style import COLOURS, drawing

CHANNELS = [f"{name}{i}" for name in ("F", "C", "P", "O") for i in range(1, 6)]
TIMES = np.linspace(0, 0.5, 40)
MODES = ["channel", "time"]


def unit(vector):
    return np.asarray(vector) / np.linalg.norm(vector)


def rhythm():
    """Over the back of the head; a bump in time, as a cosine and as a sine, which together are any phase."""
    where = unit(np.exp(-((np.arange(len(CHANNELS)) - 16) ** 2) / 12))
    bump = np.exp(-((TIMES - 0.28) ** 2) / 0.015)
    waves = np.stack([bump * np.cos(2 * np.pi * 10 * TIMES), bump * np.sin(2 * np.pi * 10 * TIMES)])
    return where, np.linalg.qr(waves.T)[0].T


def smooth(length, correlation):
    return np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(range(length), range(length))))


def trials(n):
    """Samples as a DataArray, the strength and phase of the rhythm, and the time that the answer took."""
    rng = np.random.default_rng(1)
    where, waves = rhythm()
    strength, phase = 6 * np.exp(0.4 * rng.standard_normal(n)), rng.uniform(0, 2 * np.pi, n)
    each = strength[:, None] * np.column_stack([np.cos(phase), np.sin(phase)])
    evoked = 8 * np.outer(unit(np.linspace(1, 0.2, len(CHANNELS))), unit(np.exp(-((TIMES - 0.12) ** 2) / 0.002)))
    noise = np.einsum("ij,njk,lk->nil", smooth(len(CHANNELS), 0.7), rng.standard_normal((n, 20, 40)), smooth(40, 0.8))
    samples = evoked + np.einsum("i,nt->nit", where, each @ waves) + noise
    answer = 0.7 - 0.08 * np.log(strength) + 0.03 * rng.standard_normal(n)
    return xarray.DataArray(samples, {"channel": CHANNELS, "time": TIMES}, ("trial", *MODES)), each, answer


def alpha(x):
    """Trials between 7 and 13 Hz."""
    spectrum, hertz = np.fft.rfft(x, axis=-1), np.fft.rfftfreq(len(TIMES), TIMES[1] - TIMES[0])
    spectrum[..., (hertz < 7) | (hertz > 13)] = 0
    return np.fft.irfft(spectrum, n=len(TIMES), axis=-1)


def from_data_to_figure(samples, plt, out, answer):
    """All that is needed: six lines from the data to the labelled figure."""
    pca = tpca.TensorPCA(2, target="variance", preprocess=alpha, random_state=0).fit(samples)
    found, amplitudes = pca.result_.to_xarray(), pca.transform(samples).values
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    axes[0, 0].errorbar(CHANNELS, found["vector_channel"][0], 2 * found["standard_error_channel"][0], fmt="o")
    axes[0, 1].plot(TIMES, found["vector_time"].values.T)
    finish(figure, axes, found, amplitudes, answer, out)
    return pca, found, amplitudes


def finish(figure, axes, found, amplitudes, answer, out):
    """Titles, what was planted, and what every trial has of it, for the gallery."""
    where, waves = rhythm()
    axes[0, 0].plot(CHANNELS, where, color=COLOURS[1], marker="_", ms=12, mew=2, ls="", label="planted")
    axes[0, 0].axhline(0, color="0.5", lw=0.8)
    axes[0, 0].tick_params(axis="x", labelrotation=90)
    axes[0, 0].set(title="which channels", ylabel="weight ± 2 errors")
    axes[0, 0].legend()
    for vector in found["vector_time"].values:  # any phase is as good: the nearest of the planted plane
        axes[0, 1].plot(TIMES, unit(vector @ waves.T) @ waves, color="0.5", ls=":", lw=2)
    axes[0, 1].plot([], [], color="0.5", ls=":", lw=2, label="planted, at this phase")
    axes[0, 1].set(title="when: two components, a quarter of a turn apart", xlabel="seconds", ylabel="weight")
    axes[0, 1].legend()
    axes[1, 0].plot(*amplitudes.T[:2], "o", ms=3, alpha=0.5)
    axes[1, 0].axhline(0, color="0.5", lw=0.8)
    axes[1, 0].axvline(0, color="0.5", lw=0.8)
    axes[1, 0].set(title="every trial: any phase", xlabel="amplitude of component 0", ylabel="amplitude of component 1")
    axes[1, 1].plot(np.hypot(*amplitudes.T[:2]), answer, "o", ms=3, alpha=0.5)
    axes[1, 1].set(title="the stronger the rhythm, the faster the answer", xlabel="length of both amplitudes")
    axes[1, 1].set(ylabel="seconds to the answer")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, transparent=True)


def in_the_rhythm(pattern):
    """Share of a pattern of unit length, channels by times, that lies in the planted rhythm at some phase."""
    where, waves = rhythm()
    return float(np.linalg.norm(np.einsum("it,i,ct->c", pattern, where, waves)) ** 2)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("induced_rhythm.png"))
    parser.add_argument("--quick", action="store_true", help="fewer trials")
    options = parser.parse_args(arguments)
    samples, each, answer = trials(600 if options.quick else 800)
    with drawing() as plt:
        pca, found, amplitudes = from_data_to_figure(samples, plt, options.out, answer)
    print(f"{len(samples)} trials: {pca.verdict_}, p = {pca.p_values_.round(2)}")
    for c, (strength, (low, high)) in enumerate(zip(pca.strengths_, pca.strength_intervals_, strict=True)):
        share, pattern = pca.explained_variance_ratio_[c], np.outer(*(v[c] for v in pca.components_))
        told = f"strength {strength:.2f}, interval {low:.2f} to {high:.2f}, {share:.1%} of all variance"
        print(f"  component {c}: {told}; {in_the_rhythm(pattern):.0%} of the pattern is the planted rhythm")
    follows = float(np.corrcoef(np.hypot(*amplitudes.T[:2]), answer)[0, 1])
    best = float(np.corrcoef(np.hypot(*each.T), answer)[0, 1])
    print(f"  amplitude and answer: correlation {follows:.2f}; with the planted amplitudes {best:.2f}")
    mean = tpca.TensorPCA(random_state=0).fit(samples)
    print(f"the mean: {mean.verdict_}, {in_the_rhythm(np.outer(*(v[0] for v in mean.components_))):.0%} the rhythm")
    plain = tpca.TensorPCA(2, target="variance", random_state=0).fit(samples)
    shares = [in_the_rhythm(np.outer(*v)) for v in zip(*plain.components_, strict=True)]
    print("without the filter: " + ", ".join(f"{share:.0%}" for share in shares) + " the rhythm")
    flat = {}
    for name, x in (("as they are", samples.values), ("filtered", alpha(samples.values))):
        patterns = IncrementalPCA(2).fit(x.reshape(len(x), -1)).components_.reshape(2, *x.shape[1:])
        flat[name] = [in_the_rhythm(p) for p in patterns]
        print(f"PCA of flattened trials, {name}: " + ", ".join(f"{share:.0%}" for share in flat[name]) + " the rhythm")
    return {"pca": pca, "found": found, "follows": follows, "shares": [in_the_rhythm(np.outer(*v)) for v in
            zip(*pca.components_, strict=True)], "flat": flat["as they are"]}  # fmt: skip


if __name__ == "__main__":
    main()
