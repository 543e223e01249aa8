#!/bin/sh
# The source archive: the same bytes when it is made once more, in other places and by other users, also of what was
# unpacked from it and has been built in; and all is in it that make asks for. archive.sh BUILD ARCHIVE MAKE
set -eu
build=$1 archive=$2 make=$3
stage=$build/packaging/archive
rm -rf "$stage"
mkdir -p "$stage/a" "$stage/a longer path"
failed=0
wrong() { echo "$*" >&2; failed=1; }
alone() { env -i PATH="$PATH" HOME=/ "$@"; } # as in a shell of its own
name=${archive##*/}
name=${name%.tar.gz}

(umask 077 && alone "$make" -s dist DIST="$stage/again") >"$stage/log"
cmp "$archive" "$stage/again/source/${archive##*/}" || wrong "the archive has other bytes when it is made again"
tar -tzf "$archive" | grep -v "^$name/" && wrong "files outside of $name"

tar -C "$stage/a" -xf "$archive"
cp -a "$stage/a/$name" "$stage/a longer path/"
for place in a "a longer path"; do
    tree=$stage/$place/$name
    mkdir -p "$tree/build/obj" "$tree/dist" "$tree/src/python/mha/__pycache__"
    touch "$tree/build/obj/built.o" "$tree/dist/old.tar.gz" "$tree/src/python/mha/__pycache__/mha.pyc"
    chmod -R g+w,o-r "$tree"
    touch "$tree/README.md"
    (cd "$tree" && alone "$make" -s dist) >"$stage/log" 2>"$stage/complaints"
    [ ! -s "$stage/complaints" ] || wrong "in \"$place\" make says: $(cat "$stage/complaints")"
    cmp "$archive" "$tree/dist/source/${archive##*/}" || wrong "unpacked in \"$place\", it makes another archive"
done

# Goals are only listed: a file that is missing ends that, too.
goals="all python test check-format check-rooms check-changed"
alone "$make" -n -C "$stage/a/$name" $goals >"$stage/log" 2>&1 || wrong "$goals: $(tail -5 "$stage/log")"
! grep -i 'not a git repository' "$stage/log" || wrong "make asks git where there is none"
[ "$failed" = 0 ] && echo "$(tar -tzf "$archive" | wc -l) files; the same bytes four times"
exit "$failed"
