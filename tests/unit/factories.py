"""A small project, recipe and lock for the tests of pure functions: same shapes as the real ones, made-up bytes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from graft.hashes import digest_of
from graft.lock import FORMAT, Lock, inputs_of, plain
from graft.paths import Paths
from graft.plan import ImageSources, Plan, image_env, plan
from graft.project import Project
from graft.recipe import Recipe, select_arch

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
        "sm120": {"capability": "12.0", "suffix": "a", "cuda": "12.8", "devices": ["RTX PRO 6000"]},
    },
    "bases": {
        "debian12": {
            "bootstrap": {"suite": "bookworm", "pockets": ["bookworm", "bookworm-security"], "snapshot": None},
            "python": "3.11",
            "glibc": "2.36",
            "machine": "x86_64",
            "runtime": ["python3.11", "gcc"],
            "builder": ["git"],
        }
    },
    "toolkit": ["nvidia-cuda-nvcc"],
    "groups": {"torch": ["torch", "triton"]},
    "builds": {
        "flashinfer-aot": {"requires": ["ninja==1.13"], "memory_gb": 4},
        "python": {"requires": [], "memory_gb": 1},
    },
    "engine": {"packages": {"trixie": ["docker.io"]}, "keep": "40GB"},
    "index": None,
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
    )


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
