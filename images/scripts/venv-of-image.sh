#!/bin/bash
# The venv of an image whose base brings its own Python and CUDA toolkit.
#
# usage: venv-of-image.sh MODE PYTHON TOOLKIT      (PYTHON: python3.12; TOOLKIT: where nvcc lies below bin/)
#   new          an empty venv
#   over-system  one that also sees what the image installed for its own Python
#   kept         the image has /opt/venv, and it stays
set -euo pipefail
mode=$1 python=$2 toolkit=$3
export UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1
case $mode in
    new) options=(--quiet) ;;
    over-system) options=(--quiet --system-site-packages) ;;
    kept) options=() ;;
    *) echo "venv-of-image: unknown mode $mode" >&2; exit 2 ;;
esac
if [ "$mode" = kept ]; then
    test -x /opt/venv/bin/python || { echo "venv-of-image: the base has no /opt/venv" >&2; exit 1; }
else
    test ! -e /opt/venv || { echo "venv-of-image: the base has a /opt/venv: say venv: kept in build.yaml" >&2; exit 1; }
    /run/graft/tools/uv venv "${options[@]}" --no-project --python "$(command -v "$python")" /opt/venv
    find /opt/venv -depth -exec touch --no-dereference --date=@1577836800 {} +
fi
wanted=${python#python} /opt/venv/bin/python - <<'PY'
import os
import sys

found = f"{sys.version_info.major}.{sys.version_info.minor}"
assert sys.prefix == "/opt/venv", sys.prefix
assert found == os.environ["wanted"], f"the venv has Python {found}, build.yaml says {os.environ['wanted']}"
PY
test -x "$toolkit/bin/nvcc" || { echo "venv-of-image: there is no $toolkit/bin/nvcc" >&2; exit 1; }
