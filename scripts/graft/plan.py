"""The plan: everything that will happen for one recipe and architecture, with keys.

Pure: plain data in, plain data out; no clock, no disk, no network. A key is the hash of all inputs of one
step and of nothing else; its inputs stay readable by name, so that a difference can be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graft import __version__
from graft.arch import Arch
from graft.errors import BadInput
from graft.hashes import digest_of
from graft.kinds import kind_of
from graft.lock import Lock, PackagePin, PatchedComponent, SourcePin
from graft.project import Base, Project
from graft.recipe import Component, Recipe, bytes_of
from graft.tags import Naming, check_tag, facts_of, filled, references

VENV = "/opt/venv"
#: What images/stages/runtime.j2 ends with.
ENTRYPOINT = ("vllm", "serve")
WORKDIR = "/root"
KEY_LENGTH = 12
#: Where an sdist's folders are installed, by build kind: what the source calls X lies at Y below site-packages.
INSTALLED_AT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "flashinfer-aot": (
        ("include/", "flashinfer/data/include/"),
        ("csrc/", "flashinfer/data/csrc/"),
        ("flashinfer/", "flashinfer/"),
    ),
    "vllm": (("vllm/", "vllm/"),),
    "deepgemm": (("deep_gemm/", "deep_gemm/"),),
}
#: The scripts that each stage runs (a test compares this with what the templates mount); `base` runs on the host.
SCRIPTS_OF: Mapping[str, tuple[str, ...]] = {
    "base": ("rootfs-finish.sh", "rootfs-setup.sh"),
    "foundation": ("cuda-links.sh", "install-wheels.sh", "make-venv.sh"),
    "builder": ("install-debs.sh", "install-wheels.sh"),
    "source": ("apply-patches.sh", "unpack-sdist.sh"),
    "source-tree": ("unpack-tree.sh",),
    "build-flashinfer-aot": ("build-flashinfer-aot.py", "buildrun.py"),
    "build-python": ("build-python.py", "buildrun.py", "install-wheels.sh"),
    "build-make": ("build-make.py", "buildrun.py", "install-wheels.sh"),
    "build-image": (),
    "built": ("stamp-wheels.py",),
    "base-image": ("check-debs.sh", "install-debs.sh"),
    "base-open": (),
    "foundation-image": ("install-wheels.sh", "venv-of-image.sh"),
    "builder-open": ("install-debs.sh", "install-wheels.sh"),
    "source-git": ("checkout-git.sh",),
    "source-archive": ("unpack-archive.sh",),
    "source-sdist": ("unpack-sdist.sh",),
    "packages": ("install-wheels.sh",),
    "overlay": ("apply-patches.sh", "overlay-wheel.py"),
    "runtime": (),
    "smoke": (),
}
#: Distributions of NVIDIA's libraries and toolkit: big, and changed only with CUDA or torch.
CUDA_PREFIXES = ("nvidia-", "cuda-")
CHANNELS = "build.yaml: channels"
#: One time for all, in every stage that compiles.
BUILD_EPOCH = "1577836800"
#: The smoke tests of the GPU tier, below images/smoke/: an edit of the others does not end what these have shown.
GPU_TIER = "gpu/"
#: All files of the smoke tests, below images/smoke/.
SMOKE_FILES = ("*.py", "lib/*.py", "gpu/*.py", "gpu/cases/*.py")


@dataclass(frozen=True)
class ImageSources:
    """Hashes (sha256, hex) of the files that make images: file name below images/ -> hash."""

    templates: Mapping[str, str]
    scripts: Mapping[str, str]
    smoke: Mapping[str, str]
    patch_tests: Mapping[str, str]


@dataclass(frozen=True)
class Keyed:
    """A key and the named inputs that it is the hash of."""

    inputs: Mapping[str, str]

    @property
    def key(self) -> str:
        return digest_of(dict(self.inputs))

    @property
    def short(self) -> str:
        return self.key[:KEY_LENGTH]


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
        return _own_stages(self.component)

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

    def facts(self) -> dict[str, Any]:
        """facts.json: what the smoke tests compare the image with."""
        components = self.recipe.components_on(self.arch.name)
        packages = {p.name: p.version for p in self.lock.image_packages(self.arch.name)}
        packages |= {b.source.name: b.source.version for b in self.builds}
        for build in self.builds:
            packages |= compiled_distribution(build.component, self.arch)
        return {
            "recipe": self.recipe.recipe,
            "arch": self.arch.name,
            "compute_capability": self.arch.row.capability,
            "cuda": self.recipe.cuda,
            "torch_arch_list": self.arch.torch_list,
            "nvcc_arch": self.arch.nvcc,
            "python": self.base.python,
            "site_packages": self.site_packages,
            "packages": dict(sorted(packages.items())),
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


def plan(
    project: Project,
    recipe: Recipe,
    lock: Lock,
    arch: Arch,
    env: Mapping[str, str],
    sources: ImageSources,
    operators: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """Everything that will happen.

    env: the image's whole environment (the stages' and the recipe's).
    operators: what the image's extensions have to register; None where that is not recorded yet.
    Raises BadInput when locked versions that belong together do not agree.
    """
    recipe = versioned(recipe, lock)
    _check_versions(recipe, lock, arch)
    _check_toolkit(project, recipe, lock)
    _check_flashinfer(recipe, lock, arch)
    foundation, libraries, wheels = _layers(project, recipe, lock, arch)
    founded = {p.name for layer in foundation for p in layer.packages}
    build_wheels = Layer("build", tuple(p for p in lock.build_packages() if p.name not in founded))
    toolchain = _toolchain(lock, foundation, build_wheels, arch)
    made_of: dict[str, Build] = {}
    for name in _in_order(recipe.components_on(arch.name)):
        made_of[name] = _build(project, recipe, lock, name, sources, toolchain, arch, made_of)
    builds = tuple(b for b in made_of.values() if b.component.is_built)
    trees = tuple(b for b in made_of.values() if not b.component.is_built)
    layers = (*foundation, *libraries, *wheels)
    overlays = tuple(_overlay(*found, layers, sources) for found in _overlaid(recipe, lock, arch))
    environment = _environment(lock, arch, env, layers, builds, sources)
    stages = _stages((*trees, *builds), overlays)
    image = {
        "lock": lock.digest,
        "recipe": digest_of([recipe.recipe, recipe.summary, arch.name]),
        "arch": digest_of(arch.model_dump(mode="json")),
        # What a label or the gate knows of a component and the lock does not, as its upstream commit.
        "components": digest_of([[n, _said(c)] for n, c in recipe.components_on(arch.name).items()]),
        "layer order": digest_of([layer.name for layer in layers]),
        "env": digest_of(dict(env)),
        "stages": digest_of([files_of(sources, stages), sources.templates.get("Dockerfile.j2")]),
        "graft": __version__,
        # A label of the image, and the key must know every byte.
        "environment": environment.key,
        **{f"layer {layer.name}": digest_of([p.sha256 for p in layer.packages]) for layer in layers},
        **{f"component {b.name}": b.keyed.key for b in (*trees, *builds)},
        **{f"overlay {o.name}": o.keyed.key for o in overlays},
    }
    gate = {
        "smoke": digest_of(dict(sources.smoke)),
        "patch tests": digest_of(dict(sources.patch_tests)),
        "list": digest_of(list(recipe.smoke)),
        "waivers": digest_of([w.model_dump(mode="json") for w in recipe.waivers if w.of_gate]),
        "profiles": digest_of(launch_facts(recipe, arch.name)),
        "size budget": digest_of(recipe.size_budget.model_dump(mode="json") if recipe.size_budget else None),
    }
    if operators is not None:
        gate["operators"] = digest_of({file: list(lines) for file, lines in operators.items()})
    of_gpus = {name: digest for name, digest in sources.smoke.items() if name.startswith((GPU_TIER, "lib/"))}
    made = Plan(
        project,
        recipe,
        lock,
        arch,
        foundation,
        libraries,
        wheels,
        builds,
        overlays,
        build_wheels,
        Keyed(image),
        Keyed(gate),
        dict(env),
        environment,
        _image_files(sources, stages),
        trees,
        Keyed({"smoke": digest_of(of_gpus)}),
        operators,
    )
    _check_tags(made)
    return made


def versioned(recipe: Recipe, lock: Lock) -> Recipe:
    """The recipe with the versions that the lock took from tags."""
    tagged = {n: c for n, c in recipe.components.items() if c.is_versioned_by_tags and n in lock.sources}
    told = {n: c.model_copy(update={"version": lock.sources[n].version}) for n, c in tagged.items()}
    return recipe.model_copy(update={"components": {**recipe.components, **told}}) if told else recipe


def _said(component: Component) -> dict[str, Any]:
    """What a recipe says of a component, all of which the image repeats."""
    data = component.model_dump(mode="json", exclude={"allow"})
    # Newer than images that are there: their keys stay what they are.
    return {key: value for key, value in data.items() if key not in ("requires", "accepts", "build_requires") or value}


def site_packages(base: Base) -> str:
    """Where the venv of the image keeps what is installed."""
    return f"{VENV}/lib/python{base.python}/site-packages"


def image_env(project: Project, recipe: Recipe, arch: Arch) -> dict[str, str]:
    """The image's whole environment: what its tools need to find each other, and the recipe's own."""
    base = project.bases[recipe.base]
    toolkit = base.toolkit or f"{site_packages(base)}/nvidia/cu{recipe.cuda.partition('.')[0]}"
    of_family = any(c.family and c.distribution == "flashinfer-python" for c in recipe.components.values())
    made = {
        "PATH": f"{VENV}/bin:{toolkit}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CUDA_HOME": toolkit,
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": VENV,
        # What NVIDIA's container runtime gives to a container that does not ask with --gpus.
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "FLASHINFER_CUDA_ARCH_LIST": (arch.of_family() if of_family else arch).torch_list,
        "TORCH_CUDA_ARCH_LIST": arch.torch_list,
    }
    kept = {name: base.env[name] for name in recipe.keep_env}
    # Defaults may be changed; what the tools find each other by, and the architecture, may not.
    clash = sorted({*made} & {*recipe.env, *kept} - {"LANG", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"})
    if clash:
        raise BadInput(
            f"env: {clash[0]} is set by Graft, from the base and the architecture",
            where=f"recipes/{recipe.recipe}.yaml",
            cure="remove it from the recipe",
        )
    # A value that nobody wrote down stays what the base says.
    return {**{name: value for name, value in kept.items() if value is not None}, **made, **recipe.env}


def launch_facts(recipe: Recipe, arch: str) -> list[dict[str, Any]]:
    """The launch profiles for an architecture, as the smoke test `start` reads them."""
    return [
        {"name": name, "model": profile.model, "args": list(profile.args), "env": dict(profile.env)}
        for name, profile in recipe.profiles_on(arch).items()
    ]


def patch_test(component: str, patch_id: str) -> str:
    """Where a patch's test lies below the smoke folder."""
    return f"patch-tests/{component}/test_{patch_id.replace('-', '_')}.py"


