"""The list of operators: its file, what it does to the gate, and how it is recorded and accepted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_plan

from graft.cli import main_inner
from graft.commands import operators as command
from graft.commands.lint import lint_project
from graft.commands.session import Session, open_session
from graft.commands.session import make_plan as make_plan_of
from graft.commands.update import Update, _print
from graft.console import Console
from graft.errors import BadInput, GateFailed
from graft.gate import Receipt, find_receipt, found_operators, newest_receipt
from graft.gate.receipt import write_receipt
from graft.hashes import digest_of
from graft.lock import NewerFormat
from graft.operators import load_operators, with_recorded, write_operators
from graft.paths import Paths

FILES = {"torch": ("aten::add.out CPU CUDA", "aten::view"), "vllm/_C.abi3.so": ("_C::norm CUDA",)}
OTHER = {**FILES, "vllm/_C.abi3.so": ("_C::norm CUDA", "_C::shape")}
SOURCE = Path(__file__).parents[2]
REAL = "glm-dsa"
ARCHES = ["sm90", "sm100", "sm120"]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.locks.mkdir(parents=True)
    return made


def listed(**changes: Any) -> dict[str, Any]:
    files = {file: list(lines) for file, lines in FILES.items()}
    body = {"operators": 2, "recipe": "toy", "recorded": [{"arches": ["sm90"], "files": files}], **changes}
    return {**body, "digest": digest_of(body)}


def put(paths: Paths, data: Any) -> None:
    paths.operators("toy").write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")


def test_what_is_written_is_read(paths: Paths) -> None:
    assert load_operators(paths, "toy", ARCHES) is None
    write_operators(paths, with_recorded(None, "toy", "sm90", FILES))
    found = load_operators(paths, "toy", ARCHES)
    assert found is not None
    assert found.of("sm90") == FILES
    assert found.of("sm100") is None
    text = paths.operators("toy").read_text()
    assert text.startswith("# Made by `make image`")
    assert "    - _C::norm CUDA\n" in text


def test_architectures_with_the_same_operators_share_an_entry() -> None:
    found = with_recorded(None, "toy", "sm120", FILES)
    found = with_recorded(found, "toy", "sm90", OTHER)
    found = with_recorded(found, "toy", "sm100", FILES)
    assert [entry.arches for entry in found.recorded] == [("sm90",), ("sm100", "sm120")]
    found = with_recorded(found, "toy", "sm90", FILES)
    assert [entry.arches for entry in found.recorded] == [("sm90", "sm100", "sm120")]
    assert with_recorded(found, "toy", "sm90", FILES) == found


def group(arches: list[str], files: dict[str, Any]) -> dict[str, Any]:
    return listed(recorded=[{"arches": arches, "files": files}])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "the file is empty"),
        ("operators: [", "not valid YAML"),
        (listed(operators=1), "format 1, this Graft writes 2"),
        (listed(operators="2"), "operators"),
        (listed(operator="x"), "operator"),
        (listed(recipe="other"), "operators of recipe 'other'"),
        (listed(recorded=[]), "recorded"),
        (group([], dict(FILES)), "arches"),
        (group(["sm90"], {}), "files"),
        (group(["sm90"], {"torch": []}), "torch"),
        (group(["sm90"], {"../torch": ["aten::add"]}), "files"),
        (group(["sm90"], {"torch": ["aten::add; rm"]}), "torch"),
        (group(["sm90"], {"torch": [17]}), "torch"),
        (group(["sm90"], {"torch": ["aten::b", "aten::a"]}), "the list is sorted"),
        (group(["sm90"], {"torch": ["aten::a CPU", "aten::a CUDA"]}), "aten::a is listed twice"),
        (group(["sm90", "sm90"], {"torch": ["aten::a"]}), "sm90 is recorded twice"),
        (group(["sm75"], {"torch": ["aten::a"]}), "sm75, which is no architecture of the recipe"),
    ],
)
def test_a_file_that_graft_did_not_write_is_refused(paths: Paths, data: Any, says: str) -> None:
    if isinstance(data, dict):
        data = json.loads(json.dumps(data))
    put(paths, data)
    with pytest.raises(BadInput) as refused:
        load_operators(paths, "toy", ARCHES)
    assert says in refused.value.what
    assert "toy.operators.yaml" in str(refused.value.where)
    assert refused.value.cure


def test_a_list_of_a_newer_graft_is_left_alone(paths: Paths) -> None:
    put(paths, listed(operators=3))
    with pytest.raises(NewerFormat, match="format 3, this Graft reads 2") as refused:
        load_operators(paths, "toy", ARCHES)
    assert refused.value.cure == "use a newer Graft"


def test_a_list_that_was_edited_by_hand_is_refused(paths: Paths) -> None:
    write_operators(paths, with_recorded(None, "toy", "sm90", FILES))
    text = paths.operators("toy").read_text()
    paths.operators("toy").write_text(text.replace("    - _C::norm CUDA\n", "    - _C::other CUDA\n"))
    with pytest.raises(BadInput, match="edited by hand") as refused:
        load_operators(paths, "toy", ARCHES)
    assert "git checkout" in str(refused.value.cure)


def test_operators_are_an_input_of_the_gate_and_of_no_image() -> None:
    without = make_plan()
    first, second = make_plan(operators=FILES), make_plan(operators=OTHER)
    assert len({without.gate.key, first.gate.key, second.gate.key}) == 3
    assert {plan.image.key for plan in (first, second)} == {without.image.key}
    assert {plan.gpu_gate.key for plan in (first, second)} == {without.gpu_gate.key}
    assert without.facts()["operators"] is None
    assert first.facts()["operators"] == FILES


def receipt(*checks: tuple[str, str, str], key: str = "key", test: str = "load", **changes: Any) -> Receipt:
    """A gate's receipt with one test; checks: id, verdict, detail."""
    if not checks:
        checks = tuple((f"registers:{file}", "pass", "\n".join(lines)) for file, lines in FILES.items())
    red = any(verdict == "fail" for _, verdict, _ in checks)
    result = {
        "id": test,
        "tier": "cpu",
        "verdict": "fail" if red else "pass",
        "seconds": 1.0,
        "detail": "",
        "checks": tuple({"id": id, "verdict": verdict, "detail": detail} for id, verdict, detail in checks),
    }
    host = {"system": "Debian", "kernel": "6", "machine": "x86_64", "cpus": 2, "memory_gb": 24.0}
    data = {
        "schema_version": 2,
        "tier": "cpu",
        "image_id": "sha256:" + "a" * 64,
        "manifest_digest": None,
        "recipe": "toy",
        "arch": "sm90",
        "key": key,
        "lock_digest": "lock",
        "gate_digest": "before",
        "started": "2026-12-01T00:00:00Z",
        "seconds": 1.0,
        "host": host,
        "engine": "embedded",
        "verdict": result["verdict"],
        "tests": (result,),
        "limits": (),
        **changes,
    }
    return Receipt.model_validate(data)


