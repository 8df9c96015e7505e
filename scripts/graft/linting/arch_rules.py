"""Rules about architectures: how they are written, and that they stand in build.yaml alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from graft.arch import NAME
from graft.linting import arch_text
from graft.linting.facts import ProjectFacts, RecipeFacts, listed, mapped, written
from graft.linting.model import Hit, project_rule, recipe_rule
from graft.yamlio import Position

#: Distributions whose kernels for 9.0 and newer need the suffix `a`: nvcc has wgmma and tcgen05 only with it.
NEED_SUFFIX = frozenset({"b12x", "deep-gemm", "flash-attn-3", "flash-mla", "flashinfer-python", "vllm"})
FIRST_WITH_SUFFIX = Version("9.0")


def _names(facts: RecipeFacts) -> Iterator[tuple[Position, object]]:
    """Everything that stands where the name of an architecture is expected."""
    for index, value in enumerate(listed(facts.raw.get("arches"))):
        yield ("arches", index), value
    for name, component in mapped(facts.raw.get("components")).items():
        for value in listed(mapped(component).get("arches")):
            yield ("components", name, "arches"), value
    for index, waiver in enumerate(listed(facts.raw.get("waivers"))):
        if mapped(waiver).get("arch") is not None:
            yield ("waivers", index, "arch"), mapped(waiver)["arch"]


def _cuda(facts: RecipeFacts) -> Version | None:
    try:
        return Version(written(facts.raw.get("cuda")))
    except InvalidVersion:
        return None


@recipe_rule(
    "arch-grammar",
    "error",
    why="torch, CMake, nvcc and the CuTe DSL each spell the same architecture differently, and a build that gets the "
    "wrong spelling often builds for something else without a word. A recipe names it once; Graft derives the rest.",
    example='arches: ["9.0a", sm_100, 120+PTX]',
    cure="write the name as build.yaml has it: sm90",
)
def arch_grammar(facts: RecipeFacts) -> Iterable[Hit]:
    """An architecture is written as a tool spells it (`9.0a`, `90a`, `sm_90a`, `+PTX`, `-real`), not as `sm90`."""
    table = facts.around.project.arches
    for position, value in _names(facts):
        text = written(value)
        found = arch_text.spelling(text)
        if (
            found is None
            or found.capability == arch_text.THOR_BEFORE
            or (isinstance(value, str) and NAME.fullmatch(text))
        ):
            continue
        number = "a number to YAML, and " if not isinstance(value, str) else ""
        dropped = " (the suffix comes from build.yaml)" if found.suffix else ""
        dropped += (
            f" ({found.extra} cannot be asked for: an image holds code for its own architecture)" if found.extra else ""
        )
        message = f"{text} is {number}a tool's spelling of an architecture{dropped}"
        yield Hit(message, facts.where(*position), arch_text.instead(found, table), about=text)


@recipe_rule(
    "arch-unknown",
    "error",
    why="The table in build.yaml is the only place where architectures are defined.",
    example="arches: [sm91]",
    cure="choose an architecture of build.yaml, or add its row there",
)
def arch_unknown(facts: RecipeFacts) -> Iterable[Hit]:
    """An architecture that build.yaml does not know."""
    table = facts.around.project.arches
    for position, value in _names(facts):
        text = written(value)
        found = arch_text.spelling(text)
        if text in table or (
            found is not None and (not NAME.fullmatch(text) or found.capability == arch_text.THOR_BEFORE)
        ):
            continue
        close = difflib.get_close_matches(text, table, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        yield Hit(
            f"build.yaml knows no architecture {text!r}",
            facts.where(*position),
            f"{hint}known: {', '.join(table)}",
            about=text,
        )


@recipe_rule(
    "arch-renamed",
    "error",
    why="Jetson Thor is 10.1 (sm_101) to nvcc before CUDA 13.0 and 11.0 (sm_110) since. Each compiler refuses "
    "the other's "
    "name, and 10.1 in a list for CUDA 13 is silently skipped by some builds.",
    example='cuda: "13.0"\narches: [sm101]',
    cure="write sm110 and give the recipe CUDA 13.0 or newer",
)
def arch_renamed(facts: RecipeFacts) -> Iterable[Hit]:
    """10.1 or 11.0 does not fit the CUDA version: the same chip has both numbers."""
    cuda, table = _cuda(facts), facts.around.project.arches
    is_new = cuda is not None and cuda >= Version(arch_text.THOR_CUDA)
    for position, value in _names(facts):
        text = written(value)
        found = arch_text.spelling(text)
        if found is not None and found.capability == arch_text.THOR_BEFORE and (is_new or text not in table):
            yield Hit(
                f"{text}: CUDA {arch_text.THOR_CUDA} and newer call this chip {arch_text.THOR}",
                facts.where(*position),
                "write sm110" if is_new else f"write sm110, and raise cuda to {arch_text.THOR_CUDA}",
                about=text,
            )
    for name in listed(facts.raw.get("arches")):
        row = table.get(written(name))
        if row is not None and row.capability == arch_text.THOR and Version(row.cuda) < Version(arch_text.THOR_CUDA):
            yield Hit(
                f"{name}: nvcc before CUDA {arch_text.THOR_CUDA} knows this chip as sm_101 only",
                facts.around.build.where(("arches", written(name), "cuda")),
                f'in build.yaml: cuda: "{arch_text.THOR_CUDA}"',
                about=written(name),
            )


@recipe_rule(
    "arch-cuda",
    "error",
    why="nvcc of an older toolkit does not know the architecture, and the build stops after everything was downloaded.",
    example='cuda: "12.8"\narches: [sm110]',
    cure="raise cuda in the recipe, or take the architecture out",
)
def arch_cuda(facts: RecipeFacts) -> Iterable[Hit]:
    """An architecture that is newer than the nvcc of the recipe's CUDA."""
    cuda, table = _cuda(facts), facts.around.project.arches
    for index, value in enumerate(listed(facts.raw.get("arches"))):
        row = table.get(written(value))
        if row is not None and cuda is not None and cuda < Version(row.cuda):
            message = f"{value} needs CUDA {row.cuda} or newer, the recipe has {facts.raw.get('cuda')}"
            yield Hit(message, facts.where("arches", index), about=str(value))


