#!/bin/sh
# Debian's packages in a root made by debootstrap: what they depend on and nothing else is installed, then the packages;
# what src/packaging/debian/tests does with them works; removed and purged, they leave every file as it was.
# SUITE and MIRROR name another release. clean_root.sh FOLDER BUILD
set -eu
export LC_ALL=C.UTF-8
folder=$1 build=$2
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=${MIRROR:-http://deb.debian.org/debian}
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "check-deb: a clean root is made by root with debootstrap (apt-get install debootstrap)" >&2
    exit 1
fi
stage=$build/clean-root
root=$stage/root
rm -rf "$stage"
mkdir -p "$root" "$stage/given"
started=$(date +%s)
said() { echo "$(($(date +%s) - started)) s: $*"; }

# The bare root is kept; what is mounted in it goes with the process that needs it.
kept=$build/root-$suite.tar
if [ ! -e "$kept" ]; then
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$stage/log" 2>&1 || { tail "$stage/log"; exit 1; }
    tar -C "$root" -cf "$kept.part" . && mv "$kept.part" "$kept"
else
    tar -C "$root" -xf "$kept"
fi
cp /etc/resolv.conf "$root/etc/"
inside() {
    unshare --mount --pid --fork sh -c 'root=$1; shift
        mount -t proc proc "$root/proc"
        for folder in tmp dev/shm; do mount -t tmpfs tmpfs "$root/$folder"; done
        cp -r "$root/../given" "$root/tmp/"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DEBIAN_FRONTEND=noninteractive \
            LC_ALL=C.UTF-8 "$@"' - "$root" "$@"
}
quietly() { inside "$@" >"$stage/log" 2>&1 || { tail -30 "$stage/log"; echo "failed: $*" >&2; exit 1; }; }
said "a bare root of $suite: $(inside dpkg-query -f '.\n' -W | wc -l) packages"

cp "$folder"/*.deb "$stage/given/"
rm -f "$stage/given/"*-dbgsym_*
tests=$(echo "$folder"/mha-*/debian/tests)
cp "$tests"/* "$stage/given/"
packages=$(for deb in "$stage/given/"*.deb; do dpkg-deb -f "$deb" Package; done)

# Their packages and those of the tests, without themselves.
needed=$({ for deb in "$stage/given/"*.deb; do dpkg-deb -f "$deb" Pre-Depends Depends; done | sed 's/^[A-Za-z-]*: //'
    sed -n 's/^Depends: //p' "$tests/control"; } | tr ',' '\n' | sed 's/^ *//' | sort -u)
for package in $packages; do
    needed=$(echo "$needed" | grep -v "^$package\($\| \)")
done
quietly apt-get update
quietly apt-get satisfy -y --no-install-recommends "$(echo "$needed" | paste -sd,)"
said "what they need: $(inside dpkg-query -f '.\n' -W | wc -l) packages"

# Every file with kind, mode, owner and contents, but what dpkg, apt and ldconfig keep for themselves.
list() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/log \
        -o -path ./var/cache/apt -o -path ./var/lib/apt -o -path ./var/cache/ldconfig \
        -o -path ./var/cache/debconf \) -prune -o -printf '%p %y %m %u %g %l\n' \
        -type f -exec md5sum {} + | sort)
}
list >"$stage/before"
quietly sh -c 'dpkg -i /tmp/given/*.deb'
said "installed: $(echo $packages)"
list >"$stage/installed"
grep -q '/usr/bin/mha ' "$stage/installed" || { echo "the list of files does not show the packages" >&2; exit 1; }
for test in $(sed -n 's/^Tests: //p' "$tests/control"); do
    quietly sh "/tmp/given/$test"
    tail -2 "$stage/log" | cut -c1-100
    said "$test works"
done
list >"$stage/used"
quietly dpkg --remove $packages
quietly dpkg --purge $packages
list >"$stage/after"
if ! diff "$stage/before" "$stage/after" >"$stage/left"; then
    head -20 "$stage/left"
    echo "removed and purged, the packages leave other files than there were" >&2
    exit 1
fi
said "purged: all $(wc -l <"$stage/after") lines of the list of files as before"
rm -rf "$root"
