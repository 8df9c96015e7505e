"""Whether an image has what the wheels that were compiled for it ask for.

What an index says of an sdist and what the wheel says that comes out of it may differ, and a wheel of the store may be
older than the lock. So each wheel is asked on the host, where no key depends on the answer.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from graft.built.store import Entry
from graft.commands.components import Compiled, build_components
from graft.commands.session import Session
from graft.errors import BuildFailed
from graft.linting.closure import markers_of
from graft.linting.contents import Contents, of_wheel
from graft.plan import Plan

if TYPE_CHECKING:
    from graft.engine import Engine
    from graft.render import Rendered


def build_checked(
    session: Session, planned: Plan, engine: Engine, rendered: Rendered, folder: Path, found: Mapping[str, Entry]
) -> Compiled:
    """As `build_components`, and all wheels that stand in the contexts then are ones that the lock is enough for.

    Raises BuildFailed. What was compiled stays in the store: it is the recipe that has to change.
    """
    # Before anything is compiled beside them.
    check_requirements(planned, {name: entry.wheels() for name, entry in found.items()})
    compiled = build_components(session, planned, engine, rendered, folder, found)
    check_requirements(planned, {b.name: (folder / f"built-{b.name}").glob("*.whl") for b in planned.builds})
    return compiled


def check_in_engine(
    session: Session, planned: Plan, engine: Engine, rendered: Rendered, folder: Path, jobs: Mapping[str, int]
) -> None:
    """Hold what the engine has just compiled for an image against the lock; for a build that passed the store by.

    Raises BuildFailed. The wheels come out of the engine's cache, and go nowhere.
    """
    from graft import build

    names = [b.name for b in planned.builds]
    if not names:
        return
    log = session.paths.logs / f"{planned.recipe.recipe}-{planned.arch.name}-wheels.log"
    log.unlink(missing_ok=True)
    docker, env = engine.docker, engine.env()
    out = Path(build.build_components(folder, rendered, planned, docker, env, names, session.console, log, jobs=jobs))
    check_requirements(planned, {name: (out / name).glob("*.whl") for name in names})


def check_requirements(planned: Plan, wheels: Mapping[str, Iterable[Path]]) -> None:
    """Refuse compiled wheels that the lock is not enough for. wheels: component -> its wheels.

    Markers count as they are on the recipe's base, extras do not. Raises BuildFailed with every requirement that is
    not met.
    """
    unmet: dict[str, list[tuple[str, str]]] = {}
    for name, files in wheels.items():
        for wheel in sorted(files):
            found = list(_unmet(planned, _contents(name, wheel)))
            if found:
                unmet.setdefault(name, []).extend((f"{wheel.name} {what}", cure) for what, cure in found)
    if unmet:
        recipe = planned.recipe.recipe
        cures = dict.fromkeys(cure for found in unmet.values() for _, cure in found)
        raise BuildFailed(
            "; ".join(f"{name}: {what}" for name, found in unmet.items() for what, _ in found),
            where=f"recipe {recipe}: {', '.join(f'components.{name}' for name in unmet)}",
            cure=f"{'; '.join(cures)}. Then: make lock RECIPE={recipe}",
        )


def _contents(name: str, wheel: Path) -> Contents:
    try:
        return of_wheel(wheel)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as problem:
        raise BuildFailed(
            f"{name}: {wheel.name} does not say what it is: {problem}",
            cure="its build makes something else than a wheel (PEP 427): look at its log in .graft/logs",
        ) from problem


def _unmet(planned: Plan, contents: Contents) -> Iterator[tuple[str, str]]:
    """(what a wheel asks for and what there is, what to do about it)."""
    base = planned.base
    if not _is_for(contents.python, base.python):
        yield (
            f"asks for Python {contents.python}, and the base has {base.python}",
            "take a version of it that is for this Python, or another base",
        )
    environment = markers_of(base)
    there = planned.packages
    for text in contents.requires or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            yield (
                f"asks for {text!r}, which is no requirement (PEP 508)",
                "correct it by a patch, or take another version",
            )
            continue
        if wanted.marker is not None and not wanted.marker.evaluate(environment):
            continue
        name = canonicalize_name(wanted.name)
        version = there.get(name)
        if version is None:
            yield (
                f"asks for {text}, and the lock has no {name} for {planned.arch.name}",
                f"add it to the recipe, for example {name}: {{wheel: {name}, version: ...}}",
            )
        elif not wanted.specifier.contains(version, prereleases=True) and not _is_declared(planned, name, version):
            yield (
                f"asks for {text}, and the lock has {name} {version}",
                f"pin a {name} that it takes, or a version of it that takes this one; where the difference is meant, "
                f"`overrides: <component>` at the component of {name}, or a constraint with its reason, says so",
            )


def _is_declared(planned: Plan, name: str, version: str) -> bool:
    """Whether the recipe means this version of a distribution, whoever asks for another one."""
    components = planned.recipe.components_on(planned.arch.name).values()
    if any(c.overrides is not None and c.distribution == name for c in components):
        return True
    bounds = [Requirement(constraint.require) for constraint in planned.recipe.constraints]
    return any(
        canonicalize_name(bound.name) == name and bound.specifier.contains(version, prereleases=True)
        for bound in bounds
    )


def _is_for(asked: str, python: str) -> bool:
    """Whether a Requires-Python takes some patch release of a Python; a bound that nobody can read binds nobody."""
    try:
        bound = SpecifierSet(asked)
    except InvalidSpecifier:
        return True
    # >=3.11.4 is of the patch release, which the base's suite decides.
    return bound.contains(f"{python}.99", prereleases=True)
