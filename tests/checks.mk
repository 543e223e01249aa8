# The checks that are not tests: the library's interface, static analysis. Included by the Makefile.

.PHONY: check-abi analyze

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
                 $(if $(filter src/base/status.c src/formats/source.c,$<),,-include tests/analyze.h)
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
$(BUILD)/tests/test_failures $(BUILD)/tests/cli/test_cli_failures: $(BUILD)/tests/inject/inject.o
# ... and the program itself as one function, so that a run costs a fork; its other names stay inside.
$(BUILD)/tests/cli/test_cli_failures: $(BUILD)/tests/inject/program.o
$(BUILD)/tests/cli/test_cli_failures: CMOCKA_LIBS += $(BUILD)/libmha.a
$(BUILD)/tests/inject/program.o: $(BUILD)/tests/inject/main.o $(filter-out %/main.o,$(CLI_OBJ))
	$(CC) -r -nostdlib -o $@ $^
	objcopy --keep-global-symbol=program_main $@
$(BUILD)/tests/inject/main.o: src/cli/main.c
	@mkdir -p $(@D)
	$(CC) $(MHA_CFLAGS) -Dmain=program_main -Wno-missing-prototypes $(CFLAGS) -MMD -MP -c -o $@ $<
-include $(BUILD)/tests/inject/main.d $(BUILD)/tests/inject/inject.d

# ---------------------------------------------------------------- counted work

# The kernels it counts stand in front of those of the library.
$(BUILD)/tests/test_work: MHA_LDFLAGS += -Wl,--wrap=mha_kernels_get
