"""One patch test in a container that is thrown away: `python try-patch.py JOB.json`.

JOB: {"files": {path: sha256, or null where there must be no file}, "is_put": BOOL, "runner": FILE, "test": FILE}.
Where files were put into the container, those that must not be there and cached bytecode of the modules among them go.
Then every file must have its hash, or nothing runs (exit 3): a test on other bytes would say nothing. Then this process
becomes the runner, whose last line on stdout is the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

NO_STATE = 3


def main(job_file: str) -> int:
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    wrong = [why for path, digest in job["files"].items() for why in check(Path(path), digest, job["is_put"])]
    if wrong:
        print("try-patch.py: " + "; ".join(wrong), file=sys.stderr)
        return NO_STATE
    sys.stdout.flush()
    # From Python 3.11 on the folder of a script can be kept off sys.path; before, the runner's holds nothing else.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    os.execv(sys.executable, [sys.executable, *safe, job["runner"], job["test"]])


def check(file: Path, digest: str | None, is_put: bool) -> list[str]:
    """What is wrong with one file, after what needs a removal was made right."""
    try:
        if is_put and file.suffix == ".py":
            # Beside the source, and below PYTHONPYCACHEPREFIX.
            for folder in {file.parent / "__pycache__", Path(cache_from_source(str(file))).parent}:
                for cached in folder.glob(file.stem + ".*.pyc"):
                    cached.unlink()
        if is_put and digest is None and file.exists():
            file.unlink()
    except OSError as problem:
        return [f"{problem.filename}: {problem.strerror}"]
    found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    return [] if found == digest else [f"{file} has sha256 {found}, wanted {digest}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
