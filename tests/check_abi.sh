#!/bin/sh
# What the library promises to those who link it: exported = declared = documented, one version everywhere, and an
# installed copy that builds and runs a program through pkg-config and CMake, and leaves nothing when it is removed.
# Run by `make check-abi`, which sets BUILD, CC, MAKE, LIBS and SANITIZE_FLAGS.
set -eu

stage=$BUILD/abi
rm -rf "$stage"
mkdir -p "$stage"
failed=0
wrong() { echo "check-abi: $*" >&2; failed=1; }
expect() { [ "$3" = "$2" ] || wrong "$1: expected \"$2\", found \"$3\""; } # what, expected, found

# Every header is part of mha.h, so that this one unit holds all declarations.
headers=$(ls include/mha/*.h | grep -v /mpi.h) # which is that of libmha_mpi
for header in $headers; do
    name=${header##*/}
    [ "$name" = mha.h ] || grep -q "#include \"mha/$name\"" include/mha/mha.h || wrong "mha.h leaves out mha/$name"
done

# ---- exported = declared

$CC -std=c11 -E -P -Iinclude include/mha/mha.h | tr '\n' ' ' | tr ';{}' '\n\n\n' | grep 'visibility("default")' |
    sed 's/.*visibility("default")))//' | grep -o 'mha_[a-z0-9_]* *(' | tr -d ' (' | sort >"$stage/declared"
nm -D --defined-only "$BUILD/libmha.so" | awk '{print $3}' | grep -v '^__odr_asan' | sort >"$stage/exported"
comm -23 "$stage/declared" "$stage/exported" >"$stage/missing"
comm -13 "$stage/declared" "$stage/exported" >"$stage/extra"
[ -s "$stage/declared" ] || wrong "no function is declared"
[ ! -s "$stage/missing" ] || wrong "declared, not exported:" $(cat "$stage/missing")
[ ! -s "$stage/extra" ] || wrong "exported, not declared:" $(cat "$stage/extra")

# In the static library every symbol is a neighbour of the program's own: all begin with mha_. No file of it has the
# name of another, because tools that unpack it would lose one.
nm --defined-only -g "$BUILD/libmha.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRVW]/ {print $3}' |
    grep -vE '^(mha_|__odr_asan|_?_?asan|\.)' | sort -u >"$stage/foreign"
[ ! -s "$stage/foreign" ] || wrong "global symbols without mha_ in front:" $(cat "$stage/foreign")
expect "files of one name in libmha.a" "" "$(ar t "$BUILD/libmha.a" | sort | uniq -d | tr '\n' ' ')"

# ---- the core is as recorded: what compiled programs rely on stays

if command -v python3 >/dev/null; then
    python3 tests/surface/interface.py tests/surface/core.txt "$CC" >"$stage/core" 2>&1 || wrong "$(cat "$stage/core")"
else
    echo "skipped: the recorded interface (there is no python3)"
fi

# ---- declared = documented: each paragraph of declarations has its comment

