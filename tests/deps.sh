#!/bin/sh
# Installs Debian's packages that are missing, and says which: deps.sh deps (building, testing) or deps.sh deps-dev
# (checks and benchmarks as well). Run by `make deps` and `make deps-dev`; run again, it finds nothing to do.
set -eu

packages="gcc g++ libc6-dev make pkg-config libopenblas-dev libjansson-dev libzip-dev zlib1g-dev nettle-dev \
    libcmocka-dev python3-numpy python3-pytest"
[ "$1" = deps ] || packages="$packages clang libclang-rt-dev libomp-dev valgrind libc6-dbg clang-tidy clang-format \
    gfortran cppcheck mandoc gcovr cmake meson zsh fish gcc-aarch64-linux-gnu qemu-user python3-torch \
    python3-jsonschema python3-sphinx python3-myst-parser furo \
    mypy python3-setuptools python3-wheel python3-venv lld dpkg-dev \
    libdnnl-dev libxsmm-dev chromium firefox-esr \
    openmpi-bin libopenmpi-dev"

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=
for package in $packages; do
    # Older releases have libclang-rt-dev only with a version in its name.
    versioned=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${package%-dev}-[0-9]*-dev" 2>/dev/null |
        awk '$2 == "installed"' || true)
    installed "$package" || [ -n "$versioned" ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "$1: everything is installed"
    exit
fi

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
echo "$1: installing$missing"
$as_root apt-get update -qq
wanted=
for package in $missing; do
    if ! apt-cache show "$package" >/dev/null 2>&1; then
        package=$(apt-cache search --names-only "^${package%-dev}-[0-9]+-dev\$" | cut -d' ' -f1 | sort -V | tail -1)
    fi
    wanted="$wanted $package"
done
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted
