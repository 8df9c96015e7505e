"""One edit of patches/<component> at a time, and all of it in one step.

The whole new folder is prepared in patches/.edit and exchanged with the old one by the system in one step: whoever
looks, and whatever is killed, finds the old folder or the new one. What a killed edit leaves in patches/.edit is
removed by the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput
from graft.locks import alone
from graft.patchset import load_patchset
from graft.paths import Paths

#: Below patches/, deep enough that nothing which lists `patches/*/...` sees what is prepared in it.
PLACE = ".edit"
RENAME_EXCHANGE = 2
AT_FDCWD = -100
#: Left behind by whatever ran a test by hand; nothing of a series.
IGNORED = "__pycache__"

#: Name relative to the component's folder -> (permission bits, bytes).
Contents = Mapping[str, tuple[int, bytes]]


@dataclass(frozen=True)
class Edit:
    """The right to change patches/, held by one process."""

    paths: Paths

    def contents(self, component: str) -> dict[str, tuple[int, bytes]]:
        """All files of a component's folder; none when there is no folder. Raises BadInput for links."""
        folder = self.paths.patches / component
        if folder.is_symlink():
            raise BadInput("a link, which cannot be exchanged in one step", where=self.paths.relative(folder))
        return read_folder(folder) if folder.exists() else {}

    def replace(self, component: str, old: Contents, new: Contents) -> None:
        """Exchange the component's folder for one with other contents. Raises BadInput as `prepare` and `commit` do."""
        self.prepare(component, old, new).commit()

    def prepare(self, component: str, old: Contents, new: Contents) -> Prepared:
        """The new contents beside the old, loaded and found sound. Raises BadInput; nothing has changed then.

        old: what the folder held when the new contents were made. new: nothing takes the folder away.
        """
        folder = self.paths.patches / component
        staged = self._staged(component, new)
        if "series.yaml" in new:
            self._check(staged, folder)
        if new and folder.exists():
            self._try_exchange()
        return Prepared(folder, staged, old, bool(new))

    def replace_file(self, file: Path, content: bytes) -> None:
        """Exchange one file in one step."""
        part = self._place() / file.name
        part.write_bytes(content)
        part.chmod(stat.S_IMODE(file.stat().st_mode))
        part.replace(file)

    def clear(self) -> None:
        """Remove what this edit, or one that was killed, has prepared. Raises BadInput where its place is no folder."""
        place = self.paths.patches / PLACE
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            # What a link leads to is somebody else's.
            raise BadInput(
                "not a folder; edits are prepared there, and what they leave is removed",
                where=self.paths.relative(place),
                cure=f"look where it leads, then: rm {self.paths.relative(place)}",
            )
        if place.exists():
            # What keeps git from seeing the rest goes last.
            for path in place.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
            shutil.rmtree(place)

    def _try_exchange(self) -> None:
        """Raises BadInput where folders cannot be exchanged, before anything depends on it."""
        probes = [self._place() / f".{name}" for name in ("one", "other")]
        for probe in probes:
            probe.mkdir(exist_ok=True)
        exchange(*probes)

    def _place(self) -> Path:
        place = self.paths.patches / PLACE
        place.mkdir(parents=True, exist_ok=True)
        (place / ".gitignore").write_text("*\n")
        return place

    def _staged(self, component: str, new: Contents) -> Path:
        staged = self._place() / component
        if staged.exists():
            shutil.rmtree(staged)
        staged.mkdir()
        for name, (mode, content) in new.items():
            file = staged / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
        return staged

    def _check(self, staged: Path, folder: Path) -> None:
        try:
            load_patchset(staged)
        except BadInput as problem:
            here, there = str(staged), self.paths.relative(folder)
            raise BadInput(
                problem.what.replace(here, there),
                where=problem.where.replace(here, there) if problem.where else None,
                cure=problem.cure,
            ) from None


@dataclass(frozen=True)
class Prepared:
    """A folder that is ready to take the place of another one."""

    folder: Path
    staged: Path
    old: Contents
    stays: bool

    def check(self) -> None:
        """Raises BadInput when the folder holds something else than `old` by now."""
        if self.folder.exists():
            _refuse_changed(self.folder, self.old)

    def commit(self) -> None:
        """The step. Raises BadInput when the folder holds something else than `old` by now; it keeps that then."""
        if not self.folder.exists():
            if self.stays:
                self.staged.rename(self.folder)
        elif not self.stays:
            _refuse_changed(self.folder, self.old)
            self.staged.rmdir()
            self.folder.rename(self.staged)
        else:
            exchange(self.staged, self.folder)
            try:
                _refuse_changed(self.staged, self.old, self.folder)
            except BadInput:
                exchange(self.staged, self.folder)
                raise


def commit_all(prepared: Sequence[Prepared]) -> None:
    """One step for each folder, after every one was looked at once more. Raises BadInput."""
    for each in prepared:
        each.check()
    for each in prepared:
        each.commit()


@contextlib.contextmanager
def editing(paths: Paths, say: Callable[[str], None]) -> Iterator[Edit]:
    """The right to change patches/; waits while another process has it."""
    paths.state.mkdir(parents=True, exist_ok=True)
    with alone(paths.state / "edit.lock", "another edit of the patches", say):
        edit = Edit(paths)
        edit.clear()
        try:
            yield edit
        finally:
            edit.clear()


def read_folder(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder. Raises BadInput for what is neither a plain file nor a folder."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if IGNORED in path.relative_to(folder).parts or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise BadInput("neither a plain file nor a folder", where=str(path), cure="move it out of patches/")
        name = path.relative_to(folder).as_posix()
        found[name] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
    return found


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders of one file system in one step. Raises BadInput where the system cannot do that."""
    try:
        code = _renameat2(os.fsencode(one), os.fsencode(other))
    except AttributeError:
        code = errno.ENOSYS
    if code == 0:
        return
    if code in (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP):
        raise BadInput(
            "this file system cannot exchange two folders in one step",
            where=str(other),
            cure="edit a checkout on a local file system (ext4, xfs, btrfs, tmpfs), on Linux",
        )
    raise OSError(code, os.strerror(code), str(other))


def _renameat2(one: bytes, other: bytes) -> int:
    """renameat2(2) with RENAME_EXCHANGE, which Python does not offer; 0 or the error number."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.renameat2
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return 0 if call(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0 else ctypes.get_errno()


def _refuse_changed(now: Path, old: Contents, name: Path | None = None) -> None:
    if read_folder(now) != dict(old):
        raise BadInput(
            "files changed in it while the edit was made; nothing was changed",
            where=str(name or now),
            cure="run the command again",
        )