def installed_path(build: str | None, path: str, distribution: str = "") -> str | None:
    """Where a component's source file lies below site-packages; None when it is not installed.

    Of a `python` build that is known of the modules in the folder with the distribution's name alone.
    """
    if build is None:
        return path
    if build == "python":
        return path if _is_own_module(path, distribution) else None
    for prefix, target in INSTALLED_AT.get(build, ()):
        if path.startswith(prefix):
            return target + path.removeprefix(prefix)
    return None


def source_path(build: str | None, installed: str, distribution: str = "") -> str | None:
    """The reverse of `installed_path`: what the component's source calls an installed file."""
    if build is None:
        return installed
    if build == "python":
        return installed if _is_own_module(installed, distribution) else None
    for prefix, target in INSTALLED_AT.get(build, ()):
        if installed.startswith(target):
            return prefix + installed.removeprefix(target)
    return None


def _is_own_module(path: str, distribution: str) -> bool:
    folder, slash, _ = path.partition("/")
    return bool(slash) and path.endswith(".py") and folder == distribution.replace("-", "_")


def compiled_distribution(component: Component, arch: Arch) -> dict[str, str]:
    """The distribution that a build kind adds for what it compiled: name -> version."""
    if component.build == "flashinfer-aot" and component.modules:
        return {"graft-flashinfer-aot": f"{component.version}+{arch.nvcc.replace('_', '')}"}
    return {}


