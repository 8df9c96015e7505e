#!/bin/sh
# Installs every .deb of a folder at once, without network: unpack all, then configure in dpkg's order.
# $1  folder with the .deb files, which hold everything they depend on that the image lacks
set -eu
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8

set -- "$1"/*.deb
if [ ! -e "$1" ]; then
    echo "install-debs: no .deb files there" >&2
    exit 1
fi
dpkg --force-unsafe-io --unpack "$@"
dpkg --force-unsafe-io --configure --pending

# What depends on the moment, not on the packages.
rm -rf /var/log/dpkg.log /var/log/alternatives.log /var/log/apt /var/cache/ldconfig/aux-cache \
    /var/cache/debconf/*-old /var/lib/dpkg/*-old

# Proof: nothing half installed, nothing missing.
dpkg --audit
test -z "$(dpkg --audit)"
