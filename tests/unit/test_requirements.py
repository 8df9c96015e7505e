"""Compiled wheels are held against the lock before an image is made of them, on the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from components import wheel
from factories import Edit, file_pin, locked_trees, make_plan, with_trees

from graft.commands.requirements import check_requirements
from graft.errors import BuildFailed


def check(folder: Path, *says: str, arch: str = "sm90", recipe: Edit | None = None, lock: Edit | None = None) -> None:
    """As for a component `flashinfer` whose wheel says this."""
    made = wheel(folder, None, says=says)
    check_requirements(make_plan(arch, recipe=recipe, lock=lock), {"flashinfer": [made]})


def asks(text: str) -> str:
    return f"Requires-Dist: {text}"


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "Torch>=2.13",
        "torch (==2.13.0)",
        "flashinfer_python==0.7.0.post1",
        "absent ; python_version < '3.11'",
        "absent ; platform_machine == 'aarch64'",
        "absent ; extra == 'test'",
        "triton[never]>=3",
    ],
)
def test_what_the_lock_has_is_enough(tmp_path: Path, text: str) -> None:
    check(tmp_path, asks(text))


@pytest.mark.parametrize(
    ("text", "says", "cure"),
    [
        ("absent>=2", "asks for absent>=2, and the lock has no absent for sm90", "absent: {wheel: absent"),
        ("absent ; python_version >= '3.11'", "the lock has no absent", "{wheel: absent"),
        ("absent ; platform_machine == 'x86_64'", "the lock has no absent", "{wheel: absent"),
        ("absent @ https://files.invalid/absent.whl", "the lock has no absent", "{wheel: absent"),
        ("b12x", "the lock has no b12x for sm90", "{wheel: b12x"),
        ("ninja", "the lock has no ninja", "{wheel: ninja"),
        ("uv", "the lock has no uv", "{wheel: uv"),
        ("torch==2.14", "asks for torch==2.14, and the lock has torch 2.13.0", "pin a torch that it takes"),
        ("torch<2.13", "the lock has torch 2.13.0", "`overrides: <component>`"),
        ("flashinfer-python<0.7", "the lock has flashinfer-python 0.7.0.post1", "pin a flashinfer-python"),
        ("two words", "which is no requirement", "correct it by a patch"),
    ],
)
def test_what_the_lock_lacks_is_refused_with_component_and_cure(
    tmp_path: Path, text: str, says: str, cure: str
) -> None:
    with pytest.raises(BuildFailed, match=r"^flashinfer: kernels-1\.0-py3-none-any\.whl asks for") as caught:
        check(tmp_path, asks(text))
    assert says in caught.value.what
    assert caught.value.where == "recipe toy: components.flashinfer"
    assert cure in str(caught.value.cure)
    assert "make lock RECIPE=toy" in str(caught.value.cure)


def test_everything_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"(?s)one.*two") as caught:
        check(tmp_path, asks("one"), asks("torch"), asks("two"))
    assert "torch" not in caught.value.what


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
def test_an_architecture_has_its_own_packages(tmp_path: Path, arch: str) -> None:
    if arch == "sm120":
        check(tmp_path, asks("b12x==1.5.1"), arch=arch)
    else:
        with pytest.raises(BuildFailed, match="no b12x for sm90"):
            check(tmp_path, asks("b12x==1.5.1"), arch=arch)


def test_what_overrides_holds_against_whoever_asks(tmp_path: Path) -> None:
    def plain(recipe: dict[str, Any]) -> None:
        del recipe["components"]["nccl"]["overrides"]

    check(tmp_path, asks("nvidia-nccl-cu13==2.29.7"))
    with pytest.raises(BuildFailed, match=r"the lock has nvidia-nccl-cu13 2\.30\.4"):
        check(tmp_path, asks("nvidia-nccl-cu13==2.29.7"), recipe=plain)


def test_a_constraint_with_its_reason_says_that_a_version_is_meant(tmp_path: Path) -> None:
    check(tmp_path, asks("cuda-python<13"))
    for constraints in ([], [{"require": "cuda-python<13.4.5,>13.4.4", "because": "another bound"}]):
        with pytest.raises(BuildFailed, match=r"the lock has cuda-python 13\.4\.4"):
            check(tmp_path, asks("cuda-python<13"), recipe=lambda r, c=constraints: r.update(constraints=c))


def test_what_is_built_here_is_there_for_others(tmp_path: Path) -> None:
    check(tmp_path, asks("nccl-built>=2.31"), asks("kernels"), recipe=with_trees, lock=locked_trees)
    with pytest.raises(BuildFailed, match="no cutlass"):
        check(tmp_path, asks("cutlass"), recipe=with_trees, lock=locked_trees)


@pytest.mark.parametrize(("python", "fits"), [(">=3.11.4", True), ("~=3.11", True), ("three", True), (">=3.12", False)])
def test_a_wheel_is_for_the_python_of_the_base(tmp_path: Path, python: str, fits: bool) -> None:
    if fits:
        check(tmp_path, f"Requires-Python: {python}")
    else:
        with pytest.raises(BuildFailed, match=r"asks for Python >=3\.12, and the base has 3\.11"):
            check(tmp_path, f"Requires-Python: {python}")


@pytest.mark.parametrize("data", [b"", b"no zip file"])
def test_what_is_no_wheel_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a-1-py3-none-any.whl"
    file.write_bytes(data)
    wheels: Mapping[str, list[Path]] = {"flashinfer": [file]}
    with pytest.raises(BuildFailed, match="does not say what it is"):
        check_requirements(make_plan(), wheels)


def test_an_added_wheel_mends_it(tmp_path: Path) -> None:
    check(tmp_path, asks("absent>=2"), lock=lambda lock: lock["packages"].append(file_pin("absent", "2.1")))
