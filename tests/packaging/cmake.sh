#!/bin/sh
# A user's CMake project has the library as a part of it: by FetchContent from the source archive, and by
# add_subdirectory from a clone. Both link it shared and static and run. cmake.sh BUILD ARCHIVE MAKE
set -eu
build=$1 archive=$2
tree=$(pwd)
if ! command -v cmake >/dev/null; then
    echo "skipped: there is no cmake (make deps-dev)"
    exit
fi
stage=$build/packaging/cmake
rm -rf "$stage"
mkdir -p "$stage/fetched" "$stage/added"
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS LDFLAGS CPPFLAGS BUILD WERROR || true

user() { # FOLDER, then the lines that bring the library
    folder=$stage/$1
    shift
    cat >"$folder/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.18)
project(user C)
$*
add_executable(shared $tree/tests/examples/layer.c)
target_link_libraries(shared mha::mha)
add_executable(static $tree/tests/examples/layer.c)
target_link_libraries(static mha::static)
CMAKE
}
use() { # FOLDER, options of cmake...
    folder=$stage/$1
    shift
    # One folder for what make builds, so that the second user compiles nothing.
    { cmake -S "$folder" -B "$folder/b" -DMHA_BUILD="$stage/make" -DMHA_MAKE_FLAGS="CFLAGS=-O0" "$@" &&
        cmake --build "$folder/b" --parallel "$(nproc)"; } >"$folder/log" 2>&1 ||
        { tail -30 "$folder/log" >&2; exit 1; }
    for kind in shared static; do
        "$folder/b/$kind" | grep -q '^16384 parameters, y\[0\] = ' || { echo "$kind fails in $folder" >&2; exit 1; }
    done
}

user fetched "include(FetchContent)
FetchContent_Declare(mha URL $archive URL_HASH SHA256=$(sha256sum "$archive" | cut -d' ' -f1)
                     SOURCE_SUBDIR src/packaging/cmake)
FetchContent_MakeAvailable(mha)"
use fetched
user added "add_subdirectory($tree/src/packaging/cmake mha)"
if command -v ninja >/dev/null; then use added -G Ninja; else use added; fi

# CMake names missing libraries when it configures.
if cmake -S "$stage/added" -B "$stage/lacking" -DMHA_MAKE_FLAGS="BLAS=nowhere" >"$stage/log" 2>&1 ||
        ! grep -q 'pkg-config does not find nowhere' "$stage/log"; then
    echo "a BLAS that is not there: $(cat "$stage/log")" >&2
    exit 1
fi
