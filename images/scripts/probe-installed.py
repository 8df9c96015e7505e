"""What of a distribution is installed in an image: `python probe-installed.py JOB.json`, one JSON line on stdout.

JOB: {"distribution": NAME, "paths": [below site-packages], "others": [distributions to look for]}. Changes nothing and
imports nothing of the distribution; runs with any Python from 3.8 on.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import sys
from pathlib import Path


def main(job_file: str) -> int:
    # The folder of this script is nothing that the image's programs see.
    sys.path.pop(0)
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    found = installed(job["distribution"])
    answer = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "others": {name: homes[0].version for name in job["others"] if (homes := installed(name))},
        "found": [str(home.locate_file("")) for home in found],
    }
    if found:
        answer.update(facts(found[0], job["paths"]))
    print(json.dumps(answer), flush=True)
    return 0


def installed(name: str) -> list[importlib.metadata.Distribution]:
    """Every installation of a distribution, in the order of sys.path: the first is the one that is used."""
    return [home for home in importlib.metadata.distributions() if normal(home.metadata["Name"] or "") == normal(name)]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def facts(home: importlib.metadata.Distribution, paths: list[str]) -> dict[str, object]:
    root = Path(str(home.locate_file("")))
    rows = [row for row in csv.reader(io.StringIO(home.read_text("RECORD") or "", newline="")) if row]
    records = [row[0] for row in rows if row[0].endswith(".dist-info/RECORD")]
    recorded: dict[str, list[str]] = {}
    for row in rows:
        recorded.setdefault(row[0], []).append(row[1] if len(row) > 1 else "")
    return {
        "root": os.path.realpath(str(root)),
        "version": home.version,
        "record": records[0] if len(records) == 1 else None,
        "packages": {name: origin(name) for name in sorted({top_module(path) for path in paths}) if name},
        "files": {path: file_facts(root, path, recorded) for path in paths},
    }


def file_facts(root: Path, path: str, recorded: dict[str, list[str]]) -> dict[str, object]:
    file = root / path
    is_file = file.is_file()
    data = file.read_bytes() if is_file else b""
    return {
        "blob": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() if is_file else None,
        "is_link": file.is_symlink() or os.path.realpath(str(file)) != str(Path(os.path.realpath(str(root)), path)),
        "executable": is_file and bool(file.stat().st_mode & 0o100),
        "recorded": recorded.get(path, []),
        "cached": bool(list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))),
        "twins": sorted(p.name for p in file.parent.glob(f"{file.stem}.*") if p.suffix in (".so", ".pyd")),
        "copies": sorted({str(Path(f, path)) for f in sys.path if is_copy(Path(f, path), file)}),
    }


def is_copy(other: Path, own: Path) -> bool:
    return other.is_file() and not (own.exists() and other.samefile(own))


def top_module(path: str) -> str | None:
    """The module that holds a file: its first folder, or the file itself."""
    name = re.sub(r"\.py$", "", path.partition("/")[0])
    return name if name.isidentifier() else None


def origin(name: str) -> str | None:
    """Where Python would import a top-level module from: the file, or the folder of a package without one."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as problem:
        return f"{type(problem).__name__}: {problem}"
    if spec is None:
        return None
    if spec.origin is not None and spec.has_location:
        return os.path.realpath(spec.origin)
    return next((os.path.realpath(folder) for folder in spec.submodule_search_locations or ()), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
