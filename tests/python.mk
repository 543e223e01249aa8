# Tests of the Python module, where python3 has numpy and pytest. Included by the Makefile.

PYTHON_TESTS := $(sort $(wildcard tests/python/test_*.py))
PYTHON_RUNS  := $(PYTHON_TESTS:tests/%.py=$(BUILD)/tests/%.run)
# The sanitizers' runtime must be there before python3 is; what python3 itself never frees is not looked for.
# So must be the C++ library, or the runtime does not find its own throw when a package of C++ throws.
PRELOAD       = $(if $(SANITIZE),LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so):libstdc++.so.6 \
                                 ASAN_OPTIONS=detect_leaks=0)
# A warning is a mistake; what a later Python, or a package, means to give up some day is none yet.
STRICT        = -W error -W default::DeprecationWarning -W default::PendingDeprecationWarning
PYTEST        = $(PRELOAD) PYTHONPATH=$(abspath $(BUILD))/python PYTHONDONTWRITEBYTECODE=1 CC="$(CC)" \
                MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PYTHON) -m pytest -q $(STRICT) -p no:cacheprovider

# Where PyTorch, JAX or transformers are: N random calls beside theirs, and arrays of their kinds.
.PHONY: test-peers-python
test-peers: test-peers-python
test-peers-python: all python
	PEER_CALLS=$(N) PYTHONPATH=$(BUILD)/python:tests/python MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PEER_PYTHON) \
	  -m pytest -q -s -p no:cacheprovider tests/peers
	PYTHONPATH=$(BUILD)/python:tests/python MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PEER_PYTHON) \
	  tests/peers/right_peer.py
	@if $(PEER_PYTHON) -c 'import transformers' 2>/dev/null; then \
	  $(PEER_PYTHON) tests/peers/architectures_peer.py $(BUILD)/mha && \
	  export PYTHONPATH=$(BUILD)/python MHA_LIBRARY=$(abspath $(BUILD))/libmha.so && \
	  $(PEER_PYTHON) tests/peers/layers_peer.py && $(PEER_PYTHON) tests/peers/keys_peer.py && \
	  $(PEER_PYTHON) tests/peers/costs_peer.py && $(PEER_PYTHON) tests/peers/costs_peer.py --presets 512 && \
	  $(PEER_PYTHON) tests/peers/planted_peer.py && $(PEER_PYTHON) tests/peers/watched_peer.py && \
	  $(PEER_PYTHON) tests/peers/watched_peer.py --exact; \
	  else echo "skipped: architectures beside transformers, which is not installed"; fi
	@if $(PEER_PYTHON) -c 'import transformers, gguf' 2>/dev/null; then PYTHONPATH=$(BUILD)/python \
	  MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PEER_PYTHON) tests/peers/gguf_peer.py $(BUILD)/mha; \
	  else echo "skipped: files of GGUF beside transformers; it or gguf is not installed"; fi

.PHONY: test-python $(PYTHON_RUNS)
$(PYTHON_RUNS): $(BUILD)/tests/%.run: tests/%.py all python | $(RESULTS)
	$(call run,$*,sh tests/python/run.sh $(PYTHON) '$(PYTEST) $<')

test: $(PYTHON_RUNS)
test-python: $(PYTHON_RUNS) ## the tests of the Python module
	@sh tests/summary.sh $(RESULTS)
