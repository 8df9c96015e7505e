"""Where things lie in an image, and what its environment says of that."""

from __future__ import annotations

from collections.abc import Mapping

from graft.arch import Arch
from graft.errors import BadInput
from graft.project import Base, Project
from graft.recipe import Recipe

VENV = "/opt/venv"


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