def first_difference(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """The name of the first input that differs between two keys; None when they are equal."""
    for name in [*new, *old]:
        if old.get(name) != new.get(name):
            return name
    return None


def _layers(
    project: Project, recipe: Recipe, lock: Lock, arch: Arch
) -> tuple[tuple[Layer, ...], tuple[Layer, ...], tuple[Layer, ...]]:
    """(foundation, libraries, component wheels): big and rarely changed first."""
    components = recipe.components_on(arch.name)
    own = {c.distribution for c in components.values() if c.overrides is None}
    overriding = {c.distribution: c.overrides for c in components.values() if c.overrides}
    groups: dict[str, list[PackagePin]] = {"cuda": [], **{group: [] for group in project.groups}, "python": []}
    single: dict[str, PackagePin] = {}
    for package in lock.image_packages(arch.name):
        group = project.group_of(package.name)
        if package.name in overriding:
            overridden = recipe.components[str(overriding[package.name])].distribution
            group = project.group_of(overridden) or "python"
        elif group is None and package.name in own:
            single[package.name] = package
            continue
        elif group is None:
            group = "cuda" if package.name.startswith(CUDA_PREFIXES) else "python"
        groups[group].append(package)
    made = {name: Layer(name, tuple(packages)) for name, packages in groups.items() if packages}
    wheels = [Layer(name, (single[c.distribution],)) for name, c in components.items() if c.distribution in single]
    libraries = (made.pop("python"),) if "python" in made else ()
    return tuple(made.values()), libraries, tuple(wheels)


def _toolchain(lock: Lock, foundation: Sequence[Layer], build_wheels: Layer, arch: Arch) -> dict[str, str]:
    """What every compiled component depends on: base, Python, toolkit, torch, builder, architecture."""
    return {
        "base": digest_of([p.sha256 for p in lock.base.packages]),
        "python": digest_of([lock.resolver["python"], lock.resolver["platform"]]),
        "toolkit and torch": digest_of([[p.sha256 for p in layer.packages] for layer in foundation]),
        "build requirements": digest_of([p.sha256 for p in build_wheels.packages]),
        "architecture": digest_of(arch.environment()),
    }


def _environment(
    lock: Lock,
    arch: Arch,
    env: Mapping[str, str],
    layers: Sequence[Layer],
    builds: Sequence[Build],
    sources: ImageSources,
) -> Keyed:
    """What an image is without its patches: patches can be tried in any image of the same environment."""
    runtime = [p.sha256 for p in lock.base.packages if p.set == "runtime"]
    return Keyed(
        {
            "base": digest_of(runtime),
            "python": digest_of([lock.resolver["python"], lock.resolver["platform"]]),
            "architecture": digest_of(arch.environment()),
            "env": digest_of(dict(env)),
            "stages": digest_of(files_of(sources, ("base", "foundation", "packages"))),
            **{f"layer {layer.name}": digest_of([p.sha256 for p in layer.packages]) for layer in layers},
            **{
                f"component {b.name}": digest_of({k: v for k, v in b.keyed.inputs.items() if k != "patches"})
                for b in builds
            },
        }
    )


def _build(
    project: Project,
    recipe: Recipe,
    lock: Lock,
    name: str,
    sources: ImageSources,
    toolchain: Mapping[str, str],
    arch: Arch,
    made: Mapping[str, Build],
) -> Build:
    """One component; those that it is built from are in `made`."""
    component = recipe.components[name]
    if name not in lock.sources:
        raise BadInput(f"component {name} is not in the lock", cure=f"make lock RECIPE={recipe.recipe}")
    source = lock.sources[name]
    patched = lock.patched(name, arch.name)
    inputs = {
        "source": source.identity,
        "patches": digest_of([p.sha256 for p in patched.patches] if patched else []),
    }
    if component.build is None:
        inputs["stages"] = digest_of(files_of(sources, _own_stages(component)))
        return Build(name, component, source, patched, 0, Keyed(inputs), {}, {})
    kind = component.build
    inputs["stages"] = digest_of(files_of(sources, _stages_of_build(component)))
    inputs["options"] = digest_of([kind, list(component.modules)])
    environment: dict[str, str] = {}
    if kind_of(kind).stage != "flashinfer-aot":
        environment = _build_environment(project.bases[recipe.base], recipe, component, arch)
        options = [kind, component.distribution, component.version, list(component.modules), list(source.requires)]
        options += [list(kind_of(kind).refused), sorted(component.accepts)]
        inputs["options"] = digest_of(options)
        inputs["environment"] = digest_of(environment)
    for variable, reference in sorted(component.sources.items()):
        other, _, folder = reference.partition("/")
        inputs[f"source {variable}"] = digest_of([made[other].tree_key, folder])
    inputs |= {f"needs {other}": made[other].keyed.key for other in sorted(component.needs)}
    inputs |= toolchain
    memory = project.builds[kind].memory_gb
    return Build(
        name, component, source, patched, memory, Keyed(inputs), environment, dict(sorted(component.sources.items()))
    )


def _build_environment(base: Base, recipe: Recipe, component: Component, arch: Arch) -> dict[str, str]:
    """What a build is told: the architecture in every form, the toolkit, what its kind says, what the recipe says."""
    toolkit = base.toolkit or f"{site_packages(base)}/nvidia/cu{recipe.cuda.partition('.')[0]}"
    return {
        "CUDA_HOME": toolkit,
        "SOURCE_DATE_EPOCH": BUILD_EPOCH,
        **(arch.of_family() if component.family else arch).environment(),
        **kind_of(str(component.build)).told,
        **component.build_env,
    }


def _own_stages(component: Component) -> tuple[str, ...]:
    source = "source" if component.kind == "sdist" else "source-tree"
    return (source,) if component.build is None else (source, f"build-{kind_of(component.build).stage}", "built")


def _stages_of_build(component: Component) -> tuple[str, ...]:
    return ("base", "foundation", "builder", *_own_stages(component))


def _stages(builds: Sequence[Build], overlays: Sequence[Overlay]) -> tuple[str, ...]:
    """The stages of an image."""
    names = ["base", "foundation", "packages", "runtime"]
    for build in builds:
        names += _stages_of_build(build.component)
    if overlays:
        names += ["builder", "overlay"]
    # Its text is in the Dockerfile that the image holds.
    return tuple(dict.fromkeys([*names, "smoke"]))


def _image_files(sources: ImageSources, stages: Sequence[str]) -> dict[str, str]:
    """The files that make these stages and the Dockerfile, by their names below images/."""
    hashes = {
        **sources.templates,
        **{f"scripts/{name}": digest for name, digest in sources.scripts.items()},
        **{f"smoke/{name}": digest for name, digest in sources.smoke.items()},
    }
    names = {"Dockerfile.j2", *files_of(sources, stages)}
    places = {place for name in names for place in (name, f"scripts/{name}", f"smoke/{name}")}
    return {place: hashes[place] for place in sorted(places) if place in hashes}


def files_of(sources: ImageSources, stages: Sequence[str]) -> dict[str, str]:
    """The files that make these stages, hashed: templates, macros, scripts, and the reader that proves a compile."""
    names = {f"stages/{stage}.j2" for stage in stages}
    names |= {name for name in sources.templates if name.startswith("macros/")}
    found = {name: sources.templates[name] for name in sorted(names) if name in sources.templates}
    scripts = {script for stage in stages for script in SCRIPTS_OF.get(stage, ())}
    found |= {name: sources.scripts[name] for name in sorted(scripts) if name in sources.scripts}
    if any(stage.startswith("build-") for stage in stages):
        found |= {name: digest for name, digest in sources.smoke.items() if name == "lib/fatbin.py"}
    return found


def _overlay(
    name: str, wheel: PackagePin, patched: PatchedComponent, layers: Sequence[Layer], sources: ImageSources
) -> Overlay:
    inputs = {
        "wheel": wheel.sha256,
        "patches": digest_of([p.sha256 for p in patched.patches]),
        "result": patched.result,
        "stages": digest_of(files_of(sources, ("overlay",))),
    }
    layer = next(layer.name for layer in layers if wheel in layer.packages)
    return Overlay(name, layer, wheel, patched, Keyed(inputs))


def _in_order(components: Mapping[str, Component]) -> list[str]:
    """Components with a stage of their own, as the recipe lists them, but each after what it is built from."""
    waiting = {name: c for name, c in components.items() if c.is_built or c.is_source_only}
    done: list[str] = []
    while waiting:
        # The recipe was checked for cycles.
        name = next(n for n, c in waiting.items() if not c.built_from & waiting.keys())
        done.append(name)
        del waiting[name]
    return done


def _overlaid(recipe: Recipe, lock: Lock, arch: Arch) -> list[tuple[str, PackagePin, PatchedComponent]]:
    wheels = {p.name: p for p in lock.image_packages(arch.name)}
    return [
        (name, wheels[c.distribution], patched)
        for name, c in recipe.components_on(arch.name).items()
        if not c.is_built and (patched := lock.patched(name, arch.name)) is not None
    ]


def _check_versions(recipe: Recipe, lock: Lock, arch: Arch) -> None:
    locked = {p.name: p.version for p in lock.image_packages(arch.name)}
    locked |= _built_versions(recipe, lock)
    for name, component in recipe.components_on(arch.name).items():
        if component.is_source_only:
            continue
        found = locked.get(component.distribution)
        if found != component.version:
            raise BadInput(
                f"component {name} is {component.version} in the recipe and {found or 'absent'} in the lock",
                cure=f"make lock RECIPE={recipe.recipe}",
            )


def _built_versions(recipe: Recipe, lock: Lock) -> dict[str, str]:
    """Distribution -> version of what is built here."""
    pins = ((recipe.components[name], pin) for name, pin in lock.sources.items() if name in recipe.components)
    return {pin.name: pin.version for component, pin in pins if component.distribution}


def _check_toolkit(project: Project, recipe: Recipe, lock: Lock) -> None:
    """nvcc refuses headers of another minor version: all parts are of the recipe's CUDA."""
    parts = {*project.toolkit, "nvidia-cuda-runtime"}
    for package in lock.packages:
        if package.name not in parts:
            continue
        version = Version(package.version)
        if f"{version.major}.{version.minor}" != recipe.cuda:
            raise BadInput(
                f"{package.name} {package.version} is not of CUDA {recipe.cuda}: nvcc and the headers would not fit",
                cure="constrain it in the recipe, then run: make lock",
            )


def _check_flashinfer(recipe: Recipe, lock: Lock, arch: Arch) -> None:
    """FlashInfer refuses prebuilt kernels of another version when it is imported."""
    versions = {p.name: p.version.partition("+")[0] for p in lock.image_packages(arch.name)}
    versions |= _built_versions(recipe, lock)
    wanted = versions.get("flashinfer-python")
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        if wanted is not None and versions.get(name, wanted) != wanted:
            raise BadInput(
                f"{name} {versions[name]} does not belong to flashinfer-python {wanted}",
                cure="give both the same version in the recipe, then run: make lock",
            )


def _check_tags(plan: Plan) -> None:
    for reference in (plan.tag, *plan.channels):
        check_tag(reference, CHANNELS)
