# Builds the library, the program, its tests and benchmarks. `make help` lists the targets.
#
# Overridable: CC CXX CFLAGS LDFLAGS BUILD PREFIX DESTDIR, WERROR= (empty: warnings stay warnings),
# BLAS_CFLAGS BLAS_LIBS (another CBLAS), JANSSON_CFLAGS JANSSON_LIBS, LIBZIP_CFLAGS LIBZIP_LIBS,
# CMOCKA_CFLAGS CMOCKA_LIBS.

BUILD   ?= build
CFLAGS  ?= -O2 -g
WERROR  ?= -Werror
PREFIX  ?= /usr/local
CXX     ?= c++
SANITIZE ?=
PKG_CONFIG ?= pkg-config
OBJCOPY ?= objcopy

# Looked up when a recipe runs, not when this file is read: `make deps demo` installs them in between.
BLAS_CFLAGS    ?= $(shell $(PKG_CONFIG) --cflags openblas)
BLAS_LIBS      ?= $(shell $(PKG_CONFIG) --libs openblas)
JANSSON_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags jansson)
JANSSON_LIBS   ?= $(shell $(PKG_CONFIG) --libs jansson)
LIBZIP_CFLAGS  ?= $(shell $(PKG_CONFIG) --cflags libzip)
LIBZIP_LIBS    ?= $(shell $(PKG_CONFIG) --libs libzip)
CMOCKA_CFLAGS  ?= $(shell $(PKG_CONFIG) --cflags cmocka)
CMOCKA_LIBS    ?= $(shell $(PKG_CONFIG) --libs cmocka)

WARNINGS = -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
           -Wcast-qual -Wwrite-strings -Wvla -Wundef $(WERROR)
SAN_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
MHA_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -Iinclude -Isrc -fPIC -fvisibility=hidden -pthread \
             -ffp-contract=off $(BLAS_CFLAGS) $(JANSSON_CFLAGS) $(LIBZIP_CFLAGS) $(SAN_FLAGS)
MHA_LDFLAGS = -pthread $(SAN_FLAGS) $(LDFLAGS)
LIBS = $(BLAS_LIBS) $(JANSSON_LIBS) $(LIBZIP_LIBS) -lm

version = $(shell awk '/define MHA_VERSION_$(1)/{print $$3}' include/mha/system.h)
MAJOR := $(call version,MAJOR)
VERSION := $(MAJOR).$(call version,MINOR).$(call version,PATCH)

