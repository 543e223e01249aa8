# The wheel, whose libraries and program need nothing but the C library, and the sdist. Included by the Makefile.

.PHONY: wheel wheel-aarch64 sdist check-wheel check-wheel-aarch64 check-company
$(call needs,wheel,wheel wheel-aarch64 check-wheel check-wheel-aarch64 check-company)
$(call needs,sdist,sdist)

WHEEL_ARCH   ?= x86_64
# The oldest C library that the wheel runs with: `make check-wheel` holds every symbol it takes against this.
WHEEL_GLIBC   = 2_34
WHEEL_ROOT   ?=
WHEEL_CROSS  ?=
WHEEL_CC     ?= $(CC)
WHEEL_BUILD   = $(BUILD)/wheel/$(WHEEL_ARCH)
WHEEL_LIBS    = $(WHEEL_BUILD)/libraries
WHEEL_NAME    = mha-$(VERSION)-py3-none-manylinux_$(WHEEL_GLIBC)_$(WHEEL_ARCH).whl
# The date of everything in an archive.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y include/mha/system.h)

# Equal kernels of OpenBLAS's processors are kept once; those of complex numbers, which its tables name but nothing here
# calls, are left out. What the library refers to weakly is asked for by name.
WHEEL_LDFLAGS = -fuse-ld=lld -B$(dir $(shell readlink -f "$$(command -v ld.lld)")) \
                -Wl,--icf=all -Wl,--gc-sections -Wl,-s -Wl,--build-id=none -Wl,--wrap=hypot \
                -Wl,@$(WHEEL_LIBS)/complex \
                $(addprefix -Wl$(comma)-u$(comma),openblas_get_config openblas_get_num_threads openblas_get_parallel \
                                              openblas_set_num_threads)
comma := ,
# The objects are those of any other build; symbols and debugging information, with the paths in it, end at the linker.
WHEEL_MAKE = $(MAKE) --no-print-directory BUILD=$(WHEEL_BUILD) CC="$(WHEEL_CC)" AR=$(WHEEL_CROSS)ar SANITIZE= \
             CFLAGS="-O2 -g" CPPFLAGS= LDFLAGS="$(WHEEL_LDFLAGS)" LAB_RPATH=ORIGIN $(WHEEL_CFLAGS) \
             LDLIBS=$(WHEEL_LIBS)/runtime.o BLAS_LIBS=$(WHEEL_LIBS)/libopenblas.a \
             JANSSON_LIBS=$(WHEEL_LIBS)/libjansson.a \
             LIBZIP_LIBS=$(WHEEL_LIBS)/libzip.a ZLIB_LIBS=$(WHEEL_LIBS)/libz.a NETTLE_LIBS=$(WHEEL_LIBS)/libnettle.a

$(WHEEL_LIBS)/complex: src/packaging/wheel_libraries.sh src/packaging/wheel_runtime.c | $(WHEEL_ROOT)
	@CC="$(WHEEL_CC)" CROSS=$(WHEEL_CROSS) sh $< $(WHEEL_LIBS) "$(WHEEL_ROOT)" $(WHEEL_ARCH)-linux-gnu
	@rm -f $(WHEEL_BUILD)/libmha*.so.* $(WHEEL_BUILD)/mha # linked anew

wheel: $(WHEEL_LIBS)/complex ## the wheel with everything inside, in dist/
	+@$(WHEEL_MAKE) $(WHEEL_BUILD)/libmha-lab.so $(WHEEL_BUILD)/mha $(WHEEL_BUILD)/gen/declared.py
	@mkdir -p $(DIST)
	@MHA_LIBRARY=$(abspath $(WHEEL_BUILD))/libmha.so MHA_LICENCES=$(WHEEL_LIBS)/licences \
	  MHA_PLATFORM=manylinux_$(WHEEL_GLIBC)_$(WHEEL_ARCH) PYTHONPATH=src/python $(PYTHON) -B -c \
	  'import build_backend, sys; build_backend.build_wheel(sys.argv[1])' $(DIST) >$(WHEEL_BUILD)/wheel.log 2>&1 || \
	  { cat $(WHEEL_BUILD)/wheel.log >&2; exit 1; }
	@ls -s --block-size=KiB $(DIST)/$(WHEEL_NAME)

WHEEL_AARCH64 = WHEEL_ARCH=aarch64 WHEEL_CROSS=aarch64-linux-gnu- WHEEL_ROOT=$(NEON_ROOT) \
                WHEEL_CC="aarch64-linux-gnu-gcc --sysroot=$(abspath $(NEON_ROOT))" \
                WHEEL_CFLAGS="BLAS_CFLAGS=-I$(abspath $(NEON_ROOT))/usr/include/aarch64-linux-gnu/openblas-pthread \
                JANSSON_CFLAGS= LIBZIP_CFLAGS= ZLIB_CFLAGS= NETTLE_CFLAGS="
wheel-aarch64: ## the same for AArch64, cross-compiled
	+@$(MAKE) --no-print-directory wheel $(WHEEL_AARCH64)

sdist: ## the sources for pip, in dist/
	@mkdir -p $(DIST) $(BUILD)/wheel
	@PYTHONPATH=src/python $(PYTHON) -B -c 'import build_backend, sys; build_backend.build_sdist(sys.argv[1])' \
	  $(DIST) >$(BUILD)/wheel/sdist.log 2>&1 || { cat $(BUILD)/wheel/sdist.log >&2; exit 1; }
	@ls -s --block-size=KiB $(DIST)/mha-$(VERSION).tar.gz

# ---------------------------------------------------------------- checks

# Tools that only packaging needs, from PyPI, in a folder of their own.
WHEEL_TOOLS = $(BUILD)/wheel/tools
$(WHEEL_TOOLS)/bin/twine:
	@rm -rf $(WHEEL_TOOLS) && $(PYTHON) -m venv $(WHEEL_TOOLS)
	$(Q)$(WHEEL_TOOLS)/bin/pip --quiet --disable-pip-version-check install auditwheel twine mypy numpy typing_extensions

check-wheel: wheel sdist $(WHEEL_TOOLS)/bin/twine ## the wheel alone, what is in it, its types, the same bytes twice
	+@MAKE="$(MAKE)" sh tests/wheel/check_wheel.sh $(abspath $(BUILD))/wheel $(abspath $(DIST)) $(WHEEL_NAME) $(PYTHON)

# Imported by the Python below NEON_PYTHON, the module computes what that of the wheel for this machine does.
check-wheel-aarch64: wheel wheel-aarch64 $(WHEEL_TOOLS)/bin/twine $(NEON_PYTHON) ## program and module under qemu
	+@$(MAKE) --no-print-directory check-wheel-foreign $(WHEEL_AARCH64)
.PHONY: check-wheel-foreign
check-wheel-foreign:
	@sh tests/wheel/check_foreign.sh $(WHEEL_BUILD) $(DIST)/$(WHEEL_NAME) $(WHEEL_TOOLS) \
	  "qemu-aarch64 -L $(NEON_ROOT)" $(NEON_PYTHON)

ROUNDS ?= 20
check-company: wheel ## the wheel beside numpy, torch, jax, onnxruntime of PEER_PYTHON, ROUNDS times
	@rm -rf $(BUILD)/wheel/company && $(PEER_PYTHON) -m zipfile -e $(DIST)/$(WHEEL_NAME) $(BUILD)/wheel/company
	@PYTHONPATH=$(BUILD)/wheel/company $(PEER_PYTHON) tests/wheel/company.py $(ROUNDS)
