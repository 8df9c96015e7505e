#!/bin/sh
# Proves that Debian packages have the versions that were asked for. Usage: check-debs.sh NAME=VERSION...
set -eu
for pin in "$@"; do
    found=$(dpkg-query --show --showformat='${Version}' "${pin%%=*}")
    if [ "$found" != "${pin#*=}" ]; then
        echo "check-debs: ${pin%%=*} is $found, wanted is ${pin#*=}" >&2
        exit 1
    fi
done
