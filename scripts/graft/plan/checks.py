"""Versions in a lock that belong together and do not agree."""

from __future__ import annotations

from packaging.version import Version

from graft.arch import Arch
from graft.errors import BadInput
from graft.lock import Lock
from graft.project import Project
from graft.recipe import Recipe


def check_versions(recipe: Recipe, lock: Lock, arch: Arch) -> None:
    """The lock has the versions that the recipe names. Raises BadInput."""
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


def check_toolkit(project: Project, recipe: Recipe, lock: Lock) -> None:
    """nvcc refuses headers of another minor version: all parts are of the recipe's CUDA. Raises BadInput."""
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


def check_flashinfer(recipe: Recipe, lock: Lock, arch: Arch) -> None:
    """FlashInfer refuses prebuilt kernels of another version when it is imported. Raises BadInput."""
    versions = {p.name: p.version.partition("+")[0] for p in lock.image_packages(arch.name)}
    versions |= _built_versions(recipe, lock)
    wanted = versions.get("flashinfer-python")
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        if wanted is not None and versions.get(name, wanted) != wanted:
            raise BadInput(
                f"{name} {versions[name]} does not belong to flashinfer-python {wanted}",
                cure="give both the same version in the recipe, then run: make lock",
            )
