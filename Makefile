# Builds the library, the program, its tests and benchmarks. `make help` and `make help-dev` list the targets.
#
# Set on the command line or in the environment: CC CXX AR CPPFLAGS CFLAGS LDFLAGS LDLIBS, V=1 (shows commands),
# BUILD (where to build), WERROR=-Werror, INSTALL DESTDIR prefix exec_prefix bindir libdir includedir datadir mandir.
# Another CBLAS: BLAS=blis (its pkg-config name), or BLAS_CFLAGS and BLAS_LIBS; JANSSON_*, LIBZIP_*, ZLIB_* and
# NETTLE_* likewise.

BUILD ?= build
.DEFAULT_GOAL := all
.PHONY: all help help-dev deps deps-dev demo install uninstall clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:

# Without -j on the command line: a job for each processor. -O keeps the lines of a job together. A make that another
# make starts shares the jobs of that one.
ifeq ($(MAKELEVEL),0)
PROCESSORS := $(shell nproc 2>/dev/null || echo 1)
MAKEFLAGS  += -j$(PROCESSORS) -O
endif
# `make clean all` removes before it builds.
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

# ---------------------------------------------------------------- what is needed

deps: ## installs what building and testing need (Debian, Ubuntu)
deps-dev: ## installs what only checks and benchmarks need
deps deps-dev:
	@sh tests/deps.sh $@

# `make deps demo`: what is missing is installed first, then make starts again for the other goals, so that nothing is
# looked up before it is there.
INSTALLING := $(filter deps deps-dev,$(MAKECMDGOALS))
ifneq ($(INSTALLING),)
GOALS := $(filter-out $(INSTALLING),$(MAKECMDGOALS))
.PHONY: $(GOALS)
$(firstword $(GOALS)): $(INSTALLING)
	@$(MAKE) --no-print-directory $(GOALS)
$(wordlist 2,$(words $(GOALS)),$(GOALS)): $(firstword $(GOALS)) ;
deps-dev: $(filter deps,$(INSTALLING))
else

# $(call needs,GROUP,GOALS): before make does anything for one of the goals, the packages of the group are there.
needs = $(if $(filter $(2),$(MAKECMDGOALS)),$(call refuse,$(shell PYTHON="$(PYTHON)" sh tests/deps.sh $(1) 2>&1)))
refuse = $(if $(1),$(error $(1)))

# ---------------------------------------------------------------- tools and flags

ifeq ($(origin CXX),default)
CXX = c++
endif
PYTHON     ?= /usr/bin/python3
PKG_CONFIG ?= pkg-config
OBJCOPY    ?= objcopy
INSTALL    ?= install
CFLAGS     ?= -O2 -g
WERROR     ?=
SANITIZE   ?=

BLAS    ?= openblas
JANSSON  = jansson
LIBZIP   = libzip
ZLIB     = zlib
NETTLE   = nettle
CMOCKA   = cmocka
found = $(shell $(PKG_CONFIG) --$(1) $(2) 2>/dev/null)
BLAS_CFLAGS    ?= $(call found,cflags,$(BLAS))
BLAS_LIBS      ?= $(call found,libs,$(BLAS))
JANSSON_CFLAGS ?= $(call found,cflags,$(JANSSON))
JANSSON_LIBS   ?= $(call found,libs,$(JANSSON))
LIBZIP_CFLAGS  ?= $(call found,cflags,$(LIBZIP))
LIBZIP_LIBS    ?= $(call found,libs,$(LIBZIP))
ZLIB_CFLAGS    ?= $(call found,cflags,$(ZLIB))
ZLIB_LIBS      ?= $(call found,libs,$(ZLIB))
NETTLE_CFLAGS  ?= $(call found,cflags,$(NETTLE))
NETTLE_LIBS    ?= $(call found,libs,$(NETTLE))
CMOCKA_CFLAGS  ?= $(call found,cflags,$(CMOCKA))
CMOCKA_LIBS    ?= $(call found,libs,$(CMOCKA))

