#!/bin/sh
# Prints the folder of a virtual environment with the packages of requirements.txt, which it makes where there is none:
# venv.sh PYTHON [newest]. It is outside the build folder, in $XDG_CACHE_HOME/mha, one for each Python and requirements.
set -eu
python=$1 newest=${2:-}
requirements=$(dirname "$0")/requirements.txt
key=$({ "$python" -VV; echo "$newest"; cat "$requirements"; } | sha256sum | cut -c1-12)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/mha/venv-$key

if [ ! -e "$venv/complete" ] || [ -n "$newest" ]; then
    mkdir -p "$venv"
    [ -x "$venv/bin/pip" ] || "$python" -m venv "$venv" >&2 ||
        { echo "$python has no venv: Debian, Ubuntu: apt install python3-venv" >&2; exit 1; }
    sed -e '/^#/d' ${newest:+-e /^torch=/!s/=.*//} "$requirements" >"$venv/requirements.txt"
    echo "installing into $venv" >&2
    "$venv/bin/pip" install -qq --no-compile --disable-pip-version-check ${newest:+--upgrade} \
        -r "$venv/requirements.txt" >&2
    # Forty test processes import PyTorch; compiled once, an import takes a third of its 25 s.
    "$venv/bin/python" -m compileall -q -j0 "$venv/lib" >&2 || :
    touch "$venv/complete"
fi
"$venv/bin/pip" list --format=freeze --disable-pip-version-check >"$venv/versions"
grep -E '^(torch|transformers|jax|numpy)==' "$venv/versions" >&2
echo "$venv"
