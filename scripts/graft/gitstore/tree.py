"""A source tree as one file of the store: a tar with fixed order, times and modes, named by its git tree.

Nothing is believed on the way: the ids of all files and folders are computed again from the bytes in the tar.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput, FetchFailed
from graft.gitstore.submodules import LINK, Content
from graft.patching.repository import Repository
from graft.store import CHECKED_MTIME, mark_checked

#: The first line of what Git LFS commits in place of a file.
LFS = b"version https://git-lfs.github.com/spec/v1\n"
#: Whatever the files of a tree say about themselves, they leave git as they were committed, and all of them.
ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst\n"
EXECUTABLE = "100755"
#: No path that Windows or macOS take for .git, none outside the tree.
PROTECT = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true")


@dataclass(frozen=True)
class Packed:
    """A tree in the store: its git id, the bytes of its files, and the tar."""

    tree: str
    size: int
    file: Path


def tar_of(root: Path, tree: str) -> Path:
    """Where the store has a tree, or would have it."""
    return root / f"{tree}.tar"


def pack(root: Path, scratch: Repository, name: str, content: Content) -> Packed:
    """Put a tree with its submodules in place into the store; one that is there is not made again.

    Raises BadInput for Git LFS pointers and for paths that no tree should hold, FetchFailed for objects that are
    damaged or missing.
    """
    tree = _write_tree(scratch, name, content)
    target = tar_of(root, tree)
    if not target.is_file():
        root.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        raw = scratch.folder / "graft-archive"
        (scratch.folder / "info" / "attributes").write_text(ATTRIBUTES)
        what = f"{name}: tree {tree} cannot be read from the store"
        scratch.git("archive", "--format=tar", f"--output={raw}", tree, error=FetchFailed, what=what, cure=DAMAGED)
        try:
            proven = _normalise(raw, part, name)
            if proven != tree:
                raise FetchFailed(f"{name}: the files in the store are tree {proven}, not {tree}", cure=DAMAGED)
            mark_checked(part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
            raw.unlink(missing_ok=True)
    return Packed(tree, size_of(target), target)


DAMAGED = "the mirror is damaged: remove .graft/store/git, then run the same command"


def size_of(file: Path) -> int:
    """Bytes of all files of a tree in the store. Raises FetchFailed for one that is damaged."""
    with _opened(file) as tar:
        return sum(member.size for member in tar)


def unpack(file: Path, tree: str, into: Path) -> None:
    """The files of a tree into an empty folder. Raises FetchFailed, with nothing written, for another tree."""
    with _opened(file) as tar:
        found = tree_id({member.name: _entry(member, _bytes(tar, member)) for member in tar})
    if found != tree:
        file.unlink()
        what = f"{file.name} held tree {found} and was removed"
        raise FetchFailed(what, cure="run the same command: it is made again")
    with _opened(file) as tar:
        for member in tar:
            target = into / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                target.symlink_to(member.linkname)
            else:
                target.write_bytes(_bytes(tar, member))
                target.chmod(member.mode)


def tree_id(files: Mapping[str, tuple[str, str]]) -> str:
    """git's id of the tree with these files: path -> (mode, blob)."""
    folders: dict[str, list[tuple[str, str, str]]] = {"": []}
    for path in sorted(files, key=lambda p: p.encode("utf-8", "surrogateescape")):
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folders.setdefault("/".join(parts[:depth]), [])
        folders["/".join(parts[:-1])].append((parts[-1], *files[path]))
    for folder in sorted((f for f in folders if f), key=lambda f: -f.count("/")):
        above, _, last = folder.rpartition("/")
        folders[above].append((last, "40000", _object("tree", _tree_bytes(folders[folder]))))
    return _object("tree", _tree_bytes(folders[""]))


def _tree_bytes(entries: list[tuple[str, str, str]]) -> bytes:
    raw = [(name.encode("utf-8", "surrogateescape"), mode, sha) for name, mode, sha in entries]
    # git sorts a folder as if its name ended with a slash.
    raw.sort(key=lambda entry: entry[0] + (b"/" if entry[1] == "40000" else b""))
    return b"".join(b"%s %s\0" % (mode.encode(), name) + bytes.fromhex(sha) for name, mode, sha in raw)


def _object(kind: str, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


def _write_tree(scratch: Repository, name: str, content: Content) -> str:
    """The id of the whole, by git; its trees are written, the files stay in the mirrors."""
    if not content.files:
        raise BadInput(f"{name}: its tree holds no file", cure="check the commit")
    scratch.git("read-tree", "--empty")
    lines = (f"{_mode(mode)} {sha}\t{path}\0" for path, (mode, sha) in content.files.items())
    stdin = "".join(lines).encode("utf-8", "surrogateescape")
    # git leaves out a path that it refuses, says so, and goes on; the ids tell.
    said = scratch.git(*PROTECT, "update-index", "-z", "--index-info", stdin=stdin, check=False).stderr
    what = f"{name}: its tree is not whole in the store"
    made = scratch.git("write-tree", error=FetchFailed, what=what, cure=DAMAGED).stdout.strip()
    if made != tree_id({path: (_mode(mode), sha) for path, (mode, sha) in content.files.items()}):
        what = f"{name}: its tree holds a path that git refuses, or one path twice"
        raise BadInput(what, tail=said.strip(), cure="pin a commit without it")
    return made


def _mode(mode: str) -> str:
    """Old trees have other modes for plain files (100664), which git itself takes for these."""
    return mode if mode in (LINK, EXECUTABLE) else "100644"


def _normalise(raw: Path, part: Path, name: str) -> str:
    """A tar that git wrote in the one form that the store keeps; the tree that its bytes are."""
    proof: dict[str, tuple[str, str]] = {}
    pointers: list[str] = []
    # PAX, because names may be long and of any bytes.
    with _opened(raw) as source, tarfile.open(part, "w", format=tarfile.PAX_FORMAT, encoding="utf-8") as out:
        for member in sorted((m for m in source if not m.isdir()), key=lambda m: m.name):
            made = tarfile.TarInfo(member.name)
            made.mtime = CHECKED_MTIME
            data = _bytes(source, member)
            if member.issym():
                made.type, made.linkname, made.mode = tarfile.SYMTYPE, member.linkname, 0o777
                out.addfile(made)
            else:
                made.size, made.mode = len(data), 0o755 if member.mode & 0o100 else 0o644
                pointers += [member.name] if data.startswith(LFS) and len(data) < 1024 else []
                out.addfile(made, io.BytesIO(data))
            proof[member.name] = _entry(made, data)
    if pointers:
        more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
        raise BadInput(
            f"{name}: {pointers[0]}{more} is a Git LFS pointer: git does not have the file itself",
            cure="Graft fetches nothing of LFS. Use a source that holds the files (a release archive, an sdist), or a "
            "commit without them",
        )
    return tree_id(proof)


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The content of a file; of a link, where it points to, as git keeps it."""
    if member.issym():
        return member.linkname.encode("utf-8", "surrogateescape")
    stream = tar.extractfile(member)
    assert stream is not None
    return stream.read()


def _entry(member: tarfile.TarInfo, data: bytes) -> tuple[str, str]:
    mode = LINK if member.issym() else EXECUTABLE if member.mode & 0o100 else "100644"
    return mode, _object("blob", data)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(file, "r:") as tar:
            yield tar
    except (OSError, tarfile.TarError, EOFError) as problem:
        file.unlink(missing_ok=True)
        raise FetchFailed(
            f"{file.name} in the store cannot be read and was removed: {problem}",
            cure="run the same command: it is made again",
        ) from problem
