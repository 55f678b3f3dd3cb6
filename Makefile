# `make help` lists the targets. The first run installs into .venv; later runs need no network.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
ARGS   ?=

BIN   := $(VENV)/bin
PY    := $(BIN)/python
RUN   := $(VENV)/.stamp-run
STAMP := $(VENV)/.stamp
PIP   := $(PY) -m pip install -qq --constraint constraints.txt
STEP   = @printf '\n==> %s\n'

# One BLAS thread: sums come out in the same order everywhere, and workers do not fight over cores.
export OMP_NUM_THREADS      ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS      ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Tests start hundreds of processes: each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test test-oldest check hostile bench bench-guard docs docs-check build-check clean distclean format \
        lint test-fast test-full doctest

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 chooses the interpreter, ARGS='...' is passed on by reproduce, bench and bench-guard"

setup: $(STAMP)  ## make .venv with everything the tests need

reproduce: $(RUN)  ## run the paper's panels and write the report
	$(STEP) "Reproducing the paper's experiments"
	@$(BIN)/dualanchor reproduce $(ARGS)

test-oldest:  ## the fast tests with the oldest versions that pyproject.toml admits, in .venv-oldest
	$(STEP) "Tests: the oldest NumPy, SciPy and others"
	@$(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip install -qq --constraint constraints-oldest.txt '.[all]' pytest pytest-xdist hypothesis
	@PYTHONPATH=src .venv-oldest/bin/python -m pytest -m "not slow" -n $(JOBS) --dist worksteal tests/unit tests/lemmas tests/contract

# One core each: together they take half the time. GNU make 4 shows what each has said when it ends.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync)

test: $(STAMP)  ## everything that CI runs
	@$(MAKE) --no-print-directory --jobs=$(JOBS) $(SYNC) docs-check lint doctest
	@$(MAKE) --no-print-directory test-full
	@$(MAKE) --no-print-directory build-check
	$(STEP) "All checks passed"

check: lint test-fast  ## the part of test that takes about a minute

hostile: $(STAMP)  ## all hostile cases: damaged files, absurd arguments, killed processes
	$(STEP) "Hostile tests, in full"
	@$(PY) -m pytest tests/hostile --hostile-full -n $(JOBS) --dist worksteal

bench: $(STAMP)  ## measure what things cost and write benchmarks/RESULTS.md
	$(STEP) "Benchmarks"
	@$(PY) -m benchmarks.gather --write $(ARGS)

bench-guard: $(STAMP)  ## fail if a ratio is 30 % worse than in benchmarks/results.json
	$(STEP) "Benchmarks against the stored ones"
	@$(PY) -m benchmarks.gather --guard $(ARGS)

SPHINX = $(PY) -m sphinx -q -E -W --keep-going -n -b html

docs: $(STAMP)  ## build docs/_build/html and run the gallery; a warning is an error
	$(STEP) "Documentation: sphinx, strict"
	@$(SPHINX) -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

docs-check: $(STAMP)  ## the same into docs/_build/check, the gallery not run
	$(STEP) "Documentation: sphinx, strict, the gallery not run"
	@$(SPHINX) -D plot_gallery=0 -d docs/_build/doctrees-check docs docs/_build/check

build-check: $(STAMP)  ## build the sdist and the wheel and use them
	$(STEP) "Distributions: build, install, import"
	@$(PY) tools/build_check.py

format: $(STAMP)  ## rewrite the sources in the project's format
	$(STEP) "Format: ruff"
	@$(PY) -m ruff check --fix --exit-zero --quiet .
	@$(PY) -m ruff format .

clean:  ## remove what the other targets wrote, except .venv
	rm -rf build dist docs/_build docs/_generated docs/gallery htmlcov .coverage .coverage.* \
	       .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find benchmarks docs examples src tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## clean, and remove .venv
	rm -rf $(VENV) .venv-oldest

# The parts of check and test.

lint: $(STAMP)
	$(STEP) "Format: ruff format"
	@$(PY) -m ruff format --check .
	$(STEP) "Lint: ruff check"
	@$(PY) -m ruff check .
	$(STEP) "Types: mypy"
	@$(PY) -m mypy
	$(STEP) "Layers: import-linter"
	@$(BIN)/lint-imports --no-logo

test-fast: $(STAMP)
	$(STEP) "Tests: all but the slow ones"
	@$(PY) -m pytest -m "not slow" -n $(JOBS) --dist worksteal

test-full: $(STAMP)
	$(STEP) "Tests: all, with branch coverage"
	@$(PY) -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term --cov-fail-under=95

doctest: $(STAMP)
	$(STEP) "Tests: examples in docstrings"
	@$(PY) -m pytest --doctest-modules --doctest-ignore-import-errors src

$(RUN): pyproject.toml constraints.txt $(wildcard src/dualanchor/_version.py)
	$(STEP) "Set-up: $(VENV)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v < (3, 11) and sys.exit(f"dualanchor needs Python 3.11 or newer, this is {v[0]}.{v[1]}; try: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[all]'
	@$(PY) -m compileall -q src
	@touch $@

$(STAMP): $(RUN)
	$(STEP) "Set-up: what the tests need"
	@$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@
