"""The plan: what is grouped how, and what each key depends on."""

from __future__ import annotations

from typing import Any

import pytest
from factories import Data, Edit, git_id, make_plan, make_project, make_recipe, package, sha
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.errors import BadInput
from graft.plan import Keyed, Plan, first_difference, image_env, installed_path, patch_test
from graft.recipe import select_arch


def names(layers: Any) -> dict[str, list[str]]:
    return {layer.name: [p.name for p in layer.packages] for layer in layers}


def test_big_and_rarely_changed_layers_come_first() -> None:
    made = make_plan("sm120")
    assert names(made.foundation) == {
        "cuda": ["cuda-python", "nvidia-cuda-nvcc", "nvidia-cuda-runtime"],
        "torch": ["nvidia-nccl-cu13", "torch", "triton"],
    }
    assert names(made.libraries) == {"python": ["aiohttp"]}
    assert names(made.wheels) == {"b12x": ["b12x"], "vllm": ["vllm"]}
    assert [layer.name for layer in made.layers] == ["cuda", "torch", "python", "b12x", "vllm"]


def test_every_locked_wheel_of_the_image_is_in_one_layer() -> None:
    for arch in ("sm90", "sm120"):
        made = make_plan(arch)
        placed = [p.name for layer in made.layers for p in layer.packages]
        assert sorted(placed) == sorted(p.name for p in made.lock.image_packages(arch))
        assert len(placed) == len(set(placed))
        assert {"ninja", "uv"}.isdisjoint(placed)
    assert [p.name for p in make_plan().build_wheels.packages] == ["ninja"]


def test_an_architecture_gets_only_its_components() -> None:
    assert "b12x" in names(make_plan("sm120").wheels)
    made = make_plan("sm90")
    assert "b12x" not in names(made.wheels)
    assert [o.name for o in made.overlays] == ["vllm"]
    assert [o.name for o in make_plan("sm120").overlays] == ["b12x", "vllm"]
    assert made.patch_refs == ("vllm/defaults", "flashinfer/norm-wait")
    assert [p["id"] for p in made.facts()["patches"]] == ["defaults", "norm-wait"]
    assert "dev.graft.patch.b12x.tiles" not in made.labels()
    assert "dev.graft.patch.b12x.tiles" in make_plan("sm120").labels()
    assert set(made.manifest()["files"]) == {"vllm/config.py", "flashinfer/data/csrc/norm.cu"}


def test_builds_and_overlays_are_told_apart() -> None:
    made = make_plan()
    assert [(b.name, b.memory_gb, b.source.name) for b in made.builds] == [("flashinfer", 4, "flashinfer-python")]
    assert [(o.name, o.wheel.name) for o in made.overlays] == [("vllm", "vllm")]


def test_references() -> None:
    made = make_plan()
    assert made.tag == f"graft:toy-sm90-{made.image.key[:12]}"
    assert made.channels == ("graft:toy-sm90",)


def test_facts_say_what_the_image_must_hold() -> None:
    facts = make_plan().facts()
    assert (facts["arch"], facts["nvcc_arch"], facts["cuda"]) == ("sm90", "sm_90a", "13.0")
    assert facts["packages"]["flashinfer-python"] == "0.7.0.post1"
    assert "b12x" not in facts["packages"]
    assert facts["components"]["nccl"]["overrides"] == "torch"
    assert facts["patches"][1] == {
        "component": "flashinfer",
        "id": "norm-wait",
        "test": "patch-tests/flashinfer/test_norm_wait.py",
        "files": {"flashinfer/data/csrc/norm.cu": sha("patched (('norm-wait', 'csrc/norm.cu'),)")},
    }


def keys(made: Plan) -> dict[str, str]:
    """All keys of a plan by name."""
    return {
        "image": made.image.key,
        "gate": made.gate.key,
        **{f"build {b.name}": b.keyed.key for b in made.builds},
        **{f"overlay {o.name}": o.keyed.key for o in made.overlays},
    }


def patch_bytes(component: str) -> Edit:
    def edit(lock: Data) -> None:
        (entry,) = lock["patches"][component]
        entry["patches"][0]["sha256"] = sha("edited")
        entry["result"] = git_id("edited")

    return edit


def bytes_of(name: str) -> Edit:
    return lambda lock: package(lock, name).update(sha256=sha("other"))


def template(name: str) -> Edit:
    return lambda sources: sources["templates"].update({name: "edited"})


def script(name: str) -> Edit:
    return lambda sources: sources["scripts"].update({name: "edited"})


