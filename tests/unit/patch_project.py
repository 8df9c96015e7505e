"""A small project on disk with a wheel in its store, a lock and a series, for the tests of verbs that edit patches."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from factories import PROJECT, RECIPE, Data, edited, make_lock, make_project, make_recipe, write_project

from graft.commands.session import Session, open_session
from graft.console import Console
from graft.lock import write_lock
from graft.paths import Paths
from graft.store import mark_checked

VERSION = "0.32.0"
LINES = [f"line {number}\n" for number in range(1, 41)]
TEST = "def test_it():\n    assert True\n"


def text(**changed: str) -> bytes:
    """Forty lines; `l7="x"` exchanges the seventh, an empty text removes it."""
    lines = list(LINES)
    for name, value in changed.items():
        lines[int(name[1:]) - 1] = f"{value}\n" if value else ""
    return "".join(lines).encode()


#: The pristine wheel.
FILES: Mapping[str, bytes] = {
    "vllm/__init__.py": b"",
    "vllm/a.txt": text(),
    "vllm/b.txt": b"\r\n".join(b"crlf %d" % n for n in range(20)),
    "vllm-0.32.0.dist-info/METADATA": b"Name: vllm\n",
}


def record(patch_id: str, **more: Any) -> Data:
    return {
        "id": patch_id,
        "title": f"What {patch_id} does",
        "target": "wheel",
        "reason": "It is broken.",
        "origin": "https://example.org/issue/1",
        "upstream": "pending",
        "until": "the next release",
        "author": "Somebody",
        "license": "Apache-2.0",
        "tests": [f"tests/test_{patch_id.replace('-', '_')}.py"],
        **more,
    }


def git(folder: Path, *argv: str, stdin: bytes | None = None, **env: str) -> str:
    """git as a person has it, in a repository of a test; without the configuration of who runs the tests."""
    identity = {
        "GIT_AUTHOR_NAME": "Ann Author", "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Carl", "GIT_COMMITTER_EMAIL": "carl@example.org",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05 +0000", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05 +0000",
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": str(folder),
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-C", str(folder), *argv], env={**identity, **env}, input=stdin, capture_output=True, check=True
    )
    return done.stdout.decode("utf-8", "replace").strip()


Tree = Mapping[str, bytes | tuple[str, bytes]]


def canonical(
    old: Tree | bytes, new: Tree | bytes, message: str | bytes = "Subject\n\nBody\n", context: int = 3
) -> bytes:
    """A patch as plain git writes it; bytes are the contents of vllm/a.txt, a pair gives a mode as well."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "--quiet")
        trees = [_tree(folder, {"vllm/a.txt": side} if isinstance(side, bytes) else side) for side in (old, new)]
        file = folder / "out"
        git(folder, "diff", "--full-index", "--no-renames", f"-U{context}", f"--output={file}", *trees)
        said = message.encode() if isinstance(message, str) else message
        return (said + b"---\n" if said else b"") + file.read_bytes()


def _tree(folder: Path, files: Tree) -> str:
    git(folder, "read-tree", "--empty")
    for path, content in files.items():
        mode, data = content if isinstance(content, tuple) else ("100644", content)
        blob = git(folder, "hash-object", "-w", "--stdin", stdin=data)
        git(folder, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
    return git(folder, "write-tree")


def wheel(path: Path, files: Mapping[str, bytes]) -> str:
    """Write a wheel; its sha256. The same files give the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


FIRST = canonical(text(), text(l7="seven"))
SECOND = canonical(text(l7="seven"), text(l7="seven", l20="twenty"), message="Second\n")
#: id -> (patch, more of its record)
SERIES: Mapping[str, tuple[bytes, Data]] = {"first": (FIRST, {}), "second": (SECOND, {})}


def sdist(path: Path, files: Mapping[str, bytes]) -> str:
    """The same for an sdist, below a top folder."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"vllm-{VERSION}/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Project:
    """The project, and what a test looks at."""

    root: Path
    paths: Paths
    session: Session

    @property
    def folder(self) -> Path:
        return self.paths.patches / "vllm"

    @property
    def series(self) -> str:
        return (self.folder / "series.yaml").read_text(encoding="utf-8")

    def patch(self, patch_id: str) -> bytes:
        return (self.folder / f"{patch_id}.patch").read_bytes()

    def put(self, patch_id: str, data: bytes) -> None:
        (self.folder / f"{patch_id}.patch").write_bytes(data)

    def state(self) -> dict[str, bytes]:
        """Everything but .graft."""
        files = (path for path in sorted(self.root.rglob("*")) if path.is_file() and not path.is_symlink())
        names = {path.relative_to(self.root).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".graft/")}


def make(
    root: Path,
    series: Mapping[str, tuple[bytes, Data]] = SERIES,
    *,
    files: Mapping[str, bytes] = FILES,
    listed: Sequence[str] | None = None,
    version: str = VERSION,
    source: bool = False,
) -> Project:
    """The project. listed: the ids in the recipe (default: all). version: of the recipe; the lock has 0.32.0.

    source: vllm is built from an sdist.
    """
    root.mkdir(parents=True, exist_ok=True)
    ids = list(series) if listed is None else listed

    def recipe(data: Data) -> None:
        data["patches"] = [f"vllm/{name}" for name in ids]
        kind = {"sdist": "vllm", "build": "python"} if source else {"wheel": "vllm"}
        data["components"]["vllm"] = {**kind, "version": version}

    made_recipe = make_recipe(recipe)
    paths = write_project(root, PROJECT, {"toy": edited(RECIPE, recipe)})
    target = {"target": "source"} if source else {}
    write_series(paths, "vllm", {name: (patch, {**target, **more}) for name, (patch, more) in series.items()})
    archive = root / (f"vllm-{VERSION}.tar" if source else f"vllm-{VERSION}-py3-none-any.whl")
    digest = (sdist if source else wheel)(archive, files)
    found = {"sha256": digest, "size": archive.stat().st_size, "file": archive.name}

    def lock(data: Data) -> None:
        pin = next(entry for entry in data["packages"] if entry["name"] == "vllm")
        pin.update(found)
        if source:
            data["sources"]["vllm"] = {**pin, **found}

    write_lock(paths, make_lock(lock, project=make_project(), recipe=made_recipe))
    kept = paths.store / digest / archive.name
    kept.parent.mkdir(parents=True)
    archive.rename(kept)
    mark_checked(kept)
    return Project(root, paths, session(paths))


def write_series(paths: Paths, component: str, series: Mapping[str, tuple[bytes, Data]]) -> None:
    folder = paths.patches / component
    (folder / "tests").mkdir(parents=True)
    records = [record(name, **more) for name, (_, more) in series.items()]
    data = {"component": component, "patches": records}
    (folder / "series.yaml").write_text("# In order.\n" + yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    for name, (patch, _) in series.items():
        (folder / f"{name}.patch").write_bytes(patch)
        (folder / "tests" / f"test_{name.replace('-', '_')}.py").write_text(TEST)


def session(paths: Paths, *, offline: bool = False) -> Session:
    return open_session(paths, Console(), recipe="toy", arch="sm90", offline=offline)
