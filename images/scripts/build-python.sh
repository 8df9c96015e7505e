#!/bin/bash
# One wheel by the project's own PEP 517 backend, in the venv as it is, without network.
#
# usage: build-python.sh TREE OUT DISTRIBUTION VERSION
# UV and PYTHON name other programs than those of the stage (for tests).
set -euo pipefail
tree=$1 out=$2 distribution=$3 version=$4
uv=${UV:-/run/graft/tools/uv} python=${PYTHON:-/opt/venv/bin/python}
umask 022

# The tree has no history to take a version from: the plan says it, under the names that setuptools-scm and vLLM read.
export SETUPTOOLS_SCM_PRETEND_VERSION=$version VLLM_VERSION_OVERRIDE=$version
export UV_NO_CONFIG=1 UV_OFFLINE=1 UV_NO_CACHE=1 UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never
export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8 TZ=UTC PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
PATH=$(dirname "$python"):${CUDA_HOME:+$CUDA_HOME/bin:}$PATH
export PATH

jobs=${GRAFT_JOBS:-}
if [ -z "$jobs" ]; then
    # As many as there are cores, and as free memory holds.
    cores=$(nproc)
    memory=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo) / 1024 / 1024 / ${GRAFT_JOB_GB:-4}))
    jobs=$((memory < cores ? memory : cores))
    jobs=$((jobs < 1 ? 1 : jobs))
fi
# One compiler process for each: nvcc's own threads would multiply with them.
export MAX_JOBS=$jobs CMAKE_BUILD_PARALLEL_LEVEL=$jobs NVCC_THREADS=1
if [ -n "${CCACHE_DIR:-}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
fi

"$uv" build --wheel --no-build-isolation --python "$python" --out-dir "$out" "$tree"

# Exactly the wheel that was asked for: a backend that takes its version from elsewhere is found out here.
"$python" - "$out" "$distribution" "$version" <<'PY'
import sys
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

out, distribution, version = sys.argv[1:]
wheels = sorted(path.name for path in Path(out).glob("*.whl"))
found = [(name, str(made)) for name, made, _, _ in map(parse_wheel_filename, wheels)]
if found != [(canonicalize_name(distribution), version)]:
    sys.exit(f"build-python: the tree built {wheels or 'no wheel'}, not {distribution} {version}")
print(f"build-python: {wheels[0]}")
PY
