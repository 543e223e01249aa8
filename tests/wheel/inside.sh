#!/bin/sh
# The machine's libraries that a wheel needs: inside.sh FOLDER PLATFORM, PLATFORM being
# GLIBC_ARCH.whl as in the wheel's name ("2_34_x86_64.whl"). Nothing is run: a wheel for another machine will do.
set -eu
inside=$1 newest=$(echo "$2" | sed 's/^\([0-9]*\)_\([0-9]*\)_.*/\1.\2/')
failed=0
wrong() { echo "check-wheel: $*" >&2; failed=1; }
symbols() { readelf -W --dyn-syms "$1"; }
core=$(echo "$inside"/mha/libmha.so.*) lab=$(echo "$inside"/mha/libmha-lab.so.*)
for file in "$core" "$lab" "$inside"/mha-*.data/scripts/mha; do
    name=${file##*/}
    for needed in $(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        case $needed in
        libc.so.6 | libm.so.6 | ld-linux-*) ;;
        "${core##*/}") [ "$file" = "$lab" ] || wrong "$name needs $needed" ;;
        *) wrong "$name needs $needed" ;;
        esac
    done
    # libmha has one byte of static TLS; libmha-lab looks for libmha in its own folder.
    allowed='STATIC_TLS$'
    [ "$file" != "$lab" ] || allowed='RUNPATH.*\[\$ORIGIN\]$'
    readelf -dW "$file" | grep -E 'RPATH|RUNPATH|TEXTREL|STATIC_TLS' | grep -v "$allowed" &&
        wrong "$name has one of these"
    taken=$(symbols "$file" | grep -o '@GLIBC_[0-9.]*' | sed 's/.*_//' | sort -Vu | tail -1)
    [ "$(printf '%s\n%s\n' "$taken" "$newest" | sort -V | tail -1)" = "$newest" ] ||
        wrong "$name takes what is newer than glibc $newest:" $(symbols "$file" | grep -o "[a-z0-9_]*@GLIBC_$taken")
    # Nothing of a BLAS is left open, which another one in the process could fill.
    symbols "$file" | awk '$7 == "UND" {print $8}' | grep -v '^mha__' | grep -iE 'openblas|cblas|gemm|json|zip|flate' &&
        wrong "$name leaves symbols of its own libraries open"
    readelf -SW "$file" | grep -q '\.debug_' && wrong "$name has debugging information"
    grep -qa "$PWD" "$file" && wrong "$name names the folder in which it was built"
done
for file in "$core" "$lab"; do
    symbols "$file" | awk '$7 != "UND" && $5 == "GLOBAL" || $5 == "WEAK" && $7 != "UND" {print $8}' |
        grep -vE '^(mha_|MHA_)' && wrong "${file##*/} shows these"
    [ "$(symbols "$file" | grep -v UND | grep -c ' mha_[a-z]')" -gt 60 ] || wrong "${file##*/} shows too little"
done
for licence in openblas jansson libzip zlib nettle; do
    [ -s "$(echo "$inside"/mha-*.dist-info/licenses/$licence.txt)" ] || wrong "no licence of $licence"
done
exit $failed
