# Builds and runs the tests: programs of cmocka, fuzzers over their corpora, examples. Included by the Makefile.

.PHONY: test fuzzers replay fuzz check-headers check-example test-differential test-coverage asan \
        test-page test-peers

TEST_SRC    := $(sort $(shell find tests -name 'test_*.c'))
FUZZ_SRC    := $(sort $(wildcard tests/fuzz/fuzz_*.c))
EXAMPLE_SRC := $(sort $(shell find tests/examples -name '*.c'))
SUPPORT_SRC := $(sort $(shell find tests/support -name '*.c'))
# Without libmha-lab: the tests of the rooms of libmha, and the support, that do not include its headers.
ifeq ($(LAB_SRC),)
LAB_NAMES   := mha/(lab|case|compare|conform|file|gradients|model|positions|power|split.*)[.]h
of_lab       = $(shell grep -lE '^.include ["<](jansson|zip|verify/|models/|formats/|split/|bench/|$(2))' $(1))
LAB_SUPPORT := $(patsubst tests/%,|%,$(call of_lab,$(shell find tests/support -name '*.h'),$(LAB_NAMES)))
without_lab  = $(filter-out $(call of_lab,$(1),$(LAB_NAMES)$(subst $(subst ,, ),,$(LAB_SUPPORT))),$(1))
TEST_SRC    := $(call without_lab,$(filter $(CORE_ROOMS:%=tests/%/%),$(TEST_SRC)))
SUPPORT_SRC := $(call without_lab,$(SUPPORT_SRC))
EXAMPLE_SRC := $(call without_lab,$(EXAMPLE_SRC))
FUZZ_SRC    :=
endif
SUPPORT_OBJ := $(SUPPORT_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ    := $(TEST_SRC:%.c=$(BUILD)/%.o)
TESTS       := $(TEST_OBJ:.o=)
FUZZERS     := $(FUZZ_SRC:%.c=$(BUILD)/%)
EXAMPLES    := $(EXAMPLE_SRC:%.c=$(BUILD)/%)

# Test files by their names, in any folder: $(call named,test_base test_random)
named = $(foreach n,$(1),$(or $(filter %/$(n),$(TESTS)),$(if $(LAB_SRC),$(error no test file is called $(n)))))

# ---------------------------------------------------------------- building

# OpenMP: a caller's own, around the library's calls. Most assertions run once: test files compile faster with -O1. The
# oracle of tests/support has the loops.
TEST_COMPILE = $(CC) $(MHA_CFLAGS) -fopenmp -I. -Itests $(TEST_CFLAGS) $(if $(RENAMED),$(CFLAGS:-O2=-O1),$(CFLAGS)) \
               -MMD -MP
$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(TEST_COMPILE) $(RENAMED) -c -o $@ $<
$(TEST_OBJ): RENAMED = -Dmain=$(*F)_main -include tests/runner.h

# The test files of a folder, and of the folders in it, are one program, build/tests/FOLDER/tests (tests/runner.c); each
# file is a link to it besides. $(call runner_of,FOLDER,ROOT): the program below ROOT, and its links.
TEST_FOLDERS := $(sort $(foreach f,$(TEST_SRC),$(word 2,$(subst /, ,$(f)))))
RUNNERS      := $(TEST_FOLDERS:%=$(BUILD)/tests/%/tests)
define runner_of
$(2)/$(1)/tests: $(BUILD)/tests/$(1)/tests.o $(filter $(BUILD)/tests/$(1)/%,$(TEST_OBJ))
$(patsubst $(BUILD)/tests/%.o,$(2)/%,$(filter $(BUILD)/tests/$(1)/%,$(TEST_OBJ))): $(2)/$(1)/tests
	@mkdir -p $$(@D) && ln -srf $$< $$@
endef
$(foreach f,$(TEST_FOLDERS),$(eval $(call runner_of,$(f),$(BUILD)/tests)))

$(BUILD)/test_files: export HELD = $(TEST_SRC)
$(RUNNERS:=.o): $(BUILD)/tests/%/tests.o: tests/runner.c $(BUILD)/flags $(BUILD)/test_files
	@mkdir -p $(@D)
	$(call say,CC,$< for tests/$*)
	$(Q)$(TEST_COMPILE) '-DTEST_FILES=$(patsubst %.c,TEST_FILE(%),$(notdir $(filter tests/$*/%,$(TEST_SRC))))' -c -o $@ $<

# The commands of tests/surface/planted_setting.py in its copy of the sources.
PLANTED := $(BUILD)/tests/surface/planted
$(PLANTED): %: %.o
$(RUNNERS) $(PLANTED): $(SUPPORT_OBJ) $(if $(LAB_SRC),$(BUILD)/libbench.a) $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(CC) $(MHA_LDFLAGS) $(WRAP:%=-Wl,--wrap=%) -fopenmp -o $@ $(filter %.o,$^) $(filter %.a,$^) $(TEST_LIBS) \
	  $(LIBS) $(THIS_LIBS)

# Functions that count or fail, in place of those of the library or the system, have programs of their own.
$(BUILD)/tests/counts/tests: WRAP = mha__kernels_get mha__allocate
# ... and the program itself as one function, so that a run of it costs a fork; its other names stay inside.
$(BUILD)/tests/inject/tests: $(BUILD)/tests/inject/inject.o $(BUILD)/tests/inject/program.o
$(BUILD)/tests/inject/tests $(BUILD)/tests/fuzz/fuzz_options: THIS_LIBS = $(CLI_LIBS)
$(BUILD)/tests/cli/tests: $(BUILD)/obj/cli/setup/meaning.o
$(BUILD)/tests/inject/program.o: $(BUILD)/tests/inject/main.o $(filter-out %/main.o,$(CLI_OBJ)) $(BENCH_OBJ)
	$(Q)$(CC) -r -nostdlib -o $@ $^
	$(Q)$(OBJCOPY) --keep-global-symbol=program_main $@
$(BUILD)/tests/inject/main.o: src/cli/main.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$< as a function)
	$(Q)$(CC) $(MHA_CFLAGS) -Dmain=program_main -Wno-missing-prototypes $(CFLAGS) -MMD -MP -c -o $@ $<

