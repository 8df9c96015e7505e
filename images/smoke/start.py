"""The image starts as far as it can without a model and a GPU: its command, each launch profile, and what it imports.

Without a GPU driver vLLM finds no platform and even `--help` stops; VLLM_TARGET_DEVICE=cpu, vLLM's own switch for
such machines, lets its command line be built.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lib import child, facts, imports
from lib.facts import Facts
from lib.report import Report

SECONDS = 600.0
NO_GPU = {"VLLM_TARGET_DEVICE": "cpu"}
LAUNCHING = Path(__file__).resolve().parent / "lib" / "launching.py"
MARK = "graft "
LISTED = 20


def main() -> None:
    known = facts.load()
    report = Report("start")
    command = Path(sys.prefix, "bin", "vllm")
    check_imports(known, report, command, sys.path)
    check_vllm_runs(known, report, command)
    report.finish()


def check_vllm_runs(known: Facts, report: Report, command: Path) -> None:
    """`import vllm` gives the locked version from site-packages; profiles are read; the command and serve have help."""
    # In one process: the import is the dear part. The other one after it: the first leaves bytecode for it.
    profiles = [{"name": p.name, "model": p.model, "args": p.args, "env": p.env} for p in known.profiles]
    job = json.dumps({"env": NO_GPU, "profiles": profiles})
    serve = child.run([sys.executable, "-P", str(LAUNCHING), str(command), job], seconds=SECONDS)
    said = list(lines(serve.stdout))
    check_import(known, report, serve, next((line for line in said if "version" in line), None))
    check_profiles(known, report, serve, {line["profile"]: line["wrong"] for line in said if "profile" in line})
    check_help(report, "vllm serve --help", serve, ["usage: vllm serve"])
    top = child.run([str(command), "--help"], seconds=SECONDS, env=NO_GPU)
    check_help(report, "vllm --help", top, ["usage: vllm", "serve"])


def lines(stdout: str) -> Iterator[dict[str, Any]]:
    """What launching.py says, among the lines that vllm prints."""
    for line in stdout.splitlines():
        if line.startswith(MARK + "{"):
            yield json.loads(line.removeprefix(MARK))


def check_import(known: Facts, report: Report, done: child.Finished, said: Mapping[str, Any] | None) -> None:
    if said is None:
        report.check("import vllm", False, done.why())
        return
    inside = Path(said["file"]).is_relative_to(known.site_packages)
    version = known.components["vllm"].version
    report.check("import vllm", inside and said["version"] == version, f"{said['version']} from {said['file']}")


def check_profiles(known: Facts, report: Report, done: child.Finished, said: Mapping[str, str | None]) -> None:
    """Each launch profile is read by vLLM's own command line; one that it said nothing of is red."""
    for profile in known.profiles:
        wrong = said[profile.name] if profile.name in said else done.why()
        report.check(f"profile:{profile.name}", wrong is None, wrong or " ".join(["vllm serve", *profile.args]))


def check_help(report: Report, id: str, done: child.Finished, expected: Sequence[str]) -> None:
    good = done.ok and all(text in done.stdout for text in expected)
    report.check(id, good, f"{len(done.stdout.splitlines())} lines, no GPU driver" if good else done.why())


def check_imports(known: Facts, report: Report, command: Path, path: Sequence[str]) -> None:
    """Whatever the command and the patched modules import, on the way to a start, is there."""
    patched = {module for patch in known.patches for file in patch.files if (module := module_of(file)) is not None}
    roots = [*roots_of(command), *sorted(patched)]
    packages = {root.partition(":")[0].partition(".")[0] for root in roots}
    found = imports.closure(roots, sorted(packages), imports.Finder([p for p in path if p]))
    wrong = [f"{item.file}:{item.line} imports {item.module}" for item in sorted(found.broken)]
    more = [f"{len(wrong) - LISTED} more"] if wrong[LISTED:] else []
    good = f"{len(found.followed)} modules of {', '.join(sorted(packages))} and {len(found.others)} that they import"
    report.check("imports", bool(roots) and not wrong, "; ".join([*wrong[:LISTED], *more]) or good)


def roots_of(command: Path) -> list[str]:
    """`module:function` of what an installed script imports and calls; empty when there is no such script."""
    if not command.is_file():
        return []
    tree = ast.parse(command.read_bytes())
    return [f"{n.module}:{a.name}" for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names]


def module_of(file: str) -> str | None:
    """The module of a file below site-packages; None when it is no Python source."""
    path = Path(file)
    if path.suffix != ".py":
        return None
    return ".".join(path.with_suffix("").parts if path.name != "__init__.py" else path.parent.parts)


if __name__ == "__main__":
    main()
