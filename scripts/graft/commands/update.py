"""`graft update`: newer components, what moves with them, what becomes of the patches; then recipe and lock."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from graft import index
from graft.commands.lint import check_new
from graft.commands.locking import new_lock
from graft.commands.patch_check import Against, judge_series
from graft.commands.patch_sources import fetched_tree, known_tree
from graft.commands.session import (
    Loaded,
    Session,
    component_file,
    image_sources,
    lock_inputs,
    patchsets,
    plan_for,
    sources_of,
)
from graft.commands.trees import is_tree
from graft.console import size
from graft.errors import BadInput, FetchFailed, GraftError, PatchMismatch
from graft.fetch import fetch
from graft.lock import FilePin, Lock, SourcePin, load_lock, write_atomic, write_lock
from graft.patching import one_target, read_wheel_members, touched_paths, wheel_names
from graft.patching.ends import evidence_files
from graft.patching.swap import editing
from graft.patchset import load_patchset
from graft.recipe import Recipe, load_recipe, recipe_of
from graft.report import SeriesReport, counted
from graft.resolve import Resolved, is_on_index, newest_versions, resolve_packages
from graft.store import Wanted, missing
from graft.yamledit import with_values
from graft.yamlio import Position, parse

COMMIT = re.compile(r"commit_id[^=\n]*=\s*['\"]g?([0-9a-f]{7,40})['\"]")
NONE = "-"


@dataclass(frozen=True)
class Move:
    """One package that another version is installed of; `-` for none. released: of the new file; why it moves."""

    package: str
    old: str
    new: str
    released: str
    group: str


@dataclass(frozen=True)
class Update:
    """What an update would do. size_change: bytes of wheels in the image; rebuilt: components and layers."""

    recipe: str
    moves: tuple[Move, ...]
    components: dict[str, str]
    requirements: tuple[str, ...]
    patches: tuple[SeriesReport, ...]
    rebuilt: tuple[str, ...]
    size_change: int

    def as_dict(self) -> dict[str, Any]:
        """The update as `--json` prints it."""
        return {**asdict(self), "patches": [series.as_dict() for series in self.patches]}


def update(session: Session, components: Sequence[str], *, to: str | None = None, dry_run: bool = False) -> None:
    """Raises PatchMismatch when a patch cannot be built with it and BadInput when a rule of lint has an error.

    Both come after the report, and then nothing was written.
    components: those that move to their newest version (none: all); to: the version, for just one.
    """
    if session.offline:
        raise FetchFailed("offline: the index has to be asked for newer versions", cure="run it without OFFLINE=1")
    paths = session.paths
    recipe = load_recipe(paths, session.project, session.recipe)
    wanted = _wanted(session, recipe, components, to)
    old = load_lock(paths, recipe.recipe)
    path = paths.recipe(recipe.recipe)
    raw = path.read_bytes()
    versions = _newest(session, recipe, wanted, old)
    changes = {name: versions[c.distribution] for name, c in recipe.components.items() if c.distribution in versions}
    changes = {name: version for name, version in changes.items() if version != recipe.components[name].version}
    if not changes:
        session.console.result("nothing newer fits the recipe", {"recipe": recipe.recipe, "moves": []})
        return
    made = with_values(raw, path, {("components", name, "version"): version for name, version in changes.items()})
    moved, resolved = _resolve(session, made, old, versions)
    made = with_values(made, path, _commits(session, moved, resolved, changes))
    moved = recipe_of(parse(made, path), session.project, recipe.recipe)
    found = _report(session, recipe, moved, old, resolved)
    refused = [patch for series in found.patches for patch in series.patches if not patch.buildable]
    lock = new_lock(session, moved, resolved, old) if not refused else None
    rebuilt = _rebuilt(session, recipe, moved, old, lock) if lock is not None else found.rebuilt
    found = Update(**{**vars(found), "rebuilt": rebuilt})
    _print(session, found)
    line = ", ".join(f"{name} {moves}" for name, moves in found.components.items())
    if refused:
        if session.console.json_mode:
            session.console.result(line, found.as_dict())
        raise PatchMismatch(
            f"{len(refused)} patches cannot be built with these versions; nothing was written",
            where=refused[0].file,
            cure="\n".join(dict.fromkeys(patch.cure for patch in refused if patch.cure)) or None,
        )
    assert lock is not None
    check_new(session, parse(made, path), moved, lock)
    if dry_run:
        session.console.say("dry run: nothing was written")
    else:
        _write(session, moved, path, raw, made, lock)
    session.console.result(line, found.as_dict())


def _newest(session: Session, recipe: Recipe, wanted: Mapping[str, str], old: Lock) -> dict[str, str]:
    """The closure with the newest versions of what is wanted, and everything else moved only as far as it must.

    Two questions: what the index has kept as it is would hold the wanted ones back.
    """
    indexes, locked, trees = index.discover(session.project.index), _versions(old), _trees(old)
    own = {component.distribution for component in recipe.components.values()}
    others = {name: version for name, version in locked.items() if name not in own}
    with session.console.step("ask the index"):
        free = newest_versions(session.project, recipe, wanted, indexes, os.environ, previous=others, trees=trees)
        exact = {name: f"=={free[name]}" for name in wanted if name in free}
        return newest_versions(session.project, recipe, exact, indexes, os.environ, previous=locked, trees=trees)


def _trees(locked: Lock) -> dict[str, SourcePin]:
    """The sources that no index has; an update leaves them as they are."""
    return {name: pin for name, pin in locked.sources.items() if is_tree(pin)}


def _write(session: Session, recipe: Recipe, path: Path, raw: bytes, made: bytes, lock: Lock) -> None:
    """Raises BadInput when somebody edited the recipe or its patches in the meantime."""
    with editing(session.paths, session.console.say):
        if path.read_bytes() != raw or lock_inputs(session, recipe, patchsets(session, recipe)) != lock.inputs:
            where = session.paths.relative(path)
            raise BadInput("it, or a patch of it, was edited meanwhile; nothing was written", where=where, cure="again")
        # The recipe first: should it end here, the lock is stale, and `make lock` goes on.
        write_atomic(path, made.decode("utf-8"))
        write_lock(session.paths, lock)


def _wanted(session: Session, recipe: Recipe, components: Sequence[str], to: str | None) -> dict[str, str]:
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    components = list(dict.fromkeys(components))
    for name in components:
        if name not in recipe.components:
            there = ", ".join(recipe.components)
            raise BadInput(f"recipe {recipe.recipe} has no component {name}", where=where, cure=f"there is: {there}")
    indexed = [name for name, component in recipe.components.items() if is_on_index(component)]
    fixed = [name for name in components if name not in indexed]
    if fixed:
        cure = "an update asks the package index; pin another commit or archive in the recipe, then run: make lock"
        raise BadInput(f"{fixed[0]} is not from a package index", where=where, cure=cure)
    if to is None:
        return {recipe.components[name].distribution: "" for name in (components or indexed)}
    if len(components) != 1:
        raise BadInput("--to is a version of one component", where="arguments", cure="graft update vllm --to 0.33.0")
    try:
        version = Version(to)
    except InvalidVersion:
        raise BadInput(f"{to!r} is no version", where="--to", cure="graft update vllm --to 0.33.0") from None
    component = recipe.components[components[0]]
    if not component.allows(str(version)):
        cure = f"change allow of {components[0]}, or leave out --to for the newest that it allows"
        raise BadInput(f"the recipe allows {components[0]} {component.allow}, not {version}", where=where, cure=cure)
    return {component.distribution: f"=={version}"}


def _versions(locked: Lock) -> dict[str, str]:
    pins: list[FilePin] = [pin for pin in locked.packages if pin.use == "image"]
    return {pin.name: pin.version for pin in (*pins, *locked.sources.values())}


def _resolve(session: Session, made: bytes, old: Lock, versions: Mapping[str, str]) -> tuple[Recipe, Resolved]:
    """The edited recipe, resolved to files; what the first answer chose is preferred."""
    recipe = recipe_of(parse(made, session.paths.recipe(session.recipe)), session.project, session.recipe)
    kept = [
        pin.model_copy(update={"version": versions[pin.name]})
        for pin in old.packages
        if pin.use == "image" and pin.name in versions
    ]
    with session.console.step("resolve the packages"):
        found = resolve_packages(
            session.project, recipe, index.discover(session.project.index), os.environ, previous=kept, trees=_trees(old)
        )
    wanted = [component_file(found, recipe, name) for name in _interesting(recipe, old)]
    files = sources_of(session, recipe).files(p for p in wanted if not is_tree(p))
    # In a dry run too: what the files say is what is asked for.
    announce(session, files)
    fetch(session.store, files, session.console)
    return recipe, found


def announce(session: Session, files: Sequence[Wanted]) -> None:
    """Say which of the files will be downloaded, how many and how large; nothing where the store has all."""
    lacking = missing(session.store, files)
    if lacking:
        count = f"{len(lacking)} file{'' if len(lacking) == 1 else 's'}"
        names = ", ".join(item.file_name for item in lacking)
        session.console.say(f"to download: {count}, {size(sum(item.pin.size for item in lacking))} ({names})")


def _interesting(recipe: Recipe, old: Lock) -> list[str]:
    """Components whose new files have to be read: patched ones, those that record a commit, and vLLM."""
    patched = {ref.partition("/")[0] for ref in recipe.patches}
    return [n for n, c in recipe.components.items() if n in patched or c.commit or c.distribution == "vllm"]


def _commits(session: Session, recipe: Recipe, resolved: Resolved, changes: Mapping[str, str]) -> dict[Position, str]:
    """The commits that the new wheels record, for components whose recipe names one."""
    found: dict[Position, str] = {}
    for name in changes:
        pinned = recipe.components[name].commit
        if pinned is None:
            continue
        wheel = session.store.path(component_file(resolved, recipe, name))
        commit = _recorded_commit(wheel)
        if commit is None:
            where = session.paths.relative(session.paths.recipe(recipe.recipe))
            raise BadInput(f"{wheel.name} records no commit", where=where, cure=f"take `commit` out of {name}")
        found["components", name, "commit"] = commit[: max(len(pinned), 7)]
    return found


def _recorded_commit(wheel: Path) -> str | None:
    names = [name for name in wheel_names(wheel) if name.endswith("/_version.py") and name.count("/") == 1]
    for content in read_wheel_members(wheel, names).values():
        if match := COMMIT.search(content.decode("utf-8", "replace")):
            return match[1]
    return None


def _report(session: Session, old_recipe: Recipe, recipe: Recipe, old: Lock, new: Resolved) -> Update:
    components = {
        name: f"{c.version} -> {recipe.components[name].version}"
        for name, c in old_recipe.components.items()
        if c.version != recipe.components[name].version
    }
    patches = tuple(
        _series(session, old_recipe, recipe, old, new, name)
        for name in dict.fromkeys(ref.partition("/")[0] for ref in recipe.patches)
    )
    before = sum(pin.size for pin in old.packages if pin.use == "image")
    after = sum(pin.size for pin in new.packages if pin.use == "image")
    return Update(
        recipe.recipe,
        _moves(session, old, new),
        components,
        _requirement_changes(session, recipe, old, new),
        patches,
        tuple(name for name in components if recipe.components[name].is_built),
        after - before,
    )


def _moves(session: Session, old: Lock, new: Resolved) -> tuple[Move, ...]:
    before = _versions(old)
    pins: list[FilePin] = [p for p in new.packages if p.use == "image"]
    now = {pin.name: pin for pin in (*pins, *new.sources.values())}
    groups = {name: group for group, names in session.project.groups.items() for name in names}
    moves = [
        Move(name, before.get(name, NONE), pin.version, pin.uploaded, groups.get(name, ""))
        for name, pin in sorted(now.items())
        if before.get(name) != pin.version
    ]
    gone = [Move(name, before[name], NONE, NONE, groups.get(name, "")) for name in sorted(before.keys() - now.keys())]
    return (*moves, *gone)


def _requirement_changes(session: Session, recipe: Recipe, old: Lock, new: Resolved) -> tuple[str, ...]:
    """What vLLM itself asks for now and did not ask for before, and the other way round."""
    name = next((n for n, c in recipe.components.items() if c.distribution == "vllm" and c.wheel), None)
    if name is None:
        return ()
    try:
        before = _requires(session, component_file(old, recipe, name))
    except StopIteration:
        return ()
    after = _requires(session, component_file(new, recipe, name))
    if before is None or after is None:
        return ()
    return tuple(
        f"{package}: {before.get(package, NONE)} -> {after.get(package, NONE)}"
        for package in sorted(before.keys() | after.keys())
        if before.get(package) != after.get(package)
    )


def _requires(session: Session, pin: FilePin) -> dict[str, str] | None:
    """package -> version specifier of a wheel's metadata, without extras; None when the wheel is not at hand."""
    wheel = session.store.path(pin)
    if not wheel.is_file():
        return None
    name = next(n for n in wheel_names(wheel) if n.count("/") == 1 and n.endswith(".dist-info/METADATA"))
    text = read_wheel_members(wheel, [name])[name].decode("utf-8", "replace").partition("\n\n")[0]
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("Requires-Dist: "):
            wanted = Requirement(line.partition(": ")[2])
            if wanted.marker is None or "extra" not in str(wanted.marker):
                found[canonicalize_name(wanted.name)] = str(wanted.specifier) or "any"
    return found


