"""recipes/locks/<name>.lock.yaml: every byte that will enter the image, by content hash.

The machine writes it and people commit it. It names files, never where they come from. Its last line is
the hash of everything above it, so that an edit by hand is seen. `inputs` are hashes of what each part was
resolved from, so that a stale part is named and only that part is resolved again.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from graft.apt import DebPin
from graft.errors import BadInput, LockStale
from graft.hashes import digest_of
from graft.paths import Paths
from graft.project import Base, Project, Suite
from graft.recipe import Component, Date, Recipe
from graft.sources import TreePath
from graft.yamlio import Model, dump, parse, validate

FORMAT = 2
HEADER = "Made by `make lock`; do not edit. It names every file that enters the image, by content hash."

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
GitId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!~-]*$")]
Use = Literal["image", "build", "tool"]
Part = Literal["packages", "base", "patches"]


class NewerFormat(BadInput):
    """A newer Graft wrote it: this one neither reads nor replaces it."""


class FilePin(Model):
    """One file of the package index; size in bytes.

    yanked: why its maker had taken it back (PEP 592; may be empty) when the lock was made; None: he had not.
    """

    name: str
    version: str
    file: FileName
    size: int = Field(ge=1)
    sha256: Sha256
    uploaded: Date
    yanked: str | None = Field(default=None, max_length=200)


class PackagePin(FilePin):
    """One wheel.

    use:    image (installed there), build (on the builder only), tool (runs the installation).
    arches: the architectures that need it; None is all of the recipe's.
    """

    use: Use = "image"
    arches: tuple[str, ...] | None = Field(default=None, strict=False)

    def on(self, arch: str) -> bool:
        return self.arches is None or arch in self.arches


class SubmodulePin(Model):
    """A submodule, at its path from the top: its commit and that commit's tree; no tree where it is left out."""

    path: TreePath
    commit: GitId
    tree: GitId | None


class GitPin(Model):
    """What a component's tree is put together from: a commit, the heads merged onto it, their tree, submodules."""

    commit: GitId
    heads: tuple[GitId, ...] = Field(default=(), strict=False)
    merged: GitId
    submodules: tuple[SubmodulePin, ...] = Field(default=(), strict=False)


class ArchivePin(Model):
    """The file that a component's tree was unpacked from; size in bytes."""

    file: FileName
    size: int = Field(ge=1)
    sha256: Sha256


class SourcePin(FilePin):
    """What a component is built from: an sdist, or a tree that Graft itself packs, from git or from an archive.

    tree:     the git tree of everything in it, submodules in place; such a file is made on this host, not downloaded.
    requires: of a tree, what the component needs at run time, as it or the recipe says (PEP 508).
    alone:    an sdist that nothing is installed from: the builds of others find it.
    """

    tree: GitId | None = None
    git: GitPin | None = None
    archive: ArchivePin | None = None
    requires: tuple[str, ...] = Field(default=(), strict=False)
    alone: bool = False

    @property
    def identity(self) -> str:
        """What its bytes are known by: the tree where it is one, else the file's sha256."""
        return self.tree or self.sha256

    @property
    def origin(self) -> str:
        """In a few words: `git commit 5df63a720...`, `archive a.tar.gz`, `sdist`."""
        if self.git is not None:
            heads = f" and {len(self.git.heads)} heads" if self.git.heads else ""
            return f"git commit {self.git.commit}{heads}"
        return f"archive {self.archive.file}" if self.archive is not None else "sdist"


class BasePin(Model):
    """The base: its Debian release and exact packages."""

    name: str
    suite: Suite
    packages: tuple[DebPin, ...] = Field(min_length=1, strict=False)


class TouchedFile(Model):
    """One file that a patch touches: git blob ids before and after it; None where there is no file."""

    before: GitId | None
    after: GitId | None


class PatchPin(Model):
    """One patch: its bytes, what it touches, and what was found when it was judged.

    offsets: per hunk, in order, the number of lines it was moved by.
    symbols: enclosing function or class -> fingerprint (sha256 of its tokens, shortened).
    """

    id: str
    sha256: Sha256
    files: dict[str, TouchedFile]
    offsets: tuple[int, ...] = Field(default=(), strict=False)
    symbols: dict[str, str] = Field(default_factory=dict)


class PatchedComponent(Model):
    """The patches of one component that go together, in order; git tree ids before the first and after the last.

    arches:    the architectures whose patches these are; None is all of the recipe's that have the component.
    installed: file below site-packages -> sha256 of its patched bytes, as the image must hold it.
    """

    target: Literal["source", "wheel"]
    pristine: GitId
    result: GitId
    installed: dict[str, Sha256]
    patches: tuple[PatchPin, ...] = Field(min_length=1, strict=False)
    arches: tuple[str, ...] | None = Field(default=None, strict=False)

    def on(self, arch: str) -> bool:
        return self.arches is None or arch in self.arches


