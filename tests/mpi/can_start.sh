# For the scripts in this folder: ends with a line that says why, where $launcher cannot start MHA_MPI (the program
# mha-mpi). A program that starts and crashes is a failure.
if ! why=$(timeout 60 "$launcher" -n 1 "${MHA_MPI:-build/mha-mpi}" --version 2>&1); then
    if echo "$why" | grep -qiE 'received signal|exited on signal|segmentation fault|sanitizer'; then
        echo "mha-mpi --version crashes: $why"
        exit 1
    fi
    echo "skipped: $launcher cannot start a program of MPI here: $(echo "$why" | grep -m 1 '[a-z]')"
    exit 0
fi
