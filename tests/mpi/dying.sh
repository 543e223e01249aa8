#!/bin/sh
# A rank that is killed in the middle of an exchange ends them all, with an exit code that is not 0, and no rank has
# written a number of its output; nobody is left running. What waits for ever is ended after DYING_SECONDS.
# dying.sh MPIEXEC PROGRAM
set -u
launcher=$1 program=$2 seconds=${DYING_SECONDS:-300} ranks=4 failed=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
DYING_OUTPUTS=$(mktemp -d)
export DYING_OUTPUTS
trap 'rm -rf "$DYING_OUTPUTS"' EXIT
. "$(dirname "$0")/can_start.sh"

wrong() { echo "$*"; sed 's/^/  /' "$DYING_OUTPUTS/log"; failed=1; }
# The bytes of all outputs that are not 0x5A, the letter Z.
touched() { cat "$DYING_OUTPUTS"/[0-9]* | tr -d 'Z' | wc -c; }
run() {
    DYING_AT=$2 timeout --verbose -k 5 "$seconds" "$launcher" -n "$ranks" "$program" "$1" "$DYING_OUTPUTS" \
        >"$DYING_OUTPUTS/log" 2>&1 </dev/null
}
# The exit code does not tell: it is 137 where a rank was killed, and where timeout had to kill the launcher.
waited() { grep -q '^timeout: sending signal' "$DYING_OUTPUTS/log"; }
for scheme in tensor ring; do
    rm -f "$DYING_OUTPUTS"/[0-9]*
    run "$scheme" 0 || wrong "$scheme: does not run"
    [ "$(touched)" -gt 0 ] || wrong "$scheme: no output at all"
    messages=$(sed -n "s/^rank $((ranks - 1)) sent \([0-9]*\) messages/\1/p" "$DYING_OUTPUTS/log")
    for at in 1 "$messages"; do
        rm -f "$DYING_OUTPUTS"/[0-9]*
        run "$scheme" "$at" && wrong "$scheme, killed at message $at of $messages: exit code 0"
        waited && wrong "$scheme, killed at message $at of $messages: ranks still waited after $seconds seconds"
        [ "$(touched)" = 0 ] || wrong "$scheme, killed at message $at of $messages: an output was begun"
    done
done
# The launcher may be gone before its ranks are.
until left=$(pgrep -f " $DYING_OUTPUTS\$"); [ -z "$left" ] || [ "$seconds" -le 0 ]; do
    sleep 1
    seconds=$((seconds - 1))
done
[ -z "$left" ] || { echo "still running: $left"; failed=1; }
[ "$failed" = 1 ] || echo "4 killed ranks ended all others, and no output was begun"
exit "$failed"
