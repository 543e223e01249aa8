#!/bin/sh
# The guarantees of the libraries for linked programs: exported = declared = documented, libmha needs a BLAS and the C
# library alone, one version everywhere, and an installed copy that builds and runs programs through pkg-config and
# CMake, and leaves nothing when it is removed. Run by `make check-abi`, which sets BUILD, CC, MAKE, LIBS and
# SANITIZE_FLAGS.
set -eu

stage=$BUILD/abi
rm -rf "$stage"
mkdir -p "$stage"
failed=0
wrong() { echo "check-abi: $*" >&2; failed=1; }
expect() { [ "$3" = "$2" ] || wrong "$1: expected \"$2\", found \"$3\""; } # what, expected, found

# Every header is part of mha.h or lab.h, so that these two units hold all declarations.
headers=$(ls include/mha/*.h | grep -v /mpi.h) # which is that of libmha_mpi
for header in $headers; do
    name=${header##*/}
    [ "$name" = lab.h ] || grep -q "#include \"mha/$name\"" include/mha/mha.h include/mha/lab.h ||
        wrong "mha.h and lab.h leave out mha/$name"
done

# ---- exported = declared; libmha exports names that are not public with the version of libmha-lab alone

declared_in() {
    $CC -std=c11 -E -P -Iinclude "include/mha/$1" | tr '\n' ' ' | tr ';{}' '\n\n\n' | grep 'visibility("default")' |
        sed 's/.*visibility("default")))//' | grep -o 'mha_[a-z0-9_]* *(' | tr -d ' (' | sort
}
exported_by() { # library, pattern of the versions
    nm -D --defined-only "$BUILD/$1.so" | awk '{print $3}' | sed -n "s/@@*$2\$//p" | grep -v '^__odr_asan' | sort
}
version=$(awk '/define MHA_VERSION_[A-Z]/ {printf "%s%s", dot, $3; dot = "."}' include/mha/system.h)
declared_in mha.h >"$stage/libmha.declared"
declared_in lab.h | comm -23 - "$stage/libmha.declared" >"$stage/libmha-lab.declared"
exported_by libmha 'MHA_[0-9.]*' >"$stage/libmha.exported"
exported_by libmha-lab 'MHA_LAB_[0-9.]*' >"$stage/libmha-lab.exported"
for library in libmha libmha-lab; do
    [ -s "$stage/$library.declared" ] || wrong "no function of $library is declared"
    missing=$(comm -23 "$stage/$library.declared" "$stage/$library.exported")
    extra=$(comm -13 "$stage/$library.declared" "$stage/$library.exported")
    [ -z "$missing" ] || wrong "declared, not exported by $library:" $missing
    [ -z "$extra" ] || wrong "exported by $library, not declared:" $extra
done
private=$(exported_by libmha "MHA_PRIVATE_$version" | grep -v '^mha__' || true)
[ -z "$private" ] || wrong "exported by libmha for libmha-lab, without mha__ in front:" $private

# A program that embeds libmha gets a BLAS and the C library with it, and nothing else.
needed=$(objdump -p "$BUILD/libmha.so" | awk '/NEEDED/ {print $2}' | grep -vE '^lib(c|m|asan|ubsan)\.so\.|blas' || true)
[ -z "$needed" ] || wrong "libmha needs" $needed

# In a static library every symbol is a neighbour of the program's own: all begin with mha_. No file of it has the
# name of another, because tools that unpack it would lose one.
for archive in libmha.a libmha-lab.a; do
    nm --defined-only -g "$BUILD/$archive" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRVW]/ {print $3}' |
        grep -vE '^(mha_|__odr_asan|_?_?asan|\.)' | sort -u >"$stage/foreign"
    [ ! -s "$stage/foreign" ] || wrong "global symbols without mha_ in front:" $(cat "$stage/foreign")
    expect "files of one name in $archive" "" "$(ar t "$BUILD/$archive" | sort | uniq -d | tr '\n' ' ')"
done

# ---- the symbols files of Debian's packages list what the libraries export