@recipe_rule(
    "arch-suffix",
    "error",
    why="Without the suffix `a` nvcc compiles no wgmma (9.0) and no tcgen05 (10.0 and newer): kernels of vLLM "
    "and FlashInfer "
    "are left out or fail to compile, and an image is made that cannot serve.",
    example='in build.yaml: sm90: {capability: "9.0", cuda: "12.0", devices: [H100]}',
    cure="add suffix: a to the architecture's row in build.yaml",
    about="the architecture, as `sm90`",
)
def arch_suffix(facts: RecipeFacts) -> Iterable[Hit]:
    """An architecture of 9.0 or newer without the suffix `a`, in a recipe with components that need it."""
    if facts.recipe is None:
        return
    for name in facts.recipe.arches:
        row = facts.around.project.arches.get(name)
        if row is None or row.suffix is not None or Version(row.capability) < FIRST_WITH_SUFFIX:
            continue
        needing = [n for n, c in facts.recipe.components_on(name).items() if c.distribution in NEED_SUFFIX]
        if needing:
            message = f"{name} has no suffix a, which {', '.join(needing)} need{'s' if len(needing) == 1 else ''}"
            yield Hit(message, facts.around.build.where(("arches", name)), about=name)


@recipe_rule(
    "arch-both-forms",
    "error",
    why="A list that holds both 10.0 and 10.0a can lose the plain one in a component's CMake, and which one is lost "
    "depends on the order.",
    example='env: {MY_ARCHES: "10.0;10.0a"}',
    cure="name the architecture once, in the recipe's arches",
)
def arch_both_forms(facts: RecipeFacts) -> Iterable[Hit]:
    """One list names an architecture both with and without its suffix."""
    texts = [written(value) for value in listed(facts.raw.get("arches"))]
    found = [arch_text.spelling(text) for text in texts if not NAME.fullmatch(text)]
    for capability in arch_text.both_forms(one for one in found if one is not None):
        yield Hit(f"arches: {capability} is named with and without a suffix", facts.where("arches"))
    for key, value in mapped(facts.raw.get("env")).items():
        for capability in arch_text.both_forms(arch_text.spellings(written(value))):
            yield Hit(f"{key}: {capability} is named with and without a suffix", facts.where("env", key))


@recipe_rule(
    "arch-env",
    "error",
    why="One image is made for each architecture of the recipe. A list in env is the same for all of them, so it "
    "is wrong in "
    "every image but one.",
    example='env: {TORCH_CUDA_ARCH_LIST: "9.0a"}',
    cure="remove it: Graft sets it in each image from build.yaml",
)
def arch_env(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe's env sets a variable that names architectures."""
    for key, value in mapped(facts.raw.get("env")).items():
        if key in arch_text.VARIABLES or arch_text.literal(written(value)) is not None:
            yield Hit(f"env sets {key} to {written(value)!r}", facts.where("env", key), about=key)


@recipe_rule(
    "arch-inherited",
    "error",
    why="What a base was built for is rarely what the recipe is made for; a build that finds the base's list "
    "compiles for "
    "the base's architectures.",
    example='bases: {ngc: {env: {CUDAARCHS: "80;90"}}}',
    cure="add it to the recipe's drop_env",
)
def arch_inherited(facts: RecipeFacts) -> Iterable[Hit]:
    """The base's environment names architectures, and the recipe does not drop it."""
    base = facts.raw.get("base")
    dropped = {written(key) for key in listed(facts.raw.get("drop_env"))}
    # These two are set in every image, whatever the base says.
    ours = {"TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST"}
    for key, value in mapped(facts.around.base_of(base).get("env")).items():
        names = key in arch_text.VARIABLES or arch_text.literal(written(value)) is not None
        if names and key not in dropped | ours:
            yield Hit(
                f"base {base} sets {key} to {written(value)!r}",
                facts.where("base"),
                f"drop_env: [{key}]",
                about=key,
            )


@project_rule(
    "arch-literal",
    "error",
    why="An architecture that stands in a template or a script is built for every recipe, whatever it asks for, and is "
    "forgotten when the next architecture comes.",
    example="images/scripts/build.sh: export TORCH_CUDA_ARCH_LIST=9.0a",
    cure="take it from the environment that Graft sets: TORCH_CUDA_ARCH_LIST, CMAKE_CUDA_ARCHITECTURES, "
    "NVCC_GENCODE, ...",
)
def arch_literal(facts: ProjectFacts) -> Iterable[Hit]:
    """A template, script or Makefile names architectures itself."""
    for file, text in sorted(facts.texts.items()):
        for number, line in enumerate(text.splitlines(), 1):
            code = line.partition("#")[0] if not file.endswith(".j2") else line
            found = arch_text.literal(code)
            if found is not None:
                yield Hit(f"names an architecture: {found}", f"{facts.paths.root / file}:{number}")
