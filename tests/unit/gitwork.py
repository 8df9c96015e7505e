"""Git repositories for tests: what upstream would have, made by git itself, without the host's configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_DATE": "1700000000 +0100",
    "GIT_COMMITTER_DATE": "1700000000 +0100",
}


@dataclass(frozen=True)
class Work:
    """A work tree with a repository in it; `bare` is what a host serves of it."""

    folder: Path
    bare: Path

    def git(self, *words: str | Path, cwd: Path | None = None, stdin: bytes | None = None) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
        argv = ["git", *who, *map(str, words)]
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **ENV}
        done = subprocess.run(argv, cwd=cwd or self.folder, env=env, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str], on: str | None = None, gone: tuple[str, ...] = ()) -> str:
        """A commit with these files; on: another one than the last."""
        if on is not None:
            self.git("checkout", "--quiet", "--detach", on)
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in gone:
            (self.folder / name).unlink()
        links = [(line.split()[1], line.split("\t")[1]) for line in self._links()]
        self.git("add", "--all", "--force")
        # Their folders are not there, which git takes for a removal.
        for commit, path in links:
            self.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def _links(self) -> list[str]:
        return [line for line in self.git("ls-files", "--stage").splitlines() if line.startswith("160000")]

    def add_submodule(self, path: str, url: str, commit: str) -> None:
        """An entry of .gitmodules, and the commit at its path, for the next commit; no address is asked."""
        file = self.folder / ".gitmodules"
        text = file.read_text() if file.exists() else ""
        file.write_text(f'{text}[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
        self.git("add", "--force", ".gitmodules")
        self.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        self.git("commit", "--quiet", "-m", "submodule")

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def serve(self, **refs: str) -> None:
        """Publish everything, with these branches; others are gone."""
        if not self.bare.exists():
            self.bare.mkdir(parents=True)
            self.git("init", "--quiet", "--bare", cwd=self.bare)
        self.git(
            "push", "--quiet", "--prune", "--force", self.bare, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"
        )
        for name, commit in {"main": self.head, **refs}.items():
            full = name if name.startswith("refs/") else f"refs/heads/{name}"
            self.git("push", "--quiet", "--force", self.bare, f"{commit}:{full}")


def work(root: Path, name: str) -> Work:
    """A new repository, to be served as /NAME.git below `root`/host."""
    made = Work(root / f"{name}-work", root / "host" / f"{name}.git")
    made.folder.mkdir(parents=True)
    made.git("init", "--quiet", "-b", "main")
    return made