series=$("$MAKE" -s show-SERIES)
for library in mha mha-lab mha_mpi; do
    file=src/packaging/debian/lib$(echo "$library" | tr _ -)@SERIES@.symbols
    if [ -n "$SANITIZE_FLAGS" ] || [ ! -e "$BUILD/lib$library.so" ]; then # a sanitizer's linker adds other names
        echo "check-abi: not checked: $file (make mpi builds lib$library.so, without sanitizers)"
        continue
    fi
    sh src/packaging/symbols.sh "$file" "$BUILD/lib$library.so" "$version" "$series" \
        >"$stage/$library.symbols"
    diff "$file" "$stage/$library.symbols" || wrong "$file differs from lib$library.so; run make symbols"
done

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
series=$(number MAJOR)
[ "$series" != 0 ] || series=0.$(number MINOR) # before 1.0 each minor version may break the interface
soname=libmha.so.$series
for library in libmha libmha-lab; do
    expect soname "$library.so.$series" "$(objdump -p "$BUILD/$library.so" | awk '/SONAME/ {print $2}')"
    [ -e "$BUILD/$library.so.$version" ] || wrong "expected a file $library.so.$version, found none"
done
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
expect "version of pkg-config" "$version $version" "$(pkg-config --modversion mha) $(pkg-config --modversion mha-lab)"
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
cat >"$stage/lab.c" <<'C'
#include <mha/lab.h>
#include <stdio.h>
int main(void)
{
    return printf("%s %zu\n", mha_version(), mha_bug_count()) < 0;
}
C
for user in user lab; do
    name=mha wanted="$version $version" archives=$root/lib/libmha.a
    [ "$user" = user ] || { name=mha-lab wanted="$version [1-9]" archives="$root/lib/libmha-lab.a $archives"; }
    $CC -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/$user-shared" "$stage/$user.c" $(pkg-config --cflags --libs $name)
    $CC -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/$user-static" "$stage/$user.c" $(pkg-config --cflags $name) $archives \
        $LIBS -pthread
    for kind in shared static; do
        LD_LIBRARY_PATH="$root/lib" "$stage/$user-$kind" | grep -q "^$wanted" ||
            wrong "a program of $name linked $kind: expected \"$wanted\""
    done
done
page=src/manual/howto/install.md
line=$(sed -n 's/^cc example.c \(.*[^ ]\)  *# -lm.*$/\1/p' $page)
[ -n "$line" ] || wrong "$page has no line for pkg-config"
for example in $(grep -L '<mha/lab.h>' tests/examples/*.c); do
    eval "$CC ${SANITIZE_FLAGS:-} -o $stage/example $example $line" || wrong "pkg-config of $page: $example"
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
project(user C CXX)
find_package(mha \${WANTED} REQUIRED)
add_executable(shared ../user.c)
target_link_libraries(shared mha::mha)
add_executable(static ../user.c)
target_link_libraries(static mha::static)
add_executable(embed $PWD/tests/examples/embed.cpp)
target_link_libraries(embed mha::mha)
add_executable(lab-shared ../lab.c)
target_link_libraries(lab-shared mha::lab)
add_executable(lab-static ../lab.c)
target_link_libraries(lab-static mha::lab-static)
CMAKE
    configure() {
        cmake -S "$stage/cmake" -B "$stage/cmake/$1" -DWANTED="$1" -DCMAKE_PREFIX_PATH="$root" \
            -DCMAKE_C_COMPILER="${CC##* }" -DCMAKE_C_FLAGS="${SANITIZE_FLAGS:-}" \
            -DCMAKE_CXX_FLAGS="${SANITIZE_FLAGS:-}" >"$stage/cmake/$1.log" 2>&1
    }
    if configure "$version" && cmake --build "$stage/cmake/$version" >>"$stage/cmake/$version.log" 2>&1; then
        "$stage/cmake/$version/embed" >/dev/null || wrong "CMake: tests/examples/embed.cpp fails"
        for kind in shared static; do
            expect "CMake, linked $kind" "$version $version" "$("$stage/cmake/$version/$kind")"
            "$stage/cmake/$version/lab-$kind" | grep -q "^$version [1-9]" || wrong "CMake, libmha-lab linked $kind"
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
for file in programs/mha "lib/machine/$soname" lib/machine/libmha.a lib/machine/libmha-lab.so \
    lib/machine/pkgconfig/mha.pc \
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
    echo "$(wc -l <"$stage/libmha.exported") functions of libmha and $(wc -l <"$stage/libmha-lab.exported") of" \
        "libmha-lab exported, declared and documented; version $version everywhere"
exit "$failed"
