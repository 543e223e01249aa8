#!/bin/sh
# A wheel for another machine: check_foreign.sh BUILD WHEEL TOOLS RUNNER ROOT, run by `make check-wheel-aarch64`.
# Its content; its program under an emulator, which checks recorded results by what it computes on each path; its
# module under the Python and numpy in ROOT: bits of the exact path are those of this machine's wheel, beside it.
set -eu
build=$1 wheel=$2 tools=$3 runner=$4 root=$5 here=$(dirname "$0")
inside=$build/inside
rm -rf "$inside"
"$tools/bin/python" -m zipfile -e "$wheel" "$inside"
sh "$here/inside.sh" "$inside" "${wheel##*manylinux_}"
"$tools/bin/auditwheel" show "$wheel" >"$build/auditwheel.txt" 2>&1
grep -q "$(echo "${wheel##*/}" | sed 's/.*none-//; s/\.whl//')" "$build/auditwheel.txt" ||
    { cat "$build/auditwheel.txt" >&2; exit 1; }
"$tools/bin/twine" check --strict "$wheel" >/dev/null
program=$(echo "$inside"/mha-*.data/scripts/mha)
chmod +x "$program"
for path in fast blas exact; do
    $runner "$program" check --path $path tests/vectors/flex_s*.safetensors tests/vectors/jax_*.safetensors \
        >"$build/$path.txt" 2>&1 || { cat "$build/$path.txt" >&2; exit 1; }
done

# Debian's alternatives are not set up in a root that is only unpacked.
libraries=/usr/lib/${wheel##*manylinux_?_??_}
libraries=${libraries%.whl}-linux-gnu
own=$(echo "$wheel" | sed "s/${wheel##*manylinux_?_??_}\$/$(uname -m).whl/")
rm -rf "$build/own" && "$tools/bin/python" -m zipfile -e "$own" "$build/own"
PYTHONPATH=$build/own "$tools/bin/python" "$here/exact_bits.py" >"$build/bits.txt"
PYTHONPATH=$inside $runner -L "$root" -E LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" "$root/usr/bin/python3" \
    "$here/exact_bits.py" >"$build/bits_foreign.txt"
cmp "$build/bits.txt" "$build/bits_foreign.txt" ||
    { echo "check-wheel: the exact path has other bits than on $(uname -m)" >&2; exit 1; }
echo "check-wheel: ${wheel##*/}: ok, $(du -k "$wheel" | cut -f1) KiB"
