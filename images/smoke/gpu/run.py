"""All tests of the GPU tier without an engine: one JSON line for each, exit 1 when one is red.

python /graft/smoke/gpu/run.py            in the image, wherever its smoke tests lie; GRAFT_FACTS names facts.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: File -> the distribution that the image has to hold for it. graft.gate.tests has the same table.
TESTS = {"kernels": None, "nccl": "torch", "serve": "vllm"}


def main() -> int:
    facts = Path(os.environ.setdefault("GRAFT_FACTS", str(HERE.parent / "facts.json")))
    try:
        packages = json.loads(facts.read_bytes())["packages"]
    except (OSError, ValueError, KeyError) as problem:
        print(f"{facts}: {problem}; GRAFT_FACTS names the facts.json of the image", file=sys.stderr)
        return 2
    red = 0
    for name, needed in TESTS.items():
        if needed is None or needed in packages:
            red |= subprocess.run([sys.executable, HERE / f"{name}.py"], check=False).returncode != 0
    return int(red)


if __name__ == "__main__":
    raise SystemExit(main())
