"""A source tree as one file of the store: a tar with fixed order, times and modes, named by its git tree.

Nothing is believed on the way: the ids of all files and folders are computed again from the bytes in the tar.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graft.errors import BadInput, FetchFailed
from graft.gitstore.submodules import LINK, Content
from graft.hashes import file_sha256
from graft.patching.repository import Repository
from graft.patching.temporary import temporary
from graft.store import CHECKED_MTIME, mark_checked

#: The first line of what Git LFS commits in place of a file.
LFS = b"version https://git-lfs.github.com/spec/v1\n"
#: Whatever the files of a tree say about themselves, they leave git as they were committed, and all of them.
ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst\n"
EXECUTABLE = "100755"
#: No path that Windows or macOS take for .git, none outside the tree.
PROTECT = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true")


#: A store's tree lies in one folder, as the files of an sdist do.
TOP = "tree"


@dataclass(frozen=True)
class Packed:
    """A tree in the store: its git id, and the tar with its sha256 and its size in bytes."""

    tree: str
    sha256: str
    size: int
    file: Path


def pack(root: Path, scratch: Repository, name: str, content: Content) -> Packed:
    """Put a tree with its submodules in place into the store.

    Raises BadInput for Git LFS pointers and for paths that no tree should hold, FetchFailed for objects that are
    damaged or missing.
    """
    tree = _write_tree(scratch, name, content)
    raw = scratch.folder / "graft-archive"
    (scratch.folder / "info" / "attributes").write_text(ATTRIBUTES)
    what = f"{name}: tree {tree} cannot be read from the store"
    argv = ("archive", "--format=tar", f"--prefix={TOP}/", f"--output={raw}", tree)
    scratch.git(*argv, error=FetchFailed, what=what, cure=DAMAGED)
    packed = keep(root, raw, name)
    if packed.tree != tree:
        packed.file.unlink()
        raise FetchFailed(f"{name}: the files in the store are tree {packed.tree}, not {tree}", cure=DAMAGED)
    return packed


def keep(root: Path, archive: Path, name: str) -> Packed:
    """Put the files of a tar, below its one top folder, into the store as a tree. Raises BadInput and FetchFailed."""
    root.mkdir(parents=True, exist_ok=True)
    with temporary("graft-tree-", root) as work:
        part = work / "tree.tar"
        tree = _normalise(archive, part, name)
        digest = file_sha256(part)
        target = root / digest / f"{tree}.tar"
        target.parent.mkdir(exist_ok=True)
        mark_checked(part)
        part.replace(target)
    return Packed(tree, digest, target.stat().st_size, target)


DAMAGED = "the mirror is damaged: remove .graft/store/git, then run the same command"


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


def _normalise(archive: Path, part: Path, name: str) -> str:
    """A tar in the one form that the store keeps; the tree that its files are."""
    proof: dict[str, tuple[str, str]] = {}
    pointers: list[str] = []
    # PAX, because names may be long and of any bytes.
    with _opened(archive, name) as source, tarfile.open(part, "w", format=tarfile.PAX_FORMAT, encoding="utf-8") as out:
        members = _members(source, name)
        for path in sorted(members):
            member = members[path]
            made = tarfile.TarInfo(f"{TOP}/{path}")
            made.mtime = CHECKED_MTIME
            data = _bytes(source, member)
            if member.issym():
                made.type, made.linkname, made.mode = tarfile.SYMTYPE, member.linkname, 0o777
                out.addfile(made)
            else:
                made.size, made.mode = len(data), 0o755 if member.mode & 0o100 else 0o644
                pointers += [path] if data.startswith(LFS) and len(data) < 1024 else []
                out.addfile(made, io.BytesIO(data))
            mode = LINK if member.issym() else EXECUTABLE if made.mode & 0o100 else "100644"
            proof[path] = (mode, _object("blob", data))
    if pointers:
        more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
        raise BadInput(
            f"{name}: {pointers[0]}{more} is a Git LFS pointer: git does not have the file itself",
            cure="Graft fetches nothing of LFS. Use a source that holds the files (a release archive, an sdist), or a "
            "commit without them",
        )
    return tree_id(proof)


def _members(tar: tarfile.TarFile, name: str) -> dict[str, tarfile.TarInfo]:
    """path below the top folder -> file or link. Raises BadInput for what a source tree should not hold."""
    found: dict[str, tarfile.TarInfo] = {}
    tops: set[str] = set()
    for member in tar:
        top, _, path = member.name.removeprefix("./").rstrip("/").partition("/")
        tops.add(top)
        if len(tops) > 1:
            said = ", ".join(sorted(tops))
            raise BadInput(f"{name}: the archive does not hold one top folder with files, but {said}", cure=OTHER)
        parts = path.split("/")
        if member.isdir():
            continue
        if not (member.isreg() or member.issym() or member.islnk()):
            raise BadInput(f"{name}: {member.name} is a device or a pipe", cure=OTHER)
        if not path or member.name.startswith("/") or {"..", ".", ""} & {top, *parts} or "\\" in path:
            raise BadInput(f"{name}: {member.name!r} lies outside of a top folder", cure=OTHER)
        if any(part.casefold() == ".git" for part in parts) or path in found:
            raise BadInput(f"{name}: {member.name} stands twice, or belongs to a git repository", cure=OTHER)
        found[path] = member
    if not found:
        raise BadInput(f"{name}: the archive holds no file", cure=OTHER)
    behind = [path for path in found if any(str(above) in found for above in PurePosixPath(path).parents)]
    if behind:
        raise BadInput(f"{name}: {behind[0]} lies below something that is no folder", cure=OTHER)
    return found


#: What Python's tarfile raises for a link to nothing (KeyError), and for numbers and times that are none.
UNREADABLE = (KeyError, ValueError, OverflowError)
OTHER = "use another archive, or the project's git repository"


def newest_day(archive: Path, name: str) -> str:
    """The newest time in an archive as a day in UTC, for an archive has no other date."""
    with _opened(archive, name) as tar:
        seconds = max((int(member.mtime) for member in tar), default=0)
        return datetime.datetime.fromtimestamp(max(seconds, CHECKED_MTIME), datetime.UTC).date().isoformat()


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The content of a file; of a link, where it points to, as git keeps it."""
    if member.issym():
        return member.linkname.encode("utf-8", "surrogateescape")
    stream = tar.extractfile(member)
    if stream is None:
        raise tarfile.ReadError(f"{member.name} is a link to what is no file")
    return stream.read()


@contextlib.contextmanager
def _opened(archive: Path, name: str) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, *UNREADABLE) as problem:
        raise BadInput(f"{name}: no tar file that can be read: {problem}", where=archive.name, cure=OTHER) from problem
