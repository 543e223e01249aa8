#!/bin/sh
# libmha in a tree from which the folders of libmha-lab and of what stands on it are deleted: it is built, needs a BLAS
# and only the C library, and passes its tests. Run by `make check-core`: core_alone.sh FOLDER MAKE
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
tree=$folder/tree
rm -rf "$tree"
mkdir "$tree"
{ git ls-files 2>/dev/null || find . -type f ! -path './build/*'; } |
    grep -vE '^(\./)?(src/(bench|cli|formats|lab|manual|models|mpi|packaging|picture|python|split|verify)/|bench/)' |
    grep -vE '^(\./)?include/mha/(lab|case|compare|conform|file|gradients|model|mpi|positions|power|split.*)\.h$' \
        >"$folder/files"
tar -c -T "$folder/files" | tar -x -C "$tree"
"$2" -C "$tree" --no-print-directory BUILD="$tree/build" all test
needed=$(objdump -p "$tree/build/libmha.so" | awk '/NEEDED/ {print $2}' | grep -vE '^lib(c|m)\.so\.|blas' | tr '\n' ' ')
[ -z "$needed" ] || { echo "check-core: libmha.so needs $needed" >&2; exit 1; }
