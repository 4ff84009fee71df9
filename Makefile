# Development commands. They need make and Python 3.11, 3.12 or 3.13; everything else is installed into .venv.
# PYTHON=python3.13 names one; else it is the first that works. Those behind the shims of pyenv come last: it builds them
# without profile-guided optimization unless it is told to, and they take a fifth longer. A shim may also be there and fail.
WORKS := -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1
VERSION := -c 'import sys; print("%d.%d" % sys.version_info[:2])'
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell IFS=:; for shims in no yes; do for each in python3.11 python3.12 python3.13 python3; do for folder in $$PATH; do \
  case "$$folder" in (*/shims) is=yes;; (*) is=no;; esac; \
  test $$is = $$shims && "$$folder/$$each" $(WORKS) && echo "$$folder/$$each" && exit; done; done; done)
else
ASKED := yes
endif
BIN := .venv/bin
, := ,
STAMP := .venv/.installed
BENCH_STAMP := .venv/.installed-bench
COLLECTED := .venv/.collected
# One process more than there are cores, as tests also wait for processes; tests of one file share their fixtures.
PYTEST = $(BIN)/python -m pytest --numprocesses $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)') --dist loadfile --no-loadscope-reorder
# Whatever the shell says, bytecode is kept: pytest would rewrite the asserts of every test in each of its processes.
unexport PYTHONDONTWRITEBYTECODE
# All files with cases that are not in every run.
THOROUGH = $(sort tests/tables/test_frozen_rows.py $(shell grep -rlE 'tests[.](thoroughness|contracts) ' tests --include='test_*.py'; \
  sed -n 's/^- "\{0,1\}\(.*\.py\)::.*/tests\/\1/p' tests/left_out.yaml))
OVERRIDES ?=
NAMES ?=
PAGES ?=
FUZZ ?=
BASE ?= HEAD
BITS ?=
TORTURE ?= kills

COMPILE = $(BIN)/uv pip compile --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links --extra dev \
  --extra estimator --extra tracking --extra sweeps --extra bench --extra docs --extra index --extra keras --extra remote pyproject.toml

.PHONY: interpreter run wheel test test-fast test-thorough fuzz torture check types size bits graph format bench docs notebooks outputs pictures lock clean help

help:            ## list these commands
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

# uv installs in an eighth of pip's time. It gets the indexes that pip has, and where it can't use them, pip installs.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SETTING = "$$($(BIN)/python -m pip config list | sed -n "s/^[^=]*[.]$(1)='\(.*\)'$$/\1/p" | tail -n 1)"
UV = UV_DEFAULT_INDEX=$(call SETTING,index-url) UV_INDEX=$(call SETTING,extra-index-url) UV_FIND_LINKS=$(call SETTING,find-links) \
  UV_INSECURE_HOST=$(call SETTING,trusted-host) $(BIN)/uv pip install --quiet --python $(BIN)/python --index-strategy unsafe-best-match \
  --native-tls --constraint constraints.txt
INSTALL = $(PIP) uv && { $(UV) --editable '.[$(1)]' 2>/dev/null || $(PIP) --editable '.[$(1)]'; }

$(STAMP): pyproject.toml constraints.txt $(wildcard embexp/system/native_code/*.cc embexp/system/native_code/*.h) | interpreter
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@echo "installing embexp and what it needs into .venv"
	@$(call INSTALL,dev)
	-@$(BIN)/python -m embexp.system.native
	@touch $(STAMP)

$(BENCH_STAMP): $(STAMP)
	@$(call INSTALL,dev$(,)bench)
	@touch $(BENCH_STAMP)

interpreter:     # says so if there is no Python to make .venv with, or if .venv has another than was asked for
	@if test -x $(BIN)/python; then \
	  test -z "$(ASKED)" || test "$$("$(PYTHON)" $(VERSION))" = "$$($(BIN)/python $(VERSION))" || \
	  { echo ".venv has Python $$($(BIN)/python $(VERSION)), not that of PYTHON=$(PYTHON): run make clean first" >&2; exit 1; }; \
	else "$(or $(PYTHON),false)" $(WORKS) || \
	  { echo "$(if $(ASKED),PYTHON=$(PYTHON) is no,there is no) working Python 3.11, 3.12 or 3.13 with ensurepip: name one by PYTHON=…" >&2; exit 1; }; fi

run: $(STAMP)    ## train the default experiment (OVERRIDES='experiment=… key=value' for others)
	$(BIN)/embexp run $(OVERRIDES)

wheel: $(STAMP)  ## build dist/embexp-…manylinux….whl, which has fused operations for the installed TensorFlow
	@rm -rf dist/linux
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m build --wheel --no-isolation --outdir dist/linux .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --exclude libtensorflow_framework.so.2 --wheel-dir dist dist/linux/*.whl
	@rm -r dist/linux && ls -l dist

test: $(STAMP)   ## run all tests
	$(PYTEST)

test-fast: $(STAMP) ## run the tests that take a few seconds at most
	$(PYTEST) -m 'not slow'

test-thorough: $(STAMP) ## run frozen rows on hundreds of random graphs, and all cases that `make test` has one of
	$(BIN)/python -m pytest --hypothesis-profile=thorough --hypothesis-show-statistics $(THOROUGH)

fuzz: $(STAMP)   ## read 100,000 mutated files, configs and command lines each (FUZZ='--inputs 5000 --reader npy', FUZZ=--help)
	$(BIN)/python -m tests.fuzz $(FUZZ)

torture: $(STAMP) ## kill runs at operations on their files, or let them lose power, share a folder, lose a worker or get signals (TORTURE='power --number 50', TORTURE=--help)
	$(BIN)/python -m tests.torture $(TORTURE)

check: $(STAMP)  ## check format, lint, types and size, and run all tests, as in CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.size
	@$(MAKE) --no-print-directory --jobs=2 types $(COLLECTED)
	$(PYTEST)

types: $(STAMP)  ## check types
	$(BIN)/mypy

# One process imports and rewrites all that tests import, while mypy has the other core; else each of theirs would.
$(COLLECTED): $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet --quiet >/dev/null; touch $(COLLECTED)

size: $(STAMP)   ## print lines of code, modules and the budget of each package
	@$(BIN)/python -m tests.size

bits: $(STAMP)   ## compare tables, metrics and run ids of 14 small runs with those of another commit (BASE=HEAD~3)
	@$(BIN)/python -m tests.bits $(BASE) $(BITS)

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

pictures: $(STAMP) ## make the pictures of the docs again, by following three pages; needs chromium
	$(BIN)/python docs/pictures.py

notebooks: $(STAMP) ## execute the notebooks in docs/notebooks/, and write their outputs into them (NAMES='ratings words')
	$(BIN)/python -m tests.notebooks $(NAMES)

outputs: $(STAMP) ## run the commands of the docs, and write what they print into the pages (PAGES='README.md docs/growth.md')
	$(BIN)/python -m tests.outputs $(PAGES)

lock: $(STAMP)   ## update constraints.txt from the ranges in pyproject.toml, for every version of Python
	$(COMPILE) --python-version 3.11 --output-file constraints.txt
	@for each in 3.12 3.13; do \
	  $(COMPILE) --python-version $$each --constraint constraints.txt --only-binary :all: --no-binary antlr4-python3-runtime \
	    --output-file .venv/lock.txt || exit 1; \
	  ! grep -vxFf constraints.txt .venv/lock.txt || { echo "Python $$each needs these, too" >&2; exit 1; }; done

clean:           ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site
