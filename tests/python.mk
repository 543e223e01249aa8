# Tests of the Python module, where python3 has numpy and pytest. Included by the Makefile.

PYTHON_TESTS := $(sort $(wildcard tests/python/test_*.py))
PYTHON_RUNS  := $(PYTHON_TESTS:tests/%.py=$(BUILD)/tests/%.run)
# The sanitizers' runtime must be there before python3 is; what python3 itself never frees is not looked for.
# So must be the C++ library, or the runtime does not find its own throw when a package of C++ throws.
PRELOAD       = $(if $(SANITIZE),LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so):libstdc++.so.6 \
                                 ASAN_OPTIONS=detect_leaks=0)
# A warning is a bug; what a later Python, or a package, means to give up some day is none yet.
STRICT        = -W error -W default::DeprecationWarning -W default::PendingDeprecationWarning
PYTEST        = $(PRELOAD) PYTHONPATH=$(abspath $(BUILD))/python PYTHONDONTWRITEBYTECODE=1 CC="$(CC)" \
                MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PYTHON) -m pytest -q $(STRICT) -p no:cacheprovider

.PHONY: test-python $(PYTHON_RUNS)
$(PYTHON_RUNS): $(BUILD)/tests/%.run: tests/%.py all python | $(RESULTS)
	$(call run,$*,sh tests/python/run.sh $(PYTHON) '$(PYTEST) $<')

test: $(PYTHON_RUNS)
test-long: $(BUILD)/tests/python/test_conform.run $(BUILD)/tests/python/test_sealed.run
test-python: $(PYTHON_RUNS) ## the tests of the Python module
	@sh tests/summary.sh $(RESULTS)

# ---------------------------------------------------------------- PyTorch, JAX and transformers: all that is compared

PEER_ENV = PYTHONPATH=$(abspath $(BUILD))/python:$(abspath tests/python) MHA_LIBRARY=$(abspath $(BUILD))/libmha.so
.PHONY: test-peers-python
test-peers: test-peers-python
test-peers-python: all python
	$(PEER_ENV) PEER_CALLS=$(N) $(PEER_PYTHON) -m pytest -q -s -p no:cacheprovider tests/peers
	$(PEER_ENV) $(PEER_PYTHON) tests/peers/right_peer.py
	@if $(PEER_PYTHON) -c 'import transformers' 2>/dev/null; then export $(PEER_ENV) && \
	  $(PEER_PYTHON) tests/peers/architectures_peer.py $(BUILD)/mha && \
	  $(PEER_PYTHON) tests/peers/layers_peer.py && $(PEER_PYTHON) tests/peers/keys_peer.py && \
	  $(PEER_PYTHON) tests/peers/costs_peer.py && $(PEER_PYTHON) tests/peers/costs_peer.py --presets 512 && \
	  $(PEER_PYTHON) tests/peers/planted_peer.py && $(PEER_PYTHON) tests/peers/watched_peer.py && \
	  $(PEER_PYTHON) tests/peers/watched_peer.py --exact; \
	  else echo "skipped: architectures beside transformers, which is not installed"; fi
	@if $(PEER_PYTHON) -c 'import transformers, gguf' 2>/dev/null; then $(PEER_ENV) $(PEER_PYTHON) \
	  tests/peers/gguf_peer.py $(BUILD)/mha; \
	  else echo "skipped: files of GGUF beside transformers; it or gguf is not installed"; fi

# ---------------------------------------------------------------- ... and five minutes of it, in a venv

TORCH_TESTS := $(patsubst %.py,$(BUILD)/torch/%,$(wildcard tests/peers/test_*.py))
TORCH_RUNS  := $(TORCH_TESTS) $(addprefix $(BUILD)/torch/,manual python planted watched exact right layers)
TORCH_PAGES  = $(shell grep -rlE '^```(python|sh) [a-z]' README.md src/manual)
.PHONY: test-torch test-torch-newest torch-runs $(TORCH_RUNS)
test-torch: ## the Python module with PyTorch, transformers and JAX, in a venv in ~/.cache/mha; nothing may be skipped
test-torch test-torch-newest: all python $(call named,test_manual)
test-torch:
	+@venv=$$(sh tests/peers/venv.sh $(PYTHON)) && $(WITH_TORCH)
test-torch-newest: ## the same with the newest releases; nothing where these are the same
	+@pinned=$$(sh tests/peers/venv.sh $(PYTHON)) && venv=$$(sh tests/peers/venv.sh $(PYTHON) newest) && \
	  if cmp -s $$pinned/versions $$venv/versions; then echo "the newest releases are those of make test-torch"; \
	  else $(WITH_TORCH); fi
WITH_TORCH = PATH=$$venv/bin:$$PATH MHA_NO_SKIPS=1 \
	  $(MAKE) --no-print-directory PYTHON=$$venv/bin/python RESULTS=$(BUILD)/torch torch-runs
torch-runs: $(TORCH_RUNS)
	@sh tests/summary.sh $(RESULTS)

$(TORCH_RUNS): export PEER_SEED := $(PEER_SEED)
$(TORCH_RUNS): export PEER_CALLS = 300
$(TORCH_RUNS): export MANUAL_PAGES = $(TORCH_PAGES)
$(TORCH_TESTS): COMMAND = $(PYTHON) -m pytest -q -p no:cacheprovider $(patsubst $(BUILD)/torch/%,%,$@).py
$(BUILD)/torch/manual:  COMMAND = $(call named,test_manual)
$(BUILD)/torch/python:  COMMAND = $(PYTEST) -m needs tests/python
$(BUILD)/torch/planted: COMMAND = $(PYTHON) tests/peers/planted_peer.py --drawn 16
$(BUILD)/torch/watched: COMMAND = $(PYTHON) tests/peers/watched_peer.py --drawn 16
$(BUILD)/torch/exact:   COMMAND = $(PYTHON) tests/peers/watched_peer.py --exact --drawn 8
$(BUILD)/torch/right:   COMMAND = $(PYTHON) tests/peers/right_peer.py torch module flex jax layers
$(BUILD)/torch/layers:  COMMAND = $(PYTHON) tests/peers/layers_peer.py
$(TORCH_RUNS): | $(RESULTS)
	$(call run,$(patsubst $(BUILD)/torch/%,%,$@),env $(PEER_ENV) $(COMMAND))
