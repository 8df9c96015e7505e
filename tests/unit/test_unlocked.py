"""Recipes without a lock: what is pinned, what floats, and what each key depends on."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from factories import OPEN, PROJECT, Data, Edit, commit, edited, make_open, make_project, write_project
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import BadInput
from graft.pins import Input, inputs_of_recipe
from graft.project import load_project
from graft.recipe import Recipe, load_recipe
from graft.unlocked import UnlockedPlan

HEX40 = st.text("0123456789abcdef", min_size=40, max_size=40)


def inputs(edit: Edit | None = None, project: Edit | None = None) -> dict[str, Input]:
    recipe = Recipe.model_validate(edited(OPEN, *[edit] if edit else []))
    found = inputs_of_recipe(make_project(*[project] if project else []), recipe, "sm120")
    assert len({item.name for item in found}) == len(found)
    return {item.name: item for item in found}


def component(name: str, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"][name].update(facts)


def git(name: str, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"][name]["git"].update(facts)


def test_every_input_has_a_state() -> None:
    assert {name: item.state for name, item in inputs().items()} == {
        "base": "floating",
        "torch": "unreachable",
        "numba": "floating",
        "nccl": "pinned",
        "cublas libcublas13": "floating",
        "cublas libcublas13-dev": "floating",
        "cutlass": "pinned",
        "mathlib": "pinned",
        "flashinfer": "pinned",
        "b12x": "pinned",
        "b12x tree": "pinned",
        "vllm": "pinned",
        "vllm pull 31": "pinned",
        "vllm pull 44": "pinned",
        "vllm tree": "pinned",
        "vllm patch topk-scores": "unreachable",
        "dependencies": "floating",
        "build requirements": "floating",
        "base packages": "floating",
        "builder packages": "floating",
        "uv": "floating",
    }
    assert inputs()["vllm pull 44"].address == "https://git.invalid/fork.git"
    assert inputs()["vllm patch topk-scores"].why == "nobody has it"
    assert inputs()["torch"].why.startswith("index second has no address in build.yaml; named by version")


@pytest.mark.parametrize(
    ("edit", "name", "state", "why"),
    [
        pytest.param(lambda r: r.update(base="foundation"), "base", "pinned", "", id="base-digest"),
        pytest.param(component("torch", index="third"), "torch", "floating", "named by version", id="index-address"),
        pytest.param(
            lambda r: r["components"]["flashinfer"]["image"].pop("digest"), "flashinfer", "floating", "by tag", id="tag"
        ),
        pytest.param(git("vllm", pulls=[{"number": 9}]), "vllm pull 9", "floating", "the tree that must", id="number"),
        pytest.param(git("b12x", pulls=[{"note": "n"}]), "b12x head 1", "unreachable", "n; never named", id="unnamed"),
        pytest.param(git("vllm", pulls=[{"head": commit("9")}]), f"vllm head {'9' * 9}", "pinned", "", id="head-alone"),
    ],
)
def test_what_pins_and_what_floats(edit: Edit, name: str, state: str, why: str) -> None:
    item = inputs(edit)[name]
    assert item.state == state
    assert item.why == why if not why else why in item.why


def test_without_a_tree_nothing_proves_a_moving_head() -> None:
    def edit(recipe: Data) -> None:
        recipe["components"]["vllm"]["git"].update(pulls=[{"number": 9}])
        del recipe["components"]["vllm"]["git"]["tree"]

    assert inputs(edit)["vllm pull 9"].why == "named by number, and the head of a pull request moves"


def test_the_image_says_what_floats() -> None:
    labels = make_open().labels()
    floating = labels["dev.graft.unlocked"].split(", ")
    assert {"base", "torch", "cublas libcublas13", "dependencies", "uv"} <= set(floating)
    assert not {"vllm", "vllm pull 31", "nccl", "flashinfer", "vllm patch topk-scores"} & set(floating)
    assert labels["dev.graft.component.vllm.commit"] == commit("5")
    assert labels["dev.graft.component.vllm.pulls"] == f"31@{commit('7')} 44@{commit('8')}"
    assert labels["dev.graft.patch.vllm.topk-scores"] == f"sha256:{'d' * 64}"
    assert labels["dev.graft.launch"] == "VLLM_DCP_SHARD_DRAFT=1 --max-num-seqs 4"
    assert labels["dev.graft.component.b12x.version"] == "0+g333333333"


def test_what_is_built_comes_after_what_it_is_built_from() -> None:
    planned = make_open()
    assert [b.name for b in planned.sources] == ["cutlass", "mathlib"]
    assert [b.name for b in planned.builds] == ["b12x", "flashinfer", "nccl", "vllm"]
    turned = make_open(recipe=lambda r: (component("vllm", needs=[])(r), component("b12x", needs=["vllm"])(r)))
    names = [b.name for b in turned.builds]
    assert names.index("vllm") < names.index("b12x")


def test_layers_are_grouped_as_with_a_lock() -> None:
    planned = make_open()
    assert [(layer.name, layer.wheels) for layer in planned.foundation] == [
        ("cuda", ()),
        ("torch", ("torch==2.12.0+cu132",)),
    ]
    assert [(layer.name, layer.wheels) for layer in planned.libraries] == [("python", ("numba==0.65.0",))]


def test_the_family_form_is_for_its_component_and_the_runtime_alone() -> None:
    planned = make_open(recipe=component("b12x", family=True))
    told = {b.name: b.environment.get("TORCH_CUDA_ARCH_LIST") for b in planned.builds}
    assert told == {"b12x": "12.0f", "flashinfer": None, "nccl": "12.0a", "vllm": "12.0a"}
    assert (planned.env["FLASHINFER_CUDA_ARCH_LIST"], planned.env["TORCH_CUDA_ARCH_LIST"]) == ("12.0f", "12.0a")
    assert make_open(recipe=component("flashinfer", family=False)).env["FLASHINFER_CUDA_ARCH_LIST"] == "12.0a"


def test_kept_environment_is_set_again_where_the_configuration_is_left_behind() -> None:
    planned = make_open()
    assert planned.kept_env == {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    assert planned.env["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64"
    assert "NCCL_GRAPH_FILE" not in planned.env


def test_references_come_out_of_templates() -> None:
    planned = make_open()
    assert planned.tag == f"graft:open-sm120-{planned.image.short}"
    assert planned.channels == ("graft:open-sm120", "name/image:open-5555555-topkscores-cu132-20260621")
    assert planned.epoch == 1782000000


def keys(planned: UnlockedPlan) -> dict[str, str]:
    made = {b.name: b.keyed.key for b in (*planned.sources, *planned.builds)}
    return {"image": planned.image.key, "gate": planned.gate.key, **made}


def changed(before: UnlockedPlan, after: UnlockedPlan) -> set[str]:
    one, other = keys(before), keys(after)
    return {name for name in one if one[name] != other.get(name)}


PLAN = make_open()
COMPILED = {"b12x", "nccl", "vllm"}


def pull(index: int, **facts: Any) -> Edit:
    return lambda recipe: recipe["components"]["vllm"]["git"]["pulls"][index].update(facts)


def lost(**facts: Any) -> Edit:
    return lambda recipe: recipe["components"]["vllm"]["git"]["lost"][0].update(facts)


def turn_pulls(recipe: Data) -> None:
    recipe["components"]["vllm"]["git"]["pulls"].reverse()


def without_record(recipe: Data) -> None:
    for name in ("published", "measured", "tags"):
        del recipe[name]


@pytest.mark.parametrize(
    ("part", "edit", "moves"),
    [
        # b12x is installed before vLLM is built, and cutlass is what vLLM is built from.
        pytest.param("recipe", git("b12x", commit=commit("0")), {"image", "b12x", "vllm"}, id="commit"),
        pytest.param("recipe", git("b12x", tree=commit("0")), {"image", "b12x", "vllm"}, id="tree"),
        pytest.param("recipe", git("cutlass", commit=commit("0")), {"image", "cutlass", "vllm"}, id="sub-source"),
        pytest.param("recipe", pull(0, head=commit("0")), {"image", "vllm"}, id="head"),
        pytest.param("recipe", turn_pulls, {"image", "vllm"}, id="order-of-heads"),
        pytest.param("recipe", lost(sha256="0" * 64), {"image", "vllm"}, id="lost-patch"),
        pytest.param(
            "recipe",
            lambda r: r["components"]["mathlib"]["archive"].update(sha256="0" * 64),
            {"image", "mathlib", "vllm"},
            id="archive",
        ),
        pytest.param(
            "recipe",
            lambda r: r["components"]["flashinfer"]["image"].update(digest="sha256:" + "0" * 64),
            {"image", "flashinfer"},
            id="image-digest",
        ),
        pytest.param(
            "recipe",
            lambda r: r["components"]["flashinfer"]["image"].update(paths=["/opt/other"]),
            {"image", "flashinfer"},
            id="image-path",
        ),
        pytest.param("recipe", component("cublas", version="13.4.1.3-1"), {"image", *COMPILED}, id="apt-version"),
        pytest.param("recipe", component("cublas", apt=["libcublas13"]), {"image", *COMPILED}, id="apt-name"),
        pytest.param("recipe", component("torch", version="2.12.1+cu132"), {"image", *COMPILED}, id="torch"),
        pytest.param("recipe", component("torch", index="third"), {"image"}, id="index"),
        pytest.param("recipe", component("numba", version="0.66.0"), {"image"}, id="library"),
        pytest.param("recipe", component("vllm", version="0.11.3"), {"image", "vllm"}, id="version-stamp"),
        pytest.param("recipe", component("vllm", build_env={"A": "2"}), {"image", "vllm"}, id="build-env"),
        pytest.param("recipe", component("vllm", needs=[]), {"image", "vllm"}, id="needs"),
        pytest.param("recipe", component("vllm", family=True), {"image", "vllm"}, id="family"),
        pytest.param("recipe", component("nccl", provides="nvidia-nccl-cu12"), {"image", "nccl"}, id="provides"),
        pytest.param("recipe", component("nccl", overrides="b12x"), {"image"}, id="overrides"),
        pytest.param("recipe", component("flashinfer", commit=commit("0")), {"image"}, id="recorded-commit"),
        pytest.param("recipe", lambda r: r["constraints"][0].update(require="a==1"), {"image", *COMPILED}, id="bound"),
        pytest.param("recipe", lambda r: r["env"].update(A="2"), {"image"}, id="env"),
        pytest.param("recipe", lambda r: r.update(drop_env=["NCCL_GRAPH_FILE", "B"]), {"image"}, id="drop-env"),
        pytest.param("recipe", lambda r: r["launch"].update(args=["--x"]), {"image"}, id="launch"),
        pytest.param("recipe", lambda r: r.update(release="r8"), {"image"}, id="release"),
        pytest.param("recipe", lambda r: r.update(summary="Another"), {"image"}, id="summary"),
        pytest.param("recipe", lambda r: r.update(smoke=["core", "jit"]), {"gate"}, id="smoke"),
        pytest.param(
            "recipe",
            lambda r: r.update(waivers=[{"check": "core", "file": "x", "reason": "r", "until": "u"}]),
            {"gate"},
            id="waiver",
        ),
        pytest.param(
            "recipe",
            lambda r: r.update(waivers=[{"check": "lint/pin-floating", "file": "x", "reason": "r", "until": "u"}]),
            set(),
            id="waiver-of-lint",
        ),
        pytest.param("recipe", lambda r: r.update(base="foundation", keep_env=[]), {"image", *COMPILED}, id="base"),
        pytest.param(
            "project",
            lambda p: p["bases"]["ubuntu"]["image"].update(digest="sha256:" + "0" * 64),
            {"image", *COMPILED},
            id="base-digest",
        ),
        pytest.param("project", lambda p: p["arches"]["sm120"].update(suffix=None), {"image", *COMPILED}, id="flags"),
        pytest.param(
            "project",
            lambda p: p["builds"]["python"].update(requires=["hatchling"]),
            {"image", *COMPILED},
            id="requires",
        ),
        # What says where, or for people, or of other things.
        pytest.param("recipe", git("vllm", url="https://other.invalid/vllm.git"), set(), id="url"),
        pytest.param("recipe", git("vllm", ref="main"), set(), id="ref"),
        pytest.param("recipe", pull(0, note="because"), set(), id="note"),
        pytest.param("recipe", pull(1, url="https://other.invalid/x.git"), set(), id="pull-url"),
        pytest.param("recipe", lost(because="it is gone"), set(), id="reason"),
        pytest.param(
            "recipe",
            lambda r: r["components"]["mathlib"]["archive"].update(url="https://o.invalid/m.tar.gz"),
            set(),
            id="mirror",
        ),
        pytest.param(
            "recipe",
            lambda r: r["components"]["flashinfer"]["image"].update(reference="o.invalid/w:2"),
            set(),
            id="tag",
        ),
        pytest.param("recipe", without_record, set(), id="record-of-the-release"),
        pytest.param("recipe", lambda r: r["constraints"][0].update(because="x"), set(), id="because"),
        pytest.param("recipe", lambda r: r["launch"].update(note="x"), set(), id="launch-note"),
        pytest.param("project", lambda p: p["indexes"].update(second="https://index.invalid/s"), set(), id="address"),
        pytest.param("project", lambda p: p["bases"]["debian12"].update(glibc="2.37"), set(), id="other-base"),
        pytest.param("project", lambda p: p["builds"]["python"].update(memory_gb=9), set(), id="memory"),
        pytest.param("project", lambda p: p.update(repository="other"), set(), id="repository"),
    ],
)
def test_a_key_changes_with_its_inputs_and_nothing_else(part: str, edit: Edit, moves: set[str]) -> None:
    def whole(data: Data) -> None:
        edit(data)
        if part == "recipe" and moves:
            # What was published may no longer come out of the templates.
            data.pop("published", None)

    assert changed(PLAN, make_open(**{part: whole})) == moves  # type: ignore[arg-type]


def test_a_pull_requests_number_is_a_label_and_no_source() -> None:
    assert changed(PLAN, make_open(recipe=pull(0, number=32))) == {"image"}


@pytest.mark.parametrize(
    ("files", "moves"),
    [
        ({"stages/source-git.j2": "x"}, {"image", "cutlass", *COMPILED}),
        ({"stages/source-archive.j2": "x"}, {"image", "mathlib", "vllm"}),
        ({"stages/build-make.j2": "x"}, {"image", "nccl"}),
        ({"stages/build-python.j2": "x"}, {"image", "b12x", "vllm"}),
        ({"stages/build-image.j2": "x"}, {"image", "flashinfer"}),
        ({"stages/base-image.j2": "x"}, {"image", *COMPILED}),
        ({"stages/overlay.j2": "x"}, set()),
    ],
)
def test_a_key_knows_the_files_of_its_stages(files: dict[str, str], moves: set[str]) -> None:
    assert changed(make_open(), make_open(sources=lambda s: s["templates"].update(files))) == moves


def shuffled(data: Any, chance: random.Random) -> Any:
    """The same data with every mapping in another order."""
    if isinstance(data, dict):
        names = list(data)
        chance.shuffle(names)
        return {name: shuffled(data[name], chance) for name in names}
    return [shuffled(item, chance) for item in data] if isinstance(data, list) else data


@given(st.integers())
def test_the_order_of_keys_is_no_input(seed: int) -> None:
    def edit(recipe: Data) -> None:
        turned = shuffled(copy.deepcopy(dict(recipe)), random.Random(seed))
        recipe.clear()
        recipe.update(turned)

    turned = make_open(recipe=edit)
    assert keys(turned) == keys(PLAN)
    assert [b.name for b in turned.builds] == [b.name for b in PLAN.builds]
    assert turned.labels() == PLAN.labels()


@given(HEX40, HEX40, HEX40)
def test_equal_pins_are_equal_keys(base: str, head: str, tree: str) -> None:
    def edit(recipe: Data) -> None:
        del recipe["published"]
        recipe["components"]["vllm"]["git"].update(commit=base, tree=tree, pulls=[{"number": 1, "head": head}])

    one, other = make_open(recipe=edit), make_open(recipe=edit)
    assert keys(one) == keys(other)
    assert one.image.key != PLAN.image.key
    assert keys(one)["b12x"] == keys(PLAN)["b12x"]


def test_comments_and_layout_are_no_input(tmp_path: Any) -> None:
    paths = write_project(tmp_path, recipes={"open": OPEN})
    project = load_project(paths.build_yaml)
    before = load_recipe(paths, project, "open")
    text = paths.recipe("open").read_text().replace("components:\n", "\n# a remark\ncomponents:   # another\n")
    paths.recipe("open").write_text(text)
    assert load_recipe(paths, project, "open") == before


def test_another_published_tag_than_the_templates_give_is_refused() -> None:
    with pytest.raises(BadInput, match="the templates give another: name/image:open-5555555-topkscores") as caught:
        make_open(recipe=lambda r: r["published"].update(tag="name/image:open-1"))
    assert caught.value.where == "recipes/open.yaml: published"


def test_the_toy_project_has_the_bases_of_these_tests() -> None:
    assert {"ubuntu", "foundation"} <= set(PROJECT["bases"])
