#!/bin/bash
# Unpacks a tar file of a known hash without its top folder. Usage: unpack-archive.sh FILE SHA256 TARGET
set -euo pipefail
file=$1 sha256=$2 target=$3
found=$(sha256sum <"$file")
test "${found%% *}" = "$sha256" || { echo "unpack-archive: $file is ${found%% *}, wanted is $sha256" >&2; exit 1; }
mkdir -p "$target"
tar --extract --file "$file" --directory "$target" --strip-components 1 --no-same-owner --no-same-permissions
chmod -R u=rwX,go=rX "$target"
test -n "$(ls -A "$target")" || { echo "unpack-archive: $file holds nothing below a top folder" >&2; exit 1; }
