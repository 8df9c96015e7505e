"""The plan of components from git and archives: stages, order, and what each key depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import (
    Data,
    Edit,
    file_pin,
    git_id,
    locked_trees,
    make_plan,
    make_project,
    make_recipe,
    sha,
    with_trees,
)

from graft.agreement import component_findings
from graft.errors import BadInput
from graft.kinds import KINDS
from graft.lock import plain, requirements_text
from graft.paths import Paths
from graft.plan import Plan
from graft.render import contexts_of, render


def planned(
    *, recipe: Edit = lambda data: None, lock: Edit = lambda data: None, sources: Edit | None = None, arch: str = "sm90"
) -> Plan:
    def whole_recipe(data: Data) -> None:
        with_trees(data)
        data["patches"].append("kernels/faster")
        recipe(data)

    def whole_lock(data: Data) -> None:
        locked_trees(data)
        lock(data)

    return make_plan(arch, recipe=whole_recipe, lock=whole_lock, sources=sources)


def keys(made: Plan) -> dict[str, str]:
    return {"image": made.image.key, **{b.name: b.keyed.key for b in (*made.sources, *made.builds)}}


def test_sources_come_before_what_is_built_from_them() -> None:
    made = planned()
    assert [b.name for b in made.sources] == ["cutlass", "mathlib"]
    assert [b.name for b in made.builds] == ["flashinfer", "nccl-built", "kernels"]
    assert [b.stages for b in made.builds] == [
        ("source", "build-flashinfer-aot", "built"),
        ("source-tree", "build-make", "built"),
        ("source-tree", "build-python", "built"),
    ]
    assert {b.context for b in (*made.sources, *made.builds)} <= set(contexts_of(made))
    kernels = made.builds[2]
    assert kernels.environment["TORCH_CUDA_ARCH_LIST"] == "9.0a"
    assert kernels.environment["FAST"] == "1"
    assert kernels.needs == ("numpy", "torch")
    assert kernels.source.requires == ("numpy>=2", "torch")


def test_what_is_only_a_source_is_nothing_that_is_installed() -> None:
    made = planned()
    facts = made.facts()
    assert {"kernels", "nccl-built"} <= facts["packages"].keys()
    assert {"cutlass", "mathlib"}.isdisjoint({*facts["packages"], *facts["components"]})
    labels = made.labels()
    assert labels["dev.graft.component.cutlass.commit"] == git_id("cutlass")
    assert labels["dev.graft.component.mathlib.tree"] == git_id("tree mathlib")


def test_an_sdist_may_be_only_a_source_too() -> None:
    """CUTLASS's headers are in flashinfer-python's sdist, of whatever version the image's own is."""
    headers = {"sdist": "flashinfer-python", "version": "0.6.1"}
    sources = {"CUTLASS_DIR": "headers/3rdparty/cutlass", "MATH_DIR": "cutlass", "M": "mathlib"}
    made = planned(
        recipe=lambda r: (
            r["components"].update(headers=headers),
            r["components"]["kernels"].update(sources=sources),
        ),
        lock=lambda d: d["sources"].update(headers={**file_pin("flashinfer-python", "0.6.1"), "alone": True}),
    )
    alone = next(build for build in made.sources if build.name == "headers")
    assert (alone.stages, alone.context) == (("source",), "sdist-headers")
    assert "headers" not in made.facts()["components"]
    text = render(Paths(Path(__file__).parents[2]), made).text
    assert "AS source-headers" in text
    assert "CUTLASS_DIR=/src/headers/3rdparty/cutlass" in text


def test_a_version_that_nobody_gave_is_the_locks() -> None:
    made = planned(
        recipe=lambda r: r["components"]["kernels"].pop("version"),
        lock=lambda d: d["sources"]["kernels"].update(version="1.2.4.dev3+g111111111"),
    )
    assert made.facts()["components"]["kernels"]["version"] == "1.2.4.dev3+g111111111"
    assert made.labels()["dev.graft.component.kernels.version"] == "1.2.4.dev3+g111111111"
    assert "kernels 1.2.4.dev3+g111111111" in render(Paths(Path(__file__).parents[2]), made).text
    with pytest.raises(BadInput, match=r"kernels is 1\.0\+g1 in the recipe and 1\.2\.4 in the lock"):
        planned(lock=lambda d: d["sources"]["kernels"].update(version="1.2.4"))


def tree_of(name: str) -> Edit:
    return lambda lock: lock["sources"][name].update(tree=git_id("other"), sha256=sha("other"))


