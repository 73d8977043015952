# From an empty clone, with only Python there: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Some of the tests run torch code. Where the plain wheel is too large, name another index:
#   make test TORCH="--index-url https://download.pytorch.org/whl/cpu torch==2.13.0"
TORCH ?= torch==2.13.0

# More than two workers gain little: the slow tests wait for installs.
WORKERS ?= 2
PYTEST_ARGS ?=

PYTHONS ?= 3.10 3.11 3.12 3.13

# Python compiles what it imports: most of torch, sympy and mypy never is.
PIP_FLAGS := --quiet --disable-pip-version-check --no-compile

# The tests start pytest hundreds of times, each a second later where Python may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-thorough test-all test-torches attack lint lint-style lint-types docs bench bench-compile bench-counters bench-dispatcher bench-ghost bench-guards bench-history bench-keras bench-layers bench-lint bench-metrics bench-native bench-noise bench-plugin bench-prices bench-recall bench-releases bench-revisions bench-rounds bench-runtime bench-saved bench-scout bench-server bench-trace bench-traces bench-waits clean bench-fixes bench-package-tests skills bench-gains
.DELETE_ON_ERROR:

help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "dispatchguard needs Python 3.10 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.made
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[docs]'
	@touch $@

# Without torch the tests that run torch code skip, so a failure here is told and not fatal;
# the file is made only where it worked, so the next call tries again.
$(VENV)/.torch: $(VENV)/.dev
	@echo "installing $(TORCH)"
	@if $(BIN)/python -m pip install $(PIP_FLAGS) $(TORCH); then touch $@; \
	else echo "torch could not be installed; tests that run torch code will skip" >&2; fi

demo: $(VENV)/.dev $(VENV)/.torch ## a small project that is wrong on purpose: findings, fixes, budgets
	@BIN=$(abspath $(BIN)) sh fixtures/demo/demo.sh

# Each worker runs a stretch of the tests, so that what those of a file share is made once, mostly; one that is
# done takes half of what is left to the other.
DIST := -n $(WORKERS) --dist worksteal

test: $(VENV)/.dev $(VENV)/.torch ## run the tests
	$(BIN)/python -m pytest $(DIST) -m "not thorough" $(PYTEST_ARGS)

# Chosen by what changed since the branch left main, and stopped before its minute is over: see CONTRIBUTING.md.
test-quick: $(VENV)/.dev $(VENV)/.torch ## run the tests of what changed, for a minute at most
	$(BIN)/python tests/quick.py $(DIST) $(PYTEST_ARGS)

test-thorough: $(VENV)/.dev $(VENV)/.torch ## run the tests, the longest ones too
	$(BIN)/python -m pytest $(DIST) $(PYTEST_ARGS)

# MIRRORS, a folder as for bench-recall, has commits of other repositories replayed too, which takes hours.
attack: $(VENV)/.dev $(VENV)/.torch ## attack linter, posting and plugin: mutants, sizes, caches, answers, deaths, commits (30 minutes)
	$(BIN)/python bench/bench_attacks.py $(MIRRORS)

# KERAS, a folder filled by `bench_keras.py FOLDER --fetch`, is for a machine without internet.
gpu: $(VENV)/.dev $(VENV)/.torch ## run on a GPU what is skipped elsewhere, ten minutes (DRY=1: without a GPU)
	$(BIN)/python bench/bench_gpu.py $(if $(DRY),--dry) $(if $(KERAS),--keras $(KERAS))

lint: $(VENV)/.dev ## ruff, mypy --strict, and dispatchguard on itself
	@$(MAKE) --no-print-directory -j2 lint-types lint-style

lint-types: $(VENV)/.dev
	$(BIN)/mypy --strict pytest_dispatchguard rules

lint-style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/dispatchguard check

skills: $(VENV)/.dev ## write skills/ for coding agents from the rule pages
	$(BIN)/python docs/gen_skills.py