# From here on the answers of pkg-config and of the compiler are fixed: each is asked for once. libmha needs the BLAS
# alone; the others are what libmha-lab needs besides, where it is, and the program.
LAB_NEEDS   := $(if $(wildcard src/verify),JANSSON LIBZIP ZLIB)
CLI_LIBS    := $(NETTLE_LIBS)
LIB_CFLAGS  := $(foreach l,BLAS $(LAB_NEEDS) NETTLE,$($(l)_CFLAGS))
CORE_LIBS   := $(strip $(BLAS_LIBS) -lm $(LDLIBS))
LAB_LIBS    := $(strip $(foreach l,$(LAB_NEEDS),$($(l)_LIBS)) -lm $(LDLIBS))
LIBS        := $(strip $(foreach l,BLAS $(LAB_NEEDS),$($(l)_LIBS)) -lm $(LDLIBS))
missing_of   = $(strip $(foreach l,$(1),$(if $($(l)_LIBS),,$($(l)))))
MISSING     := $(call missing_of,BLAS)
LAB_MISSING := $(call missing_of,$(LAB_NEEDS))
TEST_CFLAGS := $(CMOCKA_CFLAGS)
TEST_LIBS   := $(CMOCKA_LIBS)
MACHINE     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))

WARNINGS  = -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
            -Wcast-qual -Wwrite-strings -Wvla -Wundef $(WERROR)
SAN_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
MHA_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -Iinclude -Isrc -I$(BUILD)/gen -fPIC $(VISIBILITY) -pthread \
             -ffp-contract=off $(LIB_CFLAGS) $(SAN_FLAGS) $(CPPFLAGS)
VISIBILITY = -fvisibility=hidden
MHA_LDFLAGS = -pthread $(SAN_FLAGS) $(LDFLAGS)

# One short line for each file, or with V=1 the commands.
Q   := $(if $(filter-out 0,$(V)),,@)
say  = $(if $(Q),$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,@printf '  %-5s %s\n' '$(1)' '$(2)'))

# ---------------------------------------------------------------- what is built

VERSION := $(shell awk '/define MHA_VERSION_[A-Z]/ {printf "%s%s", dot, $$3; dot = "."}' include/mha/system.h)
MAJOR   := $(word 1,$(subst ., ,$(VERSION)))
# Before 1.0 each minor version may break the interface, so that it belongs to the name.
SERIES  := $(if $(filter 0,$(MAJOR)),0.$(word 2,$(subst ., ,$(VERSION))),$(MAJOR))

