PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install serve test browser chaos check lint format types wheel bench lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | awk -F'|' '{ printf "  %-9s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## create .venv with the pinned versions

# The back end looks for its own binary on PATH, which pip does not set.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

serve: $(INSTALLED) ## run the service; flags go in ARGS="..."
	$(BIN)/turntake serve $(ARGS)

test: $(INSTALLED) browser ## run the tests, then half a minute of chaos a store
	$(BIN)/python -m pytest tests --numprocesses auto --dist loadscope $(ARGS)
	$(MAKE) --no-print-directory chaos ARGS="--seconds 30"

# Never stops a run: whether a missing browser skips or fails is for the tests to say.
browser: ## find chromium; as root, install it if missing
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
			|| echo "chromium could not be installed"; \
	else echo "no chromium found"; fi

chaos: $(INSTALLED) ## kill, pause, cut and restart for two minutes a store, then check the promises
	$(BIN)/python -m chaos $(ARGS)

check: lint types ## everything CI checks: lint, types, tests
	@$(MAKE) --no-print-directory test

lint: $(INSTALLED) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

format: $(INSTALLED) ## rewrite to the house format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

wheel: $(INSTALLED) ## build dist/*.whl with the pinned back end
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/uv build --wheel --no-build-isolation --python $(BIN)/python --out-dir dist

bench: $(INSTALLED) ## measure one service beside two baselines, then the stores beside their peers
	$(BIN)/turntake bench
	$(BIN)/python -m bench $(ARGS)

# Asks the registry the machine is set to, and writes versions and hashes only.
lock: $(INSTALLED) ## choose the newest allowed versions, write constraints.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate \
		--group dev --all-extras pyproject.toml --output-file constraints.txt

clean: ## remove what the targets above made
	rm -rf .venv dist build .coverage htmlcov .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
