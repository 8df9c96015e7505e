"""Which wheels fit a base, by the tags in their names (PEP 425, PEP 600)."""

from __future__ import annotations

import functools

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from graft.project import Base

#: glibc versions for which manylinux tags exist, oldest first (PEP 600; 2.5 is manylinux1).
OLDEST_GLIBC = 5
LEGACY_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def target_tags(base: Base) -> list[Tag]:
    """The wheel tags that fit the base, best first."""
    return list(_tags(base.python, base.glibc, base.machine))


def fits(base: Base, file: str) -> bool:
    """Whether a wheel installs on the base; False for what is no wheel's name."""
    fitting = _tags(base.python, base.glibc, base.machine)
    return any(tag in fitting for tag in _file_tags(file))


@functools.lru_cache(maxsize=16)
def _tags(python: str, glibc: str, machine: str) -> dict[Tag, None]:
    newest = int(glibc.partition(".")[2])
    platforms = []
    for minor in range(newest, OLDEST_GLIBC - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in LEGACY_TAGS:
            platforms.append(f"{LEGACY_TAGS[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    major, minor_version = (int(part) for part in python.split("."))
    version = (major, minor_version)
    interpreter = f"cp{major}{minor_version}"
    found = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]
    return dict.fromkeys(found)


@functools.lru_cache(maxsize=4096)
def _file_tags(file: str) -> frozenset[Tag]:
    """The tags in a wheel's name; none in what is no wheel's name."""
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()
