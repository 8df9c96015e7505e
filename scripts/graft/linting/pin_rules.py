"""Rules about what a pin must say, so that the same bytes come next year; and about the index that serves them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graft.linting.arch_text import VARIABLES
from graft.linting.facts import RecipeFacts, listed, mapped, written
from graft.linting.model import Hit, Level, recipe_rule
from graft.pins import inputs_of_recipe
from graft.recipe import Recipe
from graft.wheel_tags import fits
from graft.yamlio import Position

COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Kind of source, the key that pins it by content, and that key's form.
SOURCES = (("git", "commit", COMMIT), ("archive", "sha256", SHA256), ("image", "digest", DIGEST))
#: What every image sets, whatever its base does.
GRAFTS_OWN = (
    "PATH",
    "CUDA_HOME",
    "LANG",
    "VIRTUAL_ENV",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "TORCH_CUDA_ARCH_LIST",
    "FLASHINFER_CUDA_ARCH_LIST",
)
#: An exact version has none of these (PEP 440: operators, wildcards) and is no word.
FLOATING = re.compile(r"[<>=!~*^ ]|^(?:latest|nightly|main|master|dev|stable)$")


def _floating(facts: RecipeFacts) -> Iterator[tuple[Position, str]]:
    """(where, what is missing) of every source that is not exact, whatever else is wrong with the recipe."""
    for name, component in mapped(facts.raw.get("components")).items():
        for key, said in _floats(mapped(component)):
            yield ("components", name, *key), f"{name}: {said}"
    base = facts.raw.get("base")
    for _, said in _floats(facts.around.base_of(base)):
        yield ("base",), f"base: {base} of build.yaml: {said}"


def _floats(item: Mapping[str, Any]) -> Iterator[tuple[Position, str]]:
    """What one component, or one base, does not pin. A source is an address or a mapping with one."""
    version = item.get("version")
    if isinstance(version, str) and FLOATING.search(version):
        yield ("version",), f"{version!r} is no exact version"
    for kind, key, exact in SOURCES:
        source = item.get(kind)
        if source is None:
            continue
        inside = source if isinstance(source, dict) else item
        inline = written(source).partition("@")[2] if kind == "image" else ""
        if not exact.fullmatch(written(inside.get(key))) and not exact.fullmatch(inline):
            ref = next((f" (only {k} {written(inside[k])!r})" for k in ("ref", "tag", "branch") if k in inside), "")
            yield (kind,), f"{kind} without {key}{ref}"
    git = mapped(item.get("git"))
    for index, pull in enumerate(listed(git.get("pulls"))):
        if not COMMIT.fullmatch(written(mapped(pull).get("head"))):
            number = mapped(pull).get("number")
            yield ("git", "pulls", index), f"pull {number} without head" if number else "a head that nobody named"
    for index, lost in enumerate(listed(git.get("lost"))):
        yield ("git", "lost", index), f"patch {mapped(lost).get('patch')} can be fetched by nobody"


@recipe_rule(
    "pin-floating",
    "error",
    why="A tag, a branch, a range or an address can mean other bytes tomorrow: the image could not be made again, and "
    "nobody would see why it changed.",
    example='vllm: {git: "https://git.invalid/vllm.git", ref: main}',
    cure="name the commit (40 digits), the sha256 or the digest; or mark the recipe unlocked: true, which builds "
    "only with "
    "--unlocked and says so in the image",
)
def pin_floating(facts: RecipeFacts) -> Iterable[Hit]:
    """A source is named by something that moves. In a recipe marked `unlocked: true` this is a warning."""
    if facts.recipe is not None and facts.recipe.unlocked:
        yield from _unlocked(facts, facts.recipe)
        return
    level: Level | None = "warning" if facts.raw.get("unlocked") is True else None
    for position, said in _floating(facts):
        yield Hit(said, facts.where(*position), level=level, about=said.partition(":")[0])


def _unlocked(facts: RecipeFacts, recipe: Recipe) -> Iterator[Hit]:
    """Each input that is not pinned by content, on any architecture, as a plan without a lock lists them."""
    project = facts.around.project
    inputs = {item for arch in recipe.arches for item in inputs_of_recipe(project, recipe, arch)}
    cure = "pin it by content; when all are pinned: take out unlocked: true, then make lock"
    for item in sorted(inputs, key=lambda item: item.name):
        if item.state != "pinned":
            message = f"{item.name} is {item.state}: {item.why}"
            yield Hit(message, facts.where(*item.position), cure, level="warning", about=item.name)


@recipe_rule(
    "index-unnamed",
    "error",
    why="With several indexes, which one serves a package is decided by whoever answers first with the higher version: "
    "anyone who can publish that name on one of them is in the image (dependency confusion).",
    example='build.yaml: indexes: {cuda132: ...}\nrecipe: torch: {wheel: torch, version: "2.12.0+cu132"}',
    cure="name the package's index: torch: {wheel: torch, version: ..., index: cuda132}",
    about="the component",
)
def index_unnamed(facts: RecipeFacts) -> Iterable[Hit]:
    """A component could come from several indexes and names none, or names one that build.yaml does not have."""
    named = mapped(facts.around.build.data.get("indexes"))
    for name, component in mapped(facts.raw.get("components")).items():
        item = mapped(component)
        chosen = item.get("index")
        if chosen is not None and written(chosen) not in named:
            known = ", ".join(named) or "none"
            message = f"{name}: build.yaml has no index {written(chosen)!r}"
            yield Hit(message, facts.where("components", name, "index"), f"there is: {known}", about=name)
        elif chosen is None and named and "+" in written(item.get("version")) and ("wheel" in item or "sdist" in item):
            message = f"{name}: version {written(item['version'])} is of one index, and {1 + len(named)} could serve it"
            yield Hit(message, facts.where("components", name, "version"), about=name)


@recipe_rule(
    "index-local-version",
    "warning",
    why="A local version (+cu132) exists only where its maker publishes it. An index that serves the public "
    "version instead "
    "gives a build for another CUDA.",
    example='torch: {wheel: torch, version: "2.12.0+cu132"}, locked as torch-2.12.0-cp311-...whl',
    cure="name the index that serves it, then make lock",
    about="the distribution",
)
def index_local_version(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe asks for a local version and the locked file does not have it in its name."""
    if facts.recipe is None or facts.lock is None:
        return
    locked = {pin.name: pin.file for pin in [*facts.lock.packages, *facts.lock.sources.values()]}
    for name, component in facts.recipe.components.items():
        local = component.version.partition("+")[2]
        file = locked.get(component.distribution)
        if (
            local
            and component.kind in ("wheel", "sdist")
            and file is not None
            and f"+{local}-" not in file
            and f"+{local}.tar" not in file
        ):
            message = f"{component.distribution} {component.version} is locked as {file}, without +{local}"
            yield Hit(message, facts.where("components", name, "version"), about=component.distribution)


