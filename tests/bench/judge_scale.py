"""How long 500 patches over 5,000 files take to judge, and how much memory more patches take.

The files look like a Python project's: classes with methods, a few hundred lines. Each patch has two hunks in each of
two files; a tenth of them do not fit the version that they are judged against. Run by `make bench`, or by hand:
`PYTHONPATH=scripts .venv/bin/python tests/bench/judge_scale.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import graft
from graft.patching import SourceTree, judge
from graft.patchset import Patch, PatchRecord

FILES, PATCHES, METHODS = 5000, 500, 30


@dataclass(frozen=True)
class Scale:
    """seconds for all patches; MiB that judging took above what the files themselves take."""

    files: int
    patches: int
    seconds: float
    mebibytes: float
    verdicts: dict[str, int]


def measure(files: int = FILES, patches: int = PATCHES, *, with_base: bool = False) -> Scale:
    """Judge in a process of its own, so that its peak memory is its own. Raises CalledProcessError."""
    argv = [sys.executable, str(Path(__file__)), "--json", f"--files={files}", f"--patches={patches}"]
    env = {**os.environ, "PYTHONPATH": str(Path(graft.__file__).parents[1])}
    argv += ["--base"] if with_base else []
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    return Scale(**json.loads(done.stdout))


def source(number: int) -> list[str]:
    """The lines of one file."""
    lines = ["import os\n", "\n", "\n", f"class Model{number}:\n", f"    width = {number}\n"]
    for method in range(METHODS):
        lines += [
            "\n",
            f"    def step_{method}(self, value):\n",
            f"        width_{method} = self.width + {number} * {method}\n",
            f"        # Step {method} of {number}.\n",
            f"        if value > {method}:\n",
            f"            return self.step_{(method + 1) % METHODS}(value - {number})\n",
            f"        return os.path.join(str(value), str(width_{method}))\n",
        ]
    return lines


def patch(number: int, files: int) -> Patch:
    """Two hunks in each of two files; every tenth is made for lines that are not there."""
    text = []
    for step in range(2):
        target = (number * 2 + step) % files
        lines = source(target)
        path = f"demo/part{target % 50}/file{target}.py"
        text.append(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n")
        methods = sorted({number % METHODS, (number + METHODS // 2) % METHODS})
        for turn, method in enumerate(methods):
            at = lines.index(f"    def step_{method}(self, value):\n")
            before = lines[at - 1 : at + 6]
            old = "".join(f" {line}" for line in before[:2])
            changed = before[2] if number % 10 or turn else before[2].replace("self.width", "self.length")
            new = changed.replace("self.width", "self.height")
            rest = "".join(f" {line}" for line in before[3:])
            head = f"@@ -{at},7 +{at},7 @@ class Model{target}:\n"
            text.append(f"{head}{old}-{changed}+{new}{rest}")
    record = PatchRecord.model_construct(id=f"patch-{number}", ends=None, after=())
    return Patch(record, "".join(text).encode(), Path(f"patches/demo/patch-{number}.patch"))


def run(files: int, patches: int, with_base: bool) -> Scale:
    """In this process."""
    tree = SourceTree({f"demo/part{n % 50}/file{n}.py": "".join(source(n)).encode() for n in range(files)})
    series = [patch(number, files) for number in range(patches)]
    base = SourceTree(dict(tree.files)) if with_base else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    verdicts = judge(tree, series, bases=base)
    seconds = time.monotonic() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return Scale(files, patches, seconds, grown, dict(Counter(str(v.verdict) for v in verdicts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--patches", type=int, default=PATCHES)
    parser.add_argument("--base", action="store_true", help="with the files that the patches were made for")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = run(given.files, given.patches, given.base)
    print(json.dumps(asdict(found)) if given.json else found)


if __name__ == "__main__":
    main()