PatchedSeries = Annotated[tuple[PatchedComponent, ...], Field(min_length=1, strict=False)]


class Lock(Model):
    """The whole lock. builder: names of the packages that the builder needs to compile components."""

    lock: int
    recipe: str
    inputs: dict[Part, Sha256]
    date: Date
    resolver: dict[str, str]
    base: BasePin
    sources: dict[str, SourcePin]
    packages: tuple[PackagePin, ...] = Field(min_length=1, strict=False)
    builder: tuple[str, ...] = Field(strict=False)
    patches: dict[str, PatchedSeries]
    digest: Sha256

    @property
    def epoch(self) -> int:
        """The lock's date as seconds since 1970: the SOURCE_DATE_EPOCH of the image."""
        day = datetime.datetime.strptime(self.date, "%Y-%m-%d").replace(tzinfo=datetime.UTC)
        return int(day.timestamp())

    def image_packages(self, arch: str) -> tuple[PackagePin, ...]:
        """The wheels of the image for `arch`."""
        return tuple(p for p in self.packages if p.use == "image" and p.on(arch))

    def patched(self, component: str, arch: str) -> PatchedComponent | None:
        """The patches of a component on `arch`; None when it has none there."""
        return next((entry for entry in self.patches.get(component, ()) if entry.on(arch)), None)

    def build_packages(self) -> tuple[PackagePin, ...]:
        """The wheels that the builder needs, whether the image holds them or not."""
        return tuple(p for p in self.packages if p.use != "tool" and p.name in self.builder)

    def tool(self, name: str) -> PackagePin:
        """The wheel of a program that Graft runs inside a stage."""
        return next(p for p in self.packages if p.use == "tool" and p.name == name)


def inputs_of(project: Project, recipe: Recipe, patch_facts: Mapping[str, Any]) -> dict[Part, str]:
    """What each part of the lock is resolved from, hashed.

    patch_facts: component -> facts of its patch files, so that an edited patch is seen.
    """
    base = project.bases[recipe.base]
    components = [
        {
            # The lock names sources by component.
            "source": name if c.has_tree else None,
            "distribution": c.distribution or c.indexed,
            "version": c.version,
            "arches": sorted(c.arches) if c.arches is not None else None,
            "overrides": c.overrides,
            "build": c.build,
            # Newer than locks that are there: without it they stay fresh.
            **({"build_requires": sorted(c.build_requires)} if c.build_requires else {}),
            **_origin(c),
        }
        for name, c in recipe.components.items()
    ]
    packages = {
        "components": sorted(components, key=lambda c: str(c["distribution"])),
        "constraints": sorted(c.require for c in recipe.constraints),
        "arches": sorted(recipe.arches),
        "cuda": recipe.cuda,
        "toolkit": sorted(project.toolkit),
        "python": base.python,
        "platform": base.platform,
        "builds": {
            kind: sorted(project.builds[kind].requires)
            for kind in sorted({c.build for c in recipe.components.values() if c.build})
        },
    }
    return {
        "packages": digest_of(packages),
        "base": digest_of(
            {"name": recipe.base, **base.model_dump(mode="json", include={"runtime", "builder"}), **_base_of(base)}
        ),
        "patches": digest_of(
            {"patches": sorted(recipe.patches), "facts": patch_facts, "packages": digest_of(packages)}
        ),
    }


def _base_of(base: Base) -> dict[str, Any]:
    if base.bootstrap is not None:
        return {"suite": base.bootstrap.suite, "pockets": list(base.bootstrap.pockets)}
    return base.model_dump(mode="json", include={"image"})


def _origin(component: Component) -> dict[str, Any]:
    """What a component is resolved from beside a name and a version; empty for a wheel or sdist of the host's index."""
    data = component.model_dump(
        mode="json",
        include={"git", "archive", "image", "apt", "index", "provides", "requires"},
        # Notes for people, which no byte comes from.
        exclude={"git": {"ref": True, "pulls": {"__all__": {"number", "note"}}}},
        exclude_none=True,
    )
    return {"origin": data} if data else {}


