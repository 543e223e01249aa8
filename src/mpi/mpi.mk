# libmha_mpi and the program mha-mpi, where there is an MPI. Included by the Makefile.

MPICC   ?= mpicc
MPI     := $(shell command -v $(MPICC) 2>/dev/null)
MPI_SRC := $(filter src/mpi/% src/cli/mpi/%,$(SRC))
MPI_LIB_OBJ := $(call objects,$(filter-out src/cli/mpi/%,$(MPI_SRC)))
MPI_CLI_OBJ := $(call objects,$(filter src/cli/mpi/%,$(MPI_SRC)))
MPI_SONAME  := libmha_mpi.so.$(SERIES)
# The wrapper calls the compiler that everything else is compiled with.
MPI_CC = OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC)

$(BUILD)/gen/usage.inc: src/cli/mpi/usage.txt Makefile
	@mkdir -p $(@D)
	@sed -e 's/["\\]/\\&/g' -e 's/.*/"&\\n"/' $< >$@
$(BUILD)/obj/cli/mpi/mha_mpi.o: $(BUILD)/gen/usage.inc

.PHONY: mpi test-mpi asan-mpi install-mpi uninstall-mpi
ifeq ($(MPI),)
mpi test-mpi asan-mpi install-mpi uninstall-mpi:
	@echo "skipped: $@: there is no $(MPICC) (make deps-dev installs Open MPI)"
else
mpi: all $(BUILD)/libmha_mpi.so $(BUILD)/mha-mpi ## builds libmha_mpi and build/mha-mpi

