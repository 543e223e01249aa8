#!/bin/sh
# Runs one test, prints one line for it, and its log when it failed: run_test.sh RESULTS NAME COMMAND...
# Leaves RESULTS/NAME.log and RESULTS/NAME.result: how many tests passed, failed and were skipped in it, as cmocka
# counts them; any other program is one test. Always succeeds: summary.sh, which adds up, decides.
set -u
results=$1 name=$2
shift 2

log=$results/$name.log
mkdir -p "${log%/*}"
started=$(date +%s%N)
"$@" >"$log" 2>&1 </dev/null
code=$?
tenths=$((($(date +%s%N) - started) / 100000000))

count() { sed -n "s/^\[  $1 *\] \([0-9]*\) test(s).*/\1/p" "$log" | awk '{n += $1} END {print n + 0}'; }
passed=$(count PASSED) failed=$(count FAILED) skipped=$(count SKIPPED)
if [ "$code" != 0 ] && [ "$failed" = 0 ]; then
    failed=1
elif [ "$code" = 0 ] && [ $((passed + failed + skipped)) = 0 ]; then
    passed=1 skipped=$(grep -c '^skipped: ' "$log")
fi
echo "$passed $failed $skipped" >"$results/$name.result"

if [ "$failed" = 0 ]; then
    also=
    [ "$skipped" = 0 ] || also=", $skipped skipped"
    printf '  PASS  %-36s %3d passed%s  %d.%d s\n' "$name" "$passed" "$also" $((tenths / 10)) $((tenths % 10))
else
    printf '  FAIL  %-36s exit code %d; what it said:\n' "$name" "$code"
    cat "$log"
    printf '  FAIL  %s\n' "$name"
fi