# The rooms of libmha; the program is src/cli (mha-mpi: src/cli/mpi), what it shares with bench/ is src/bench; every
# other room but these is libmha-lab.
CORE_ROOMS = base params compute attention
SRC       := $(sort $(shell find src -name '*.c'))
CLI_SRC   := $(filter-out src/cli/mpi/%,$(filter src/cli/%,$(SRC)))
BENCH_SRC := $(filter src/bench/%,$(SRC))
CORE_SRC  := $(filter $(CORE_ROOMS:%=src/%/%),$(SRC))
LAB_SRC   := $(filter-out $(CORE_SRC) src/cli/% src/bench/% src/mpi/% src/python/% src/packaging/%,$(SRC))
# Where its folders are deleted, there is libmha alone, with its tests.
ifeq ($(LAB_SRC),)
CLI_SRC   :=
BENCH_SRC :=
endif
LIB_SRC   := $(CORE_SRC) $(LAB_SRC)
# mha/mpi.h is that of a library of its own.
HEADERS   := $(sort $(filter-out include/mha/mpi.h,$(wildcard include/mha/*.h)))
objects    = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(1))
CORE_OBJ  := $(call objects,$(CORE_SRC))
LAB_OBJ   := $(call objects,$(LAB_SRC))
LIB_OBJ   := $(CORE_OBJ) $(LAB_OBJ)
# In the order of a linker: each before what it needs.
ARCHIVES  := $(if $(LAB_SRC),$(BUILD)/libmha-lab.a) $(BUILD)/libmha.a
SHARED    := $(if $(LAB_SRC),$(BUILD)/libmha-lab.so) $(BUILD)/libmha.so
CLI_OBJ   := $(call objects,$(CLI_SRC))
BENCH_OBJ := $(call objects,$(BENCH_SRC))

all: $(ARCHIVES) $(SHARED) $(if $(CLI_SRC),$(BUILD)/mha) ## the libraries and the program, in build/

help: ## the targets for users
help-dev: ## the targets for work on mha itself
USER_TARGETS = deps all demo test python docs install install-python install-mpi mpi uninstall uninstall-python wheel \
               sdist deb dist described clean help help-dev
help help-dev:
	@awk -F':.*## *' -v users=' $(USER_TARGETS) ' '/^[a-z0-9-]+:.*## / && index(users, " " $$1 " ") $(if \
	  $(filter help,$@),>,==) 0 {printf "  make %-22s %s\n", $$1, $$2}' $(filter-out %.d,$(MAKEFILE_LIST))

demo: $(BUILD)/mha ## builds and runs the forward pass on random inputs
	$(BUILD)/mha forward

# Written only when what they hold changes: other flags compile everything again, another list of files links again.
# One text for every goal: without this line it has the visibility of the objects that ask for it first.
$(BUILD)/flags:   VISIBILITY = -fvisibility=hidden
$(BUILD)/flags:   export HELD = $(CC) $(MHA_CFLAGS) $(CFLAGS) $(KERNEL_CFLAGS) $(TEST_CFLAGS) $(MHA_LDFLAGS) $(LIBS) \
                                $(CLI_LIBS)
$(BUILD)/objects: export HELD = $(LIB_OBJ) $(CLI_OBJ) $(BENCH_OBJ)
$(BUILD)/flags $(BUILD)/objects $(BUILD)/test_files: FORCE
	@$(if $(MISSING),echo "pkg-config does not find $(MISSING): \"make deps\" installs what is needed" >&2; exit 1)
	@mkdir -p $(@D); printf '%s\n' "$$HELD" | cmp -s - $@ || printf '%s\n' "$$HELD" >$@

# Each instruction set has a file of its own, compiled for it; the rest stays at the base of the architecture. Kernels
# take -O3 for -O2, and -g1 for -g: places of variables take half of the time to compile them. Other flags stay.
x86 = $(if $(filter x86_64 i%86,$(MACHINE)),$(1))
ISA_avx2   = $(call x86,-mavx2 -mfma -mf16c)
ISA_avx512 = $(call x86,-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
# Compilers before 2020 do not know it; the file is then empty.
BF16      := $(call x86,-mavx512bf16)
ISA_bf16  := $(ISA_avx512) $(shell $(CC) $(BF16) -E -x c /dev/null >/dev/null 2>&1 && echo $(BF16))
KERNELS   := $(filter $(foreach isa,scalar avx2 avx512 bf16 neon,%_$(isa).o),$(LIB_OBJ))
$(KERNELS): THIS_CFLAGS = $(ISA_$(lastword $(subst _, ,$(basename $(@F))))) \
                          $(patsubst -O2,-O3,$(CFLAGS:-g=-g1)) $(KERNEL_CFLAGS)
THIS_CFLAGS = $(CFLAGS)

$(BUILD)/obj/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(MHA_CFLAGS) $(THIS_CFLAGS) -MMD -MP -c -o $@ $<

# The presets are C strings in the library, so that an installed program has them.
PRESETS := $(patsubst %,weights/presets/%.json,$(sort $(basename $(notdir $(wildcard weights/presets/*.json)))))
$(BUILD)/gen/presets.inc: $(PRESETS) Makefile
	@mkdir -p $(@D)
	@for f in $(PRESETS); do n=$${f##*/}; echo "{\"$${n%.json}\","; \
	  sed -e 's/["\\]/\\&/g' -e 's/^ *//' -e 's/.*/"&\\n"/' $$f; echo '},'; done >$@
$(filter %/presets.o,$(LIB_OBJ)): $(BUILD)/gen/presets.inc

# The page of a picture: its style and scripts are put into page.html, and every line becomes a C string.
PAGE_DIR     = src/picture/page
PAGE_SCRIPTS = $(addprefix $(PAGE_DIR)/,data.js map.js explain.js walk.js difference.js sheets.js page.js)
$(BUILD)/gen/page.inc: $(PAGE_DIR)/page.html $(PAGE_DIR)/page.css $(PAGE_SCRIPTS) Makefile
	@mkdir -p $(@D)
	@{ sed '/@STYLE@/,$$d' $<; cat $(PAGE_DIR)/page.css; sed '1,/@STYLE@/d;/@SCRIPT@/,$$d' $<; cat $(PAGE_SCRIPTS); \
	  sed '1,/@SCRIPT@/d' $<; } | sed -e 's/["\\]/\\&/g' -e 's/.*/"&\\n",/' >$@
$(BUILD)/obj/picture/page/page.o: $(BUILD)/gen/page.inc

# Files that are longer than a C string may be: their names and bytes.
define NAMED_BYTES
	@mkdir -p $(@D)
	@for f in $(filter %.json,$^); do n=$${f##*/}; echo "{\"$${n%.json}\", (const char[]){"; \
	  od -An -v -tu1 $$f | sed 's/[0-9][0-9]*/&,/g'; echo '0}},'; done >$@
endef
$(BUILD)/gen/architectures.inc: $(filter-out %/schema.json,$(sort $(wildcard src/models/architectures/*.json))) Makefile
	$(NAMED_BYTES)
$(filter %/architecture.o,$(LIB_OBJ)): $(BUILD)/gen/architectures.inc
BENCHMARKS := $(patsubst %,%.json,$(sort $(basename $(wildcard src/verify/power/benchmarks/*.json))))
$(BUILD)/gen/benchmarks.inc: $(BENCHMARKS) Makefile
	$(NAMED_BYTES)
$(filter %/power/benchmark.o,$(LIB_OBJ)): $(BUILD)/gen/benchmarks.inc
# The scripts of the shells, which `mha completion` writes.
COMPLETIONS := $(foreach s,bash zsh fish,src/cli/completions/mha.$(s))
$(BUILD)/gen/completions.inc: $(COMPLETIONS) Makefile
	@mkdir -p $(@D)
	@for f in $(COMPLETIONS); do echo "{\"$${f##*.}\","; sed -e 's/["\\]/\\&/g' -e 's/.*/"&\\n"/' $$f; echo '},'; done >$@
$(BUILD)/obj/cli/completion.o: $(BUILD)/gen/completions.inc
$(BUILD)/gen/gguf.inc: src/models/gguf/architectures.json Makefile
	@mkdir -p $(@D)
	@{ od -An -v -tu1 $< | sed 's/[0-9][0-9]*/&,/g'; echo 0; } >$@
$(filter %/gguf/family.o,$(LIB_OBJ)): $(BUILD)/gen/gguf.inc
# An object of JSON, a field on each line, is an initializer of a struct: "unit": 1 is .unit = 1.
$(BUILD)/gen/statements.inc: src/models/claims/statements.json Makefile
	@mkdir -p $(@D)
	@sed -e '1d;$$d' -e 's/^\([ {]*\)"\([a-z]*\)": /\1.\2 = /' $< >$@
$(filter %/claims/claims.o,$(LIB_OBJ)): $(BUILD)/gen/statements.inc
# The same for naming schemes: keys in capitals are weights, the values of orientation and order enumerators.
$(BUILD)/gen/schemes.inc: src/models/layer/schemes.json Makefile
	@mkdir -p $(@D)
	@sed -e '1d;$$d' -e '/^ *"note"/d' -e 's/"\(.\)_QKV": \("[^"]*"\)/"\1_Q": \2, "\1_K": \2, "\1_V": \2/' \
	  -e 's/"orientation": "\([A-Z_]*\)"/.orientation = MHA_ORIENTATION_\1/' \
	  -e 's/"order": "\([A-Z_]*\)"/.order = MHA_FUSED_\1/' \
	  -e 's/"\([A-Z_]*\)": /.names[MHA_\1] = /g' -e 's/"\([a-z_]*\)": /.\1 = /g' -e 's/\["/{"/;s/"\]/"}/' $< >$@
$(filter %/tensor_names.o,$(LIB_OBJ)): $(BUILD)/gen/schemes.inc
# A line "NAME: TEXT", which lines that begin with a blank continue, becomes {"NAME", "TEXT"}; # begins a comment.
define PAIRS
	@mkdir -p $(@D)
	@sed '/^#/d' $< | sed -e ':a' -e 'N;$$!ba' -e 's/["\\]/\\&/g' -e 's/\n  */ /g' | \
	  sed 's/^\([^:]*\): \(.*\)/{"\1", "\2"},/' >$@
endef
$(BUILD)/gen/%.inc: src/cli/%.txt Makefile
	$(PAIRS)
$(BUILD)/gen/%.inc: src/lab/%.txt Makefile
	$(PAIRS)
$(BUILD)/gen/%.inc: src/models/%.txt Makefile
	$(PAIRS)
$(BUILD)/obj/cli/topics.o: $(BUILD)/gen/topics.inc
$(BUILD)/obj/cli/help.o: $(BUILD)/gen/numbers.inc
$(filter %/spellings.o,$(LIB_OBJ)): $(BUILD)/gen/spellings.inc
$(filter %/checkpoint.o,$(LIB_OBJ)): $(BUILD)/gen/ties.inc
# A topic and its list of words are two strings; lines that begin with ## are comments.
$(BUILD)/gen/no_effect.inc: src/models/config/no_effect.txt Makefile
	@mkdir -p $(@D)
	@sed -e '/^##/d' -e 's/^# \(.*\)/}, {"\1",/' -e t -e 's/.*/"& "/' $< | sed -e '1s/}, //' -e '$$s/$$/}/' >$@
$(filter %/unread_keys.o,$(LIB_OBJ)): $(BUILD)/gen/no_effect.inc
GENERATED := $(foreach g,completions topics numbers spellings ties no_effect presets architectures benchmarks gguf \
               statements schemes usage page,$(BUILD)/gen/$(g).inc)

$(BUILD)/libmha.a: $(CORE_OBJ) $(BUILD)/objects
$(BUILD)/libmha-lab.a: $(LAB_OBJ) $(BUILD)/objects
$(BUILD)/libbench.a: $(BENCH_OBJ) $(BUILD)/objects
$(BUILD)/libmha.a $(BUILD)/libmha-lab.a $(BUILD)/libbench.a:
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

# What is not public of libmha has a node of its own, with the whole version in its name, for libmha-lab and libmha_mpi:
# the loader refuses another version.
$(BUILD)/gen/libmha.map: Makefile include/mha/system.h
	@mkdir -p $(@D)
	@printf '%s\n' 'MHA_$(SERIES) { global: mha_[a-z]*; local: *; };' 'MHA_PRIVATE_$(VERSION) { global: mha__*; };' >$@
$(BUILD)/gen/libmha-lab.map: Makefile include/mha/system.h
	@mkdir -p $(@D)
	@printf '%s\n' 'MHA_LAB_$(SERIES) { global: mha_[a-z]*; local: *; };' >$@
$(CORE_OBJ): VISIBILITY = -fvisibility=default -fno-semantic-interposition
$(BUILD)/libmha.so.$(VERSION): $(CORE_OBJ) $(BUILD)/objects $(BUILD)/gen/libmha.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libmha.so.$(SERIES) -Wl,--version-script,$(BUILD)/gen/libmha.map -Wl,-Bsymbolic \
	  -Wl,-z,defs -Wl,-z,nodelete $(MHA_LDFLAGS) -o $@ $(CORE_OBJ) $(CORE_LIBS)

# LAB_RPATH=ORIGIN: it looks for libmha in its own folder.
LAB_RPATH ?=
$(BUILD)/libmha-lab.so.$(VERSION): $(LAB_OBJ) $(BUILD)/objects $(BUILD)/libmha.so $(BUILD)/gen/libmha-lab.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libmha-lab.so.$(SERIES) -Wl,--version-script,$(BUILD)/gen/libmha-lab.map \
	  $(LAB_RPATH:%=-Wl,-rpath,'$$%') -Wl,-z,defs -Wl,-z,nodelete $(MHA_LDFLAGS) -o $@ $(LAB_OBJ) -L$(BUILD) -lmha \
	  $(LAB_LIBS)

$(BUILD)/libmha.so $(BUILD)/libmha-lab.so: %: %.$(VERSION)
	@ln -sf $(<F) $@.$(SERIES)
	@ln -sf $(@F).$(SERIES) $@

# The libraries do without the one, libmha without the others.
.PHONY: no-nettle lab-lacks
no-nettle:
	@echo "pkg-config does not find $(NETTLE), which the program needs: \"make deps\" installs it" >&2; exit 1
lab-lacks:
	@echo "pkg-config does not find $(LAB_MISSING), which libmha-lab needs: \"make deps\" installs what is needed" >&2; \
	  exit 1
$(LAB_OBJ): $(if $(LAB_MISSING),lab-lacks)
$(BUILD)/obj/cli/pictures/origin.o: $(if $(NETTLE_LIBS),,no-nettle)

$(BUILD)/mha: $(CLI_OBJ) $(BUILD)/libbench.a $(ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(CC) $(MHA_LDFLAGS) -o $@ $^ $(LIBS) $(CLI_LIBS)

# What stands between the two lines of the manual page that begin with .\" Options and .\" End of the options.
.PHONY: manual
manual: $(BUILD)/mha ## writes the options in src/cli/mha.1 as the program's tables have them
	@{ sed '/^\.\\" Options, from/q' src/cli/mha.1; $(BUILD)/mha help --manual; \
	  sed -n '/^\.\\" End of the options/,$$p' src/cli/mha.1; } >$(BUILD)/mha.1 && cp $(BUILD)/mha.1 src/cli/mha.1

clean: ## removes what was built
	rm -rf $(BUILD)

include tests/tests.mk
ifneq ($(LAB_SRC),)
include src/install.mk src/python/python.mk src/manual/manual.mk
include tests/checks.mk tests/python.mk tests/coverage.mk tests/neon.mk bench/bench.mk
include src/mpi/mpi.mk tests/check.mk
include src/packaging/packaging.mk src/packaging/wheel.mk src/packaging/debian.mk
endif

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(BENCH_OBJ:.o=.d)
endif
