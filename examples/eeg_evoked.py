"""EEG: which channels, which rhythm, when?  A weak response to a stimulus in trials of channel × frequency × time.

The background is made the hard way: 60 sources with 1/f spectra, mixed to 32 electrodes (neighbours see nearly the
same), cut into trials, turned into decibels of power by wavelets; in a third of them somebody blinks.  A sample is a
trial less the control stretch before it, so that without a response its mean is exactly zero.  The response is a drop
of 2.5 decibels in alpha over the back of the head; one entry of one sample varies by eight decibels.  The noise is far
from white.  The pattern is plain least squares in decibels; whitened statistics sharpen the test only.

    python examples/eeg_evoked.py [--out eeg.png] [--quick]
"""

import argparse
import math
from pathlib import Path

import numpy as np

import tpca
from tpca.report.style import COLOURS, MARKERS, drawing

CHANNELS, SOURCES, RATE = 32, 60, 128  # electrodes, sources in the head, samples a second
FREQUENCIES = np.geomspace(4, 40, 12)  # Hz
TIMES = np.linspace(0, 0.8, 16)  # seconds after the stimulus
DEPTH = 2.5  # decibels at the strongest channel, frequency and moment


def electrodes():
    """Places on the upper half of a unit sphere, spread evenly; x to the right, y to the front."""
    k = np.arange(CHANNELS)
    z = 1 - (k + 0.5) / CHANNELS
    angle, radius = k * math.pi * (3 - math.sqrt(5)), np.sqrt(1 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)


def response(places):
    """The planted effect: unit vectors over channels, frequencies and times, and its size."""
    topography = np.exp(-np.sum((places - [0.1, -0.85, 0.5]) ** 2, axis=1) / 0.5)
    rhythm = np.exp(-((np.log2(FREQUENCIES / 10)) ** 2) / 0.15)
    course = np.where(TIMES > 0.1, np.clip(TIMES - 0.1, 0, None) * np.exp(-(TIMES - 0.1) / 0.12), 0)
    parts = [topography / topography.max(), rhythm / rhythm.max(), -course / course.max()]
    lengths = [np.linalg.norm(p) for p in parts]
    return [p / n for p, n in zip(parts, lengths, strict=True)], DEPTH * math.prod(lengths)


def head(places, rng):
    """How strongly every electrode sees every source, and a blink: over the eyes, slow."""
    inside = rng.standard_normal((SOURCES, 3))
    inside *= 0.85 / np.linalg.norm(inside, axis=1, keepdims=True)
    mixing = 1 / (0.02 + np.sum((places[:, None] - inside) ** 2, axis=2))
    blink = np.exp(-np.sum((places - [0, 0.95, 0.2]) ** 2, axis=1) / 0.4)
    return mixing, np.multiply.outer(blink, np.exp(-(FREQUENCIES - 4) / 4))


def background(trials, mixing, blink, rng):
    """Decibels of power (trials, channel, frequency, time)."""
    n = 2 * RATE  # two seconds, so that wavelets do not see the ends
    hertz = np.fft.rfftfreq(n, 1 / RATE)
    pink = 1 / np.sqrt(np.maximum(hertz, 1))
    pick = np.round((TIMES + 0.6) * RATE).astype(int)
    result = np.empty((trials, CHANNELS, len(FREQUENCIES), len(TIMES)))
    for trial in result:
        noise = rng.standard_normal((SOURCES, len(hertz))) + 1j * rng.standard_normal((SOURCES, len(hertz)))
        spectrum = mixing @ (noise * pink)
        for i, f in enumerate(FREQUENCIES):
            wavelet = np.exp(-0.5 * ((hertz - f) / (f / 5)) ** 2)
            analytic = np.fft.ifft(np.pad(spectrum * wavelet, ((0, 0), (0, n - len(hertz)))))
            trial[:, i] = 10 * np.log10(np.abs(analytic[:, pick]) ** 2)
        if rng.random() < 1 / 3:
            when = np.exp(-0.5 * ((TIMES - rng.uniform(0, 0.8)) / 0.12) ** 2)
            trial += 12 * rng.gamma(4, 0.25) * np.multiply.outer(blink, when)
    return result


def svd_of_mean(X):
    """The obvious way: average, unfold channels against the rest, singular vectors, and once more for the rest."""
    mean = X.mean(axis=0)
    u, _, rest = np.linalg.svd(mean.reshape(len(mean), -1), full_matrices=False)
    v, _, w = np.linalg.svd(rest[0].reshape(mean.shape[1:]), full_matrices=False)
    return [u[:, 0], v[:, 0], w[0]]


