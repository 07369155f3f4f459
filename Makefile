# stoilo: `make demo` and `make test` set up everything they need by themselves.
.DEFAULT_GOAL := help
VENV := .venv/bin

.PHONY: help setup demo test slow lint format bench fuzz docs proto lock clean

help: ## list the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: ## create .venv with the locked packages, install system packages when root
	@./scripts/system.sh
	@./scripts/setup.sh

demo: setup ## the whole path on this machine, every claim checked
	@$(VENV)/stoilo demo

test: setup ## unit, property, attack and end-to-end tests
	@$(VENV)/python -m pytest -m "not slow"

slow: setup ## kill rounds, fault matrices, long runs
	@$(VENV)/python -m pytest -m slow

lint: setup ## format, lint, types, layers, docstrings
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports
	@$(VENV)/interrogate -q stoilo

format: setup ## rewrite the code in the project's format
	@$(VENV)/ruff format .
	@$(VENV)/ruff check --fix .

bench: setup ## measure ours and the peers' side by side
	@$(VENV)/python -m bench

fuzz: setup ## run the fuzz targets for a minute each
	@$(VENV)/python tests/fuzz/fuzz_skeleton.py 60

docs: setup ## write the reference pages that come from the code
	@$(VENV)/python scripts/write_reference.py

proto: setup ## regenerate the gRPC bindings
	@$(VENV)/python -m grpc_tools.protoc -I proto/stoilo/v1 --python_out=stoilo/core/rpc \
	  --pyi_out=stoilo/core/rpc --grpc_python_out=stoilo/core/rpc proto/stoilo/v1/tasks.proto
	@sed -i 's/^import tasks_pb2 as/from stoilo.core.rpc import tasks_pb2 as/' \
	  stoilo/core/rpc/tasks_pb2_grpc.py

lock: ## resolve requirements/dev.in again (needs network)
	@./scripts/lock.sh

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
