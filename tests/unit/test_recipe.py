"""Recipes: what is refused, where, and with which cure."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import RECIPE, Edit, edited, make_project, make_recipe, write_project

from graft.errors import BadInput
from graft.paths import Paths
from graft.project import load_project
from graft.recipe import bytes_of, load_recipe, recipe_names, select_arch

ROOT = Path(__file__).parents[2]


def refused(tmp_path: Path, edit: Edit) -> BadInput:
    paths = write_project(tmp_path, recipes={"toy": edited(RECIPE, edit)})
    with pytest.raises(BadInput) as caught:
        load_recipe(paths, make_project(), "toy")
    problem = caught.value
    assert problem.exit_code == 2
    file, _, line = str(problem.where).rpartition(":")
    assert file == str(paths.recipe("toy"))
    assert int(line) >= 1
    return problem


def component(name: str, **facts: object) -> Edit:
    return lambda recipe: recipe["components"][name].update(facts)


def env(value: object, key: str = "A") -> Edit:
    return lambda recipe: recipe["env"].update({key: value})


def test_the_projects_own_recipes() -> None:
    paths = Paths(ROOT)
    project = load_project(paths.build_yaml)
    assert project.recipe in recipe_names(paths)
    for name in recipe_names(paths):
        assert load_recipe(paths, project, name).recipe == name


def budget(**limits: object) -> Edit:
    return lambda recipe: recipe.update(size_budget=limits, smoke=["core", "size"])


def profile(name: str = "tp8", **fields: object) -> Edit:
    made = {"args": ["--tensor-parallel-size", "8"], **fields}
    return lambda recipe: recipe.update(profiles={name: made}, smoke=["core", "start"])


def test_a_budget_is_in_decimal_units() -> None:
    assert [bytes_of(text) for text in ("9.5GB", "1.234MB", "900kB")] == [9_500_000_000, 1_234_000, 900_000]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(lambda r: r.update(recipe="other"), "'other' stands in a file named toy.yaml", id="other-name"),
        pytest.param(lambda r: r.update(base="debian11"), "'debian11' is not in build.yaml: debian12", id="base"),
        pytest.param(lambda r: r.update(arches=["sm91"]), "unknown architecture 'sm91'", id="arch"),
        pytest.param(lambda r: r.update(arches=[]), "arches", id="no-arch"),
        pytest.param(lambda r: r.update(cuda=13.0), 'YAML reads 13.0 as a number; quote it: "13.0"', id="cuda"),
        pytest.param(lambda r: r.update(patches=["sglang/x"]), "no component 'sglang' in this recipe", id="patch"),
        pytest.param(lambda r: r["patches"].append("vllm/defaults"), "vllm/defaults is listed twice", id="twice"),
        pytest.param(lambda r: r.update(patches=["../x"]), "patches.0", id="patch-path"),
        pytest.param(lambda r: r.update(patches=["vllm/../x"]), "patches.0", id="patch-path-inside"),
        pytest.param(lambda r: r.update(smoke=[]), "smoke", id="no-smoke"),
        pytest.param(lambda r: r.update(smoke=["../core"]), "smoke.0", id="smoke-path"),
        pytest.param(lambda r: r.update(summary="a\nb"), "summary", id="summary"),
        pytest.param(lambda r: r.update(archs=["sm90"]), "unknown key 'archs'; did you mean 'arches'?", id="key"),
        pytest.param(component("vllm", version=12.1), 'YAML reads 12.1 as a number; quote it: "12.1"', id="version"),
        pytest.param(component("vllm", version=">=1"), "a pin is exact, without an operator", id="operator"),
        pytest.param(component("vllm", version="1.0-post1"), "canonical form: '1.0.post1'", id="canonical"),
        pytest.param(component("vllm", version="1.0; id"), "is not a version", id="version-shell"),
        pytest.param(component("vllm", allow="newest"), "'newest' is no range of versions", id="allow-word"),
        pytest.param(component("vllm", allow=""), "does not allow the version it stands beside", id="allow-empty"),
        pytest.param(component("vllm", allow="<0.32"), "does not allow the version it stands beside", id="allow-pin"),
        pytest.param(component("vllm", commit="5DF63A7"), "commit", id="commit-case"),
        pytest.param(component("vllm", commit="5df63"), "commit", id="commit-short"),
        pytest.param(component("vllm", commit=12345678), 'quote it: "12345678"', id="commit-number"),
        pytest.param(component("vllm", verison="1"), "did you mean 'version'?", id="component-key"),
        pytest.param(component("vllm", wheel="VLLM"), "components.vllm.wheel", id="distribution-case"),
        pytest.param(component("vllm", wheel="vllm[x]"), "components.vllm.wheel", id="distribution-extra"),
        pytest.param(component("vllm", sdist="vllm"), "exactly one source of wheel, sdist", id="two-sources"),
        pytest.param(lambda r: r["components"]["vllm"].pop("wheel"), "found none", id="no-source"),
        pytest.param(component("vllm", build="python"), "a wheel is installed as it is", id="wheel-build"),
        pytest.param(
            lambda r: [r["components"]["flashinfer"].pop(k) for k in ("build", "modules")],
            "nothing is built from it: give build, or name it in the sources",
            id="sdist",
        ),
        pytest.param(
            lambda r: r["components"].update(headers={"sdist": "headers", "version": "1.0", "overrides": "torch"}),
            "overrides belongs to what is installed",
            id="overriding-source",
        ),
        pytest.param(component("vllm", build_requires=["ninja"]), "build_requires belongs to a", id="build-needs"),
        pytest.param(component("flashinfer", build_requires=["a b"]), "is not a requirement such as", id="build-need"),
        pytest.param(component("flashinfer", build_requires=["a @ https://x"]), "a name and a version", id="build-url"),
        pytest.param(component("flashinfer", build="cmake"), "unknown build kind 'cmake': flashinfer-aot", id="kind"),
        pytest.param(component("vllm", modules=["a"]), "modules belong to a build kind", id="modules"),
        pytest.param(component("flashinfer", modules=["a;id"]), "components.flashinfer.modules.0", id="module"),
        pytest.param(component("nccl", overrides="tourch"), "overrides 'tourch', which is no component", id="over"),
        pytest.param(component("b12x", arches=["sm91"]), "b12x: unknown architecture 'sm91'", id="component-arch"),
        pytest.param(component("vllm", wheel="torch"), "vllm: torch is already component 'torch'", id="one-owner"),
        pytest.param(lambda r: r["constraints"].append({"require": "a", "because": "b"}), "a name and a", id="bound"),
        pytest.param(
            lambda r: r["constraints"].append({"require": "a @ https://x", "because": "b"}), "constraints.1", id="url"
        ),
        pytest.param(lambda r: r["constraints"].append({"require": "a==1"}), "'constraints.1.because'", id="because"),
        pytest.param(env("$(id)"), "env.A", id="env-command"),
        pytest.param(env("${HOME}"), "env.A", id="env-variable"),
        pytest.param(env("`id`"), "env.A", id="env-backtick"),
        pytest.param(env('a"b'), "env.A", id="env-quote"),
        pytest.param(env("a'b"), "env.A", id="env-single-quote"),
        pytest.param(env("a\\b"), "env.A", id="env-backslash"),
        pytest.param(env("a\nRUN id"), "env.A", id="env-newline"),
        pytest.param(env("a\n"), "env.A", id="env-last-newline"),
        pytest.param(env(1), 'quote it: "1"', id="env-number"),
        pytest.param(env(True), "YAML reads this as true or false; quote it", id="env-bool"),
        pytest.param(env("x", "A B"), "env.A B", id="env-key"),
        pytest.param(env("x", "A=B"), "env.A=B", id="env-key-equals"),
        pytest.param(budget(total="9 GB"), "'9 GB' is not a size such as 9.5GB (units: kB, MB, GB)", id="budget-unit"),
        pytest.param(budget(total=9), "size_budget.total: 9 has no unit: write it as 9.5GB", id="budget-number"),
        pytest.param(lambda r: r.update(arches=[]), "arches: at least 1 expected, found 0", id="no-architecture"),
        pytest.param(lambda r: r.update(arches="sm90"), "arches: a list is expected", id="no-list"),
        pytest.param(lambda r: r.update(env=["A"]), "env: a mapping is expected", id="no-mapping"),
        pytest.param(lambda r: r.update(summary=""), "'' is not one line of text: it says nothing", id="no-sentence"),
        pytest.param(budget(), "give total, components, or both", id="budget-empty"),
        pytest.param(budget(components={"sglang": "1GB"}), "no component 'sglang'", id="budget-component"),
        pytest.param(lambda r: r.update(size_budget={"total": "9GB"}), "add size to smoke", id="budget-not-held"),
        pytest.param(lambda r: r.update(smoke=["core", "size"]), "size holds a budget", id="no-budget"),
        pytest.param(lambda r: r.update(profiles={"tp8": {}}), "add start to smoke", id="profiles-not-read"),
        pytest.param(profile(arches=["sm89"]), "'sm89' is no architecture of this recipe", id="profile-arch"),
        pytest.param(profile(arches=[]), "profiles.tp8.arches", id="profile-arches"),
        pytest.param(profile(model="GLM 5"), "a model such as", id="profile-model"),
        pytest.param(profile(args=["$(id)"]), "profiles.tp8.args", id="profile-args"),
        pytest.param(profile("launch"), "launch is the name of the key", id="profile-name"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, edit: Edit, says: str) -> None:
    assert says in refused(tmp_path, edit).what


def test_the_line_is_that_of_the_finding(tmp_path: Path) -> None:
    problem = refused(tmp_path, lambda r: r.update(patches=["vllm/defaults", "sglang/x"]))
    lines = (tmp_path / "recipes/toy.yaml").read_text().splitlines()
    assert "sglang/x" in lines[int(str(problem.where).rpartition(":")[2]) - 1]


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    def edit(recipe: dict[str, object]) -> None:
        recipe.update(base="debian11", arches=["sm90", "sm91"], patches=["sglang/x"])

    what = refused(tmp_path, edit).what
    for part in ("debian11", "sm91", "sglang", "and 2 more"):
        assert part in what


@pytest.mark.parametrize(
    "name", ["../toy", "a/b", "$(id)", "`id`", "a b", "Toy", "", ".", "toy\n", "a;id", "-rf", "a" * 64, "a\0b"]
)
def test_a_name_that_is_no_recipe_name_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_recipe(write_project(tmp_path), make_project(), name)
    assert (caught.value.exit_code, caught.value.where) == (2, "RECIPE")
    assert caught.value.what == f"{name!r} is not a recipe name"
    assert "ls recipes" in str(caught.value.cure)


def test_a_recipe_that_is_not_there_suggests_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_recipe(write_project(tmp_path), make_project(), "tov")
    assert (caught.value.what, caught.value.cure) == ("file not found", "did you mean toy.yaml?")


def test_an_architecture_the_recipe_does_not_list_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        select_arch(make_recipe(), make_project(), "sm100", "ARCH")
    assert (caught.value.exit_code, caught.value.where) == (2, "ARCH")
    assert caught.value.what == "recipe toy is not made for sm100"
    assert "sm90, sm120" in str(caught.value.cure)


def test_an_architecture_that_is_too_new_for_the_cuda_is_refused() -> None:
    recipe = make_recipe(lambda r: r.update(cuda="12.9", arches=["sm110"]))
    with pytest.raises(BadInput, match=r"sm110 needs CUDA 13\.0 or newer, the recipe has 12\.9"):
        select_arch(recipe, make_project(), "sm110", "ARCH")


def test_an_unknown_architecture_is_refused_with_a_suggestion() -> None:
    with pytest.raises(BadInput) as caught:
        select_arch(make_recipe(), make_project(), "sm_90", "ARCH")
    assert "did you mean sm90?" in str(caught.value.cure)


def test_what_a_recipe_says_of_its_parts() -> None:
    recipe = make_recipe()
    assert list(recipe.components_on("sm90")) == ["torch", "nccl", "flashinfer", "vllm"]
    assert list(recipe.components_on("sm120")) == ["torch", "nccl", "flashinfer", "b12x", "vllm"]
    assert recipe.patches_of("flashinfer") == ("norm-wait",)
    assert recipe.patches_of("torch") == ()
    assert [name for name, c in recipe.components.items() if c.is_built] == ["flashinfer"]


@pytest.mark.parametrize("value", ["", "1", "a b", "/opt/x:/usr/bin", "k=v,w", "100%", "~", "a@b+c^d"])
def test_plain_env_values_are_taken(tmp_path: Path, value: str) -> None:
    paths = write_project(tmp_path, recipes={"toy": edited(RECIPE, env(value))})
    assert load_recipe(paths, make_project(), "toy").env["A"] == value


@pytest.mark.parametrize(
    ("named", "modules"),
    [
        (["norm", "topk"], ("norm", "topk")),
        (["minimal"], ("norm", "page", "rope")),
        (["serving"], ("cascade", "norm", "page", "quantization", "rope", "sampling", "topk")),
        (["minimal", "topk", "norm"], ("norm", "page", "rope", "topk")),
    ],
)
def test_a_set_of_modules_stands_for_those_in_it(named: list[str], modules: tuple[str, ...]) -> None:
    assert make_recipe(component("flashinfer", modules=named)).components["flashinfer"].modules == modules
    every = make_recipe(component("flashinfer", modules=["all"])).components["flashinfer"].modules
    assert set(modules) < set(every)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"modules": []}, "give modules: .*minimal, serving, all"),
        ({"build": "python", "modules": ["serving"]}, "remove modules: a build of the kind python"),
        ({"build_env": {"NVCC_APPEND_FLAGS": "-O1"}}, "remove build_env: a build of the kind flashinfer-aot"),
        ({"sources": {"CUTLASS_DIR": "vllm"}}, "remove sources"),
        ({"needs": ["vllm"]}, "remove needs"),
        ({"accepts": ["mla"]}, "remove accepts"),
        ({"family": True}, "remove family"),
    ],
)
def test_what_a_kind_does_nothing_with_is_refused(keys: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make_recipe(component("flashinfer", **keys))
    assert make_recipe(component("flashinfer", build="python", modules=[])).components["flashinfer"].modules == ()


#: Made up, and in two parts, so that nothing that looks for secrets finds one here.
TOKENS = {
    "a token of GitHub": "ghp" + "_" + "a1B2" * 10,
    "a token of GitLab": "glpat" + "-" + "a1B2" * 6,
    "a token of Hugging Face": "hf" + "_" + "a1B2" * 9,
    "a password in a URL": "https:" + "//user:word@example.invalid",
}


@pytest.mark.parametrize("shape", TOKENS)
def test_a_secret_is_refused_and_not_shown(tmp_path: Path, shape: str) -> None:
    token = TOKENS[shape]
    places: list[tuple[str, Edit]] = [
        ("env", lambda r: r["env"].update(MINE=token)),
        ("launch.env", lambda r: r.update(launch={"env": {"MINE": token}})),
        ("profiles.p.env", lambda r: r.update(smoke=["core", "start"], profiles={"p": {"env": {"MINE": token}}})),
        (
            "components.flashinfer.build_env",
            component("flashinfer", build="python", modules=[], build_env={"MINE": token}),
        ),
    ]
    for at, edit in places:
        said = refused(tmp_path / at, edit).what
        assert f"{at}: the value of MINE looks like {shape}" in said
        assert token not in said


def test_a_proxy_is_refused_and_a_plain_value_is_not(tmp_path: Path) -> None:
    said = refused(tmp_path, lambda r: r["env"].update(HTTPS_PROXY="http://proxy.invalid:3128")).what
    assert "env: the value of HTTPS_PROXY looks like a proxy" in said
    make_recipe(lambda r: r["env"].update(MINE="https://example.invalid/a", TOKENIZERS_PARALLELISM="false"))


@pytest.mark.parametrize(
    ("file", "says"),
    [("../x.so", "write the path without .."), ("a/../../x", "without .."), ("a/**/x.so", "stands for slashes too")],
)
def test_a_waiver_reaches_no_further_than_it_says(tmp_path: Path, file: str, says: str) -> None:
    waived = {"check": "core", "reason": "because", "until": "then"}
    assert says in refused(tmp_path, lambda r: r.update(waivers=[{**waived, "file": file}])).what
    make_recipe(lambda r: r.update(waivers=[{**waived, "file": "a..b/*/x.so"}]))
