"""Trials of patches without an engine: what runs say, what decides a result, the files of both states, the image."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from factories import Data, Edit, make_plan, package, sha
from patchwork import diff, numbered, patch, text

from graft.errors import BadInput, PatchMismatch
from graft.gate.tests import Ended
from graft.patching import SourceTree
from graft.patchset import PatchSet
from graft.plan import installed_path, source_path
from graft.trial import keep, kept, last_result, results_folder
from graft.trial.containers import Put, archive
from graft.trial.environment import is_own
from graft.trial.outcome import MEANING, RunResult, error_run, explain, read_run, verdict_of
from graft.trial.red_green import NotInstalled, Tools, Trial, Where, job_of, make_trial, on_base, result_of, sha256
from graft.trial.red_green import Test as PatchTest
from graft.trial.result import TrialInputs, TrialResult
from graft.trial.states import after_closure, patched, pristine

SITE = "/site"


# What runs say


def report(*verdicts: str) -> str:
    tests = [{"name": f"test_{i}", "verdict": v, "detail": "trace\nlast line"} for i, v in enumerate(verdicts)]
    return json.dumps({"tests": tests}) + "\n"


def run(*verdicts: str, code: int | None = None, stdout: str | None = None) -> RunResult:
    """A run that reported these verdicts."""
    ended = int(set(verdicts) != {"pass"}) if code is None else code
    return read_run(Ended(ended, report(*verdicts) if stdout is None else stdout, "the cause\n", 1.0))


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        (["pass"], "green"),
        (["pass", "fail"], "red"),
        (["fail"], "red"),
        (["fail", "error"], "error"),
        (["pass", "error"], "error"),
        (["pass", "skip"], "skipped"),
        (["fail", "skip"], "skipped"),
        (["skip"], "skipped"),
        (["skip", "error"], "error"),
    ],
)
def test_the_state_of_a_run(verdicts: list[str], state: str) -> None:
    assert run(*verdicts).state == state


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (Ended(None, report("pass"), "", 9.0, 9.0), "no end after 9 s"),
        (Ended(139, "", "Fatal\n", 1.0), "exit 139: Fatal"),
        (Ended(137, "", "", 1.0, out_of_memory=True), "out of memory"),
        (Ended(0, "", "", 1.0), "exit 0: no message"),
        (Ended(0, "{}", "", 1.0), "exit 0"),
        (Ended(0, '{"tests": []}', "", 1.0), "does not fit the report"),
        (Ended(0, report("fail"), "", 1.0), "does not fit the report"),
        (Ended(1, report("pass"), "", 1.0), "does not fit the report"),
        (Ended(0, report("pass").replace("pass", "great"), "", 1.0), "exit 0"),
        (Ended(0, report("pass") + "noise\n", "", 1.0), "exit 0"),
        (Ended(0, "[1]", "", 1.0), "exit 0"),
        (Ended(3, report("fail"), "try-patch.py: wrong bytes\n", 1.0), "wrong bytes"),
    ],
)
def test_what_is_no_result_is_an_error(ended: Ended, says: str) -> None:
    result = read_run(ended)
    assert result.state == "error"
    assert says in result.detail


@pytest.mark.parametrize(
    ("red", "green", "verdict"),
    [
        ("fail", "pass", "red-green"),
        ("pass", "pass", "green-green"),
        ("fail", "fail", "red-red"),
        ("pass", "fail", "green-red"),
        ("error", "pass", "error"),
        ("fail", "error", "error"),
        ("skip", "pass", "skipped"),
        ("fail", "skip", "skipped"),
        ("skip", "error", "error"),
    ],
)
def test_the_verdict_of_two_runs(red: str, green: str, verdict: str) -> None:
    assert verdict_of(run(red), run(green)) == verdict
    said = explain(run(red), run(green))
    assert MEANING[verdict] in said  # type: ignore[index]
    if verdict in ("error", "skipped"):
        assert (
            "without the patch" if red == ("skip" if verdict == "skipped" else "error") else "with the patch"
        ) in said


def test_an_import_that_only_the_patch_makes_possible_gets_a_hint() -> None:
    assert "missed by an assertion" in explain(run("error"), run("pass"))
    assert "missed by an assertion" not in explain(run("error"), run("error"))


# What is kept


def inputs(**changes: Any) -> TrialInputs:
    given = {
        "environment": sha("environment"),
        "pristine": {"a.py": sha("a"), "b.py": None},
        "after": {},
        "patch": sha("patch"),
        "test": sha("test"),
        "protocol": sha("protocol"),
    }
    return TrialInputs.model_validate({**given, **changes})


def result(
    found: TrialInputs, red: str = "fail", green: str = "pass", started: str = "2026-11-01T00:00:00Z"
) -> TrialResult:
    trial = Trial("demo", "fix", found, b"", {}, {})
    where = Where("sha256:" + "1" * 64, "python", "toy", "sm90", {})
    return result_of(trial, where, run(red), run(green), started)


CHANGES: list[dict[str, Any]] = [
    {"environment": sha("other")},
    {"pristine": {"a.py": sha("other"), "b.py": None}},
    {"pristine": {"a.py": sha("a")}},
    {"after": {"first": sha("first")}},
    {"patch": sha("other")},
    {"test": sha("other")},
    {"protocol": sha("other")},
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_input_decides_which_result_is_taken(tmp_path: Path, change: dict[str, Any]) -> None:
    keep(tmp_path, result(inputs()))
    assert kept(tmp_path, inputs()) == result(inputs())
    assert inputs(**change).key != inputs().key
    assert kept(tmp_path, inputs(**change)) is None


def test_an_error_is_kept_for_people_but_tried_again(tmp_path: Path) -> None:
    keep(tmp_path, result(inputs(), red="error"))
    assert kept(tmp_path, inputs()) is None
    last = last_result(tmp_path, "demo", "fix")
    assert last is not None
    assert last.verdict == "error"


def test_the_last_result_is_the_newest_of_the_patch(tmp_path: Path) -> None:
    folder = results_folder(tmp_path)
    assert last_result(folder, "demo", "fix") is None
    for day, change in enumerate(CHANGES, 1):
        keep(folder, result(inputs(**change), started=f"2026-11-{day:02}T00:00:00Z"))
    newest = inputs(patch=sha("newest"))
    keep(folder, result(newest, started="2026-12-01T00:00:00Z"))
    found = last_result(folder, "demo", "fix")
    assert found is not None
    assert (found.patch_sha256, found.test_sha256) == (sha("newest"), sha("test"))
    assert last_result(folder, "demo", "other") is None
    assert last_result(folder, "other", "fix") is None


def test_a_damaged_or_renamed_result_is_none(tmp_path: Path) -> None:
    keep(tmp_path, result(inputs()))
    (file,) = tmp_path.glob("*.json")
    whole = file.read_text()
    file.rename(tmp_path / f"{inputs(patch=sha('other')).key}.json")
    assert kept(tmp_path, inputs(patch=sha("other"))) is None
    assert last_result(tmp_path, "demo", "fix") is None
    for damaged in (whole[:-20], whole.replace(sha("patch"), sha("forged")), "", "[]"):
        file.write_text(damaged)
        assert kept(tmp_path, inputs()) is None
        assert last_result(tmp_path, "demo", "fix") is None


# The files of both states

BASE = text(numbered(1, 30))
FIRST = BASE.replace(b"line 15\n", b"line fifteen\n")
SECOND = FIRST.replace(b"line 16\n", b"line sixteen\n")


def series(tmp_path: Path) -> PatchSet:
    """Three patches: `second` comes after `first`, `third` after `second`; `apart` stands alone."""
    made = (
        patch(diff(BASE, FIRST, "demo/a.py"), "first"),
        patch(diff(None, b"new\n", "include/n.h"), "apart"),
        patch(diff(FIRST, SECOND, "demo/a.py"), "second", after=["first"]),
        patch(diff(SECOND, BASE, "demo/a.py"), "third", after=["second"]),
    )
    (tmp_path / "tests").mkdir()
    for one in made:
        (tmp_path / one.record.test).write_text(f"# {one.id}\n")
    return PatchSet("demo", tmp_path, made)


TREE = SourceTree({"demo/a.py": BASE}, frozenset({"demo/a.py"}), frozenset({"demo/a.py", "include/m.h"}))


def trial_of(found: PatchSet, name: str, place: Any = lambda path: path, tree: SourceTree = TREE) -> Trial:
    chosen = next(one for one in found.patches if one.id == name)
    return make_trial(found, chosen, tree, place=place, site=SITE, environment=sha("e"), protocol=sha("p"))


def test_the_closure_of_after_is_in_the_order_of_the_series(tmp_path: Path) -> None:
    found = series(tmp_path)
    assert [[p.id for p in after_closure(found, one)] for one in found.patches] == [
        [],
        [],
        ["first"],
        ["first", "second"],
    ]


def test_red_has_what_the_patch_comes_after_and_green_the_patch_too(tmp_path: Path) -> None:
    found = series(tmp_path)
    trial = trial_of(found, "second")
    assert trial.red == {f"{SITE}/demo/a.py": Put(FIRST, True)}
    assert trial.green == {f"{SITE}/demo/a.py": Put(SECOND, True)}
    assert trial.test == b"# second\n"
    assert trial.inputs.pristine == {"demo/a.py": sha256(BASE)}
    assert set(trial.inputs.after) == {"first"}
    alone = trial_of(found, "first")
    assert alone.red == {f"{SITE}/demo/a.py": Put(BASE, True)}
    assert alone.inputs.after == {}


def test_a_file_that_the_patch_adds_is_not_there_without_it(tmp_path: Path) -> None:
    trial = trial_of(series(tmp_path), "apart", place=lambda path: f"data/{path}")
    assert trial.red == {f"{SITE}/data/include/n.h": Put(None)}
    assert trial.green == {f"{SITE}/data/include/n.h": Put(b"new\n")}
    assert trial.inputs.pristine == {"include/n.h": None}


def test_what_is_not_installed_cannot_be_tried(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match=r"include/n\.h"):
        trial_of(series(tmp_path), "apart", place=lambda path: None)


def test_a_patch_that_does_not_apply(tmp_path: Path) -> None:
    with pytest.raises(PatchMismatch, match="conflict"):
        trial_of(series(tmp_path), "first", tree=SourceTree({"demo/a.py": BASE.replace(b"15", b"0")}))
    with pytest.raises(BadInput):
        patched("demo", SourceTree({}), [patch(diff(None, b"x\n", "../a.py"))])


def test_everything_that_the_image_holds_patched_is_pristine_in_both(tmp_path: Path) -> None:
    other = {f"{SITE}/other.py": Put(b"pristine\n"), f"{SITE}/demo/a.py": Put(b"of the image's patch\n")}
    trial = on_base(trial_of(series(tmp_path), "first"), other)
    assert trial.red == {f"{SITE}/other.py": Put(b"pristine\n"), f"{SITE}/demo/a.py": Put(BASE, True)}
    assert trial.green[f"{SITE}/demo/a.py"] == Put(FIRST, True)


def test_pristine_files_say_what_is_not_there() -> None:
    assert pristine(TREE, ["demo/a.py", "b"]) == {"demo/a.py": Put(BASE, True), "b": Put(None)}


TOOLS = Tools(b"starter", b"runner")
WHERE = Where("image", "python", "toy", "sm90", {"A": "1"})


def test_a_job_brings_its_files_and_says_which_bytes_are_tried() -> None:
    files = {"/site/a.py": Put(b"a"), "/site/gone.py": Put(None)}
    job = job_of("0-red", "image", WHERE, PatchTest(b"test", "a-fix.py"), TOOLS, files)
    said = json.loads(job.files["/graft-trial/job.json"].data or b"")
    assert said["files"] == {"/site/a.py": sha256(b"a"), "/site/gone.py": None}
    assert said["is_put"]
    assert job.files[said["test"]] == Put(b"test")
    assert said["test"].endswith("/test_a_fix.py")
    assert job.files[said["runner"]] == Put(b"runner")
    assert job.files["/site/a.py"] == Put(b"a")
    assert job.argv[0] == "python"
    compared = job_of("0-red", "image", WHERE, PatchTest(b"test", "a.py"), TOOLS, files, is_put=False)
    assert "/site/a.py" not in compared.files
    assert json.loads(compared.files["/graft-trial/job.json"].data or b"")["files"] == said["files"]


def test_the_protocol_is_both_programs() -> None:
    assert len({TOOLS.protocol, Tools(b"other", b"runner").protocol, Tools(b"starter", b"other").protocol}) == 3


def test_the_archive_holds_what_is_there() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive({"/a/b": Put(b"x", True), "/c": Put(b"y"), "/d": Put(None)}))) as tar:
        found = {m.name: (m.mode, m.uid, tar.extractfile(m).read()) for m in tar}  # type: ignore[union-attr]
    assert found == {"a/b": (0o755, 0, b"x"), "c": (0o644, 0, b"y")}


# The image


def environment(**edits: Edit) -> str:
    return make_plan(**edits).environment.key  # type: ignore[arg-type]


def edit_template(name: str) -> Edit:
    return lambda sources: sources["templates"].update({name: "edited"})


def patch_of_vllm(lock: Data) -> None:
    lock["patches"]["vllm"][0]["patches"][0]["sha256"] = sha("edited")


def patch_of_flashinfer(lock: Data) -> None:
    lock["patches"]["flashinfer"][0]["patches"][0]["sha256"] = sha("edited")


@pytest.mark.parametrize(
    ("part", "edit", "is_another"),
    [
        pytest.param("lock", patch_of_vllm, False, id="patch-of-a-wheel"),
        pytest.param("lock", patch_of_flashinfer, False, id="patch-of-a-source"),
        pytest.param("lock", lambda lock: lock["patches"].pop("vllm"), False, id="no-patch"),
        pytest.param("sources", lambda s: s["patch_tests"].update(x="y"), False, id="patch-test"),
        pytest.param("sources", lambda s: s["smoke"].update(x="y"), False, id="smoke-test"),
        pytest.param("sources", edit_template("stages/overlay.j2"), False, id="overlay-stage"),
        pytest.param("sources", edit_template("stages/runtime.j2"), False, id="runtime-stage"),
        pytest.param("recipe", lambda r: r.update(summary="other"), False, id="summary"),
        pytest.param("lock", lambda lock: lock["base"]["packages"][1].update(sha256=sha("x")), True, id="builder"),
        pytest.param("lock", lambda lock: lock["base"]["packages"][0].update(sha256=sha("x")), True, id="base"),
        pytest.param("lock", lambda lock: package(lock, "aiohttp").update(sha256=sha("x")), True, id="library"),
        pytest.param("lock", lambda lock: package(lock, "vllm").update(sha256=sha("x")), True, id="component"),
        pytest.param("lock", lambda lock: lock["sources"]["flashinfer"].update(sha256=sha("x")), True, id="source"),
        pytest.param("lock", lambda lock: lock["resolver"].update(python="3.12"), True, id="python"),
        pytest.param("sources", edit_template("stages/base.j2"), True, id="base-stage"),
        pytest.param("recipe", lambda r: r["env"].update(A="1"), True, id="env"),
        pytest.param("project", lambda p: p["arches"]["sm90"].update(suffix=None), True, id="architecture"),
    ],
)
def test_an_environment_is_everything_but_the_patches(part: str, edit: Edit, is_another: bool) -> None:
    assert (environment(**{part: edit}) != environment()) == is_another


def test_the_image_carries_its_environment() -> None:
    made = make_plan()
    assert made.labels()["dev.graft.environment"] == f"sha256:{made.environment.key}"
    assert made.environment.key != make_plan("sm120").environment.key


@pytest.mark.parametrize(
    ("tags", "labels", "own"),
    [
        (["graft:toy-sm90-1"], {}, True),
        (["graft:toy-sm90", "graft:toy-sm90-1"], {}, True),
        ([], {}, True),
        (["mine:latest"], {}, False),
        (["other:toy-sm90-1"], {}, False),
        (["graft:toy-sm90-1"], {"dev.graft.onto.key": "k"}, False),
        ([], {"dev.graft.onto.key": "k"}, False),
    ],
)
def test_what_somebody_built_on_an_image_is_not_taken(tags: list[str], labels: dict[str, str], own: bool) -> None:
    labels = {"org.opencontainers.image.version": "toy-sm90-1", **labels}
    assert is_own({"RepoTags": tags, "Config": {"Labels": labels}}, "graft") == own


@pytest.mark.parametrize("path", ["include/a.cuh", "csrc/b.cu", "flashinfer/jit/core.py"])
def test_an_installed_file_is_found_in_the_source_again(path: str) -> None:
    installed = installed_path("flashinfer-aot", path)
    assert installed is not None
    assert source_path("flashinfer-aot", installed) == path
    assert source_path(None, "vllm/a.py") == "vllm/a.py"
    assert source_path("flashinfer-aot", "torch/a.py") is None
    assert source_path("python", "lmcache/v1/a.py", "lmcache") == "lmcache/v1/a.py"
    assert source_path("python", "torch/a.py", "lmcache") is None


def test_an_error_run_shows_the_end() -> None:
    assert error_run("x" * 9999 + "end").detail.endswith("end")