def worst(found, truth):
    return min(abs(float(a @ b)) for a, b in zip(found, truth, strict=True))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("eeg_evoked.png"))
    parser.add_argument("--quick", action="store_true", help="fewer trials and repetitions")
    options = parser.parse_args(arguments)
    counts, repeats = ([480], 1) if options.quick else ([40, 80, 160, 320, 640], 6)

    rng = np.random.default_rng(7)
    places = electrodes()
    mixing, blink = head(places, rng)
    truth, size = response(places)
    effect = size * np.einsum("i,j,k->ijk", *truth)
    ways = {"least squares": {}, "whiten=None": {"whiten": None}, "whiten=modes": {"whiten": "modes"}}
    table = {name: np.zeros((len(counts), repeats)) for name in (*ways, "mean + SVD")}
    proven = {name: np.zeros(len(counts), dtype=int) for name in ways}
    shown, silent = None, []
    for r in range(repeats):
        samples = background(max(counts), mixing, blink, rng) - background(max(counts), mixing, blink, rng)
        for i, n in enumerate(counts):
            X = samples[:n] + effect
            for name, options_of_fit in ways.items():
                pca = tpca.TensorPCA(random_state=0, **options_of_fit).fit(X)
                table[name][i, r] = worst([v[0] for v in pca.components_], truth)
                proven[name][i] += pca.found_
                if n in (320, 480) and shown is None:
                    shown = pca
            table["mean + SVD"][i, r] = worst(svd_of_mean(X), truth)
        silent.append(tpca.TensorPCA(random_state=0).fit(samples))

    print(f"effect: {DEPTH} dB at its peak; one entry of one sample varies by {samples.std():.1f} dB")
    heads = "".join(f"{name:>16s}" for name in table)
    print(f"trials{heads}   (worst overlap; proven of {repeats})")
    for i, n in enumerate(counts):
        cells = [f"{table[m][i].mean():.2f}" for m in table]
        for j, m in enumerate(ways):
            cells[j] += f" ({proven[m][i]})"
        print(f"{n:6d}" + "".join(f"{cell:>16s}" for cell in cells))
    claims = sum(pca.found_ for pca in silent)
    print(f"{max(counts)} trials without any response: a claim in {claims} of {repeats}")
    print(shown.summary())
    draw(places, truth, shown, counts, table, options.out)
    return {"overlaps": {k: v.mean(axis=1) for k, v in table.items()}, "proven": proven, "silent": silent, "fit": shown}


def draw(places, truth, shown, counts, table, out):
    patterns, errors = ([v[0] for v in each] for each in (shown.components_, shown.standard_errors_))
    drawn = shown.n_samples_seen_
    signs = [np.sign(p @ t) for p, t in zip(patterns, truth, strict=True)]
    with drawing() as plt:
        figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
        axes = axes.ravel()
        flat = places[:, :2] * (np.arccos(places[:, 2]) / np.linalg.norm(places[:, :2], axis=1))[:, None]
        limit = np.abs(patterns[0]).max()
        dots = axes[0].scatter(
            *flat.T, c=signs[0] * patterns[0], s=220, cmap="RdBu_r", vmin=-limit, vmax=limit, edgecolors="0.5"
        )
        axes[0].add_patch(plt.Circle((0, 0), math.pi / 2, fill=False, color="0.5"))
        axes[0].plot([-0.15, 0, 0.15], [math.pi / 2, 1.75, math.pi / 2], color="0.5")
        axes[0].set(aspect="equal", title=f"where ({drawn} trials; nose up)")
        axes[0].axis("off")
        figure.colorbar(dots, ax=axes[0], shrink=0.7, label="weight of a channel")
        for axis, x, mode, title in ((axes[1], FREQUENCIES, 1, "which rhythm"), (axes[2], TIMES, 2, "when")):
            found = signs[mode] * patterns[mode]
            axis.fill_between(x, *(found + s * errors[mode] for s in (-2, 2)), color=COLOURS[0], alpha=0.25)
            axis.plot(x, found, color=COLOURS[0], marker="o", ms=3, label="found ± 2 errors")
            axis.plot(x, truth[mode], color=COLOURS[1], ls="--", label="planted")
            axis.set(title=title, ylabel="weight")
        axes[1].set(xscale="log", xlabel="frequency (Hz)", xticks=[4, 10, 20, 40], xticklabels=["4", "10", "20", "40"])
        axes[1].minorticks_off()
        axes[1].legend()
        axes[2].set_xlabel("time after the stimulus (s)")
        for (name, values), colour, marker in zip(table.items(), COLOURS, MARKERS, strict=False):
            axes[3].plot(counts, values.mean(axis=1), color=colour, marker=marker, label=name)
        axes[3].set(
            xscale="log", xticks=counts, xticklabels=counts, xlabel="trials", ylabel="worst overlap of the three",
            title="how many trials", ylim=(0, 1.35),
        )  # fmt: skip
        axes[3].minorticks_off()
        axes[3].legend(loc="upper left", ncol=2)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
