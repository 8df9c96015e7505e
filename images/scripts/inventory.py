"""What an image holds, as one JSON line: Python and Debian packages with their sizes, and GPU code by file.

Runs in the image with the image's own interpreter and nothing but the standard library; fatbin.py lies beside it.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import fatbin

DPKG_STATUS = Path("/var/lib/dpkg/status")


def main() -> None:
    there = dict.fromkeys(sys.path[1:])
    roots = [Path(e) for e in there if Path(e).name in ("site-packages", "dist-packages") and Path(e).is_dir()]
    python, debian = dict(distributions(roots)), dict(debs(DPKG_STATUS))
    gpu, unread = census(roots)
    said = {"python": python, "debian": debian, "gpu": gpu, "unread": unread, "roots": [str(root) for root in roots]}
    print(json.dumps(said), flush=True)


def distributions(roots: list[Path]) -> Iterator[tuple[str, dict[str, object]]]:
    """Normalised name -> version and installed bytes: what its RECORD lists and is there, each file once."""
    for found in importlib.metadata.distributions(path=[str(root) for root in roots]):
        sizes: dict[Path, int] = {}
        for file in found.files or []:
            path = Path(str(found.locate_file(file)))
            if path.is_file() and not path.is_symlink():
                sizes[path] = path.stat().st_size
        yield normalised(found.name), {"version": found.version, "bytes": sum(sizes.values())}


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def debs(status: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Package -> version and the installed bytes that its maker states, for all that are installed."""
    if not status.is_file():
        return
    for stanza in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            size = int(fields.get("Installed-Size", "0")) * 1024
            yield fields["Package"], {"version": fields["Version"], "bytes": size}


def census(roots: list[Path]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """File below its root -> the architectures it holds code for (`*`: relocatable); and what cannot be read, why."""
    gpu: dict[str, list[str]] = {}
    unread: dict[str, str] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                entries = fatbin.read(path) if fatbin.is_elf(path) else []
            except (OSError, fatbin.FatbinError) as problem:
                unread[str(path.relative_to(root))] = str(problem)
                continue
            if entries:
                arches = {entry.arch + ("*" if entry.relocatable else "") for entry in entries}
                gpu[str(path.relative_to(root))] = sorted(arches)
    return gpu, unread


if __name__ == "__main__":
    main()
