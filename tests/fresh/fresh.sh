#!/bin/sh
# Runs README's two commands in a new, minimal root of a Debian release, as root or as a user with sudo:
#   fresh.sh FOLDER bookworm|trixie root|user      or all for each of the four
# FOLDER holds the root while the test runs. The root sees no file, process or mount of the host, only the network and
# /sys. Packages are cached in ${MHA_CACHE:-~/.cache/mha}/debian, outside build/. Needs root and debootstrap.
set -eu
folder=$1 release=$2 who=${3:-}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
cache=${MHA_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mha}/debian/$release
sources=$(cd "$(dirname "$0")/../.." && pwd)

fail() { echo "test-fresh: $1" >&2; exit "${2:-1}"; }
[ "$(id -u)" = 0 ] || fail "user: expected root, found $(id -un); run it with sudo" 2
command -v debootstrap >/dev/null || fail "debootstrap: not installed; run \"make deps-dev\"" 2
if [ "$release" = all ]; then
    for release in bookworm trixie; do for who in root user; do sh "$0" "$folder" $release $who; done; done
    exit
fi
case $release in bookworm | trixie) ;; *) fail "release: expected bookworm, trixie or all, found \"$release\"" 2 ;; esac
case $who in
root) home=/root ;;
user) home=/home/user ;;
*) fail "user: expected root or user, found \"$who\"" 2 ;;
esac

# README's commands as they are printed there, without the comments after them.
commands=$(sed -n 's/^    \(make deps [a-z]*\)\( *#.*\)*$/\1/p' "$sources/README.md")
[ "$commands" = "make deps demo
make deps test" ] || fail "README.md: expected \"make deps demo\" and \"make deps test\", found: $commands"

root=$folder/$release-$who
rm -rf "$root"
mkdir -p "$root" "$cache/base" "$cache/archives/partial"
log=$folder/$release-$who.log
trap 'rm -rf "$root"' EXIT
trap 'exit 1' INT TERM

started=$(date +%s)
debootstrap --variant=minbase --cache-dir="$cache/base" "$release" "$root" "$mirror" >"$log" 2>&1 ||
    { tail -20 "$log" >&2; fail "debootstrap failed; its log is $log"; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
echo fresh >"$root/etc/hostname"
printf '127.0.0.1 localhost fresh\n' >"$root/etc/hosts"
# apt keeps its downloads in the cache of this test.
echo 'Binary::apt::APT::Keep-Downloaded-Packages "true"; APT::Keep-Downloaded-Packages "true";' \
    >"$root/etc/apt/apt.conf.d/90keep"
rm -f "$root/etc/apt/apt.conf.d/docker-clean"

# In a namespace of its own for mounts and processes: mounts end with the last process in it.
inside() {
    unshare --mount --pid --ipc --uts --fork --kill-child sh -c '
        root=$1 cache=$2; shift 2
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || true
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm" && chmod 1777 "$root/dev/shm"
        mount --bind "$cache/archives" "$root/var/cache/apt/archives"
        hostname fresh
        exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "$@"
    ' sh "$root" "$cache" "$@" </dev/null
}
packages() {
    inside dpkg-query -W -f '${Package} ${Version}\n' >"$folder/$release-$who.$1"
    echo "packages $2: $(wc -l <"$folder/$release-$who.$1")"
    cut -d' ' -f1 "$folder/$release-$who.$1" | tr '\n' ' ' | fold -s -w 118 | sed 's/^/  /'
    echo
}

echo "== Debian $(cat "$root/etc/debian_version") ($release), $who; the root took $(($(date +%s) - started)) s"
packages before "in the new root"

# The prerequisites that README names, then a clone.
sudo=
[ "$who" = root ] || sudo=sudo
inside sh -c "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install \
    --no-install-recommends git make $sudo" >>"$log" 2>&1 || { tail -20 "$log" >&2; fail "apt-get failed; see $log"; }
[ "$who" = root ] ||
    inside sh -c 'useradd -m -s /bin/sh user && echo "user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/user'
as() { inside su - "$who" -c "$1"; }

git clone -q --no-local "$sources" "$root$home/mha"
[ "$who" = root ] || inside chown -R user: /home/user/mha
git -C "$sources" log -1 --format='commit %h: %s'

# CPU seconds, user and system, of the processes that have ended, from the output of `times` in $folder/times.
cpu() { sed -n 2p "$folder/times" | tr ms '  ' | awk '{printf "%d", 60 * $1 + $2 + 60 * $3 + $4}'; }

status=0
while read -r command; do
    echo "== $command"
    times >"$folder/times"
    began=$(date +%s) spent=$(cpu)
    as "cd mha && $command" || status=$?
    times >"$folder/times"
    echo "== $command: exit code $status, $(($(date +%s) - began)) s of wall time, $(($(cpu) - spent)) s of CPU time"
    [ "$status" = 0 ] || break
done <<EOF
$commands
EOF
packages after "after README's commands"
echo "added: $(diff "$folder/$release-$who.before" "$folder/$release-$who.after" | grep -c '^>') packages"

# Only apt wrote outside the clone: nothing in the clone belongs to root where a user built it.
if [ "$who" = user ] && [ -n "$(find "$root$home/mha" ! -user "$(stat -c %u "$root$home")" | head -1)" ]; then
    fail "a file in the clone does not belong to the user"
fi
[ "$status" = 0 ] || fail "$release as $who: exit code $status"
echo "test-fresh: $release as $who passed in $(($(date +%s) - started)) s"
