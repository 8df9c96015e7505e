"""A small project, recipe and lock for the tests of pure functions: same shapes as the real ones, made-up bytes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from graft.hashes import digest_of
from graft.lock import FORMAT, Lock, inputs_of, plain
from graft.paths import Paths
from graft.plan import ImageSources, Plan, image_env, plan
from graft.project import Project
from graft.recipe import Recipe, select_arch
from graft.unlocked import UnlockedPlan, unlocked_plan

Data = dict[str, Any]
Edit = Callable[[Data], object]

PROJECT: Data = {
    "recipe": "toy",
    "arch": "sm90",
    "repository": "graft",
    "arches": {
        "sm90": {"capability": "9.0", "suffix": "a", "cuda": "12.0", "devices": ["H100"]},
        "sm100": {"capability": "10.0", "suffix": "a", "cuda": "12.8", "devices": ["B200"]},
        "sm110": {"capability": "11.0", "suffix": "a", "cuda": "13.0", "devices": ["Thor"]},
        "sm120": {"capability": "12.0", "suffix": "a", "cuda": "12.8", "family": "12.9", "devices": ["RTX PRO 6000"]},
    },
    "bases": {
        "debian12": {
            "bootstrap": {"suite": "bookworm", "pockets": ["bookworm", "bookworm-security"], "snapshot": None},
            "python": "3.11",
            "glibc": "2.36",
            "machine": "x86_64",
            "runtime": ["python3.11", "gcc"],
            "builder": ["git"],
        },
        "ubuntu": {
            "image": {"reference": "nvidia/cuda:13.2.1-devel"},
            "toolkit": "/usr/local/cuda",
            "env": {"NCCL_GRAPH_FILE": None, "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"},
            "python": "3.12",
            "glibc": "2.39",
            "machine": "x86_64",
            "runtime": ["python3.12"],
            "builder": ["git", "ccache"],
        },
        "foundation": {
            "image": {"reference": "registry.invalid:5000/base/torch", "digest": "sha256:" + "e" * 64},
            "toolkit": "/usr/local/cuda",
            "venv": "kept",
            "python": "3.12",
            "glibc": "2.39",
            "machine": "x86_64",
            "builder": [],
        },
    },
    "toolkit": ["nvidia-cuda-nvcc"],
    "groups": {"torch": ["torch", "triton"]},
    "builds": {
        "flashinfer-aot": {"requires": ["ninja==1.13"], "memory_gb": 4},
        "python": {"requires": ["setuptools>=77"], "memory_gb": 1},
        "make": {"requires": [], "memory_gb": 2},
        "vllm": {"requires": ["cmake"], "memory_gb": 8},
    },
    "engine": {"packages": {"trixie": ["docker.io"]}, "keep": "40GB"},
    "index": None,
    "indexes": {"second": None, "third": "https://index.invalid/simple"},
    "channels": ["{recipe}-{arch}"],
}

RECIPE: Data = {
    "recipe": "toy",
    "summary": "A toy recipe",
    "base": "debian12",
    "cuda": "13.0",
    "arches": ["sm90", "sm120"],
    "components": {
        "torch": {"wheel": "torch", "version": "2.13.0"},
        "nccl": {"wheel": "nvidia-nccl-cu13", "version": "2.30.4", "overrides": "torch"},
        "flashinfer": {
            "sdist": "flashinfer-python",
            "version": "0.7.0.post1",
            "build": "flashinfer-aot",
            "modules": ["norm"],
        },
        "b12x": {"wheel": "b12x", "version": "1.5.1", "arches": ["sm120"]},
        "vllm": {"wheel": "vllm", "version": "0.32.0", "commit": "5df63a720"},
    },
    "constraints": [{"require": "cuda-python==13.*", "because": "12.x overwrites files of cuda-bindings"}],
    "patches": ["vllm/defaults", "flashinfer/norm-wait", "b12x/tiles"],
    "env": {"VLLM_NO_USAGE_STATS": "1"},
    "smoke": ["core"],
    "waivers": [],
}


def commit(digit: str) -> str:
    """A commit, or a tree, of one digit."""
    return digit * 40


#: A recipe without a lock, with every kind of source.
OPEN: Data = {
    "recipe": "open",
    "summary": "A recipe without a lock",
    "release": "r7",
    "date": "2026-06-21",
    "unlocked": True,
    "base": "ubuntu",
    "cuda": "13.2",
    "arches": ["sm120"],
    "components": {
        "torch": {"wheel": "torch", "version": "2.12.0+cu132", "index": "second"},
        "numba": {"wheel": "numba", "version": "0.65.0"},
        "nccl": {
            "git": {"url": "https://git.invalid/nccl.git", "commit": commit("1")},
            "version": "2.30.4",
            "build": "make",
            "provides": "nvidia-nccl-cu13",
            "overrides": "torch",
        },
        "cublas": {"apt": ["libcublas13", "libcublas13-dev"], "version": "13.4.1.2-1"},
        "cutlass": {"git": {"url": "https://git.invalid/cutlass.git", "commit": commit("2"), "ref": "main"}},
        "mathlib": {
            "archive": {"url": "https://files.invalid/math-1.tar.gz", "sha256": "a" * 64},
            "version": "1.0",
        },
        "flashinfer": {
            "image": {"reference": "reg.invalid/wheels:1", "digest": "sha256:" + "b" * 64, "paths": ["/opt/wheels"]},
            "version": "0.6.18+cu132",
            "commit": commit("c"),
            "provides": "flashinfer-python",
            "family": True,
        },
        "b12x": {
            "git": {"url": "https://git.invalid/b12x.git", "commit": commit("3"), "tree": commit("4")},
            "build": "python",
            "provides": "b12x",
        },
        "vllm": {
            "git": {
                "url": "https://git.invalid/vllm.git",
                "commit": commit("5"),
                "ref": "dev/x",
                "tree": commit("6"),
                "pulls": [
                    {"number": 31, "head": commit("7"), "note": "why"},
                    {"number": 44, "head": commit("8"), "url": "https://git.invalid/fork.git"},
                ],
                "lost": [{"patch": "topk-scores", "sha256": "d" * 64, "because": "nobody has it"}],
            },
            "version": "0.11.2",
            "build": "python",
            "provides": "vllm",
            "sources": {"VLLM_CUTLASS_SRC_DIR": "cutlass", "MATH_DIR": "mathlib"},
            "needs": ["b12x"],
            "build_env": {"VLLM_TARGET_DEVICE": "cuda"},
        },
    },
    "constraints": [{"require": "cuda-python==13.*", "because": "one release"}],
    "env": {"A": "1"},
    "drop_env": ["NCCL_GRAPH_FILE"],
    "keep_env": ["LD_LIBRARY_PATH"],
    "launch": {"note": "as served", "args": ["--max-num-seqs", "4"], "env": {"VLLM_DCP_SHARD_DRAFT": "1"}},
    "tags": ["name/image:{recipe}-{vllm.short}-{patches.compact}-{cuda.compact}-{lock.date.compact}"],
    "published": {"tag": "name/image:open-5555555-topkscores-cu132-20260621", "digest": "sha256:" + "f" * 64},
    "measured": [
        {
            "where": "there",
            "samples": 4,
            "mean": 128.18,
            "median": 127.91,
            "min": 126.17,
            "max": 130.73,
            "cjk": 0,
            "control": {"image": "another", "samples": 25, "mean": 119.96},
        }
    ],
    "smoke": ["core"],
}

SOURCES: Data = {
    "templates": {
        "Dockerfile.j2": "a",
        "macros/run.j2": "b",
        "stages/base.j2": "c",
        "stages/foundation.j2": "d",
        "stages/builder.j2": "e",
        "stages/source.j2": "f",
        "stages/build-flashinfer-aot.j2": "g",
        "stages/overlay.j2": "h",
        "stages/runtime.j2": "i",
        "stages/smoke.j2": "j",
    },
    "scripts": {"install-wheels.sh": "k", "apply-patches.sh": "k", "overlay-wheel.py": "k", "install-debs.sh": "k"},
    "smoke": {"core.py": "l"},
    "patch_tests": {"vllm/tests/test_defaults.py": "m"},
}


def sha(text: str) -> str:
    """A sha256 that differs for different texts."""
    return hashlib.sha256(text.encode()).hexdigest()


def git_id(text: str) -> str:
    return sha(text)[:40]


def file_pin(name: str, version: str, size: int = 1000, **more: Any) -> Data:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return {
        "name": name,
        "version": version,
        "file": file,
        "size": size,
        "sha256": sha(file),
        "uploaded": "2026-11-01",
        **more,
    }


def deb_pin(name: str, version: str, part: str) -> Data:
    file = f"pool/main/{name[0]}/{name}_{version}_amd64.deb"
    return {
        "name": name,
        "version": version,
        "architecture": "amd64",
        "file": file,
        "size": 100,
        "sha256": sha(file),
        "set": part,
    }


def patched(target: str, *patches: tuple[str, str], installed: str) -> Data:
    return {
        "target": target,
        "pristine": git_id(f"pristine {patches}"),
        "result": git_id(f"result {patches}"),
        "installed": {installed: sha(f"patched {patches}")},
        "patches": [
            {
                "id": patch_id,
                "sha256": sha(f"patch {patch_id}"),
                "files": {file: {"before": git_id("before"), "after": git_id("after")}},
            }
            for patch_id, file in patches
        ],
    }


LOCK: Data = {
    "lock": FORMAT,
    "recipe": "toy",
    "date": "2026-11-02",
    "resolver": {"uv": "0.13.9", "python": "3.11", "platform": "x86_64-manylinux_2_36"},
    "base": {
        "name": "debian12",
        "suite": "bookworm",
        "packages": [deb_pin("gcc", "12.2", "runtime"), deb_pin("git", "2.39", "builder")],
    },
    "sources": {"flashinfer": {**file_pin("flashinfer-python", "0.7.0.post1"), "file": "flashinfer_python.tar.gz"}},
    "packages": [
        file_pin("aiohttp", "3.13.0"),
        file_pin("b12x", "1.5.1", arches=["sm120"]),
        file_pin("cuda-python", "13.4.4"),
        file_pin("nvidia-cuda-nvcc", "13.0.88"),
        file_pin("nvidia-cuda-runtime", "13.0.96"),
        file_pin("nvidia-nccl-cu13", "2.30.4"),
        file_pin("torch", "2.13.0"),
        file_pin("triton", "3.7.0"),
        file_pin("vllm", "0.32.0"),
        file_pin("ninja", "1.13.0", use="build"),
        file_pin("uv", "0.13.9", use="tool"),
    ],
    "builder": ["ninja", "torch"],
    "patches": {
        "vllm": [patched("wheel", ("defaults", "vllm/config.py"), installed="vllm/config.py")],
        "flashinfer": [patched("source", ("norm-wait", "csrc/norm.cu"), installed="flashinfer/data/csrc/norm.cu")],
        "b12x": [patched("wheel", ("tiles", "b12x/tiles.py"), installed="b12x/tiles.py")],
    },
}


def with_trees(recipe: Data) -> None:
    """Adds to the toy recipe: two sources of others, and two builds, one of which needs the other."""
    recipe["components"] |= {
        "kernels": {
            "git": {"url": "https://git.invalid/kernels.git", "commit": commit("1"), "ref": "main"},
            "version": "1.0+g1",
            "build": "python",
            "provides": "kernels",
            "sources": {"CUTLASS_DIR": "cutlass", "MATH_DIR": "mathlib/include"},
            "needs": ["nccl-built"],
            "build_env": {"FAST": "1"},
        },
        "cutlass": {"git": {"url": "https://git.invalid/cutlass.git", "commit": commit("2")}},
        "mathlib": {"archive": {"url": "https://files.invalid/math-1.tar.gz", "sha256": "a" * 64}, "version": "1.0"},
        "nccl-built": {
            "git": {"url": "https://git.invalid/nccl.git", "commit": commit("3")},
            "version": "2.31.2",
            "build": "make",
            "provides": "nccl-built",
        },
    }


def tree_pin(name: str, version: str, **more: Any) -> Data:
    """The entry of a source tree in a lock's plain data."""
    tree = git_id(f"tree {name}")
    made = {**file_pin(name, version), "file": f"{tree}.tar", "tree": tree, **more}
    if "archive" not in more:
        made["git"] = {"commit": git_id(name), "merged": git_id(f"merged {name}"), "heads": [], "submodules": []}
    return made