docs: $(VENV)/.docs ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: bench-lint bench-server bench-keras bench-plugin bench-history bench-counters bench-prices bench-fixes bench-package-tests bench-ghost bench-metrics bench-runtime bench-layers bench-dispatcher bench-compile bench-guards bench-trace bench-traces bench-luck bench-saved bench-releases bench-noise bench-rounds bench-revisions ## measure everything that is measured

bench-lint: $(VENV)/.dev ## measure the linter against its peers
	$(BIN)/python bench/bench_lint.py

bench-scout: $(VENV)/.dev ## ask whether the scout leaves out what rules would find: FOLDERS=…
	$(BIN)/python bench/bench_scout.py $(FOLDERS)

bench-server: $(VENV)/.dev ## measure what an editor waits for
	$(BIN)/python bench/bench_server.py

bench-keras: $(VENV)/.dev $(VENV)/.torch ## lint and measure an older and a newer Keras side by side
	$(BIN)/python bench/bench_keras.py

# The repositories themselves are not here: MIRRORS is a folder with <owner>+<name>/repo for each of them.
bench-recall: $(VENV)/.dev ## how much of what maintainers removed is told: make bench-recall MIRRORS=folder
	@test -n "$(MIRRORS)" || { echo "bench-recall: name the folder of mirrors: make bench-recall MIRRORS=folder" >&2; exit 2; }
	$(BIN)/python bench/bench_recall.py $(MIRRORS)

bench-fixes: $(VENV)/.dev ## how many findings in ten packages of PyPI carry a fix
	$(BIN)/python bench/bench_fixes.py

# MIRRORS, a folder as for bench-recall, adds packages whose archives on PyPI lack their tests.
bench-package-tests: $(VENV)/.dev $(VENV)/.torch ## run packages' own tests with every fix made: what differs (an hour)
	$(BIN)/python bench/bench_package_tests.py $(MIRRORS)

bench-gains: $(VENV)/.dev $(VENV)/.torch ## what fixes gain in published packages, beside what they promise
	$(BIN)/python bench/bench_gains.py

bench-plugin: $(VENV)/.dev $(VENV)/.torch ## measure what the pytest plugin takes of people's time
	$(BIN)/python bench/bench_plugin.py

bench-history: $(VENV)/.dev ## what a history of 100,000 rows takes to keep and to ask
	$(BIN)/python bench/bench_history.py

bench-counters: $(VENV)/.dev $(VENV)/.torch ## count the same subjects over and over, under all that might change a count
	$(BIN)/python bench/bench_counters.py

bench-prices: $(VENV)/.dev $(VENV)/.torch ## what every rule's pattern costs over its fix
	$(BIN)/python bench/bench_prices.py

bench-ghost: $(VENV)/.dev $(VENV)/.torch ## run programs for a GPU on the ghost, and compare with the CPU
	$(BIN)/python bench/bench_ghost.py

bench-metrics: $(VENV)/.dev $(VENV)/.torch ## run a metrics library's own tests on the ghost
	$(BIN)/python bench/bench_metrics.py

bench-runtime: $(VENV)/.dev $(VENV)/.torch ## run a package's tests plain, recorded, and watched
	$(BIN)/python bench/bench_runtime.py

bench-native: $(VENV)/.dev $(VENV)/.torch ## whether native instructions repeat, and what counting them takes
	$(BIN)/python bench/bench_native.py

bench-waits: $(VENV)/.dev $(VENV)/.torch ## ask a GPU, where one is, whether it waits where the ghost does
	$(BIN)/python bench/bench_waits.py

bench-dispatcher: $(VENV)/.dev $(VENV)/.torch ## what the dispatcher takes of chains of operations, by size
	$(BIN)/python bench/dispatcher_study.py

bench-layers: $(VENV)/.dev $(VENV)/.torch ## whether the layers of a call add up to it, and come out the same twice
	$(BIN)/python bench/bench_layers.py

