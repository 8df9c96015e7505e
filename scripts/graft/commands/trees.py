"""Source trees from git and from archives: locked, and brought into the store."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from graft.commands.session import Session
from graft.errors import BadInput, FetchFailed
from graft.kinds import kind_of
from graft.linting.contents import requirements_of
from graft.lock import ArchivePin, FilePin, GitPin, Lock, SourcePin, SubmodulePin
from graft.patching import read_sdist_members
from graft.recipe import Component, Recipe

if TYPE_CHECKING:
    from graft.gitstore import GitTree, TreeStore

SAY_IT = "give components.{}.requires in the recipe, [] when it needs nothing"


def lock_trees(session: Session, recipe: Recipe, old: Lock | None) -> dict[str, SourcePin]:
    """Every component from git or an archive as the lock will have it. Raises FetchFailed and BadInput.

    A tree that an old lock has from the same commits, or the same archive, has to be the same again.
    """
    made: dict[str, SourcePin] = {}
    for name, component in recipe.components.items():
        if component.git is None and component.archive is None:
            continue
        with session.console.step(f"{name}: {_title(component)}"):
            pin = _lock_one(session, _store(session), name, component, versioned=component.is_versioned_by_tags)
        before = old.sources.get(name) if old is not None else None
        if before is not None and _same_source(before, pin) and before.tree != pin.tree:
            raise FetchFailed(
                f"{name}: {pin.origin} gives tree {pin.tree}, and the lock has {before.tree}",
                cure="git merges otherwise than the one that made the lock: compare `git --version`",
            )
        made[name] = pin
    return made


def bring_trees(session: Session, recipe: Recipe, pins: Mapping[str, SourcePin]) -> None:
    """Put locked trees that the store lacks into it. Raises FetchFailed: not to be had, or another tree."""
    for name, pin in pins.items():
        if not is_tree(pin) or session.store.has(pin):
            continue
        component = recipe.components[name]
        with session.console.step(f"{name}: {_title(component)}"):
            found = _lock_one(session, _store(session), name, component)
        if (found.tree, found.sha256) != (pin.tree, pin.sha256):
            raise FetchFailed(
                f"{name}: {found.origin} gives tree {found.tree}, the lock says {pin.tree}",
                cure=f"find out why before anything else; if it is the right one: make lock RECIPE={recipe.recipe}",
            )


def is_tree(pin: FilePin) -> bool:
    """Whether a locked file is a tree that is made on this host, so that no index has it."""
    return isinstance(pin, SourcePin) and pin.tree is not None


def requires_of(name: str, component: Component, tree: Path) -> tuple[str, ...]:
    """What a component that is built from a tree needs at run time: the recipe says it, or the tree does.

    Nothing of the tree is run for that: static metadata alone counts (PEP 621, PEP 643). Raises BadInput.
    """
    if component.build is None or not kind_of(component.build).is_python:
        return component.requires or ()
    if component.requires is not None:
        return tuple(sorted(component.requires))
    found = read_sdist_members(tree, ["pyproject.toml", "PKG-INFO"])
    try:
        project = tomllib.loads(found.get("pyproject.toml", b"").decode("utf-8")).get("project", {})
    except ValueError as problem:
        raise BadInput(f"{name}: its pyproject.toml cannot be read: {problem}", cure=SAY_IT.format(name)) from None
    if not isinstance(project, dict) or not isinstance(project.get("dynamic", []), list):
        raise BadInput(f"{name}: [project] of its pyproject.toml is not as PEP 621 has it", cure=SAY_IT.format(name))
    if project and "dependencies" not in project.get("dynamic", []):
        return _checked(name, project.get("dependencies", []))
    said = requirements_of(found["PKG-INFO"]) if "PKG-INFO" in found else None
    if said is None:
        raise BadInput(
            f"{name}: its source does not say what it needs at run time without being run",
            cure=SAY_IT.format(name),
        )
    return _checked(name, said)


def _checked(name: str, said: object) -> tuple[str, ...]:
    """What a tree says that it needs, sorted. Raises BadInput unless all of it could stand in a recipe."""
    if not isinstance(said, list | tuple):
        raise BadInput(f"{name}: its dependencies are no list, but {said!r}", cure=SAY_IT.format(name))
    for text in said:
        try:
            address = Requirement(text).url if isinstance(text, str) else None
        except InvalidRequirement:
            address = None
            text = None
        if not isinstance(text, str):
            raise BadInput(
                f"{name}: its dependencies are not all requirements (PEP 508): {said!r}", cure=SAY_IT.format(name)
            )
        if address is not None:
            raise BadInput(
                f"{name}: it asks for {text}, which no index has",
                cure=f"{SAY_IT.format(name)}; what lies at an address is a component of its own",
            )
    return tuple(sorted(said))


def _store(session: Session) -> TreeStore:
    # Only where a tree is needed.
    from graft.gitstore import TreeStore

    return TreeStore(session.paths.store, session.project.address_of, offline=session.offline)


def _title(component: Component) -> str:
    if component.git is not None:
        heads = f" and {len(component.git.pulls)} heads" if component.git.pulls else ""
        return f"commit {component.git.commit[:12]}{heads} of {component.git.url}"
    assert component.archive is not None
    return f"archive {component.archive.file}"


def _lock_one(
    session: Session, store: TreeStore, name: str, component: Component, *, versioned: bool = False
) -> SourcePin:
    version = component.version
    if component.git is not None:
        found = store.git(name, component.git, versioned=versioned)
        version = found.version or version
        packed, date = found.packed, found.date
        git, archive = _git_pin(component.git.commit, found), None
    else:
        assert component.archive is not None
        file = _archive_file(session, name, component)
        packed, date = store.archive(name, file)
        archive = ArchivePin(file=component.archive.file, size=file.stat().st_size, sha256=component.archive.sha256)
        git = None
    return SourcePin(
        name=component.distribution or name,
        version=version,
        file=packed.file.name,
        size=packed.size,
        sha256=packed.sha256,
        uploaded=date,
        tree=packed.tree,
        git=git,
        archive=archive,
        requires=requires_of(name, component, packed.file),
    )


def _git_pin(commit: str, found: GitTree) -> GitPin:
    submodules = tuple(SubmodulePin(path=s.path, commit=s.commit, tree=s.tree) for s in found.submodules)
    return GitPin(commit=commit, heads=found.heads, merged=found.merged, submodules=submodules)


def _archive_file(session: Session, name: str, component: Component) -> Path:
    from graft import net

    assert component.archive is not None
    source = component.archive
    target = session.paths.store / source.sha256 / source.file
    if not target.is_file() and session.offline:
        raise FetchFailed(
            f"{name}: offline, and {source.file} is not in the store",
            cure="run the same command without OFFLINE=1 once",
        )
    address = session.project.address_of(source.url)
    net.download_whole(net.session(), address, target, source.sha256, what=f"{name}: {source.file}")
    return target


def _same_source(one: SourcePin, other: SourcePin) -> bool:
    if one.git is not None and other.git is not None:
        return (one.git.commit, one.git.heads, one.git.submodules) == (
            other.git.commit,
            other.git.heads,
            other.git.submodules,
        )
    return one.archive is not None and one.archive == other.archive
