"""A component: one upstream project of an image, where it comes from and how it gets in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import Field, ValidationInfo, field_validator, model_validator

from graft.kinds import KINDS, modules_of
from graft.project import DebianName, Distribution, Slug
from graft.release import EnvKey, EnvValue
from graft.sources import ArchiveSource, GitSource, ImageSource
from graft.yamlio import Model, grammar

Module = Annotated[str, grammar(r"[a-z0-9_]+", "the name of a module: lower-case letters, digits, _")]
DEBIAN_VERSION = re.compile(r"^(?:[0-9]+:)?[0-9][A-Za-z0-9.+~]*(?:-[A-Za-z0-9.+~]+)*$")
Part = Annotated[str, grammar(r"[A-Za-z0-9][A-Za-z0-9_. /-]*", "the name of a part, as the log of its build has it")]
#: A component, or a folder of its tree: `cutlass`, `flashinfer/3rdparty/cutlass`.
TreeRef = Annotated[
    str,
    grammar(
        r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+-]+)*",
        "a component, or a folder in the tree of one, such as flashinfer/3rdparty/cutlass",
    ),
]
SOURCES = ("wheel", "sdist", "git", "archive", "image", "apt")
#: What a component may say of its build.
OF_A_BUILD = frozenset({"build", "build_requires", "modules", "accepts", "sources", "needs", "build_env", "family"})
#: What a component of each kind of source may say beside it. Of the rest a key would be read by nobody.
KEYS_OF: dict[str, frozenset[str]] = {
    "wheel": frozenset({"allow", "index", "commit", "overrides"}),
    "sdist": frozenset({"allow", "index", "commit", "overrides"}) | OF_A_BUILD,
    "git": frozenset({"overrides", "provides", "requires"}) | OF_A_BUILD,
    "archive": frozenset({"commit", "overrides", "provides", "requires"}) | OF_A_BUILD,
    "image": frozenset({"commit", "overrides", "provides", "family"}),
    "apt": frozenset(),
}
BELONGS = (
    ("modules", "belong"), ("sources", "belong"), ("needs", "belong"), ("build_env", "belongs"), ("requires", "belong"),
    ("accepts", "belongs"), ("build_requires", "belongs"),
)  # fmt: skip
#: What Graft says to every build; a recipe may not say something else.
BUILD_NAMES = frozenset(
    {"CUDA_HOME", "MAX_JOBS", "NVCC_THREADS", "SETUPTOOLS_SCM_PRETEND_VERSION", "SOURCE_DATE_EPOCH"}
    | {"TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES", "NVCC_GENCODE", "CUTE_DSL_ARCH"}
)


class Component(Model):
    """One upstream project: a source, and how it gets into the image.

    allow: the versions that an update may move it to (PEP 440, `>=0.32,<0.34`); of no meaning for the image.
    commit: the upstream commit that a prebuilt wheel records, an abbreviation of at least 7 hex digits.
    overrides: the component whose own copy this one replaces.
    modules: for build kinds that compile named modules ahead of time; the name of a set stands for those in it.
    index: the name of an index of build.yaml, where it is not the host's own.
    build_requires: what its build needs (PEP 508) beside what build.yaml says of its kind.
    requires: what it needs at run time (PEP 508), where its source tree does not say so without being run.
    accepts: parts that its build may leave out, by the names that its log has for them.
    provides: the distribution that a build, or an image, holds as a wheel.
    sources: variable that the build reads -> the component whose source tree, or which folder of it, it finds there.
    needs: components of which the wheels are installed before the build starts.
    build_env: what else the build is told.
    family: compiled for the architecture's family (12.0f), not for the one chip (12.0a).
    """

    wheel: Distribution | None = None
    sdist: Distribution | None = None
    git: GitSource | None = None
    archive: ArchiveSource | None = None
    image: ImageSource | None = None
    apt: tuple[DebianName, ...] | None = Field(default=None, min_length=1, strict=False)
    version: str
    allow: str | None = None
    index: Slug | None = None
    commit: Annotated[str, grammar(r"[0-9a-f]{7,40}", "a commit: 7 to 40 hex digits in lower case")] | None = None
    overrides: Slug | None = None
    build: Slug | None = None
    build_requires: tuple[str, ...] = Field(default=(), strict=False)
    provides: Distribution | None = None
    accepts: tuple[Part, ...] = Field(default=(), strict=False)
    requires: tuple[str, ...] | None = Field(default=None, strict=False)
    modules: tuple[Module, ...] = Field(default=(), strict=False)
    sources: dict[EnvKey, TreeRef] = Field(default_factory=dict)
    needs: tuple[Slug, ...] = Field(default=(), strict=False)
    build_env: dict[EnvKey, EnvValue] = Field(default_factory=dict)
    family: bool = False
    arches: tuple[str, ...] | None = Field(default=None, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _stamp(cls, data: Any) -> Any:
        """A commit needs no version; where it is built, the lock knows the one that its tags make of it."""
        if not isinstance(data, dict):
            return data
        git = data.get("git")
        commit = git.get("commit") if isinstance(git, dict) else None
        return data if "version" in data or not isinstance(commit, str) else {**data, "version": _unsaid(commit)}

    @field_validator("version")
    @classmethod
    def _version(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("apt") is not None:
            if not DEBIAN_VERSION.fullmatch(value):
                raise ValueError(f"{value!r} is not a version of a Debian package such as 13.4.1.2-1")
            return value
        try:
            canonical = str(Version(value))
        except InvalidVersion:
            raise ValueError(f"{value!r} is not a version (PEP 440); a pin is exact, without an operator") from None
        if canonical != value:
            raise ValueError(f"write {value!r} in its canonical form: {canonical!r}")
        return value

    @field_validator("allow")
    @classmethod
    def _allow(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        try:
            allowed = SpecifierSet(value)
        except InvalidSpecifier:
            raise ValueError(f"{value!r} is no range of versions such as >=0.32,<0.34") from None
        version = info.data.get("version")
        if not value.strip() or (version is not None and not allowed.contains(version, prereleases=True)):
            raise ValueError(f"{value!r} does not allow the version it stands beside: {version}")
        return value

    @field_validator("modules")
    @classmethod
    def _modules(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return modules_of(info.data.get("build"), value)

    @field_validator("requires", "build_requires")
    @classmethod
    def _requires(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for text in value or ():
            try:
                parsed = Requirement(text)
            except InvalidRequirement:
                raise ValueError(f"{text!r} is not a requirement such as numpy>=2") from None
            if parsed.url:
                raise ValueError(f"{text!r}: a name and a version bound; an address is a component of its own")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Component:
        given = [kind for kind in SOURCES if getattr(self, kind) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            raise ValueError(f"give exactly one source of {', '.join(SOURCES)}; {found}")
        wrong = next(iter((*_beside_the_source(self, given[0]), *_told_to_its_build(self))), None)
        if wrong is not None:
            raise ValueError(wrong)
        return self

    def allows(self, version: str) -> bool:
        """Whether an update may move it to `version`."""
        return self.allow is None or SpecifierSet(self.allow).contains(version, prereleases=True)

    def says(self, name: str) -> bool:
        """Whether a key is there with another value than the one it has when it is left out."""
        # Every default is empty; asking pydantic for them costs more than all the rest of a recipe.
        return bool(getattr(self, name))

    @property
    def kind(self) -> str:
        """Its kind of source."""
        return next(kind for kind in SOURCES if getattr(self, kind) is not None)

    @property
    def distribution(self) -> str:
        """The normalised name of what is installed; empty for Debian packages and for what others are built from."""
        return "" if self.is_source_only else self.indexed or canonicalize_name(self.provides or "")

    @property
    def indexed(self) -> str:
        """The normalised name that a package index has its wheel or sdist under; empty for other sources."""
        return canonicalize_name(self.wheel or self.sdist or "")

    @property
    def is_built(self) -> bool:
        return self.build is not None

    @property
    def is_versioned_by_tags(self) -> bool:
        """Whether it is built from a commit of which the recipe does not say the version."""
        return self.git is not None and self.is_built and self.version == _unsaid(self.git.commit)

    @property
    def built_from(self) -> frozenset[str]:
        """The components that have to be there before its build starts."""
        return frozenset({*self.mounted, *self.needs})

    @property
    def mounted(self) -> tuple[str, ...]:
        """The components whose source trees its build finds, sorted."""
        return tuple(sorted({component_of(value) for value in self.sources.values()}))

    @property
    def has_tree(self) -> bool:
        """Whether there is a source tree of it: from an sdist, from git or from an archive."""
        return self.kind in ("sdist", "git", "archive")

    @property
    def is_source_only(self) -> bool:
        """Whether it is there for the builds of others alone."""
        return self.has_tree and self.build is None

    def on(self, arch: str) -> bool:
        """Whether the component is part of the image for `arch`."""
        return self.arches is None or arch in self.arches


def _unsaid(commit: str) -> str:
    return f"0+g{commit[:9]}"


def component_of(reference: str) -> str:
    """The component of `flashinfer/3rdparty/cutlass`."""
    return reference.partition("/")[0]


def _beside_the_source(component: Component, kind: str) -> Iterator[str]:
    """What is wrong with the keys beside the source."""
    if component.wheel is not None and component.build is not None:
        yield "a wheel is installed as it is: remove build, or give its sdist"
    if component.is_source_only and component.overrides is not None:
        yield "overrides belongs to what is installed: give build"
    for name, belongs in BELONGS:
        if component.says(name) and component.build is None:
            yield f"{name} {belongs} to a build kind"
    own = {kind, "version", "arches", *KEYS_OF[kind]}
    for name in type(component).model_fields:
        if name not in own and component.says(name):
            known = ", ".join(sorted(KEYS_OF[kind])) or "nothing"
            yield f"{name} says nothing of a component from {kind}; beside it there may be: {known}"


def _told_to_its_build(component: Component) -> Iterator[str]:
    """What is wrong with what comes out of a build, or goes into it."""
    makes = component.image is not None or (component.sdist is None and component.build is not None)
    if makes and component.provides is None:
        yield "give provides: the distribution that comes out, for example: provides: vllm"
    if component.provides is not None and not makes:
        yield "provides belongs to a build or to an image; without one nothing is installed"
    for name in sorted(BUILD_NAMES & {*component.build_env, *component.sources}):
        yield f"remove {name}: every build is told it by Graft, from the plan"
    kind = KINDS.get(component.build or "")
    if kind is None:
        return
    for name in kind.no_use:
        if component.says(name):
            yield f"remove {name}: a build of the kind {component.build} does nothing with it"
    if kind.sets and not component.modules:
        yield f"give modules: their names, or a set of them ({', '.join(kind.sets)}), for example: modules: [serving]"
    if component.modules and not kind.sets:
        yield f"remove modules: a build of the kind {component.build} compiles all of its project"
