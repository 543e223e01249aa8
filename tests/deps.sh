#!/bin/sh
# The packages of Debian and Ubuntu that targets of make need, by groups: deps.sh GROUP
#   deps, deps-dev           installs those that are missing, and says which; run again, it finds nothing to do
#   docs, sdist, wheel, deb  names those that are missing in one line, and exits with 2
set -eu

# After a slash: the program, or the module of $PYTHON, that a target needs, from wherever it comes.
deps="gcc g++ libc6-dev make pkg-config libopenblas-dev libjansson-dev libzip-dev zlib1g-dev nettle-dev \
    libcmocka-dev python3-numpy python3-pytest python3-venv"
docs="python3-sphinx/sphinx.py python3-myst-parser/myst_parser.py furo/furo.py mandoc/mandoc"
sdist="python3-setuptools/setuptools.py python3-wheel/wheel.py"
wheel="$sdist lld/ld.lld dpkg-dev/dpkg-source xz-utils/xz cmake/cmake"
deb="$deps $([ ! -e .git ] || echo git/git) build-essential dpkg-dev debhelper dh-python pybuild-plugin-pyproject \
    python3-setuptools python3-wheel mpi-default-bin mpi-default-dev cmake"
checks="git clang libclang-rt-dev libomp-dev valgrind libc6-dbg clang-tidy clang-format gfortran cppcheck gcovr meson \
    zsh fish gcc-aarch64-linux-gnu qemu-user python3-jsonschema mypy libdnnl-dev libxsmm-dev chromium \
    firefox-esr openmpi-bin libopenmpi-dev debootstrap lintian"

group=$1 packages= wanted=
case $group in
deps | docs | sdist | wheel | deb) eval "packages=\$$group" ;;
deps-dev) packages="$deps $docs $wheel $deb $checks" ;;
*) echo "deps.sh: expected deps, deps-dev, docs, sdist, wheel or deb, found \"$group\"" >&2; exit 2 ;;
esac
case $group in deps*) installs=yes ;; *) installs= ;; esac

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# Releases before Debian 13 have libclang-rt-dev only with a version in its name.
versioned() { dpkg-query -W -f '${db:Status-Status}\n' "${1%-dev}-[0-9]*-dev" 2>/dev/null | grep -qx installed; }
present() { # package, or package/program, or package/module.py
    case ${installs:+dpkg:}$1 in
    dpkg:*) installed "${1%/*}" || versioned "${1%/*}" ;;
    */*.py) set -- "${1##*/}"
        "${PYTHON:-python3}" -c "import importlib.util as u; exit(not u.find_spec('${1%.py}'))" 2>/dev/null ;;
    */*) command -v "${1#*/}" >/dev/null ;;
    *) installed "$1" ;;
    esac
}

for package in $packages; do
    case " $wanted " in *" ${package%/*} "*) continue ;; esac
    present "$package" || wanted="$wanted${wanted:+ }${package%/*}"
done
install="apt-get install -y --no-install-recommends"
if [ -z "$wanted" ]; then
    [ -z "$installs" ] || echo "$group: everything is installed"
    exit
elif [ -z "$installs" ]; then
    echo "$group: \"$install $wanted\" (as root) installs what is missing" >&2
    exit 2
fi

fail() {
    echo "$group: $1; as root, run" >&2
    echo "apt-get update && $install $wanted" >&2
    exit 1
}
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing, and there is no sudo to install them"
    as_root=sudo
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { $as_root "$@" >"$log" 2>&1 || { tail -40 "$log" >&2; fail "${1##*/} failed"; }; }

echo "$group: installing $wanted"
quietly apt-get update
for package in $wanted; do
    if ! apt-cache show "$package" >/dev/null 2>&1; then
        named=$(apt-cache search --names-only "^${package%-dev}-[0-9]+-dev\$" | cut -d' ' -f1 | sort -V | tail -1)
        wanted=$(echo " $wanted " | sed "s| $package | ${named:-$package} |; s|^ *||; s| *\$||")
    fi
done
quietly env DEBIAN_FRONTEND=noninteractive $install -o Dpkg::Use-Pty=0 $wanted
