# The kernels and what stands on them, on AArch64: cross-compiled, with Debian's libraries for it, run by an emulator.
# Included by the Makefile.

.PHONY: neon

NEON       = $(BUILD)/neon
NEON_TESTS = $(call named,test_kernels test_packed test_pairs test_blocks test_streaming test_half test_half_cache \
             test_fast test_forward test_forward_cache test_strides test_bits_of_0_2)

# Root directories of arm64 packages, with an apt of their own: the system's is only asked where packages come from.
NEON_ROOT     = $(NEON)/root
NEON_PYTHON   = $(NEON)/python
NEON_PACKAGES = libc6-dev libgomp1 libopenblas-pthread-dev libjansson-dev libzip-dev zlib1g-dev nettle-dev \
                libcmocka-dev
NEON_APT      = apt-get -qq -y --no-install-recommends -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
                -o APT::Sandbox::User= -o Dir::State=$(abspath $@.apt) -o Dir::State::status=$(abspath $@.apt)/status \
                -o Dir::Cache=$(abspath $@.apt)
# The emulator keeps a record of every page of address space that a program asks for, used or not: with a limit, tests
# that ask for hundreds of gigabytes are told that there are none.
NEON_SPACE    = 16G
NEON_BLAS     = /usr/lib/aarch64-linux-gnu/openblas-pthread

$(NEON_PYTHON): NEON_PACKAGES = python3-numpy
$(NEON_ROOT) $(NEON_PYTHON): tests/neon.mk
	@echo "neon: fetching arm64 packages into $@"
	@rm -rf $@.apt $@ $@.part && mkdir -p $@.apt/lists/partial $@.apt/archives/partial && touch $@.apt/status
	@$(NEON_APT) update && $(NEON_APT) --download-only install $(NEON_PACKAGES)
	@mkdir $@.part && for p in $@.apt/archives/*.deb; do dpkg-deb -x $$p $@.part || exit 1; done
	@find $@.part -lname '/*' -exec sh -c 'ln -sf "$(abspath $@)$$(readlink "$$0")" "$$0"' {} \;
	@touch $@.part && mv $@.part $@

neon: ROOT = $(abspath $(NEON_ROOT))
neon: $(NEON_ROOT) ## the kernels and what stands on them for AArch64, under an emulator (qemu)
	@CONFORMANCE_DIR= MODELS_DIR= $(MAKE) --no-print-directory BUILD=$(NEON) WERROR=-Werror AR=aarch64-linux-gnu-ar \
	  CC="aarch64-linux-gnu-gcc --sysroot=$(ROOT)" RUNNER="qemu-aarch64 -R $(NEON_SPACE) -L $(ROOT)" \
	  BLAS_CFLAGS=-I$(ROOT)/usr/include/aarch64-linux-gnu/openblas-pthread \
	  BLAS_LIBS="-L$(ROOT)$(NEON_BLAS) -Wl,-rpath,$(NEON_BLAS) -lopenblas" JANSSON_CFLAGS= JANSSON_LIBS=-ljansson \
	  LIBZIP_CFLAGS= LIBZIP_LIBS=-lzip ZLIB_CFLAGS= ZLIB_LIBS=-lz NETTLE_CFLAGS= CMOCKA_CFLAGS= CMOCKA_LIBS=-lcmocka \
	  $(NEON_TESTS:$(BUILD)/%=$(NEON)/%.run)
	@sh tests/summary.sh $(NEON)/results
