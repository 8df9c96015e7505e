"""What git hosts say today of the names beside a recipe's commits."""

from __future__ import annotations

from collections.abc import Iterator

from graft.commands.session import Session
from graft.errors import FetchFailed
from graft.gitstore import Mirrors
from graft.linting.facts import RemoteRef
from graft.recipe import Recipe
from graft.sources import GitSource
from graft.yamlio import Position


def remote_refs(session: Session, recipe: Recipe) -> tuple[RemoteRef, ...]:
    """Every `ref` and every numbered pull request of a recipe; a host that does not answer is a fact like any other."""
    mirrors = Mirrors(session.paths.store / "git", session.project.address_of, offline=session.offline)
    found: list[RemoteRef] = []
    for name, component in recipe.components.items():
        if component.git is None:
            continue
        asked = list(_names(name, component.git))
        for url in dict.fromkeys(url for url, _, _ in asked):
            here = [(ref, full) for at, ref, full in asked if at == url]
            found += _answers(mirrors, url, here)
    return tuple(found)


def _names(component: str, source: GitSource) -> Iterator[tuple[str, RemoteRef, tuple[str, ...]]]:
    """(address, what is asked, the names that it may have there)."""
    at: Position = ("components", component, "git")
    if source.ref is not None:
        ref = RemoteRef((*at, "ref"), component, f"ref {source.ref}", source.commit)
        full = (source.ref,) if source.ref.startswith("refs/") else tuple(f"{f}{source.ref}" for f in FOLDERS)
        yield source.url, ref, full
    for index, pull in enumerate(source.pulls):
        if pull.number is not None and pull.head is not None:
            ref = RemoteRef((*at, "pulls", index), component, f"pull {pull.number}", pull.head)
            # A number counts in the repository that the request was made to, wherever its head lies.
            yield source.url, ref, (f"refs/pull/{pull.number}/head", f"refs/merge-requests/{pull.number}/head")


#: An annotated tag has an object of its own; `^{}` is the commit that it names.
FOLDERS = ("refs/heads/", "refs/tags/")


def _answers(mirrors: Mirrors, url: str, asked: list[tuple[RemoteRef, tuple[str, ...]]]) -> Iterator[RemoteRef]:
    try:
        refs = mirrors.remote_refs(
            url, [name for _, names in asked for full in names for name in (full, f"{full}^{{}}")]
        )
    except FetchFailed as problem:
        yield from (RemoteRef(r.position, r.component, r.name, r.pinned, problem=problem.what) for r, _ in asked)
        return
    for ref, names in asked:
        now = next((refs[n] for full in names for n in (f"{full}^{{}}", full) if n in refs), None)
        yield RemoteRef(ref.position, ref.component, ref.name, ref.pinned, now)
