# Installs the library, the program and what belongs to them, and removes them again. Included by the Makefile.
# Nothing that was built is run, so that a library for another machine can be installed, too.

PREFIX      ?= /usr/local
prefix      ?= $(PREFIX)
exec_prefix ?= $(prefix)
bindir      ?= $(exec_prefix)/bin
libdir      ?= $(exec_prefix)/lib
includedir  ?= $(prefix)/include
datadir     ?= $(prefix)/share
mandir      ?= $(datadir)/man

PKGCONFIG_DIR = $(libdir)/pkgconfig
CMAKE_DIR     = $(libdir)/cmake/mha
MAN_DIR       = $(mandir)/man1
BASH_DIR      = $(datadir)/bash-completion/completions
ZSH_DIR       = $(datadir)/zsh/site-functions
FISH_DIR      = $(datadir)/fish/vendor_completions.d

# Libraries of pkg-config by name, the BLAS first; others as the given flags.
by_name  = $(filter file,$(origin $(1)_LIBS))
requires = $(strip $(foreach l,$(1),$(if $(call by_name,$(l)),$($(l)))))
private  = $(strip $(foreach l,$(1),$(if $(call by_name,$(l)),,$($(l)_LIBS))) -lm $(LDLIBS))

empty    =
fill     = sed -e 's|@prefix@|$(prefix)|' -e 's|@exec_prefix@|$(exec_prefix:$(prefix)=$${prefix})|' \
           -e 's|@pc_libdir@|$(libdir:$(exec_prefix)/%=$${exec_prefix}/%)|' \
           -e 's|@pc_includedir@|$(includedir:$(prefix)/%=$${prefix}/%)|' -e 's|@libdir@|$(libdir)|' \
           -e 's|@includedir@|$(includedir)|' -e 's|@VERSION@|$(VERSION)|' \
           -e 's|@MAJOR@|$(MAJOR)|' -e 's|@SERIES@|$(SERIES)|' -e 's|@REQUIRES@|$(call requires,BLAS)|' \
           -e 's|@PRIVATE@|$(call private,BLAS)|' -e 's|@LAB_REQUIRES@|$(call requires,$(LAB_NEEDS))|' \
           -e 's|@LAB_PRIVATE@|$(call private,$(LAB_NEEDS))|' -e 's|@LIBS@|$(subst $(empty) ,;,$(CORE_LIBS))|' \
           -e 's|@LAB_LIBS@|$(subst $(empty) ,;,$(LAB_LIBS))|' src/$(1) | $(INSTALL) -m 644 /dev/stdin "$(DESTDIR)$(2)"

install: all ## installs below $(DESTDIR)$(prefix)
	@$(INSTALL) -d "$(DESTDIR)$(includedir)/mha" \
	  $(foreach d,bindir libdir PKGCONFIG_DIR CMAKE_DIR MAN_DIR BASH_DIR ZSH_DIR FISH_DIR,"$(DESTDIR)$($(d))")
	$(Q)$(INSTALL) -m 644 $(HEADERS) "$(DESTDIR)$(includedir)/mha/"
	$(Q)$(INSTALL) -m 644 $(ARCHIVES) "$(DESTDIR)$(libdir)/"
	$(Q)$(INSTALL) -m 755 $(SHARED:=.$(VERSION)) "$(DESTDIR)$(libdir)/"
	$(Q)for l in $(notdir $(SHARED)); do ln -sf $$l.$(VERSION) "$(DESTDIR)$(libdir)/$$l.$(SERIES)" && \
	  ln -sf $$l.$(SERIES) "$(DESTDIR)$(libdir)/$$l" || exit 1; done
	$(Q)$(INSTALL) -m 755 $(BUILD)/mha "$(DESTDIR)$(bindir)/"
	$(Q)$(INSTALL) -m 644 src/cli/mha.1 "$(DESTDIR)$(MAN_DIR)/"
	$(Q)$(INSTALL) -m 644 src/cli/completions/mha.bash "$(DESTDIR)$(BASH_DIR)/mha"
	$(Q)$(INSTALL) -m 644 src/cli/completions/mha.zsh "$(DESTDIR)$(ZSH_DIR)/_mha"
	$(Q)$(INSTALL) -m 644 src/cli/completions/mha.fish "$(DESTDIR)$(FISH_DIR)/mha.fish"
	$(Q)$(call fill,mha.pc.in,$(PKGCONFIG_DIR)/mha.pc)
	$(Q)$(call fill,mha-lab.pc.in,$(PKGCONFIG_DIR)/mha-lab.pc)
	$(Q)$(call fill,mha-config.cmake.in,$(CMAKE_DIR)/mha-config.cmake)
	$(Q)$(call fill,mha-config-version.cmake.in,$(CMAKE_DIR)/mha-config-version.cmake)
	@echo "installed below $(DESTDIR)$(prefix); a program linked with -lmha finds libmha.so.$(SERIES) after ldconfig (as"
	@echo "root, where $(libdir) is one of its folders), with -Wl,-rpath,$(libdir) or with LD_LIBRARY_PATH=$(libdir)"

INSTALLED = $(HEADERS:include/%="$(DESTDIR)$(includedir)/%") "$(DESTDIR)$(bindir)/mha" "$(DESTDIR)$(MAN_DIR)/mha.1" \
            $(foreach l,$(ARCHIVES) $(foreach s,.$(VERSION) .$(SERIES),$(SHARED:=$(s))) $(SHARED), \
              "$(DESTDIR)$(libdir)/$(notdir $(l))") \
            $(foreach l,mha mha-lab,"$(DESTDIR)$(PKGCONFIG_DIR)/$(l).pc") "$(DESTDIR)$(CMAKE_DIR)/mha-config.cmake" \
            "$(DESTDIR)$(CMAKE_DIR)/mha-config-version.cmake" "$(DESTDIR)$(BASH_DIR)/mha" "$(DESTDIR)$(ZSH_DIR)/_mha" \
            "$(DESTDIR)$(FISH_DIR)/mha.fish"

uninstall: ## removes what install put there
	$(Q)rm -f $(INSTALLED)
	@rmdir "$(DESTDIR)$(includedir)/mha" "$(DESTDIR)$(CMAKE_DIR)" 2>/dev/null || true
	@echo "removed from $(DESTDIR)$(prefix)"
