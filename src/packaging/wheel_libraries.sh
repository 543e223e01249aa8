#!/bin/sh
# The static libraries inside a wheel of mha, with their licences: wheel_libraries.sh OUT ROOT TRIPLET, with CC
# and CROSS. OpenBLAS, zlib and nettle are Debian's, as installed below ROOT. jansson and libzip are built from Debian's
# sources: Debian has none of them that fits into a shared library.
set -eu
triplet=$3 here=$(cd "$(dirname "$0")" && pwd) root=$2
root=${root:+$(cd "$root" && pwd)}
rm -rf "$1"
mkdir -p "$1/include" "$1/licences" "$1/../../sources"
sources=$(cd "$1/../../sources" && pwd)
cd "$1"
out=$PWD

# ---- sources, which apt verifies by Debian's signature

suite=bookworm packages="jansson=2.14-2 libzip=1.7.3-1"
if [ ! -e "$sources/complete" ]; then
    echo "wheel: fetching the sources of $packages"
    mkdir -p "$sources/apt/lists/partial" "$sources/apt/archives/partial"
    : >"$sources/apt/status"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
        >"$sources/apt/sources.list"
    set -- -qq -o APT::Sandbox::User= -o Dir::Etc::sourcelist="$sources/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State="$sources/apt" -o Dir::State::status="$sources/apt/status" -o Dir::Cache="$sources/apt"
    apt-get "$@" update
    (cd "$sources" && rm -rf jansson libzip && apt-get "$@" source --download-only $packages &&
        for source in jansson libzip; do dpkg-source --no-check -x ${source}_*.dsc $source >/dev/null; done)
    touch "$sources/complete"
fi

# ---- jansson, and libzip with nothing but deflate

# The C library has arc4random since 2.36; only archives that are written encrypted would call it.
built() { # name, options of cmake
    name=$1
    shift
    cmake -S "$sources/$name" -B "$name" -Wno-dev --log-level=ERROR -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_FLAGS="-w -fPIC $unnamed" \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSROOT="$root" -DCMAKE_AR="$(command -v "${CROSS}ar")" \
        -DBUILD_SHARED_LIBS=OFF -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@" >"$name.log" 2>&1 &&
        MAKEFLAGS= cmake --build "$name" --target "$target" -j2 >>"$name.log" 2>&1 || { cat "$name.log" >&2; exit 1; }
    cp "$(find "$name" -name "lib$target.a")" .
}
unnamed="-ffile-prefix-map=$sources=. -ffile-prefix-map=$out=." # where it was built
off() { for option; do printf -- '-D%s=OFF ' "$option"; done; }
target=jansson built jansson $(off JANSSON_BUILD_DOCS JANSSON_EXAMPLES) -DJANSSON_WITHOUT_TESTS=ON
target=zip built libzip $(off ENABLE_COMMONCRYPTO ENABLE_GNUTLS ENABLE_MBEDTLS ENABLE_OPENSSL ENABLE_BZIP2 ENABLE_LZMA \
    ENABLE_ZSTD BUILD_TOOLS BUILD_REGRESS BUILD_EXAMPLES BUILD_DOC HAVE_ARC4RANDOM) \
    -DZLIB_LIBRARY="$root/usr/lib/$triplet/libz.a" -DZLIB_INCLUDE_DIR="$root/usr/include"
cp jansson/include/*.h "$sources"/libzip/lib/zip.h libzip/zipconf.h include/

# ---- Debian's

blas=openblas-pthread
cp "$root/usr/lib/$triplet/$blas/libopenblas.a" "$root/usr/lib/$triplet/libz.a" "$root/usr/lib/$triplet/libnettle.a" .
cp "$root/usr/include/$triplet/$blas"/*.h "$root"/usr/include/z*.h include/
cp -r "$root/usr/include/nettle" include/

$CC -O2 -fPIC -fvisibility=hidden -c -o runtime.o "$here/wheel_runtime.c"

# ---- licences

cp "$sources/jansson/debian/copyright" licences/jansson.txt
cp "$sources/libzip/debian/copyright" licences/libzip.txt
for name in openblas:lib$blas-dev zlib:zlib1g-dev nettle:nettle-dev; do
    cp "$root/usr/share/doc/${name#*:}/copyright" "licences/${name%:*}.txt"
done
cp /usr/share/common-licenses/LGPL-3 /usr/share/common-licenses/GPL-3 licences/

# ---- kernels of complex numbers, by the tables of OpenBLAS that name them: symbols at 0 instead

mkdir tables
(cd tables && "${CROSS}ar" x ../libopenblas.a $("${CROSS}ar" t ../libopenblas.a | grep '^setparam_'))
readelf -sW tables/*.o | awk '$7 == "UND" && $8 ~ /^i?[cz].*_[A-Z0-9]+$/ {print "--defsym=" $8 "=0"}' |
    LC_ALL=C sort -u >complex.part
[ -s complex.part ] || { echo "wheel: OpenBLAS has no tables of kernels" >&2; exit 1; }
rm -rf tables
mv complex.part complex
