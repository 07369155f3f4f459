# stoilo: `make demo` and `make test` set up everything they need by themselves.
.DEFAULT_GOAL := help
# Tests start thousands of processes: none of them should compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv/bin
# What builds the launcher.
COMPILER := gcc:gcc libc6-dev:/usr/include/stdio.h
# A real BOINC client, which tests attach to a server.
BOINC := boinc-client:boinc
# What freezing needs; and what `make freeze` freezes a verifier for.
FREEZER := binutils:objcopy libpython3.11:lib:libpython3.11.so.1.0
ORIGIN := project.example/development
SERIAL := 1
# What the database tests start a server of their own from; no daemon comes with it.
DATABASE := mariadb-server-core:mariadbd
# Sessions of tests side by side, one more than two processors: some always waits. With 0
# pytest runs them itself.
SESSIONS := 3

# Beside 3.11, whichever of them is on the PATH.
PYTHONS := python3.12 python3.13 python3.14

.PHONY: help setup demo test slow drills pythons test-stock lint format bench fuzz docs notebooks pictures proto freeze \
  freeze-tensor contents site lock clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## create .venv with the locked packages, install system packages when root
	@./scripts/system.sh
	@./scripts/setup.sh

demo: ## the whole path on this machine, every claim checked
	@./scripts/system.sh
	@./scripts/setup.sh run
	@$(VENV)/stoilo demo

test: setup ## unit, property, attack and end-to-end tests
	@./scripts/system.sh chromium:chromium $(COMPILER) $(FREEZER) $(BOINC) $(DATABASE)
	@$(VENV)/python -m pytest -n $(SESSIONS) -m "not slow"

slow: setup ## kill rounds, fault matrices, long runs; more examples of every property
	@./scripts/system.sh $(COMPILER) $(FREEZER) $(BOINC) $(DATABASE)
	@$(VENV)/python -m pytest -n $(SESSIONS) -m "slow or hypothesis" --hypothesis-profile thorough

drills: setup ## rehearse attacks and losses on throw-away projects, each seen contained
	@$(VENV)/python -m tests.drills

pythons: ## the sandbox's tests and the attack corpus under each later Python that is here (PYTHONS)
	@PYTHONS="$(PYTHONS)" ./scripts/pythons.sh

test-stock: setup ## the engine contract on a live stock project (PROJECT_DIR=…; with DATA_DIR=…, real clients too)
	@[ -n "$(PROJECT_DIR)" ] || { echo "make test-stock PROJECT_DIR=DIR"; exit 2; }
	@$(VENV)/stoilo boinc doctor "$(PROJECT_DIR)" || true
	@STOILO_STOCK_PROJECT="$(PROJECT_DIR)" STOILO_STOCK_DATA="$(DATA_DIR)" $(VENV)/python -m pytest tests/server/engines/stock/live

lint: setup ## format, lint, types, layers, docstrings, the house's figures, container files
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/mypy
	@$(VENV)/mypy --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls examples/*.py
	@$(VENV)/lint-imports
	@$(VENV)/python scripts/house.py
	@$(VENV)/hadolint deploy/container/Containerfile
	@$(VENV)/check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose/compose.json

format: setup ## rewrite the code in the project's format
	@$(VENV)/ruff format .
	@$(VENV)/ruff check --fix .

bench: setup ## measure ours and the peers' side by side
	@./scripts/system.sh bubblewrap:bwrap $(COMPILER) $(FREEZER) $(BOINC)
	@./scripts/peers.sh
	@$(VENV)/python -m bench

fuzz: setup ## run the fuzz targets: a minute each, mutated programs for five
	@$(VENV)/python tests/fuzz/fuzz_skeleton.py 60
	@$(VENV)/python tests/fuzz/fuzz_gate.py 60
	@$(VENV)/python tests/fuzz/fuzz_log_formats.py 60
	@$(VENV)/python tests/fuzz/fuzz_programs.py 300
	@$(VENV)/python tests/fuzz/fuzz_launcher.py 60

docs: setup ## write the reference pages that come from the code
	@$(VENV)/python scripts/write_reference.py

notebooks: setup ## run the examples' notebooks and keep what they print
	@$(VENV)/python scripts/run_notebooks.py

pictures: setup ## take a picture of every page of a real project into build/pictures
	@./scripts/system.sh chromium:chromium
	@$(VENV)/python scripts/take_pictures.py build/pictures

proto: setup ## regenerate the gRPC bindings
	@$(VENV)/python -m grpc_tools.protoc -I proto/stoilo/v1 --python_out=stoilo/core/rpc \
	  --pyi_out=stoilo/core/rpc --grpc_python_out=stoilo/core/rpc proto/stoilo/v1/*.proto
	@sed -i -E 's/^import (\w+_pb2) as/from stoilo.core.rpc import \1 as/' \
	  stoilo/core/rpc/*_pb2_grpc.py

freeze: setup ## freeze verifier, launcher, pure and numeric below build/frozen (ROOT, ORIGIN, SERIAL)
	@./scripts/system.sh $(COMPILER) $(FREEZER)
	@rm -rf build/frozen build/development
	@[ -n "$(ROOT)" ] || $(VENV)/python scripts/development_root.py build/development $(ORIGIN)
	@$(VENV)/stoilo release build --output build/frozen --origin $(ORIGIN) --serial $(SERIAL) \
	  --root $(or $(ROOT),build/development/root.json) --flavor pure --flavor numeric

freeze-tensor: setup ## freeze tensor below build/tensor (half a GB)
	@./scripts/system.sh $(FREEZER)
	@rm -rf build/tensor
	@$(VENV)/stoilo flavor build tensor --output build/tensor

site: setup ## make build/site of the documentation, with a search that needs no server
	@./scripts/site.sh

contents: setup ## write the lists of what frozen parts hold (stoilo/flavors/contents)
	@$(VENV)/python scripts/write_contents.py

lock: ## resolve requirements/*.in again (needs network)
	@./scripts/lock.sh

clean: ## remove .venv and caches
	rm -rf .venv .venv-bench .venv-site .mypy_cache .ruff_cache .pytest_cache .hypothesis