LIB_SRC  := $(sort $(filter-out src/cli/% src/bench/%,$(shell find src -name '*.c')))
CLI_SRC  := $(sort $(shell find src/cli src/bench -name '*.c'))
HEADERS  := $(sort $(wildcard include/mha/*.h))
SUPPORT_SRC := $(sort $(wildcard tests/support/*.c))
TEST_SRC := $(sort $(shell find tests -name 'test_*.c'))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))

LIB_OBJ  := $(LIB_SRC:src/%.c=$(BUILD)/obj/%.o)
CLI_OBJ  := $(CLI_SRC:src/%.c=$(BUILD)/obj/%.o)
SUPPORT_OBJ := $(SUPPORT_SRC:tests/%.c=$(BUILD)/tests/%.o)
TESTS    := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)
FUZZERS  := $(FUZZ_SRC:tests/%.c=$(BUILD)/tests/%)

.DEFAULT_GOAL := all
.PHONY: all help deps deps-dev demo test check-headers check-example test-differential replay fuzz fuzzers asan test-peers bench bench-peers accuracy install clean
.SECONDARY:
.DELETE_ON_ERROR:

all: $(BUILD)/libmha.a $(BUILD)/libmha.so $(BUILD)/mha  ## the libraries and the program, in build/

help: ## this list
	@awk -F':.*## *' '/^[a-z-]+:.*##/ {printf "  make %-14s %s\n", $$1, $$2}' Makefile tests/checks.mk tests/coverage.mk tests/neon.mk

# ---------------------------------------------------------------- what is needed

DEPS     = gcc g++ libc6-dev make pkg-config libopenblas-dev libjansson-dev libzip-dev libcmocka-dev
DEPS_DEV = clang libclang-rt-dev libomp-dev valgrind libc6-dbg python3-torch python3-numpy libdnnl-dev libxsmm-dev gnuplot-nox gcovr clang-tidy cppcheck mandoc gcc-aarch64-linux-gnu qemu-user
SUDO     = $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# $(call apt,packages): installs those that are missing, and says so; silent when nothing is.
# A name the system does not have (libclang-rt-dev on older releases) is looked for with a version in it.
define apt
missing=; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
if [ -z "$$missing" ]; then echo "$@: everything is installed"; else \
  echo "$@: installing$$missing"; $(SUDO) apt-get update -qq; want=; \
  for p in $$missing; do apt-cache show $$p >/dev/null 2>&1 && want="$$want $$p" || \
    want="$$want $$(apt-cache search --names-only "^$${p%-dev}-[0-9]+-dev$$" | cut -d' ' -f1 | sort -V | tail -1)"; done; \
  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$want; fi
endef

deps: ## installs what building and testing need (Debian, Ubuntu)
	@$(call apt,$(DEPS))

deps-dev: deps ## installs what only checks and benchmarks need
	@$(call apt,$(DEPS_DEV))

# ---------------------------------------------------------------- building

# Instruction sets are compiled in files of their own; the rest stays at the base of the architecture.
# (The compiler is asked when a recipe runs: `make deps demo` installs it in between.)
x86 = $(if $(filter x86_64% i%86%,$(shell $(CC) -dumpmachine)),$(1))
$(BUILD)/obj/compute/kernels/%_avx2.o:   ISA_CFLAGS = -O3 $(call x86,-mavx2 -mfma -mf16c) $(KERNEL_CFLAGS)
$(BUILD)/obj/compute/kernels/%_avx512.o: ISA_CFLAGS = -O3 $(call x86,-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mf16c -mprefer-vector-width=512) $(KERNEL_CFLAGS)
$(BUILD)/obj/compute/kernels/%_neon.o $(BUILD)/obj/compute/kernels/%_scalar.o: ISA_CFLAGS = -O3 $(KERNEL_CFLAGS)

$(BUILD)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(MHA_CFLAGS) $(CFLAGS) $(ISA_CFLAGS) -MMD -MP -c -o $@ $<

# The presets are C strings in the library, so that an installed program has them.
PRESETS := $(patsubst %,weights/presets/%.json,$(sort $(basename $(notdir $(wildcard weights/presets/*.json)))))
$(BUILD)/gen/presets.inc: $(PRESETS) Makefile
	@mkdir -p $(@D)
	for f in $(PRESETS); do n=$${f##*/}; echo "{\"$${n%.json}\","; sed -e 's/["\\]/\\&/g' -e 's/^ *//' -e 's/.*/"&\\n"/' $$f; echo '},'; done >$@
$(BUILD)/obj/models/presets.o: $(BUILD)/gen/presets.inc
$(BUILD)/obj/models/presets.o: MHA_CFLAGS += -I$(BUILD)/gen

$(BUILD)/libmha.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libmha.so.$(VERSION): $(LIB_OBJ)
	$(CC) -shared -Wl,-soname,libmha.so.$(MAJOR) -Wl,-z,defs -Wl,-z,nodelete $(MHA_LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/libmha.so: $(BUILD)/libmha.so.$(VERSION)
	ln -sf $(<F) $(BUILD)/libmha.so.$(MAJOR)
	ln -sf libmha.so.$(MAJOR) $@

$(BUILD)/mha: $(CLI_OBJ) $(BUILD)/libmha.a
	$(CC) $(MHA_LDFLAGS) -o $@ $^ $(LIBS)

demo: $(BUILD)/mha ## builds and runs the forward pass on random inputs
	$(BUILD)/mha forward

# ---------------------------------------------------------------- testing

# OpenMP: a caller's own, around the library's calls.
TEST_CFLAGS = $(MHA_CFLAGS) -fopenmp -I. -Itests $(CMOCKA_CFLAGS)

$(BUILD)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT_OBJ) $(BUILD)/libmha.a
	$(CC) $(MHA_LDFLAGS) -fopenmp -o $@ $^ $(CMOCKA_LIBS) $(LIBS)

# Recorded cases and trained models, where they are present; the tests run without them too.
CONFORMANCE_DIR ?= $(wildcard ../shared/conformance)
MODELS_DIR      ?= $(wildcard ../shared/models)

test: all $(TESTS) replay check-headers check-example ## builds and runs all tests
	@failed=; for t in $(TESTS); do \
	  echo "== $${t#$(BUILD)/tests/}"; \
	  MHA_PROGRAM=$(BUILD)/mha CONFORMANCE_DIR=$(CONFORMANCE_DIR) MODELS_DIR=$(MODELS_DIR) $$t || failed="$$failed $${t#$(BUILD)/tests/}"; \
	done; if [ -n "$$failed" ]; then echo "FAILED:$$failed"; exit 1; fi; echo "all test programs passed"

# Fuzzers: with replay.c each is a plain program that runs its corpus, with libFuzzer it looks for more.
FUZZ_MAIN ?= $(BUILD)/tests/fuzz/replay.o
FUZZ_LINK ?=

# Their files are memory (tests/fuzz/memory.c answers for the system).
FUZZ_WRAP = open stat fstat pread dup close zip_fdopen

$(FUZZERS): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/support.o $(BUILD)/tests/fuzz/memory.o $(FUZZ_MAIN) $(BUILD)/libmha.a
	$(CC) $(MHA_LDFLAGS) $(FUZZ_LINK) $(FUZZ_WRAP:%=-Wl,--wrap=%) -o $@ $^ $(BUILD)/libmha.a $(LIBS)
$(BUILD)/tests/fuzz/fuzz_options: $(filter-out %/main.o,$(CLI_OBJ))

fuzzers: $(FUZZERS)

replay: $(FUZZERS) ## runs every fuzzer over its corpus
	@for f in $(FUZZERS); do $$f tests/fuzz/corpus/$${f##*/fuzz_} || exit 1; done

T ?= 60
fuzz: ## looks for inputs that break a parser, T seconds for each (needs clang)
	@$(MAKE) -s BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -g" SANITIZE=fuzzer-no-link,address,undefined KERNEL_CFLAGS=-fno-sanitize=all \
	  FUZZ_MAIN= FUZZ_LINK=-fsanitize=fuzzer fuzzers
	@for f in $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%); do mkdir -p $(BUILD)/fuzz/corpus/$$f; \
	  ASAN_OPTIONS=malloc_context_size=3:quarantine_size_mb=8 $(BUILD)/fuzz/tests/fuzz/fuzz_$$f -max_total_time=$(T) -rss_limit_mb=1024 -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)/fuzz/$$f- $(BUILD)/fuzz/corpus/$$f tests/fuzz/corpus/$$f >$(BUILD)/fuzz/$$f.log 2>&1 || \
	    { tail -40 $(BUILD)/fuzz/$$f.log; exit 1; }; \
	  echo "$$f: $$(sed -n 's/stat::number_of_executed_units: *//p' $(BUILD)/fuzz/$$f.log) executions, no finding"; done

