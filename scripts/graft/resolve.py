"""From a recipe to exact files of the package index; the packages part of a lock.

uv resolves for the base's Python and platform, with bounds from the recipe. The CUDA toolkit parts are
held to the recipe's CUDA version, overriding components replace what others ask for. Same answers of
the index, same result: versions that an earlier lock chose are kept unless `upgrade` is set.
"""

from __future__ import annotations

import datetime
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

from graft import net, proc
from graft.errors import BadInput, FetchFailed, GraftError
from graft.index import Indexes, Locator
from graft.lock import FilePin, PackagePin, SourcePin, Use
from graft.project import Base, Project
from graft.recipe import Component, Recipe
from graft.wheel_tags import target_tags

RESOLVE_SECONDS = 600.0
#: Pages of the index that are asked for at once.
INDEX_REQUESTS = 16


@dataclass(frozen=True)
class Resolved:
    """The packages part of a lock.

    builder: names of what the builder needs, image packages among them.
    date:    the newest upload among the files, so that it needs no clock.
    """

    packages: tuple[PackagePin, ...]
    builder: tuple[str, ...]
    sources: dict[str, SourcePin]
    date: str
    resolver: dict[str, str]


def resolve_packages(
    project: Project,
    recipe: Recipe,
    indexes: Indexes,
    env: Mapping[str, str],
    *,
    previous: Iterable[PackagePin] = (),
    upgrade: bool = False,
    trees: Mapping[str, SourcePin] | None = None,
) -> Resolved:
    """Resolve a recipe. trees: component -> its source tree, for those from git and archives.

    Raises BadInput when no set of versions fits, FetchFailed when the index cannot be asked.
    """
    base = project.bases[recipe.base]
    kept = [] if upgrade else [f"{p.name}=={p.version}" for p in previous if p.use == "image"]
    trees = trees or {}
    with tempfile.TemporaryDirectory(prefix="graft-resolve-") as folder:
        uv = _Uv(Path(folder), base, indexes, env)
        wanted = _requirements(project, recipe, recipe.components, trees)
        versions = uv.versions(wanted, _constraints(recipe), _overrides(recipe), preferences=kept)
        arches = _arches_of(project, recipe, versions, trees, uv)
        builder = _build_versions(project, recipe, versions, uv)
        build = {name: version for name, version in builder.items() if name not in versions}
        tool = {"uv": uv.version()}
        files = uv.files({**build, **versions, **tool})
        alone = _sources_alone(recipe, uv)
    found = _assemble(recipe, base, versions, build, tool, arches, files, tuple(sorted(builder)), trees, alone)
    return with_yanks(found, Locator(indexes, net.session()).yanked)


def with_yanks(found: Resolved, yanked: Callable[[str, str], str | None]) -> Resolved:
    """The same packages, each that was taken back saying so. yanked: (distribution, file) -> reason or None.

    A resolver leaves yanked files out, but takes one that is asked for by its exact version, as recipes do.
    """
    pins = [*found.packages, *(pin for pin in found.sources.values() if pin.tree is None)]
    with ThreadPoolExecutor(INDEX_REQUESTS) as pool:
        reasons = dict(
            zip(pins, pool.map(yanked, [p.name for p in pins], [p.file for p in pins]), strict=True),
        )
    return replace(
        found,
        packages=tuple(pin.model_copy(update={"yanked": reasons[pin]}) for pin in found.packages),
        sources={name: pin.model_copy(update={"yanked": reasons.get(pin)}) for name, pin in found.sources.items()},
    )


