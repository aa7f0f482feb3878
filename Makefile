# Two environments in which the real Unsloth trains on a CPU, both pinned in tests/stacks:
#   .venv         the newest releases, the project itself and what its checks need
#   .venv-kaggle  the releases that the Kaggle notebooks pin
# and .venv-web, which serves the page: Gradio asks for older releases of what the others have
.DELETE_ON_ERROR:
.PHONY: demo check test units attacks ranks ranks-training ranks-waiting ranks-meeting e2e clients pages trainings launches rehearsals machines test-all engines lint docs gallery site ledger canary pins clean

PYTHON ?= python3
STACKS := tests/stacks
DEMO := build/demo
bin := .venv/bin
# Some hundred processes import torch; where an environment forbids bytecode, each would compile it again.
unexport PYTHONDONTWRITEBYTECODE

demo: .venv/.ready
	$(bin)/nb2ddp convert sample_notebooks/alpaca_sft.ipynb -o $(DEMO)
	cd $(DEMO) && "$(CURDIR)/$(bin)/nb2ddp" run . --cpu --nproc 2

# Before each commit: lint, types and unit tests side by side, all of the runtime's but those that train (`make ranks`).
# A target's output is shown when it ends.
check: .venv/.ready
	@$(MAKE) --no-print-directory --jobs --output-sync=target units ranks-meeting ranks-waiting lint

# The lanes below leave out the thorough tests unless `make test-all` sets THOROUGH.
FAST := $(if $(THOROUGH),,and not thorough)
ALL := $(if $(THOROUGH),-m "")

# `check`, hostile input, ranks that train, and whole commands. Five lanes on two cores, the longest first.
# What is missing of the other two environments is installed beside the first lanes.
test: .venv/.ready
	@echo "The tests run side by side, $(if $(THOROUGH),40,15) minutes on two cores, more where they are busy"
	@$(MAKE) --no-print-directory --jobs=5 --output-sync=target lint trainings ranks-training launches machines rehearsals clients pages ranks-waiting ranks-meeting units attacks

# The package's rooms: commands, pages and targets, and all else with the rules.
units: units-conversion units-commands

COMMANDS := $(addprefix tests/unit/,cli jupyter launch monitor page rehearse targets web)
units-conversion: .venv/.ready
	$(bin)/pytest tests/unit tests/rules $(patsubst %,--ignore=%,tests/unit/runtime tests/unit/attack $(COMMANDS)) $(ALL)

units-commands: .venv/.ready
	$(bin)/pytest $(COMMANDS) $(ALL)

# Hostile notebooks, folders and command lines, with a part of the fuzzer.
attacks: .venv/.ready
	$(bin)/pytest tests/unit/attack $(ALL)

# The runtime module, on two and three processes with gloo: Trainers and loops that train, ranks that wait for one
# that is gone, and all else.
ranks: ranks-training ranks-waiting ranks-meeting

RANKS_TRAINING := $(patsubst %,tests/unit/runtime/test_%.py,turns lightning_trainer parallelize loops_like_notebooks checks_of_a_run)
ranks-training: .venv/.ready
	$(bin)/pytest $(RANKS_TRAINING) $(ALL)

RANKS_WAITING := $(patsubst %,tests/unit/runtime/test_%.py,ending faults object_collectives watchdog)
ranks-waiting: .venv/.ready
	$(bin)/pytest $(RANKS_WAITING) $(ALL)

ranks-meeting: .venv/.ready
	$(bin)/pytest tests/unit/runtime $(patsubst %,--ignore=%,$(RANKS_TRAINING) $(RANKS_WAITING)) $(ALL)

# Whole commands that start no training: Kaggle's client against a server of ours and the doctor, and all else.
e2e: clients pages

CLIENTS := $(wildcard tests/e2e/test_kaggle_*.py tests/e2e/test_doctor*.py)
clients: .venv/.ready
	$(bin)/pytest $(CLIENTS) -m "not launch $(FAST)"

pages: .venv/.ready .venv-web/.ready
	$(bin)/pytest tests/e2e $(patsubst %,--ignore=%,$(CLIENTS)) -m "not launch $(FAST)"

