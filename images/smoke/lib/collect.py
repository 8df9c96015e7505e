"""Hands the texts of the image that no package brought to the host, which alone knows what must not be in them.

What this host's proxy, index or folders are called never enters a container: the host searches what comes out. One JSON
line for each file, {"file", "data": base64 of zlib}, or {"file", "bytes"} for one that is too big; the last line is
{"files": how many}.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

# Started as a file of its own, and not as a part of a test.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib import debian, facts, system

FILE_BYTES = 2_000_000
#: Less than what the engine keeps of a container's output.
TOTAL_BYTES = 10_000_000
#: What installers write beside a distribution's own files.
INSTALLER = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json", "uv_installer.json")


def main() -> None:
    known = facts.load()
    root = Path("/")
    site = known.site_packages.relative_to(root)
    apart = {str(known.root.relative_to(root)), *system.mounts(root)}
    whole = system.System(root, str(site), str(site.parents[2]), (), debian.read(root), apart=apart)
    count = 0
    room = TOTAL_BYTES
    for path in texts(whole):
        line = line_of(root / path, f"/{path}", room)
        room -= len(line)
        count += 1
        print(line)
    print(json.dumps({"files": count}), flush=True)


def texts(whole: system.System) -> Iterator[str]:
    """Files outside of site-packages that Debian did not bring, of the venv texts only; and what installers wrote."""
    for path, entry in system.walk(whole):
        if not entry.is_file(follow_symlinks=False):
            continue
        if system.is_below(path, whole.site):
            if entry.name in INSTALLER and Path(path).parent.suffix == ".dist-info":
                yield path
        elif path in whole.debian.owners or system.is_below(path, debian.DATABASE) or path.endswith(".pyc"):
            continue
        elif not (system.is_below(path, whole.venv) and is_binary(Path(entry.path))):
            yield path


def is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(8192)


def line_of(place: Path, name: str, room: int) -> str:
    size = place.stat().st_size
    if size <= FILE_BYTES:
        data = base64.b64encode(zlib.compress(place.read_bytes())).decode()
        line = json.dumps({"file": name, "data": data})
        if len(line) <= room:
            return line
    return json.dumps({"file": name, "bytes": size})


if __name__ == "__main__":
    main()
