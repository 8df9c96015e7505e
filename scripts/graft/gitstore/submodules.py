"""Every file of a tree, with its submodules where they belong: each by the commit that the tree says, at any depth."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

from pydantic import TypeAdapter, ValidationError

from graft.errors import BadInput, FetchFailed
from graft.gitstore.compose import link
from graft.gitstore.mirror import Mirrors, Wanted
from graft.patching.repository import Repository
from graft.sources import HttpsUrl

GITLINK, FOLDER, LINK = "160000", "40000", "120000"
#: No project nests them deeper; a repository that is its own submodule would never end.
MAX_DEPTH = 8
_URL: TypeAdapter[str] = TypeAdapter(HttpsUrl)


@dataclass(frozen=True)
class Submodule:
    """One submodule: its path from the top, and its commit and that commit's tree; no tree where it is left out."""

    path: str
    commit: str
    tree: str | None


@dataclass
class Content:
    """All entries of a tree with its submodules in place: path -> (mode, blob)."""

    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    submodules: list[Submodule] = field(default_factory=list)


def content_of(
    mirrors: Mirrors, scratch: Repository, name: str, tree: str, url: str, chosen: Mapping[str, str | None]
) -> Content:
    """Walk a tree and fetch its submodules.

    chosen: path -> address that is asked instead of the one in .gitmodules; None leaves the submodule out.
    Raises FetchFailed for a submodule that cannot be had, BadInput for one that has no address, and for an address
    in `chosen` that no submodule uses.
    """
    made = Content()
    _walk(mirrors, scratch, name, _At(tree, url, "", 0), chosen, made)
    unused = sorted(chosen.keys() - {submodule.path for submodule in made.submodules})
    if unused:
        there = ", ".join(submodule.path for submodule in made.submodules) or "none"
        raise BadInput(
            f"{name}: {unused[0]} is no submodule of it", cure=f"take it out of `submodules`; there is: {there}"
        )
    return made


@dataclass(frozen=True)
class _At:
    """A tree that is walked: what it is, where its repository is, the path that it lies at, and how deep."""

    tree: str
    url: str
    prefix: str
    depth: int


def _walk(
    mirrors: Mirrors, scratch: Repository, name: str, at: _At, chosen: Mapping[str, str | None], made: Content
) -> None:
    if at.depth > MAX_DEPTH:
        raise BadInput(
            f"{name}: its submodules are nested deeper than {MAX_DEPTH}", cure="leave one out in `submodules`"
        )
    links: list[tuple[str, str]] = []
    for path, mode, sha in _entries(scratch, at.tree):
        if mode == GITLINK:
            links.append((path, sha))
        else:
            made.files[at.prefix + path] = (mode, sha)
    addresses = _addresses(scratch, at.tree) if links else {}
    for path, commit in links:
        whole = at.prefix + path
        if whole in chosen and chosen[whole] is None:
            made.submodules.append(Submodule(whole, commit, None))
            continue
        url = chosen.get(whole) or _absolute(name, whole, addresses.get(path), at.url)
        wanted = Wanted(url, commit, f"{name} submodule {whole}")
        try:
            link(scratch, mirrors.bring(wanted))
        except FetchFailed as problem:
            cure = f"{problem.cure}. Where it is gone: `submodules: {{{whole}: URL}}`, or null to leave it out"
            raise FetchFailed(problem.what, where=problem.where, cure=cure, tail=problem.tail) from problem
        tree = scratch.commit(commit).tree
        made.submodules.append(Submodule(whole, commit, tree))
        _walk(mirrors, scratch, name, _At(tree, url, f"{whole}/", at.depth + 1), chosen, made)


def _entries(scratch: Repository, tree: str) -> Iterator[tuple[str, str, str]]:
    """(path, mode, id) of every file, link and submodule of a tree."""
    listed = scratch.folder / "graft-listed"
    listed.unlink(missing_ok=True)
    # Into a file, because a name may be of any bytes.
    what = f"tree {tree} is not whole in the store"
    scratch.git("ls-tree", "-r", "-z", "--full-tree", tree, error=FetchFailed, what=what, log=listed)
    for record in filter(None, listed.read_bytes().split(b"\0") if listed.exists() else []):
        facts, _, path = record.partition(b"\t")
        mode, _, sha = facts.decode("ascii").split(" ")
        yield os.fsdecode(path), mode, sha


def _addresses(scratch: Repository, tree: str) -> dict[str, str]:
    """path -> address, as the tree's .gitmodules has them. git reads the file; nothing in it is carried out."""
    entry = scratch.tree(tree).get(".gitmodules")
    if entry is None or entry.mode == LINK or entry.is_tree:
        return {}
    file = scratch.folder / "graft-gitmodules"
    file.write_bytes(scratch.read("blob", entry.id))
    argv = ("config", "--file", file, "--no-includes", "-z", "--get-regexp", r"^submodule\..*\.(path|url)$")
    done = scratch.git(*argv, check=False)
    found: dict[str, dict[str, str]] = {}
    for record in filter(None, done.stdout.split("\0")):
        key, _, value = record.partition("\n")
        section, _, what = key.rpartition(".")
        found.setdefault(section, {})[what] = value
    return {facts["path"]: facts["url"] for facts in found.values() if {"path", "url"} <= facts.keys()}


def _absolute(name: str, path: str, url: str | None, parent: str) -> str:
    """The address of a submodule; one that begins with a dot is relative to the repository that has it."""
    cure = f"name its https address in the recipe: `submodules: {{{path}: <url>}}`, or null to leave it out"
    if url is None:
        raise BadInput(f"{name}: {path} is a submodule, and .gitmodules does not say where it comes from", cure=cure)
    made = urljoin(f"{parent.rstrip('/')}/", url) if re.match(r"\.\.?/", url) else url.rstrip("/")
    try:
        return _URL.validate_python(made)
    except ValidationError:
        raise BadInput(f"{name}: submodule {path} has the address {url[:80]!r}", cure=cure) from None
