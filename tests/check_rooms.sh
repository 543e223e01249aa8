#!/bin/sh
# Holds the includes of src/ against src/README.md: a room uses those behind it in the order below, the program what is
# public, its own rooms and what is listed, libmha_mpi what is public, base and visibility.h. A type has one definition.
# Run by `make check-rooms`.
set -u
export LC_ALL=C.UTF-8

find src -name '*.[ch]' | sort | xargs awk '
    BEGIN {
        rooms = split("cli mpi picture bench verify models split attention formats compute params base", order, " ")
        for (i = 1; i <= rooms; i++)
            rank[order[i]] = i
        of_program = "^(cli|picture|bench|base)/|^models/claims/|^formats/atomic_file\\.h$|^attention/work\\.h$|" \
                     "^attention/visibility/pattern\\.h$"
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
        if (rank[target[1]] < rank[room])
            wrong(room " includes " quoted[2])
        else if (room == "cli" && path[3] != "mpi" && quoted[2] !~ of_program)
            wrong("the program includes " quoted[2])
        else if (room == "mpi" && target[1] != "mpi" && target[1] != "base" &&
                 quoted[2] != "attention/visibility/visibility.h")
            wrong("mpi includes " quoted[2])
    }
    /^typedef (struct|enum|union) mha__[a-z0-9_]+ \{/ {
        if ($3 in defined)
            wrong($3 " is defined in " defined[$3] ", too")
        defined[$3] = FILENAME
        types++
    }
    END {
        if (!failed)
            print includes " includes follow the order of the rooms; " types " types have one definition"
        exit failed || includes == 0 || types == 0
    }'