# The program with a brief measurement of the machine, for tests that run `mha bench` many times.
BENCH_BRIEFLY = -DBENCH_READ_MIB=16 -DBENCH_PEAK_ROUNDS=2000
BRIEF_PROGRAM = $(BUILD)/tests/cli/brief/mha
$(BRIEF_PROGRAM:mha=machine_peak.o): src/bench/machine_peak.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$< for tests)
	$(Q)$(CC) $(MHA_CFLAGS) $(BENCH_BRIEFLY) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BRIEF_PROGRAM): $(CLI_OBJ) $(BRIEF_PROGRAM:mha=machine_peak.o) $(BUILD)/libbench.a $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(CC) $(MHA_LDFLAGS) -o $@ $^ $(LIBS) $(CLI_LIBS)

# Fuzzers: with replay.c each is a plain program that runs its corpus, with libFuzzer it looks for more. Their files are
# memory (tests/fuzz/memory.c answers for the system).
FUZZ_MAIN ?= $(BUILD)/tests/fuzz/replay.o
FUZZ_LINK ?=
FUZZ_OBJ   = $(BUILD)/tests/fuzz/support.o $(BUILD)/tests/fuzz/memory.o $(FUZZ_MAIN)
$(FUZZERS): WRAP = open stat fstat pread dup close zip_fdopen
$(FUZZERS): %: %.o $(FUZZ_OBJ) $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(CC) $(MHA_LDFLAGS) $(FUZZ_LINK) $(WRAP:%=-Wl,--wrap=%) -o $@ $(filter-out %.a,$^) $(ARCHIVES) $(LIBS) \
	  $(THIS_LIBS)
$(BUILD)/tests/fuzz/fuzz_options: $(filter-out %/main.o,$(CLI_OBJ)) $(BENCH_OBJ)
fuzzers: $(FUZZERS)

# Examples are compiled as a reader would: against the public headers and the static library.
$(EXAMPLES): $(BUILD)/%: %.c $(ARCHIVES) $(HEADERS)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c11 -Wall -Wextra $(WERROR) $(SAN_FLAGS) -Iinclude $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< \
	  $(ARCHIVES) $(LIBS) -pthread

