#!/bin/sh
# Before the first package is unpacked: the links of merged /usr, as debootstrap makes them.
# (mmdebstrap's own hook for this reads debootstrap's functions from the host when they are there.)
# $1  the root file system
set -eu
for name in bin sbin lib lib64; do
    if [ ! -e "$1/$name" ]; then
        mkdir -p "$1/usr/$name"
        ln -s "usr/$name" "$1/$name"
    fi
done
