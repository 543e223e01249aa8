# Measures speed and rounding errors, here and beside what people would otherwise use. Included by the Makefile.

.PHONY: bench bench-lengths bench-peers bench-quantised bench-python accuracy peers-venv

bench: $(BUILD)/mha ## measures throughput
	$(BUILD)/mha bench --shape standard --part all

$(BUILD)/bench/libshim.so: bench/shim.c $(filter-out %/main.o %/start.o,$(CLI_OBJ)) \
                             $(BUILD)/libbench.a $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(MHA_CFLAGS) -Wno-missing-prototypes $(CFLAGS) -shared $(MHA_LDFLAGS) -o $@ $^ $(LIBS) $(CLI_LIBS)

# The contenders' best flags on this machine: all instructions, sums in any order.
PEER_CFLAGS = -std=c11 -D_GNU_SOURCE -O3 -march=native -fno-math-errno -fno-trapping-math -fno-signed-zeros \
              -fassociative-math -ffinite-math-only -fvisibility=hidden -fPIC -fopenmp -shared
$(BUILD)/bench/libopenblas_peer.so: bench/openblas.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(PEER_CFLAGS) $(BLAS_CFLAGS) -o $@ $< $(BLAS_LIBS) -lm

# Skipped where oneDNN 2 is not installed.
ONEDNN_CODE = bench/onednn.cpp bench/onednn_int8.cpp
$(BUILD)/bench/libonednn_peer.so: $(ONEDNN_CODE) bench/onednn.h
	@mkdir -p $(@D)
	$(call say,LD,$@)
	@if echo '#include <dnnl.hpp>' | $(CXX) -E -x c++ - 2>/dev/null | grep -q output_scales; then \
	  $(CXX) -std=c++11 -O3 -march=native -fno-math-errno -fno-trapping-math -ffinite-math-only -fassociative-math \
	    -fno-signed-zeros -fvisibility=hidden -fPIC -fopenmp -shared -o $@ $(ONEDNN_CODE) -ldnnl; \
	  else echo "oneDNN 2 (libdnnl-dev) is not here"; fi

# Skipped where libxsmm is not installed.
$(BUILD)/bench/libxsmm_peer.so: bench/libxsmm.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	@if echo '#include <libxsmm.h>' | $(CC) -E -x c - >/dev/null 2>&1; then \
	  $(CC) $(PEER_CFLAGS) -o $@ $< -lxsmmext -lxsmm $(BLAS_LIBS) -ldl -lm; \
	  else echo "libxsmm (libxsmm-dev) is not here"; fi

# Debian's own Python has Debian's PyTorch; PEER_PYTHON: another one; PEERS: options of bench/peers.py.
PEERS ?=
PEER_LIBRARIES = $(foreach l,shim openblas_peer onednn_peer xsmm_peer,$(BUILD)/bench/lib$(l).so)

bench-peers: $(PEER_LIBRARIES) ## measures the same work with what people would otherwise use
	$(PEER_PYTHON) bench/peers.py --libraries $(BUILD)/bench $(PEERS)

bench-quantised: $(addprefix $(BUILD)/bench/,libshim.so libonednn_peer.so) ## measures quantised weights beside others
	$(PEER_PYTHON) bench/quantised_peers.py --libraries $(BUILD)/bench $(PEERS)

bench-lengths: $(BUILD)/bench/libshim.so ## measures 1 to 128 tokens: what lengths that nobody rounds cost
	$(PEER_PYTHON) bench/lengths.py --libraries $(BUILD)/bench

# A virtual environment for packages of Python's registry: make bench-peers with this PEER_PYTHON.
PEER_PACKAGES ?= numpy torch onnxruntime
peers-venv: $(BUILD)/peers-venv/installed ## makes an environment with PyTorch 2 and ONNX Runtime for the benchmark
	@echo "make bench-peers PEER_PYTHON=$(abspath $(BUILD))/peers-venv/bin/python"
$(BUILD)/peers-venv/installed:
	python3 -m venv $(@D)
	$(@D)/bin/pip install $(PEER_PACKAGES)
	@touch $@

accuracy: $(PEER_LIBRARIES) ## measures rounding errors against float64, beside the bound and beside others
	$(PYTHON) bench/accuracy.py --libraries $(BUILD)/bench

bench-python: python ## measures what a call costs through Python
	PYTHONPATH=$(BUILD)/python MHA_LIBRARY=$(abspath $(BUILD))/libmha.so $(PYTHON) bench/python_calls.py
