"""The plan and what it consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graft.arch import Arch
from graft.hashes import digest_of
from graft.kinds import kind_of
from graft.lock import Lock, PackagePin, PatchedComponent, SourcePin
from graft.plan.files import own_stages
from graft.plan.keys import Keyed
from graft.plan.places import installed_path, patch_test, site_packages
from graft.project import Base, Project
from graft.recipe import Component, Recipe, bytes_of
from graft.tags import Naming, facts_of, filled, references

#: What images/stages/runtime.j2 ends with.
ENTRYPOINT = ("vllm", "serve")


WORKDIR = "/root"


CHANNELS = "build.yaml: channels"


@dataclass(frozen=True)
class Layer:
    """Wheels that are installed together as one image layer."""

    name: str
    packages: tuple[PackagePin, ...]

    @property
    def context(self) -> str:
        return f"wheels-{self.name}"

    @property
    def size(self) -> int:
        """Bytes of its wheels."""
        return sum(p.size for p in self.packages)


@dataclass(frozen=True)
class Build:
    """A component that is compiled, or only a source of others: its source, patches, options and key.

    environment: what its compilers are told, where its stage does not say that by itself.
    sources:     variable -> the component, or the folder of its tree, that it names.
    """

    name: str
    component: Component
    source: SourcePin
    patched: PatchedComponent | None
    memory_gb: int
    keyed: Keyed
    environment: Mapping[str, str]
    sources: Mapping[str, str]

    @property
    def stages(self) -> tuple[str, ...]:
        """Its stages, in order: files of images/stages/."""
        return own_stages(self.component)

    @property
    def context(self) -> str:
        """The named context that holds its source."""
        return f"{'tree' if self.source.tree else 'sdist'}-{self.name}"

    @property
    def refused(self) -> tuple[str, ...]:
        """Lines of its log that mean a part of it is missing."""
        return kind_of(self.component.build).refused if self.component.build else ()

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The distributions that the image has for it; None where an index said what it needs."""
        if self.source.tree is None:
            return None
        return tuple(sorted({canonicalize_name(Requirement(text).name) for text in self.source.requires}))

    @property
    def tree_key(self) -> str:
        """What its source tree is, patches and all."""
        return digest_of([self.source.identity, [p.sha256 for p in self.patched.patches] if self.patched else []])


@dataclass(frozen=True)
class Overlay:
    """Patched files of a prebuilt wheel; `layer` is the layer that installs the wheel."""

    name: str
    layer: str
    wheel: PackagePin
    patched: PatchedComponent
    keyed: Keyed

    @property
    def installed_files(self) -> tuple[str, ...]:
        """What an overlay is made from, below site-packages: the touched files and the wheel's RECORD."""
        name, version = self.wheel.file.split("-")[:2]
        touched = {path for pin in self.patched.patches for path, file in pin.files.items() if file.before is not None}
        return (f"{name}-{version}.dist-info/RECORD", *sorted(touched))