def test_operators_are_read_from_a_receipt() -> None:
    assert found_operators(receipt()) == FILES


ONE = ("registers:torch", "pass", "aten::view")


def test_a_red_comparison_does_not_make_the_list_doubtful() -> None:
    assert found_operators(receipt(ONE, ("lost", "fail", "x"), ("new", "fail", "y"))) == {"torch": ("aten::view",)}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (receipt(ONE, test="core"), "no smoke test of this run"),
        (receipt(ONE, ("load:vllm/_C.abi3.so", "fail", "undefined symbol")), "load:vllm/_C.abi3.so"),
        (receipt(ONE, ("operators", "fail", "")), "operators"),
        (receipt(("stub", "pass", "")), "found no operators"),
    ],
)
def test_a_run_that_does_not_know_all_operators_is_refused(made: Receipt, says: str) -> None:
    with pytest.raises(GateFailed, match=says):
        found_operators(made)


def test_a_run_that_hung_is_refused() -> None:
    ended = receipt(ONE).tests[0].model_copy(update={"verdict": "hang", "detail": "no end after 900 s"})
    with pytest.raises(GateFailed, match="no end after"):
        found_operators(receipt(ONE).model_copy(update={"tests": (ended,)}))


def test_the_newest_run_of_the_image_counts(tmp_path: Path) -> None:
    for digit, key, day in (("a", "one", 1), ("b", "one", 3), ("c", "other", 5)):
        write_receipt(
            tmp_path, receipt(key=key, image_id=f"sha256:{digit * 64}", started=f"2026-12-0{day}T00:00:00Z"), {}
        )
    found = newest_receipt(tmp_path, "one")
    assert found is not None
    assert found.image_id.startswith("sha256:b")
    assert newest_receipt(tmp_path, "none") is None


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A copy of the real project, without what is recorded in it."""
    root = tmp_path / "project"
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE / "build.yaml", root)
    made = Paths(root)
    made.operators(REAL).unlink(missing_ok=True)
    return open_session(made, Console(), recipe=REAL, arch="sm90")


def recorded(session: Session) -> Any:
    found = load_operators(session.paths, REAL, ARCHES)
    return found and found.of("sm90")


def test_the_first_green_run_is_recorded_and_holds_for_the_list_that_it_made(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make_plan_of(session)
    made = receipt(key=first.image.key, gate_digest=first.gate.key)
    bound = command.record_first(session, first, made)
    assert recorded(session) == FILES
    assert (
        "recorded 3 operators of 2 files for sm90: commit recipes/locks/glm-dsa.operators.yaml"
        in capsys.readouterr().err
    )
    after = make_plan_of(session)
    assert bound.gate_digest == after.gate.key != first.gate.key
    assert find_receipt(session.paths.receipts, made.image_id, after.gate.key) == bound


def test_what_is_recorded_is_not_replaced_by_a_green_run(session: Session) -> None:
    write_operators(session.paths, with_recorded(None, REAL, "sm90", OTHER))
    made = receipt()
    assert command.record_first(session, make_plan_of(session), made) is made
    assert recorded(session) == OTHER


def test_a_recipe_without_the_test_records_nothing(session: Session) -> None:
    made, without = receipt(test="core"), make_plan()
    assert "load" not in without.recipe.smoke
    assert command.record_first(session, without, made) is made
    assert recorded(session) is None


def test_a_change_is_accepted_from_the_red_run_that_found_it(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    write_operators(session.paths, with_recorded(None, REAL, "sm90", OTHER))
    key = make_plan_of(session).image.key
    checks = [(f"registers:{file}", "pass", "\n".join(lines)) for file, lines in FILES.items()]
    write_receipt(session.paths.receipts, receipt(*checks, ("lost", "fail", "_C::shape"), key=key), {})
    command.accept(session)
    assert recorded(session) == FILES
    assert capsys.readouterr().out == "recipes/locks/glm-dsa.operators.yaml\n"
    command.accept(session)
    assert "recorded already" in capsys.readouterr().err


def test_without_a_run_there_is_nothing_to_accept(session: Session) -> None:
    with pytest.raises(GateFailed, match="no gate has run"):
        command.accept(session)
    write_receipt(session.paths.receipts, receipt(key="of another image"), {})
    with pytest.raises(GateFailed, match="no gate has run"):
        command.accept(session)
    assert recorded(session) is None


def test_recording_goes_with_no_other_option(session: Session) -> None:
    with pytest.raises(BadInput, match="resolves nothing"):
        command.accept(session, alone=False)


def test_lint_reads_the_list(session: Session) -> None:
    assert not [f for f in lint_project(session, [REAL]).findings if f.level == "error"]
    write_operators(session.paths, with_recorded(None, "toy", "sm90", OTHER))
    session.paths.operators("toy").rename(session.paths.operators(REAL))
    found = [f for f in lint_project(session, [REAL]).findings if f.level == "error"]
    assert [(f.rule, f.message) for f in found] == [("plan-refused", "these are the operators of recipe 'toy'")]
    with pytest.raises(BadInput, match="operators of recipe 'toy'"):
        make_plan_of(session)


def test_an_update_says_that_operators_are_to_be_recorded_again(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Update(REAL, (), {}, (), (), (), 0)
    _print(session, found)
    assert "OPERATORS=1" not in capsys.readouterr().err
    write_operators(session.paths, with_recorded(None, REAL, "sm90", OTHER))
    _print(session, found)
    assert "record them again with: make lock OPERATORS=1" in capsys.readouterr().err


def test_the_verb_is_that_of_lock(session: Session) -> None:
    root = str(session.paths.root)
    with pytest.raises(GateFailed, match="no gate has run"):
        main_inner(["lock", "--operators", "--project", root, "--arch", "sm90"], Console())
    with pytest.raises(BadInput, match="resolves nothing"):
        main_inner(["lock", "--operators", "--check", "--project", root, "--arch", "sm90"], Console())
