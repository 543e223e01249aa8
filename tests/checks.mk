# The checks that are not tests: the library's interface, lines, static analysis, sanitizers. Included by the Makefile.

.PHONY: check-abi check-format check-rooms check-python format analyze tsan valgrind soak

check-abi: $(BUILD)/bench/libshim.so
check-abi: all ## exported = declared = documented; one version; an installed copy links and goes away again
	@BUILD=$(BUILD) CC="$(CC)" MAKE="$(THIS_MAKE)" LIBS="$(LIBS)" SANITIZE_FLAGS="$(SAN_FLAGS)" sh tests/check_abi.sh

.PHONY: check-core
check-core: ## only libmha, built and tested in a tree from which the folders of libmha-lab are deleted
	@sh tests/core_alone.sh $(BUILD)/core $(THIS_MAKE)

# Named twice, so that `make -n` does not run what contains its name.
THIS_MAKE = $(MAKE)

# ---------------------------------------------------------------- lines

check-format: ## no line beyond 120 columns, no tab and no blank at its end
	@sh tests/check_format.sh

check-rooms: ## src/ includes what src/README.md allows, and defines a type once
	@sh tests/check_rooms.sh

MYPY ?= $(PYTHON) -m mypy
check-python: python ## the types of the Python module, as mypy reads them (pyproject.toml: strict)
	MYPYPATH=$(BUILD)/python $(MYPY) --cache-dir $(BUILD)/mypy

CLANG_FORMAT ?= clang-format
format: ## lays out src/, include/, tests/ and bench/ as .clang-format says (a suggestion: look at what it changes)
	$(CLANG_FORMAT) -i $$(find src include tests bench -name '*.[ch]')

# ---------------------------------------------------------------- fresh machines

FRESH ?= all
.PHONY: test-fresh
test-fresh: ## README's commands in new Debian roots: FRESH="bookworm|trixie root|user" for one (root, make deps-dev)
	@sh tests/fresh/fresh.sh $(abspath $(BUILD))/fresh $(FRESH)

# ---------------------------------------------------------------- shares

# The commit draws what a run takes: calls, models and faults of tests/peers, and of a long list one in DRAWN.
PEER_SEED ?= $(shell printf %d 0x$$(git rev-parse --short=6 HEAD 2>/dev/null || echo 1))
DRAWN     ?= 1
drawn      = $(if $(filter 1,$(DRAWN)),$(1),$(shell printf '%s\n' $(1) | \
               awk -v n=$(DRAWN) -v at=$(PEER_SEED) 'NR % n == at % n'))

# ---------------------------------------------------------------- analysis

CLANG_TIDY ?= clang-tidy
CPPCHECK   ?= cppcheck
ANALYZED   = $(patsubst src/%.c,$(BUILD)/analyze/%.ok,$(LIB_SRC) $(BENCH_SRC) $(CLI_SRC))
ANALYZE_CFLAGS = $(filter-out $(WARNINGS) -fPIC,$(MHA_CFLAGS)) \
                 $(if $(filter %/status.c %/file_errors.c %/source.c %/input_file.c,$<),,-include tests/analyze.h)
# clang's looks at a third of the states it would by default, which takes half as long.
CLANG_ANALYZER = $(addprefix --extra-arg=-Xclang --extra-arg=,-analyzer-config max-nodes=75000)
# gcc's analyser does not follow structs that are passed and returned by value (gcc 12).
GCC_ANALYZER = -fanalyzer -O1 -Werror -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-null-argument

analyze: $(call drawn,$(ANALYZED)) ## clang-tidy, cppcheck, gcc -fanalyzer over src/; DRAWN=n: one file in n
	$(Q)$(CPPCHECK) --quiet --error-exitcode=1 --std=c11 --enable=warning,style,performance,portability \
	  --suppressions-list=.cppcheck -D_GNU_SOURCE -Iinclude -Isrc --include=tests/analyze.h \
	  $(if $(filter 1,$(DRAWN)),src,$(patsubst $(BUILD)/analyze/%.ok,src/%.c,$^))
	@echo "$(words $^) files analyzed"

