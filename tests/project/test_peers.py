"""The README's table of what others do, tried on the installed packages; fails where a new version can do more."""

import inspect
import json
import re
import subprocess
import sys
import tracemalloc
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import IncrementalPCA

import tpca

README = (Path(__file__).parents[2] / "README.md").read_text()
tensorly = pytest.importorskip("tensorly", reason="the peers are installed by pip install 'tpca[peers]'")
pyttb = pytest.importorskip("pyttb", reason="the peers are installed by pip install 'tpca[peers]'")
cca_zoo = pytest.importorskip("cca_zoo", reason="cca-zoo is installed with the development packages")


@pytest.mark.parametrize("name", ["TensorLy", "pyttb", "pygenten", "cca-zoo", "scikit-learn"])
def test_versions(name):
    if name == "pygenten" and not sys.platform.startswith("linux"):
        pytest.skip("it is installed with the development packages on Linux only")
    assert f"{name} {version(name)}" in README


def test_tensorly_and_pyttb_take_no_stream():
    from tensorly.decomposition import CP, parafac

    assert not hasattr(CP, "partial_fit")
    with pytest.raises(AttributeError, match="'list_iterator' object has no attribute 'ndim'"):
        parafac(iter([np.ones((3, 3, 3))]), 1)  # a stream is no tensor
    assert len(parafac(np.ones((3, 3, 3)), 1)[1]) == 3  # weights and factors, and no word on errors
    assert not any("partial" in name or "stream" in name for name in dir(pyttb))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="installed on Linux only")
def test_pygenten():
    """In a process of its own: importing it starts Kokkos, which writes to the terminal and sets up threads."""
    program = """import inspect, json, pygenten as g
print("found", json.dumps({"online": list(inspect.signature(g.online_gcp).parameters), "names": dir(g),
                           "spaces": list(g.Execution_Space.__members__), "options": dir(g.AlgParams)}))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(re.search(r"^found (.*)$", done.stdout, re.M)[1])
    assert {"X", "X0", "u0"} <= set(found["online"])  # a list of tensors, and the fit that it starts from
    assert {"Cuda", "HIP", "SYCL"} <= set(found["spaces"])
    assert {"history_method", "window_size"} <= set(found["options"])  # what it keeps of the past
    assert {"Sptensor", "gcp_opt"} <= set(found["names"])
    assert not any("mask" in name for name in (*found["options"], *found["names"]))


@pytest.mark.slow
def test_cca_zoo_builds_the_tensor():
    """Twice the columns, sixteen times the memory; ours grows with the square at most."""
    from cca_zoo.linear import TCCA
    from cca_zoo.model_selection import permutation_test_significance

    assert callable(permutation_test_significance)
    assert not hasattr(TCCA, "partial_fit")
    assert "None" in inspect.getdoc(TCCA.predict)  # stands for a view to fill in
    peaks = {}
    for width in (16, 32):
        views = [np.random.default_rng(i).standard_normal((300, width)) for i in range(4)]
        for name, fit in (("cca-zoo", TCCA(shrinkage=0.1).fit), ("tpca", tpca.TensorCCA(random_state=0).fit)):
            tracemalloc.start()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ours says that the views are unrelated, which they are
                fit(views)
            peaks[name, width] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert peaks["cca-zoo", 32] > 8 * 32**4
    assert peaks["cca-zoo", 32] > 8 * peaks["cca-zoo", 16]
    assert peaks["tpca", 32] < 8 * 32**4
    with pytest.raises(TypeError, match="dense"):
        TCCA().fit([scipy.sparse.csr_matrix(v) for v in views])
    with pytest.raises(ValueError, match="NaN"):
        TCCA().fit([np.where(v > 2, np.nan, v) for v in views])


def test_incremental_pca_subtracts_the_signal():
    """A signal of strength 3 in 336 entries: the mean holds it, the component does not."""
    truth = tpca.SpikedTensor.random((8, 7, 6), 3.0, random_state=1)
    X = next(iter(truth.stream(random_state=2, batch_size=500))).reshape(500, -1)
    pca = IncrementalPCA(n_components=1)
    for batch in np.array_split(X, 5):
        pca.partial_fit(batch)
    direction = truth.signal().ravel() / truth.strength
    # A random direction of 336 has overlap 0.055 in root mean square; 0.3 is beyond five of that.
    assert abs(pca.components_[0] @ direction) < 0.3
    assert abs(pca.mean_ @ direction) / np.linalg.norm(pca.mean_) > 0.9
    assert pca.components_.nbytes >= X[0].nbytes  # never less than a sample
    IncrementalPCA(n_components=1).fit(scipy.sparse.csr_matrix(X[:50]))
    with pytest.raises(ValueError, match="NaN"):
        IncrementalPCA(n_components=1).fit(np.where(X > 3, np.nan, X))


def test_the_table_has_a_cell_for_everybody():
    (table,) = re.findall(r"^\| \| tpca \|.*\n\|[-| ]+\n((?:\|.*\n)+)", README, re.M)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert len(rows) >= 6
    assert [row for row in rows if len(row) != 7 or not all(row)] == []
