#!/bin/sh
# libmha in a tree from which the folders of libmha-lab and of what stands on it are deleted: it is built, needs a BLAS
# and the C library alone, and passes its tests. Run by `make check-core`: core_alone.sh FOLDER MAKE
set -eu
tree=$1/tree
rm -rf "$tree"
mkdir -p "$tree"
{ git ls-files 2>/dev/null || find . -type f ! -path './build/*'; } |
    grep -vE '^(\./)?(src/(bench|cli|formats|manual|models|mpi|packaging|picture|python|split|verify)/|bench/)' |
    grep -vE '^(\./)?include/mha/(lab|case|compare|conform|file|gradients|model|power|split|split_time|mpi)\.h$' >"$1/files"
tar -c -T "$1/files" | tar -x -C "$tree"
"$2" -C "$tree" --no-print-directory BUILD="$tree/build" all test
needed=$(objdump -p "$tree/build/libmha.so" | awk '/NEEDED/ {print $2}' | grep -vE '^lib(c|m)\.so\.|blas' | tr '\n' ' ')
[ -z "$needed" ] || { echo "check-core: libmha.so needs $needed" >&2; exit 1; }
