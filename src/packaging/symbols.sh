#!/bin/sh
# Prints a symbols file of Debian anew for a library: names keep the version that had them first, new ones get VERSION,
# and those that are gone are left out: symbols.sh FILE LIBRARY VERSION
set -eu
sed -n '/^[^ ]/p' "$1"
nm -D --defined-only "$2" | awk -v version="$3" '
    NR == FNR { if (/^ /) { sub(/@.*/, "", $1); first[$1] = $2 } next }
    { print " " $3 "@Base", $3 in first ? first[$3] : version }' "$1" - | LC_ALL=C sort