def load_lock(paths: Paths, recipe: str) -> Lock:
    """The recipe's lock. Raises LockStale when it is missing, BadInput when it is not what `make lock` wrote."""
    path = paths.lock(recipe)
    where, cure = paths.relative(path), f"make lock RECIPE={recipe}"
    if not path.is_file():
        raise LockStale(f"recipe {recipe} has no lock", where=where, cure=cure)
    document = parse(path.read_bytes(), path)
    if isinstance(document.data, dict):
        found = document.data.get("lock")
        if isinstance(found, int) and found < FORMAT:
            raise LockStale(f"the lock has format {found}, this Graft writes {FORMAT}", where=where, cure=cure)
        refuse_newer(found, FORMAT, "the lock", where)
    lock = validate(document, Lock)
    if lock.recipe != recipe:
        raise BadInput(f"this is the lock of recipe {lock.recipe!r}", where=where, cure=cure)
    body = {key: value for key, value in document.data.items() if key != "digest"}
    if digest_of(body) != lock.digest:
        raise BadInput(
            "the lock was edited by hand: its digest does not fit", where=where, cure=f"git checkout {where}, or {cure}"
        )
    if not paths.requirements(recipe).is_file():
        raise LockStale(f"{paths.relative(paths.requirements(recipe))} is missing", where=where, cure=cure)
    if paths.requirements(recipe).read_bytes() != requirements_text(lock).encode():
        raise BadInput(
            "requirements.txt does not fit the lock", where=paths.relative(paths.requirements(recipe)), cure=cure
        )
    return lock


def refuse_newer(found: object, known: int, what: str, where: str) -> None:
    """Raises NewerFormat when a file that Graft writes has a format that this Graft does not know yet."""
    if isinstance(found, int) and found > known:
        raise NewerFormat(f"{what} has format {found}, this Graft reads {known}", where=where, cure="use a newer Graft")


def check_fresh(paths: Paths, lock: Lock, inputs: Mapping[Part, str]) -> None:
    """Raises LockStale, naming the parts, when the lock was made from something else than `inputs`."""
    stale = [part for part, value in inputs.items() if lock.inputs.get(part) != value]
    if not stale:
        return
    meaning = {
        "packages": "components, versions, constraints or architectures",
        "base": "the base's packages",
        "patches": "patches",
    }
    # What is resolved from other packages is patched anew as well: not worth a word of its own.
    changed = "; ".join(meaning[part] for part in stale if part != "patches" or "packages" not in stale)
    raise LockStale(
        f"the lock is stale: {changed} changed after it was made",
        where=paths.relative(paths.lock(lock.recipe)),
        cure=f"make lock RECIPE={lock.recipe}",
    )


def lock_text(body: Mapping[str, Any]) -> str:
    """The file's text for its plain data without `digest`."""
    return dump({**body, "digest": digest_of(body)}, HEADER)


def plain(lock: Lock) -> dict[str, Any]:
    """The lock's data without `digest` and without defaults, in the file's key order."""
    data = lock.model_dump(mode="json", exclude={"digest"}, exclude_defaults=False)
    for file in (*data["packages"], *data["sources"].values()):
        if file["yanked"] is None:
            del file["yanked"]
    for package in data["packages"]:
        if package["arches"] is None:
            del package["arches"]
        if package["use"] == "image":
            del package["use"]
    for source in data["sources"].values():
        for name in ("tree", "git", "archive", "requires", "alone"):
            if not source[name]:
                del source[name]
    for entry in (entry for entries in data["patches"].values() for entry in entries):
        if entry["arches"] is None:
            del entry["arches"]
    return data


def requirements_text(lock: Lock) -> str:
    """The wheels of the image in pip's format, with hashes; what some architectures need stands with a comment."""
    lines = [f"# Made by `make lock` together with {lock.recipe}.lock.yaml; do not edit."]
    for package in sorted(lock.packages, key=lambda p: (p.name, p.use)):
        if package.use != "image":
            continue
        if package.arches is not None:
            lines.append(f"# only on {', '.join(package.arches)}")
        lines.append(f"{package.name}=={package.version} \\\n    --hash=sha256:{package.sha256}")
    for name, source in sorted(lock.sources.items()):
        if source.tree is not None or source.alone:
            # pip could not make the same of it.
            how = f"the source of {source.name} alone" if source.alone else f"built from {source.origin}"
            lines.append(f"# component {name}, {source.version}, {how}")
            continue
        lines.append(
            f"# component {name}, from source\n{source.name}=={source.version} \\\n    --hash=sha256:{source.sha256}"
        )
    return "\n".join(lines) + "\n"


def write_lock(paths: Paths, lock: Lock) -> None:
    """Both files, each replaced whole; requirements first, so that an interruption leaves a lock that says so."""
    paths.locks.mkdir(parents=True, exist_ok=True)
    write_atomic(paths.requirements(lock.recipe), requirements_text(lock))
    write_atomic(paths.lock(lock.recipe), lock_text(plain(lock)))


def write_atomic(path: Path, text: str) -> None:
    """Replace a file in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
