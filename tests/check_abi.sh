#!/bin/sh
# What the library promises to those who link it: exported = declared = documented, one version everywhere,
# and an installed copy that builds and runs a program through pkg-config.
# Run by `make check-abi`, which sets BUILD, CC, MAKE, LIBS and SANITIZE_FLAGS.
set -eu

stage=$BUILD/abi
rm -rf "$stage"
mkdir -p "$stage"
failed=0
wrong() { echo "check-abi: $*" >&2; failed=1; }

# Every header is part of mha.h, so that this one unit holds all declarations.
for header in include/mha/*.h; do
    name=${header##*/}
    [ "$name" = mha.h ] || grep -q "#include \"mha/$name\"" include/mha/mha.h || wrong "mha.h does not include mha/$name"
done

# ---- exported = declared

"$CC" -std=c11 -E -P -Iinclude include/mha/mha.h | tr '\n' ' ' | tr ';{}' '\n\n\n' | grep 'visibility("default")' |
    sed 's/.*visibility("default")))//' | grep -o 'mha_[a-z0-9_]* *(' | tr -d ' (' | sort >"$stage/declared"
nm -D --defined-only "$BUILD/libmha.so" | awk '{print $3}' | grep -v '^__odr_asan' | sort >"$stage/exported"
comm -23 "$stage/declared" "$stage/exported" >"$stage/missing"
comm -13 "$stage/declared" "$stage/exported" >"$stage/extra"
[ ! -s "$stage/missing" ] || wrong "declared, not exported:" $(cat "$stage/missing")
[ ! -s "$stage/extra" ] || wrong "exported, not declared:" $(cat "$stage/extra")

# In the static library every symbol is a neighbour of the program's own: all begin with mha_.
nm --defined-only -g "$BUILD/libmha.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRVW]/ {print $3}' |
    grep -vE '^(mha_|__odr_asan|_?_?asan|\.)' | sort -u >"$stage/foreign"
[ ! -s "$stage/foreign" ] || wrong "global symbols without mha_ in front:" $(cat "$stage/foreign")

# ---- declared = documented: each paragraph of declarations has its comment

awk 'BEGIN { RS = "" } /MHA_API [a-z]/ && !/\/\*/ { print FILENAME ": " $0; n++ } END { exit n > 0 }' include/mha/*.h >"$stage/mute" ||
    wrong "declared without a comment: $(cat "$stage/mute")"

# ---- one version: header, library, soname, program, pkg-config

number() { awk "/define MHA_VERSION_$1/ {print \$3}" include/mha/system.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
soname=$(objdump -p "$BUILD/libmha.so" | awk '/SONAME/ {print $2}')
[ "$soname" = "libmha.so.$(number MAJOR)" ] || wrong "soname: expected libmha.so.$(number MAJOR), found $soname"
[ -e "$BUILD/libmha.so.$version" ] || wrong "expected a file libmha.so.$version, found none"
found=$("$BUILD/mha" --version)
[ "$found" = "mha $version" ] || wrong "program: expected version $version, found \"$found\""

# ---- installed: a program finds it through pkg-config, links it shared and static, and runs

root=$(cd "$stage" && pwd)/root
"$MAKE" -s install PREFIX="$root" BUILD="$BUILD" >/dev/null
"$MAKE" -s install DESTDIR="$stage/a root" PREFIX=/usr BUILD="$BUILD" >/dev/null || wrong "install: a DESTDIR with a space in it"
[ -x "$stage/a root/usr/bin/mha" ] || wrong "install: nothing below a DESTDIR with a space in it"
export PKG_CONFIG_PATH="$root/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
found=$(pkg-config --modversion mha)
[ "$found" = "$version" ] || wrong "pkg-config: expected version $version, found $found"
cat >"$stage/user.c" <<'C'
#include <mha/mha.h>
#include <stdio.h>
int main(void) { return printf("%s %d.%d.%d\n", mha_version(), MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH) < 0; }
C
"$CC" -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/shared" "$stage/user.c" $(pkg-config --cflags --libs mha)
"$CC" -std=c11 ${SANITIZE_FLAGS:-} -o "$stage/static" "$stage/user.c" $(pkg-config --cflags mha) "$root/lib/libmha.a" \
    $LIBS -pthread
for kind in shared static; do
    found=$(LD_LIBRARY_PATH="$root/lib" "$stage/$kind")
    [ "$found" = "$version $version" ] || wrong "a program linked $kind: expected version $version, found \"$found\""
done
for file in bin/mha include/mha/mha.h share/man/man1/mha.1; do
    [ -e "$root/$file" ] || wrong "installed: $file is missing"
done

[ "$failed" = 0 ] && echo "$(wc -l <"$stage/exported") functions exported, declared and documented; version $version everywhere"
exit "$failed"
