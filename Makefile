# Every door of the project. `make help` lists them; each sets up what it needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
ARGS ?=
# Tests mostly wait for servers, which the workers share.
WORKERS ?= 2
# Tests start hundreds of Python processes. Where this variable is set, each of them compiles Airflow,
# Dagster and Spark again, which takes longer than importing them.
export PYTHONDONTWRITEBYTECODE :=
# The certificates of the system, so that `make setup` works behind proxies that inspect TLS.
export UV_SYSTEM_CERTS ?= true

UV := $(BIN)/uv
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
LOCK := $(UV) pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-header

# A test of the long form may take an hour.
LONG_LIMIT := -o faulthandler_timeout=7200

# What `make test-long PART=...` runs.
PARTS_client := tests/contract tests/interop tests/unit tests/golden
PARTS_embedded := tests/embedded
PARTS_core := tests/orchestrate
PARTS_airflow := tests/airflow_provider
PARTS_cli := tests/cli
PARTS_dagster := tests/dagster_integration
PARTS_docs := tests/docs tests/docker
PARTS_faults := tests/faults
PARTS_benchmarks := tests/benchmarks
PARTS_spark := tests/spark
PARTS_storage := tests/storage
PARTS_console := tests/console
PARTS_fluss1 := tests/fluss1 tests/embedded/test_rescale_races.py tests/orchestrate/incremental/test_rescaling.py \
  tests/orchestrate/sinks/test_loading_rescaled.py

.DEFAULT_GOAL := help

.PHONY: help
help: ## list every door
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.synced ## make .venv with everything in it

$(UV): requirements/tool.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/tool.txt
	@touch $(UV)

$(VENV)/.synced: $(UV) requirements/dev.txt pyproject.toml
	@echo "Installing the environment into $(VENV) ..."
	@# Compiled here, at once: else the first processes of tests, each by itself, compile what they import.
	@$(UV) pip sync -q --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: test
test: setup ## run the tests (real clusters included)
	@# Real servers share two cores here: what failed by time alone gets one more try, by itself.
	$(PYTEST) -n $(WORKERS) --max-worker-restart 2 --dist loadfile --no-loadscope-reorder $(ARGS) \
	  || { test $$? -eq 1 && $(PYTEST) --last-failed --last-failed-no-failures none $(ARGS); }

.PHONY: demo
demo: setup ## run the main job: Spark, Airflow and Dagster through crashes, every row counted
	@$(BIN)/python -m fluss_orchestrate._demo --report demo-report.html $(ARGS)

.PHONY: demo-cluster
demo-cluster: setup ## the same against a real Fluss cluster that it starts and stops
	@$(BIN)/python -m fluss_orchestrate._demo --cluster --report demo-report.html $(ARGS)

.PHONY: test-long
test-long: setup ## run the long form of one part's tests (PART=client, embedded, core, ...)
	@test -n "$(PART)" || { echo "say which part: make test-long PART=client"; exit 1; }
	$(PYTEST) --long $(LONG_LIMIT) -m long $(PARTS_$(PART)) $(ARGS)

# Kill tests that stand beside their part record what they found, too.
FAULT_TESTS := $(PARTS_faults) $(shell grep -rl --include='test_*.py' record_fault tests | grep -v ^tests/faults/)
FAULT_RECORDS := $(VENV)/fault-records.jsonl
SOAK := tests/faults/soak

.PHONY: test-faults
test-faults: setup ## inject faults in the long form, and write docs/reliability.md from the results (ARGS=TEST: its lines)
	@rm -f $(FAULT_RECORDS)
	$(PYTEST) --long $(LONG_LIMIT) -n $(WORKERS) --dist worksteal --fault-records=$(FAULT_RECORDS) $(or $(ARGS),$(FAULT_TESTS) --ignore=$(SOAK)); status=$$?; \
	  $(BIN)/python -m tests.faults.reliability $(if $(ARGS),,--all) $(FAULT_RECORDS) && exit $$status

.PHONY: soak
soak: setup ## everything at once on three servers, a fault a minute, and its lines of docs/reliability.md (MINUTES=60)
	@rm -f $(FAULT_RECORDS)
	FLUSS_SOAK_MINUTES=$(MINUTES) $(PYTEST) --long $(LONG_LIMIT) -s --fault-records=$(FAULT_RECORDS) $(SOAK)/test_soak.py $(ARGS); status=$$?; \
	  $(BIN)/python -m tests.faults.reliability $(FAULT_RECORDS) && exit $$status

