"""The pristine files that patches are judged against, kept below .graft: looking at patches needs no archive twice.

For each archive (by its sha256) an index names all its files and the git blob ids of those that were asked for; the
blobs lie beside it, and are believed only when their bytes have that id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from graft.lock import write_atomic
from graft.patching.entry import blob_id
from graft.patching.model import SourceTree
from graft.patching.sources import archive_tree
from graft.patchset import Target


class PristineFiles:
    """What was read from archives so far. `folder` is made when the first file is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tree(self, sha256: str, archive: Path, target: Target, paths: Collection[str]) -> SourceTree | None:
        """Those of `paths` that the archive holds, and its names; None when they are not kept and it is not there.

        Raises BadInput for an archive that cannot be read.
        """
        kept = self._kept(sha256, paths)
        if kept is not None or not archive.is_file():
            return kept
        asked = {*paths, *self._index(sha256).get("files", {})}
        tree = archive_tree(archive, target, asked)
        self._keep(sha256, tree, asked)
        return tree

    def _kept(self, sha256: str, paths: Collection[str]) -> SourceTree | None:
        index = self._index(sha256)
        blobs = index.get("files", {})
        if not index or not all(path in blobs for path in paths):
            return None
        files: dict[str, bytes] = {}
        for path in paths:
            if blobs[path] is None:
                continue
            content = self._blob(blobs[path])
            if content is None:
                return None
            files[path] = content
        executable = frozenset(index["executable"]) & files.keys()
        return SourceTree(files, executable, frozenset(index["names"]))

    def _blob(self, blob: str) -> bytes | None:
        try:
            content = (self.folder / "blobs" / blob).read_bytes()
        except OSError:
            return None
        return content if blob_id(content) == blob else None

    def _index(self, sha256: str) -> dict[str, Any]:
        """What is kept of an archive, as it was written; nothing is lost with a damaged one, it is read again."""
        try:
            text = (self.folder / f"{sha256}.json").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return {}
        body, _, digest = text.rstrip("\n").rpartition("\n")
        if digest != hashlib.sha256(f"{sha256}\n{body}".encode()).hexdigest():
            return {}
        found: dict[str, Any] = json.loads(body)
        return found

    def _keep(self, sha256: str, tree: SourceTree, asked: Collection[str]) -> None:
        blobs = self.folder / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        for content in tree.files.values():
            target = blobs / blob_id(content)
            part = target.with_name(f".{target.name}.part")
            part.write_bytes(content)
            part.replace(target)
        index = {
            "names": sorted(tree.all_names),
            "executable": sorted(tree.executable),
            "files": {path: blob_id(tree.files[path]) if path in tree.files else None for path in sorted(asked)},
        }
        body = json.dumps(index)
        digest = hashlib.sha256(f"{sha256}\n{body}".encode()).hexdigest()
        write_atomic(self.folder / f"{sha256}.json", f"{body}\n{digest}\n")
