"""The files that make an image, below images/, and the stages that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graft.kinds import kind_of
from graft.recipe import Component

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


def image_files(sources: ImageSources, stages: Sequence[str]) -> dict[str, str]:
    """The files that make these stages and the Dockerfile, by their names below images/."""
    hashes = {
        **sources.templates,
        **{f"scripts/{name}": digest for name, digest in sources.scripts.items()},
        **{f"smoke/{name}": digest for name, digest in sources.smoke.items()},
    }
    names = {"Dockerfile.j2", *files_of(sources, stages)}
    places = {place for name in names for place in (name, f"scripts/{name}", f"smoke/{name}")}
    return {place: hashes[place] for place in sorted(places) if place in hashes}


def own_stages(component: Component) -> tuple[str, ...]:
    """The stages of a component alone, in order."""
    source = "source" if component.kind == "sdist" else "source-tree"
    return (source,) if component.build is None else (source, f"build-{kind_of(component.build).stage}", "built")


def stages_of_build(component: Component) -> tuple[str, ...]:
    """All stages that a component is built with."""
    return ("base", "foundation", "builder", *own_stages(component))
