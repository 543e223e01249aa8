#!/bin/sh
# Checks run_test.sh and summary.sh with programs that print what cmocka does, before and since its version 1.1.6:
# results_test.sh FOLDER
set -u
folder=$1 failed=0
rm -rf "$folder" && mkdir -p "$folder"

# expect NAME KIND "PASSED FAILED SKIPPED" CODE LINES...: a program prints these lines and ends with this code.
expect() {
    name=$1 kind=$2 counts=$3 code=$4
    shift 4
    printf '%s\n' "$@" >"$folder/$name.lines"
    KIND=$kind sh tests/run_test.sh "$folder/results" "$name" sh -c "cat '$folder/$name.lines'; exit $code" >/dev/null
    found=$(cat "$folder/results/$name.result")
    [ "$found" = "$counts" ] || { echo "$name: counted \"$found\", expected \"$counts\""; failed=1; }
}

expect old cmocka "4 2 1" 2 "[==========] Running 7 test(s)." "[  PASSED  ] 4 test(s)." \
    "[  SKIPPED ] 1 test(s), listed below:" "[  FAILED  ] 2 test(s), listed below:"
expect new cmocka "4 3 2" 3 "[==========] tests: Running 9 test(s)." "[  PASSED  ] 4 test(s)." \
    "[  SKIPPED ] tests: 2 test(s), listed below:" "[  SKIPPED ] one" "[  SKIPPED ] two" \
    "skipped: one: there is no moon" "skipped: two: there is no moon" "[  FAILED  ] tests: 3 test(s), listed below:"
expect group cmocka "1 2 0" 2 "[  PASSED  ] 1 test(s)." "[  FAILED  ] page: 9 test(s): 2 test(s), listed below:"
expect none cmocka "0 1 0" 0 "[==========] tests: Running 0 test(s)." "[  PASSED  ] 0 test(s)."
expect silent cmocka "0 1 0" 0 ""
expect crash cmocka "0 1 0" 139 "[==========] Running 7 test(s)."
expect lost cmocka "3 1 0" 1 "[  PASSED  ] 3 test(s)."
expect other "" "1 0 0" 0 "all is well"
expect skipping "" "1 0 1" 0 "skipped: there is no moon"

says=$(sh tests/summary.sh "$folder/results") && { echo "summary.sh passes"; failed=1; }
for line in "14 passed, 11 failed, 4 skipped" "  SKIP  there is no moon: new (2), skipping" "  FAIL  none"; do
    echo "$says" | grep -qxF "$line" || { echo "summary.sh does not print \"$line\":"; echo "$says"; failed=1; }
done
exit "$failed"
