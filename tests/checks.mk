# The checks that are not tests: the library's interface, static analysis. Included by the Makefile.

.PHONY: check-abi analyze tsan valgrind soak

test: check-abi

# Named twice, so that `make -n` does not run what contains its name.
THIS_MAKE = $(MAKE)

check-abi: all ## exported = declared = documented; one version; an installed copy links and runs
	@BUILD=$(BUILD) CC="$(CC)" MAKE="$(THIS_MAKE)" LIBS="$(LIBS)" SANITIZE_FLAGS="$(SAN_FLAGS)" sh tests/check_abi.sh

# ---------------------------------------------------------------- analysis

CLANG_TIDY ?= clang-tidy
CPPCHECK   ?= cppcheck
ANALYZED   = $(patsubst src/%.c,$(BUILD)/analyze/%.ok,$(LIB_SRC) $(CLI_SRC))
ANALYZE_CFLAGS = $(filter-out $(WARNINGS) -fPIC,$(MHA_CFLAGS)) -I$(BUILD)/gen \
                 $(if $(filter src/base/status.c src/formats/input_file.c,$<),,-include tests/analyze.h)
# gcc's analyser does not follow structs that are passed and returned by value (gcc 12).
GCC_ANALYZER = -fanalyzer -O1 -Werror -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-null-argument

analyze: $(ANALYZED) ## clang-tidy, cppcheck and gcc -fanalyzer over src/ (.clang-tidy, .cppcheck)
	$(CPPCHECK) --quiet --error-exitcode=1 --std=c11 --enable=warning,style,performance,portability \
	  --suppressions-list=.cppcheck -D_GNU_SOURCE -Iinclude -Isrc --include=tests/analyze.h src
	@echo "$(words $(ANALYZED)) files analyzed"

