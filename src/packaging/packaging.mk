# The source archive, and what lets other projects build the library from a clone. Included by the Makefile.

.PHONY: dist described test-packaging

DIST    ?= dist
ARCHIVE := $(DIST)/source/mha-$(VERSION).tar.gz
dist: ## writes dist/source/mha-VERSION.tar.gz, from which everything is built and tested without git
	@sh src/packaging/dist.sh mha-$(VERSION) $(ARCHIVE) $(BUILD) $(DIST) .venv

# Says to scripts what a variable holds: make -s show-LIBS
show-%:
	@printf '%s\n' '$($*)'

# Describes the libraries where they are built, to CMake and pkg-config (PKG_CONFIG_PATH=build).
described: libdir = $(abspath $(BUILD))
described: exec_prefix = $(CURDIR)
described: prefix = $(CURDIR)
described: includedir = $(CURDIR)/include
described: DESTDIR =
described: $(BUILD)/flags ## describes the libraries where they are built, for pkg-config and CMake
	$(Q)$(call fill,mha.pc.in,$(libdir)/mha.pc)
	$(Q)$(call fill,mha-lab.pc.in,$(libdir)/mha-lab.pc)
	$(Q)$(call fill,mha-config.cmake.in,$(libdir)/mha-config.cmake)

test-packaging: all dist ## tests the source archive, and programs of other projects that use it by CMake and Meson
	@rm -rf $(BUILD)/results-packaging && mkdir -p $(BUILD)/results-packaging
	@for t in archive cmake meson; do sh tests/run_test.sh $(BUILD)/results-packaging packaging/$$t \
	  sh tests/packaging/$$t.sh $(abspath $(BUILD)) $(abspath $(ARCHIVE)) $(THIS_MAKE); done
	@sh tests/summary.sh $(BUILD)/results-packaging
