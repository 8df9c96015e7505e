"""Which wheels fit a base, by the tags in their names."""

from __future__ import annotations

from packaging.tags import Tag, compatible_tags, cpython_tags

from graft.project import Base

#: glibc versions for which manylinux tags exist, oldest first (PEP 600; 2.5 is manylinux1).
OLDEST_GLIBC = 5
LEGACY_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def target_tags(base: Base) -> list[Tag]:
    """The wheel tags that fit the base, best first (PEP 425, PEP 600)."""
    newest = int(base.glibc.partition(".")[2])
    platforms = []
    for minor in range(newest, OLDEST_GLIBC - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{base.machine}")
        if minor in LEGACY_TAGS:
            platforms.append(f"{LEGACY_TAGS[minor]}_{base.machine}")
    platforms.append(f"linux_{base.machine}")
    major, minor_version = (int(part) for part in base.python.split("."))
    version = (major, minor_version)
    interpreter = f"cp{major}{minor_version}"
    return [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]
