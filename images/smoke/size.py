"""The image weighs no more than its recipe allows: all its files, and those of single components.

Counted are bytes of files, uncompressed: what the layers hold before they are compressed, and what a disk needs.
"""

from __future__ import annotations

import csv
import importlib.metadata
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from lib import facts
from lib.facts import Facts, normalise
from lib.report import Report

#: What is no part of the image: the smoke tests that were put over it, and what the kernel shows.
APART = ("graft", "proc", "sys", "dev")
GB = 1e9


def main() -> None:
    known = facts.load()
    report = Report("size")
    check(known, report, Path("/"))
    report.finish()


def check(known: Facts, report: Report, root: Path) -> None:
    """Each limit of the budget is kept; without any, nothing is reported, which is a failure."""
    budget = known.size_budget
    for name, (limit, distributions) in budget.components.items():
        found, missing = installed_bytes(known.site_packages, distributions)
        detail = said(found, limit) + (f"; not installed: {', '.join(missing)}" if missing else "")
        report.check(f"component:{name}", found <= limit and not missing, detail)
    if budget.total is not None:
        found = tree_bytes(root)
        report.check("total", 0 < found <= budget.total, said(found, budget.total))


def said(found: int, limit: int) -> str:
    over = f", {(found - limit) / GB:.3f} GB too much" if found > limit else ""
    return f"{found / GB:.3f} GB of {limit / GB:.3f} GB{over}"


def installed_bytes(site: Path, distributions: Sequence[str]) -> tuple[int, list[str]]:
    """Bytes of the files that the distributions' RECORDs list, as they are on disk; and what is not installed."""
    there = {normalise(found.name): found for found in importlib.metadata.distributions(path=[str(site)])}
    total = 0
    for name in distributions:
        record = there[name].read_text("RECORD") if name in there else None
        for row in csv.reader((record or "").splitlines()):
            place = site / row[0]
            total += place.lstat().st_size if place.is_file() and not place.is_symlink() else 0
    return total, [name for name in distributions if name not in there]


def tree_bytes(root: Path) -> int:
    """Bytes of all files below `root`, hard links once, without other file systems that are mounted there."""
    device = root.stat().st_dev
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, folders, files in os.walk(root):
        place = Path(folder)
        # Of folders alone: an overlay file system gives files the number of the layer that they lie in.
        folders[:] = [n for n in folders if (place / n).lstat().st_dev == device and not (place == root and n in APART)]
        for name in files:
            facts_of = (place / name).lstat()
            if not stat.S_ISREG(facts_of.st_mode):
                continue
            if facts_of.st_nlink > 1:
                identity = (facts_of.st_dev, facts_of.st_ino)
                if identity in seen:
                    continue
                seen.add(identity)
            total += facts_of.st_size
    return total


if __name__ == "__main__":
    main()
