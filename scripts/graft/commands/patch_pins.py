"""What the verbs that edit a series share: its patches, the pinned files, and which of them go together."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graft.commands.patch_sources import fetched_tree
from graft.commands.session import Session, component_file
from graft.errors import BadInput, FetchFailed, LockStale
from graft.lock import FilePin, Lock, load_lock
from graft.patching import SourceTree, one_target, touched_paths
from graft.patchset import PATCH_ID, Patch, PatchSet, check_when, load_patchset
from graft.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Pinned:
    """A component's patches beside the recipe that pins it.

    groups: the patches that are applied together, for each set of the recipe's architectures that differs, in order.
    """

    recipe: Recipe
    found: PatchSet
    groups: tuple[tuple[Patch, ...], ...]
    locked: Lock | None

    @property
    def component(self) -> str:
        return self.found.component

    @property
    def version(self) -> str:
        return self.recipe.components[self.component].version

    @property
    def patches(self) -> tuple[Patch, ...]:
        """Every patch of any group, in the order of the series."""
        ids = {patch.id for group in self.groups for patch in group}
        return tuple(patch for patch in self.found.patches if patch.id in ids)

    def symbols(self, patch_id: str) -> dict[str, str]:
        """The symbols that the lock saw a patch in, with their fingerprints."""
        entries = self.locked.patches.get(self.component, ()) if self.locked is not None else ()
        pins = [pin for entry in entries for pin in entry.patches if pin.id == patch_id]
        return {name: fingerprint for pin in pins for name, fingerprint in pin.symbols.items()}


def reference(text: str) -> tuple[str, str]:
    """Component and id of `COMPONENT/ID`. Raises BadInput."""
    component, _, patch_id = text.partition("/")
    if not PATCH_ID.fullmatch(component) or not PATCH_ID.fullmatch(patch_id):
        raise BadInput(f"{text!r} does not name a patch", where="arguments", cure="COMPONENT/ID, as recipes write it")
    return component, patch_id


def check_component(name: str) -> None:
    """Raises BadInput for what cannot be the name of a folder below patches/."""
    # An id's form is a component's as well, and no path can be written in it.
    if not PATCH_ID.fullmatch(name):
        cure = "the name of a folder below patches/, as recipes write it"
        raise BadInput(f"{name!r} is not the name of a component", where="arguments", cure=cure)


def series_of(session: Session, component: str) -> PatchSet:
    """The series of a component. Raises BadInput, also when it has none."""
    check_component(component)
    folder = session.paths.patches / component
    if not (folder / "series.yaml").is_file():
        there = ", ".join(sorted(path.parent.name for path in session.paths.patches.glob("[!.]*/series.yaml")))
        cure = f"there is: {there}" if there else "no component has any; add one with graft patch import"
        raise BadInput(f"{component} has no patches", where=session.paths.relative(folder), cure=cure)
    return load_patchset(folder)


def pinned(session: Session, component: str, named: Collection[str] = ()) -> Pinned:
    """The patches of a component that the recipe lists, and the named ones. Raises BadInput."""
    found = series_of(session, component)
    recipe = load_recipe(session.paths, session.project, session.recipe)
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    if component not in recipe.components:
        raise BadInput(f"recipe {recipe.recipe} has no component {component}", where=where, cure="choose one: --recipe")
    found.select(list(named))
    listed = recipe.patches_of(component)
    found.select(listed, where)
    chosen = [patch for patch in found.patches if patch.id in listed or patch.id in named]
    pin = recipe.components[component]
    check_when(component, chosen, pin.version, [arch for arch in recipe.arches if pin.on(arch)])
    groups: dict[tuple[str, ...], tuple[Patch, ...]] = {}
    for arch in filter(pin.on, recipe.arches):
        here = tuple(patch for patch in chosen if patch.record.when.holds(pin.version, arch))
        if here:
            groups.setdefault(tuple(patch.id for patch in here), here)
    return Pinned(recipe, found, tuple(groups.values()), _lock(session))


def pristine(session: Session, use: Pinned, more: Collection[str] = ()) -> SourceTree:
    """The pinned version's files that the patches touch, and `more`; downloaded when they are not at hand.

    Raises FetchFailed.
    """
    patches = use.patches or use.found.patches
    target = one_target(use.component, patches)
    paths = {*touched_paths(patches), *more}
    return fetched_tree(session, use.recipe, pinned_file(session, use), target, paths)


def pinned_file(session: Session, use: Pinned) -> FilePin:
    """The file of the recipe's version: the locked one, or what the index has for a version that is not locked yet."""
    if use.locked is not None:
        pin = locked_file(use.locked, use.recipe, use.component)
        if pin is not None and pin.version == use.version:
            return pin
    if session.offline:
        raise FetchFailed(
            f"offline, and no lock names the file of {use.component} {use.version}",
            cure="run it without OFFLINE=1, or run make lock first",
        )
    from graft import index
    from graft.resolve import file_of_version

    indexes = index.discover(session.project.index)
    with session.console.step(f"find {use.component} {use.version} on the index"):
        return file_of_version(session.project, use.recipe, use.component, use.version, indexes, os.environ)


def locked_tree(session: Session, use: Pinned) -> SourceTree | None:
    """The touched files of the version that the lock holds; None without a lock. Raises FetchFailed."""
    if use.locked is None:
        return None
    pin = locked_file(use.locked, use.recipe, use.component)
    if pin is None:
        return None
    target = one_target(use.component, use.patches)
    return fetched_tree(session, use.recipe, pin, target, touched_paths(use.patches))


def locked_file(locked: Lock, recipe: Recipe, component: str) -> FilePin | None:
    """The file that a lock holds for a component of the recipe; None when it is new in the recipe."""
    try:
        return component_file(locked, recipe, component)
    except StopIteration:
        return None


def _lock(session: Session) -> Lock | None:
    try:
        return load_lock(session.paths, session.recipe)
    except LockStale:
        return None


def for_arch(session: Session, use: Pinned) -> tuple[Patch, ...]:
    """The recipe's patches that are applied for the session's architecture. Raises BadInput when there are none."""
    listed: Sequence[str] = use.recipe.patches_of(use.component)
    here = tuple(
        patch
        for patch in use.found.patches
        if patch.id in listed and patch.record.when.holds(use.version, session.arch)
    )
    if not here or not use.recipe.components[use.component].on(session.arch):
        raise BadInput(
            f"recipe {use.recipe.recipe} applies no patch of {use.component} on {session.arch}",
            where=session.paths.relative(session.paths.recipe(use.recipe.recipe)),
            cure="choose another with --recipe or --arch",
        )
    return here
