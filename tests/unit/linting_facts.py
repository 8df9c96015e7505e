"""Facts for the rules, made of the toy project without a disk; and for each rule one that fails and one that passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from factories import PROJECT, RECIPE, Edit, edited, make_lock, package

from graft.errors import BadInput, GraftError, LockStale
from graft.linting import Closure, ProjectFacts, RecipeFacts
from graft.linting.closure import Conflict, Mismatch
from graft.linting.facts import RemoteRef
from graft.lock import load_lock, lock_text, plain, requirements_text
from graft.patchset import Ends, Patch, PatchRecord, PatchSet
from graft.paths import Paths
from graft.project import Project
from graft.recipe import recipe_of
from graft.yamlio import parse

ROOT = Path("/project")
LOSER = {
    "check": "files",
    "file": "cute/*.so",
    "package": "dsl-libs-base",
    "reason": "the libs of cu13 hold all of it",
    "until": "4.9",
}


def waiver(rule: str, file: str) -> dict[str, str]:
    return {"check": f"lint/{rule}", "file": file, "reason": "a reason", "until": "a day"}


def around(root: Path = ROOT, build: Edit | None = None, project: Edit | None = None, **more: Any) -> ProjectFacts:
    """build: an edit of build.yaml as it is written alone; project: one of the model too."""
    data = edited(PROJECT, *[project] if project else [])
    raw = edited(data, *[build] if build else [])
    paths = Paths(root)
    document = parse(yaml.safe_dump(raw, sort_keys=False).encode(), paths.build_yaml)
    return ProjectFacts(paths, Project.model_validate(data), document, **more)


def facts(
    *recipe: Edit, raw: bytes | None = None, lock: Edit | None = None, of: ProjectFacts | None = None, **more: Any
) -> RecipeFacts:
    """One recipe as `commands.lint` gathers it; lock, closure and refusals only where they are given."""
    shared = of or around()
    made = RecipeFacts(shared, "toy", **more)
    text = raw if raw is not None else yaml.safe_dump(edited(RECIPE, *recipe), sort_keys=False).encode()
    try:
        made = replace(made, data=parse(text, made.file))
        assert made.data is not None
        made = replace(made, recipe=recipe_of(made.data, shared.project, "toy"))
    except BadInput as problem:
        return replace(made, refused=problem)
    if lock is None:
        return made
    return replace(made, lock=make_lock(lock, project=shared.project, recipe=made.recipe))


def locked(**versions: str) -> Edit:
    """A lock with more packages, or other versions of those it has."""

    def edit(data: dict[str, Any]) -> None:
        for key, version in versions.items():
            name = key.replace("_", "-")
            if name not in {p["name"] for p in data["packages"]}:
                data["packages"].append({**package(data, "torch"), "name": name})
            package(data, name).update(version=version, file=f"{key}-{version}-py3-none-any.whl")

    return edit


def sound(data: Mapping[str, Any]) -> None:
    """No edit of the lock."""


def series(**ends: Any) -> dict[str, PatchSet]:
    record = PatchRecord.model_construct(id="defaults", **{"ends": None, "after": (), **ends})
    return {"vllm": PatchSet("vllm", ROOT, (Patch(record, b"", ROOT / "defaults.patch"),))}


def refused_lock(folder: Path, spoil: Callable[[Paths], None]) -> RecipeFacts:
    """Facts with what the loader of locks says of a lock that `spoil` changed on disk."""
    paths = Paths(folder)
    paths.locks.mkdir(parents=True)
    made = make_lock()
    paths.lock("toy").write_text(lock_text(plain(made)))
    paths.requirements("toy").write_text(requirements_text(made))
    spoil(paths)
    shared = around(folder)
    try:
        load_lock(paths, "toy")
    except GraftError as problem:
        return facts(of=shared, lock_refused=problem)
    return facts(of=shared)


def in_lock(old: str, new: str) -> Callable[[Paths], None]:
    def spoil(paths: Paths) -> None:
        text = paths.lock("toy").read_text()
        assert old in text
        paths.lock("toy").write_text(text.replace(old, new, 1))

    return spoil


Made = RecipeFacts | ProjectFacts | Callable[[Path], RecipeFacts | ProjectFacts]


@dataclass(frozen=True)
class Case:
    """fails and passes: facts that the rule has, and has not, a finding for; says: a part of its message."""

    fails: Made
    says: str
    passes: Made = field(default_factory=facts)


def component(name: str, **facts: object) -> Edit:
    return lambda recipe: recipe["components"][name].update(facts)


def base_env(**env: object) -> ProjectFacts:
    return around(build=lambda data: data["bases"]["debian12"].update(env=env))


NCCL = Mismatch("torch", "nvidia-nccl-cu13==2.29.7", "nvidia-nccl-cu13", "2.30.4")
TORCH = Mismatch("vllm", "torch==2.14.0", "torch", "2.13.0")
CONFLICT = Conflict("cute/ir.so", (("dsl-libs-base", "sha256=a"), ("dsl-libs-cu13", "sha256=b")))

CASES: dict[str, Case] = {
    "recipe-unreadable": Case(facts(raw=b"recipe: a\nrecipe: b\n"), "duplicate key 'recipe' (first on line 1)"),
    "recipe-number": Case(facts(lambda r: r.update(cuda=13.0)), 'YAML reads 13.0 as a number; quote it: "13.0"'),
    "recipe-schema": Case(facts(lambda r: r.update(archs=["sm90"])), "unknown key 'archs'; did you mean 'arches'?"),
    "recipe-smoke": Case(facts(), "there is no smoke test 'core'", facts(of=around(Path(__file__).parents[2]))),
    "plan-refused": Case(facts(plans_refused=(BadInput("'-x' is not a legal image tag"),)), "not a legal image tag"),
    "lock-missing": Case(
        lambda f: refused_lock(f, lambda p: p.lock("toy").unlink()),
        "has no lock",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "lock-stale": Case(
        lambda f: refused_lock(f, in_lock("lock: 2", "lock: 1")),
        "has format 1",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "lock-newer": Case(
        lambda f: refused_lock(f, in_lock("lock: 2", "lock: 99")),
        "has format 99",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "lock-other-recipe": Case(
        lambda f: refused_lock(f, in_lock("recipe: toy", "recipe: other")),
        "the lock of recipe 'other'",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "lock-edited": Case(
        lambda f: refused_lock(f, in_lock("version: 3.13.0", "version: 3.14.0")),
        "edited by hand",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "lock-invalid": Case(
        lambda f: refused_lock(f, in_lock("lock: 2", "<<<<<<< HEAD")),
        "not valid YAML",
        lambda f: refused_lock(f, lambda p: None),
    ),
    "patch-refused": Case(facts(patches_refused=(BadInput("there is no patch vllm/x"),)), "there is no patch vllm/x"),
    "patch-series": Case(around(refused=(BadInput("x.patch lies there"),)), "x.patch lies there", around()),
    "patch-ended": Case(
        facts(of=around(series=series(ends=Ends(version="0.32.0")))),
        "vllm/defaults has served: it ends with 0.32.0",
        facts(of=around(series=series(ends=Ends(version="0.33.0")))),
    ),
    "arch-grammar": Case(facts(lambda r: r.update(arches=["9.0a"])), "9.0a is a tool's spelling"),
    "arch-unknown": Case(facts(lambda r: r.update(arches=["sm91"])), "no architecture 'sm91'"),
    "arch-renamed": Case(
        facts(lambda r: r.update(arches=["sm101"])), "call this chip 11.0", facts(lambda r: r.update(arches=["sm110"]))
    ),
    "arch-cuda": Case(
        facts(lambda r: r.update(arches=["sm110"], cuda="12.9")), "sm110 needs CUDA 13.0 or newer, the recipe has 12.9"
    ),
    "arch-suffix": Case(
        facts(of=around(project=lambda p: p["arches"]["sm90"].update(suffix=None))),
        "sm90 has no suffix a, which flashinfer, vllm need",
    ),
    "arch-both-forms": Case(
        facts(lambda r: r["env"].update(MINE="10.0;10.0a")),
        "MINE: 10.0 is named with and without",
        facts(lambda r: r["env"].update(MINE="9.0a;10.0a")),
    ),
    "arch-env": Case(facts(lambda r: r["env"].update(CUDAARCHS="90")), "env sets CUDAARCHS to '90'"),
    "arch-inherited": Case(
        facts(of=base_env(CUDAARCHS="80;90")),
        "base debian12 sets CUDAARCHS",
        facts(lambda r: r.update(drop_env=["CUDAARCHS"]), of=base_env(CUDAARCHS="80;90")),
    ),
    "arch-literal": Case(
        around(texts={"images/scripts/x.sh": "a=1\nexport TORCH_CUDA_ARCH_LIST=9.0a\n"}),
        "names an architecture: TORCH_CUDA_ARCH_LIST=9.0a",
        around(texts={"images/scripts/x.sh": "# as 9.0a\necho $TORCH_CUDA_ARCH_LIST\n"}),
    ),
    "group-torch": Case(
        facts(lock=locked(torchvision="0.27.0")),
        "torchvision 0.27.0 is not of torch 2.13.0, which has 0.28",
        facts(lock=locked(torchvision="0.28.0")),
    ),
    "group-flashinfer": Case(
        facts(lock=locked(flashinfer_cubin="0.6.1")),
        "flashinfer-cubin 0.6.1 does not belong to flashinfer-python 0.7.0.post1",
        facts(lock=locked(flashinfer_cubin="0.7.0.post1")),
    ),
    "group-toolkit": Case(
        facts(lock=locked(nvidia_cuda_nvcc="13.5.37")),
        "nvidia-cuda-nvcc 13.5.37 is not of CUDA 13.0",
        facts(lock=sound),
    ),
    "group-cutlass-dsl": Case(
        facts(lock=locked(nvidia_cutlass_dsl="4.8.0", nvidia_cutlass_dsl_libs_cu13="4.5.2")),
        "nvidia-cutlass-dsl-libs-cu13 4.5.2 does not belong to nvidia-cutlass-dsl 4.8.0",
        facts(lock=locked(nvidia_cutlass_dsl="4.8.0", nvidia_cutlass_dsl_libs_cu13="4.8.0")),
    ),
    "requires-mismatch": Case(
        facts(closure=Closure(mismatches=(TORCH,))),
        "vllm asks for torch==2.14.0; the lock installs 2.13.0",
        facts(closure=Closure(mismatches=(NCCL,))),
    ),
    "overrides-unneeded": Case(
        facts(closure=Closure()),
        "nvidia-nccl-cu13 2.30.4 is what torch asks for anyway",
        facts(closure=Closure(mismatches=(NCCL,))),
    ),
    "files-conflict": Case(
        facts(closure=Closure(conflicts=(CONFLICT,))),
        "dsl-libs-base and dsl-libs-cu13 both write cute/ir.so, with different bytes",
        facts(lambda r: r.update(smoke=["files"], waivers=[LOSER]), closure=Closure(conflicts=(CONFLICT,))),
    ),
    "pin-floating": Case(facts(component("vllm", version=">=0.32")), "vllm: '>=0.32' is no exact version"),
    "index-unnamed": Case(
        facts(component("torch", version="2.13.0+cu130"), of=around(build=lambda b: b.update(indexes={"cu130": None}))),
        "torch: version 2.13.0+cu130 is of one index, and 2 could serve it",
        facts(
            component("torch", version="2.13.0+cu130", index="cu130"),
            of=around(build=lambda b: b.update(indexes={"cu130": None})),
        ),
    ),
    "index-local-version": Case(
        facts(component("torch", version="2.13.0+cu130"), lock=sound),
        "without +cu130",
        facts(component("torch", version="2.13.0+cu130"), lock=locked(torch="2.13.0+cu130")),
    ),
    "wheel-tags": Case(
        facts(lock=lambda d: package(d, "torch").update(file="torch-2.13.0-cp312-cp312-manylinux_2_39_x86_64.whl")),
        "does not fit Python 3.11 on x86_64-manylinux_2_36",
        facts(lock=lambda d: package(d, "torch").update(file="torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl")),
    ),
    "lock-tools": Case(
        around(tools_refused=LockStale("not locked", where="recipes/locks/_tools.lock.yaml", cure="make lock")),
        "not locked",
        around(),
    ),
    "pin-moved": Case(
        replace(facts(), remote=(RemoteRef(("components", "vllm"), "vllm", "pull 31", "a" * 40, "b" * 40),)),
        "vllm: pull 31 is bbbbbbbbbbbb now; aaaaaaaaaaaa is pinned",
        replace(facts(), remote=(RemoteRef(("components", "vllm"), "vllm", "pull 31", "a" * 40, "a" * 40),)),
    ),
    "pin-yanked": Case(
        facts(lock=lambda d: package(d, "torch").update(yanked="wrong wheel")),
        "torch 2.13.0 was yanked: wrong wheel",
        facts(lock=sound),
    ),
    "env-inherited": Case(
        facts(of=base_env(NCCL_GRAPH_FILE="/etc/graph.xml")),
        "base debian12 sets NCCL_GRAPH_FILE to '/etc/graph.xml'",
        facts(lambda r: r.update(drop_env=["NCCL_GRAPH_FILE"]), of=base_env(NCCL_GRAPH_FILE="/etc/graph.xml")),
    ),
    "waiver-unknown": Case(
        facts(lambda r: r.update(waivers=[waiver("arch-sufix", "sm90")])), "lint/arch-sufix is no rule"
    ),
    "waiver-unused": Case(
        facts(lambda r: r.update(waivers=[waiver("patch-ended", "vllm/old")])),
        "nothing needs the waiver of lint/patch-ended for vllm/old",
    ),
}


def unused_patch(folder: Path, used: frozenset[str]) -> ProjectFacts:
    (folder / "series.yaml").write_text("component: vllm\npatches:\n- id: defaults\n")
    found = replace(series()["vllm"], folder=folder)
    return around(series={"vllm": found}, used=used)


CASES["patch-unused"] = Case(
    lambda f: unused_patch(f, frozenset()),
    "no recipe lists vllm/defaults",
    lambda f: unused_patch(f, frozenset({"vllm/defaults"})),
)


def tagged(**templates: str) -> ProjectFacts:
    """Recipes by name, each with one template of its own."""
    of = around()
    made = []
    for name, template in templates.items():
        data = edited(RECIPE, lambda r, n=name, t=template: r.update(recipe=n, tags=[t], arches=["sm120"]))
        made.append(recipe_of(parse(yaml.safe_dump(data).encode(), of.paths.recipe(name)), of.project, name))
    return replace(of, recipes=tuple(made))


def on_disk(folder: Path, **templates: str) -> ProjectFacts:
    (folder / "recipes").mkdir()
    for name in templates:
        (folder / "recipes" / f"{name}.yaml").write_text(f"recipe: {name}\ntags: []\n")
    return replace(tagged(**templates), paths=Paths(folder))


CASES["tags-shared"] = Case(
    lambda f: on_disk(f, one="a/b:x-{arch}", two="a/c:x-{arch}"),
    "is the tag of one on sm120 and of two on sm120",
    tagged(one="a/b:{recipe}-{arch}", two="a/b:{recipe}-{arch}"),
)
CASES["recipe-double"] = Case(
    around(
        doubles=(BadInput("two recipes are named a: recipes/a.yaml and recipes/x/a.yaml", where="recipes/x/a.yaml"),)
    ),
    "two recipes are named a",
    around(),
)
CASES["waiver-package"] = Case(
    facts(lambda r: r.update(waivers=[{**LOSER, "check": "core", "package": "torhc"}]), lock=sound),
    "the lock has no package torhc",
    facts(lambda r: r.update(waivers=[{**LOSER, "check": "core", "package": "torch"}]), lock=sound),
)
CASES["operators-unrecorded"] = Case(facts(unrecorded=("sm100", "sm120")), "no operators are recorded for sm100, sm120")
