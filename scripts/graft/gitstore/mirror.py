"""Bare mirrors of git repositories in the store: commits come in by their ids, and nothing is ever checked out.

A mirror lies below `.graft/store/git/`, one for each address of a recipe. A commit that it has is never fetched again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from graft.errors import BadInput, FetchFailed
from graft.patching.repository import Repository
from graft.patching.upstream import NETWORK, host_environment
from graft.proc import Completed

#: What git hosts say of a commit that they do not have, or do not give out by its id.
REFUSED = re.compile(r"not our ref|unadvertised object|couldn't find remote ref|did not send all necessary objects")
NO_REPOSITORY = re.compile(
    r"Authentication failed|could not read Username|[Rr]epository .*not found|"
    r"does not appear to be a git repository|The requested URL returned error: 40[134]|not valid: is this a git repo"
)
KEEP = "refs/graft/keep"
#: `--depth` of everything, as git's own --unshallow says it.
ALL_OF_IT = "2147483647"
SHORT = 12


@dataclass(frozen=True)
class Wanted:
    """One commit that is to be had.

    ref:  where the commit may be found when the host gives out no commit by its id; also said when it is gone.
    what: how people know it: `vllm`, `vllm pull 31`, `vllm submodule third_party/cutlass`.
    deep: with its history, which merges need.
    """

    url: str
    commit: str
    what: str
    ref: str | None = None
    deep: bool = False


class Mirrors:
    """All mirrors of a store.

    address: where on this host an address of a recipe is asked for (mirrors of build.yaml).
    """

    def __init__(self, root: Path, address: Callable[[str], str], *, offline: bool = False) -> None:
        self.root = root
        self._address = address
        self._offline = offline

    def folder(self, url: str) -> Path:
        """The bare repository of an address; with and without `.git` it is the same one."""
        name = url.rstrip("/").removesuffix(".git")
        return self.root / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.git"

    def bring(self, wanted: Wanted) -> Repository:
        """The mirror that holds a commit, fetched when it is not there.

        Raises FetchFailed (offline, not reachable, no repository, no such commit, none that the host gives out, a
        damaged mirror) and BadInput (the id of something that is no commit).
        """
        folder = self.folder(wanted.url)
        if _has(Repository(folder), wanted):
            return Repository(folder)
        if self._offline:
            raise FetchFailed(
                f"{wanted.what}: offline, and commit {wanted.commit[:SHORT]} of {wanted.url} is not in the store",
                cure="run the same command without OFFLINE=1 once",
            )
        with self._locked(folder, wanted.url) as repository:
            if not _has(repository, wanted):
                self._fetch(repository, wanted)
        return Repository(folder)

    def remote_refs(self, url: str, names: Sequence[str]) -> dict[str, str]:
        """ref -> commit, as the host says it now. Raises FetchFailed."""
        if self._offline:
            raise FetchFailed(f"{url} is not asked: offline", cure="run the same command without OFFLINE=1")
        with self._locked(self.folder(url), url) as repository:
            done = self._network(repository, url, "ls-remote", "--", self._address(url), *names)
        if done.rc != 0:
            raise self._unreachable(done, url, url)
        return {name: sha for sha, name in (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)}

    @contextmanager
    def _locked(self, folder: Path, url: str) -> Iterator[Repository]:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scheme = self._address(url).partition(":")[0]
        repository = Repository(folder, {**host_environment(os.environ), "GIT_ALLOW_PROTOCOL": scheme})
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / "HEAD").is_file():
                folder.mkdir(exist_ok=True)
                repository.git("init", "--quiet", "--bare", "--template=")
            # A fetch that was killed; the lock says that nobody else is at it.
            for left in (*folder.glob("*.lock"), *folder.glob("refs/graft/keep/*.lock")):
                left.unlink()
            yield repository

    def _fetch(self, repository: Repository, wanted: Wanted) -> None:
        by_id = self._take(repository, wanted, wanted.commit)
        if by_id.rc == 0:
            _check_kind(repository, wanted)
        if by_id.rc == 0 and _has(repository, wanted):
            return
        if by_id.rc != 0:
            _check_whole(repository, by_id)
        if by_id.rc != 0 and not REFUSED.search(by_id.stderr):
            raise self._unreachable(by_id, wanted.url, wanted.what)
        if by_id.rc == 0:
            raise FetchFailed(
                f"{wanted.what}: {wanted.url} gives out commit {wanted.commit} without its history",
                cure="the repository there is a shallow one: name the complete one in the recipe",
            )
        self._by_ref(repository, wanted)

    def _by_ref(self, repository: Repository, wanted: Wanted) -> None:
        """The host did not give out the commit by its id: it may lie in the history of the ref that goes with it."""
        if wanted.ref is None:
            raise FetchFailed(
                f"{wanted.what}: {wanted.url} has no commit {wanted.commit}, or gives out none by its id",
                cure="check the commit, and whether it is only in a fork: then give the fork's url. "
                "For a host that serves branches and tags alone, name the one that holds it in `ref`",
            )
        done = self._take(repository, Wanted(wanted.url, wanted.commit, wanted.what, deep=True), wanted.ref)
        if done.rc != 0 and REFUSED.search(done.stderr):
            raise FetchFailed(
                f"{wanted.what}: {wanted.url} has neither commit {wanted.commit} nor {wanted.ref}",
                cure="check the commit and its ref; if both were removed, pin what took their place",
            )
        if done.rc != 0:
            raise self._unreachable(done, wanted.url, wanted.what)
        tip = repository.git("rev-parse", "--verify", f"{KEEP}/{wanted.commit}").stdout.strip()
        inside = repository.git("merge-base", "--is-ancestor", wanted.commit, tip, check=False).rc == 0
        if inside:
            _check_kind(repository, wanted)
        argv = ("update-ref", f"{KEEP}/{wanted.commit}") if inside else ("update-ref", "-d", f"{KEEP}/{wanted.commit}")
        repository.git(*argv, *([wanted.commit] if inside else []))
        if not inside:
            raise FetchFailed(
                f"{wanted.what}: commit {wanted.commit} is not in {wanted.url}; {wanted.ref} is now {tip}",
                cure=f"it was moved by force, or the commit is only in a fork. Look at what changed, then pin {tip}, "
                "or give the url that has the commit",
            )

    def _take(self, repository: Repository, wanted: Wanted, name: str) -> Completed:
        """One fetch of a commit or ref, kept under the wanted commit's name."""
        depth = ALL_OF_IT if wanted.deep else "1"
        refspec = f"+{name}:{KEEP}/{wanted.commit}"
        argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", f"--depth={depth}")
        return self._network(repository, wanted.url, *argv, "--", self._address(wanted.url), refspec)

    def _network(self, repository: Repository, url: str, *argv: str) -> Completed:
        return repository.git(*NETWORK, *argv, check=False, error=FetchFailed, what=f"git {argv[0]} of {url}")

    def _unreachable(self, done: Completed, url: str, what: str) -> FetchFailed:
        """The address of a mirror is this host's own business, so it is not said."""
        tail = done.stderr.replace(self._address(url), url).strip()
        if NO_REPOSITORY.search(done.stderr):
            return FetchFailed(
                f"{what}: no git repository answers at {url}",
                tail=tail,
                cure="check the url; it may be gone or need a login. `mirrors` in build.yaml can name another place",
            )
        return FetchFailed(
            f"{what}: {url} could not be asked",
            tail=tail,
            cure="check the network and the proxy, then run the same command",
        )


