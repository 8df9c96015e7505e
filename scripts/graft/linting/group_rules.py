"""Rules about versions that belong together, and about what the locked wheels ask for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graft.linting.closure import Mismatch
from graft.linting.facts import RecipeFacts
from graft.linting.model import Hit, recipe_rule
from graft.recipe import Recipe

FLASHINFER = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
CUTLASS_DSL = "nvidia-cutlass-dsl"
CUDA_RUNTIME = "nvidia-cuda-runtime"
#: torchvision 0.28 is torch 2.13's, 0.27 is 2.12's: since 0.15 for 2.0, one for each minor.
TORCHVISION_AHEAD = 15


def _locked(facts: RecipeFacts) -> dict[str, str]:
    """distribution -> version of everything in the image."""
    if facts.lock is None:
        return {}
    found = {pin.name: pin.version for pin in facts.lock.packages if pin.use == "image"}
    return found | {pin.name: pin.version for pin in facts.lock.sources.values()}


@recipe_rule(
    "group-torch",
    "error",
    why="torchvision and torchaudio are compiled against one torch: with another one they import and fail in an "
    "operator, "
    "or crash.",
    example="torch 2.13.0 with torchvision 0.27.0",
    cure="take the versions that were released together (torch 2.13 and torchvision 0.28), with the same +cu",
    about="the distribution",
)
def group_torch(facts: RecipeFacts) -> Iterable[Hit]:
    """torch, torchvision and torchaudio are not of one release, or not built for one CUDA."""
    locked = _locked(facts)
    if "torch" not in locked:
        return
    torch = Version(locked["torch"])
    vision = Version(locked["torchvision"]) if "torchvision" in locked else None
    if vision is not None and torch.major == 2 and (vision.major, vision.minor) != (0, torch.minor + TORCHVISION_AHEAD):
        message = f"torchvision {vision} is not of torch {torch}, which has 0.{torch.minor + TORCHVISION_AHEAD}"
        yield Hit(message, facts.where_of("torchvision"), about="torchvision")
    audio = Version(locked["torchaudio"]) if "torchaudio" in locked else None
    if audio is not None and (audio.major, audio.minor) > (torch.major, torch.minor):
        message = f"torchaudio {audio} is of a newer torch than {torch}"
        yield Hit(message, facts.where_of("torchaudio"), about="torchaudio")
    for name in ("torchvision", "torchaudio"):
        if name in locked and (Version(locked[name]).local or "") != (torch.local or ""):
            yield Hit(
                f"{name} {locked[name]} and torch {torch} are built for different CUDAs",
                facts.where_of(name),
                about=name,
            )
    cuda = facts.recipe.cuda if facts.recipe is not None else ""
    if torch.local is not None and torch.local.startswith("cu") and torch.local != "cu" + cuda.replace(".", ""):
        yield Hit(f"torch {torch} is not built for CUDA {cuda}", facts.where_of("torch"), about="torch")


@recipe_rule(
    "group-flashinfer",
    "error",
    why="flashinfer refuses prebuilt kernels of another version when it is imported.",
    example="flashinfer-python 0.7.0.post1 with flashinfer-cubin 0.6.1",
    cure="give all of them the same version in the recipe, then run make lock",
    about="the distribution",
)
def group_flashinfer(facts: RecipeFacts) -> Iterable[Hit]:
    """flashinfer-python, flashinfer-cubin and flashinfer-jit-cache are not of one version."""
    locked = {name: version.partition("+")[0] for name, version in _locked(facts).items() if name in FLASHINFER}
    wanted = locked.get(FLASHINFER[0])
    for name, version in locked.items():
        if wanted is not None and version != wanted:
            message = f"{name} {version} does not belong to {FLASHINFER[0]} {wanted}"
            yield Hit(message, facts.where_of(name), about=name)


@recipe_rule(
    "group-toolkit",
    "error",
    why='nvcc refuses headers of another minor version ("CUDA compiler and CUDA toolkit headers are '
    'incompatible"), and '
    "ptxas, nvvm and nvjitlink read each other's intermediate code.",
    example='cuda: "13.0" with nvidia-cuda-nvcc 13.5.37',
    cure="constrain it in the recipe, or take it up in build.yaml's toolkit, then run make lock",
    about="the distribution",
)
def group_toolkit(facts: RecipeFacts) -> Iterable[Hit]:
    """A part of the CUDA toolkit, or the runtime with its headers, is not of the recipe's CUDA version."""
    if facts.recipe is None or facts.lock is None:
        return
    parts = {*facts.around.project.toolkit, CUDA_RUNTIME}
    for pin in facts.lock.packages:
        if pin.name in parts:
            version = Version(pin.version)
            if f"{version.major}.{version.minor}" != facts.recipe.cuda:
                message = f"{pin.name} {pin.version} is not of CUDA {facts.recipe.cuda}"
                yield Hit(message, facts.where_of(pin.name), about=pin.name)


@recipe_rule(
    "group-cutlass-dsl",
    "error",
    why="The CuTe DSL loads its compiler from the libs wheels and does not look at their version.",
    example="nvidia-cutlass-dsl 4.8.0 with nvidia-cutlass-dsl-libs-cu13 4.5.2",
    cure="constrain the libs to the version of nvidia-cutlass-dsl, then run make lock",
    about="the distribution",
)
def group_cutlass_dsl(facts: RecipeFacts) -> Iterable[Hit]:
    """nvidia-cutlass-dsl and its libs wheels are not of one version."""
    locked = _locked(facts)
    wanted = locked.get(CUTLASS_DSL)
    for name, version in locked.items():
        if wanted is not None and name.startswith(f"{CUTLASS_DSL}-libs") and version != wanted:
            yield Hit(f"{name} {version} does not belong to {CUTLASS_DSL} {wanted}", facts.where_of(name), about=name)


