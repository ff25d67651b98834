PYTHON ?= python3
ARGS ?=
AGE ?= 7 days
EXTRAS ?=
BIN := .venv/bin
# The build back end looks for its own binary on PATH, which pip does not set.
PIP := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip -qq --disable-pip-version-check
RUNTIME := .venv/.runtime
INSTALLED := .venv/.installed
ADDED = .venv/.extras-$(subst $(space),-,$(strip $(EXTRAS)))

comma := ,
space := $(subst ,, )

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install runtime serve test browser chaos mutants check lint format types wheel bench lock audit sbom clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | awk -F'|' '{ printf "  %-9s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## create .venv with everything: service, extras, tests, tools

# What the service needs and nothing more, so that a first try takes seconds.
$(RUNTIME): pyproject.toml constraints-runtime.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("turntake needs Python 3.11 or later; name one: make $(or $(firstword $(MAKECMDGOALS)),serve) PYTHON=python3.12")'
	@start=$$(date +%s); \
	echo "Creating .venv with $$($(PYTHON) --version)"; \
	$(PYTHON) -m venv .venv && \
	echo "Installing turntake and the $$(grep -c == constraints-runtime.txt) packages pinned in constraints-runtime.txt" && \
	$(PIP) install --require-hashes -r constraints-runtime.txt && \
	$(PIP) install --no-deps --no-build-isolation -e . && \
	echo "Done in $$(($$(date +%s) - start)) s. The command is $(BIN)/turntake; \`. $(BIN)/activate\` makes it turntake."
	@touch $@

$(INSTALLED): $(RUNTIME) constraints.txt
	@start=$$(date +%s); \
	echo "Installing the $$(grep -c == constraints.txt) packages pinned in constraints.txt, for tests and tools" && \
	$(PIP) install --require-hashes -r constraints.txt && \
	echo "Done in $$(($$(date +%s) - start)) s"
	@touch $@

# pip cannot check the hashes of extras: what they need is only known once it has been resolved.
$(ADDED): $(RUNTIME) constraints.txt
	@echo "Adding the extras: $(EXTRAS)"
	@sed -nE 's/^([A-Za-z0-9._-]+==[^ ]+).*/\1/p' constraints.txt > .venv/pins.txt
	@$(PIP) install --no-build-isolation --constraint .venv/pins.txt -e '.[$(subst $(space),$(comma),$(strip $(EXTRAS)))]'
	@touch $@

runtime: $(RUNTIME) $(if $(EXTRAS),$(ADDED)) ## create .venv with the service alone, and the extras in EXTRAS="redis postgres"

serve: runtime ## run the service; flags go in ARGS="...", extras in EXTRAS="redis"
	$(BIN)/turntake serve $(ARGS)

test: $(INSTALLED) browser ## run the tests, then half a minute of chaos per store, and less on a cluster
	$(BIN)/python -m pytest tests --numprocesses auto --dist loadscope $(ARGS)
	$(MAKE) --no-print-directory chaos ARGS="--store main --seconds 30"
	$(MAKE) --no-print-directory chaos ARGS="--store cluster --seconds 20"

# Never stops a run: whether a missing browser skips or fails is for the tests to say.
browser: ## find chromium; as root, install it if missing
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
			|| echo "chromium could not be installed"; \
	else echo "no chromium found"; fi

chaos: $(INSTALLED) ## kill, pause, cut and restart for two minutes per store, then check the promises
	$(BIN)/python -m chaos $(ARGS)

mutants: $(INSTALLED) ## plant small bugs one by one in a copy and see which no test notices; ARGS="--all" for every one
	$(BIN)/python -m mutants $(ARGS)

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

# Asks the registry the machine is set to, and writes versions and hashes only. The second file is a part of the first.
# Releases younger than AGE are not taken: most that were published with stolen credentials are found within days.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--exclude-newer '$(AGE)' \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate
lock: $(INSTALLED) ## choose the newest allowed versions, write constraints.txt and constraints-runtime.txt
	$(LOCK) --group dev --all-extras pyproject.toml --output-file constraints.txt
	$(LOCK) --group build pyproject.toml --constraints constraints.txt --output-file constraints-runtime.txt

audit: ## ask a public database whether a pinned version has known vulnerabilities
	$(PYTHON) deploy/supply_chain.py audit constraints.txt

sbom: ## write dist/turntake.cdx.json, the CycloneDX bill of what `make serve` installs
	@mkdir -p dist
	$(PYTHON) deploy/supply_chain.py sbom constraints-runtime.txt > dist/turntake.cdx.json
	@echo "dist/turntake.cdx.json has $$(grep -c '"type": "library"' dist/turntake.cdx.json) packages"

clean: ## remove what the targets above made
	rm -rf .venv dist build .coverage htmlcov .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