@recipe_rule(
    "wheel-tags",
    "error",
    why="A wheel for another Python, platform or newer glibc does not install, or installs and does not load.",
    example="x-1.0-cp312-cp312-manylinux_2_39_x86_64.whl on a base with Python 3.11 and glibc 2.36",
    cure="make lock, after choosing a version that has a wheel for the base",
    about="the distribution",
)
def wheel_tags(facts: RecipeFacts) -> Iterable[Hit]:
    """A locked wheel does not fit the base's Python, platform or glibc: by its name, or by what it asks for itself."""
    if facts.recipe is None or facts.lock is None:
        return
    base = facts.around.project.bases[facts.recipe.base]
    for pin in facts.lock.packages:
        if not fits(base, pin.file):
            message = f"{pin.file} does not fit Python {base.python} on {base.platform}"
            yield Hit(message, facts.where_of(pin.name), about=pin.name)
    for name, asked in facts.closure.pythons if facts.closure is not None else ():
        yield Hit(f"{name} asks for Python {asked}, the base has {base.python}", facts.where_of(name), about=name)


@recipe_rule(
    "pin-yanked",
    "error",
    why="A maker takes a release back when it is broken or holds something dangerous; resolvers leave it out, but a "
    "pin by exact version still gets it.",
    example="foo 1.2 (yanked: wrong wheel for Linux) in the lock",
    cure="choose another version, then make lock; or waive it with the reason why this one is right",
    about="the distribution",
)
def pin_yanked(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock holds a file that its maker had taken back (yanked) when the lock was made."""
    if facts.lock is None:
        return
    for pin in [*facts.lock.packages, *facts.lock.sources.values()]:
        if pin.yanked is not None:
            message = f"{pin.name} {pin.version} was yanked: {pin.yanked or 'its maker gives no reason'}"
            yield Hit(message, facts.where_of(pin.name), about=pin.name)


@recipe_rule(
    "env-inherited",
    "error",
    why="What a base sets works on in every image made from it: NCCL_GRAPH_FILE of somebody else's machine, or a "
    "path that "
    "is not there. It must be seen by who writes the recipe.",
    example="bases: {ngc: {env: {NCCL_GRAPH_FILE: /etc/graph.xml}}}, and a recipe that does not name it",
    cure="list it in the recipe's drop_env or keep_env, or set it in env",
)
def env_inherited(facts: RecipeFacts) -> Iterable[Hit]:
    """The base sets a variable that the recipe neither keeps, drops nor sets anew."""
    base = facts.raw.get("base")
    env, drops, keeps = (facts.raw.get(key) for key in ("env", "drop_env", "keep_env"))
    decided = {*mapped(env), *map(written, (*listed(drops), *listed(keeps))), *GRAFTS_OWN, *VARIABLES}
    for key, value in mapped(facts.around.base_of(base).get("env")).items():
        if key not in decided:
            yield Hit(
                f"base {base} sets {key} to {written(value)!r}, and the recipe does not say if it stays",
                facts.where("base"),
                f"drop_env: [{key}] drops it, keep_env: [{key}] keeps it, env sets it anew",
                about=key,
            )
