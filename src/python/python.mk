# The Python module, without pip: beside its library in build/python, or installed for Debian's python3. Included by the
# Makefile.

.PHONY: python install-python uninstall-python lacking

MODULE = $(sort $(wildcard src/python/mha/*.py src/python/mha/*/*.py)) src/python/mha/py.typed
# Where Debian's python3 looks: below /usr without its minor version. Elsewhere: make install-python pythondir=...
pythondir ?= $(prefix)/lib/$(if $(filter /usr,$(prefix)),python3,$(shell $(PYTHON) -c \
             'import sys; print("python%d.%d" % sys.version_info[:2])'))/dist-packages

# The module's declarations, written from the headers.
DECLARED = $(BUILD)/gen/declared.py
$(DECLARED): src/python/declare.py $(HEADERS)
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)$(CC) -E -P -Iinclude include/mha/lab.h >$(BUILD)/gen/mha.i
	$(Q)$(PYTHON) $< $(VERSION) $(BUILD)/gen/mha.i $@

# Puts the module into a folder of packages.
define put_module
	$(Q)for file in $(MODULE:src/python/%=%); do $(INSTALL) -D -m 644 src/python/$$file "$(1)/$$file" || exit; done
	$(Q)$(INSTALL) -m 644 $(DECLARED) "$(1)/mha/core/"
endef

python: $(SHARED) $(DECLARED) ## the Python module beside its libraries: PYTHONPATH=build/python python3
	@rm -rf $(BUILD)/python && $(INSTALL) -d $(BUILD)/python/mha
	$(call put_module,$(BUILD)/python)
	$(Q)$(INSTALL) -m 755 $(SHARED:=.$(SERIES)) $(BUILD)/python/mha/
	$(Q)$(PYTHON) -m compileall -q $(BUILD)/python/mha

install-python: $(DECLARED) ## installs the module in $(pythondir); it finds the libraries that `make install` installs
	$(call put_module,$(DESTDIR)$(pythondir))
	@echo "installed in $(DESTDIR)$(pythondir)/mha"

uninstall-python: ## removes what install-python put there
	$(Q)rm -rf "$(DESTDIR)$(pythondir)/mha"

# Packages that pkg-config does not find, for the builder of the wheel.
lacking:
	@echo $(MISSING) $(LAB_MISSING) $(if $(NETTLE_LIBS),,$(NETTLE))
