#!/bin/sh
# After the last package: nothing of the host, of this moment or of the way it was made stays.
# $1  the root file system
set -eu
cd "$1"

# mmdebstrap copies the first two from the host, and its package source names a folder of the host.
rm -f etc/resolv.conf etc/hostname etc/machine-id
rm -rf etc/apt var/lib/apt var/cache/apt
mv etc/dpkg/dpkg.cfg.d/99mmdebstrap etc/dpkg/dpkg.cfg.d/graft

# Written with the time or in the order of this run.
rm -rf var/log var/cache/ldconfig/aux-cache var/cache/debconf/*-old var/lib/dpkg/*-old
mkdir -p var/log
for account in passwd group shadow gshadow subuid subgid; do
    rm -f "etc/$account-"
done

# Bytecode that does not look at the source's mtime: one that a layer changes would make it stale.
find usr/lib -name __pycache__ -type d -prune -exec rm -rf {} +
for python in usr/bin/python3.[0-9]*; do
    case ${python##*/} in *[!a-z0-9.]*) continue ;; esac
    if [ -x "$python" ]; then
        PYTHONHASHSEED=0 chroot . "/$python" -I -m compileall -q -f --invalidation-mode unchecked-hash \
            "/usr/lib/${python##*/}"
    fi
done