# Each instruction set's own file is analyzed for it; what gcc's analyser says of vectors means nothing.
$(BUILD)/analyze/compute/kernels/%_avx2.ok: ISA_CFLAGS = $(call x86,-mavx2 -mfma -mf16c)
$(BUILD)/analyze/compute/kernels/%_avx512.ok: ISA_CFLAGS = $(call x86,-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mf16c)
$(BUILD)/analyze/compute/kernels/%.ok: GCC_ANALYZER = -O1 -Werror
$(BUILD)/analyze/%.ok: src/%.c .clang-tidy tests/analyze.h $(HEADERS) $(wildcard src/*/*.h src/*/*/*.h) | $(BUILD)/gen/presets.inc
	@mkdir -p $(@D)
	@echo $<
	@$(CLANG_TIDY) --quiet $< -- $(ANALYZE_CFLAGS) $(ISA_CFLAGS) 2>$@.log || { cat $@.log; exit 1; }
	@gcc $(GCC_ANALYZER) $(ANALYZE_CFLAGS) $(ISA_CFLAGS) -c -o /dev/null $<
	@touch $@

# ---------------------------------------------------------------- a failing machine

# Stands in front of the C library, in the programs that ask for it alone.
$(BUILD)/tests/library/test_failures $(BUILD)/tests/cli/test_cli_failures: $(BUILD)/tests/inject/inject.o
# ... and the program itself as one function, so that a run costs a fork; its other names stay inside.
$(BUILD)/tests/cli/test_cli_failures: $(BUILD)/tests/inject/program.o
$(BUILD)/tests/cli/test_cli_failures: override CMOCKA_LIBS += $(BUILD)/libmha.a
$(BUILD)/tests/inject/program.o: $(BUILD)/tests/inject/main.o $(filter-out %/main.o,$(CLI_OBJ))
	$(CC) -r -nostdlib -o $@ $^
	$(OBJCOPY) --keep-global-symbol=program_main $@
$(BUILD)/tests/inject/main.o: src/cli/main.c
	@mkdir -p $(@D)
	$(CC) $(MHA_CFLAGS) -Dmain=program_main -Wno-missing-prototypes $(CFLAGS) -MMD -MP -c -o $@ $<
-include $(BUILD)/tests/inject/main.d $(BUILD)/tests/inject/inject.d

# ---------------------------------------------------------------- counted work

# The kernels it counts, and memory that runs out, stand in front of those of the library.
$(BUILD)/tests/attention/test_work: MHA_LDFLAGS += -Wl,--wrap=mha__kernels_get,--wrap=mha__allocate

# The machine's limits are measured by the program's benchmark, not by the library.
$(BUILD)/tests/attention/test_work $(BUILD)/tests/library/test_errors $(BUILD)/tests/library/test_callers: $(BUILD)/obj/bench/machine_peak.o

# ---------------------------------------------------------------- threads

# Under clang, because its OpenMP runtime tells ThreadSanitizer what it does: the tests have teams of their own.
TSAN_CC    ?= clang
TSAN_TESTS  = library/test_threads library/test_callers compute/test_packed attention/test_fast attention/test_forward_cache attention/test_properties library/test_differential

tsan: ## the tests with threads in them, under ThreadSanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan CC=$(TSAN_CC) CFLAGS="-O1 -g" SANITIZE=thread $(TSAN_TESTS:%=$(BUILD)/tsan/tests/%)
	@for t in $(TSAN_TESTS); do echo "== $$t"; \
	  TSAN_OPTIONS="suppressions=tests/tsan.supp $$TSAN_OPTIONS" DIFFERENTIAL_TRIALS=300 $(BUILD)/tsan/tests/$$t || exit 1; done
	@echo "$(words $(TSAN_TESTS)) test programs, no finding of ThreadSanitizer"

soak: T = 180
soak: $(BUILD)/tests/library/test_callers ## many callers at once for T seconds
	SOAK_SECONDS=$(T) $<

# ---------------------------------------------------------------- memory

# Not the programs that map more than valgrind has addresses for (models/test_models, models/test_claims), nor those that take
# minutes in it. It knows no AVX-512: library and BLAS see a machine without and take AVX2.
MEMCHECK       = valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
                 --errors-for-leak-kinds=definite --suppressions=tests/valgrind.supp
MEMCHECK_TESTS = base/test_base base/test_random params/test_params attention/test_layer compute/test_kernels compute/test_packed compute/test_streaming attention/test_fast \
                 attention/test_forward_cache attention/test_forward_refusals attention/test_merged formats/test_formats_safetensors formats/test_formats_npy \
                 formats/test_formats_gguf formats/test_formats_sets formats/test_formats_writer formats/test_formats_models models/test_models_load \
                 models/test_models_expression verify/test_verify verify/test_verify_rope library/test_failures
MEMCHECKED     = $(MEMCHECK_TESTS:%=$(BUILD)/memcheck/%.ok)

valgrind: $(MEMCHECKED) $(BUILD)/memcheck/program.ok ## tests under valgrind's memcheck: bad accesses, uninitialised values, leaks
	@echo "$(words $(MEMCHECKED)) test programs and the program itself, no finding of valgrind"

$(MEMCHECKED): $(BUILD)/memcheck/%.ok: $(BUILD)/tests/% tests/valgrind.supp
	@mkdir -p $(@D)
	@echo "== $*"
	@$(MEMCHECK) $< >$@.log 2>&1 || { cat $@.log; exit 1; }
	@touch $@

$(BUILD)/memcheck/program.ok: $(BUILD)/mha tests/valgrind.supp
	@mkdir -p $(@D)
	@for c in "forward --seq 5 --d-model 24 --heads 3 --output $(@D)/y.npy --trace $(@D)/t.safetensors" \
	  "check tests/vectors/torch_cross.safetensors" "compare $(@D)/y.npy $(@D)/t.safetensors:output" \
	  "params --preset bert-base-cased --format csv" "diagnose tests/vectors/torch_causal.safetensors" "info --json"; do \
	  echo "== mha $$c"; $(MEMCHECK) $< $$c >$@.log 2>&1 || { cat $@.log; exit 1; }; done
	@touch $@
