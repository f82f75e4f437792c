"""A faint leak in a hyperspectral scene: where is it, and which lines does it show?

Frames of row × column × wavelength of a photographed scene, counted photon by photon.  Something very faint glows in
it: a spot as wide as the lens makes every point, with a spectrum of two lines, five photons where the scene has a
hundred.  The camera nods: every frame with the leak in view is paired with one that has it blocked, and a sample is
their difference, in which the scene cancels and only its photon noise stays, which is louder where the scene is bright.

    python examples/hyperspectral_leak.py [--out leak.png] [--quick]
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_sample_image

import tpca
from tpca.report.style import COLOURS, drawing

WAVELENGTHS = np.linspace(450, 700, 24)  # nanometres
RGB = (610, 540, 465)  # where the camera's colours sit
ROW, COLUMN, WIDTH, PHOTONS = 20, 31, 2.0, 5.0


def scene():
    """The photograph as photons a frame (32, 48, 24): colours interpolated to a smooth spectrum, mean 100."""
    photo = load_sample_image("china.jpg")[:416, :624].reshape(32, 13, 48, 13, 3).mean(axis=(1, 3))
    bands = np.exp(-0.5 * ((WAVELENGTHS - np.array(RGB)[:, None]) / 45) ** 2)
    cube = photo @ bands
    return 100 * cube / cube.mean()


def leak():
    """Unit vectors over rows, columns and wavelengths, and the strength."""
    spot = [np.exp(-0.5 * ((np.arange(n) - at) / WIDTH) ** 2) for n, at in ((32, ROW), (48, COLUMN))]
    lines = sum(h * np.exp(-0.5 * ((WAVELENGTHS - at) / 8) ** 2) for h, at in ((1.0, 589), (0.6, 656)))
    parts = [*spot, lines]
    lengths = [np.linalg.norm(p) for p in parts]
    return tpca.SpikedTensor(tuple(p / n for p, n in zip(parts, lengths, strict=True)), PHOTONS * np.prod(lengths))


def nods(cube, extra, count, rng, together=20):
    """Batches of differences, made when they are read: with the leak minus without, photon noise in both."""
    for start in range(0, count, together):
        shape = (min(together, count - start), *cube.shape)
        yield rng.poisson(cube + extra, shape).astype(float) - rng.poisson(cube, shape)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("hyperspectral_leak.png"))
    parser.add_argument("--quick", action="store_true", help="fewer frames")
    options = parser.parse_args(arguments)
    count = 200 if options.quick else 300

    cube, truth = scene(), leak()
    rng = np.random.default_rng(3)
    batches = list(nods(cube, truth.signal(), count, rng))  # kept only to compare methods on the same frames
    pca = tpca.TensorPCA(random_state=0).fit(tpca.open_stream(batches, items="batches"))
    mean = sum(b.sum(axis=0) for b in batches) / count
    _, _, spectra = np.linalg.svd(mean.reshape(-1, len(WAVELENGTHS)), full_matrices=False)
    rivals = {
        "mean + PCA of pixels": spectra[0],
        "brightest pixel": mean[np.unravel_index(np.argmax(mean.sum(2)), (32, 48))],
    }
    try:
        from tensorly.decomposition import parafac

        rivals["mean + TensorLy parafac"] = parafac(mean, 1, init="svd").factors[2][:, 0]
    except ImportError:
        print("TensorLy is not installed: left out")

    low, high = pca.strength_intervals_[0]
    print(f"{count} pairs of frames: {pca.verdict_}, p = {pca.p_values_[0]:.3f}")
    print(f"strength {pca.strengths_[0]:.1f} [{low:.1f}, {high:.1f}], planted {truth.strength:.1f} photons")
    print("overlap of row, column and spectrum:", np.round(truth.overlaps(pca.components_), 3))
    spectrum = truth.vectors[2]
    for name, rival in rivals.items():
        print(f"  spectrum by {name:24s} {abs(rival @ spectrum) / np.linalg.norm(rival):.3f}")

    dark = tpca.open_stream(nods(cube, 0, count, rng), items="batches")
    blocked = tpca.TensorPCA(random_state=0).fit(dark)
    limit = blocked.strength_intervals_[0, 1]
    print(f"the same without a leak: {blocked.verdict_}, p = {blocked.p_values_[0]:.2f}, at most {limit:.1f} photons")
    unpaired = tpca.TensorPCA(random_state=0).fit(rng.poisson(cube + truth.signal(), (20, *cube.shape)).astype(float))
    own = cube.mean((0, 1))
    overlap = abs(unpaired.components_[2][0] @ own) / np.linalg.norm(own)
    print(f"without nodding: {unpaired.verdict_}, strength {unpaired.strengths_[0]:.0f}, "
          f"overlap of the spectrum with the scene's own {overlap:.3f}")  # fmt: skip
    draw(cube, mean, pca, truth, rivals, options.out)
    return {"pca": pca, "truth": truth, "blocked": blocked, "rivals": rivals}


def draw(cube, mean, pca, truth, rivals, out):
    rows, columns, spectrum = (v[0] for v in pca.components_)
    line = int(np.argmax(truth.vectors[2]))
    with drawing() as plt:
        figure, axes = plt.subplots(2, 2, figsize=(11, 6.4), layout="constrained")
        axes = axes.ravel()
        pictures = (
            (cube[..., line], "cividis", f"scene at {WAVELENGTHS[line]:.0f} nm"),
            (mean[..., line], "RdBu_r", f"mean difference at {WAVELENGTHS[line]:.0f} nm"),
            (
                pca.strengths_[0] * abs(spectrum[line]) * np.outer(rows, columns),
                "RdBu_r",
                f"leak found, at {WAVELENGTHS[line]:.0f} nm",
            ),
        )
        for axis, (picture, colours, title) in zip(axes, pictures, strict=False):
            limit = np.abs(picture).max()
            shown = axis.imshow(picture, cmap=colours, vmin=-limit if colours == "RdBu_r" else 0, vmax=limit)
            axis.set(title=title, xlabel="column", ylabel="row")
            axis.grid(False)
            figure.colorbar(shown, ax=axis, shrink=0.85, label="photons a frame")
        sign, errors = np.sign(spectrum @ truth.vectors[2]), pca.standard_errors_[2][0]
        axis = axes[3]
        axis.errorbar(
            WAVELENGTHS, sign * spectrum, 2 * errors, color=COLOURS[0], marker="o", ms=4, label="found ± 2 errors"
        )
        axis.plot(WAVELENGTHS, truth.vectors[2], color=COLOURS[1], ls="--", label="planted")
        pixel = rivals["brightest pixel"]
        axis.plot(
            WAVELENGTHS,
            pixel / np.linalg.norm(pixel),
            color=COLOURS[2],
            lw=1,
            marker="^",
            ms=3,
            label="brightest pixel",
        )
        axis.set(xlabel="wavelength (nm)", ylabel="weight", title="spectrum")
        axis.legend()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()
