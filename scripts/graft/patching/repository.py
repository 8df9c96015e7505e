"""A bare git repository of ours: objects go in and come out as bytes, and no configuration but ours is read.

What is read is believed only when its bytes have the id that they were asked for by: a clone, a host or a repository
that somebody worked in may hold anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from graft.errors import BadInput, FetchFailed, GraftError
from graft.patching.git import OPTIONS
from graft.patching.sources import MAX_FILE
from graft.patching.temporary import temporary
from graft.proc import Completed, run

#: path -> (mode, bytes) of every file that matters at one moment.
Files = Mapping[str, tuple[str, bytes]]

BARE_OPTIONS = (
    *OPTIONS,
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "core.quotePath=true",
    "diff.suppressBlankEmpty=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
)
#: Whatever the files of a tree say about themselves, they are compared as the text or binary that they look like.
ATTRIBUTES = "* !diff\n"
DIFF = (
    "--full-index", "--no-renames", "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/",
    "--no-ext-diff", "--no-textconv", "--no-color", "--diff-algorithm=myers", "--indent-heuristic", "--no-relative",
    "-O/dev/null", "--ignore-submodules=none", "--submodule=short",
)  # fmt: skip
TIMEOUT_SECONDS = 1800.0
AUTHOR = re.compile(rb"^author (.*?) ?<([^<>\n]*)> -?\d+ [+-]\d{4}$", re.M)


@dataclass(frozen=True)
class Commit:
    """What a commit object says. message: its bytes as they are; author: the name alone."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: str
    message: bytes
    encoding: str = "utf-8"

    @property
    def text(self) -> str:
        """The message, decoded as the commit says."""
        try:
            return self.message.decode(self.encoding, "replace")
        except LookupError:
            return self.message.decode("utf-8", "replace")

    @property
    def subject(self) -> str:
        """The first line that is not blank; empty without one."""
        return next((line.strip() for line in self.text.split("\n") if line.strip()), "")


@dataclass(frozen=True)
class Entry:
    """One entry of a tree: mode as git writes it, and the object's id."""

    mode: str
    id: str

    @property
    def is_tree(self) -> bool:
        return self.mode == "40000"


@dataclass(frozen=True)
class NewCommit:
    """A commit to make: the whole state after it, its message as it is, and who made it."""

    files: Files
    message: bytes = b""
    author: str = "Graft <graft@invalid>"


