#!/bin/sh
# The program mha-mpi on 1 to 8 ranks: every recorded case that a scheme can take, its exit codes, and that one rank
# alone speaks.
# program.sh MPIEXEC PROGRAM
set -u
launcher=$1 program=$2
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
log=$(mktemp)
trap 'rm -rf "$log" "$log.err" "$log.d"' EXIT

. "$(dirname "$0")/can_start.sh"
failed=0
# run CODE RANKS WORDS ARGUMENT...: the exit code, and a line of the output or of the errors that has the words
run() {
    expected=$1 ranks=$2 words=$3
    shift 3
    timeout -k 5 "${RANKS_SECONDS:-600}" "$launcher" -n "$ranks" "$program" "$@" >"$log" 2>"$log.err" </dev/null
    code=$?
    if [ "$code" != "$expected" ] || ! cat "$log" "$log.err" | grep -q -e "$words"; then
        echo "$ranks ranks, $*: exit code $code, expected $expected and \"$words\":"
        cat "$log" "$log.err"
        failed=1
    fi
}
for ranks in ${RANKS:-1 2 3 4 7 8}; do
    run 4 "$ranks" "passed, 0 failed" check tests/vectors/*.safetensors ${CONFORMANCE_DIR:-} # rotations have no output
    tail -n 1 "$log"
    run 1 "$ranks" "lookup/wrong_port.safetensors: ring on exact: FAILED" check weights/lookup/wrong_port.safetensors
    run 1 "$ranks" "[1-9][0-9]* failed, [0-9]* that a scheme cannot take; 1 cases skipped" check \
        weights/lookup/wrong_port.safetensors tests/vectors/rope_linear.safetensors
done
run 0 3 "exactly the layer of one process" params --d-model 48 --heads 12 --kv-heads 3
run 0 4 "2,080 of them replicas" params --scheme tensor --d-model 64 --heads 8 --kv-heads 2
run 0 2 '"equal": true' params --scheme=ring --json --preset gpt2
run 0 2 "exactly the layer of one process" params --weights weights/lookup
run 2 2 "nothere" params --weights nothere
run 0 3 '"equal": true' params --json --d-model 12 --heads 3
run 0 2 "random weights and inputs (seed 0)" forward --d-model 32 --heads 4 --seq 6
run 0 2 '"random": "random weights and inputs (seed 5)"' forward --d-model 32 --heads 4 --seq 6 --seed 5 --json
run 0 2 "from that of one process" forward --weights weights/lookup --seq 6
run 0 2 "; [0-9.]*e-0[567] is allowed[.]" forward --d-model 128 --heads 4 --seq 64 # what the checker allows a result
run 0 2 "is allowed, by the error bound" forward --d-model 128 --heads 4 --seq 3000 --scheme ring
run 2 2 "found one of mha bench" bench --shape x
run 0 3 "to the last bit" forward --scheme zigzag --d-model 32 --heads 4 --seq 19 --causal --rope half --path exact
run 0 2 '"same_bits": true' forward --scheme ulysses --path exact --d-model 32 --heads 4 --seq 5 --json
run 0 3 "expected a number that divides .* found 3" forward --d-model 32 --heads 4 --seq 6
run 0 3 "cache on 3 ranks" forward --scheme cache --causal --d-model 32 --heads 4 --kv-heads 2 --seq 7 --rope half
run 0 3 "^3 ranks, 3 on a node of [0-9]* cores" bench --d-model 36 --heads 3 --seq 6
grep -q "The fastest was [a-z]*; the model says" "$log" || { echo "bench does not say which is the fastest"; failed=1; }
run 4 2 "passed, 0 failed" check --scheme cache tests/vectors
run 0 2 "passed, 0 failed, .*; 0 cases skipped" check --scheme ring tests/vectors/sdpa_causal_top_left.safetensors
vectors=tests/vectors
run 4 2 "left.safetensors: skipped: .*expected a scheme" check --scheme tensor $vectors/sdpa_causal_top_left.safetensors
run 4 2 '"cases_skipped": 1' check --json $vectors/rope_linear.safetensors $vectors/sdpa_causal_top_left.safetensors
run 0 2 "Usage: mpirun" --help
run 0 1 "Usage: mpirun" forward --help
run 0 2 "^mha-mpi 0" --version
run 2 2 "expected forward, bench, params or check" bogus
run 2 2 "expected forward" # no command
run 2 2 'zigzag or cache, found "pipeline"' forward --scheme pipeline
run 2 2 'found ""' forward --scheme
run 2 2 "output: expected none with mha-mpi" forward --output x.npy
run 2 3 "(1, 2, 4)" forward --scheme tensor --d-model 32 --heads 4 --seq 6
run 2 3 "(1, 2, 4)" params --scheme tensor --d-model 32 --heads 4
run 2 2 "expected FILE-or-DIRECTORY" check
run 2 2 "nothere" check nothere
mkdir "$log.d" && run 2 2 "expected case files" check "$log.d"
run 4 2 "0 shared results passed" check tests/vectors/rope_linear.safetensors # no layer: nothing was checked
run 2 2 "kv-heads" params --heads 4 --kv-heads 3
run 2 2 "heads" forward --heads 7
[ "$(grep -c mha-mpi: "$log.err")" = 1 ] || { echo "an error was said more than once"; failed=1; }
exit "$failed"
