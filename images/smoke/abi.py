"""Every extension module and library finds what it needs in this image: libraries, symbols, versions, Python.

Nothing is loaded: what the dynamic loader would do is worked out from the files, so the GPU code of other devices and
plugins that nobody uses are looked at too. A waiver's `file` names the file and, behind another slash, what is missing.
"""

from __future__ import annotations

import importlib.machinery
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from lib import dynamic, facts, owners
from lib.closure import Closure, Finding
from lib.facts import Facts
from lib.families import TVM_LIBRARY
from lib.loader import Library, Loaded, Process
from lib.report import Report

#: What `import torch` opens first, for everybody, and then (torch/__init__.py, _load_global_deps).
TORCH_GLOBAL = "torch/lib/libtorch_global_deps.so"
TORCH = "torch/_C"
#: How many missing names a finding shows.
SHOWN = 5

SAYS = {
    "unreadable": "cannot be read",
    "machine": "is for another machine",
    "python": "is for another Python",
    "library": "does not find",
    "version": "needs a newer",
    "symbol": "has unresolved",
}


def main() -> None:
    known = facts.load()
    report = Report("abi")
    check(known, report, Library(platform.machine(), os.environ), Path(sys.executable))
    report.finish()


def check(known: Facts, report: Report, library: Library, python: Path) -> None:
    """All files of site-packages, in processes of this interpreter."""
    site = known.site_packages.resolve()
    files = sorted(elf_files(site))
    base, roots = process_with_torch(library, site, python)
    tvm = Process(library, base)
    if (site / TVM_LIBRARY).exists():
        tvm.open(site / TVM_LIBRARY, everywhere=True)
    closure = Closure(library, base, roots, importlib.machinery.EXTENSION_SUFFIXES, tvm)
    findings = closure.check(files)
    report.check(
        "files",
        bool(files),
        f"{len(files)} files, {closure.looked_for} symbols looked for, {len(closure.of_driver)} left to the driver",
    )
    judge(known, report, findings, site)


def elf_files(site: Path) -> Iterator[Path]:
    """The ELF files below a folder, each once: links are not followed."""
    for folder, _, names in os.walk(site):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and dynamic.is_elf(path):
                yield path


def process_with_torch(library: Library, site: Path, python: Path) -> tuple[Process, list[Loaded]]:
    """A process of this Python that has imported torch where there is one, and what it opened."""
    process = Process(library)
    roots = [process.open(python, everywhere=True)]
    names = [TORCH_GLOBAL, *(f"{TORCH}{end}" for end in importlib.machinery.EXTENSION_SUFFIXES)]
    for name in names:
        if (site / name).exists():
            roots.append(process.open(site / name, everywhere=name == TORCH_GLOBAL))
    return process, roots


def judge(known: Facts, report: Report, findings: Sequence[Finding], site: Path) -> None:
    """One check for each file and kind of finding; a waiver excuses single names."""
    book = known.waivers_of("abi")
    owned = owners.of(site) if findings else {}
    for (file, kind), group in groupby(findings, key=lambda finding: (finding.file, finding.kind)):
        name = file.relative_to(site).as_posix()
        found = list(group)
        waivers = {finding: book.find(f"{name}/{finding.name}", owned.get(name, ())) for finding in found}
        red = [finding for finding in found if waivers[finding] is None]
        reasons = sorted({waiver.reason for waiver in waivers.values() if waiver is not None})
        detail = f"{name} {SAYS[kind]} {listed(red or found, site)}"
        if not red:
            detail += f"; waived: {'; '.join(reasons)}"
        report.check(f"{kind}:{name}", False, detail, waived=not red)
    unused = [str(waiver) for waiver in book.unused()]
    report.check("waivers", not unused, f"needed by nothing: {'; '.join(unused)}" if unused else "all are needed")


def listed(findings: Sequence[Finding], site: Path) -> str:
    """`a, b: who should have them`, shortened; paths below site-packages without it."""
    by_text: dict[str, list[str]] = {}
    for finding in findings:
        by_text.setdefault(finding.text, []).append(finding.name)
    parts = []
    for text, names in by_text.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        parts.append(f"{', '.join(names[:SHOWN])}{more} ({text})")
    return "; ".join(parts).replace(f"{site}/", "")


if __name__ == "__main__":
    main()
