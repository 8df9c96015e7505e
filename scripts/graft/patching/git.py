"""The engine: git in a scratch repository of its own, cut off from every configuration but the one given here.

Exit codes prove nothing (inside somebody else's repository `git apply` exits 0 and does nothing); what counts is
the id that `git write-tree` computes from the result.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graft.errors import PatchMismatch
from graft.patching.temporary import temporary
from graft.proc import Completed, run

#: images/scripts/apply-patches.sh says the same for the builder; the result ids show that both agree.
OPTIONS = (
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.fileMode=true",
    "core.ignoreCase=false",
    "core.precomposeUnicode=false",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "apply.whitespace=nowarn",
    "apply.ignoreWhitespace=no",
)
#: Attributes of the source itself (.gitattributes) must not change any byte.
ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"
TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True)
class Scratch:
    """A repository whose work tree is a folder of ours. The index holds the state that patches are applied to."""

    folder: Path
    work: Path

    def git(self, *argv: str | Path, check: bool = True) -> Completed:
        """One git command. Raises PatchMismatch when it fails and `check` is set."""
        options = [word for option in OPTIONS for word in ("-c", option)]
        return run(
            ["git", *options, *argv],
            cwd=self.work,
            env=self._environment(),
            timeout=TIMEOUT_SECONDS,
            error=PatchMismatch,
            what=f"git {argv[0]} failed in the scratch repository",
            cure="git 2.30 or newer is needed",
            check=check,
        )

    def add_all(self) -> str:
        """The whole work tree into the index, whatever .gitignore says; the id of its tree."""
        self.git("add", "--all", "--force", "--", ".")
        return self.write_tree()

    def apply(self, patch: bytes) -> bool:
        """Apply to the index only. Whether git took it; what it did is seen from `write_tree`."""
        file = self.folder / "patch"
        file.write_bytes(patch)
        return self.git("apply", "--cached", "--whitespace=nowarn", "-p1", "--", file, check=False).rc == 0

    def write_tree(self) -> str:
        return self.git("write-tree").stdout.strip()

    def blobs(self) -> dict[str, tuple[str, str]]:
        """path -> (mode, blob id) of the index."""
        found: dict[str, tuple[str, str]] = {}
        for entry in self.git("ls-files", "--stage", "-z").stdout.split("\0"):
            if entry:
                facts, _, path = entry.partition("\t")
                mode, blob, _stage = facts.split(" ")
                found[path] = (mode, blob)
        return found

    def _environment(self) -> Mapping[str, str]:
        return {
            **isolated(self.folder),
            "GIT_DIR": str(self.folder / "git"),
            "GIT_WORK_TREE": str(self.work),
            "GIT_INDEX_FILE": str(self.folder / "index"),
        }


def isolated(folder: Path) -> dict[str, str]:
    """The whole environment of a git that knows no configuration of the host; `folder` is its home."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }


@contextmanager
def scratch(work: Path) -> Iterator[Scratch]:
    """A fresh repository over a folder of pristine files; gone afterwards, the folder stays."""
    with temporary("graft-git-", Path(tempfile.gettempdir())) as place:
        repository = Scratch(place.resolve(), work.resolve())
        repository.git("init", "--quiet", "--template=")
        info = repository.folder / "git" / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(ATTRIBUTES)
        yield repository
