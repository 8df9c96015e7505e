"""`graft lint` on a copy of the real project: all findings of all recipes at once, in each form, with its exit code."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from graft.commands.image import image
from graft.commands.lint import Linted, as_sarif, check_new, lint, lint_project
from graft.commands.session import Session, open_session
from graft.console import Console
from graft.errors import BadInput
from graft.linting import RULES
from graft.lock import load_lock
from graft.paths import Paths
from graft.pins import inputs_of_recipe
from graft.recipe import load_recipe, recipe_of
from graft.yamlio import read

SOURCE = Path(__file__).parents[2]
NAME = "glm-dsa"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    root = tmp_path / "project"
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("build.yaml", "Makefile"):
        shutil.copy(SOURCE / file, root)
    for other in [*root.glob("recipes/*.yaml"), *root.glob("recipes/[!l]*/*.yaml")]:
        if other.stem != NAME:
            other.unlink()
    # The patches of its own alone: those of other recipes would be unused.
    for component in (root / "patches").iterdir():
        if f"{component.name}/" not in (root / "recipes" / f"{NAME}.yaml").read_text():
            shutil.rmtree(component)
    return Paths(root)


def session(paths: Paths, *, json_mode: bool = False) -> Session:
    return open_session(paths, Console(json_mode))


def linted(paths: Paths, *recipes: str) -> Linted:
    return lint_project(session(paths), recipes)


def rules(found: Linted) -> set[str]:
    """What was found, apart from the word that nothing was fetched here."""
    return {f.rule for f in found.findings if f.level != "note"}


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_project_as_it_is(paths: Paths) -> None:
    found = linted(paths)
    assert rules(found) == set()
    assert len(found.images) == 3
    assert {f.rule for f in found.findings} == {"files-conflict", "requires-mismatch", "operators-unrecorded"}
    assert all("run" in f.cure or "make fetch" in f.cure for f in found.findings)


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"# " + b"x" * 10_000_000, "larger than 1 MB"),
        (b"- {x: abcdef, y: [1, 2]}\n" * 400_000, "larger than 1 MB"),
        (b"recipe: bad\nsummary: caf\xe9\n", "not UTF-8"),
        (b"", "the file is empty"),
        (b"recipe: bad\nrecipe: bad\n", "duplicate key 'recipe' (first on line 1)"),
        (BOMB.encode(), "anchors and aliases are not allowed"),
        (b"recipe: [\n", "not valid YAML"),
        (b"[" * 5000, "not valid YAML"),
        (b"a\x00b: c\n", "not valid YAML"),
    ],
    ids=["big", "big-list", "latin-1", "empty", "duplicate", "bomb", "syntax", "brackets", "nul"],
)
def test_a_recipe_that_is_no_yaml_is_one_finding_and_the_others_are_linted(paths: Paths, raw: bytes, says: str) -> None:
    paths.recipe("bad").write_bytes(raw)
    started = time.process_time()
    found = linted(paths)
    assert time.process_time() - started < 10
    bad = [f for f in found.findings if f.recipe == "bad"]
    assert [(f.rule, f.file) for f in bad] == [("recipe-unreadable", "recipes/bad.yaml")]
    assert says in bad[0].message
    assert len(found.images) == 3
    assert rules(found) == {"recipe-unreadable"}, "who lists which patch is not known then"


def test_a_file_whose_name_is_no_recipe_name(paths: Paths) -> None:
    (paths.recipes / "Bad Name.yaml").write_text("recipe: x\n")
    found = [f for f in linted(paths).findings if f.level == "error"]
    assert [(f.rule, f.message) for f in found] == [("recipe-unreadable", "'Bad Name' is not a recipe name")]


def test_schema_errors_of_several_recipes_come_together(paths: Paths) -> None:
    for name in ("one", "two"):
        text = (
            paths.recipe(NAME)
            .read_text()
            .replace("recipe: glm-dsa", f"recipe: {name}")
            .replace("base: debian12", "base: debian11")
        )
        paths.recipe(name).write_text(
            text.replace('cuda: "13.0"', "cuda: 13.0") if name == "one" else text + "ptaches: []\n"
        )
    found = linted(paths)
    assert {(f.recipe, f.rule) for f in found.findings if f.level == "error"} == {
        ("one", "recipe-number"),
        ("two", "recipe-schema"),
    }
    assert len(found.images) == 3


SPOILS: dict[str, tuple[Callable[[Paths], None], str]] = {
    "missing": (lambda p: p.lock(NAME).unlink(), "lock-missing"),
    "stale": (lambda p: replaced(p.recipe(NAME), "cuda-python==13.*", "cuda-python==13.4.*"), "lock-stale"),
    "older": (lambda p: replaced(p.lock(NAME), "lock: 2", "lock: 1"), "lock-stale"),
    "newer": (lambda p: replaced(p.lock(NAME), "lock: 2", "lock: 99"), "lock-newer"),
    "of another": (lambda p: replaced(p.lock(NAME), "recipe: glm-dsa", "recipe: other"), "lock-other-recipe"),
    "edited": (lambda p: replaced(p.lock(NAME), "date: '2026-11-28'", "date: '2026-11-29'"), "lock-edited"),
    "requirements": (lambda p: replaced(p.requirements(NAME), "aiohttp==", "aiohttp=="[:-2] + "x=="), "lock-edited"),
    "no requirements": (lambda p: p.requirements(NAME).unlink(), "lock-stale"),
    "merge": (lambda p: replaced(p.lock(NAME), "packages:\n", "<<<<<<< HEAD\npackages:\n"), "lock-invalid"),
    "latin-1": (lambda p: p.lock(NAME).write_bytes(b"caf\xe9"), "lock-invalid"),
    "patch": (
        lambda p: replaced(p.patches / "vllm" / "series.yaml", "- id: mtp-indexer-scales", "- id: other"),
        "patch-series",
    ),
    "patch bytes": (
        lambda p: (p.patches / "vllm" / "mtp-indexer-scales.patch").write_bytes(b"no patch"),
        "patch-series",
    ),
    "no such patch": (lambda p: replaced(p.recipe(NAME), "vllm/mtp-indexer-scales", "vllm/nothing"), "patch-refused"),
    "no patches": (lambda p: shutil.rmtree(p.patches / "flashinfer"), "patch-refused"),
    "smoke": (lambda p: replaced(p.recipe(NAME), "smoke: [core,", "smoke: [cores,"), "recipe-smoke"),
    "literal": (lambda p: (p.scripts / "x.sh").write_text("export CUDAARCHS=90\n"), "arch-literal"),
    "makefile": (
        lambda p: replaced(p.root / "Makefile", "export ARCH", "export TORCH_CUDA_ARCH_LIST = 9.0a\nexport ARCH"),
        "arch-literal",
    ),
    "template": (
        lambda p: replaced(p.images / "stages" / "runtime.j2", "plan.labels()", "plan.nothing()"),
        "plan-refused",
    ),
    "channel": (lambda p: replaced(p.build_yaml, '"{recipe}-{arch}"', '"{nothing}"'), "plan-refused"),
    "suffix": (lambda p: replaced(p.build_yaml, '"9.0", suffix: a,', '"9.0",'), "arch-suffix"),
    "unused patch": (lambda p: replaced(p.recipe(NAME), "  - vllm/mtp-indexer-scales\n", ""), "patch-unused"),
    "waiver": (
        lambda p: replaced(
            p.recipe(NAME), "waivers:\n", "waivers:\n  - {check: lint/patch-ended, file: x, reason: a, until: b}\n"
        ),
        "waiver-unused",
    ),
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_spoiled_is_found_by_its_rule(paths: Paths, spoil: str) -> None:
    change, rule = SPOILS[spoil]
    change(paths)
    found = linted(paths)
    assert rule in rules(found)
    named = next(f for f in found.findings if f.rule == rule)
    assert (paths.root / named.file).exists() or spoil == "missing" or spoil == "no requirements", named
    assert named.cure


def test_a_patch_that_is_wrong_is_found_though_no_recipe_uses_it(paths: Paths) -> None:
    folder = paths.patches / "torch"
    folder.mkdir()
    (folder / "series.yaml").write_text("component: torch\npatches: []\n")
    (folder / "stray.patch").write_text("")
    found = linted(paths)
    assert {(f.rule, f.file) for f in found.findings if f.level == "error"} == {
        ("patch-series", "patches/torch/series.yaml")
    }
    assert len(found.images) == 3


def test_what_is_not_written_yet_is_held_to_the_rules(paths: Paths) -> None:
    made = session(paths)
    document, lock = read(paths.recipe(NAME)), load_lock(paths, NAME)
    recipe = recipe_of(document, made.project, NAME)
    check_new(made, document, recipe, lock)
    others = [
        pin.model_copy(update={"version": "0.27.0"}) if pin.name == "torchvision" else pin for pin in lock.packages
    ]
    with pytest.raises(BadInput, match=r"torchvision 0\.27\.0 is not of torch 2\.13\.0") as caught:
        check_new(made, document, recipe, lock.model_copy(update={"packages": tuple(others)}))
    assert "[group-torch]" in caught.value.what
    assert caught.value.cure


@pytest.mark.parametrize("path", sorted((SOURCE / "recipes" / "reference").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_without_a_lock_has_a_warning_for_each_input_that_is_not_pinned(path: Path) -> None:
    made = session(Paths(SOURCE))
    found = lint_project(made, [path.stem])
    recipe = load_recipe(made.paths, made.project, path.stem)
    inputs = inputs_of_recipe(made.project, recipe, recipe.arches[0])
    loose = sorted(f"{item.name} is {item.state}: {item.why}" for item in inputs if item.state != "pinned")
    assert sorted(f.message for f in found.findings) == loose
    assert {(f.rule, f.level) for f in found.findings} == {("pin-floating", "warning")}
    assert len(found.images) == len(recipe.arches)


def test_one_recipe_alone(paths: Paths) -> None:
    paths.recipe("bad").write_text("recipe: [\n")
    assert rules(linted(paths, NAME)) == set()
    assert rules(linted(paths, "bad")) == {"recipe-unreadable"}


@pytest.mark.parametrize("name", ["nothing", "../glm-dsa", "glm dsa"])
def test_a_recipe_that_is_asked_for_and_is_not_there_is_refused(paths: Paths, name: str) -> None:
    with pytest.raises(BadInput) as caught:
        lint(session(paths), [name])
    assert caught.value.cure


def test_people_see_findings_on_stderr_and_the_count_on_stdout(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    lint(session(paths))
    out, err = capsys.readouterr()
    assert out == "3 images plan and render; 0 errors, 0 warnings, 3 notes\n"
    replaced(paths.recipe(NAME), "arches: [sm90,", "arches: [sm90, 9.0a,")
    with pytest.raises(BadInput, match="lint found 1 error"):
        lint(session(paths))
    out, err = capsys.readouterr()
    assert out == "0 images plan and render; 1 error, 0 warnings, 0 notes\n"
    assert "recipes/glm-dsa.yaml:5: error: 9.0a is a tool's spelling" in err
    assert "[arch-grammar]\n  what to do: write sm90\n" in err


def test_warnings_do_not_fail(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(paths.patches / "vllm" / "series.yaml", 'version: "0.33.0"', 'version: "0.32.0"')
    lint(session(paths))
    out, err = capsys.readouterr()
    assert "0 errors, 1 warning" in out or "0 errors, 2 warnings" in out
    assert "[patch-ended]" in err


def test_json_holds_every_finding_also_when_there_is_none(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    lint(session(paths, json_mode=True))
    data = json.loads(capsys.readouterr().out)
    assert data["counts"] == {"error": 0, "warning": 0, "note": 3}
    assert len(data["images"]) == 3
    replaced(paths.recipe(NAME), "arches: [sm90,", "arches: [sm90, 9.0a,")
    with pytest.raises(BadInput):
        lint(session(paths, json_mode=True))
    data = json.loads(capsys.readouterr().out)
    finding = next(f for f in data["findings"] if f["level"] == "error")
    assert finding["rule"] == "arch-grammar"
    assert (finding["file"], finding["line"], finding["cure"]) == ("recipes/glm-dsa.yaml", 5, "write sm90")
    assert Linted(1, (), ()).as_dict() == {
        "images": [],
        "counts": {"error": 0, "warning": 0, "note": 0},
        "findings": [],
    }


def test_sarif_is_a_document_that_tools_take(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(paths.recipe(NAME), "arches: [sm90,", "arches: [sm90, 9.0a,")
    with pytest.raises(BadInput):
        lint(session(paths), sarif=True)
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert [r["id"] for r in run["tool"]["driver"]["rules"]] == list(RULES)
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [("arch-grammar", "error")]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("recipes/glm-dsa.yaml", 5)


def test_sarif_shows_what_is_waived_as_suppressed(paths: Paths) -> None:
    replaced(paths.patches / "vllm" / "series.yaml", 'version: "0.33.0"', 'version: "0.32.0"')
    recipe = yaml.safe_load(paths.recipe(NAME).read_text())
    recipe["waivers"].append({"check": "lint/patch-ended", "file": "vllm/*", "reason": "because", "until": "then"})
    paths.recipe(NAME).write_text(yaml.safe_dump(recipe, sort_keys=False))
    found = linted(paths)
    assert rules(found) == {"patch-ended"}
    assert (found.count("warning"), found.count("error")) == (0, 0)
    results: list[dict[str, Any]] = as_sarif(found.findings)["runs"][0]["results"]
    said = [r["suppressions"][0]["justification"] for r in results if r["ruleId"] == "patch-ended"]
    assert set(said) == {"because (until then)"}


def test_lint_writes_nothing_but_what_wheels_said(paths: Paths) -> None:
    before = {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()}
    linted(paths)
    assert {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()} == before
    assert not paths.state.exists()


def second(paths: Paths, name: str, *edits: tuple[str, str]) -> Path:
    """A copy of the recipe under another name, with its lock."""
    text = paths.recipe(NAME).read_text().replace(f"recipe: {NAME}\n", f"recipe: {name}\n")
    for old, new in edits:
        text = text.replace(old, new)
    path = paths.recipes / f"{name}.yaml"
    path.write_text(text)
    return path


def test_two_recipes_of_one_name_are_a_finding_beside_the_others(paths: Paths) -> None:
    (paths.recipes / "others").mkdir()
    shutil.copy(paths.recipe(NAME), paths.recipes / "others")
    paths.recipe("bad").write_text("recipe: [\n")
    for names in ((), (NAME,)):
        found = [f for f in linted(paths, *names).findings if f.rule == "recipe-double"]
        assert [(f.file, f.level) for f in found] == [(f"recipes/others/{NAME}.yaml", "error")]
        assert "recipes/glm-dsa.yaml" in found[0].message
    assert rules(linted(paths)) == {"recipe-double", "recipe-unreadable"}
    assert "recipe-double" not in rules(linted(paths, "bad"))


def test_two_recipes_with_one_tag_are_found_whichever_is_asked_for(paths: Paths) -> None:
    replaced(paths.build_yaml, 'channels: ["{recipe}-{arch}"]', 'channels: ["{cuda.compact}-{arch}"]')
    second(paths, "other")
    line = next(n for n, text in enumerate(paths.build_yaml.read_text().splitlines(), 1) if "channels: [" in text)
    for names in ((), (NAME,), ("other",)):
        found = [f for f in linted(paths, *names).findings if f.rule == "tags-shared"]
        assert [(f.file, f.line) for f in found] == [("build.yaml", line)] * 3
        assert {f.message for f in found} == {
            f"'cu130-{arch}' is the tag of glm-dsa on {arch} and of other on {arch}"
            for arch in ("sm90", "sm100", "sm120")
        }


def test_no_image_takes_the_tag_of_another_recipe(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_: Session) -> None:
        raise AssertionError("the tags are compared before an engine is started")

    monkeypatch.setattr("graft.commands.image.ready_engine", started)
    replaced(paths.build_yaml, 'channels: ["{recipe}-{arch}"]', 'channels: ["{cuda.compact}-{arch}"]')
    second(paths, "other")
    with pytest.raises(BadInput, match="'cu130-sm90' is the tag of glm-dsa on sm90 and of other on sm90") as caught:
        image(session(paths))
    assert (caught.value.exit_code, caught.value.where) == (2, "build.yaml: channels")
    assert caught.value.cure
    # One that is not read gets no tag; the image of another recipe is none of its business.
    paths.recipe("other").write_text("recipe: [\n")
    with pytest.raises(AssertionError, match="before an engine"):
        image(session(paths))


def unrecorded(found: Linted) -> list[str]:
    return [f.message.partition(":")[0] for f in found.findings if f.rule == "operators-unrecorded"]


def test_operators_that_nobody_recorded_are_told(paths: Paths) -> None:
    assert unrecorded(linted(paths)) == ["no operators are recorded for sm100, sm120"]
    kept = paths.operators(NAME).read_text()
    paths.operators(NAME).unlink()
    assert unrecorded(linted(paths)) == ["no operators are recorded for sm90, sm100, sm120"]
    paths.operators(NAME).write_text(kept.replace("- sm90", "- sm100"))
    found = linted(paths)
    assert (unrecorded(found), rules(found)) == ([], {"plan-refused"}), "what is refused is not missing too"


def test_without_the_test_that_loads_nobody_needs_operators(paths: Paths) -> None:
    paths.operators(NAME).unlink()
    replaced(paths.recipe(NAME), "abi, load, files", "abi, files")
    assert unrecorded(linted(paths)) == []


def test_a_waiver_of_a_package_that_the_lock_lacks(paths: Paths) -> None:
    replaced(paths.recipe(NAME), "package: pynvvideocodec\n", "package: pynvvideocodek\n")
    found = [f for f in linted(paths).findings if f.level == "error"]
    assert [(f.rule, f.cure) for f in found] == [("waiver-package", "did you mean pynvvideocodec?")]
    line = paths.recipe(NAME).read_text().splitlines()[found[0].line - 1]
    assert line.strip() == "package: pynvvideocodek"