# It takes a workspace that was handed over for one that is only measured (base NULL).
$(BUILD)/analyze/attention/core/flash/attend_flash.ok: GCC_ANALYZER += -Wno-analyzer-null-dereference
# Each instruction set's own file is analyzed for it; what gcc's analyser says of vectors means nothing.
$(BUILD)/analyze/compute/kernels/%.ok: GCC_ANALYZER = -O1 -Werror
$(BUILD)/analyze/compute/kernels/%.ok: ISA_CFLAGS = $(ISA_$(lastword $(subst _, ,$(basename $(@F)))))
INTERNAL_HEADERS := $(shell find src -name '*.h')
$(BUILD)/analyze/%.ok: src/%.c .clang-tidy tests/analyze.h $(HEADERS) $(INTERNAL_HEADERS) | $(GENERATED)
	@mkdir -p $(@D)
	$(call say,CHECK,$<)
	@$(CLANG_TIDY) --quiet $(CLANG_ANALYZER) $< -- $(ANALYZE_CFLAGS) $(ISA_CFLAGS) 2>$@.log || { cat $@.log; exit 1; }
	@gcc $(GCC_ANALYZER) $(ANALYZE_CFLAGS) $(ISA_CFLAGS) -c -o /dev/null $<
	@touch $@

# ---------------------------------------------------------------- threads

# Under clang, because its OpenMP runtime tells ThreadSanitizer what it does: the tests have teams of their own.
TSAN_CC    ?= clang
TSAN_TESTS  = $(call named,test_threads test_callers test_packed test_packed_layer test_fast test_forward_cache \
              test_properties test_differential)

tsan: ## the tests with threads in them, under ThreadSanitizer
	@TSAN_OPTIONS="suppressions=tests/tsan.supp $$TSAN_OPTIONS" DIFFERENTIAL_TRIALS=300 $(MAKE) --no-print-directory \
	  BUILD=$(BUILD)/tsan CC="$(TSAN_CC)" CFLAGS="-O1 -g1" KERNEL_CFLAGS=-O3 SANITIZE=thread WERROR=-Werror \
	  $(TSAN_TESTS:$(BUILD)/%=$(BUILD)/tsan/%.run)
	@sh tests/summary.sh $(BUILD)/tsan/results

soak: T = 180
soak: $(call named,test_callers test_cli_failures test_diagnose_random test_diagnose_planted test_case_random \
                   test_bounds_random test_suite_page)
soak: ## many callers at once for T seconds; each failure of the program; random bugs, right calls, bounds
	SOAK_SECONDS=$(T) $<
	FAILURES_STRIDE=1 $(call named,test_cli_failures)
	DIAGNOSE_TRIALS=2000 $(call named,test_diagnose_random)
	PLANTED_TIMES=2 $(call named,test_diagnose_planted)
	CASES_TRIALS=10000 $(call named,test_case_random)
	BOUNDS_TRIALS=20000 $(call named,test_bounds_random)
	SUITE_TYPES=1 $(call named,test_suite_page)

# ---------------------------------------------------------------- memory

# Not the programs that map more than valgrind has addresses for (test_models, test_claims), nor those that take
# minutes in it. It knows no AVX-512: library and BLAS see a machine without and take AVX2.
MEMCHECK       = valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,possible \
                 --errors-for-leak-kinds=definite,possible --suppressions=tests/valgrind.supp
MEMCHECK_TESTS = $(call named,test_base test_random test_params test_layer test_kernels test_packed \
                 test_fast test_forward_cache test_forward_refusals test_formats_safetensors \
                 test_formats_npy test_formats_gguf test_formats_sets test_formats_writer test_formats_models \
                 test_models_load test_models_expression test_verify test_verify_rope test_failures)

valgrind: $(BUILD)/mha ## tests under valgrind's memcheck: bad accesses, uninitialised values, leaks; DRAWN=n: one in n
	@CONFORMANCE_DIR= MODELS_DIR= $(MAKE) --no-print-directory RESULTS=$(BUILD)/memcheck RUNNER="$(MEMCHECK)" \
	  $(call drawn,$(MEMCHECK_TESTS:%=%.run) $(EXAMPLES:%=%.run) $(BUILD)/memcheck-program.run)
	@sh tests/summary.sh $(BUILD)/memcheck

.PHONY: $(BUILD)/memcheck-program.run
$(BUILD)/memcheck-program.run: $(BUILD)/mha | $(RESULTS)
	$(call run,program,sh tests/program_runs.sh $(RESULTS) $(MEMCHECK) $<)
