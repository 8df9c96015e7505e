#!/bin/bash
# Makes the empty venv of the image. Usage: make-venv.sh python3.11
set -euo pipefail
python=$1
export UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1
/run/graft/tools/uv venv --quiet --no-project --python "/usr/bin/$python" /opt/venv
find /opt -depth -exec touch --no-dereference --date=@1577836800 {} +
/opt/venv/bin/python -c 'import sys; assert sys.prefix == "/opt/venv"'
