#!/bin/sh
# Adds up what run_test.sh left in a folder: names what failed and what was skipped with the reason, and ends with one
# line of counts. Fails when a test failed, or when there was none: summary.sh RESULTS
set -u
cd "$1" || exit 1

# A test says why it is skipped (skip_because in tests/support/unit.h).
find . -name '*.log' | sort | while read -r log; do
    name=${log#./}
    sed -n "s|^skipped: |  SKIP  ${name%.log}: |p" "$log"
done
[ -n "${CONFORMANCE_DIR:-}" ] || echo "recorded cases were skipped: CONFORMANCE_DIR names no folder of them"
find . -name '*.result' | sort | xargs -r grep -lv '^[0-9]* 0 ' | sed 's|^\./\(.*\)\.result$|  FAIL  \1|'
find . -name '*.result' -exec cat {} + |
    awk '{p += $1; f += $2; s += $3}
        END {print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"; exit f > 0 || p == 0}'