# Training runs, on one host and on two, most of them forked from a process that has imported a stack once.
TRAININGS := $(patsubst %,tests/e2e/test_%.py,runs kinds lightning ledger differential handmade older_folder sharding prove emit_hosts kaggle_resume)
trainings: .venv/.ready .venv-kaggle/.ready
	$(bin)/pytest $(TRAININGS) -m "launch $(FAST)"

# What another machine does with our files: Kaggle's, Jupyter's kernels, one without a checkout.
MACHINES := $(patsubst %,tests/e2e/test_%.py,kaggle_bundle kaggle_faults magic magic_browser installed)
machines: .venv/.ready .venv-kaggle/.ready
	$(bin)/pytest $(MACHINES) -m "launch $(FAST)"

# `nb2ddp run` and torchrun as users start them, and what may happen to their processes.
LAUNCHES := $(wildcard tests/e2e/test_launch*.py tests/e2e/test_run_*.py) tests/e2e/test_monitor.py
launches: .venv/.ready
	$(bin)/pytest $(LAUNCHES) -m "launch $(FAST)"

# What else starts processes: rehearsals, faults of ranks, the doctor, SLURM.
rehearsals: .venv/.ready .venv-kaggle/.ready
	$(bin)/pytest tests/e2e $(patsubst %,--ignore=%,$(TRAININGS) $(MACHINES) $(LAUNCHES)) -m "launch $(FAST)"

# The same lanes with their thorough tests.
test-all:
	@$(MAKE) --no-print-directory test THOROUGH=yes

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

# The samples as folders that are ready for Kaggle, each with its proof, to build/gallery.
gallery: .venv/.ready
	$(bin)/python docs/make_gallery.py

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

# Installers are silent for minutes: a dot each second says that one goes on. The dots end with the line's shell.
dots = @while sleep 1 && kill -0 $$$$ 2>/dev/null; do printf .; done &

# Each stamp is written last: an install that broke off is done again.
.venv/.ready: pyproject.toml $(STACKS)/newest.txt $(STACKS)/unsloth.txt
	@echo "Installing the pinned training stack: some minutes on a slow line, fewer once uv has it in its cache"
	$(dots) $(PYTHON) -m venv .venv
	$(dots) $(bin)/python -m pip install --quiet --disable-pip-version-check --constraint $(STACKS)/newest.txt uv
	$(dots) $(bin)/uv pip sync --quiet --python $(bin)/python $(STACKS)/newest.txt $(STACKS)/unsloth.txt
	$(dots) $(bin)/uv pip install --quiet --python $(bin)/python --constraint $(STACKS)/newest.txt --editable '.[dev]'
	@touch $@; echo

.venv-kaggle/.ready: $(STACKS)/kaggle.txt $(STACKS)/unsloth.txt | .venv/.ready
	@echo "Installing the releases that Unsloth's Kaggle notebooks pin"
	$(dots) $(bin)/uv venv --quiet --allow-existing --python $(bin)/python .venv-kaggle
	$(dots) $(bin)/uv pip sync --quiet --python .venv-kaggle/bin/python $(STACKS)/kaggle.txt $(STACKS)/unsloth.txt
	@touch $@; echo

.venv-web/.ready: $(STACKS)/web.txt | .venv/.ready
	@echo "Installing Gradio"
	$(dots) $(bin)/uv venv --quiet --allow-existing --python $(bin)/python .venv-web
	$(dots) $(bin)/uv pip sync --quiet --python .venv-web/bin/python $(STACKS)/web.txt
	@touch $@; echo

# Pin the newest releases that the .in files and pyproject.toml allow.
pins: .venv/.ready
	$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command "make pins" \
	  $(STACKS)/newest.in pyproject.toml --extra dev --output-file $(STACKS)/newest.txt
	$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command "make pins" \
	  $(STACKS)/kaggle.in --output-file $(STACKS)/kaggle.txt
	$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --custom-compile-command "make pins" \
	  pyproject.toml --extra web --output-file $(STACKS)/web.txt

clean:
	rm -rf .venv .venv-kaggle .venv-web build
