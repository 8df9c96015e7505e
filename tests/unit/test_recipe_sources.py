"""Recipes with sources of their own: what is refused, where, and with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import OPEN, PROJECT, RECIPE, Data, Edit, commit, edited, make_project, write_project
from hypothesis import given
from hypothesis import strategies as st

from graft.arch import select
from graft.component import BUILD_NAMES, KEYS_OF, SOURCES, Component
from graft.errors import BadInput
from graft.paths import Paths
from graft.project import load_project
from graft.recipe import load_recipe, recipe_names
from graft.sources import host_of, registry_of

BOOTSTRAP = {"suite": "bookworm", "pockets": ["bookworm"]}
ROOT = Path(__file__).parents[2]
SHELL = [
    "$(id)",
    "`id`",
    "a b",
    "a;id",
    "a|b",
    "a&b",
    'a"b',
    "a'b",
    "a\\b",
    "a\nb",
    "a\n",
    "a>b",
    "a*",
    "a\0b",
    "${A}",
    "é",
]


def refused(tmp_path: Path, edit: Edit, base: Data = OPEN) -> BadInput:
    name = base["recipe"]
    paths = write_project(tmp_path, recipes={name: edited(base, edit)})
    with pytest.raises(BadInput) as caught:
        load_recipe(paths, make_project(), name)
    assert caught.value.exit_code == 2
    file, _, line = str(caught.value.where).rpartition(":")
    assert file == str(paths.recipe(name))
    assert int(line) >= 1
    return caught.value


def of(name: str, key: str, value: Any) -> Edit:
    """Sets a key of a component; `git.commit` is the key of its source."""

    def edit(recipe: Data) -> None:
        data = recipe["components"][name]
        *path, last = key.split(".")
        for step in path:
            data = data[int(step) if step.isdecimal() else step]
        data[last] = value

    return edit


def without(name: str, key: str) -> Edit:
    return lambda recipe: recipe["components"][name].pop(key)


def test_the_toy_recipe_is_a_good_one(tmp_path: Path) -> None:
    recipe = load_recipe(write_project(tmp_path, recipes={"open": OPEN}), make_project(), "open")
    assert {component.kind for component in recipe.components.values()} == set(SOURCES) - {"sdist"}
    assert recipe.components["cutlass"].is_source_only
    assert not recipe.components["vllm"].is_source_only


STRINGS: dict[str, tuple[str, str]] = {
    "git.url": ("vllm", "an https address"),
    "git.commit": ("vllm", "40 hex digits"),
    "git.ref": ("vllm", "the name of a branch"),
    "git.tree": ("vllm", "a git tree"),
    "git.pulls.0.head": ("vllm", "40 hex digits"),
    "git.pulls.0.url": ("vllm", "an https address"),
    "git.lost.0.patch": ("vllm", "a patch id"),
    "git.lost.0.sha256": ("vllm", "a sha256"),
    "archive.url": ("mathlib", "an https address"),
    "archive.sha256": ("mathlib", "a sha256"),
    "image.reference": ("flashinfer", "an image reference"),
    "image.digest": ("flashinfer", "a digest"),
    "version": ("cublas", "a version of a Debian package"),
}


@pytest.mark.parametrize("value", SHELL)
@pytest.mark.parametrize("key", STRINGS)
def test_no_string_reaches_a_shell_unvalidated(tmp_path: Path, key: str, value: str) -> None:
    name, words = STRINGS[key]
    what = refused(tmp_path, of(name, key, value)).what
    assert f"components.{name}.{key}: " in what
    assert words in what


@pytest.mark.parametrize("value", SHELL)
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cublas", "apt"),
        ("flashinfer", "image.paths"),
        ("vllm", "needs"),
        ("flashinfer", "provides"),
        ("torch", "index"),
    ],
)
def test_nor_does_a_name(tmp_path: Path, name: str, key: str, value: str) -> None:
    listed: Any = value if key in ("provides", "index") else [value]
    assert f"components.{name}.{key}" in refused(tmp_path, of(name, key, listed)).what


#: A value stands in quotes, where a semicolon ends nothing.
VALUES = [value for value in SHELL if value not in ("a b", "a;id")]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "place", ["build_env", "launch", "keep_env", "drop_env", "sources", "args", "tags", "published"]
)
def test_nor_does_anything_of_the_release(tmp_path: Path, place: str, value: str) -> None:
    edits: dict[str, Edit] = {
        "build_env": of("vllm", "build_env", {"A": value}),
        "sources": of("vllm", "sources", {value: "cutlass"}),
        "launch": lambda r: r["launch"].update(env={"A": value}),
        "args": lambda r: r["launch"].update(args=[value]),
        "keep_env": lambda r: r.update(keep_env=[value]),
        "drop_env": lambda r: r.update(drop_env=[value]),
        "tags": lambda r: r.update(tags=[f"name/image:{value}"]),
        "published": lambda r: r.update(published={"tag": f"name/image:{value}"}),
    }
    assert place.replace("args", "launch.args") in refused(tmp_path, edits[place]).what


@pytest.mark.parametrize(
    "url",
    [
        "http://git.invalid/x",
        "ssh://git.invalid/x",
        "git@git.invalid:x",
        "file:///etc",
        "https://user:secret@git.invalid/x",
        "https://git.invalid/../x",
        "https://git.invalid/a/..",
        "https://git.invalid/x?y=z",
        "https://git.invalid/x#y",
        "https://git.invalid",
        "https://git.invalid/%2e%2e/x",
        "https:///x",
        "-u",
    ],
)
def test_an_address_is_https_without_credentials(tmp_path: Path, url: str) -> None:
    assert "is not an https address" in refused(tmp_path, of("vllm", "git.url", url)).what


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(of("vllm", "git.commit", "main"), "a branch, a tag and an abbreviation can move", id="branch"),
        pytest.param(of("vllm", "git.commit", "5df63a720"), "40 hex digits", id="abbreviation"),
        pytest.param(of("vllm", "git.commit", commit("A")), "lower case", id="upper-case"),
        pytest.param(of("vllm", "git.commit", 5), "quote it", id="commit-number"),
        pytest.param(of("vllm", "git.pulls", [{}]), "give its number, its head or both", id="nothing-of-a-pull"),
        pytest.param(of("vllm", "git.pulls", [{"number": 0}]), "number", id="pull-zero"),
        pytest.param(of("vllm", "git.pulls", [{"number": "31"}]), "number", id="pull-text"),
        pytest.param(
            of("vllm", "git.pulls", [{"number": 1}, {"number": 1}]), "pull request 1 is listed twice", id="twice"
        ),
        pytest.param(
            of("vllm", "git.pulls", [{"number": 1, "head": commit("1")}, {"number": 2, "head": commit("1")}]),
            f"head {commit('1')} is listed twice",
            id="head-twice",
        ),
        pytest.param(of("vllm", "git.branch", "main"), "unknown key 'components.vllm.git.branch'", id="key-of-git"),
        pytest.param(of("vllm", "git.comit", "1"), "did you mean 'commit'?", id="typo"),
        pytest.param(of("vllm", "git", "https://git.invalid/x"), "components.vllm.git", id="git-as-text"),
        pytest.param(
            of("mathlib", "archive", {"url": "https://a.invalid/x"}),
            "missing key 'components.mathlib.archive.sha256'",
            id="no-hash",
        ),
        pytest.param(without("mathlib", "version"), "missing key 'components.mathlib.version'", id="archive-version"),
        pytest.param(of("flashinfer", "image.paths", []), "components.flashinfer.image.paths", id="no-path"),
        pytest.param(of("flashinfer", "image.paths", ["opt"]), "an absolute path", id="relative"),
        pytest.param(of("flashinfer", "image.paths", ["/a/../b"]), "an absolute path", id="dotdot"),
        pytest.param(
            of("flashinfer", "image.reference", "reg.invalid/x@sha256:1"), "its digest is a key of its own", id="at"
        ),
        pytest.param(of("flashinfer", "image.digest", "b" * 64), "sha256: and 64 hex digits", id="digest"),
        pytest.param(without("flashinfer", "provides"), "give provides", id="image-provides"),
        pytest.param(without("vllm", "provides"), "give provides", id="build-provides"),
        pytest.param(of("cutlass", "provides", "cutlass"), "provides belongs to a build or to an image", id="provides"),
        pytest.param(
            of("numba", "provides", "numba"), "provides says nothing of a component from wheel", id="wheel-provides"
        ),
        pytest.param(
            of("cublas", "overrides", "torch"), "overrides says nothing of a component from apt", id="apt-overrides"
        ),
        pytest.param(of("cublas", "apt", []), "components.cublas.apt", id="no-package"),
        pytest.param(of("cublas", "version", ">=13"), "a version of a Debian package", id="apt-range"),
        pytest.param(of("nccl", "version", "13.4.1.2-1"), "canonical form", id="debian-version-of-a-wheel"),
        pytest.param(of("nccl", "index", "second"), "index says nothing of a component from git", id="git-index"),
        pytest.param(of("nccl", "commit", commit("1")), "commit says nothing of a component from git", id="git-commit"),
        pytest.param(of("torch", "index", "fourth"), "index 'fourth' is not in build.yaml: second, third", id="index"),
        pytest.param(of("torch", "version", "2.12.0-cu132"), "is not a version", id="local-version"),
        pytest.param(
            of("vllm", "sources", {"A": "nothing"}), "A is 'nothing', which is no component here", id="sources"
        ),
        pytest.param(
            of("vllm", "sources", {"A": "numba", "B": "cutlass", "C": "mathlib"}),
            "which has no source tree: wheel",
            id="wheel-source",
        ),
        pytest.param(
            of("vllm", "sources", {"CUDA_HOME": "cutlass", "M": "mathlib"}),
            "remove CUDA_HOME: every build is told it",
            id="told",
        ),
        pytest.param(of("vllm", "build_env", {"MAX_JOBS": "4"}), "remove MAX_JOBS", id="jobs"),
        pytest.param(
            of("vllm", "build_env", {"TORCH_CUDA_ARCH_LIST": "9.0"}), "remove TORCH_CUDA_ARCH_LIST", id="arch-list"
        ),
        pytest.param(of("cutlass", "build_env", {"A": "1"}), "build_env belongs to a build kind", id="no-build"),
        pytest.param(of("vllm", "needs", ["numba"]), "needs 'numba', which no build makes", id="needs-wheel"),
        pytest.param(of("vllm", "needs", ["b12x", "b12x"]), "needs b12x twice", id="needs-twice"),
        pytest.param(of("vllm", "needs", ["x"]), "needs 'x', which is no component here", id="needs-nothing"),
        pytest.param(of("b12x", "needs", ["vllm"]), "it has to be there before its own build", id="cycle"),
        pytest.param(of("vllm", "sources", {}), "nothing is built from it", id="unused-source"),
        pytest.param(of("cutlass", "arches", ["sm90"]), "'cutlass', which is not there on all", id="source-elsewhere"),
        pytest.param(of("b12x", "arches", ["sm90"]), "needs 'b12x', which is not there on all", id="need-elsewhere"),
        pytest.param(of("vllm", "family", "yes"), "family", id="family-text"),
        pytest.param(
            lambda r: (r.update(cuda="12.8"), of("vllm", "family", True)(r)),
            "sm120 with CUDA 12.8: code for the family needs CUDA 12.9",
            id="family-cuda",
        ),
        pytest.param(
            lambda r: (r.update(arches=["sm90"]), of("vllm", "family", True)(r)),
            "a family form, which its row",
            id="family-arch",
        ),
        pytest.param(of("numba", "family", True), "family says nothing of a component from wheel", id="family-wheel"),
        pytest.param(of("vllm", "build", "cmake"), "unknown build kind 'cmake'", id="kind"),
        pytest.param(lambda r: r.update(unlocked="true"), "unlocked", id="unlocked-text"),
        pytest.param(lambda r: r.pop("date"), "give date", id="no-date"),
        pytest.param(lambda r: r.update(date="21.06.2026"), "date", id="date"),
        pytest.param(lambda r: r.update(release="R 1"), "release", id="release"),
        pytest.param(lambda r: r.update(patches=["vllm/x"]), "an unlocked recipe has none", id="patches"),
        pytest.param(
            lambda r: r.update(drop_env=[], keep_env=["LD_LIBRARY_PATH"]),
            "its image sets NCCL_GRAPH_FILE: name it",
            id="env",
        ),
        pytest.param(
            lambda r: r.update(keep_env=["LD_LIBRARY_PATH", "B"]), "the base's env in build.yaml has no B", id="keep"
        ),
        pytest.param(
            lambda r: r.update(keep_env=["LD_LIBRARY_PATH", "NCCL_GRAPH_FILE"]),
            "NCCL_GRAPH_FILE is in drop_env too",
            id="both",
        ),
        pytest.param(
            lambda r: r.update(keep_env=["LD_LIBRARY_PATH", "NCCL_GRAPH_FILE"], drop_env=["B"]),
            "its value is not in build.yaml",
            id="value",
        ),
        pytest.param(
            lambda r: r.update(drop_env=["NCCL_GRAPH_FILE"] * 2), "NCCL_GRAPH_FILE is listed twice", id="drop-twice"
        ),
        pytest.param(lambda r: r["env"].update(LD_LIBRARY_PATH="/x"), "is set by the recipe's env", id="set-and-kept"),
        pytest.param(
            lambda r: r.update(base="debian12", keep_env=[]), "drop_env: a bootstrap base sets nothing", id="bootstrap"
        ),
        pytest.param(
            lambda r: r.update(base="debian12", keep_env=[], drop_env=[]),
            "apt adds to a base image",
            id="apt-bootstrap",
        ),
        pytest.param(lambda r: r.update(published={}), "give a tag, a digest or both", id="nothing-published"),
        pytest.param(lambda r: r.update(published={"digest": "sha256:1"}), "published.digest", id="published-digest"),
        pytest.param(lambda r: r.update(published={"tag": "no-tag"}), "a tagged reference", id="published-tag"),
        pytest.param(lambda r: r.update(tags=["{recipe}"]), "a template such as", id="template"),
        pytest.param(lambda r: r["measured"][0].update(samples=0), "measured.0.samples", id="samples"),
        pytest.param(lambda r: r["measured"][0].update(mean=-1.0), "measured.0.mean", id="negative"),
        pytest.param(lambda r: r["measured"][0].update(mean="128"), "measured.0.mean", id="mean-text"),
        pytest.param(
            lambda r: r["measured"][0].update(mean=200.0), "200.0 does not lie between min 126.17 and max", id="order"
        ),
        pytest.param(
            lambda r: [r["measured"][0].pop(k) for k in ("mean", "median")], "give a mean or a median", id="no-mean"
        ),
        pytest.param(lambda r: r["measured"][0]["control"].pop("image"), "measured.0.control.image", id="control"),
        pytest.param(lambda r: r["measured"][0].update(cjk=-1), "measured.0.cjk", id="cjk"),
        pytest.param(lambda r: r["launch"].update(argv=[]), "did you mean 'args'?", id="launch-key"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, edit: Edit, says: str) -> None:
    assert says in refused(tmp_path, edit).what


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(lambda r: None, "base: its image has no digest in build.yaml", id="base"),
        pytest.param(
            lambda r: r["components"]["flashinfer"]["image"].pop("digest"),
            "an image without digest can move",
            id="image",
        ),
        pytest.param(of("vllm", "git.pulls", [{"number": 9}]), "vllm: pull 9 has no head", id="pull"),
        pytest.param(lambda r: None, "vllm: patch topk-scores can be fetched by nobody", id="lost"),
    ],
)
def test_what_floats_must_be_marked(tmp_path: Path, edit: Edit, says: str) -> None:
    def locked(recipe: Data) -> None:
        del recipe["unlocked"]
        edit(recipe)

    assert says in refused(tmp_path, locked).what


def test_what_a_lock_could_name_needs_no_mark(tmp_path: Path) -> None:
    def edit(recipe: Data) -> None:
        for key in ("unlocked", "drop_env", "keep_env"):
            del recipe[key]
        recipe["base"] = "foundation"
        del recipe["components"]["vllm"]["git"]["lost"]

    paths = write_project(tmp_path, recipes={"open": edited(OPEN, edit)})
    assert not load_recipe(paths, make_project(), "open").unlocked


def test_a_build_is_told_its_architecture_by_nobody_else() -> None:
    project = make_project()
    assert set(select(project.arches, "sm120").environment()) <= BUILD_NAMES


@pytest.mark.parametrize("kind", SOURCES)
def test_every_key_of_a_component_is_read_for_some_kind_of_source(kind: str) -> None:
    known = set(Component.model_fields)
    assert KEYS_OF[kind] <= known
    assert set().union(*KEYS_OF.values()) | {*SOURCES, "version", "arches"} == known


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda p: p["bases"]["ubuntu"].pop("toolkit"), "a base image needs toolkit"),
        (lambda p: p["bases"]["ubuntu"].pop("image"), "give one of the two"),
        (lambda p: p["bases"]["ubuntu"].update(bootstrap=dict(BOOTSTRAP)), "give one of the two"),
        (lambda p: p["bases"]["debian12"].update(env={"A": "1"}), "a bootstrap base brings none of it"),
        (lambda p: p["bases"]["debian12"].update(venv="kept"), "a bootstrap base brings none of it"),
        (lambda p: p["bases"]["debian12"].update(runtime=[]), "a bootstrap base needs runtime"),
        (lambda p: p["bases"]["ubuntu"].update(venv="mine"), "bases.ubuntu.venv"),
        (lambda p: p["bases"]["ubuntu"].update(toolkit="usr"), "an absolute path inside the image"),
        (lambda p: p["bases"]["ubuntu"].update(env={"A": "$B"}), "bases.ubuntu.env.A"),
        (lambda p: p["bases"]["ubuntu"].update(env={"A B": "1"}), "bases.ubuntu.env"),
        (lambda p: p["bases"]["ubuntu"]["image"].update(reference="A B"), "an image reference such as"),
        (lambda p: p["bases"]["ubuntu"]["image"].update(digest="sha256:0"), "a digest: sha256:"),
        (lambda p: p.update(indexes={"second": "ftp://x"}), "indexes.second: expected an http or https address"),
        (lambda p: p.update(indexes={"Second": None}), "indexes"),
    ],
)
def test_a_wrong_base_or_index_is_refused(tmp_path: Path, edit: Edit, says: str) -> None:
    paths = write_project(tmp_path, edited(PROJECT, edit))
    with pytest.raises(BadInput) as caught:
        load_project(paths.build_yaml)
    assert says in caught.value.what


def test_recipes_of_one_origin_lie_in_a_folder(tmp_path: Path) -> None:
    paths = write_project(tmp_path)
    (paths.recipes / "others").mkdir()
    (paths.recipes / "others" / "more.yaml").write_text(
        paths.recipe("toy").read_text().replace("recipe: toy", "recipe: more")
    )
    assert recipe_names(paths) == ["more", "toy"]
    assert load_recipe(paths, make_project(), "more").recipe == "more"
    (paths.locks / "x.yaml").write_text("lock: 1")
    assert recipe_names(paths) == ["more", "toy"]
    (paths.recipes / "others" / "toy.yaml").write_text("recipe: toy")
    with pytest.raises(BadInput, match=r"two recipes are named toy: recipes/(others/)?toy\.yaml and"):
        recipe_names(paths)


def test_a_recipe_of_before_says_what_it_said(tmp_path: Path) -> None:
    recipe = load_recipe(write_project(tmp_path), make_project(), "toy")
    assert recipe.model_dump(mode="json", exclude_defaults=True) == {k: v for k, v in RECIPE.items() if k != "waivers"}


@pytest.mark.parametrize(
    ("reference", "host"),
    [
        ("nvidia/cuda:13.2.1", "registry-1.docker.io"),
        ("debian", "registry-1.docker.io"),
        ("nvcr.io/nvidia/pytorch:26.07-py3", "nvcr.io"),
        ("localhost:5000/x", "localhost:5000"),
        ("localhost/x", "localhost"),
    ],
)
def test_who_serves_a_reference(reference: str, host: str) -> None:
    assert registry_of(reference) == host


@given(st.from_regex(r"[a-z0-9.-]{1,20}(:[0-9]{1,5})?", fullmatch=True), st.text("abc/", max_size=9))
def test_the_host_of_an_address(host: str, path: str) -> None:
    assert host_of(f"https://{host}/{path}") == host


# The reference releases, as published


@pytest.mark.parametrize(
    "name", [n for n in recipe_names(Paths(ROOT)) if Paths(ROOT).recipe(n).parent.name == "reference"]
)
def test_a_reference_recipe_is_for_sm120_and_marked(name: str) -> None:
    paths = Paths(ROOT)
    recipe = load_recipe(paths, load_project(paths.build_yaml), name)
    assert recipe.unlocked
    assert recipe.arches == ("sm120",)
    assert not paths.lock(name).exists()


def test_the_facts_of_the_reference_releases() -> None:
    """Of public release notes and locks: counts and results that a slip of the pen would change."""
    paths = Paths(ROOT)
    project = load_project(paths.build_yaml)
    facts = {}
    for name in (
        "black-benediction",
        "dark-devotion",
        "gilded-gnosis-v20",
        "infernal-invocation",
        "kimi-k3-upstream-aligned",
    ):
        found = load_recipe(paths, project, name).components
        facts[name] = [
            (c, s.commit[:7], (s.tree or "")[:7], len(s.pulls)) for c in ("vllm", "b12x") if (s := found[c].git)
        ]
    assert facts == {
        "black-benediction": [("vllm", "bb6c5b7", "", 0), ("b12x", "d90d89c", "", 0)],
        "dark-devotion": [("vllm", "df8ad3b", "", 1), ("b12x", "5af873a", "", 0)],
        "gilded-gnosis-v20": [("vllm", "e2666d9", "4d006a4", 21), ("b12x", "7cecbb2", "cd3ce19", 3)],
        "infernal-invocation": [("vllm", "6dc2f51", "f0fa1ce", 28), ("b12x", "c25cdba", "75787c7", 7)],
        "kimi-k3-upstream-aligned": [("vllm", "e08d796", "e755f87", 0), ("b12x", "b8c7153", "2d466e3", 0)],
    }
