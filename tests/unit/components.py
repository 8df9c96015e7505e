"""Built components for the tests: small wheels that images/scripts/stamp-wheels.py has stamped."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from graft.built.store import Wanted
from graft.hashes import digest_of

STAMP = Path(__file__).parents[2] / "images" / "scripts" / "stamp-wheels.py"


def wanted(component: str = "kernels", arch: str = "sm90", **inputs: str) -> Wanted:
    """A component whose key is that of its inputs."""
    named = {"source": "one", "stages": "two", **inputs}
    return Wanted(component, arch, digest_of(named), named)


def wheel(
    folder: Path, item: Wanted | None, *, content: bytes = b"code", name: str = "kernels", says: tuple[str, ...] = ()
) -> Path:
    """A wheel in a folder of its own, with the key of `item` inside; without one where that is None.

    says: more lines of its METADATA.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        metadata = "".join(f"{line}\n" for line in ("Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *says))
        files = {f"{name}.so": content, f"{name}-1.0.dist-info/METADATA": metadata, f"{name}-1.0.dist-info/RECORD": ""}
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
    if item is not None:
        subprocess.run([sys.executable, STAMP, folder, item.key], check=True, capture_output=True)
    return made
