#!/bin/sh
# The wheel without the sources: check_wheel.sh BUILD DIST NAME PYTHON, run by `make check-wheel`. It installs the
# wheel with numpy and pytest, uses it without any variable of the environment, and checks its symbols, types and bytes.
set -eu
build=$1 wheel=$2/$3 python=$4 here=$(cd "$(dirname "$0")" && pwd)
sdist=$2/$(echo "$3" | sed 's/-py3.*//').tar.gz tools=$1/tools/bin alone=$1/alone
failed=0
wrong() { echo "check-wheel: $*" >&2; failed=1; }
said() { echo "check-wheel: $*"; }

# ---- what is inside

inside=$build/inside
rm -rf "$inside"
"$python" -m zipfile -e "$wheel" "$inside"
sh "$here/inside.sh" "$inside" "${wheel##*manylinux_}" || failed=1
(cd "$build" && "$tools/auditwheel" show "$wheel") >"$build/auditwheel.txt" 2>&1 || wrong "auditwheel show fails"
tr '\n' ' ' <"$build/auditwheel.txt" | grep -q "platform tag: *\"$(echo "$3" | sed 's/.*none-//; s/\.whl//')\"" ||
    wrong "auditwheel gives another platform: $(cat "$build/auditwheel.txt")"
"$tools/twine" check --strict "$wheel" "$sdist" >"$build/twine.txt" 2>&1 || wrong "$(cat "$build/twine.txt")"
said "$(du -k "$wheel" | cut -f1) KiB, $(du -sk "$inside" | cut -f1) KiB unpacked"

# ---- alone

[ -x "$alone/bin/pytest" ] || {
    "$python" -m venv "$alone"
    "$alone/bin/pip" --quiet --disable-pip-version-check install numpy pytest 2>"$build/pip.txt" || cat "$build/pip.txt"
}
"$alone/bin/pip" --quiet --disable-pip-version-check install --no-deps --no-index --force-reinstall "$wheel"
work=$build/work
rm -rf "$work" && mkdir "$work" && cd "$work"
alone() { env -i HOME="$work" "$@"; }
alone "$alone/bin/mha" forward >forward.txt || wrong "mha forward fails"
alone "$alone/bin/mha" heads --preset gpt2 | grep -q "124,439,808" || wrong "mha heads does not know GPT-2"
expected=$(alone "$alone/bin/mha" --version)
[ "$(alone "$alone/bin/python" -m mha --version)" = "$expected" ] || wrong "python -m mha is not the program"
alone WHEEL_PROGRAM="$alone/bin/mha" "$alone/bin/python" -m pytest -q -p no:cacheprovider "$here/test_alone.py" \
    >pytest.txt 2>&1 || wrong "$(cat pytest.txt)"
said "$(tail -1 pytest.txt)"
if command -v chromium >/dev/null; then
    chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=2000 --dump-dom "file://$work/page.html" \
        >dom.txt 2>/dev/null || true
    grep -q '<rect\|<path' dom.txt && grep -q "\[CLS\]" dom.txt || wrong "Chromium shows no map of page.html"
else
    said "skipped: a page in Chromium, which is not installed"
fi

# ---- types, as a user's type checker sees them

types() { "$tools/mypy" --strict --python-executable "$alone/bin/python" --cache-dir "$build/mypy-user" "$1"; }
types "$here/user_right.py" >right.txt 2>&1 || wrong "mypy --strict refuses right calls: $(cat right.txt)"
types "$here/user_wrong.py" >wrong.txt 2>&1 && wrong "mypy --strict passes misspelt settings"
lines=$(grep -c '# misspelt' "$here/user_wrong.py")
[ "$(grep -c 'Unexpected keyword' wrong.txt)" = "$lines" ] ||
    wrong "of $lines misspelt settings mypy finds: $(cat wrong.txt)"

# ---- the same bytes, built from the sdist in another folder

again=$build/again
rm -rf "$again" && mkdir "$again"
tar -xf "$sdist" -C "$again" --strip-components=1
mkdir -p "$again/elsewhere/wheel" && cp -r "$build/sources" "$again/elsewhere/wheel/"
(cd "$again" && unset SOURCE_DATE_EPOCH && export GIT_DIR=none && umask 077 &&
    ${MAKE:-make} -s BUILD=elsewhere DIST=out sdist wheel) \
    >"$build/again.txt" 2>&1 || wrong "the sdist does not build: $(tail -5 "$build/again.txt")"
for file in "$wheel" "$sdist"; do
    cmp "$file" "$again/out/${file##*/}" || wrong "${file##*/} has other bytes when it is built elsewhere"
done
[ $failed = 0 ] && said "ok"
exit $failed
