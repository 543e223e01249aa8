#!/bin/sh
# Debian's packages keep Debian's policy: lintian finds no error and no warning but what an override explains, and no
# override is without a reason. lintian.sh FOLDER
set -eu
if ! command -v lintian >/dev/null; then
    echo "lintian is not installed: apt-get install lintian" >&2
    exit 1
fi
lintian --allow-root --show-overrides --fail-on error,warning "$1"/*.changes
