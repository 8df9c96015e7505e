"""Every compiled FlashInfer module holds GPU code for the image's architecture and no other; none is missing.

Names and folders are not believed: the architecture is read from the code's own headers.
"""

from __future__ import annotations

from pathlib import Path

from lib import facts, fatbin
from lib.facts import Facts, WaiverBook
from lib.report import Report

FLASHINFER = "flashinfer-python"
# Where FlashInfer looks for compiled modules before anything else (flashinfer/jit/env.py).
AOT = "flashinfer/data/aot"


def main() -> None:
    known = facts.load()
    report = Report("cuda-code")
    book = known.waivers_of("cuda-code")
    check_modules(known, book, report)
    unused = [str(waiver) for waiver in book.unused()]
    report.check("waivers", not unused, f"needed by nothing: {'; '.join(unused)}" if unused else "all are needed")
    report.finish()


def wanted_modules(known: Facts) -> set[str]:
    """The modules that the recipe compiles ahead of time."""
    components = known.components.values()
    return {name for item in components if item.distribution == FLASHINFER for name in item.modules}


def check_modules(known: Facts, book: WaiverBook, report: Report) -> None:
    """The files are the modules that the recipe names, each with code for `known.arch` only."""
    wanted = wanted_modules(known)
    folder = known.site_packages / AOT
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.so"))}
    names = {f"{name}/{name}.so" for name in wanted}
    wrong = [f"{name} is missing" for name in sorted(names - found.keys())]
    wrong += [f"{name} is not in the recipe" for name in sorted(found.keys() - names)]
    report.check(
        "modules", not wrong, "; ".join(wrong) or f"{len(found)} compiled modules: {', '.join(sorted(wanted))}"
    )
    for name, path in found.items():
        ok, detail = judge(path, known.arch)
        waiver = None if ok else book.find(f"{AOT}/{name}", [FLASHINFER])
        report.check(
            f"code:{name}", ok, f"{detail}; waived: {waiver.reason}" if waiver else detail, waived=waiver is not None
        )


def judge(path: Path, arch: str) -> tuple[bool, str]:
    """Whether a library's GPU code is for `arch` and nothing else, and what it holds."""
    try:
        entries = fatbin.read(path)
    except (fatbin.FatbinError, OSError) as error:
        return False, f"cannot be read: {error}"
    held = ", ".join(sorted({entry.arch for entry in entries})) or "no GPU code"
    verdict = fatbin.verdict(entries, arch)
    if verdict != "covered":
        return False, f"{verdict} for {arch}: holds {held}"
    if others := fatbin.foreign(entries, arch):
        return False, f"holds {', '.join(entry.arch for entry in others)} beside code for {arch}"
    return True, f"{len(entries)} pieces of code, all {held}"


if __name__ == "__main__":
    main()
