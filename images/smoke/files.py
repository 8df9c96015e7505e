"""Every file of the image is what its package brought and belongs to one; nothing is missing, added, or left behind.

Python's distributions are judged by their RECORDs, Debian's packages by dpkg's database, the rest by what is known.
What is found and not waived is red; so is a waiver that no finding needs. Each file is read once.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lib import debian, facts, system
from lib.facts import Facts, normalise
from lib.findings import Finding, report_kinds, report_waivers
from lib.report import Report

KINDS: Mapping[str, str] = {
    "record": "every distribution has a RECORD, with a hash for each file",
    "missing": "every recorded file is there",
    "changed": "every file has its recorded hash and size",
    "owned-twice": "every file is recorded by one distribution only",
    "unrecorded": "every file under site-packages is recorded",
    "graft": "what the image says of itself is what Graft wrote",
}
#: Where the image says what it was made from.
HOME = "usr/share/graft"


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


def main() -> None:
    known = facts.load()
    report = Report("files")
    check(known, report, Path("/"))
    report.finish()


def check(known: Facts, report: Report, root: Path) -> None:
    """The image whose root file system is `root`."""
    site = known.site_packages
    record = Record()
    findings = list(read_records(site, record))
    findings += find_double_owners(record)
    findings += find_unrecorded(site, record)
    changed, bytes_read = compare(site, record)
    findings += changed
    written = json.loads((known.root / "metadata.json").read_bytes())
    findings += compare_own(root, written)
    dpkg = debian.read(root)
    findings += debian.check_packages(dpkg, known.debs)
    findings += debian.check_files(root, dpkg)
    everything = whole(known, root, record, dpkg, written)
    findings += system.check(everything)
    book = known.waivers_of("files")
    report_kinds(report, {**KINDS, **debian.KINDS, **system.KINDS}, findings, book)
    read = f"{len(record.entries)} files of {record.distributions} distributions, {bytes_read / 1e9:.1f} GB read"
    report.check("read", record.distributions > 0 and bytes_read > 0, read)
    others = ", ".join(f"/{path}" for path in system.privileged(everything)) or "none"
    report.check("read:debian", len(dpkg.packages) == len(known.debs), f"{len(dpkg.packages)} packages, {others}")
    report_waivers(report, book)


def whole(known: Facts, root: Path, record: Record, dpkg: debian.Debian, written: Mapping[str, str]) -> system.System:
    """The root file system with its owners; a venv lies three folders above its site-packages."""
    site = known.site_packages.relative_to(root)
    recorded = {os.path.normpath(site / file) for file in record.entries if file.startswith("..")}
    smoke = str(known.root.relative_to(root)) if known.root.is_relative_to(root) else ""
    return system.System(
        root=root,
        site=str(site),
        venv=str(site.parents[2]) if len(site.parents) > 3 else ".",
        recorded=recorded,
        debian=dpkg,
        graft={f"{HOME}/{name}" for name in written},
        apart={smoke, *system.mounts(root)},
        patched={os.path.normpath(site / file) for patch in known.patches for file in patch.files},
    )


def compare_own(root: Path, written: Mapping[str, str]) -> Iterator[Finding]:
    """What lies in /usr/share/graft against name -> sha256 of what Graft put there."""
    for name, wanted in sorted(written.items()):
        try:
            found = hashlib.sha256((root / HOME / name).read_bytes()).hexdigest()
        except OSError as problem:
            yield Finding("graft", f"/{HOME}/{name}", (), f"cannot be read: {problem.strerror}")
            continue
        if found != wanted:
            yield Finding("graft", f"/{HOME}/{name}", (), f"its sha256 is {found}, Graft wrote {wanted}")


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