check-headers: ## every public header compiles alone, in C11 and in C++
	@for h in $(HEADERS); do \
	  $(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c $$h && \
	  $(CXX) -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ $$h || exit 1; done
	@echo "$(words $(HEADERS)) headers compile alone in C11 and in C++"

# The C example in README is compiled and run as it stands there.
check-example: $(BUILD)/libmha.a
	@if [ -f README.md ]; then mkdir -p $(BUILD)/example && \
	  awk '/^```c$$/{on=1;next} /^```$$/{if(on)exit} on' README.md >$(BUILD)/example/example.c && \
	  $(CC) -std=c11 -Wall -Wextra -Werror $(SAN_FLAGS) -Iinclude -o $(BUILD)/example/example $(BUILD)/example/example.c \
	    $(BUILD)/libmha.a -pthread $(LIBS) && $(BUILD)/example/example && echo "README's example runs"; fi

N ?= 10000
test-differential: $(BUILD)/tests/library/test_differential ## compares N random forwards with themselves, cut in every way
	DIFFERENTIAL_TRIALS=$(N) $<

# Failures are injected into the program at every fifth place here, at every one in `make test`: the other way takes minutes.
asan: ## the tests again under the address and undefined-behaviour sanitizers
	FAILURES_STRIDE=$${FAILURES_STRIDE:-5} $(MAKE) BUILD=$(BUILD)/asan CFLAGS="-O1 -g" SANITIZE=address,undefined test

PEER_PYTHON ?= /usr/bin/python3
test-peers: $(BUILD)/libmha.a ## compares N random layers with PyTorch's nn.MultiheadAttention (make deps-dev)
	$(CC) $(TEST_CFLAGS) $(CFLAGS) -shared -o $(BUILD)/peers.so tests/peers/shim.c $< $(MHA_LDFLAGS) $(LIBS)
	$(PEER_PYTHON) tests/peers/torch_peer.py $(BUILD)/peers.so $(N)

bench: $(BUILD)/mha ## measures throughput
	$(BUILD)/mha bench

$(BUILD)/bench/libshim.so: bench/shim.c $(filter-out %/main.o,$(CLI_OBJ)) $(BUILD)/libmha.a
	@mkdir -p $(@D)
	$(CC) $(MHA_CFLAGS) -Wno-missing-prototypes $(CFLAGS) -shared $(MHA_LDFLAGS) -o $@ $^ $(LIBS)

# What others would write, at its best on this machine: all it may use, sums in any order.
PEER_CFLAGS = -std=c11 -D_GNU_SOURCE -O3 -march=native -fno-math-errno -fno-trapping-math -fno-signed-zeros \
              -fassociative-math -ffinite-math-only -fvisibility=hidden -fPIC -fopenmp -shared
$(BUILD)/bench/libopenblas_peer.so: bench/openblas.c
	@mkdir -p $(@D)
	$(CC) $(PEER_CFLAGS) $(BLAS_CFLAGS) -o $@ $< $(BLAS_LIBS) -lm

# Skipped where oneDNN 2 is not installed.
$(BUILD)/bench/libonednn_peer.so: bench/onednn.cpp
	@mkdir -p $(@D)
	@if echo '#include <dnnl.hpp>' | $(CXX) -E -x c++ - 2>/dev/null | grep -q output_scales; then \
	  $(CXX) -std=c++11 -O2 -fvisibility=hidden -fPIC -shared -o $@ $< -ldnnl; else echo "oneDNN 2 (libdnnl-dev) is not here"; fi

# Skipped where libxsmm is not installed.
$(BUILD)/bench/libxsmm_peer.so: bench/libxsmm.c
	@mkdir -p $(@D)
	@if echo '#include <libxsmm.h>' | $(CC) -E -x c - >/dev/null 2>&1; then \
	  $(CC) $(PEER_CFLAGS) -o $@ $< -lxsmmext -lxsmm $(BLAS_LIBS) -ldl -lm; else echo "libxsmm (libxsmm-dev) is not here"; fi

# Debian's own Python, which has Debian's PyTorch; PEERS: options of bench/peers.py.
PYTHON ?= /usr/bin/python3
PEERS  ?=
PEER_LIBRARIES = $(BUILD)/bench/libshim.so $(BUILD)/bench/libopenblas_peer.so $(BUILD)/bench/libonednn_peer.so $(BUILD)/bench/libxsmm_peer.so

bench-peers: $(PEER_LIBRARIES) ## measures the same work with what people would otherwise use
	$(PYTHON) bench/peers.py --libraries $(BUILD)/bench $(PEERS)

accuracy: $(PEER_LIBRARIES) ## measures rounding errors against float64, beside the bound and beside others
	$(PYTHON) bench/accuracy.py --libraries $(BUILD)/bench

# ---------------------------------------------------------------- installing

install: all ## installs under $(DESTDIR)$(PREFIX)
	install -d "$(DESTDIR)$(PREFIX)/include/mha" "$(DESTDIR)$(PREFIX)/lib/pkgconfig" "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -m 644 $(HEADERS) "$(DESTDIR)$(PREFIX)/include/mha/"
	install -m 644 $(BUILD)/libmha.a "$(DESTDIR)$(PREFIX)/lib/"
	install -m 755 $(BUILD)/libmha.so.$(VERSION) "$(DESTDIR)$(PREFIX)/lib/"
	ln -sf libmha.so.$(VERSION) "$(DESTDIR)$(PREFIX)/lib/libmha.so.$(MAJOR)"
	ln -sf libmha.so.$(MAJOR) "$(DESTDIR)$(PREFIX)/lib/libmha.so"
	install -m 755 $(BUILD)/mha "$(DESTDIR)$(PREFIX)/bin/"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' src/mha.pc.in >"$(DESTDIR)$(PREFIX)/lib/pkgconfig/mha.pc"
	install -m 644 src/cli/mha.1 "$(DESTDIR)$(PREFIX)/share/man/man1/"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	$(BUILD)/mha completion bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mha"

include tests/checks.mk
include tests/coverage.mk
include tests/neon.mk

clean: ## removes what was built
	rm -rf $(BUILD)

# `make deps test` in one command: nothing is compiled before it is installed, also with -j.
ifneq ($(filter deps deps-dev,$(MAKECMDGOALS)),)
$(LIB_OBJ) $(CLI_OBJ) $(SUPPORT_OBJ) $(TESTS:%=%.o) $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(wildcard tests/fuzz/*.c)) check-headers: | $(filter deps deps-dev,$(MAKECMDGOALS))
endif

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(SUPPORT_OBJ:.o=.d) $(TESTS:%=%.d) $(FUZZERS:%=%.d)