@dataclass(frozen=True)
class Plan:
    """What `make image` will do, in full."""

    project: Project
    recipe: Recipe
    lock: Lock
    arch: Arch
    foundation: tuple[Layer, ...]
    libraries: tuple[Layer, ...]
    wheels: tuple[Layer, ...]
    builds: tuple[Build, ...]
    overlays: tuple[Overlay, ...]
    build_wheels: Layer
    image: Keyed
    gate: Keyed
    env: Mapping[str, str]
    environment: Keyed
    #: The templates and scripts that make the image: name below images/ -> sha256.
    files: Mapping[str, str]
    #: Components that are there for the builds of others alone.
    sources: tuple[Build, ...]
    gpu_gate: Keyed
    #: file below site-packages -> the operators that it has to register; None where nothing is recorded yet.
    operators: Mapping[str, Sequence[str]] | None = None

    #: Stages (files of images/stages/) that another kind of plan takes from elsewhere.
    base_stage: ClassVar[str] = "base"
    foundation_stage: ClassVar[str] = "foundation"
    builder_stage: ClassVar[str] = "builder"

    @property
    def needs_builder(self) -> bool:
        return bool(self.builds or self.overlays)

    @property
    def epoch(self) -> int:
        """Seconds since 1970: the SOURCE_DATE_EPOCH of the image."""
        return self.lock.epoch

    @property
    def base(self) -> Base:
        return self.project.bases[self.recipe.base]

    @property
    def site_packages(self) -> str:
        return site_packages(self.base)

    @property
    def tag(self) -> str:
        """The immutable reference: `graft:<recipe>-<arch>-<key12>`."""
        return f"{self.project.repository}:{self.recipe.recipe}-{self.arch.name}-{self.image.short}"

    @property
    def channels(self) -> tuple[str, ...]:
        """References that move: the templates of build.yaml and of the recipe, filled in."""
        facts = facts_of(self.recipe, Naming(self.arch.name, self.lock.date, self.image.short))
        moving = (filled(template, facts, CHANNELS) for template in self.project.channels)
        return (*(f"{self.project.repository}:{tag}" for tag in moving), *references(self.recipe, facts))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers of prebuilt wheels in the image, in order."""
        return (*self.foundation, *self.libraries, *self.wheels)

    @property
    def waivers(self) -> list[dict[str, Any]]:
        """The recipe's waivers that hold for the gate on this architecture."""
        return [
            w.model_dump(mode="json") for w in self.recipe.waivers if w.of_gate and w.arch in (None, self.arch.name)
        ]

    def labels(self) -> dict[str, str]:
        """OCI labels of the image."""
        components = self.recipe.components_on(self.arch.name)
        labels = {
            "org.opencontainers.image.title": f"{self.recipe.recipe} for {self.arch.name}",
            "org.opencontainers.image.description": self.recipe.summary,
            "org.opencontainers.image.version": self.tag.partition(":")[2],
            "dev.graft.recipe": self.recipe.recipe,
            "dev.graft.arch": self.arch.name,
            "dev.graft.cuda": self.recipe.cuda,
            "dev.graft.key": self.image.key,
            "dev.graft.lock": f"sha256:{self.lock.digest}",
            "dev.graft.environment": f"sha256:{self.environment.key}",
        }
        for name, component in components.items():
            labels[f"dev.graft.component.{name}.version"] = component.version
            if component.commit:
                labels[f"dev.graft.component.{name}.commit"] = component.commit
        for build in (*self.sources, *self.builds):
            if build.source.git is not None:
                labels[f"dev.graft.component.{build.name}.commit"] = build.source.git.commit
            if build.source.tree is not None:
                labels[f"dev.graft.component.{build.name}.tree"] = build.source.tree
        for overlay in self.overlays:
            labels[f"dev.graft.overlay.{overlay.name}"] = f"git-tree:{overlay.patched.result}"
        for ref in self.patch_refs:
            labels[f"dev.graft.patch.{ref.replace('/', '.')}"] = f"sha256:{self._patch_sha256(ref)}"
        return labels

    def manifest(self) -> dict[str, Any]:
        """/usr/share/graft/manifest.json: file below site-packages -> sha256, for all patched files."""
        return {
            "recipe": self.recipe.recipe,
            "arch": self.arch.name,
            "key": self.image.key,
            "site_packages": self.site_packages,
            "files": {
                path: digest
                for patched in self.patched().values()
                for path, digest in sorted(patched.installed.items())
            },
        }

    @property
    def packages(self) -> dict[str, str]:
        """Every distribution of the image: name -> version."""
        found = {p.name: p.version for p in self.lock.image_packages(self.arch.name)}
        found |= {b.source.name: b.source.version for b in self.builds}
        for build in self.builds:
            found |= compiled_distribution(build.component, self.arch)
        return found

    def facts(self) -> dict[str, Any]:
        """facts.json: what the smoke tests compare the image with."""
        components = self.recipe.components_on(self.arch.name)
        return {
            "recipe": self.recipe.recipe,
            "arch": self.arch.name,
            "compute_capability": self.arch.row.capability,
            "cuda": self.recipe.cuda,
            "torch_arch_list": self.arch.torch_list,
            "nvcc_arch": self.arch.nvcc,
            "python": self.base.python,
            "site_packages": self.site_packages,
            "packages": dict(sorted(self.packages.items())),
            "debs": {p.name: p.version for p in self.lock.base.packages if p.set == "runtime"},
            "components": {
                name: {
                    "distribution": c.distribution,
                    "version": c.version,
                    "commit": c.commit,
                    "overrides": c.overrides,
                    "modules": list(c.modules),
                }
                for name, c in components.items()
                if not c.is_source_only
            },
            "patches": [self._patch_facts(ref) for ref in self.patch_refs],
            "waivers": self.waivers,
            "env": dict(sorted(self.env.items())),
            "size_budget": self._budget(),
            "operators": dict(self.operators) if self.operators is not None else None,
            "profiles": launch_facts(self.recipe, self.arch.name),
        }

    def _budget(self) -> dict[str, Any]:
        """Bytes that the image, and the distributions of each component, may have."""
        budget = self.recipe.size_budget
        limits = {} if budget is None else budget.components
        return {
            "total": bytes_of(budget.total) if budget is not None and budget.total is not None else None,
            "components": {
                name: {
                    "bytes": bytes_of(limits[name]),
                    "distributions": [c.distribution, *compiled_distribution(c, self.arch)],
                }
                for name, c in self.recipe.components_on(self.arch.name).items()
                if name in limits
            },
        }

    def patched(self) -> dict[str, PatchedComponent]:
        """The patched components of this image, by name."""
        on = {name: self.lock.patched(name, self.arch.name) for name in self.recipe.components_on(self.arch.name)}
        order = dict.fromkeys(ref.partition("/")[0] for ref in self.recipe.patches)
        return {name: entry for name in order if (entry := on.get(name)) is not None}

    @property
    def patch_refs(self) -> tuple[str, ...]:
        """`component/id` of the patches of this image, as the recipe lists them."""
        mine = {f"{name}/{pin.id}" for name, entry in self.patched().items() for pin in entry.patches}
        return tuple(ref for ref in self.recipe.patches if ref in mine)

    def _patch_sha256(self, ref: str) -> str:
        component, _, patch_id = ref.partition("/")
        return next(p.sha256 for p in self.patched()[component].patches if p.id == patch_id)

    def _patch_facts(self, ref: str) -> dict[str, Any]:
        name, _, patch_id = ref.partition("/")
        patched = self.patched()[name]
        pin = next(p for p in patched.patches if p.id == patch_id)
        component = self.recipe.components[name]
        places = (installed_path(component.build, path, component.distribution) for path in sorted(pin.files))
        files = {where: patched.installed[where] for where in places if where}
        return {"component": name, "id": patch_id, "test": patch_test(name, patch_id), "files": files}


def launch_facts(recipe: Recipe, arch: str) -> list[dict[str, Any]]:
    """The launch profiles for an architecture, as the smoke test `start` reads them."""
    return [
        {"name": name, "model": profile.model, "args": list(profile.args), "env": dict(profile.env)}
        for name, profile in recipe.profiles_on(arch).items()
    ]


def compiled_distribution(component: Component, arch: Arch) -> dict[str, str]:
    """The distribution that a build kind adds for what it compiled: name -> version."""
    if component.build == "flashinfer-aot" and component.modules:
        return {"graft-flashinfer-aot": f"{component.version}+{arch.nvcc.replace('_', '')}"}
    return {}
