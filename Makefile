# The commands of this project. Needs Python 3.11 and make; everything else goes into .venv.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
BENCH_STAMP := .venv/.installed-bench
# A process per core; tests of one file share what they set up.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
OVERRIDES ?=

.PHONY: run test test-fast test-thorough check graph format bench lock clean help

help:            ## show this list
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	@touch $(BENCH_STAMP)

run: $(STAMP)    ## train the default experiment (more with OVERRIDES='experiment=… key=value')
	$(BIN)/embexp run $(OVERRIDES)

test: $(STAMP)   ## all tests
	$(PYTEST)

test-fast: $(STAMP) ## the tests that take no more than a few seconds each
	$(PYTEST) -m 'not slow'

test-thorough: $(STAMP) ## frozen rows on hundreds of random graphs
	$(BIN)/python -m pytest --hypothesis-profile=thorough --hypothesis-show-statistics \
	  tests/runs/test_frozen_runs.py tests/tables/test_frozen_rows.py -k 'any_graph or policies'

check: $(STAMP)  ## format, lint, types, tests: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

graph: $(STAMP)  ## the import graph: rooms, floors, arrows
	@$(BIN)/python -m tests.import_graph

format: $(STAMP) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_STAMP) ## all benchmarks, peers in the same run
	$(BIN)/python -m bench

lock: $(STAMP)   ## renew constraints.txt from the ranges in pyproject.toml
	$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
	  --no-emit-find-links --extra dev --extra estimator --extra tracking --extra sweeps --extra bench pyproject.toml -o constraints.txt

clean:           ## remove the environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