def component(name: str, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"][name].update(facts)


def git(name: str, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"][name]["git"].update(facts)


def new_patch(lock: Data) -> None:
    lock["patches"]["kernels"][0]["patches"][0]["sha256"] = sha("edited")


ALL = {"image", "cutlass", "mathlib", "flashinfer", "nccl-built", "kernels"}


@pytest.mark.parametrize(
    ("part", "edit", "changed"),
    [
        pytest.param("lock", tree_of("kernels"), {"image", "kernels"}, id="its-tree"),
        pytest.param("lock", tree_of("cutlass"), {"image", "cutlass", "kernels"}, id="a-sub-source"),
        pytest.param("lock", tree_of("mathlib"), {"image", "mathlib", "kernels"}, id="an-archive"),
        pytest.param("lock", tree_of("nccl-built"), {"image", "nccl-built", "kernels"}, id="what-it-needs"),
        pytest.param("lock", new_patch, {"image", "kernels"}, id="its-patch"),
        pytest.param("recipe", component("kernels", build_env={"FAST": "2"}), {"image", "kernels"}, id="build-env"),
        pytest.param("recipe", component("kernels", family=True), {"image", "kernels"}, id="family"),
        pytest.param(
            "recipe",
            component("kernels", sources={"CUTLASS_DIR": "cutlass", "MATH_DIR": "mathlib/lib"}),
            {"image", "kernels"},
            id="folder-of-a-source",
        ),
        pytest.param("recipe", component("kernels", accepts=["slow part"]), {"image", "kernels"}, id="accepted-parts"),
        pytest.param("recipe", git("kernels", ref="dev"), {"image"}, id="a-note"),
        pytest.param("recipe", git("kernels", url="https://git.invalid/moved.git"), {"image"}, id="an-address"),
        pytest.param(
            "sources",
            lambda s: s["scripts"].update({"unpack-tree.sh": "x"}),
            {"image", "cutlass", "mathlib", "nccl-built", "kernels"},
            id="script-of-trees",
        ),
        pytest.param(
            "sources", lambda s: s["scripts"].update({"build-python.py": "x"}), {"image", "kernels"}, id="python"
        ),
        pytest.param(
            "sources",
            lambda s: s["scripts"].update({"build-make.py": "x"}),
            {"image", "nccl-built", "kernels"},
            id="make",
        ),
        pytest.param("sources", lambda s: s["scripts"].update({"checkout-git.sh": "x"}), set(), id="of-no-stage"),
    ],
)
def test_a_key_changes_with_its_inputs_and_nothing_else(part: str, edit: Edit, changed: set[str]) -> None:
    before, after = keys(planned()), keys(planned(**{part: edit}))
    assert set(before) == ALL
    assert {name for name in before if before[name] != after[name]} == changed


def test_architectures_build_anew_and_share_sources() -> None:
    one, other = keys(planned(arch="sm90")), keys(planned(arch="sm120"))
    assert {name for name in one if one[name] == other[name]} == {"cutlass", "mathlib"}


def test_a_lock_without_a_component_is_refused() -> None:
    with pytest.raises(BadInput, match="component cutlass is not in the lock"):
        planned(lock=lambda lock: lock["sources"].pop("cutlass"))
    with pytest.raises(BadInput, match=r"component kernels is 1\.0\+g1 in the recipe and 9\.9 in the lock"):
        planned(lock=lambda lock: lock["sources"]["kernels"].update(version="9.9"))


def test_the_lock_says_trees_only_where_there_are_some() -> None:
    lock = planned().lock
    data = plain(lock)["sources"]
    assert {"tree", "git", "archive", "requires"}.isdisjoint(data["flashinfer"])
    assert set(data["mathlib"]) & {"tree", "git", "archive"} == {"tree", "archive"}
    text = requirements_text(lock)
    assert "flashinfer-python==0.7.0.post1 \\\n" in text
    assert f"# component kernels, 1.0+g1, built from git commit {git_id('kernels')}\n" in text
    assert "\nkernels==" not in text


def test_the_dockerfile_of_a_tree() -> None:
    text = render(Paths(Path(__file__).parents[2]), planned()).text
    assert "FROM builder AS source-cutlass" in text
    assert f"TREE={git_id('tree kernels')}" in text
    assert text.index("AS source-mathlib") < text.index("AS build-kernels")
    stage = text[text.index("AS build-kernels") :].partition("\nFROM ")[0]
    assert "from=source-cutlass,source=/src/cutlass,target=/src/cutlass" in stage
    assert "CUTLASS_DIR=/src/cutlass " in stage
    assert "MATH_DIR=/src/mathlib/include " in stage
    assert "from=built-nccl-built," in stage
    assert "--needs numpy torch" in stage
    assert "--network=none" in stage


def test_a_build_of_vllm_names_what_it_would_download() -> None:
    told = {**dict.fromkeys(KINDS["vllm"].sources, "cutlass"), "TRITON_KERNELS_SRC_DIR": "mathlib/python"}

    def vllm(sources: dict[str, str]) -> Edit:
        return component("kernels", build="vllm", sources=sources, accepts=["Machete kernels"])

    made = planned(recipe=vllm(told)).builds[-1]
    assert made.environment["VLLM_TARGET_DEVICE"] == "cuda"
    text = render(Paths(Path(__file__).parents[2]), planned(recipe=vllm(told))).text
    assert "--refuse 'Not building .+ as '" in text
    assert "--accept 'Machete kernels'" in text
    assert "graft-job-gb-vllm" in text
    del told["QUTLASS_SRC_DIR"]
    found = component_findings(make_recipe(with_trees, vllm(told)).components, ["sm90"], "13.0", make_project())
    assert [what for _, what in found if "QUTLASS" in what] == [
        "kernels: its build downloads github.com/IST-DASLab/qutlass e74319e3405ce6d71965732880f5dc1f52371f64: "
        "make it a component, and give QUTLASS_SRC_DIR in sources"
    ]