bench-compile: $(VENV)/.dev $(VENV)/.torch ## what torch.compile takes of a call that does next to nothing
	$(BIN)/python bench/compile_overhead.py

bench-guards: $(VENV)/.dev $(VENV)/.torch ## what the guards of many small modules take, and what removes them
	$(BIN)/python bench/guards_study.py

bench-traces: $(VENV)/.dev $(VENV)/.torch ## compile time beside the dispatches that tracing makes
	$(BIN)/python bench/trace_counts.py

bench-luck: $(VENV)/.dev $(VENV)/.torch ## what differs from process to process though the code does not
	$(BIN)/python bench/process_luck.py

bench-saved: $(VENV)/.dev $(VENV)/.torch ## what two runs at different times differ by though the code does not
	$(BIN)/python bench/bench_saved.py

bench-trace: $(VENV)/.dev ## what large profiler traces take to read, beside other tools
	$(BIN)/python bench/bench_trace.py

bench-revisions: $(VENV)/.dev $(VENV)/.torch ## false alarms and found slowdowns between two revisions, beside other tools (2 hours)
	$(BIN)/python bench/bench_revisions.py

bench-rounds: $(VENV)/.dev $(VENV)/.torch ## what two processes that take turns are best compared by (a minute)
	$(BIN)/python bench/bench_rounds.py

bench-releases: $(VENV)/.dev $(VENV)/.torch ## published Keras releases, each held against the one before
	$(BIN)/python bench/bench_releases.py

bench-noise: $(VENV)/.dev $(VENV)/.torch ## false alarms and found slowdowns, beside other tools (45 minutes)
	$(BIN)/python bench/bench_noise.py

test-all: $(addprefix test-,$(PYTHONS)) ## run what needs no torch on every Python, from a plain install

# A plain install in an empty environment: no torch, no numpy, and the project passes its own linter.
.PHONY: $(addprefix test-,$(PYTHONS)) bench-gains
$(addprefix test-,$(PYTHONS)): test-%:
	@echo "== Python $*"
	rm -rf .venv-$* build
	@python=; for candidate in $$HOME/.pyenv/versions/$*.*/bin/python $$(command -v python$*); do \
	    if [ -x "$$candidate" ] && "$$candidate" -c pass 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "no Python $* on PATH or in pyenv" >&2; exit 1; fi; \
	"$$python" -m venv .venv-$*
	.venv-$*/bin/python -m pip install $(PIP_FLAGS) .
	@.venv-$*/bin/python -c 'import importlib.util as u, sys; came = [m for m in ("torch", "numpy") if u.find_spec(m)]; sys.exit(f"the base install brought {came}" if came else 0)'
	.venv-$*/bin/dispatchguard check
	.venv-$*/bin/python -m pip install $(PIP_FLAGS) 'hypothesis>=6.100' 'jsonschema>=4.20' 'pytest-xdist>=3.5' 'setuptools>=77'
	.venv-$*/bin/pytest -n $(WORKERS) -m 'not slow' $(PYTEST_ARGS)

# The releases at both ends; any other by its number. They come with gigabytes of CUDA, on a machine without too.
TORCHES ?= 2.8.0 2.15.0
test-torches: $(addprefix test-torch-,$(TORCHES)) ## run what uses torch on the oldest torch that is supported, and the newest

.PHONY: $(addprefix test-torch-,$(TORCHES)) bench-gains
$(addprefix test-torch-,$(TORCHES)): test-torch-%:
	$(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/python -m pip install $(PIP_FLAGS) -e '.[dev]' numpy torch==$*
	.venv-torch-$*/bin/python -m pytest -p no:cacheprovider tests/runtime tests/measure tests/test_rules.py tests/test_layers.py \
	    tests/test_compiled.py tests/test_syncs.py tests/test_budgets.py tests/test_against.py $(PYTEST_ARGS)

clean: ## remove what the targets above made
	rm -rf $(VENV) $(addprefix .venv-,$(PYTHONS)) .venv-torch-* build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
