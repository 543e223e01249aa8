#!/bin/sh
# Runs a command where python3 has what the tests of the Python module need, else says what is missing:
# run.sh PYTHON COMMAND
if missing=$("$1" -c 'import numpy, pytest' 2>&1); then
    exec sh -c "$2"
fi
echo "skipped: the Python module: $(echo "$missing" | tail -n 1) (make deps installs python3-numpy, python3-pytest)"
