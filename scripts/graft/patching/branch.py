"""A series as a git branch, one commit for each patch, and back to the same bytes.

The message of a commit is the patch's message as it is, then a trailer `Graft-Patch: component/id`, which survives
rebase, amend and cherry-pick, and never enters the patch file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput
from graft.patching.git import ATTRIBUTES
from graft.patching.repository import Commit, Files, NewCommit, Repository, bare, git_folder, object_folder
from graft.patching.temporary import temporary

TRAILER = re.compile(rb"^Graft-Patch: ([^\s/]+)/([^\s/]+)[ \t]*(?:\n|\Z)", re.M)


@dataclass(frozen=True)
class BranchPatch:
    """One commit of a branch as a patch: id is empty where its message names none."""

    commit: str
    subject: str
    component: str
    id: str
    message: bytes
    after: Files


@dataclass(frozen=True)
class Branch:
    """A branch with one commit of pristine files and the patches above it."""

    tip: str
    base: Files
    patches: tuple[BranchPatch, ...]


def with_trailer(message: bytes, component: str, patch_id: str) -> bytes:
    """A commit's message for a patch's."""
    return message + b"\nGraft-Patch: %s/%s\n" % (component.encode(), patch_id.encode())


def without_trailer(message: bytes) -> tuple[bytes, str, str]:
    """The patch's message, component and id of a commit's; empty names without a trailer."""
    found = list(TRAILER.finditer(message))
    if not found:
        return message, "", ""
    last = found[-1]
    above, below = message[: last.start()], message[last.end() :]
    return (above.removesuffix(b"\n") if not below else above) + below, last[1].decode(), last[2].decode()


def check_branch(name: str) -> None:
    """Raises BadInput for what is not the name of a branch."""
    with bare() as repository:
        # git itself refuses a branch HEAD, which would hide what HEAD means.
        wrong = name.startswith("-") or name == "HEAD"
        if wrong or repository.git("check-ref-format", f"refs/heads/{name}", check=False).rc != 0:
            raise BadInput(f"{name!r} is not the name of a branch", where="--branch", cure="for example --branch mine")


def write_branch(folder: Path, branch: str, commits: Sequence[NewCommit]) -> list[str]:
    """A new repository with a branch of these commits, checked out; the commits' ids. `folder`: new or empty.

    It appears in one step. Raises BadInput.
    """
    _refuse_used(folder)
    with temporary(".graft-export-", folder.parent) as place:
        staged = place / "repository"
        (staged / ".git").mkdir(parents=True)
        repository = Repository(staged / ".git")
        repository.git("init", "--quiet", "--template=", work=staged)
        # Whatever its owner is configured for, the bytes of the files stay what they are.
        repository.git("config", "core.autocrlf", "false")
        (staged / ".git" / "info").mkdir(exist_ok=True)
        (staged / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
        made = repository.write(f"refs/heads/{branch}", commits)
        repository.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        repository.git("reset", "--quiet", "--hard", work=staged)
        staged.rename(folder)
    return [commit for commit, _tree in made]


def _refuse_used(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise BadInput("not a new or empty folder", where=str(folder), cure="name one that does not exist yet")
    if not folder.parent.is_dir():
        raise BadInput("there is no such folder to make it in", where=str(folder.parent))


def read_branch(place: Path, branch: str) -> Branch:
    """The branch of a repository that somebody worked in; nothing of its configuration is used but its refs.

    Raises BadInput when there is none, or when it is no line of commits above one of pristine files.
    """
    git = git_folder(place)
    found = Repository(git).git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", check=False)
    if found.rc != 0:
        raise BadInput(f"there is no branch {branch}", where=str(place), cure="give the name with --branch")
    with bare(object_folder(git)) as repository:
        line = _line(repository, found.stdout.strip(), place)
        states = repository.states([commit.tree for commit in line])
        patches = []
        for commit, after in zip(line[1:], states[1:], strict=True):
            message, component, patch_id = without_trailer(_utf8(commit))
            subject = next((text for text in message.decode(errors="replace").split("\n") if text.strip()), "")
            patches.append(BranchPatch(commit.id, subject, component, patch_id, message, after))
        return Branch(line[-1].id, states[0], tuple(patches))


def _line(repository: Repository, tip: str, place: Path) -> list[Commit]:
    """From the first commit to the tip."""
    line = [repository.commit(tip)]
    while line[-1].parents:
        if len(line[-1].parents) > 1:
            raise BadInput(
                f"commit {line[-1].id} is a merge; a series is a line of commits",
                where=str(place),
                cure="git rebase it",
            )
        line.append(repository.commit(line[-1].parents[0]))
    return line[::-1]


def _utf8(commit: Commit) -> bytes:
    """The message as it is, unless the commit says that it is in another encoding."""
    return commit.message if commit.encoding.lower() in ("utf-8", "utf8") else commit.text.encode()
