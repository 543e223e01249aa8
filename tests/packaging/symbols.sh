#!/bin/sh
# The symbols files of Debian's packages list what the libraries export. symbols.sh BUILD ARCHIVE MAKE
set -eu
build=$1 version=${2##*/mha-}
failed=0
for library in mha mha-lab mha_mpi; do
    file=src/packaging/debian/lib$(echo "$library" | tr _ -)@SERIES@.symbols
    if [ ! -e "$build/lib$library.so" ]; then
        echo "skipped: $file (make deps-dev mpi builds lib$library)"
        continue
    fi
    sh src/packaging/symbols.sh "$file" "$build/lib$library.so" "${version%.tar.gz}" \
        "$("$3" -s show-SERIES)" >"$build/lib$library.symbols"
    diff "$file" "$build/lib$library.symbols" || { echo "$file: make symbols writes it anew" >&2; failed=1; }
done
exit "$failed"
