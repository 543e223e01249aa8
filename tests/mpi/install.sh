#!/bin/sh
# libmha_mpi as others find it: exported = declared = documented, its soname, an installed copy that links through
# pkg-config and CMake and runs, and nothing left when it is removed. install.sh BUILD MAKE MPICC MPIEXEC
set -eu
build=$1 make=$2 mpicc=$3 launcher=$4
stage=$build/mpi-install
rm -rf "$stage"
mkdir -p "$stage"
root=$(cd "$stage" && pwd)/root
failed=0
wrong() { echo "$*" >&2; failed=1; }

"$mpicc" -std=c11 -E -P -Iinclude include/mha/mpi.h | tr '\n' ' ' | tr ';{}' '\n\n\n' | grep 'visibility("default")' |
    sed 's/.*visibility("default")))//' | grep -o 'mha_mpi_[a-z0-9_]* *(' | tr -d ' (' | sort >"$stage/declared"
nm -D --defined-only "$build/libmha_mpi.so" | awk '{print $3}' | grep -v '^__odr_asan' | sort >"$stage/exported"
differ=$(diff "$stage/declared" "$stage/exported") || wrong "exported is not declared: $differ"
awk 'BEGIN { RS = "" } /MHA_API [a-z]/ && !/\/\*/ { n++ } END { exit n > 0 }' include/mha/mpi.h ||
    wrong "mha/mpi.h declares without a comment"
if nm -D --undefined-only "$build/libmha.so" | grep -q ' MPI_'; then wrong "libmha needs MPI"; fi

"$make" -s BUILD="$build" install install-mpi prefix="$root" >"$stage/log" 2>&1 || wrong "$(cat "$stage/log")"
cp tests/mpi/examples/share.c "$stage/user.c"
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PKG_CONFIG_PATH="$root/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}" LD_LIBRARY_PATH="$root/lib"
try() {
    [ "$starts" = yes ] || return 0
    found=$(timeout 60 "$launcher" -n 2 "$1" 2>&1 | sort | sed 's/, y.*//' | tr '\n' ';')
    [ "$found" = "rows 0 to 4;rows 5 to 9;" ] || wrong "$1: $found"
    # The first number of a row is that of one process.
    alone=$(timeout 60 "$launcher" -n 1 "$1" | grep -o 'y.*')
    shared=$(timeout 60 "$launcher" -n 2 "$1" | sed -n 's/^rows 0 to.* y/y/p')
    [ "$alone" = "$shared" ] || wrong "$1: $shared on two ranks, $alone on one"
}
starts=yes
timeout 60 "$launcher" -n 1 "$build/mha-mpi" --version >/dev/null 2>&1 || starts=no
"$mpicc" -std=c11 -o "$stage/user" "$stage/user.c" $(pkg-config --cflags --libs mha-mpi)
try "$stage/user"
if command -v cmake >/dev/null; then
    mkdir "$stage/cmake"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(user C)' \
        "find_package(mha_mpi $(pkg-config --modversion mha-mpi) REQUIRED)" \
        'add_executable(user ../user.c)' 'target_link_libraries(user mha::mpi)' >"$stage/cmake/CMakeLists.txt"
    if cmake -S "$stage/cmake" -B "$stage/cmake/b" -DCMAKE_PREFIX_PATH="$root" \
            -DMPI_C_COMPILER="$(command -v "$mpicc")" >"$stage/cmake/log" 2>&1 &&
        cmake --build "$stage/cmake/b" >>"$stage/cmake/log" 2>&1; then
        try "$stage/cmake/b/user"
    else
        wrong "CMake: $(tail -20 "$stage/cmake/log")"
    fi
fi
[ -x "$root/bin/mha-mpi" ] || wrong "mha-mpi is not installed"
"$build/mha-mpi" --help |
    sed -n 's/^  \([a-z][a-z]*\)  .*/.It Ic \1/p; s/^  -\(-[a-z]*\) .*/.It Fl \1/p' >"$stage/words"
[ "$(wc -l <"$stage/words")" = 6 ] || wrong "mha-mpi --help names $(wc -l <"$stage/words") commands and options"
while read -r word; do
    grep -q "^$word" "$root/share/man/man1/mha-mpi.1" || wrong "the manual page of mha-mpi lacks $word"
done <"$stage/words"
"$make" -s BUILD="$build" uninstall-mpi uninstall prefix="$root" >"$stage/log" 2>&1 || wrong "$(cat "$stage/log")"
left=$(find "$root" ! -type d)
[ -z "$left" ] || wrong "left after uninstall: $left"
exit "$failed"
