"""Bytecode from one trial to the next: compiling vLLM's modules is most of what its first import costs.

A cache is taken out of a container whose test has ended, without that of any file that was put there and of the test,
and put into the next one. So it holds what was compiled from the image's own files only, and is used in no other image.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, cast

#: Where PYTHONPYCACHEPREFIX points; the parent is there in every container of a trial.
PARENT, NAME = "/graft-trial", "bytecode"
PREFIX = f"{PARENT}/{NAME}"


class Bytecode:
    """The caches of one image, one for each component. home: of what is installed; nothing else is kept."""

    def __init__(self, folder: Path, image: str, homes: Collection[str]) -> None:
        self._folder = folder
        self._image = image.removeprefix("sha256:")[:12]
        self._homes = tuple(homes)

    def file(self, component: str) -> Path:
        return self._folder / f"{self._image}-{component}.tar"

    def keep(self, component: str, chunks: Iterable[bytes], put: Collection[str]) -> None:
        """Keep the tar of PREFIX out of a container, and forget other images. put: files that were put there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        raw, part = (self._folder / f".{component}-{os.getpid()}.{end}" for end in ("raw", "part"))
        try:
            with raw.open("wb") as stream:
                stream.writelines(chunks)
            own = {f"{NAME}{PurePosixPath(path).with_suffix('')}" for path in put}
            with tarfile.open(raw) as source, tarfile.open(part, "w") as target:
                for member in source:
                    if member.isreg() and self._is_wanted(member.name, own):
                        target.addfile(member, cast("IO[bytes]", source.extractfile(member)))
            part.replace(self.file(component))
        finally:
            raw.unlink(missing_ok=True)
            part.unlink(missing_ok=True)
        for other in self._folder.glob("*.tar"):
            if not other.name.startswith(self._image):
                other.unlink()

    def _is_wanted(self, name: str, own: Collection[str]) -> bool:
        """`bytecode/opt/.../config.cpython-311.pyc` belongs to `/opt/.../config.py`."""
        place = PurePosixPath(name)
        return (
            name.startswith(tuple(f"{NAME}{home}/" for home in self._homes))
            and place.suffix == ".pyc"
            and str(place.with_name(place.name.partition(".")[0])) not in own
        )
