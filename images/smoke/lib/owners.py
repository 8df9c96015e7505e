"""Which distributions claim a file: their RECORDs, read once."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from lib.facts import normalise

INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")


def of(site: Path) -> dict[str, tuple[str, ...]]:
    """file below site-packages, as RECORD writes it -> normalised names of its distributions, sorted."""
    owned: dict[str, set[str]] = {}
    for record in site.glob("*.dist-info/RECORD"):
        match = INFO.fullmatch(record.parent.name)
        if match is None:
            continue
        name = normalise(match["name"])
        with record.open(encoding="utf-8", newline="") as rows:
            for row in csv.reader(rows):
                if row:
                    owned.setdefault(row[0], set()).add(name)
    return {file: tuple(sorted(names)) for file, names in owned.items()}
