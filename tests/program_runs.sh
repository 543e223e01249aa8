#!/bin/sh
# A few runs of the whole program under a checker of memory: program_runs.sh FOLDER CHECKER... PROGRAM
# Stops at the first that the checker, or the program itself, complains about.
set -eu
folder=$1
shift
mkdir -p "$folder"
for arguments in "forward --seq 5 --d-model 24 --heads 3 --output $folder/y.npy --trace $folder/t.safetensors" \
    "check tests/vectors/torch_cross.safetensors" "compare $folder/y.npy $folder/t.safetensors:output" \
    "params --preset bert-base-cased --format csv" "diagnose tests/vectors/torch_causal.safetensors" "info --json"; do
    echo "mha $arguments"
    "$@" $arguments
done
