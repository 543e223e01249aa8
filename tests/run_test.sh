#!/bin/sh
# Runs one test, prints one line for it, and its log when it failed: run_test.sh RESULTS NAME COMMAND...
# Leaves RESULTS/NAME.log and RESULTS/NAME.result: how many tests passed, failed and were skipped in it, as cmocka
# counts them; any other program is one test. With KIND=cmocka in the environment it fails when no test ran.
# Always succeeds: summary.sh, which adds up, decides.
set -u
results=$1 name=$2
shift 2

log=$results/$name.log
mkdir -p "${log%/*}"
started=$(date +%s%N)
"$@" >"$log" 2>&1 </dev/null
code=$?
tenths=$((($(date +%s%N) - started) / 100000000))
# The second line of `times`: user and system time of the test and of all that it has waited for.
times >"$log.times"
cpu=$(awk 'NR == 2 {split($0, t, /[ms ]+/); printf "%.1f", 60 * (t[1] + t[3]) + t[2] + t[4]}' "$log.times")
rm -f "$log.times"

# Since 1.1.6 cmocka prints the name of the group before some counts.
count() {
    sed -n "s/^\[  $1 *\] \(.*: \)\{0,1\}\([0-9][0-9]*\) test(s).*/\2/p" "$log" | awk '{n += $1} END {print n + 0}'
}
passed=$(count PASSED) failed=$(count FAILED) skipped=$(count SKIPPED)
none=
if [ "$failed" = 0 ] && [ "$code" != 0 ]; then
    failed=1
elif [ $((passed + failed + skipped)) = 0 ]; then
    if [ "${KIND:-}" = cmocka ]; then
        failed=1 none=", no test ran"
    else
        passed=1 skipped=$(grep -c '^skipped: ' "$log")
    fi
fi
echo "$passed $failed $skipped" >"$results/$name.result"

if [ "$failed" = 0 ]; then
    also=
    [ "$skipped" = 0 ] || also=", $skipped skipped"
    printf '  PASS  %-36s %3d passed%s  %d.%d s, CPU %s s\n' "$name" "$passed" "$also" \
        $((tenths / 10)) $((tenths % 10)) "$cpu"
else
    printf '  FAIL  %-36s exit code %d%s; the log:\n' "$name" "$code" "$none"
    cat "$log"
    printf '  FAIL  %s\n' "$name"
fi
