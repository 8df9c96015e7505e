#!/usr/bin/env python3
"""Writes the key of a component into its wheels, as the comment of the zip file: nothing of it is installed.

    stamp-wheels.py FOLDER KEY

A wheel is changed at its end alone: the length of the comment, which must be 0, and the comment.
"""

from __future__ import annotations

import re
import struct
import sys
import zipfile
from pathlib import Path

# APPNOTE.TXT 4.3.16: the end of a zip file without a comment.
END = struct.Struct("<4s4H2LH")


def main(folder: Path, key: str) -> int:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels or not re.fullmatch("[0-9a-f]{64}", key):
        print(f"stamp-wheels: wanted: wheels in {folder}, and a key (is {key!r})", file=sys.stderr)
        return 1
    for wheel in wheels:
        stamp(wheel, f"graft-key: {key}".encode())
        print(wheel.name)
    return 0


def stamp(wheel: Path, comment: bytes) -> None:
    with wheel.open("r+b") as stream:
        start = stream.seek(-END.size, 2)
        signature, *fields, length = END.unpack(stream.read())
        if signature != b"PK\5\6" or length:
            raise SystemExit(f"stamp-wheels: {wheel.name} does not end as a zip file without a comment does")
        stream.seek(start)
        stream.write(END.pack(signature, *fields, len(comment)) + comment)
    with zipfile.ZipFile(wheel) as archive:
        if archive.comment != comment:
            raise SystemExit(f"stamp-wheels: {wheel.name} cannot be read any more")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