def newest_versions(
    project: Project,
    recipe: Recipe,
    wanted: Mapping[str, str],
    indexes: Indexes,
    env: Mapping[str, str],
    *,
    previous: Mapping[str, str],
    trees: Mapping[str, SourcePin] | None = None,
) -> dict[str, str]:
    """name -> version of the closure when some components move; the others move only as far as they must.

    wanted:   distribution -> version specifier (`==0.33.0`, or empty for the newest).
    previous: name -> version, as the lock has them.
    trees:    component -> its source tree, for those that no index has.
    Raises BadInput when no set of versions fits, FetchFailed when the index cannot be asked.
    """
    base = project.bases[recipe.base]
    kept = [f"{name}=={version}" for name, version in sorted(previous.items()) if name not in wanted]
    stay = {c.distribution for c in recipe.components.values() if c.overrides} - wanted.keys()
    # No component goes back: a newer torch would otherwise be met by an ancient vLLM.
    listed = [c for c in recipe.components.values() if is_on_index(c)]
    names = [
        c.distribution + (f"=={c.version}" if c.distribution in stay else _movable(c, wanted.get(c.distribution, "")))
        for c in listed
    ]
    overrides = [name for name, c in zip(names, listed, strict=True) if c.overrides]
    overrides += _left_out(recipe)
    parts = [f"{part}=={recipe.cuda}.*" for part in project.toolkit]
    parts += [require for pin in (trees or {}).values() for require in pin.requires]
    with tempfile.TemporaryDirectory(prefix="graft-resolve-") as folder:
        uv = _Uv(Path(folder), base, indexes, env)
        return uv.versions(sorted({*names, *parts}), _constraints(recipe), sorted(overrides), preferences=kept)


def _movable(component: Component, wanted: str) -> str:
    """The versions that a component may have after an update, as a specifier."""
    bound = wanted or f">={component.version}"
    return f"{bound},{component.allow}" if component.allow else bound


def file_of_version(
    project: Project, recipe: Recipe, component: str, version: str, indexes: Indexes, env: Mapping[str, str]
) -> FilePin:
    """The wheel or sdist that a component would be made from in another version.

    Raises BadInput when the index has no such version or no file of it that fits, FetchFailed when it cannot be asked.
    """
    base, pinned = project.bases[recipe.base], recipe.components[component]
    with tempfile.TemporaryDirectory(prefix="graft-resolve-") as folder:
        uv = _Uv(Path(folder), base, indexes, env)
        entry = uv.files({pinned.indexed: version}, wheels_only=pinned.sdist is None)[pinned.indexed]
    chosen = (
        _sdist(pinned.indexed, entry)
        if pinned.sdist is not None
        else _wheel(pinned.indexed, entry, target_tags(base), base)
    )
    return FilePin(**_facts(pinned.indexed, entry, chosen))


def best_wheel(files: Sequence[Mapping[str, Any]], tags: Sequence[Tag]) -> Mapping[str, Any] | None:
    """The wheel that an installer would take: the one whose tag comes first; None when none fits."""
    rank = {tag: position for position, tag in enumerate(tags)}
    best: tuple[int, str] | None = None
    chosen: Mapping[str, Any] | None = None
    for file in files:
        fitting = [rank[tag] for tag in parse_wheel_filename(_file_name(file))[3] if tag in rank]
        if not fitting:
            continue
        candidate = (min(fitting), _file_name(file))
        if best is None or candidate < best:
            best, chosen = candidate, file
    return chosen


