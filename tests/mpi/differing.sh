#!/bin/sh
# Ranks of mha-mpi that find different things to do: other commands, options, lists of files, files, words in them, or
# a machine that fails on one rank. All end, with one exit code and one line that says why.
# differing.sh MPIEXEC PROGRAM
set -u
launcher=$1 program=$2 seconds=${DIFFERING_SECONDS:-300} failed=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/can_start.sh"

# Each rank runs the program on its own file of arguments, $work/RANK, a line for each. MPI tells a rank its number only
# once the program has begun: the launcher starts them apart.
# run CODE WORDS: the exit code, and a line that has the words; nothing is said twice
run() {
    expected=$1 words=$2
    set --
    for rank in 0 1 2; do
        [ ! -e "$work/$rank" ] || set -- "$@" ${1:+:} -n 1 sh "$work/start" "$program" "$work/$rank"
    done
    timeout -k 2 "$seconds" "$launcher" "$@" >"$work/log" 2>&1 </dev/null
    code=$?
    said=$(grep -c -e "mha-mpi:" "$work/log")
    if [ "$code" != "$expected" ] || ! grep -q -e "$words" "$work/log" || [ "$said" -gt 1 ]; then
        echo "exit code $code, expected $expected and \"$words\":"
        for rank in 0 1 2; do
            [ ! -e "$work/$rank" ] || echo "  rank $rank: $(tr '\n' ' ' <"$work/$rank")"
        done
        sed 's/^/  /' "$work/log"
        failed=1
    fi
    rm -f "$work"/[0-2]
}
# is RANK ARGUMENT...: what a rank is asked for
is() {
    rank=$1
    shift
    printf '%s\n' "$@" >"$work/$rank"
}
cat >"$work/start" <<'END'
program=$1 file=$2
set --
while read -r word; do
    set -- "$@" "$word"
done <"$file"
exec "$program" "$@"
END

vectors=tests/vectors
case=$vectors/$(ls $vectors | grep -m 1 '^torch.*safetensors$')
mkdir "$work/one" "$work/two" "$work/more" "$work/other" "$work/broken" "$work/unknown" "$work/none"
for folder in one two more other unknown broken; do
    cp "$case" "$work/$folder/a.safetensors"
done
cp "$case" "$work/more/b.safetensors"
mv "$work/other/a.safetensors" "$work/other/z.safetensors"
head -c 100 "$case" >"$work/broken/a.safetensors"
# a word that nobody knows, of the same length as one that is a note
sed 's/"source":/"sourze":/' "$case" >"$work/unknown/a.safetensors"
cmp -s "$case" "$work/unknown/a.safetensors" && { echo "$case has no word source"; failed=1; }
layer='--d-model 32 --heads 4 --seq 8'

