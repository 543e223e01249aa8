#!/bin/sh
# No line beyond 120 columns, no blank at the end of a line, no tab but where make wants one: in sources, scripts and
# prose. Reports that the benchmarks write and rows of tables that tests write may be wider. Run by `make check-format`.
set -u
export LC_ALL=C.UTF-8
failed=0
tab=$(printf '\t')

# $1: what is wrong, $2: the pattern that finds it, then the files; the first ten places are shown.
forbid() {
    what=$1 pattern=$2
    shift 2
    found=$(grep -nHE "$pattern" "$@" | cut -c1-100)
    [ -z "$found" ] && return
    echo "check-format: $what in $(echo "$found" | wc -l) lines:" >&2
    echo "$found" | head -10 >&2
    failed=1
}

code=$(find include src tests bench weights \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.inc' -o -name '*.py' \
    -o -name '*.sh' -o -name '*.in' -o -name '*.1' -o -name '*.bash' -o -name '*.zsh' -o -name '*.fish' \) | sort)
code="$code $(ls .clang-format .clang-tidy .cppcheck .gitignore .ci/run LICENSE)"
make="Makefile $(find src tests bench -name '*.mk' | sort)"
prose="$(ls ./*.md) $(find src tests weights -name '*.md' | sort)"

forbid "more than 120 columns" '^.{121,}' $code $make
forbid "more than 120 columns" '^[^|].{120,}' $prose
forbid "blanks at the end" '[ ]+$|'"$tab"'$' $code $make $prose
forbid "tabs" "$tab" $code $prose
forbid "tabs" "[^$tab]$tab" $make
forbid "a pip command for mha on PyPI, which has no such project," 'pip install mh[a]([^-]|$)' $code $make $prose
[ "$failed" = 0 ] &&
    echo "$(echo $code $make $prose | wc -w) files: no line beyond 120 columns, no tab, no blank at an end"
exit "$failed"
