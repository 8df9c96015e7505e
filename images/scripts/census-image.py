"""All GPU code of a file system: `python census-image.py (--root FOLDER | --tar) --output FILE --arch sm90 ...`.

FILE gets one JSON object; scripts/graft/inspection/model.py is its form. --tar reads the tar of a container's files
from stdin, for images that have no Python. Exit 3: this Python lacks what it takes. Runs with any Python from 3.8 on,
and needs images/smoke/lib beside it.
"""

from __future__ import annotations

import sys

try:
    import argparse
    import csv
    import json
    import re
    import shutil
    import tarfile
    import tempfile
    from dataclasses import replace
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "smoke"))
    from lib import census, verdicts
except ImportError as problem:
    # A Python that an image was left with may lack anything.
    print(problem, file=sys.stderr)
    sys.exit(3)

SITE = re.compile(r"(.*/(?:site|dist)-packages)/(.+)")
RECORD = re.compile(r".*/(?:site|dist)-packages/([^/]+)\.dist-info/RECORD")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--root", type=Path)
    source.add_argument("--tar", action="store_true")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--arch", nargs="*", default=[], help="judge for these")
    options = parser.parse_args()
    records: dict[str, bytes] = {}
    found = of_tar(records) if options.tar else census.take(options.root)
    if options.root is not None:
        records.update(read_records(options.root, found))
    options.output.write_text(json.dumps(answer(found, options.arch, owners(records, found))) + "\n")
    return 0


def of_tar(records: dict[str, bytes]) -> census.Census:
    """The census of the tar on stdin, one file at a time on disk; the RECORD of each distribution goes to `records`."""
    found = census.Census()
    links: dict[str, str] = {}
    elf_files = set()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
        place = Path(folder, "file")
        for member in tar:
            path = "/" + member.name.lstrip("./")
            if member.islnk():
                links[path] = "/" + member.linkname.lstrip("./")
            if not member.isreg() or path.split("/")[1] in census.NOT_OF_THE_IMAGE:
                continue
            stream = tar.extractfile(member)
            assert stream is not None
            start = stream.read(8)
            if start.startswith(census.ELF):
                elf_files.add(path)
            if RECORD.fullmatch(path):
                records[path] = start + stream.read()
            if not census.wanted(path, start):
                found.files += 1
                continue
            with place.open("wb") as out:
                out.write(start)
                shutil.copyfileobj(stream, out, 1 << 20)
            census.count(found, path, str(place))
    by_path = {holding.path: holding for holding in found.holdings}
    found.files += len(links)
    found.elf_files += sum(to in elf_files for to in links.values())
    found.holdings += [replace(by_path[to], path=path) for path, to in links.items() if to in by_path]
    return found


def read_records(root: Path, found: census.Census) -> dict[str, bytes]:
    """Path -> bytes of every RECORD beside a file with GPU code."""
    sites = {match[1] for holding in found.holdings if (match := SITE.fullmatch(holding.path))}
    return {
        f"{site}/{record.parent.name}/RECORD": record.read_bytes()
        for site in sites
        for record in (root / site.lstrip("/")).glob("*.dist-info/RECORD")
    }


def owners(records: dict[str, bytes], found: census.Census) -> dict[str, list[str]]:
    """Path of a file with GPU code -> the distributions that record it."""
    wanted = {holding.path for holding in found.holdings} | set(found.unreadable)
    names: dict[str, list[str]] = {}
    for path, data in sorted(records.items()):
        match = RECORD.fullmatch(path)
        site = path[: path.rindex("/", 0, path.rindex("/"))]
        for row in csv.reader(data.decode("utf-8", "replace").splitlines()):
            if match is not None and row and f"{site}/{row[0]}" in wanted:
                names.setdefault(f"{site}/{row[0]}", []).append(match[1].split("-")[0])
    return names


def answer(found: census.Census, arches: list[str], packages: dict[str, list[str]]) -> dict[str, object]:
    return {
        "files": found.files,
        "elf_files": found.elf_files,
        "denied": found.denied,
        "holdings": [
            holding_of(holding, arches, packages.get(holding.path, []))
            for holding in sorted(found.holdings, key=lambda holding: holding.path)
        ],
        "unreadable": [
            {"path": path, "why": why, "packages": packages.get(path, [])}
            for path, why in sorted(found.unreadable.items())
        ],
        "runtime": [
            {"package": package, "compiler": compiler, "count": count}
            for (package, compiler), count in sorted(found.runtime.items())
        ],
    }


def holding_of(holding: census.Holding, arches: list[str], packages: list[str]) -> dict[str, object]:
    return {
        "path": holding.path,
        "bytes": holding.bytes,
        "form": holding.form,
        "packages": packages,
        "code": [
            {"where": where, "kind": e.kind, "arch": e.arch, "relocatable": e.relocatable, "count": count}
            for (where, e), count in sorted(holding.code.items())
        ],
        "fatbins": [
            {"holds": verdicts.held_text(held), "count": count}
            for held, count in sorted(holding.fatbins.items(), key=lambda pair: verdicts.held_text(pair[0]))
        ],
        "holds": verdicts.held_in(holding),
        "judged": {arch: judged_of(holding, arch) for arch in arches},
    }


def judged_of(holding: census.Holding, arch: str) -> dict[str, object]:
    judged = verdicts.judge(holding, arch)
    return {
        "verdict": judged.verdict,
        "rules": list(judged.rules),
        "fatbins": judged.fatbins,
        "text": verdicts.text(judged, arch),
    }


if __name__ == "__main__":
    raise SystemExit(main())