def _has(repository: Repository, wanted: Wanted) -> bool:
    """Whether the commit is there, and with all its history where that matters."""
    if not (repository.folder / "HEAD").is_file() or not repository.has(wanted.commit):
        return False
    # A fetch sets this ref last: objects alone may be a part of somebody else's. A tag is not what it stands for.
    ref = repository.git("rev-parse", "--verify", "--quiet", f"{KEEP}/{wanted.commit}^{{commit}}", check=False)
    if ref.stdout.strip() != wanted.commit:
        return False
    return not wanted.deep or not _is_cut_off(repository, wanted.commit)


def _is_cut_off(repository: Repository, commit: str) -> bool:
    """Whether the history of a commit ends before its first one."""
    shallow = repository.folder / "shallow"
    if not shallow.is_file():
        return False
    ends = set(shallow.read_text(encoding="ascii").split())
    roots = repository.git("rev-list", "--max-parents=0", commit).stdout.split()
    return not ends.isdisjoint(roots)


def _check_kind(repository: Repository, wanted: Wanted) -> None:
    """Raises BadInput for the id of a tag, a tree or a file, which hosts give out as well."""
    kind = repository.git("cat-file", "-t", wanted.commit, check=False).stdout.strip()
    if kind in ("", "commit"):
        return
    commit = repository.git("rev-parse", "--verify", "--quiet", f"{wanted.commit}^{{commit}}", check=False)
    stands_for = commit.stdout.strip()
    raise BadInput(
        f"{wanted.what}: {wanted.commit} in {wanted.url} is a {kind}, and no commit",
        cure=f"pin the commit that it stands for: {stands_for}" if stands_for else "pin a commit by its id",
    )


def _check_whole(repository: Repository, failed: Completed) -> None:
    """Raises FetchFailed when it is the mirror that git cannot work with, whatever the host says."""
    if repository.git("rev-list", "--max-count=1", "--all", check=False).rc != 0:
        raise FetchFailed(
            "git cannot read what was fetched before",
            where=str(repository.folder),
            tail=failed.stderr.strip(),
            cure=f"rm -r {repository.folder} (all of it is fetched again)",
        )
