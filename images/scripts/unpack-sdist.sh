#!/bin/bash
# Unpacks an sdist without its top folder, with modes as git knows them. Usage: unpack-sdist.sh FILE TARGET
set -euo pipefail
mkdir -p "$2"
tar --extract --gzip --file "$1" --directory "$2" --strip-components 1 --no-same-owner --no-same-permissions
chmod -R u=rwX,go=rX "$2"
test -f "$2/PKG-INFO"
