"""build.yaml: the project-wide facts that recipes choose from."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import Field, field_validator, model_validator

from graft.arch import NAME, ArchRow
from graft.errors import BadInput
from graft.release import EnvKey, EnvValue
from graft.sources import Digest, HttpsPrefix, ImagePath, Reference
from graft.yamlio import Model, grammar, load, sized

LOWER_NAME = "a name: lower-case letters, digits, and single . _ - between them"
Slug = Annotated[str, grammar(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", LOWER_NAME, 63)]
Distribution = Annotated[
    str, grammar(r"[a-z0-9]+(?:-[a-z0-9]+)*", "a distribution: lower-case letters, digits, single dashes between them")
]
DebianName = Annotated[str, grammar(r"[a-z0-9][a-z0-9+.-]+", "the name of a Debian package")]
Suite = Annotated[str, grammar(r"[a-z][a-z-]+", "the name of a Debian suite, such as bookworm")]
Bytes = Annotated[str, *sized(r"[1-9][0-9]*(MB|GB)", "40GB (units: MB, GB)")]
_IN_TAG = r"[A-Za-z0-9_.-]*"
ChannelTemplate = Annotated[
    str,
    grammar(rf"(?![.-]){_IN_TAG}\{{recipe\}}{_IN_TAG}\{{arch\}}{_IN_TAG}", "a tag such as {recipe}-{arch}-stable", 60),
]
Address = Annotated[
    str,
    grammar(
        r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*",
        "a registry such as ghcr.io/me/vllm: host[:port][/path], without https://",
        255,
    ),
]
KeyFile = Annotated[
    str, grammar(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", "a file of the project")
]
#: Where a password may stand by mistake, so what was written is not said again.
RedisUrl = Annotated[
    str,
    grammar(
        r"rediss?://(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]|\[[0-9A-Fa-f:]+\])"
        r"(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(?:/[0-9]{1,3})?",
        "an address such as redis://host:6379/0, or rediss:// for TLS; user and password are never written here: "
        "GRAFT_REDIS_USERNAME and GRAFT_REDIS_PASSWORD in the environment say them",
        shown=False,
    ),
]
TagTemplate = Annotated[str, grammar(r"[A-Za-z0-9_{}.-]+", "a tag such as {recipe}-{arch}")]


class Bootstrap(Model):
    """A base made from Debian packages."""

    suite: Suite
    pockets: tuple[Suite, ...] = Field(min_length=1, strict=False)
    snapshot: str | None = None


class BaseImage(Model):
    """A base that somebody made; without digest it is whatever its tag names on that day."""

    reference: Reference
    digest: Digest | None = None


class Base(Model):
    """What an image starts from; `runtime` and `builder` are Debian package names.

    Of a base image this says what nobody can know without having it:
    toolkit: where its CUDA toolkit lies.
    venv:    `new` (an empty one), `over-system` (one that sees the image's own packages), `kept` (it has one).
    env:     what it sets; null where the value was never written down.
    """

    bootstrap: Bootstrap | None = None
    image: BaseImage | None = None
    toolkit: ImagePath | None = None
    venv: Literal["new", "over-system", "kept"] = "new"
    env: dict[EnvKey, EnvValue | None] = Field(default_factory=dict)
    python: Annotated[str, grammar(r"3\.[0-9]{1,2}", "a Python version such as 3.11")]
    glibc: Annotated[str, grammar(r"2\.[0-9]{2}", "a version of glibc such as 2.36")]
    machine: Annotated[str, grammar(r"x86_64", "x86_64")]
    runtime: tuple[DebianName, ...] = Field(default=(), strict=False)
    builder: tuple[DebianName, ...] = Field(strict=False)

    @model_validator(mode="after")
    def _one_kind(self) -> Base:
        if (self.bootstrap is None) == (self.image is None):
            raise ValueError("a base is made with bootstrap or is an image: give one of the two")
        if self.bootstrap is not None and not self.runtime:
            raise ValueError("a bootstrap base needs runtime: its Debian packages")
        if self.bootstrap is not None and (self.env or self.toolkit or self.venv != "new"):
            raise ValueError("env, toolkit and venv say what a base image brings; a bootstrap base brings none of it")
        if self.image is not None and self.toolkit is None:
            raise ValueError("a base image needs toolkit: where its CUDA toolkit lies, for example /usr/local/cuda")
        return self

    @property
    def platform(self) -> str:
        """The platform as uv names it: `x86_64-manylinux_2_36`."""
        return f"{self.machine}-manylinux_{self.glibc.replace('.', '_')}"


class BuildKind(Model):
    """What a kind of component build needs: build requirements (PEP 508) and GB of memory per compiler."""

    requires: tuple[str, ...] = Field(strict=False)
    memory_gb: int = Field(ge=1, le=64)


class EngineConfig(Model):
    """The embedded engine: Debian packages by suite, and how much build cache is kept."""

    packages: dict[Suite, tuple[DebianName, ...]]
    keep: Bytes

    @field_validator("packages", mode="before")
    @classmethod
    def _tuples(cls, value: object) -> object:
        return {k: tuple(v) for k, v in value.items()} if isinstance(value, dict) else value


class Channels(Model):
    """Tags that move in the registry, as templates over {recipe} and {arch}."""

    candidate: ChannelTemplate = "{recipe}-{arch}"
    stable: ChannelTemplate = "{recipe}-{arch}-stable"

    @model_validator(mode="after")
    def _two(self) -> Channels:
        if self.candidate == self.stable:
            raise ValueError("candidate and stable are the same tag")
        return self

    def tag(self, channel: Literal["candidate", "stable"], recipe: str, arch: str) -> str:
        template = self.candidate if channel == "candidate" else self.stable
        return template.replace("{recipe}", recipe).replace("{arch}", arch)


class RegistryConfig(Model):
    """Where images are published.

    address: host[:port], or with a path the whole repository; null: only where REGISTRY says.
    key:     the public key that signatures are checked with, a file of the project.
    """

    address: Address | None = None
    key: KeyFile | None = None
    compression: Literal["zstd", "gzip"] = "zstd"
    channels: Channels = Channels()


class StoreConfig(Model):
    """Where built components are shared; null: on this host alone. registry: host[:port], or with a path."""

    registry: Address | None = None


class CompileCacheConfig(Model):
    """Where machines share what compilers made; null: each keeps its own.

    redis: redis://host[:port][/db], or rediss:// for TLS.
    days:  how long an entry stays that no build put there again.
    size:  the most that is brought for one component.
    """

    redis: RedisUrl | None = None
    days: int = Field(default=30, ge=1, le=3650)
    size: Bytes = "2GB"


class Project(Model):
    """The whole of build.yaml."""

    recipe: Slug
    arch: str
    repository: Annotated[str, grammar(r"[a-z0-9]+(?:[._/-][a-z0-9]+)*", LOWER_NAME)]
    arches: dict[str, ArchRow]
    bases: dict[Slug, Base]
    toolkit: tuple[Distribution, ...] = Field(strict=False)
    groups: dict[Slug, tuple[Distribution, ...]]
    builds: dict[Slug, BuildKind]
    engine: EngineConfig
    index: str | None = None
    indexes: dict[Slug, str | None] = Field(default_factory=dict)
    mirrors: dict[HttpsPrefix, str] = Field(default_factory=dict)
    channels: tuple[TagTemplate, ...] = Field(min_length=1, strict=False)
    registry: RegistryConfig = RegistryConfig()
    store: StoreConfig = StoreConfig()
    compile_cache: CompileCacheConfig = CompileCacheConfig()

    @field_validator("groups", mode="before")
    @classmethod
    def _tuples(cls, value: object) -> object:
        return {k: tuple(v) for k, v in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _consistent(self) -> Project:
        bad = [name for name in self.arches if not NAME.fullmatch(name)]
        if bad:
            raise ValueError(f"arches: {bad[0]!r} is not of the form sm90")
        for name, row in self.arches.items():
            if name != "sm" + row.capability.replace(".", ""):
                raise ValueError(f"arches.{name}: compute capability {row.capability} is another architecture's")
        if self.arch not in self.arches:
            raise ValueError(f"arch: {self.arch!r} is not in the table below")
        for name, address in (("index", self.index), *((f"indexes.{n}", a) for n, a in self.indexes.items())):
            if address is not None and not re.fullmatch(r"https?://[^\s]+", address):
                raise ValueError(f"{name}: expected an http or https address")
        for prefix, address in self.mirrors.items():
            if not re.fullmatch(r"(?:https?|file)://[^\s]+", address):
                raise ValueError(f"mirrors.{prefix}: expected an https, http or file address")
        return self

    def address_of(self, url: str) -> str:
        """Where this host asks for an address of a recipe: the mirror with the longest fitting beginning, or itself."""
        fitting = [prefix for prefix in self.mirrors if url == prefix or url.startswith(f"{prefix.rstrip('/')}/")]
        longest = max(fitting, key=len, default=None)
        return url if longest is None else self.mirrors[longest].rstrip("/") + url.removeprefix(longest.rstrip("/"))

    def group_of(self, distribution: str) -> str | None:
        """The group that a distribution is released with, if any."""
        name = canonicalize_name(distribution)
        return next((group for group, members in self.groups.items() if name in members), None)


def load_project(path: Path) -> Project:
    """build.yaml as a model. Raises BadInput."""
    project = load(path, Project)
    if project.recipe and not (path.parent / "recipes").is_dir():
        raise BadInput("the project has no folder recipes/", where=str(path), cure="git checkout recipes")
    for folder in ("images", "patches", "recipes/locks"):
        _check_files(path.parent / folder, path.parent)
    return project


def _check_files(folder: Path, root: Path) -> None:
    """Raises BadInput for a pipe, a socket or a device below a folder: to read it could take forever."""
    for path in sorted(folder.rglob("*")):
        try:
            kind = path.stat().st_mode
        except OSError:
            # A link to nothing: who reads it says so.
            continue
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise BadInput("it is no regular file", where=str(path.relative_to(root)), cure="take it away")
