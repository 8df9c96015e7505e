"""The files that a component's patches are judged against: those of its pin, or of the lock, read once and kept."""

from __future__ import annotations

from collections.abc import Collection

from graft.commands.session import Session, component_file, sources_of
from graft.commands.trees import bring_trees
from graft.lock import FilePin, Lock, SourcePin
from graft.patching.model import SourceTree
from graft.patching.pristine import PristineFiles
from graft.patchset import Target
from graft.recipe import Recipe


def pristine_files(session: Session) -> PristineFiles:
    """What was read from archives so far, below .graft."""
    return PristineFiles(session.paths.state / "pristine")


def known_tree(
    session: Session, locked: Lock, recipe: Recipe, component: str, target: Target, paths: Collection[str]
) -> SourceTree | None:
    """The touched files of the version that the lock holds, without network; None when they are not at hand."""
    return tree_of(session, component_file(locked, recipe, component), target, paths)


def tree_of(session: Session, pin: FilePin, target: Target, paths: Collection[str]) -> SourceTree | None:
    """The touched files of a wheel or sdist, from what is kept or from the store; None when neither has them."""
    return pristine_files(session).tree(pin.sha256, session.store.path(pin), target, paths)


def fetched_tree(session: Session, recipe: Recipe, pin: FilePin, target: Target, paths: Collection[str]) -> SourceTree:
    """The same; what is not at hand is downloaded. Raises FetchFailed, also when offline."""
    found = tree_of(session, pin, target, paths)
    if found is not None:
        return found
    # Here: looking at patches whose files are at hand takes no HTTP client.
    from graft.fetch import fetch

    if isinstance(pin, SourcePin) and pin.tree is not None:
        name = next(n for n, c in recipe.components.items() if (c.distribution or n) == pin.name)
        bring_trees(session, recipe, {name: pin})
    else:
        fetch(session.store, sources_of(session, recipe).files([pin]), session.console, offline=session.offline)
    made = tree_of(session, pin, target, paths)
    assert made is not None
    return made