def _series(
    session: Session, old_recipe: Recipe, recipe: Recipe, old: Lock, new: Resolved, component: str
) -> SeriesReport:
    """The verdicts of a component's patches against its new version."""
    found = load_patchset(session.paths.patches / component)
    patches = found.select(recipe.patches_of(component))
    paths = {*touched_paths(patches), *evidence_files(patches)}
    target = one_target(component, patches)
    version = recipe.components[component].version
    tree = fetched_tree(session, recipe, component_file(new, recipe, component), target, paths)
    pinned = known_tree(session, old, old_recipe, component, target, paths)
    return judge_series(session, old_recipe, component, patches, old, Against(version, version, tree), pinned)


def _rebuilt(session: Session, old_recipe: Recipe, recipe: Recipe, old: Lock, new: Lock) -> tuple[str, ...]:
    """What the session's architecture builds anew: components, overlays and layers whose key or packages differ."""
    sources = image_sources(session.paths)
    try:
        before = plan_for(session, Loaded(old_recipe, old, sources), session.arch)
        after = plan_for(session, Loaded(recipe, new, sources), session.arch)
    except GraftError:
        # The default architecture may be none of this recipe's.
        return ()
    keys = {f"component {b.name}": b.keyed.key for b in before.builds}
    keys |= {f"overlay {o.name}": o.keyed.key for o in before.overlays}
    keys |= {f"layer {layer.name}": str([p.sha256 for p in layer.packages]) for layer in before.layers}
    now = {f"component {b.name}": b.keyed.key for b in after.builds}
    now |= {f"overlay {o.name}": o.keyed.key for o in after.overlays}
    now |= {f"layer {layer.name}": str([p.sha256 for p in layer.packages]) for layer in after.layers}
    return tuple(name for name, key in now.items() if keys.get(name) != key)


def _print(session: Session, found: Update) -> None:
    console = session.console
    rows = [[m.package, m.old, m.new, m.released, m.group] for m in found.moves]
    console.table(f"{found.recipe}: what moves", ("package", "from", "to", "released", "group"), rows)
    for line in found.requirements:
        console.say(f"vLLM asks for {line}")
    patches = [
        [p.patch, p.verdict, counted(p.hunks), "reached" if p.end_reached else "not yet", p.cure or "can be built"]
        for series in found.patches
        for p in series.patches
    ]
    console.table("patches", ("patch", "verdict", "hunks", "end", "what to do"), patches)
    if session.paths.operators(found.recipe).is_file():
        console.say(
            "operators are recorded of the old versions: after the next gate, look at what it says is lost and "
            "new, then record them again with: make lock OPERATORS=1"
        )
    console.say(f"built anew: {', '.join(found.rebuilt) or 'nothing'}")
    sign = "+" if found.size_change >= 0 else "-"
    console.say(f"wheels: {sign}{size(abs(found.size_change))}")
