"""`make lock`: resolve what changed since the last lock, judge the patches, write it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from graft import index, patching
from graft.commands.patch_sources import tree_of
from graft.commands.programs import lock_tools
from graft.commands.session import Session, component_file, lock_inputs, patchsets, sources_of
from graft.commands.trees import bring_trees, is_tree, lock_trees
from graft.commands.unreachable import refuse_unlockable
from graft.errors import BadInput, FetchFailed, GraftError, LockStale
from graft.fetch import fetch
from graft.lock import FORMAT, BasePin, Lock, NewerFormat, Part, PatchedComponent, load_lock, write_lock
from graft.patching import SourceTree
from graft.patchset import Patch, PatchSet
from graft.plan import installed_path
from graft.recipe import Recipe, load_recipe
from graft.resolve import Resolved, resolve_packages


def lock(
    session: Session,
    *,
    upgrade: bool = False,
    base_anew: bool = False,
    tools_anew: bool = False,
    check: bool = False,
) -> None:
    """Write the recipe's lock, and the one of the host's programs. Parts whose inputs did not change stay as they are.

    upgrade:    choose versions and Debian packages anew, as if there were no lock.
    base_anew:  choose the base's Debian packages anew.
    tools_anew: choose the Debian packages whose programs run on the host anew.
    check:      write nothing; LockStale when a lock is not fresh, BadInput when it is not what Graft wrote.
    Raises NewerFormat rather than replace a lock that a newer Graft wrote.
    """
    if check and (upgrade or base_anew or tools_anew):
        cure = "leave out --upgrade, --base and --tools"
        raise BadInput("--check looks at the lock as it is", where="arguments", cure=cure)
    recipe = load_recipe(session.paths, session.project, session.recipe)
    refuse_unlockable(session, recipe, check=check)
    sets = patchsets(session, recipe)
    inputs = lock_inputs(session, recipe, sets)
    old = load_lock(session.paths, recipe.recipe) if check else _previous(session)
    where = session.paths.relative(session.paths.lock(recipe.recipe))
    keep = {part for part in inputs if old is not None and not upgrade and old.inputs.get(part) == inputs[part]}
    if base_anew:
        keep.discard("base")
    tools = lock_tools(session, anew=tools_anew, check=check)
    if keep == set(inputs):
        fresh = (
            "the recipe's lock is fresh; the one of the host's programs was written" if tools else "the lock is fresh"
        )
        session.console.say(fresh)
        session.console.result(where, {"lock": where, "changed": tools})
        return
    if check:
        stale = ", ".join(sorted(set(inputs) - keep))
        raise LockStale(f"the lock is stale: {stale}", where=where, cure=f"make lock RECIPE={recipe.recipe}")
    new = _resolve(session, recipe, sets, inputs, old, keep, upgrade)
    write_lock(session.paths, new)
    for line in _report(old, new):
        session.console.say(line)
    session.console.result(where, {"lock": where, "changed": True, "digest": new.digest})


def _previous(session: Session) -> Lock | None:
    """The lock as it is, if it is a sound one; a broken one is simply made again."""
    try:
        return load_lock(session.paths, session.recipe)
    except NewerFormat:
        raise
    except GraftError:
        return None


def _resolve(
    session: Session,
    recipe: Recipe,
    sets: dict[str, PatchSet],
    inputs: dict[Part, str],
    old: Lock | None,
    keep: set[Part],
    upgrade: bool,
) -> Lock:
    if session.offline and not {"packages", "base"} <= keep:
        parts = ", ".join(sorted({"packages", "base"} - keep))
        raise FetchFailed(f"offline, and these parts must be resolved: {parts}", cure="run make lock without OFFLINE=1")
    if old is not None and "packages" in keep:
        # Patches are judged against the trees.
        bring_trees(session, recipe, {name: pin for name, pin in old.sources.items() if name in sets})
        found = Resolved(old.packages, old.builder, old.sources, old.date, old.resolver)
    else:
        trees = lock_trees(session, recipe, old)
        with session.console.step("resolve the packages"):
            found = resolve_packages(
                session.project,
                recipe,
                index.discover(session.project.index),
                os.environ,
                previous=old.packages if old is not None else (),
                upgrade=upgrade,
                trees=trees,
            )
    base = old.base if old is not None and "base" in keep else _resolve_base(session, recipe)
    patches = old.patches if old is not None and "patches" in keep else _judge(session, recipe, sets, found, old)
    return _lock(recipe, inputs, found, base, patches)


def new_lock(session: Session, recipe: Recipe, found: Resolved, old: Lock) -> Lock:
    """The lock of a recipe whose packages are resolved already. Raises BadInput and PatchMismatch."""
    sets = patchsets(session, recipe)
    inputs = lock_inputs(session, recipe, sets)
    base = old.base if old.inputs.get("base") == inputs["base"] else _resolve_base(session, recipe)
    return _lock(recipe, inputs, found, base, _judge(session, recipe, sets, found, old))


def _lock(
    recipe: Recipe,
    inputs: dict[Part, str],
    found: Resolved,
    base: BasePin,
    patches: dict[str, tuple[PatchedComponent, ...]],
) -> Lock:
    data: dict[str, Any] = {
        "lock": FORMAT,
        "recipe": recipe.recipe,
        "inputs": inputs,
        "date": found.date,
        "resolver": found.resolver,
        "base": base,
        "sources": found.sources,
        "packages": found.packages,
        "builder": found.builder,
        "patches": patches,
        "digest": "0" * 64,
    }
    return Lock.model_validate(data)


def _resolve_base(session: Session, recipe: Recipe) -> BasePin:
    base = session.project.bases[recipe.base]
    # A recipe whose base is an image got no further than `lock`.
    assert base.bootstrap is not None
    archive = sources_of(session, recipe).archive
    with session.console.step("resolve the base's Debian packages"):
        runtime = archive.resolve(base.runtime, essential=True, set="runtime")
        builder = archive.resolve(base.builder, set="builder", beyond=runtime) if base.builder else []
    return BasePin(name=recipe.base, suite=base.bootstrap.suite, packages=(*runtime, *builder))


def _judge(
    session: Session, recipe: Recipe, sets: dict[str, PatchSet], resolved: Resolved, old: Lock | None
) -> dict[str, tuple[PatchedComponent, ...]]:
    """Every patch against its component's pristine files. Raises PatchMismatch."""
    sources = sources_of(session, recipe)
    files = {component: component_file(resolved, recipe, component) for component in sets}
    downloaded = [pin for pin in files.values() if not is_tree(pin)]
    fetch(session.store, sources.files(downloaded), session.console, offline=session.offline)
    judged: dict[str, tuple[PatchedComponent, ...]] = {}
    with session.console.step("judge the patches"):
        for component, found in sets.items():
            pinned = recipe.components[component]
            groups = series_by_arch(recipe, found)
            everywhere = len(groups) == 1 and groups[0][1] == tuple(filter(pinned.on, recipe.arches))
            made = [
                patching.lock_component(
                    found,
                    ids,
                    session.store.path(files[component]),
                    version=pinned.version,
                    installed=functools.partial(installed_path, pinned.build, distribution=pinned.distribution),
                    locked=old.patched(component, arches[0]) if old is not None else None,
                    bases=_bases(session, recipe, found, ids, old),
                ).model_copy(update={"arches": None if everywhere else arches})
                for ids, arches in groups
            ]
            judged[component] = tuple(made)
    return judged


