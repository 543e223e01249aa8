# Checks before a commit, in minutes: everything that is quick, and the tests of the files that have changed
# since main. Included by the Makefile, after all others.

.PHONY: check check-changed
# In a folder of its own, as the sanitizers: other flags would compile everything again each time.
CHECK_MAKE = $(MAKE) --no-print-directory BUILD=$(BUILD)/check WERROR=-Werror
check: ## before a commit: builds without warnings, then checks lines, rooms, Python, names, and what has changed
	+@$(CHECK_MAKE) all check-format check-words check-rooms check-python check-abi check-mutants
	+@$(CHECK_MAKE) check-changed

# Asked for when git is to be asked; an unpacked archive has none.
ifneq ($(filter check-changed,$(MAKECMDGOALS)),)
CHANGED := $(if $(wildcard .git),$(wildcard $(shell git diff --name-only $$(git merge-base HEAD main 2>/dev/null || \
                              echo HEAD); git ls-files --others --exclude-standard)))
CHANGED_INSIDE := $(filter-out %.mk %.md %.sh,$(filter src/% tests/%,$(CHANGED)))
ROOMS_CHANGED := $(sort $(foreach f,$(CHANGED_INSIDE),$(word 2,$(subst /, ,$(f)))))
# Always; those of the rooms that have changed, but for what takes longest; and tests that have changed themselves.
CHECKED_TESTS := $(sort $(call named,test_base test_settings test_forward test_forward_random test_verify_cases \
                               test_work) \
  $(filter-out $(LONG_TESTS),$(foreach r,$(ROOMS_CHANGED),$(filter $(BUILD)/tests/$(r)/%,$(TESTS)))) \
  $(filter $(CHANGED:%.c=$(BUILD)/%),$(TESTS)))
CHECKED_FILES := $(filter $(CHANGED:src/%.c=$(BUILD)/analyze/%.ok),$(ANALYZED))

check-changed: $(CHECKED_FILES) $(CHECKED_TESTS:%=%.run) $(filter-out $(BUILD)/%,$(RUNS))
	@echo "$(words $(CHECKED_FILES)) changed files analyzed; rooms with changes: $(or $(ROOMS_CHANGED),none)"
	@sh tests/summary.sh $(RESULTS)
endif
