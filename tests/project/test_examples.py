"""The quick version of every example of the gallery: it runs, says what it found, and draws."""

import importlib.util
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def quick(tmp_path, capsys):
    """Run an example's quick version; what it returns and what it printed."""

    def run(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        picture = tmp_path / "picture.png"
        found = module.main(["--quick", "--out", str(picture)])
        drawn = matplotlib.image.imread(picture)
        assert drawn.shape[1] > 400
        assert drawn[..., :3].std() > 0.05  # not an empty sheet
        return found, capsys.readouterr().out

    return run


def test_every_example_is_in_the_gallery_with_picture_and_text():
    for example in EXAMPLES:  # what a page shows of them is what is stored: test_docs.py
        assert f"../../examples/{example.name}" in (ROOT / "docs" / "gallery" / f"{example.stem}.md").read_text()
        assert all(
            (ROOT / "docs" / "figures" / "gallery" / f"{example.stem}.{kind}").exists() for kind in ("png", "txt")
        )


def test_digits(quick):
    found, printed = quick("multiview_digits")
    assert "TensorCCA, component 0" in printed
    assert "pairwise CCA" in printed
    assert found["cca"].p_values_[0] < 0.05
    assert found["held out"] > found["pairwise"] > 0


def test_oddball_contrast(quick):
    found, printed = quick("oddball_contrast")
    assert found["pca"].effects_ == ["target - standard"]
    assert "largest Pz" in printed
    assert found["mean"].strengths_[0] > 20  # what both conditions share is far stronger
    assert found["cells"] < 50  # of 4480, of which hundreds have an effect


@pytest.mark.slow
def test_sensor_array(quick):
    """Two healthy machines: a false alarm in both has probability 0.25 % at the promised 5 %."""
    found, _ = quick("sensor_array")
    assert all(estimate.found for estimate in found["broken"])
    assert found["truth"].overlaps(found["broken"][0].vectors).min() > 0.9
    assert found["false"] <= 1


@pytest.mark.slow
def test_order6(quick):
    found, _ = quick("order6_stream")
    for name in ("race", "mean"):
        assert found[name].found
        assert found["truth"].overlaps(found[name].vectors).min() > 0.9
    assert found["race"].state_bytes <= 64_000
    assert all(value < limit + 1 for value, limit in found["tables"].values())  # the effect is in no small table


def test_serology(quick):
    found, printed = quick("serology")
    assert found["default"].verdict_ == "not tested"  # sorted by patient and outcome
    assert found["loose"].found_
    for one, other in zip(found["default"].components_, found["loose"].components_, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    assert "groups=" in printed


def test_gapminder(quick):
    found, printed = quick("gapminder_table")
    np.testing.assert_allclose(found["pca"].explained_variance_ratio_, found["plain"], atol=0.006)
    assert "'Algeria'" in printed  # a lost row is named


@pytest.mark.slow
def test_kinetic(quick):
    found, _ = quick("kinetic_spectra")
    assert found["change"] < 1e-9
    assert found["odd"] == 27  # whose measurement was cut off
    assert found["rest"].explained_variance_ratio_[1] < 0.75 * found["pca"].explained_variance_ratio_[1]
