"""Pristine bytes: members of a wheel, and the unpacked tree of an sdist. Archives are read with suspicion."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from graft.errors import BadInput
from graft.patching.model import Malformed, SourceTree
from graft.patching.parse import parse
from graft.patchset import Patch, Target

MAX_FILE = 16 * 1024 * 1024
MAX_MEMBERS = 200_000


def touched_paths(patches: Iterable[Patch]) -> tuple[str, ...]:
    """Every path that the patches touch, sorted; a malformed patch touches none."""
    found: set[str] = set()
    for patch in patches:
        with contextlib.suppress(Malformed):
            found.update(parse(patch.data).paths)
    return tuple(sorted(found))


def read_files(file: Path, target: Target, paths: Collection[str]) -> dict[str, bytes]:
    """The pristine bytes of those of `paths` that a wheel or an sdist holds. Raises BadInput."""
    return read_wheel_members(file, paths) if target == "wheel" else read_sdist_members(file, paths)


def read_sdist_members(archive: Path, paths: Collection[str]) -> dict[str, bytes]:
    """The same for an sdist; `paths` are relative to its top folder."""
    found: dict[str, bytes] = {}
    with _open_sdist(archive) as tar:
        for member in tar:
            _top, path = _checked(member, archive)
            if path is None or path not in paths or not member.isreg():
                continue
            found[path] = _contents(tar, member, path, archive)
    return found


def read_wheel_members(wheel: Path, paths: Collection[str]) -> dict[str, bytes]:
    """The bytes of those of `paths` (relative to site-packages) that the wheel holds. Raises BadInput."""
    found: dict[str, bytes] = {}
    with _open_wheel(wheel) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for path in paths:
            info = members.get(path)
            if info is None:
                continue
            if info.file_size > MAX_FILE:
                raise BadInput(f"{path} is larger than {MAX_FILE // 1024 // 1024} MiB", where=wheel.name)
            try:
                found[path] = archive.read(info)
            except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError) as problem:
                cure = "remove the file: it is downloaded again"
                raise BadInput(f"{path} cannot be read: {problem}", where=str(wheel), cure=cure) from problem
    return found


def wheel_names(wheel: Path) -> frozenset[str]:
    """Every file of a wheel, relative to site-packages."""
    with _open_wheel(wheel) as archive:
        return frozenset(info.filename for info in archive.infolist() if not info.is_dir())


def wheel_tree(wheel: Path, paths: Collection[str]) -> SourceTree:
    """What patches on a wheel are judged against: the touched files, and the names of all."""
    return SourceTree(read_wheel_members(wheel, paths), names=wheel_names(wheel))


def sdist_tree(archive: Path, paths: Collection[str]) -> SourceTree:
    """The same for an sdist, in one pass over it."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    names: set[str] = set()
    with _open_sdist(archive) as tar:
        for member in tar:
            _top, path = _checked(member, archive)
            if path is None or member.isdir():
                continue
            names.add(path)
            if path in paths and member.isreg():
                files[path] = _contents(tar, member, path, archive)
                executable |= {path} if member.mode & 0o111 else set()
    return SourceTree(files, frozenset(executable), frozenset(names))


def _contents(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, archive: Path) -> bytes:
    if member.size > MAX_FILE:
        raise BadInput(f"{path} is larger than {MAX_FILE // 1024 // 1024} MiB", where=archive.name)
    data = tar.extractfile(member)
    assert data is not None
    return data.read()


def archive_tree(file: Path, target: Target, paths: Collection[str]) -> SourceTree:
    """`wheel_tree` or `sdist_tree`, by what the patches aim at."""
    return wheel_tree(file, paths) if target == "wheel" else sdist_tree(file, paths)


def _open_wheel(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as problem:
        raise BadInput(f"not a wheel: {problem}", where=str(wheel)) from problem


def folder_tree(folder: Path, paths: Collection[str]) -> SourceTree:
    """The same for an unpacked source. Raises BadInput for a path that is, or lies behind, a symbolic link."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    for path in paths:
        if ".." in PurePosixPath(path).parts or not _is_there(folder, path):
            continue
        target = folder / path
        files[path] = target.read_bytes()
        executable |= {path} if target.stat().st_mode & 0o100 else set()
    return SourceTree(files, frozenset(executable), frozenset(_names_below(folder)))


def _is_there(folder: Path, path: str) -> bool:
    """Whether there is a plain file. Raises BadInput for one that is, or lies behind, a symbolic link."""
    for part in (*(str(above) for above in reversed(PurePosixPath(path).parents)), path):
        try:
            mode = (folder / part).lstat().st_mode
        except (OSError, ValueError):
            # Not there, below a file, or a name that no file can have.
            return False
        if stat.S_ISLNK(mode) and part != ".":
            where = str(folder / part)
            raise BadInput(f"{path} is, or lies behind, a symbolic link; git would not patch it", where=where)
    return stat.S_ISREG(mode)


def _names_below(folder: Path) -> Iterator[str]:
    """Every file below a folder, without .git; not by recursion, folders may be nested deeply."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if not entry.is_dir(follow_symlinks=False):
                    yield name
                elif entry.name != ".git":
                    waiting.append(f"{name}/")


def unpack_sdist(archive: Path, into: Path) -> None:
    """Unpack an sdist without its top folder; modes become 755 or 644.

    Refuses (BadInput) links, devices, names outside the folder, .git, duplicates and a second top folder: the tree
    that is locked here and the one that the builder makes must be the same.
    """
    tops: set[str] = set()
    seen: set[str] = set()
    with _open_sdist(archive) as tar:
        for member in tar:
            top, path = _checked(member, archive)
            tops.add(top)
            if len(tops) > 1:
                raise BadInput(f"more than one top folder: {', '.join(sorted(tops))}", where=archive.name)
            if path is None or member.isdir():
                continue
            if path in seen or len(seen) >= MAX_MEMBERS:
                raise BadInput(f"{path} stands twice in the archive, or it has too many files", where=archive.name)
            seen.add(path)
            _write(tar, member, into / path)
    if not seen:
        raise BadInput("the archive holds no file", where=str(archive))


@contextlib.contextmanager
def _open_sdist(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive, "r:*") as tar:
            yield tar
    except (OSError, tarfile.TarError, EOFError, zlib.error) as problem:
        raise BadInput(f"cannot be unpacked: {problem}", where=str(archive)) from problem


#: A tree that Graft packed and proved, as git has it: symbolic links belong to it.
TREE_SUFFIX = ".tar"


def _checked(member: tarfile.TarInfo, archive: Path) -> tuple[str, str | None]:
    parts = PurePosixPath(member.name).parts
    if not (member.isreg() or member.isdir() or (member.issym() and archive.suffix == TREE_SUFFIX)):
        raise BadInput(f"{member.name} is a link or a device", where=archive.name)
    if not parts or parts[0] == "/" or ".." in parts or "\\" in member.name:
        raise BadInput(f"{member.name!r} lies outside the archive", where=archive.name)
    if any(part.casefold() == ".git" for part in parts):
        raise BadInput(f"{member.name} belongs to a git repository", where=archive.name)
    return parts[0], "/".join(parts[1:]) or None


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.issym():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(member.linkname)
        return
    data = tar.extractfile(member)
    assert data is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    with data, target.open("xb") as out:
        shutil.copyfileobj(data, out)
    target.chmod(0o755 if member.mode & 0o111 else 0o644)