# ---------------------------------------------------------------- running

# $(call run,NAME,COMMAND[,cmocka]): see tests/run_test.sh. RUNNER: stands before a test program, an emulator perhaps.
RESULTS ?= $(BUILD)/results
RUNNER  ?=
TESTED_PROGRAM = $(BUILD)/mha
run = @MHA_PROGRAM=$(TESTED_PROGRAM) KIND=$(3) sh tests/run_test.sh $(RESULTS) $(1) $(2)
.PHONY: $(RESULTS)
$(RESULTS):
	@rm -rf $@ && mkdir -p $@

# Those that take longest begin first.
LONG_TESTS := $(call named,test_manual test_cli_bench test_cli_models test_cli_failures test_diagnose_large \
                           test_diagnose_planted test_low_precision test_gradient_bound \
                           test_gradient_case test_suite test_diagnose test_failures test_cli_ranks \
                           test_diagnose_slices)
# `make test-long` runs these. BRIEF=1, where a test takes several times as long: a quarter of the random trials, and
# without the tests that ask at length what others have reached.
LENGTHY   := $(call named,test_suite_page)
REPEATERS := $(call named,test_diagnose_large)
BRIEF     ?=
ifneq ($(BRIEF),)
export TRIALS_DIVISOR ?= 4
endif
# Transcripts of the program run file by file.
TRANSCRIPTS := $(if $(LAB_SRC),$(sort $(wildcard tests/cli/transcripts/*.md)))
ONE_BY_ONE  := $(LONG_TESTS) $(TRANSCRIPTS) $(filter-out $(LONG_TESTS) $(call named,test_transcripts),$(TESTS))
ONE_BY_ONE  := $(filter-out $(LENGTHY) $(if $(BRIEF),$(REPEATERS)),$(ONE_BY_ONE))
RUNS        := $(patsubst %,%.run,$(ONE_BY_ONE) $(FUZZERS) $(EXAMPLES) $(BUILD)/tests/results)
CHECKS     := $(if $(LAB_SRC),check-abi) check-headers check-example
.PHONY: $(RUNS) $(CHECKS:%=%.run)
$(TESTS:%=%.run): %.run: % | $(RESULTS)
	$(call run,$(patsubst $(BUILD)/tests/%,%,$<),$(RUNNER) $<,cmocka)
$(TRANSCRIPTS:%=%.run): %.run: $(call named,test_transcripts) | $(RESULTS)
	$(call run,$(patsubst tests/%,%,$*),$< $*,cmocka)
$(filter $(BUILD)/tests/cli/%,$(RUNS)) $(TRANSCRIPTS:%=%.run): $(BUILD)/mha
BENCH_RUNS := $(filter %/test_cli_bench.run %/test_cli_widths.run %/bench.md.run,$(RUNS))
$(BENCH_RUNS): TESTED_PROGRAM = $(BRIEF_PROGRAM)
$(BENCH_RUNS): $(BRIEF_PROGRAM)
# It runs the examples in Python, too.
$(BUILD)/tests/cli/test_manual.run: python
$(FUZZERS:%=%.run): %.run: % | $(RESULTS)
	$(call run,fuzz/$(<F),$< tests/fuzz/corpus/$(patsubst fuzz_%,%,$(<F)))
$(EXAMPLES:%=%.run): %.run: % | $(RESULTS)
	$(call run,$(patsubst $(BUILD)/tests/%,%,$<),$(RUNNER) $<)
$(BUILD)/tests/results.run: | $(RESULTS)
	$(call run,results,sh tests/results_test.sh $(BUILD)/tests/results)
# The names are of targets: these write one line themselves when asked for alone.
$(CHECKS:%=%.run): %.run: all | $(RESULTS)
	$(call run,$*,$(MAKE) --no-print-directory -s $*)

test: all $(RUNS) $(CHECKS:%=%.run) ## builds and runs all tests
	@sh tests/summary.sh $(RESULTS)

test-long: export BUGS_SHOWN = 2
test-long: export DRAW_ALL = 1
LONG_RUNS  = $(LENGTHY) $(call named,test_gradient_bugs test_diagnose_planted test_diagnose_large test_diagnose_clues \
             test_diagnose_slices test_suite test_failures)
test-long: $(LONG_RUNS:%=%.run) ## bugs that the suite rejects; whole lists, from which make test draws
	@sh tests/summary.sh $(RESULTS)

test-coverage: $(call named,test_coverage) ## bugs that the suite rejects in each size class, for all 20 seeds
	DRAW_ALL=1 $<

replay: $(FUZZERS:%=%.run) ## runs every fuzzer over its corpus
	@sh tests/summary.sh $(RESULTS)

T ?= 60
FUZZED := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%.fuzzed)
.PHONY: $(FUZZED)
fuzz: ## looks for inputs that break a parser, T seconds for each (needs clang)
	@$(MAKE) -s BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -g" SANITIZE=fuzzer-no-link,address,undefined \
	  KERNEL_CFLAGS="-O3 -fno-sanitize=all" FUZZ_MAIN= FUZZ_LINK=-fsanitize=fuzzer fuzzers
	@$(MAKE) -s T=$(T) $(FUZZED)

# One fuzzer, which `fuzz` has built.
FUZZ = $(BUILD)/fuzz
$(FUZZED): %.fuzzed:
	@mkdir -p $(FUZZ)/corpus/$*
	@ASAN_OPTIONS=malloc_context_size=3:quarantine_size_mb=8 $(FUZZ)/tests/fuzz/fuzz_$* -max_total_time=$(T) \
	  -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix=$(FUZZ)/$*- $(FUZZ)/corpus/$* tests/fuzz/corpus/$* \
	  >$(FUZZ)/$*.log 2>&1 || { tail -40 $(FUZZ)/$*.log; exit 1; }
	@echo "$*: $$(sed -n 's/stat::number_of_executed_units: *//p' $(FUZZ)/$*.log) executions, no finding"

check-headers: ## every public header compiles by itself, in C11 and in C++
	@for h in $(HEADERS); do \
	  $(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c $$h && \
	  $(CXX) -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ $$h || exit 1; done
	@echo "$(words $(HEADERS)) headers compile by themselves in C11 and in C++"

# The C block of README is a part of an example, apart from its margin. The example of a layer is C++ as well.
README_PARTS   = tests/examples/first.c
HEADER_EXAMPLE = tests/examples/attention.c
check-example: $(BUILD)/libmha.a ## the examples in README and attention.h are parts of tests/examples, also as C++
	@awk '/^```c$$/ {on = 1; next} /^```$$/ {if (on) exit} on' README.md | awk -v of=$(README_PARTS) ' \
	  BEGIN {while ((getline line <of) > 0) {sub(/^ */, "", line); whole = whole line "\n"}} {part = part $$0 "\n"} \
	  END {exit !(length(part) > 20 && index(whole, part))}' || \
	  { echo "the first C block of README.md is no part of $(README_PARTS)" >&2; exit 1; }
	@$(CXX) -std=c++20 -Wall -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ tests/examples/layer.c
	@awk '/\*\// {exit} sub(/^ \*     /, "    ")' include/mha/attention.h | awk -v of=$(HEADER_EXAMPLE) ' \
	  BEGIN {while ((getline line <of) > 0) whole = whole line "\n"} {part = part $$0 "\n"} \
	  END {exit !(length(part) > 200 && index(whole, part))}' || \
	  { echo "the example in mha/attention.h is no part of $(HEADER_EXAMPLE)" >&2; exit 1; }
	@mkdir -p $(BUILD)/tests/examples
	@$(CXX) -std=c++17 -Wall -Wpedantic -Werror $(SAN_FLAGS) -Iinclude -o $(BUILD)/tests/examples/attention_cpp \
	  -x c++ $(HEADER_EXAMPLE) -x none $(BUILD)/libmha.a $(CORE_LIBS) -pthread
	@$(RUNNER) $(BUILD)/tests/examples/attention_cpp
	@echo "README's example is a part of $(README_PARTS), that of attention.h of $(HEADER_EXAMPLE)"

# Tests that write a page, or a part of it, hold it against what they find.
PAGES := $(call named,test_case_page test_benchmarks test_suite_page test_coverage test_programs)
.PHONY: pages
pages: $(PAGES) python ## writes the lists and tables of generated pages anew, after words or bugs have changed
	@for t in $(PAGES); do MHA_WRITE_PAGES=1 $$t >/dev/null || exit 1; done
	@PYTHONPATH=$(BUILD)/python $(PYTHON) src/packaging/wheel_types.py src/python/mha/core/typed.py

N ?= 10000
test-differential: $(call named,test_differential) ## compares N random forwards with themselves, cut in every way
	DIFFERENTIAL_TRIALS=$(N) $<

# Failures are injected into the program at every 47th place here, which saves minutes; `make soak` takes each one.
# Kernels are optimised as little as the rest: a file of them took four minutes to compile otherwise.
# Without leaks that the program means to keep until it ends.
ASAN_MAKE = LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 \
            FAILURES_STRIDE=$${FAILURES_STRIDE:-47} $(MAKE) --no-print-directory BUILD=$(BUILD)/asan BRIEF=1 \
            CFLAGS="-O1 -g1 $(BENCH_BRIEFLY)" KERNEL_CFLAGS=-O1 SANITIZE=address,undefined LDFLAGS=-fuse-ld=lld \
            WERROR=-Werror
asan: ## the tests again under the address and undefined-behaviour sanitizers (make deps-dev)
	+@$(ASAN_MAKE) test

# LeakSanitizer cannot stop the threads of a process that exits while they compute.
$(BUILD)/tests/compute/test_parallel.run: export ASAN_OPTIONS = detect_leaks=0

# The core, the parsers, and the search for bugs on permuted results; without what else is long.
.PHONY: asan-quick
QUICK_FOLDERS = base params formats compute attention models
QUICK_TESTS   = $(filter-out $(LONG_TESTS) $(REPEATERS), \
                  $(filter $(QUICK_FOLDERS:%=$(BUILD)/tests/%/%),$(TESTS))) \
                $(call named,test_verify) $(FUZZERS) $(BUILD)/tests/python/test_permuted
asan-quick: ## the tests of the core and the parsers under the same sanitizers (make deps-dev)
	+@$(ASAN_MAKE) all $(patsubst $(BUILD)/%,$(BUILD)/asan/%.run,$(QUICK_TESTS))
	@sh tests/summary.sh $(BUILD)/asan/results

.PHONY: check-planted check-grown interface
check-planted: ## a setting that is planted in a copy of the sources is found by every surface
	@mkdir -p $(BUILD); $(PYTHON) tests/surface/planted_setting.py $(BUILD)/planted "$(CC)"

check-grown: $(BUILD)/libmha.so ## a program that is compiled runs with a library whose core has grown
	@$(PYTHON) tests/surface/grown_core.py $(BUILD)/grown $(BUILD) "$(CC)"

interface: ## records the core of the interface: tests/surface/core.txt
	@$(PYTHON) tests/surface/interface.py tests/surface/core.txt "$(CC)" write

test-page: $(BUILD)/mha ## drives pages of pictures in Chromium and Firefox (make deps-dev)
	@sh tests/page/test_page.sh $< $(abspath $(BUILD))/page

PEER_PYTHON ?= $(PYTHON)
test-peers: $(ARCHIVES) ## compares N random layers and calls with PyTorch (make deps-dev)
	$(Q)$(CC) $(MHA_CFLAGS) -I. -Itests $(CFLAGS) -shared -o $(BUILD)/peers.so tests/peers/shim.c \
	  $(ARCHIVES) $(MHA_LDFLAGS) $(LIBS)
	$(PEER_PYTHON) tests/peers/torch_peer.py $(BUILD)/peers.so $(N)

-include $(SUPPORT_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(RUNNERS:=.d) $(PLANTED).d $(FUZZERS:%=%.d) $(FUZZ_OBJ:.o=.d) \
         $(BUILD)/tests/inject/main.d $(BUILD)/tests/inject/inject.d $(BRIEF_PROGRAM:mha=machine_peak.d)