.PHONY: test-matrix
test-matrix: setup ## run smoke tests on other versions of Airflow, Dagster, Spark, Python, ... (ARGS="'spark 4.3'")
	$(BIN)/python -m tests.version_matrix $(ARGS); status=$$?; $(BIN)/python -m tests.support_matrix && exit $$status

.PHONY: test-releases
test-releases: setup ## run all tests of the provider on each release of Airflow (ARGS="3.0 test_sensors.py")
	$(BIN)/python -m tests.airflow_releases $(ARGS); status=$$?; $(BIN)/python -m tests.support_matrix && exit $$status

.PHONY: audit
audit: setup ## check licences, and look for known faults in the locked requirements
	$(BIN)/python -m tests.faults.licences requirements/image.txt
	$(BIN)/python -m tests.faults.audit requirements/dev.txt

.PHONY: dist
dist: setup ## build the wheel, with its bill of materials, and the sdist into dist/
	@rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation

.PHONY: bench
bench: setup ## measure everything beside its peers and limits, on a fresh cluster (ARGS="client")
	$(BIN)/python -m benchmarks $(ARGS)

QUICK_BENCH := $(BIN)/python -m benchmarks client embedded --quick

.PHONY: bench-quick
bench-quick: setup ## the client and the embedded engine with less data, under three minutes
	$(QUICK_BENCH) $(ARGS)

.PHONY: bench-check
bench-check: setup ## the same, and fail if a ratio fell below benchmarks/baseline.json by more than noise
	$(QUICK_BENCH) --json $(VENV)/bench-check.json $(ARGS)
	@$(BIN)/python -m benchmarks.check $(VENV)/bench-check.json

.PHONY: docs
docs: setup ## build the documentation into site/, to be read without a network
	$(MKDOCS) -d site
	@echo "open site/index.html; to search too, serve it:  $(BIN)/mkdocs serve"

.PHONY: check
check: setup ## lint, format, types, locked files, generated code, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m fluss_client.wire.generate --check
	$(BIN)/python fluss_client/facade/generate.py --check
	$(BIN)/python -m tests.support_matrix --check
	$(BIN)/python -m tests.configuration_page --check
	$(BIN)/python -m tests.sink_declarations --check
	$(BIN)/python -m tests.faults.bill_of_materials --check
	$(BIN)/python -m tests.faults.reliability --check
	$(MKDOCS) -d $(VENV)/site
	$(MAKE) -s lock-check

.PHONY: format
format: setup ## format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: generate
generate: setup ## write generated code anew: protocol messages, and the facade from aio
	$(BIN)/python fluss_client/facade/generate.py
	$(BIN)/python -m fluss_client.wire.generate

.PHONY: lock
lock: $(UV) ## pin and hash the requirement files anew (UPGRADE=1 takes newer versions)
	$(call compile,requirements)
	@$(MAKE) -s setup
	$(BIN)/python -m tests.faults.bill_of_materials

.PHONY: lock-check
lock-check: $(UV)
	@rm -rf $(VENV)/lock && mkdir -p $(VENV)/lock && cp requirements/*.txt $(VENV)/lock/
	@$(call compile,$(VENV)/lock)
	@for f in tool unit dev image; do \
	  cmp -s requirements/$$f.txt $(VENV)/lock/$$f.txt || { echo "requirements/$$f.txt is out of date: run 'make lock'"; exit 1; }; done

# $(1): the folder that receives the files; what stands there is kept unless UPGRADE=1.
define compile
	$(LOCK) $(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" --python-version 3.11 --group tool -o $(1)/tool.txt
	$(LOCK) $(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" --universal --python-version 3.11 --group unit pyproject.toml -o $(1)/unit.txt
	$(LOCK) $(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" --python-version 3.11 --override requirements/overrides.txt --extra all --group dev --group image --group unit --group peers pyproject.toml -o $(1)/dev.txt
	$(LOCK) $(if $(UPGRADE),--upgrade) --custom-compile-command "make lock" --python-version 3.11 --override requirements/overrides.txt --extra all --group image pyproject.toml -o $(1)/image.txt
endef

.PHONY: clean
clean: ## remove the environment and build leftovers
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
