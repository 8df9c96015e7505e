#!/bin/bash
# Installs the wheels of one layer from /run/graft/wheels, as its requirements.txt names them, hashes checked.
# A folder without requirements.txt (what a build stage made) is installed whole.
set -euo pipefail
# What starts Python imports what a wheel's .pth names, and its bytecode would hold the time of this build.
export PYTHONDONTWRITEBYTECODE=1
wheels=/run/graft/wheels
site=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The cache lies on the venv's file system and is gone with this step: unpacked once, linked, never copied.
export UV_CACHE_DIR=/opt/.uv-cache UV_LINK_MODE=hardlink UV_NO_CONFIG=1 UV_OFFLINE=1 UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never
started=$(mktemp)

if [ -f "$wheels/requirements.txt" ]; then
    what=(--require-hashes --requirement "$wheels/requirements.txt")
else
    what=()
    for wheel in "$wheels"/*.whl; do
        IFS=- read -r name version _ <<<"$(basename "$wheel")"
        what+=("$name==$version")
    done
fi
/run/graft/tools/uv pip install --python /opt/venv/bin/python --no-index --find-links "$wheels" --no-deps "${what[@]}"
# The file that uv locks the venv with is empty, everybody may write to it, and nothing reads it.
rm -rf "$UV_CACHE_DIR" /opt/venv/.lock
# What uv notes of the file that it installed from is a time of this host.
find "$site" -path '*.dist-info/uv_cache.json' -newer "$started" -print0 | while IFS= read -r -d '' note; do
    rm "$note"
    sed -i '/^[^,]*\.dist-info\/uv_cache\.json,/d' "${note%/*}/RECORD"
done

# Times of installation would make every build's layer another one.
find /opt -newer "$started" -exec touch --no-dereference --date=@1577836800 {} +
rm "$started"
/opt/venv/bin/python - "$site" <<'PY'
import importlib.metadata
import sys

assert any(importlib.metadata.distributions(path=[sys.argv[1]])), "nothing was installed"
PY