$(MPI_LIB_OBJ) $(MPI_CLI_OBJ): $(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(MPI_CC) $(MHA_CFLAGS) $(THIS_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/libmha_mpi.so.$(VERSION): $(MPI_LIB_OBJ) $(SHARED)
	$(call say,LD,$@)
	$(Q)$(MPI_CC) -shared -Wl,-soname,$(MPI_SONAME) -Wl,-z,defs $(MHA_LDFLAGS) -o $@ $(MPI_LIB_OBJ) \
	  -L$(BUILD) -lmha-lab -lmha -lm

$(BUILD)/libmha_mpi.so: $(BUILD)/libmha_mpi.so.$(VERSION)
	@ln -sf $(<F) $(BUILD)/$(MPI_SONAME)
	@ln -sf $(MPI_SONAME) $@

# It shares the rooms of the program mha.
MPI_ALL_OBJ := $(MPI_CLI_OBJ) $(MPI_LIB_OBJ) $(filter-out %/cli/main.o,$(CLI_OBJ))
$(BUILD)/mha-mpi: $(MPI_ALL_OBJ) $(BUILD)/libbench.a $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(MPI_CC) $(MHA_LDFLAGS) -o $@ $^ $(LIBS) $(CLI_LIBS)

MPI_CMAKE_DIR = $(libdir)/cmake/mha_mpi
install-mpi: mpi ## installs libmha_mpi and mha-mpi
	@$(INSTALL) -d "$(DESTDIR)$(includedir)/mha" \
	  $(foreach d,bindir libdir PKGCONFIG_DIR MPI_CMAKE_DIR MAN_DIR,"$(DESTDIR)$($(d))")
	$(Q)$(INSTALL) -m 644 include/mha/mpi.h "$(DESTDIR)$(includedir)/mha/"
	$(Q)$(INSTALL) -m 755 $(BUILD)/libmha_mpi.so.$(VERSION) "$(DESTDIR)$(libdir)/"
	$(Q)ln -sf libmha_mpi.so.$(VERSION) "$(DESTDIR)$(libdir)/$(MPI_SONAME)"
	$(Q)ln -sf $(MPI_SONAME) "$(DESTDIR)$(libdir)/libmha_mpi.so"
	$(Q)$(INSTALL) -m 755 $(BUILD)/mha-mpi "$(DESTDIR)$(bindir)/"
	$(Q)$(INSTALL) -m 644 src/cli/mpi/mha-mpi.1 "$(DESTDIR)$(MAN_DIR)/"
	$(Q)$(call fill,mpi/mha-mpi.pc.in,$(PKGCONFIG_DIR)/mha-mpi.pc)
	$(Q)$(call fill,mpi/mha_mpi-config.cmake.in,$(MPI_CMAKE_DIR)/mha_mpi-config.cmake)
	$(Q)$(call fill,mha-config-version.cmake.in,$(MPI_CMAKE_DIR)/mha_mpi-config-version.cmake)
	$(Q)sed -i 's|@MPI_SONAME@|$(MPI_SONAME)|' "$(DESTDIR)$(MPI_CMAKE_DIR)/mha_mpi-config.cmake"

uninstall-mpi:
	$(Q)rm -f $(foreach f,libmha_mpi.so $(MPI_SONAME) libmha_mpi.so.$(VERSION),"$(DESTDIR)$(libdir)/$(f)") \
	  "$(DESTDIR)$(includedir)/mha/mpi.h" "$(DESTDIR)$(bindir)/mha-mpi" "$(DESTDIR)$(PKGCONFIG_DIR)/mha-mpi.pc" \
	  $(foreach f,config config-version,"$(DESTDIR)$(MPI_CMAKE_DIR)/mha_mpi-$(f).cmake") "$(DESTDIR)$(MAN_DIR)/mha-mpi.1"
	@rmdir "$(DESTDIR)$(MPI_CMAKE_DIR)" "$(DESTDIR)$(includedir)/mha" 2>/dev/null || true

# Tests are linked with the objects, so that the support of the other tests serves them.
MPI_TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/mpi/*.c)))
MPI_PROGRAMS := $(MPI_TEST_OBJ:.o=)
MPI_TESTS    := $(filter-out %/dying,$(MPI_PROGRAMS))
# Asked by tests/surface/planted_setting.py; it holds shared_forward.c itself.
PLANTED_RANKS := $(BUILD)/tests/surface/planted_ranks
$(MPI_TEST_OBJ) $(PLANTED_RANKS).o: $(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(MPI_CC) $(MHA_CFLAGS) -I. -Itests $(TEST_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(MPI_PROGRAMS): %: %.o $(MPI_LIB_OBJ) $(SUPPORT_OBJ) $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(MPI_CC) $(MHA_LDFLAGS) -fopenmp -o $@ $^ $(TEST_LIBS) $(LIBS)
$(PLANTED_RANKS): %: %.o $(filter-out %/shared_forward.o,$(MPI_LIB_OBJ)) $(SUPPORT_OBJ) $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(MPI_CC) $(MHA_LDFLAGS) -fopenmp -o $@ $^ $(TEST_LIBS) $(LIBS)

MPI_ANALYZED := $(patsubst src/%.c,$(BUILD)/analyze/%.ok,$(MPI_SRC))
ANALYZED += $(MPI_ANALYZED)
analyze: $(call drawn,$(MPI_ANALYZED))
$(MPI_ANALYZED): ISA_CFLAGS = $(patsubst -I%,-isystem %,$(filter -I%,$(shell $(MPICC) -show)))

MPIEXEC ?= mpiexec
# Under AddressSanitizer leaks are looked for when MPI has closed its plugins; they stay open, so that
# tests/mpi/lsan.supp can name them.
ifneq ($(findstring address,$(SANITIZE)),)
MPI_ENV = LD_PRELOAD=$(abspath $(BUILD))/stay_open.so \
  ASAN_OPTIONS=detect_leaks=1:verify_asan_link_order=0:fast_unwind_on_malloc=0 UBSAN_OPTIONS=halt_on_error=1 \
  LSAN_OPTIONS=suppressions=$(abspath tests/mpi/lsan.supp):print_suppressions=0
test-mpi: $(BUILD)/stay_open.so
$(BUILD)/stay_open.so:
	$(Q)echo 'int dlclose(void *p) { (void)p; return 0; }' | $(CC) -shared -fPIC -x c - -o $@
endif
test-mpi: export MHA_MPI = $(BUILD)/mha-mpi
test-mpi: mpi $(MPI_PROGRAMS) ## tests libmha_mpi and mha-mpi with mpirun (make deps-dev)
	@rm -rf $(BUILD)/results-mpi && mkdir -p $(BUILD)/results-mpi
	@$(MPI_ENV) sh tests/run_test.sh $(BUILD)/results-mpi mpi/program sh tests/mpi/program.sh $(MPIEXEC) $(BUILD)/mha-mpi
	@$(MPI_ENV) sh tests/run_test.sh $(BUILD)/results-mpi mpi/differing \
	  sh tests/mpi/differing.sh $(MPIEXEC) $(BUILD)/mha-mpi
	@sh tests/run_test.sh $(BUILD)/results-mpi mpi/install \
	  sh tests/mpi/install.sh $(BUILD) $(THIS_MAKE) $(MPICC) $(MPIEXEC)
	@$(MPI_ENV) sh tests/run_test.sh $(BUILD)/results-mpi mpi/dying \
	  sh tests/mpi/dying.sh $(MPIEXEC) $(BUILD)/tests/mpi/dying
	@for t in $(MPI_TESTS); do case $$t in */memory) ranks=8 ;; *) ranks=$$RANKS ;; esac; \
	  RANKS=$$ranks $(MPI_ENV) sh tests/run_test.sh $(BUILD)/results-mpi \
	  mpi/$${t##*/} sh tests/mpi/run.sh $(MPIEXEC) $$t; done
	@sh tests/summary.sh $(BUILD)/results-mpi

asan-mpi: ## test-mpi under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan CFLAGS="-O1 -g" KERNEL_CFLAGS=-O3 SANITIZE=address,undefined \
	  WERROR=-Werror test-mpi
endif

-include $(MPI_LIB_OBJ:.o=.d) $(MPI_CLI_OBJ:.o=.d) $(MPI_TEST_OBJ:.o=.d) $(PLANTED_RANKS).d
