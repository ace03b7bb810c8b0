# `make` lists what there is to make.

VENV := .venv
BIN := $(VENV)/bin

# The system's own Python where there is one: the tests run hpcrun as the cluster's ordinary user as well, and that user
# cannot run a Python that lies in somebody's home folder, as pyenv's and conda's do.
PYTHON ?= $(shell test -x /usr/bin/python3 && echo /usr/bin/python3 || echo python3)

# Further arguments for pytest: make test ARGS='tests/unit -k quoting'. The slurm tests mostly wait, so the others run beside
# them: three workers.
ARGS ?=

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint dev/constraints.txt
INSTALLED_FROM := $(BIN)/python pyproject.toml dev/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check golden pictures bench faults cluster cluster-down clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed-demo ## train a small model on this machine, on two "nodes", and show the run
	. $(BIN)/activate && \
	hpcrun submit --gpus 4 --nodes 2 --profile local --follow examples/digits_ddp.py --epochs 3 && \
	hpcrun status

test: $(VENV)/installed-dev ## the whole test suite; as root on Debian or Ubuntu with a real Slurm
	$(BIN)/python -m pytest --numprocesses 3 $(ARGS)

check: $(VENV)/installed-dev ## everything CI checks besides the tests
	@command -v shellcheck >/dev/null || { echo "shellcheck is missing: apt-get install shellcheck" >&2; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	shellcheck dev/*.sh .ci/run

golden: $(VENV)/installed-dev ## write tests/golden anew: read the difference before you commit it
	$(BIN)/python -m pytest tests/golden --update-golden

pictures: $(VENV)/installed-dev ## take the pictures in docs/pictures anew, on the cluster (root); ARGS names some
	$(BIN)/python -m dev.pictures $(ARGS)

bench: $(VENV)/installed-dev ## measure hpcrun beside other tools
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/status.py
	$(BIN)/python benchmarks/explain.py
	$(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/study.py
	$(BIN)/python benchmarks/report.py

faults: $(VENV)/installed-dev ## break the cluster in every way and count what became of the runs
	$(BIN)/python benchmarks/faults.py

cluster: ## start a Slurm cluster of eleven nodes on this machine (root)
	@dev/cluster.sh up

cluster-down: ## stop it and remove all it made
	@dev/cluster.sh down

clean: ## remove the virtual environment and what the tools left behind; runs are kept
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without ensurepip, Debian's venv fails and leaves a half-made environment behind: so it is asked first.
$(BIN)/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	{ echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: $(INSTALLED_FROM)
	@echo "installing into $(VENV) ..."
	@$(INSTALL) --editable '.[torch,examples]'
	@touch $@

$(VENV)/installed-dev: $(INSTALLED_FROM)
	@echo "installing into $(VENV), with what the tests need ..."
	@$(INSTALL) --editable '.[torch,plot,examples,dev]'
	@$(INSTALL) --no-deps recbole
	@touch $@ $(VENV)/installed-demo