def deb_bytes(lock: Data) -> None:
    lock["base"]["packages"][0]["sha256"] = sha("other")


def component(name: str, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"][name].update(facts)


IMAGE, FI, VLLM, GATE = "image", "build flashinfer", "overlay vllm", "gate"


@pytest.mark.parametrize(
    ("part", "edit", "changed"),
    [
        pytest.param("lock", patch_bytes("vllm"), {IMAGE, VLLM}, id="patch-of-vllm"),
        pytest.param("lock", patch_bytes("flashinfer"), {IMAGE, FI}, id="patch-of-flashinfer"),
        pytest.param("lock", bytes_of("vllm"), {IMAGE, VLLM}, id="wheel-of-vllm"),
        pytest.param("lock", bytes_of("aiohttp"), {IMAGE}, id="a-library"),
        pytest.param("lock", bytes_of("torch"), {IMAGE, FI}, id="torch"),
        pytest.param("lock", bytes_of("nvidia-cuda-nvcc"), {IMAGE, FI}, id="toolkit"),
        pytest.param("lock", bytes_of("ninja"), {IMAGE, FI}, id="build-requirement"),
        pytest.param("lock", deb_bytes, {IMAGE, FI}, id="debian-package"),
        pytest.param(
            "lock",
            lambda lock: lock["sources"]["flashinfer"].update(sha256=sha("other")),
            {IMAGE, FI},
            id="source",
        ),
        pytest.param("recipe", component("flashinfer", modules=["norm", "page"]), {IMAGE, FI}, id="modules"),
        pytest.param("recipe", component("vllm", commit="1234567"), {IMAGE}, id="commit"),
        pytest.param("recipe", lambda r: r.update(summary="other"), {IMAGE}, id="summary"),
        pytest.param("recipe", lambda r: r["env"].update(A="1"), {IMAGE}, id="env"),
        pytest.param("recipe", lambda r: r.update(smoke=["core", "jit"]), {GATE}, id="smoke-list"),
        pytest.param(
            "recipe",
            lambda r: r.update(profiles={"tp8": {"args": ["--x"]}}, smoke=[*r["smoke"], "start"]),
            {GATE},
            id="profile",
        ),
        pytest.param("recipe", lambda r: r.update(size_budget={"total": "1GB"}), {GATE}, id="size-budget"),
        pytest.param(
            "recipe",
            lambda r: r["waivers"].append({"check": "files", "file": "x.py", "reason": "r", "until": "u"}),
            {GATE},
            id="waiver",
        ),
        pytest.param("sources", template("stages/overlay.j2"), {IMAGE, VLLM}, id="overlay-stage"),
        pytest.param("sources", template("stages/build-flashinfer-aot.j2"), {IMAGE, FI}, id="build-stage"),
        pytest.param("sources", template("stages/source.j2"), {IMAGE, FI}, id="source-stage"),
        pytest.param("sources", template("stages/base.j2"), {IMAGE, FI}, id="base-stage"),
        pytest.param("sources", template("macros/run.j2"), {IMAGE, FI, VLLM}, id="macros"),
        pytest.param("sources", template("stages/runtime.j2"), {IMAGE}, id="runtime-stage"),
        pytest.param("sources", template("Dockerfile.j2"), {IMAGE}, id="dockerfile"),
        pytest.param("sources", template("stages/smoke.j2"), {IMAGE}, id="smoke-stage"),
        pytest.param("sources", script("apply-patches.sh"), {IMAGE, FI, VLLM}, id="script-of-both"),
        pytest.param("sources", script("overlay-wheel.py"), {IMAGE, VLLM}, id="script-of-the-overlay"),
        pytest.param("sources", script("install-debs.sh"), {IMAGE, FI}, id="script-of-the-builder"),
        pytest.param("sources", script("a.sh"), set(), id="script-of-no-stage"),
        pytest.param("sources", lambda s: s["smoke"].update({"lib/fatbin.py": "x"}), {IMAGE, FI, GATE}, id="fatbin"),
        pytest.param("sources", lambda s: s["smoke"].update({"core.py": "x"}), {GATE}, id="smoke-test"),
        pytest.param("sources", lambda s: s["patch_tests"].update({"y": "x"}), {GATE}, id="patch-test"),
        pytest.param(
            "project", lambda p: p["arches"]["sm90"].update(suffix=None), {IMAGE, FI}, id="architecture-flags"
        ),
        # What must change nothing at all.
        pytest.param("project", lambda p: p.update(index="https://example.invalid/simple"), set(), id="index"),
        pytest.param("project", lambda p: p["engine"].update(keep="80GB"), set(), id="engine"),
        pytest.param("project", lambda p: p.update(channels=["{recipe}"]), set(), id="channels"),
        pytest.param("project", lambda p: p.update(repository="other"), set(), id="repository"),
        pytest.param("project", lambda p: p["builds"]["flashinfer-aot"].update(memory_gb=9), set(), id="memory"),
        pytest.param("project", lambda p: p["builds"]["python"].update(memory_gb=9), set(), id="other-kind"),
        pytest.param("project", lambda p: p["arches"].pop("sm110"), set(), id="other-architecture"),
        pytest.param("recipe", component("vllm", allow=">=0.1"), set(), id="a-range-for-updates"),
        pytest.param("recipe", lambda r: r["constraints"][0].update(because="other"), set(), id="a-reason"),
    ],
)
def test_a_key_changes_with_its_inputs_and_nothing_else(part: str, edit: Edit, changed: set[str]) -> None:
    before, after = keys(make_plan()), keys(make_plan(**{part: edit}))  # type: ignore[arg-type]
    assert {name for name in before if before[name] != after[name]} == changed


def test_the_order_of_components_is_an_input_of_the_image() -> None:
    def swap(recipe: Data) -> None:
        recipe["components"] = dict(reversed(recipe["components"].items()))

    before, after = make_plan("sm120"), make_plan("sm120", recipe=swap)
    assert [layer.name for layer in before.wheels] == ["b12x", "vllm"]
    assert [layer.name for layer in after.wheels] == ["vllm", "b12x"]
    assert before.image.key != after.image.key


def test_architectures_have_different_keys() -> None:
    one, other = keys(make_plan("sm90")), keys(make_plan("sm120"))
    assert one["image"] != other["image"]
    assert one[FI] != other[FI]
    assert one[VLLM] == other[VLLM]


def test_a_plan_is_the_same_each_time() -> None:
    assert keys(make_plan()) == keys(make_plan())
    assert make_plan().labels() == make_plan().labels()


TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_keys_are_equal_exactly_when_their_inputs_are(one: dict[str, str], other: dict[str, str]) -> None:
    assert (Keyed(one).key == Keyed(other).key) == (one == other)
    assert Keyed(one).key == Keyed(dict(reversed(one.items()))).key
    assert (first_difference(one, other) is None) == (one == other)


def test_the_first_difference_is_named() -> None:
    assert first_difference({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == "b"
    assert first_difference({"a": "1"}, {"a": "1", "b": "3"}) == "b"
    assert first_difference({"a": "1", "b": "3"}, {"a": "1"}) == "b"
    before, after = make_plan(), make_plan(lock=patch_bytes("flashinfer"))
    assert first_difference(before.builds[0].keyed.inputs, after.builds[0].keyed.inputs) == "patches"


@pytest.mark.parametrize("name", ["nvidia-cuda-nvcc", "nvidia-cuda-runtime"])
def test_a_toolkit_part_of_another_cuda_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_plan(lock=lambda lock: package(lock, name).update(version="13.5.37"))
    assert caught.value.what.startswith(f"{name} 13.5.37 is not of CUDA 13.0")
    assert "make lock" in str(caught.value.cure)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (
            lambda lock: package(lock, "vllm").update(version="0.31.0"),
            "component vllm is 0.32.0 in the recipe and 0.31.0",
        ),
        (lambda lock: lock["packages"].remove(package(lock, "vllm")), "vllm is 0.32.0 in the recipe and absent"),
        (lambda lock: lock["sources"]["flashinfer"].update(version="0.6"), "flashinfer is 0.7.0.post1 in the recipe"),
    ],
)
def test_a_lock_that_does_not_hold_the_recipe_is_refused(edit: Edit, found: str) -> None:
    with pytest.raises(BadInput, match=found) as caught:
        make_plan(lock=edit)
    assert caught.value.cure == "make lock RECIPE=toy"


@pytest.mark.parametrize(
    ("template", "reference"),
    [
        ("{recipe}-{arch}-cu{cuda}", "graft:toy-sm90-cu13.0"),
        ("{vllm.short}-{lock.date}", "graft:5df63a720-2026-11-02"),
        ("v{vllm.version}-fi{flashinfer.version}", "graft:v0.32.0-fi0.7.0.post1"),
    ],
)
def test_channels_are_filled_in(template: str, reference: str) -> None:
    assert make_plan(project=lambda p: p.update(channels=[template])).channels == (reference,)


def test_a_local_version_becomes_a_legal_tag() -> None:
    made = make_plan(
        project=lambda p: p.update(channels=["{torch.version}"]),
        recipe=component("torch", version="2.13.0+cu130"),
        lock=lambda lock: package(lock, "torch").update(version="2.13.0+cu130"),
    )
    assert made.channels == ("graft:2.13.0_cu130",)


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{recipe}-{nothing}", "unknown placeholder {nothing}"),
        ("-{recipe}", "'-toy' is not a legal image tag"),
        ("{recipe", "'{recipe' is not a legal image tag"),
        ("x" * 129, "is not a legal image tag"),
    ],
)
def test_a_wrong_channel_template_is_refused(template: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_plan(project=lambda p: p.update(channels=[template])).channels  # noqa: B018
    assert what in caught.value.what
    assert caught.value.where == "build.yaml: channels"
    assert caught.value.cure


def test_the_images_environment() -> None:
    project, recipe = make_project(), make_recipe(lambda r: r["env"].update(LANG="de_DE.UTF-8"))
    env = image_env(project, recipe, select_arch(recipe, project, "sm90", "ARCH"))
    assert env["CUDA_HOME"] == "/opt/venv/lib/python3.11/site-packages/nvidia/cu13"
    assert env["PATH"].split(":")[:2] == ["/opt/venv/bin", f"{env['CUDA_HOME']}/bin"]
    assert env["TORCH_CUDA_ARCH_LIST"] == "9.0a"
    assert (env["LANG"], env["VLLM_NO_USAGE_STATS"]) == ("de_DE.UTF-8", "1")


def test_where_things_lie() -> None:
    assert installed_path(None, "vllm/a.py") == "vllm/a.py"
    assert installed_path("flashinfer-aot", "include/flashinfer/a.cuh") == "flashinfer/data/include/flashinfer/a.cuh"
    assert installed_path("flashinfer-aot", "flashinfer/a.py") == "flashinfer/a.py"
    assert installed_path("flashinfer-aot", "docs/a.md") is None
    assert installed_path("python", "my_kernels/a/b.py", "my-kernels") == "my_kernels/a/b.py"
    for path in ("my_kernels/a.cu", "csrc/a.py", "setup.py", "my_kernels.py", "src/my_kernels/a.py"):
        assert installed_path("python", path, "my-kernels") is None
    assert patch_test("vllm", "a-b") == "patch-tests/vllm/test_a_b.py"


def test_flashinfer_parts_of_two_versions_are_refused() -> None:
    def add(lock: dict[str, Any]) -> None:
        lock["packages"].append({**package(lock, "torch"), "name": "flashinfer-cubin", "version": "0.6.1"})

    with pytest.raises(BadInput, match=r"flashinfer-cubin 0\.6\.1 does not belong to flashinfer-python 0\.7\.0"):
        make_plan(lock=add)


@pytest.mark.parametrize("name", ["PATH", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST"])
def test_a_recipe_may_not_move_what_the_tools_find_each_other_by(name: str) -> None:
    project, recipe = make_project(), make_recipe(lambda r: r["env"].update({name: "x"}))
    with pytest.raises(BadInput, match=f"{name} is set by Graft"):
        image_env(project, recipe, select_arch(recipe, project, "sm90", "ARCH"))


def test_the_gate_is_told_the_profiles_of_this_image_and_the_debian_packages() -> None:
    profiles = {"all": {"args": ["--x"], "env": {"A": "1"}, "model": "a/b"}, "blackwell": {"arches": ["sm100"]}}
    made = make_plan(
        "sm90", recipe=lambda r: r.update(profiles=profiles, launch={"args": ["--y"]}, smoke=[*r["smoke"], "start"])
    )
    assert made.facts()["profiles"] == [
        {"name": "launch", "model": None, "args": ["--y"], "env": {}},
        {"name": "all", "model": "a/b", "args": ["--x"], "env": {"A": "1"}},
    ]
    runtime = {pin.name: pin.version for pin in made.lock.base.packages if pin.set == "runtime"}
    assert made.facts()["debs"] == runtime
    assert runtime


def test_the_gate_is_told_the_budget_of_the_components_of_this_image() -> None:
    limits = {"flashinfer": "1.5GB", "b12x": "20MB"}
    made = make_plan("sm90", recipe=lambda r: r.update(size_budget={"total": "9GB", "components": limits}))
    assert made.facts()["size_budget"] == {
        "total": 9_000_000_000,
        "components": {
            "flashinfer": {"bytes": 1_500_000_000, "distributions": ["flashinfer-python", "graft-flashinfer-aot"]}
        },
    }
    assert make_plan("sm90").facts()["size_budget"] == {"total": None, "components": {}}
