"""Every installed file is what its RECORD says, belongs to one distribution, and none is missing or added.

What is found and not waived is red; so is a waiver that no finding needs. Each file is read once.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lib import facts
from lib.facts import Facts, WaiverBook, normalise
from lib.report import Report

Kind = Literal["record", "missing", "changed", "owned-twice", "unrecorded"]

KINDS: Mapping[Kind, str] = {
    "record": "every distribution has a RECORD, with a hash for each file",
    "missing": "every recorded file is there",
    "changed": "every file has its recorded hash and size",
    "owned-twice": "every file is recorded by one distribution only",
    "unrecorded": "every file under site-packages is recorded",
}

# More than this many findings of one kind are counted, not listed.
LISTED = 40


@dataclass(frozen=True)
class Entry:
    """One line of a RECORD; `digest` is the sha256 in RECORD's spelling, None where none is written."""

    package: str
    digest: str | None
    size: int | None


@dataclass
class Record:
    """All RECORDs together: path relative to site-packages -> who claims it."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    distributions: int = 0


@dataclass(frozen=True)
class Finding:
    kind: Kind
    file: str
    packages: tuple[str, ...]
    detail: str


def main() -> None:
    known = facts.load()
    report = Report("files")
    check(known, report)
    report.finish()


def check(known: Facts, report: Report) -> None:
    site = known.site_packages
    record = Record()
    findings = list(read_records(site, record))
    findings += find_double_owners(record)
    findings += find_unrecorded(site, record)
    changed, bytes_read = compare(site, record)
    findings += changed
    book = known.waivers_of("files")
    for kind, meaning in KINDS.items():
        report_kind(report, kind, meaning, [f for f in findings if f.kind == kind], book)
    read = f"{len(record.entries)} files of {record.distributions} distributions, {bytes_read / 1e9:.1f} GB read"
    report.check("read", record.distributions > 0 and bytes_read > 0, read)
    report_waivers(report, book)


def report_kind(report: Report, kind: Kind, meaning: str, findings: Sequence[Finding], book: WaiverBook) -> None:
    """One check for the kind, and one for each finding: waived, or failed."""
    judged = [(finding, book.find(finding.file, finding.packages)) for finding in findings]
    open_ones = [finding for finding, waiver in judged if waiver is None]
    waived = len(judged) - len(open_ones)
    report.check(kind, not open_ones, f"{meaning}: {len(open_ones)} exceptions, {waived} waived")
    judged.sort(key=lambda pair: (pair[1] is not None, pair[0].file, pair[0].packages))
    for finding, waiver in judged[:LISTED]:
        reason = f"; waived: {waiver.reason} (until {waiver.until})" if waiver else ""
        by = "" if len(finding.packages) != 1 else f" of {finding.packages[0]}"
        report.check(f"{kind}:{finding.file}{by}", False, finding.detail + reason, waived=waiver is not None)
    if judged[LISTED:]:
        more = [waiver is not None for _, waiver in judged[LISTED:]]
        report.check(f"{kind}:more", False, f"{len(more)} more, {sum(more)} waived", waived=all(more))


def report_waivers(report: Report, book: WaiverBook) -> None:
    unused = book.unused()
    detail = "; ".join(f"nothing needs the waiver {waiver}: remove it" for waiver in unused)
    report.check("waivers", not unused, detail or f"all {len(book.waivers)} waivers are needed")


def read_records(site: Path, record: Record) -> Iterator[Finding]:
    """Fill `record` from every .dist-info/RECORD under `site`."""
    for info in sorted(site.glob("*.dist-info")):
        package = normalise(info.name.split("-")[0])
        record.distributions += 1
        try:
            rows = [row for row in csv.reader((info / "RECORD").read_text("utf-8").splitlines()) if row]
        except FileNotFoundError:
            yield Finding("record", f"{info.name}/RECORD", (package,), "there is none")
            continue
        for path, digest, size in rows:
            file = os.path.normpath(path)
            entry = Entry(package, digest or None, int(size) if size else None)
            record.entries.setdefault(file, []).append(entry)
            if not digest and file != f"{info.name}/RECORD":
                yield Finding("record", file, (package,), "recorded without a hash")


def find_double_owners(record: Record) -> Iterator[Finding]:
    for file, entries in record.entries.items():
        packages = tuple(sorted({entry.package for entry in entries}))
        if len(entries) > 1:
            yield Finding("owned-twice", file, packages, f"recorded by {' and '.join(packages)}, {len(entries)} times")


def find_unrecorded(site: Path, record: Record) -> Iterator[Finding]:
    """Files that no RECORD knows, and links that lead to such a file or out of site-packages.

    A link to a recorded file adds no bytes (the link names of the CUDA toolkit are such), and cached bytecode of a
    recorded source is Python's own business.
    """
    for folder, subfolders, files in os.walk(site):
        at = Path(folder)
        links = [name for name in subfolders if (at / name).is_symlink()]
        for name in [*files, *links]:
            file = (at / name).relative_to(site)
            if str(file) in record.entries or source_of(file) in record.entries:
                continue
            if not (at / name).is_symlink():
                yield Finding("unrecorded", str(file), (), "no distribution records it")
            elif not leads_to_recorded(at / name, site, record):
                yield Finding("unrecorded", str(file), (), f"a link to {(at / name).readlink()}, which nobody records")


def leads_to_recorded(link: Path, site: Path, record: Record) -> bool:
    """Whether a link ends at a recorded file, or at a folder of site-packages, whose files are looked at there."""
    target = link.resolve()
    if not target.is_relative_to(site.resolve()):
        return False
    return target.is_dir() or str(target.relative_to(site.resolve())) in record.entries


def source_of(file: Path) -> str | None:
    """The source that a file in a __pycache__ folder was compiled from, by its name (PEP 3147)."""
    if file.parent.name != "__pycache__" or file.suffix != ".pyc":
        return None
    return str(file.parent.parent / (file.name.split(".")[0] + ".py"))


def compare(site: Path, record: Record) -> tuple[list[Finding], int]:
    """Read every recorded file once, the largest first so that the threads end together; (findings, bytes read)."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        batches = batched_by_size(site, record.entries)
        results = list(
            pool.map(lambda batch: [compare_file(site, file, record.entries[file]) for file in batch], batches)
        )
    findings = [finding for batch in results for found, _ in batch for finding in found]
    return findings, sum(size for batch in results for _, size in batch)


