#!/bin/sh
# Adds up what run_test.sh left in a folder: names each reason for which tests were skipped, and what failed, and ends
# with one line of counts. Fails when a test failed, or when there was none: summary.sh RESULTS
set -u
cd "$1" || exit 1

# A test says why it is skipped, mostly after its own name: "skipped: a_test: no terminal" (tests/support/unit.h).
find . -name '*.log' | sort | xargs -r awk '
    /^skipped: / {
        reason = substr($0, 10)
        sub(/^[^ ]*: /, "", reason)
        name = substr(FILENAME, 3, length(FILENAME) - 6)
        if (!(reason in names)) reasons[n++] = reason
        if (++times[reason, name] == 1) names[reason] = names[reason] " " name
    }
    END {
        for (i = 0; i < n; i++) {
            count = split(names[reasons[i]], one, " ")
            line = ""
            for (k = 1; k <= count; k++) {
                many = times[reasons[i], one[k]]
                line = line (k > 1 ? ", " : "") one[k] (many > 1 ? " (" many ")" : "")
            }
            print "  SKIP  " reasons[i] ": " line
        }
    }'
find . -name '*.result' | sort | xargs -r grep -lv '^[0-9]* 0 ' | sed 's|^\./\(.*\)\.result$|  FAIL  \1|'
find . -name '*.result' -exec cat {} + |
    awk '{p += $1; f += $2; s += $3}
        END {print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"; exit f > 0 || p == 0}'
