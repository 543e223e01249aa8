#!/bin/sh
# Debian's packages are built again, without tests, by way of another folder, umask, time zone and locale, without a
# compiler's cache, one process at a time: the same bytes. reproducible.sh ARCHIVE SERIES FOLDER OTHER
set -eu
archive=$1 series=$2 folder=$3 other=$4
(umask 027 && CCACHE_DISABLE=1 TZ=Asia/Tokyo DEB_BUILD_OPTIONS="nocheck ${REPRODUCIBLE_OPTIONS:-parallel=1}" \
    sh src/packaging/debian.sh "$archive" "$series" "$other" >/dev/null)
failed=0
for file in "$folder"/*.deb "$folder"/*.dsc "$folder"/*.tar.*; do
    cmp "$file" "$other/${file##*/}" || failed=1
done
[ "$failed" = 0 ] && (cd "$other" && sha256sum -- *.deb *.dsc *.tar.*)
exit "$failed"
