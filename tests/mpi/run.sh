#!/bin/sh
# Runs a program on 1, 2, 3, 4, 7 and 8 ranks of this machine, however few cores it has, each within a time that only
# a rank which waits for ever exceeds: run.sh MPIEXEC PROGRAM [ARGUMENT...]. Says why where MPI cannot start.
set -u
launcher=$1
shift
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

. "$(dirname "$0")/can_start.sh"
for ranks in ${RANKS:-1 2 3 4 7 8}; do
    timeout -k 5 "${RANKS_SECONDS:-600}" "$launcher" -n "$ranks" "$@"
    code=$?
    [ "$code" != 124 ] || echo "$ranks ranks were still waiting after ${RANKS_SECONDS:-600} seconds" >&2
    [ "$code" = 0 ] || exit "$code"
done