awk 'BEGIN { RS = "" } /MHA_API [a-z]/ && !/\/\*/ { print FILENAME ": " $0; n++ } END { exit n > 0 }' \
    include/mha/*.h >"$stage/mute" ||
    wrong "declared without a comment: $(cat "$stage/mute")"

# ---- one version: header, library, soname, program

number() { awk "/define MHA_VERSION_$1/ {print \$3}" include/mha/system.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
soname=libmha.so.$(number MAJOR)
[ "$(number MAJOR)" != 0 ] || soname=libmha.so.0.$(number MINOR) # before 1.0 each minor version may break the interface
expect soname "$soname" "$(objdump -p "$BUILD/libmha.so" | awk '/SONAME/ {print $2}')"
[ -e "$BUILD/libmha.so.$version" ] || wrong "expected a file libmha.so.$version, found none"
expect "version of the program" "mha $version" "$("$BUILD/mha" --version)"
grep -q "^## $version" CHANGELOG.md || wrong "CHANGELOG.md has no section on $version"

# ---- installed: a program finds it through pkg-config, links it shared and static, and runs

install_below() {
    "$MAKE" -s BUILD="$BUILD" "$@" >"$stage/install.log" 2>&1 || wrong "make $*: $(cat "$stage/install.log")"
}
root=$(cd "$stage" && pwd)/root
install_below install prefix="$root"
grep -q "$root/lib" "$stage/install.log" || wrong "install does not say how a program finds the library when it runs"
export PKG_CONFIG_PATH="$root/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
expect "version of pkg-config" "$version" "$(pkg-config --modversion mha)"
private="$(pkg-config --print-requires-private mha) $(sed -n 's/^Libs.private: //p' "$root/lib/pkgconfig/mha.pc")"
echo "$private" | grep -q blas || wrong "pkg-config does not name the BLAS, only: $private"
cat >"$stage/user.c" <<'C'
#include <mha/mha.h>
#include <stdio.h>
int main(void)
{
    return printf("%s %d.%d.%d\n", mha_version(), MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH) < 0;
}
C
$CC -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/shared" "$stage/user.c" $(pkg-config --cflags --libs mha)
$CC -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/static" "$stage/user.c" $(pkg-config --cflags mha) "$root/lib/libmha.a" \
    $LIBS -pthread
for kind in shared static; do
    expect "a program linked $kind" "$version $version" "$(LD_LIBRARY_PATH="$root/lib" "$stage/$kind")"
done
line=$(sed -n 's/^    cc example.c \(.*[^ ]\)  *# pkg-config$/\1/p' README.md)
[ -n "$line" ] || wrong "README.md has no line for pkg-config"
for example in tests/examples/*.c; do
    eval "$CC ${SANITIZE_FLAGS:-} -o $stage/example $example $line" || wrong "README's line for pkg-config: $example"
done
for file in bin/mha include/mha/mha.h "lib/$soname" share/man/man1/mha.1 share/bash-completion/completions/mha \
    share/zsh/site-functions/_mha share/fish/vendor_completions.d/mha.fish; do
    [ -e "$root/$file" ] || wrong "installed: $file is missing"
done
for header in $headers; do cmp -s "$header" "$root/$header" || wrong "installed: $header is another one"; done

# ---- the same through CMake, where there is one; an older and a newer series are refused

if command -v cmake >/dev/null; then
    mkdir "$stage/cmake"
    cat >"$stage/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(mha \${WANTED} REQUIRED)
add_executable(shared ../user.c)
target_link_libraries(shared mha::mha)
add_executable(static ../user.c)
target_link_libraries(static mha::static)
CMAKE
    configure() {
        cmake -S "$stage/cmake" -B "$stage/cmake/$1" -DWANTED="$1" -DCMAKE_PREFIX_PATH="$root" \
            -DCMAKE_C_COMPILER="${CC##* }" -DCMAKE_C_FLAGS="${SANITIZE_FLAGS:-}" >"$stage/cmake/$1.log" 2>&1
    }
    if configure "$version" && cmake --build "$stage/cmake/$version" >>"$stage/cmake/$version.log" 2>&1; then
        for kind in shared static; do
            expect "CMake, linked $kind" "$version $version" "$("$stage/cmake/$version/$kind")"
        done
    else
        wrong "CMake: $(tail -20 "$stage/cmake/$version.log")"
    fi
    for other in "$(number MAJOR).$(($(number MINOR) + 1))" "$(($(number MAJOR) + 1)).0"; do
        configure "$other" && wrong "CMake takes version $version for $other"
    done
else
    echo "skipped: CMake's package files (make deps-dev installs cmake)"
fi

# ---- folders of one's own, a DESTDIR with a blank in it, and removed without a trace

below="$stage/a root"
folders="prefix=/usr exec_prefix=/usr/exec bindir=/usr/programs libdir=/usr/lib/machine includedir=/usr/headers
    datadir=/usr/data mandir=/usr/manual"
install_below install DESTDIR="$below" $folders
for file in programs/mha "lib/machine/$soname" lib/machine/libmha.a lib/machine/pkgconfig/mha.pc \
    lib/machine/cmake/mha/mha-config.cmake headers/mha/mha.h data/zsh/site-functions/_mha manual/man1/mha.1; do
    [ -e "$below/usr/$file" ] || wrong "install into other folders: $file is missing"
done
expect "pkg-config's libdir" /usr/lib/machine \
    "$(PKG_CONFIG_PATH="$below/usr/lib/machine/pkgconfig" pkg-config --variable=libdir mha)"
install_below uninstall DESTDIR="$below" $folders
install_below install DESTDIR="$below" PREFIX=/opt
[ -e "$below/opt/bin/mha" ] || wrong "PREFIX is not taken for prefix"
install_below uninstall DESTDIR="$below" PREFIX=/opt
install_below uninstall prefix="$root"
expect "left after uninstall" "" "$(find "$below" "$root" ! -type d; find "$below" "$root" -name mha)"

[ "$failed" = 0 ] &&
    echo "$(wc -l <"$stage/exported") functions exported, declared and documented; version $version everywhere"
exit "$failed"
