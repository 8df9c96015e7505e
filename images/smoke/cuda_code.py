"""Every file of the image with GPU code has code for the image's architecture, or a waiver says why it needs none.

FlashInfer's compiled modules are held to more: all of the recipe's are there, each with code for this architecture and
no other. Names and folders are not believed: the architecture is read from the code's own headers.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from lib import census, facts, fatbin, verdicts
from lib.census import Census, Holding
from lib.facts import Facts, WaiverBook, normalise
from lib.report import Report

ROOT = Path("/")
FLASHINFER = "flashinfer-python"
# Where FlashInfer looks for compiled modules before anything else (flashinfer/jit/env.py).
AOT = "flashinfer/data/aot"


def main() -> None:
    known = facts.load()
    report = Report("cuda-code")
    book = known.waivers_of("cuda-code")
    check_modules(known, book, report)
    check_files(known, book, report, census.take(ROOT))
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
        excuse(report, book, f"code:{name}", f"{AOT}/{name}", [FLASHINFER], ok, detail)


def judge(path: Path, arch: str) -> tuple[bool, str]:
    """Whether a library's GPU code is for `arch` and nothing else, and what it holds."""
    try:
        entries = fatbin.read(path)
    except (fatbin.FatbinError, OSError) as error:
        return False, f"cannot be read: {error}"
    held = verdicts.held_text(entries) or "no GPU code"
    verdict = fatbin.verdict(entries, arch)
    if verdict != "covered":
        return False, f"{verdict} for {arch}: holds {held}"
    if others := fatbin.foreign(entries, arch):
        return False, f"holds {', '.join(entry.arch for entry in others)} beside code for {arch}"
    return True, f"{len(entries)} pieces of code, all {held}"


def check_files(known: Facts, book: WaiverBook, report: Report, found: Census) -> None:
    """Every other file with GPU code, in the whole image: code that runs on `known.arch` is in it."""
    report.check("census", found.elf_files > 0, census_text(found))
    results: dict[str, tuple[bool, str]] = {}
    for path, why in found.unreadable.items():
        results[name_of(known, path)] = False, f"cannot be read: {why}"
    for holding in found.holdings:
        results[name_of(known, holding.path)] = judge_file(holding, known.arch)
    results = {name: result for name, result in results.items() if not name.startswith(f"{AOT}/")}
    red = [name for name, (ok, _) in results.items() if not ok]
    owners = owners_of(known.site_packages, red) if red else {}
    for name, (ok, detail) in sorted(results.items()):
        excuse(report, book, f"file:{name}", name, owners.get(name, ()), ok, detail)


def judge_file(holding: Holding, arch: str) -> tuple[bool, str]:
    """Whether something in a file runs on `arch`, or nothing in it is meant to run; and what it holds."""
    judged = verdicts.judge(holding, arch)
    return not judged.red, f"{verdicts.text(judged, arch)}; holds {verdicts.held_in(holding)}"


def excuse(
    report: Report, book: WaiverBook, id: str, file: str, packages: Collection[str], ok: bool, detail: str
) -> None:
    waiver = None if ok else book.find(file, list(packages))
    reason = f"; waived: {waiver.reason} (until {waiver.until})" if waiver else ""
    report.check(id, ok, detail + reason, waived=waiver is not None)


def name_of(known: Facts, path: str) -> str:
    """A path of the census as waivers name it: below site-packages, or absolute."""
    place = ROOT / path.lstrip("/")
    inside = place.is_relative_to(known.site_packages)
    return place.relative_to(known.site_packages).as_posix() if inside else path


def owners_of(site: Path, files: Collection[str]) -> Mapping[str, list[str]]:
    """Which distributions record these files (paths below site-packages)."""
    wanted = set(files)
    owners: dict[str, list[str]] = {}
    for record in sorted(site.glob("*.dist-info/RECORD")):
        for row in csv.reader(record.read_text("utf-8").splitlines()):
            if row and row[0] in wanted:
                owners.setdefault(row[0], []).append(normalise(record.parent.name.split("-")[0]))
    return owners


def census_text(found: Census) -> str:
    """How much was looked at, and what is compiled only when it runs, for which no file says anything."""
    by_compiler: dict[str, Counter[str]] = {}
    for (package, compiler), number in found.runtime.items():
        by_compiler.setdefault(compiler, Counter())[package] += number
    later = [
        f"{compiler} {sum(of.values())} ({', '.join(f'{package} {number}' for package, number in of.most_common())})"
        for compiler, of in sorted(by_compiler.items())
    ]
    looked = f"{found.files} files, {found.elf_files} of them ELF, {len(found.holdings)} with GPU code"
    denied = f"; {found.denied} that this user may not read" if found.denied else ""
    return f"{looked}{denied}; compiled at run time, not judged: {'; '.join(later) or 'nothing'}"


if __name__ == "__main__":
    main()