class _Uv:
    """uv as a resolver for one target."""

    def __init__(self, folder: Path, base: Base, indexes: Indexes, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._program = uv_program()
        self._options = ["--python-version", base.python, "--python-platform", base.platform, "--no-header"]
        if indexes.source == "build.yaml":
            self._options += ["--default-index", indexes.urls[0], "--no-config"]
        elif indexes.source != "uv's configuration" and indexes.source != "pip's default":
            self._options += ["--default-index", indexes.urls[0]]
        self._env = dict(env)

    def version(self) -> str:
        words = proc.run([self._program, "--version"], env=self._env, error=BadInput).stdout.split()
        return words[1]

    def versions(
        self,
        wanted: Sequence[str],
        constraints: Sequence[str] = (),
        overrides: Sequence[str] = (),
        preferences: Sequence[str] = (),
    ) -> dict[str, str]:
        """name -> version of the whole closure."""
        out = self._write("out.txt", preferences)
        argv: list[str | Path] = [
            self._write("in.txt", wanted),
            "--constraint",
            self._write("constraints.txt", constraints),
        ]
        argv += ["--override", self._write("overrides.txt", overrides), "--no-annotate", "--output-file", out]
        # Metadata comes from wheels: asking an index must not run what upstream wrote.
        argv.append("--no-build")
        self._compile(argv)
        found: dict[str, str] = {}
        for line in out.read_text(encoding="utf-8").splitlines():
            name, equals, version = line.partition(";")[0].strip().partition("==")
            if equals and not line.startswith("#"):
                found[canonicalize_name(name.partition("[")[0])] = version.strip()
        return found

    def files(self, versions: Mapping[str, str], *, wheels_only: bool = False) -> dict[str, Mapping[str, Any]]:
        """name -> its PEP 751 entry: wheels for the platform, sdist (not with `wheels_only`), sizes, hashes, dates."""
        out = self._folder / "pylock.toml"
        out.unlink(missing_ok=True)
        pins = self._write("pins.txt", [f"{name}=={version}" for name, version in sorted(versions.items())])
        only = ["--no-build"] if wheels_only else []
        self._compile([pins, "--no-deps", "--format", "pylock.toml", "--output-file", out, *only])
        data = tomllib.loads(out.read_text(encoding="utf-8"))
        return {canonicalize_name(package["name"]): package for package in data["packages"]}

    def _compile(self, argv: Sequence[str | Path]) -> None:
        done = proc.run(
            [self._program, "pip", "compile", "--quiet", *argv, *self._options],
            env=self._env,
            cwd=self._folder,
            timeout=RESOLVE_SECONDS,
            error=FetchFailed,
            what="uv did not answer",
            check=False,
        )
        if done.rc != 0:
            raise _refusal(done.stderr)

    def _write(self, name: str, lines: Sequence[str]) -> Path:
        path = self._folder / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def uv_program() -> Path:
    """The uv that is installed beside this Python. Raises BadInput when it is not."""
    program = Path(sys.executable).parent / "uv"
    if not program.is_file():
        raise BadInput(f"uv is not beside {sys.executable}", cure="rm -rf .venv, then make (it installs uv)")
    return program


def without_addresses(text: str) -> str:
    """A program's words without the addresses in them: an index may be private and carry credentials."""
    # A password may hold a quote or a bracket; only one that ends the address belongs to the sentence.
    return re.sub(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s`\"<>]*[^\s`\"<>')]", "<address>", text)


def _refusal(stderr: str) -> GraftError:
    tail = without_addresses(stderr).strip()
    if "No solution found" in stderr or "unsatisfiable" in stderr:
        return BadInput(
            "no set of versions fits the recipe", tail=tail, cure="change a version or a constraint in the recipe"
        )
    if "not found in the package registry" in stderr:
        return BadInput("the index does not know a package of the recipe", tail=tail, cure="check its name and version")
    return FetchFailed(
        "the package index could not be asked", tail=tail, cure="check the network, then run the same command"
    )


def _requirements(
    project: Project, recipe: Recipe, components: Mapping[str, Component], trees: Mapping[str, SourcePin]
) -> list[str]:
    """What the index is asked for: the components that it has, and what those that are built from trees need."""
    pins = [f"{c.distribution}=={c.version}" for c in components.values() if is_on_index(c)]
    needs = (require for name in components if name in trees for require in trees[name].requires)
    return sorted({*pins, *needs, *(f"{part}=={recipe.cuda}.*" for part in project.toolkit)})


def is_on_index(component: Component) -> bool:
    """Whether the component is installed from a wheel or an sdist of a package index."""
    return component.kind in ("wheel", "sdist") and not component.is_source_only


def _constraints(recipe: Recipe) -> list[str]:
    return sorted(c.require for c in recipe.constraints)


def _overrides(recipe: Recipe) -> list[str]:
    """Versions that hold against what others ask for."""
    found = [f"{c.distribution}=={c.version}" for c in recipe.components.values() if c.overrides and is_on_index(c)]
    return sorted([*found, *_left_out(recipe)])


def _left_out(recipe: Recipe) -> list[str]:
    """Overrides for what is built from a tree: whoever asks for it, it is not taken from the index."""
    built = (c.distribution for c in recipe.components.values() if not is_on_index(c) and c.distribution)
    return [f'{name} ; sys_platform == "never"' for name in built]


def _arches_of(
    project: Project, recipe: Recipe, versions: Mapping[str, str], trees: Mapping[str, SourcePin], uv: _Uv
) -> dict[str, tuple[str, ...] | None]:
    """Which architectures need each package; None is all of them."""
    pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
    by_set: dict[frozenset[str], list[str]] = {}
    for arch in recipe.arches:
        by_set.setdefault(frozenset(recipe.components_on(arch)), []).append(arch)
    if len(by_set) == 1 and recipe.components_on(recipe.arches[0]).keys() == recipe.components.keys():
        return dict.fromkeys(versions, None)
    needed: dict[str, set[str]] = {name: set() for name in versions}
    for names, arches in by_set.items():
        wanted = _requirements(project, recipe, {name: recipe.components[name] for name in sorted(names)}, trees)
        for name in uv.versions(wanted, pins, _overrides(recipe)):
            if name in needed:
                needed[name].update(arches)
    everywhere = set(recipe.arches)
    return {
        name: None if found == everywhere else tuple(a for a in recipe.arches if a in found)
        for name, found in needed.items()
        if found
    }


def _build_versions(project: Project, recipe: Recipe, versions: Mapping[str, str], uv: _Uv) -> dict[str, str]:
    """What the builder needs, at versions that agree with the image's."""
    built = [c for c in recipe.components.values() if c.build]
    wanted = sorted({r for c in built for r in (*project.builds[str(c.build)].requires, *c.build_requires)})
    if not wanted:
        return {}
    pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
    return uv.versions(wanted, pins, _overrides(recipe))


def _sources_alone(recipe: Recipe, uv: _Uv) -> dict[str, SourcePin]:
    """The sdists that are there for the builds of others alone; what they would need is not asked for."""
    found: dict[str, SourcePin] = {}
    for component, pinned in sorted(recipe.components.items()):
        if pinned.sdist is not None and pinned.is_source_only:
            # One by one: the image may hold another version of the same distribution.
            entry = uv.files({pinned.indexed: pinned.version})[pinned.indexed]
            facts = _facts(pinned.indexed, entry, _sdist(pinned.indexed, entry))
            found[component] = SourcePin(**facts, alone=True)
    return found


def _assemble(
    recipe: Recipe,
    base: Base,
    versions: Mapping[str, str],
    build: Mapping[str, str],
    tool: Mapping[str, str],
    arches: Mapping[str, tuple[str, ...] | None],
    files: Mapping[str, Mapping[str, Any]],
    builder: tuple[str, ...],
    trees: Mapping[str, SourcePin],
    alone: Mapping[str, SourcePin],
) -> Resolved:
    from_source = {c.distribution: name for name, c in recipe.components.items() if c.sdist is not None and c.is_built}
    tags = target_tags(base)
    sources = {
        component: SourcePin(**_facts(name, files[name], _sdist(name, files[name])))
        for name, component in sorted(from_source.items(), key=lambda item: item[1])
    }
    sources |= {**alone, **trees}
    packages: list[PackagePin] = []
    groups: tuple[tuple[Use, Mapping[str, str]], ...] = (("image", versions), ("build", build), ("tool", tool))
    for use, group in groups:
        for name in sorted(group):
            if name in from_source or (use == "image" and name not in arches):
                continue
            wheel = _wheel(name, files[name], tags, base)
            where = arches[name] if use == "image" else None
            packages.append(PackagePin(**_facts(name, files[name], wheel), use=use, arches=where))
    dates = [pin.uploaded for pin in [*packages, *sources.values()]]
    return Resolved(
        tuple(packages),
        builder,
        sources,
        max(dates),
        {"uv": tool["uv"], "python": base.python, "platform": base.platform},
    )


def _wheel(name: str, entry: Mapping[str, Any], tags: Sequence[Tag], base: Base) -> Mapping[str, Any]:
    wheel = best_wheel(entry.get("wheels", []), tags)
    if wheel is None:
        raise BadInput(
            f"{name} {entry['version']} has no wheel for Python {base.python} on {base.platform}",
            cure="choose a version that has one, or make it a component with an sdist and a build kind",
        )
    return wheel


def _sdist(name: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    sdist: Mapping[str, Any] | None = entry.get("sdist")
    if sdist is None:
        raise BadInput(f"{name} {entry['version']} has no sdist on the index", cure="use its wheel, or another version")
    return sdist


def _facts(name: str, entry: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    uploaded: datetime.datetime = file["upload-time"]
    return {
        "name": name,
        "version": str(entry["version"]),
        "file": _file_name(file),
        "size": int(file["size"]),
        "sha256": str(file["hashes"]["sha256"]),
        "uploaded": uploaded.date().isoformat(),
    }


def _file_name(file: Mapping[str, Any]) -> str:
    name = file.get("name") or str(file["url"]).rsplit("/", 1)[-1]
    return str(name).replace("%2B", "+")
