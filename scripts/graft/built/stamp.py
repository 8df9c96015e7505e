"""The key inside a wheel: the comment of the zip file, `graft-key: <64 hex digits>`.

Not a file of the wheel: that would be installed, and a layer would be another one although not a byte of the component
changed. images/scripts/stamp-wheels.py writes it.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

STAMP = re.compile(rb"graft-key: ([0-9a-f]{64})")


def key_in(wheel: Path) -> str | None:
    """The key in a wheel (64 hex digits); None when it has none, or is no zip file."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = STAMP.fullmatch(archive.comment)
    except (OSError, zipfile.BadZipFile):
        return None
    return found[1].decode() if found else None
