# make setup | demo | test | verify | fix; `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first Python 3.11 or 3.12 that can make environments.
PYTHON ?= $(shell for p in python3 python3.11 python3.12; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
	>/dev/null 2>&1 && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
PEERS := .peers/bin/python
PYTEST := $(BIN)/python -m pytest
SOURCES := services proto tests $(wildcard benchmarks models deploy)
PIP_COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

.PHONY: help setup demo peers test-vllm bench-replay bench-replay-all prove test test-all test-with lint types proto tidy verify fix lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "%-16s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv from the locked requirements and install lumotree into it

$(STAMP): requirements/dev.lock requirements/torch.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 found; set PYTHON=..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install -qq --no-deps -r requirements/torch.txt
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup ## stream a completion of a code prompt with the embedded model
	$(BIN)/lumotree generate --prompt-file models/prompts/demo.txt

test: setup ## every test of at most seconds (<= 5 minutes on 2 cores)
	$(PYTEST) -m "not slow and not soak and not gpu"

test-all: setup ## and the slow ones (ray up: root, openssh-server, rsync, iproute2, procps)
	$(PYTEST) -m "not gpu"

test-with: setup ## tests on other versions: make test-with WITH="triton==3.9.0"
	rm -rf .versions
	$(BIN)/python -m pip install -qq --target .versions $(WITH) 'numpy<2.4'
	PYTHONPATH=$(CURDIR)/.versions $(PYTEST) -m "not slow and not soak and not gpu"

lint: setup ## ruff, and hadolint where there is a Dockerfile
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(if $(wildcard Dockerfile),$(BIN)/hadolint Dockerfile)

types: setup ## mypy
	$(BIN)/mypy

proto: setup ## buf lint, and generated code equals re-generated
	$(BIN)/buf lint proto
	$(BIN)/buf format --diff --exit-code proto
	$(BIN)/python proto/generate.py --check

tidy: setup ## import direction, sizes, banned calls, frozen surfaces
	$(PYTEST) tests/tidy

verify: lint types proto tidy test ## all that CI checks

fix: setup ## repair what can be repaired by a tool
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/buf format --write proto
	$(BIN)/python proto/generate.py

lock: setup ## re-make the locks, keeping pins that still fit
	$(PIP_COMPILE) -o requirements/base.lock requirements/base.in
	$(PIP_COMPILE) -o requirements/cuda.lock requirements/cuda.in
	$(PIP_COMPILE) -o requirements/dev.lock requirements/dev.in
	$(BIN)/python deploy/sbom.py

peers: ## make .peers, the environment of vLLM as an engine and an arm (gigabytes, a C++ compiler)
	test -x $(PEERS) || $(PYTHON) -m venv .peers
	$(PEERS) -m pip install -qq --no-deps -r requirements/torch.txt -r requirements/peers.txt
	$(PEERS) -m pip install -qq --no-deps --no-build-isolation -e .
	folder="$$($(PEERS) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	cp benchmarks/peers/torchvision_stub.py "$$folder"; \
	echo 'import torchvision_stub' > "$$folder/torchvision_stub.pth"
	PATH="$$PWD/.peers/bin:$$PATH" $(PEERS) -m pip install -qq --no-deps --no-build-isolation \
		-r requirements/peers-built.txt

test-vllm: setup ## the test of the real vLLM; needs make peers
	test -x .peers/bin/lumotree || { echo "no .peers: run make peers first"; exit 2; }
	$(PYTEST) -m slow tests/service/test_vllm_engine.py

bench-replay: setup ## plain, chains, hydra27, adaptive over recorded requests (<= 15 minutes)
	$(BIN)/lumotree replay --output benchmarks/results/replay.json
	$(BIN)/python -m benchmarks.replay.report benchmarks/results/replay.json benchmarks/reports

bench-replay-all: setup ## all 86 requests and peers, then variants (<= 45 minutes; make peers first)
	$(BIN)/lumotree replay --arms main,peers --requests 0 --max-tokens 1024 --repeats 1 \
		--output benchmarks/results/replay_all.json
	$(BIN)/lumotree replay --arms hydra27,adaptive,passes,one-off --requests 12 \
		--max-tokens 1024 --repeats 2 --output benchmarks/results/replay_variants.json
	for run in replay_all replay_variants; do \
		$(BIN)/python -m benchmarks.replay.report benchmarks/results/$$run.json benchmarks/reports; \
	done

prove: setup ## the whole proof and its page (<= 10 minutes)
	$(BIN)/lumotree prove --output benchmarks/results/proof_cpu.json
	$(BIN)/python -m benchmarks.proof.report benchmarks/results/proof_cpu.json benchmarks/reports

clean: ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis lumotree.egg-info
