#!/bin/sh
# Writes the source archive; the same sources give the same bytes: dist.sh NAME ARCHIVE FOLDER...
# Its files are those that git knows. In an unpacked archive they are all but caches of Python and what is in FOLDER...,
# where make builds. Their time is SOURCE_DATE_EPOCH, else that of the commit, else that of the unpacked Makefile.
set -eu
export LC_ALL=C
name=$1 archive=$2
shift 2
mkdir -p "${archive%/*}"
list=$archive.files
trap 'rm -f "$list" "$archive.part"' EXIT

if [ -e .git ]; then
    git ls-files >"$list"
    time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    git diff --quiet HEAD || echo "dist: with changes that are not committed" >&2
else
    find . \( -type f -o -type l \) ! -path '*/__pycache__/*' | sed 's|^\./||' >"$list"
    for folder; do
        grep -v "^$folder/" "$list" >"$list.kept" || true
        mv "$list.kept" "$list"
    done
    time=${SOURCE_DATE_EPOCH:-$(stat -c %Y Makefile)}
fi
sort -o "$list" "$list"
tar -c --format=ustar --no-recursion --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$time" \
    --transform="s|^|$name/|" -T "$list" | gzip -9n >"$archive.part"
tar -tzf "$archive.part" | wc -l | grep -qx "$(wc -l <"$list")" || { echo "dist: tar left files out" >&2; exit 1; }
mv "$archive.part" "$archive"
echo "$archive: $(wc -l <"$list") files, $(wc -c <"$archive") bytes"
