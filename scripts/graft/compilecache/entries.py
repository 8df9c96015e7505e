"""ccache's entries as files, and as values in Redis.

In a folder that ccache reads and writes (its file storage), an entry is a file `ab/cdef...`: what a compiler made, or
which headers it read. ccache checks what it reads against a checksum, and compiles when that is wrong. The checksum
does not cover the name: an entry under the name of another one would be a wrong object. So a value in Redis begins
with the sha256 of name and content, and what does not fit never reaches a build.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"[0-9a-z]{2}/[0-9a-z]{16,64}")
SEAL = hashlib.sha256().digest_size


def seal(name: str, content: bytes) -> bytes:
    """What a value begins with."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def unsealed(name: str, value: bytes) -> bytes | None:
    """The content of a value; None when it is not what was put there under this name."""
    content = value[SEAL:]
    return content if value[:SEAL] == seal(name, content) else None


def entries_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The entries below a folder, by name; other files are left out."""
    for path in sorted(folder.glob("*/*")):
        name = f"{path.parent.name}/{path.name}"
        if NAME.fullmatch(name) and path.is_file() and not path.is_symlink():
            yield name, path


def write_entry(folder: Path, name: str, content: bytes) -> None:
    """An entry where ccache looks for it. name: fits NAME."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    # One mode for all: it is part of what the engine knows a step by.
    target.parent.chmod(0o755)
    target.write_bytes(content)
    target.chmod(0o644)
