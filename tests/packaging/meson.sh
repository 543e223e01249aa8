#!/bin/sh
# A user's Meson project has the library as a subproject, by a wrap of the source archive, and as a dependency that
# pkg-config finds in the folder where make builds. Both run. meson.sh BUILD ARCHIVE MAKE
set -eu
build=$1 archive=$2 make=$3
tree=$(pwd)
if ! command -v meson >/dev/null; then
    echo "skipped: there is no meson (make deps-dev)"
    exit
fi
"$make" -s BUILD="$build" described
stage=$build/packaging/meson
rm -rf "$stage"
mkdir -p "$stage/subprojects/packagefiles/mha"
unset MAKEFLAGS MFLAGS MAKELEVEL LDFLAGS CPPFLAGS BUILD WERROR || true
export CFLAGS=-O0

cp "$archive" "$stage/subprojects/packagefiles/"
cp src/packaging/meson/meson.build "$stage/subprojects/packagefiles/mha/"
cat >"$stage/subprojects/mha.wrap" <<WRAP
[wrap-file]
directory = $(basename "$archive" .tar.gz)
source_filename = $(basename "$archive")
source_hash = $(sha256sum "$archive" | cut -d' ' -f1)
patch_directory = mha

[provide]
dependency_names = mha
WRAP
cp tests/examples/layer.c "$stage/"
cat >"$stage/meson.build" <<'MESON'
project('user', 'c')
executable('user', 'layer.c', dependencies: dependency('mha'))
MESON

use() { # FOLDER, options of meson...
    folder=$stage/$1
    shift
    { meson setup "$folder" "$stage" "$@" && meson compile -C "$folder"; } >"$folder.log" 2>&1 ||
        { tail -30 "$folder.log" >&2; exit 1; }
    "$folder/user" | grep -q '^16384 parameters, y\[0\] = ' || { echo "the program of $folder fails" >&2; exit 1; }
}
use subproject --wrap-mode=forcefallback
use found --wrap-mode=nofallback --pkg-config-path="$build"
