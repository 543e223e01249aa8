# Debian's packages, made of the source archive in a folder of their own. Included by the Makefile.

.PHONY: deb check-deb check-reproducible symbols
$(call needs,deb,deb check-deb check-reproducible)

# The names of the packages of libraries follow the soname.
DEB_DIR := $(BUILD)/deb

deb: dist ## builds Debian's packages in build/deb; DEB_BUILD_OPTIONS=nocheck leaves out the tests
	@sh src/packaging/debian.sh $(abspath $(ARCHIVE)) $(SERIES) $(abspath $(DEB_DIR))

# Every exported name, with the version that had it first.
SYMBOLS = $(foreach l,mha mha-lab mha_mpi,$(BUILD)/lib$(l).symbols)
$(SYMBOLS): $(BUILD)/lib%.symbols: all mpi
	@sh src/packaging/symbols.sh $(call symbols_of,$*) $(BUILD)/lib$*.so $(VERSION) $(SERIES) >$@
symbols_of = src/packaging/debian/lib$(subst _,-,$(1))@SERIES@.symbols
symbols: $(SYMBOLS) ## writes the symbols files of Debian's packages: names that are new get the version of now
	@$(foreach l,mha mha-lab mha_mpi,cp $(BUILD)/lib$(l).symbols $(call symbols_of,$(l));)

check-deb: deb ## lintian; then the packages installed, used, removed and purged in a root made by debootstrap (as root)
	@sh tests/packaging/lintian.sh $(abspath $(DEB_DIR))
	@sh tests/packaging/clean_root.sh $(abspath $(DEB_DIR)) $(abspath $(BUILD))

check-reproducible: deb ## builds archive and packages again, elsewhere: the same bytes
	@sh tests/packaging/reproducible.sh $(abspath $(ARCHIVE)) $(SERIES) $(abspath $(DEB_DIR)) \
	  $(abspath $(BUILD))/deb-once-more