def locked_trees(lock: Data) -> None:
    """What the lock has for `with_trees`."""
    lock["sources"] |= {
        "kernels": tree_pin("kernels", "1.0+g1", requires=["numpy>=2", "torch"]),
        "cutlass": tree_pin("cutlass", "0+g222222222"),
        "mathlib": tree_pin("mathlib", "1.0", archive={"file": "math-1.tar.gz", "size": 5, "sha256": "a" * 64}),
        "nccl-built": tree_pin("nccl-built", "2.31.2"),
    }
    lock["packages"].append(file_pin("numpy", "2.4.0"))
    lock["patches"]["kernels"] = [patched("source", ("faster", "src/k.cu"), installed="kernels/k.cu")]
    del lock["patches"]["kernels"][0]["installed"]["kernels/k.cu"]


def edited(data: Data, *edits: Edit) -> Data:
    """A deep copy of plain data, changed by each edit."""
    copied = copy.deepcopy(data)
    for edit in edits:
        edit(copied)
    return copied


def make_project(*edits: Edit) -> Project:
    return Project.model_validate(edited(PROJECT, *edits))


def make_recipe(*edits: Edit) -> Recipe:
    return Recipe.model_validate(edited(RECIPE, *edits))


def make_sources(*edits: Edit) -> ImageSources:
    return ImageSources(**edited(SOURCES, *edits))


