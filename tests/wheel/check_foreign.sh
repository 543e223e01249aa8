#!/bin/sh
# A wheel for another machine: check_foreign.sh BUILD WHEEL TOOLS RUNNER, run by `make check-wheel-aarch64`. What is in
# it, and its program under an emulator, which judges recorded results by what it computes on each path.
set -eu
build=$1 wheel=$2 tools=$3 runner=$4 here=$(dirname "$0")
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
echo "check-wheel: ${wheel##*/}: ok, $(du -k "$wheel" | cut -f1) KiB"
