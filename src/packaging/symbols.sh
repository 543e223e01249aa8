#!/bin/sh
# Prints a symbols file of Debian anew for a library: names keep the version that had them first, new ones get VERSION,
# and those that are gone are left out; names for libmha-lab alone are one line: symbols.sh FILE LIBRARY VERSION SERIES
set -eu
sed -n '/^[^ ]/p' "$1"
nm -D --defined-only "$2" | awk -v version="$3" -v series="$4" '
    NR == FNR { if (/^ /) { sub(/@.*/, "", $1); first[$1] = $2 } next }
    $3 ~ /(^|@)MHA_PRIVATE_/ { private = 1; next }
    {
        name = node = $3
        sub(/@.*/, "", name)
        if (!sub(/.*@+/, "", node) && $2 != "A")
            node = "Base"
        sub(series "$", "@SERIES@", node)
        sub(series "$", "@SERIES@", name)
        print " " name "@" node, name in first ? first[name] : version
    }
    END { if (private) print " (symver)MHA_PRIVATE_@VERSION@ @VERSION@" }' "$1" - | LC_ALL=C sort