def _bases(
    session: Session, recipe: Recipe, found: PatchSet, ids: Sequence[str], old: Lock | None
) -> SourceTree | None:
    """The files of the version that the last lock holds, as far as they are at hand."""
    if old is None or found.component not in old.patches:
        return None
    patches = found.select(ids)
    try:
        pin = component_file(old, recipe, found.component)
    except StopIteration:
        return None
    return tree_of(session, pin, patching.one_target(found.component, patches), patching.touched_paths(patches))


def series_by_arch(recipe: Recipe, found: PatchSet) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(ids, architectures): which of the recipe's patches of a component go together where.

    Raises BadInput where a patch comes after one that is not meant for the same architecture.
    """
    pinned = recipe.components[found.component]
    chosen = found.select(recipe.patches_of(found.component))
    groups: dict[tuple[str, ...], list[str]] = {}
    for arch in filter(pinned.on, recipe.arches):
        here = [patch for patch in chosen if patch.record.when.holds(pinned.version, arch)]
        ids = tuple(patch.id for patch in here)
        _check_after(found, here, arch)
        if ids:
            groups.setdefault(ids, []).append(arch)
    return [(ids, tuple(arches)) for ids, arches in groups.items()]


def _check_after(found: PatchSet, here: Sequence[Patch], arch: str) -> None:
    ids = {patch.id for patch in here}
    for patch in here:
        missing = [name for name in patch.record.after if name not in ids]
        if missing:
            raise BadInput(
                f"{found.component}/{patch.id} comes after {missing[0]}, which is not meant for {arch}",
                where=str(found.folder / "series.yaml"),
                cure=f"give {patch.id} the architectures of {missing[0]} in its `when`",
            )


def _report(old: Lock | None, new: Lock) -> list[str]:
    """What moved, one line each."""
    before = {p.name: p.version for p in old.packages} if old is not None else {}
    after = {p.name: p.version for p in new.packages}
    lines = [
        f"  {name}: {before[name]} -> {after[name]}" for name in after if before.get(name, after[name]) != after[name]
    ]
    lines += [f"  {name}: gone" for name in before if name not in after]
    if old is not None:
        lines += [f"  {name}: new, {after[name]}" for name in after if name not in before]
        debs = {p.name: p.version for p in old.base.packages}
        lines += [
            f"  {p.name}: {debs[p.name]} -> {p.version}"
            for p in new.base.packages
            if debs.get(p.name, p.version) != p.version
        ]
    total = sum(p.size for p in new.packages if p.use == "image")
    lines.append(f"{len(new.packages)} wheels ({total / 1e9:.1f} GB), {len(new.base.packages)} Debian packages")
    return lines
