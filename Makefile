# Two environments in which the real Unsloth trains on a CPU, both pinned in tests/stacks:
#   .venv         the newest releases, the project itself and what its checks need
#   .venv-kaggle  the releases that the Kaggle notebooks pin
.DELETE_ON_ERROR:
.PHONY: demo check test units attacks ranks e2e runs test-all engines lint docs site ledger canary pins clean

PYTHON ?= python3
STACKS := tests/stacks
DEMO := build/demo
bin := .venv/bin

demo: .venv/.ready
	$(bin)/nb2ddp convert sample_notebooks/alpaca_sft.ipynb -o $(DEMO)
	cd $(DEMO) && "$(CURDIR)/$(bin)/nb2ddp" run . --cpu --nproc 2

# Before each commit: some 3 minutes, on two cores side by side. A target's output is shown when it ends.
check: .venv/.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target units lint ranks

# `check`, and the tests of whole commands. Training runs one after another, and beside it what needs one core.
test: lint .venv-kaggle/.ready
	@echo "The tests run on two cores side by side, some 15 minutes"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target runs units attacks ranks e2e

units: .venv/.ready
	$(bin)/pytest tests/unit tests/rules --ignore=tests/unit/runtime --ignore=tests/unit/attack

# Hostile notebooks, folders and command lines, with a part of the fuzzer.
attacks: .venv/.ready
	$(bin)/pytest tests/unit/attack

# The runtime module, on two and three processes with gloo.
ranks: .venv/.ready
	$(bin)/pytest tests/unit/runtime

e2e: .venv/.ready
	$(bin)/pytest tests/e2e -m "not launch and not thorough"

runs: .venv/.ready .venv-kaggle/.ready
	$(bin)/pytest tests/e2e -m "launch and not thorough"

test-all: lint .venv-kaggle/.ready
	$(bin)/pytest -m ""

# Debian's SLURM, what makes several hosts of one machine, and a browser: tests that need them skip without. Needs root.
engines:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends slurm-wlm munge iproute2 chromium >/dev/null

lint: .venv/.ready
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy

docs: .venv/.ready
	$(bin)/python docs/make_table.py

# The documentation site, to build/site: from docs/, README, CONTRIBUTING and the code.
site: .venv/.ready
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict

# Every notebook in one process, its script on ranks, and what people do without nb2ddp: some hours on two cores.
# `make ledger ONLY=alpaca` measures the rows whose names have that in them. CORPUS: public notebooks, by family.
ONLY ?= .
CORPUS ?= ../shared/corpus
ledger: .venv/.ready .venv-kaggle/.ready
	$(bin)/python benchmarks/ledger.py --only "$(ONLY)" --corpus "$(CORPUS)"

# The newest releases that install together today, in build/canary, against the pinned ones.
canary: .venv/.ready
	$(bin)/python benchmarks/canary.py

# Each stamp is written last: an install that broke off is done again.
.venv/.ready: pyproject.toml $(STACKS)/newest.txt $(STACKS)/unsloth.txt
	@echo "Installing the pinned training stack: some minutes on a slow line, seconds once uv has it in its cache"
	$(PYTHON) -m venv .venv
	$(bin)/python -m pip install --quiet --disable-pip-version-check --constraint $(STACKS)/newest.txt uv
	$(bin)/uv pip sync --quiet --compile-bytecode --python $(bin)/python $(STACKS)/newest.txt $(STACKS)/unsloth.txt
	$(bin)/uv pip install --quiet --python $(bin)/python --constraint $(STACKS)/newest.txt --editable '.[dev]'
	touch $@

.venv-kaggle/.ready: $(STACKS)/kaggle.txt $(STACKS)/unsloth.txt | .venv/.ready
	$(bin)/uv venv --quiet --allow-existing --python $(bin)/python .venv-kaggle
	$(bin)/uv pip sync --quiet --compile-bytecode --python .venv-kaggle/bin/python $(STACKS)/kaggle.txt $(STACKS)/unsloth.txt
	touch $@

# Pin the newest releases that the .in files and pyproject.toml allow.
pins: .venv/.ready
	$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command "make pins" \
	  $(STACKS)/newest.in pyproject.toml --extra dev --output-file $(STACKS)/newest.txt
	$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command "make pins" \
	  $(STACKS)/kaggle.in --output-file $(STACKS)/kaggle.txt

clean:
	rm -rf .venv .venv-kaggle build
