#!/bin/sh
# Holds the includes of src/ against src/README.md: a room uses those behind it in the order below, the program what is
# public, its own rooms and what is listed, libmha_mpi what is public, base and visibility.h. No file includes itself
# through others; no folder needs itself through others. The steps of the float paths read what was planned, not the
# settings: they do not include call/definition.h. A type has one definition. Run by `make check-rooms`.
set -u
export LC_ALL=C.UTF-8

find src -name '*.[ch]' | sort | xargs awk '
    BEGIN {
        rooms = split("cli mpi picture bench verify models split attention formats lab compute params base", order, " ")
        for (i = 1; i <= rooms; i++)
            rank[order[i]] = i
        of_program = "^(cli|picture|bench|lab|base)/|^models/claims/|^formats/files/atomic_file\\.h$|" \
                     "^attention/layer/layer\\.h$"
        by_definition = "^src/attention/(call/|core/exact/|core/backward/|plan|validate|apart|cache/resolve)"
    }
    function folder(name) {
        sub("/[^/]*$", "", name)
        return name
    }
    function join(from, to) {
        if (from != to && !((from, to) in arrow)) {
            arrow[from, to] = 1
            targets[from] = targets[from] " " to
        }
    }
    # Names what an arrow leads to twice on one way from `at`.
    function walk(at, way,   next_ones, n, i) {
        state[at] = 1
        n = split(targets[at], next_ones, " ")
        for (i = 1; i <= n; i++)
            if (!(next_ones[i] in state))
                walk(next_ones[i], way " -> " next_ones[i])
            else if (state[next_ones[i]] == 1) {
                print "check-rooms: " way " -> " next_ones[i] ": a circle" > "/dev/stderr"
                failed = 1
            }
        state[at] = 2
    }
    function wrong(what) {
        print "check-rooms: " FILENAME ":" FNR ": " what > "/dev/stderr"
        failed = 1
    }
    { split(FILENAME, path, "/"); room = path[2] }
    /^#include "/ && room != "python" {
        split($0, quoted, "\"")
        split(quoted[2], target, "/")
        if (!(target[1] in rank))
            next
        includes++
        from = substr(FILENAME, 5)
        join(from, quoted[2])
        join(folder(from), folder(quoted[2]))
        if (rank[target[1]] < rank[room])
            wrong(room " includes " quoted[2])
        else if (room == "cli" && path[3] != "mpi" && quoted[2] !~ of_program)
            wrong("the program includes " quoted[2])
        else if (room == "mpi" && target[1] != "mpi" && target[1] != "base" &&
                 quoted[2] != "attention/visibility/visibility.h")
            wrong("mpi includes " quoted[2])
        else if (quoted[2] ~ /call\/definition\.h$/ && (FILENAME ~ /\.h$/ ||
                 (room == "attention" && FILENAME !~ by_definition)))
            wrong("a step of a float path reads the settings: " quoted[2])
    }
    /^typedef (struct|enum|union) mha__[a-z0-9_]+ \{/ {
        if ($3 in defined)
            wrong($3 " is defined in " defined[$3] ", too")
        defined[$3] = FILENAME
        types++
    }
    END {
        for (name in targets)
            from_any[name] = 1
        for (name in from_any)
            if (!(name in state))
                walk(name, name)
        if (!failed)
            print includes " includes follow the order of the rooms; " types " types have one definition"
        exit failed || includes == 0 || types == 0
    }'