def make_lock(*edits: Edit, project: Project | None = None, recipe: Recipe | None = None) -> Lock:
    """A lock with fitting inputs and digest; edits are made before the digest is taken."""
    body = edited(LOCK, *edits)
    body.setdefault("inputs", inputs_of(project or make_project(), recipe or make_recipe(), {}))
    lock = Lock.model_validate({**body, "digest": "0" * 64})
    return lock.model_copy(update={"digest": digest_of(plain(lock))})


def make_plan(
    arch: str = "sm90",
    *,
    project: Edit | None = None,
    recipe: Edit | None = None,
    lock: Edit | None = None,
    sources: Edit | None = None,
    env: Mapping[str, str] | None = None,
    operators: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """The plan of the toy project, with at most one edit of each part."""
    made_project = make_project(*[project] if project else [])
    made_recipe = make_recipe(*[recipe] if recipe else [])
    made_lock = make_lock(*[lock] if lock else [], project=made_project, recipe=made_recipe)
    chosen = select_arch(made_recipe, made_project, arch, "ARCH")
    return plan(
        made_project,
        made_recipe,
        made_lock,
        chosen,
        image_env(made_project, made_recipe, chosen) if env is None else env,
        make_sources(*[sources] if sources else []),
        operators,
    )


def make_open(
    arch: str = "sm120",
    *,
    project: Edit | None = None,
    recipe: Edit | None = None,
    sources: Edit | None = None,
) -> UnlockedPlan:
    """The plan of the toy recipe without a lock, with at most one edit of each part."""
    made_project = make_project(*[project] if project else [])
    made_recipe = Recipe.model_validate(edited(OPEN, *[recipe] if recipe else []))
    chosen = select_arch(made_recipe, made_project, arch, "ARCH")
    env = image_env(made_project, made_recipe, chosen)
    return unlocked_plan(made_project, made_recipe, chosen, env, make_sources(*[sources] if sources else []))


def package(lock: Data, name: str) -> Data:
    """The entry of one wheel in a lock's plain data."""
    found: Data = next(entry for entry in lock["packages"] if entry["name"] == name)
    return found


def write_project(root: Path, project: Data = PROJECT, recipes: Mapping[str, Data] | None = None) -> Paths:
    """A project's folder with build.yaml and recipes."""
    paths = Paths(root)
    paths.locks.mkdir(parents=True)
    paths.build_yaml.write_text(yaml.safe_dump(project, sort_keys=False))
    for name, data in (recipes if recipes is not None else {"toy": RECIPE}).items():
        paths.recipe(name).write_text(yaml.safe_dump(data, sort_keys=False))
    return paths