def _unread(facts: RecipeFacts, what: str) -> Iterator[Hit]:
    """The word that not everything could be looked at; nothing passes silently."""
    unread = facts.closure.unread if facts.closure is not None else ()
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        yield Hit(
            f"{what}: not checked for {unread[0]}{more}, which {'are' if more else 'is'} not at hand",
            f"{facts.around.paths.lock(facts.name)}",
            f"make fetch RECIPE={facts.name} (for each ARCH of the recipe)",
            level="note",
            unchecked=True,
        )


def _is_declared(recipe: Recipe, mismatch: Mismatch) -> bool:
    """An override of the component that asks, or a constraint on what it asks for, whose bound holds."""
    for component in recipe.components.values():
        overridden = recipe.components.get(component.overrides or "")
        if component.distribution != mismatch.wanted or overridden is None:
            continue
        if overridden.distribution == canonicalize_name(mismatch.package):
            return component.version == mismatch.found
    for constraint in recipe.constraints:
        bound = Requirement(constraint.require)
        if canonicalize_name(bound.name) == mismatch.wanted and mismatch.found is not None:
            return bound.specifier.contains(mismatch.found, prereleases=True)
    return False


@recipe_rule(
    "requires-mismatch",
    "error",
    why="vLLM names the torch, FlashInfer and CUTLASS DSL that it was built and tested with, and torch its NCCL. "
    "With another "
    "one an image may import and compute wrongly; if that is wanted, the recipe says so.",
    example="torch 2.13.0 asks for nvidia-nccl-cu13==2.29.7, the lock installs 2.30.4, and nothing declares it",
    cure="take the version that is asked for; or declare the difference: `overrides: <component>` at the "
    "component that "
    "replaces it, or a constraint with its reason",
    about="the distribution that is asked for",
)
def requires_mismatch(facts: RecipeFacts) -> Iterable[Hit]:
    """A locked wheel asks for another version than the lock installs, or for something that it does not install."""
    yield from _unread(facts, "what locked wheels ask for")
    if facts.recipe is None or facts.closure is None:
        return
    for found in facts.closure.mismatches:
        if not _is_declared(facts.recipe, found):
            has = f"the lock installs {found.found}" if found.found is not None else "the lock does not install it"
            yield Hit(
                f"{found.package} asks for {found.requires}; {has}", facts.where_of(found.wanted), about=found.wanted
            )


@recipe_rule(
    "overrides-unneeded",
    "warning",
    why="An override that nothing needs any more hides the next real difference.",
    example="nccl overrides torch with 2.29.7, which is what torch asks for",
    cure="remove overrides from the component, or the component",
    about="the distribution",
)
def overrides_unneeded(facts: RecipeFacts) -> Iterable[Hit]:
    """A component overrides another's copy, and is what that one asks for anyway."""
    if facts.recipe is None or facts.closure is None or facts.closure.unread:
        return
    for name, component in facts.recipe.components.items():
        overridden = facts.recipe.components.get(component.overrides or "")
        if overridden is None:
            continue
        needed = any(
            found.wanted == component.distribution and canonicalize_name(found.package) == overridden.distribution
            for found in facts.closure.mismatches
        )
        if not needed:
            message = f"{component.distribution} {component.version} is what {overridden.distribution} asks for anyway"
            yield Hit(message, facts.where("components", name, "overrides"), about=component.distribution)


@recipe_rule(
    "files-conflict",
    "error",
    why="Which of the two is there depends on the order in which an installer, working in parallel, reaches "
    "them; the other "
    "package is then corrupt and imports. (Real cases: the libs wheels of nvidia-cutlass-dsl, cuda-python 12 "
    "over cuda-bindings 13.)",
    example="nvidia-cutlass-dsl-libs-base and -libs-cu13 4.5.2 both write the same files of nvidia_cutlass_dsl",
    cure="constrain one of them away; or say whose file may be lost, with a waiver that the gate holds the image to: "
    "{check: files, file: <the file>, package: <the one that loses>, reason: ..., until: ...}",
)
def files_conflict(facts: RecipeFacts) -> Iterable[Hit]:
    """Two locked wheels write the same file with different bytes, and the recipe does not say which of them loses."""
    yield from _unread(facts, "files that two wheels write")
    if facts.recipe is None or facts.closure is None:
        return
    losers = [w for w in facts.recipe.waivers if w.check == "files" and w.package is not None]
    undecided: dict[tuple[str, ...], list[str]] = {}
    for conflict in facts.closure.conflicts:
        names = {name for name, _ in conflict.owners}
        lost = {str(w.package) for w in losers if fnmatchcase(conflict.file, w.file)} & names
        if len({digest for name, digest in conflict.owners if name not in lost}) != 1:
            undecided.setdefault(tuple(sorted(names)), []).append(conflict.file)
    for owners, files in undecided.items():
        yield Hit(f"{' and '.join(owners)} both write {_some(files)}, with different bytes", facts.where_of(owners[0]))


def _some(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files"