def batched_by_size(site: Path, files: Iterable[str]) -> list[list[str]]:
    """Large files alone, small ones together: to hand each of 57,000 to a thread would cost more than reading them."""
    sizes = {}
    for file in files:
        try:
            sizes[file] = (site / file).stat().st_size
        except OSError:
            sizes[file] = 0
    batches: list[list[str]] = [[]]
    batch_bytes = 0
    for file in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if batches[-1] and (batch_bytes + sizes[file] > 64 << 20 or len(batches[-1]) >= 500):
            batches.append([])
            batch_bytes = 0
        batches[-1].append(file)
        batch_bytes += sizes[file]
    return batches


def compare_file(site: Path, file: str, entries: Sequence[Entry]) -> tuple[list[Finding], int]:
    """One file against all entries that claim it; (findings, bytes read)."""
    try:
        with (site / file).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").digest()
            size = stream.tell()
    except OSError as problem:
        packages = tuple(sorted({entry.package for entry in entries}))
        return [Finding("missing", file, packages, f"cannot be read: {problem.strerror}")], 0
    actual = "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    findings = []
    for entry in entries:
        wrong = []
        if entry.digest is not None and entry.digest.rstrip("=") != actual:
            wrong.append(f"hash is {actual}, RECORD says {entry.digest}")
        if entry.size is not None and entry.size != size:
            wrong.append(f"size is {size}, RECORD says {entry.size}")
        if wrong:
            findings.append(Finding("changed", file, (entry.package,), f"{entry.package}: {'; '.join(wrong)}"))
    return findings, size


if __name__ == "__main__":
    main()
