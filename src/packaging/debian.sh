#!/bin/sh
# Builds Debian's packages of a source archive: debian.sh ARCHIVE SERIES FOLDER
# Versions, dates, and the series of the soname are filled into the files of src/packaging/debian and into their names.
# DEBFULLNAME, DEBEMAIL and DEB_BUILD_OPTIONS mean what they mean to Debian's own tools.
set -eu
umask 022
export LC_ALL=C.UTF-8
archive=$1 series=$2 folder=$3
name=${archive##*/}
name=${name%.tar.gz}
version=${name#mha-}

rm -rf "$folder"
mkdir -p "$folder"
cp "$archive" "$folder/mha_$version.orig.tar.gz"
tar -C "$folder" -xf "$archive"
tree=$folder/$name
from=$tree/src/packaging/debian
maintainer="${DEBFULLNAME:-the mha authors} <${DEBEMAIL:-maintainers@mha.invalid}>"
(cd "$from" && find . -type f) | while read -r file; do
    to=$tree/debian/$(echo "$file" | sed "s|^\./||; s|@SERIES@|$series|")
    mkdir -p "${to%/*}"
    cp -p "$from/$file" "$to"
    sed -i -e "s|@SERIES@|$series|g" -e "s|@VERSION@|$version|g" -e "s|@MAINTAINER@|$maintainer|g" \
        -e "s|@DATE@|$(date -u -R -r "$tree/Makefile")|g" "$to"
done

# Nothing of the make, of the flags or of another python3 from where this is called; a cache for the compiler may be.
path=/usr/sbin:/usr/bin:/sbin:/bin
case :$PATH: in *:/usr/lib/ccache:*) path=/usr/lib/ccache:$path ;; esac
cd "$tree"
env -i PATH="$path" HOME="${HOME:-/}" LC_ALL="$LC_ALL" DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-}" \
    $(env | grep '^CCACHE_[A-Z]*=[^ ]*$') dpkg-buildpackage -us -uc >"$folder/log" 2>&1 || {
    tail -40 "$folder/log"
    echo "deb: dpkg-buildpackage failed; all that it said is in $folder/log" >&2
    exit 1
}
cd "$folder"
for package in *.deb; do
    printf '%8d KiB  %8d KiB installed  %s\n' $(($(wc -c <"$package") / 1024)) \
        "$(dpkg-deb -f "$package" Installed-Size)" "$package"
done