@dataclass(frozen=True)
class Repository:
    """A git folder, with every program run in it cut off from the host's and the user's configuration.

    env: what a fetch needs of the host, and `GIT_ALLOW_PROTOCOL`; without it no address can be reached at all.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    _trees: dict[str, dict[str, Entry]] = field(default_factory=dict, compare=False, repr=False)

    def git(
        self,
        *argv: str | Path,
        stdin: bytes | None = None,
        check: bool = True,
        error: type[GraftError] = BadInput,
        what: str | None = None,
        cure: str | None = None,
        log: Path | None = None,
        work: Path | None = None,
    ) -> Completed:
        """One git command. work: the folder that the files lie in. Raises `error` when it fails and `check` is set."""
        options = [word for option in BARE_OPTIONS for word in ("-c", option)]
        return run(
            ["git", *options, *argv],
            cwd=self.folder,
            env={**self._environment(), **({"GIT_WORK_TREE": str(work)} if work is not None else {})},
            stdin=stdin,
            timeout=TIMEOUT_SECONDS,
            error=error,
            what=what or f"git {argv[0]} failed",
            cure=cure,
            check=check,
            log=log,
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "false",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "0" if self.env else "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_DIR": str(self.folder),
            **self.env,
        }

    # Reading

    def read(self, kind: str, name: str) -> bytes:
        """The bytes of an object, of which the id was computed again. Raises FetchFailed when there is none."""
        file = self._scratch_file("object")
        for _ in range(2):
            file.unlink(missing_ok=True)
            self.git("cat-file", kind, name, error=FetchFailed, what=f"{kind} {name} cannot be read", log=file)
            data = file.read_bytes() if file.exists() else b""
            file.unlink(missing_ok=True)
            if hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest() == name:
                return data
            # A fetch on demand may have said something in between; the second time the object is there.
        raise FetchFailed(f"{kind} {name} has other bytes than its name says", cure="clone the repository again")

    def has(self, name: str) -> bool:
        """Whether a commit of this id is there."""
        return self.git("cat-file", "-e", f"{name}^{{commit}}", check=False).rc == 0

    def commit(self, name: str) -> Commit:
        """A commit by its id. Raises FetchFailed."""
        data = self.read("commit", name)
        head, _, message = data.partition(b"\n\n")
        fields = [line.partition(b" ")[::2] for line in head.split(b"\n")]
        tree = next(value for key, value in fields if key == b"tree")
        parents = tuple(value.decode("ascii") for key, value in fields if key == b"parent")
        encoding = next((value.decode("ascii", "replace") for key, value in fields if key == b"encoding"), "utf-8")
        found = AUTHOR.search(head)
        author = found[1].decode("utf-8", "replace") if found else ""
        return Commit(name, tree.decode("ascii"), parents, author.strip(), message, encoding)

    def tree(self, name: str) -> dict[str, Entry]:
        """The entries of one tree, not of those in it."""
        if name in self._trees:
            return self._trees[name]
        data, at = self.read("tree", name), 0
        entries: dict[str, Entry] = {}
        while at < len(data):
            end = data.index(b"\0", at)
            mode, _, path = data[at:end].partition(b" ")
            entries[os.fsdecode(path)] = Entry(mode.decode("ascii"), data[end + 1 : end + 21].hex())
            at = end + 21
        self._trees[name] = entries
        return entries

    def changes(
        self, old: str | None, new: str | None, prefix: str = ""
    ) -> Iterator[tuple[str, Entry | None, Entry | None]]:
        """(path, before, after) of every file that differs between two trees, in the order of their names."""
        before = self.tree(old) if old is not None else {}
        after = self.tree(new) if new is not None else {}
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name), after.get(name)
            if was == now:
                continue
            path = prefix + name
            was_tree, now_tree = (side.id if side is not None and side.is_tree else None for side in (was, now))
            if was_tree or now_tree:
                yield from self.changes(was_tree, now_tree, f"{path}/")
            was_file, now_file = (None if side is None or side.is_tree else side for side in (was, now))
            if was_file or now_file:
                yield path, was_file, now_file

    def states(self, trees: Sequence[str]) -> list[Files]:
        """Every file of each tree; what does not change from one to the next is read once."""
        made: list[Files] = []
        state: dict[str, tuple[str, bytes]] = {}
        for old, new in zip([None, *trees], trees, strict=False):
            for path, _, entry in self.changes(old, new):
                state.pop(path, None)
                if entry is not None:
                    state[path] = self.content(path, entry)
            made.append(dict(state))
        return made

    def content(self, path: str, entry: Entry) -> tuple[str, bytes]:
        """Mode and bytes of a file. Raises BadInput for a link, a submodule, or a file that is too large."""
        if entry.mode not in ("100644", "100755"):
            kind = {"120000": "a symbolic link", "160000": "a submodule"}.get(entry.mode, f"of mode {entry.mode}")
            raise BadInput(f"{path} is {kind}; only plain files of mode 644 or 755 can be patched")
        size = int(self.git("cat-file", "-s", entry.id, error=FetchFailed, what=f"{path} cannot be read").stdout)
        if size > MAX_FILE:
            raise BadInput(f"{path} is larger than {MAX_FILE // 1024 // 1024} MiB and cannot be patched")
        return entry.mode, self.read("blob", entry.id)

    def prefetch(self, old: str, new: str, paths: Sequence[str]) -> None:
        """Fetch what is not there yet of these files in two trees at once, not file by file. Raises FetchFailed."""
        if self.env:
            names = [f":(literal){path}" for path in paths]
            self.git("diff", *DIFF, "--output=/dev/null", old, new, "--", *names, error=FetchFailed)

    # Writing

    def write(self, ref: str, commits: Sequence[NewCommit]) -> list[tuple[str, str]]:
        """A line of commits below a new ref; (commit, tree) of each. The same input gives the same ids."""
        stream: list[bytes] = []
        before: Files = {}
        for made in commits:
            who = f"{made.author} {EPOCH} +0000\n".encode()
            stream.append(b"commit %s\n" % ref.encode())
            stream.append(b"author " + who + b"committer " + who + _data(made.message))
            for path in sorted(before.keys() - made.files.keys()):
                stream.append(b"D %s\n" % _quoted(path))
            for path, (mode, content) in sorted(made.files.items()):
                if before.get(path) != (mode, content):
                    stream.append(b"M %s inline %s\n" % (mode.encode(), _quoted(path)) + _data(content))
            before = made.files
        self.git("fast-import", "--quiet", "--date-format=raw", stdin=b"".join(stream))
        listed = self.git("rev-list", "--reverse", "--format=%H %T", ref).stdout.splitlines()
        return [(commit, tree) for commit, tree in (line.split(" ") for line in listed[1::2])]

    def diff(self, old: str, new: str, context: int) -> bytes:
        """What `git diff` writes about two trees, in the one form that Graft keeps. context: in lines."""
        file = self._scratch_file("diff")
        file.unlink(missing_ok=True)
        self.git("diff", *DIFF, f"-U{context}", f"--output={file}", old, new, "--")
        data = file.read_bytes()
        file.unlink()
        return data

    def _scratch_file(self, name: str) -> Path:
        return self.folder / f"graft-{name}"


#: 2020-01-01, as for the store's files: a commit's id depends on nothing but what was given.
EPOCH = 1_577_836_800


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"


def _quoted(path: str) -> bytes:
    raw = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + raw + b'"'


@contextmanager
def bare(objects: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[Repository]:
    """An empty repository, gone afterwards. objects: an object store of somebody else to read from as well."""
    with temporary("graft-bare-", Path(tempfile.gettempdir()).resolve()) as place:
        repository = Repository(place / "git", env or {})
        repository.folder.mkdir()
        repository.git("init", "--quiet", "--bare", "--template=")
        info = repository.folder / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(ATTRIBUTES)
        if objects is not None:
            more = repository.folder / "objects" / "info"
            more.mkdir(exist_ok=True)
            (more / "alternates").write_bytes(os.fsencode(objects) + b"\n")
        yield repository


def git_folder(place: Path) -> Path:
    """The git folder of a clone, a linked worktree or a bare repository. Raises BadInput when there is none."""
    try:
        found = _git_folder(place.resolve())
    except (ValueError, RuntimeError, OSError):
        # A NUL where a path should stand, a loop of links, a folder that may not be read.
        found = None
    if found is None:
        raise BadInput("no git repository", where=str(place), cure="name the folder of a clone")
    return found


def _git_folder(place: Path) -> Path | None:
    dot = place / ".git"
    if dot.is_file():
        text = dot.read_text(encoding="utf-8", errors="surrogateescape").strip()
        dot = (place / text.removeprefix("gitdir:").strip()).resolve()
    for folder in (dot, place):
        if (folder / "HEAD").is_file() and (object_folder(folder)).is_dir():
            return folder
    return None


def object_folder(git: Path) -> Path:
    """Where a git folder has its objects; a linked worktree shares those of its main one."""
    common = git / "commondir"
    if common.is_file():
        text = common.read_text(encoding="utf-8", errors="surrogateescape").strip()
        return (git / text).resolve() / "objects"
    return git / "objects"