# a case that is skipped on one rank is skipped on all
is 0 check "$work/one"; is 1 check "$work/unknown"; run 4 "1 cases skipped"
is 0 check "$work/unknown"; is 1 check "$work/one"; run 4 "1 cases skipped"
is 0 check --json "$work/one"; is 1 check --json "$work/one"; is 2 check --json "$work/unknown"
run 4 'rank 2: unknown metadata key sourze'
# the same cases under other paths
is 0 check "$work/one"; is 1 check "$work/two"; run 0 "passed, 0 failed"
# lists that differ
is 0 check "$work/one"; is 1 check "$work/more"; run 2 "the same cases"
is 0 check "$work/more"; is 1 check "$work/one"; run 2 "the same cases"
is 0 check "$work/one"; is 1 check "$work/one"; is 2 check "$work/other"; run 2 "the same cases"
is 0 check "$work/one"; is 1 check "$work/none"; run 2 "expected case files"
is 0 check "$work/none"; is 1 check "$work/one"; run 2 "expected case files"
is 0 check "$work/one/a.safetensors"; is 1 check "$work/absent/a.safetensors"; run 2 "absent/a.safetensors"
is 0 check "$work/absent/a.safetensors"; is 1 check "$work/one/a.safetensors"; run 2 "absent/a.safetensors"
is 0 check "$work/one"; is 1 check "$work/broken"; run 2 "broken/a.safetensors"
# other cases under one name
cp "$vectors/$(ls $vectors | grep -m 1 '^jax.*safetensors$')" "$work/two/a.safetensors"
is 0 check "$work/one"; is 1 check "$work/two"; run 2 "another case than rank 0"
is 0 check "$work/two"; is 1 check "$work/one"; run 2 "another case than rank 0"
# commands and options that differ
for pair in 'forward params' 'params forward' 'bench forward' 'forward bench' 'params bench'; do
    # shellcheck disable=SC2086
    { is 0 ${pair% *} $layer; is 1 ${pair#* } $layer; run 2 "other words than rank 0"; }
done
# shellcheck disable=SC2086
{
is 0 forward $layer; is 1 check "$work/one"; run 2 "other words than rank 0"
is 0 forward $layer; is 1 forward $layer --scheme ring; run 2 "other words than rank 0"
is 0 forward $layer --scheme ring; is 1 forward $layer --scheme tensor; run 2 "other words than rank 0"
is 0 forward $layer; is 1 forward $layer --causal; run 2 "other words than rank 0"
is 0 forward $layer --causal; is 1 forward $layer; run 2 "other words than rank 0"
is 0 forward $layer; is 1 forward --d-model 48 --heads 4 --seq 8; run 2 "other words than rank 0"
is 0 forward $layer; is 1 forward $layer; is 2 forward $layer --path exact; run 2 "other words than rank 0"
is 0 params $layer; is 1 params $layer --bogus; run 2 "bogus"
is 0 params $layer --bogus; is 1 params $layer; run 2 "bogus"
is 0 forward $layer; is 1 bogus; run 2 "expected forward, bench"
is 0 forward $layer; is 1 --version; run 2 "other words than rank 0"
is 0 --help; is 1 forward $layer; run 2 "other words than rank 0"
is 0 forward --help; is 1 forward $layer; run 2 "other words than rank 0"
is 0 forward $layer --threads 1; is 1 forward $layer --threads 2; run 0 "of one process" # each machine has its own
is 0 check "$work/one" --path exact; is 1 check "$work/one"; run 2 "other words than rank 0"
}
# files of weights and inputs under other paths, that are there on only one rank, or of other shapes
cp -r weights/lookup "$work/lookup"
is 0 forward --weights weights/lookup --seq 6; is 1 forward --weights "$work/lookup" --seq 6; run 0 "from that of one"
is 0 params --weights weights/lookup; is 1 params --weights "$work/lookup"; run 0 "exactly the layer of one process"
is 0 forward --weights weights/lookup --seq 6; is 1 forward --weights "$work/absent" --seq 6; run 2 "absent"
is 0 params --weights "$work/absent"; is 1 params --weights weights/lookup; run 2 "absent"
# files of other sizes: rows, and numbers of heads, of which two ranks can share only one
for rows in 1 8; do
    "$(dirname "$program")/mha" forward --quiet --d-model 32 --heads 4 --seq $rows --output "$work/$rows.npy"
done
for rows in '1 8' '8 1'; do
    is 0 forward --d-model 32 --heads 4 --input "$work/${rows% *}.npy"
    is 1 forward --d-model 32 --heads 4 --input "$work/${rows#* }.npy"
    run 2 "found different ones"
done
sed 's/"num_attention_heads": 6/"num_attention_heads": 3/' weights/lookup/config.json >"$work/lookup/config.json"
cmp -s weights/lookup/config.json "$work/lookup/config.json" && { echo "weights/lookup has no 6 heads"; failed=1; }
for command in forward params; do
    for folders in "weights/lookup $work/lookup" "$work/lookup weights/lookup"; do
        is 0 $command --scheme tensor --weights "${folders% *}"
        is 1 $command --scheme tensor --weights "${folders#* }"
        run 2 "divides 3 query heads .* found 2"
    done
done
[ "$failed" = 1 ] || echo "ranks that find different things to do end together"
exit "$failed"
