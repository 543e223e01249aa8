# How much of src/ the tests reach, and whether they would notice if it were wrong. Included by the Makefile.

.PHONY: coverage coverage-programs coverage-runs check-mutants mutants mutant-programs

# Least percentage of lines and of branches; a line that says "unreachable: " and why counts for neither.
# Lines not reached: memory that ends at places no test stops at, and lines of flash.c for kernels that
# interleave rows, which only AVX-512 has, and those that multiply pairs.
# gcc counts as branches what is no decision of the source, too: entries of the kernels' loops over constants, the
# default of a switch that names every case, the bounds test inside CPU_CLR. Those are counted, not left out.
COVERAGE_LINES    = 99.3
COVERAGE_BRANCHES = 93.8
COVERAGE          = $(BUILD)/coverage

# Code for an instruction set that this machine lacks cannot run here: its notes go, so that the headers of
# kernels are not counted once more as never reached.
# Recorded cases and trained models are left out: the project's own tests must reach everything.
coverage: ## lines and branches of src/ that the tests reach; HTML in build/coverage/html (make deps-dev)
	@$(MAKE) --no-print-directory BUILD=$(COVERAGE) $(COVERED) coverage-programs
	@find $(COVERAGE) -name '*.gcda' -delete
	@OMP_WAIT_POLICY=passive CONFORMANCE_DIR= MODELS_DIR= \
	  $(MAKE) --no-print-directory BUILD=$(COVERAGE) $(COVERED) coverage-runs
	@rm -rf $(COVERAGE)/html && mkdir -p $(COVERAGE)/html
	@echo "$$(grep -r 'unreachable: ' src | wc -l) lines of src/ are marked unreachable"
	@has="$$($(COVERAGE)/mha info --json)"; for isa in avx2 avx512 bf16 neon; do \
	  echo "$$has" | grep -q "$$isa\"" || rm -f $(COVERAGE)/obj/compute/kernels/*_$$isa.gc??; done
	@gcovr --root . --object-directory $(COVERAGE)/obj --filter src/ $(COVERAGE)/obj \
	  --exclude-unreachable-branches --exclude-lines-by-pattern '.*unreachable: .*' \
	  --html-details $(COVERAGE)/html/index.html --txt $(COVERAGE)/summary.txt --print-summary \
	  --fail-under-line $(COVERAGE_LINES) --fail-under-branch $(COVERAGE_BRANCHES)

COVERED = BRIEF=1 CC=gcc CFLAGS="-O1 -g --coverage -fprofile-update=atomic $(BENCH_BRIEFLY)" KERNEL_CFLAGS=-O3 \
          LDFLAGS="-fuse-ld=lld --coverage -Wl,-u,__gcov_dump" WERROR=-Werror
coverage-programs: all $(filter-out $(LENGTHY) $(REPEATERS),$(TESTS)) fuzzers
coverage-runs: $(ONE_BY_ONE:%=%.run) $(FUZZERS:%=%.run)
	@sh tests/summary.sh $(RESULTS)

# ---------------------------------------------------------------- mutants

check-mutants: ## tests/mutants_kept.txt still matches lines of src/
	@$(PYTHON) tests/mutate.py --list >/dev/null

MUTANTS = --seed 1
mutants: ## changes N operators and constants of src/attention and src/compute, one at a time: do the tests notice?
	@$(PYTHON) tests/mutate.py --work $(BUILD)/mutants --count $(if $(filter file,$(origin N)),200,$(N)) $(MUTANTS)

# In the copy that tests/mutate.py works on: a mutant costs a compilation and a link, not one link per test.
$(BUILD)/libmutant.so: $(LIB_OBJ)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -o $@ $^ $(MHA_LDFLAGS) $(LIBS)

# Not those that stand between the library and what it calls, that mostly wait for a clock, or that hardly call
# what is changed: files, counts, texts.
NO_MUTANT_TESTS = %_failures %/test_work %_bench %_text %_manual %_cli_models %_cli_params %_streams %/test_params \
                  %/test_claims %/test_models %/test_models_facts %/test_models_expression \
                  $(filter $(BUILD)/tests/formats/%,$(TESTS))
MUTANT_TESTS    = $(patsubst $(BUILD)/tests/%,$(BUILD)/mutant/%,$(filter-out $(NO_MUTANT_TESTS),$(TESTS)))
MUTANT_RUNNERS  = $(filter-out %/inject/tests %/counts/tests,$(patsubst $(BUILD)/tests/%,$(BUILD)/mutant/%,$(RUNNERS)))
mutant-programs: $(BUILD)/libmutant.so $(MUTANT_TESTS) $(BUILD)/mutant/mha

$(foreach f,$(TEST_FOLDERS),$(eval $(call runner_of,$(f),$(BUILD)/mutant)))
$(MUTANT_RUNNERS): $(SUPPORT_OBJ) $(BUILD)/libbench.a $(BUILD)/libmutant.so
	@mkdir -p $(@D)
	$(Q)$(CC) -fopenmp $(MHA_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) \
	  $(TEST_LIBS) $(LIBS)
# It needs this besides, here as there.
$(BUILD)/mutant/cli/tests: $(BUILD)/obj/cli/setup/meaning.o

$(BUILD)/mutant/mha: $(CLI_OBJ) $(BENCH_OBJ) $(BUILD)/libmutant.so
	@mkdir -p $(@D)
	$(Q)$(CC) $(MHA_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)) -o $@ $^ $(LIBS) $(CLI_LIBS)
