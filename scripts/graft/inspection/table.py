"""The census for people: a matrix of files and architectures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePosixPath

from graft.inspection.model import Answer, FileCode, excuse, site_of
from graft.recipe import Waiver

LEGEND = "e: exact, a: for this chip alone, f: family, s: same major, PTX: only PTX, -: missing, nothing: not judged"
#: More files of one folder than this that are alike in everything are one line.
ALIKE = 10


def matrix(
    answer: Answer, arches: Sequence[str], arch: str | None, waivers: Sequence[Waiver]
) -> tuple[str, list[str], list[list[str]]]:
    """(title, columns, rows): a file, its verdict on each architecture, and in words that on `arch`, or its code."""
    site = most_common_site(answer)
    rows = []
    for path, file in _lines(answer.holdings):
        words = file.holds if arch is None else _verdict(file, arch, waivers)
        rows.append([path.removeprefix(site), *(file.judged[each].mark for each in arches), words])
    for lost in answer.unreadable:
        waiver = excuse(lost, waivers)
        said = f"cannot be read: {lost.why}" + (f"; waived: {waiver.reason}" if waiver else "")
        rows.append([lost.path.removeprefix(site), *("?" for _ in arches), said])
    title = f"names without a leading / lie below {site}" if site else ""
    return title, ["file", *(name.removeprefix("sm") for name in arches), arch or "holds"], rows


def summary(answer: Answer, arch: str | None) -> str:
    """One line: how much was looked at, and how many files there are of each verdict."""
    text = f"{len(answer.holdings)} files with GPU code, of {answer.elf_files} ELF files among {answer.files} files"
    if arch is not None:
        counts = Counter(file.judged[arch].verdict for file in answer.holdings)
        text += f"; {arch}: " + ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    if answer.unreadable:
        text += f"; {len(answer.unreadable)} cannot be read"
    return text


def runtime_text(answer: Answer) -> str:
    """What is compiled when it is called, by compiler."""
    ordered = sorted(answer.runtime, key=lambda found: (found.compiler, -found.count, found.package))
    parts = []
    for compiler, group in groupby(ordered, key=lambda found: found.compiler):
        parts.append(f"{compiler} ({', '.join(f'{found.package} {found.count}' for found in group)})")
    return "; ".join(parts)


def most_common_site(answer: Answer) -> str:
    """The site-packages, with a slash, that most files with GPU code lie in; empty when none does."""
    sites = Counter(site for file in answer.holdings if (site := site_of(file.path)))
    return max(sites, key=lambda site: (sites[site], site), default="")


def _verdict(file: FileCode, arch: str, waivers: Sequence[Waiver]) -> str:
    judged = file.judged[arch]
    waiver = excuse(file, waivers) if judged.red else None
    return judged.text.replace(f" for {arch}", "") + (f"; waived: {waiver.reason}" if waiver else "")


def _lines(files: Sequence[FileCode]) -> list[tuple[str, FileCode]]:
    """(path, file) for each line; many of one folder that differ in nothing but their names and sizes are one."""
    alike: dict[tuple[str, str], list[FileCode]] = {}
    for file in files:
        same = file.model_copy(update={"path": "", "bytes": 0}).model_dump_json()
        alike.setdefault((str(PurePosixPath(file.path).parent), same), []).append(file)
    lines = []
    for (folder, _), group in alike.items():
        if len(group) > ALIKE:
            lines.append((f"{folder}/ ({len(group)} files, all alike)", group[0]))
        else:
            lines += [(file.path, file) for file in group]
    return sorted(lines, key=lambda line: line[0])
