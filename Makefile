# Development commands. They need Python 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
BENCH_STAMP := .venv/.installed-bench
# One process more than there are cores, as tests also wait for processes; tests of one file share their fixtures.
PYTEST := $(BIN)/python -m pytest --numprocesses $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)') --dist loadfile --no-loadscope-reorder
# Whatever the shell says, bytecode is kept: pytest would rewrite the asserts of every test in each of its processes.
unexport PYTHONDONTWRITEBYTECODE
# All files with cases that are not in every run.
THOROUGH = $(shell grep -rlE 'tests[.](thoroughness|contracts) ' tests --include='test_*.py' | sort) tests/tables/test_frozen_rows.py
OVERRIDES ?=
NAMES ?=
FUZZ ?=

.PHONY: run test test-fast test-thorough fuzz check graph format bench docs notebooks pictures lock clean help

help:            ## list these commands
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

$(STAMP): pyproject.toml constraints.txt $(wildcard embexp/system/native_code/*.cc)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	-@$(BIN)/python -m embexp.system.native
	@touch $(STAMP)

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	@touch $(BENCH_STAMP)

run: $(STAMP)    ## train the default experiment (OVERRIDES='experiment=… key=value' for others)
	$(BIN)/embexp run $(OVERRIDES)

test: $(STAMP)   ## run all tests
	$(PYTEST)

test-fast: $(STAMP) ## run the tests that take a few seconds at most
	$(PYTEST) -m 'not slow'

test-thorough: $(STAMP) ## run frozen rows on hundreds of random graphs, and all cases that `make test` has one of
	$(BIN)/python -m pytest --hypothesis-profile=thorough --hypothesis-show-statistics $(THOROUGH)

fuzz: $(STAMP)   ## read 100,000 mutated files with every reader (FUZZ='--inputs 5000 --reader npy', FUZZ=--help)
	$(BIN)/python -m tests.fuzz $(FUZZ)

check: $(STAMP)  ## check format, lint and types, and run all tests, as in CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

graph: $(STAMP)  ## print the import graph: rooms, floors, arrows
	@$(BIN)/python -m tests.import_graph

format: $(STAMP) ## format, and fix lint errors automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_STAMP) ## run all benchmarks, with the libraries they compare with
	$(BIN)/python -m bench

docs: $(STAMP)   ## build the documentation site into site/, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html"

pictures: $(STAMP) ## make the pictures of the docs again, by following the tutorial; needs chromium
	$(BIN)/python docs/pictures.py

notebooks: $(STAMP) ## execute the notebooks in docs/notebooks/, and write their outputs into them (NAMES='ratings words')
	$(BIN)/python -m tests.notebooks $(NAMES)

lock: $(STAMP)   ## update constraints.txt from the ranges in pyproject.toml
	$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
	  --no-emit-find-links --extra dev --extra estimator --extra tracking --extra sweeps --extra bench --extra docs pyproject.toml -o constraints.txt

clean:           ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site
