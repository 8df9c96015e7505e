"""A receipt's format, what in it cannot be true together, and its forms for CI."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate_engine import CANDIDATE, FakeEngine, FakeTest, gate, report
from jsonschema import Draft202012Validator

from graft.errors import BadInput, GateFailed
from graft.gate import Receipt
from graft.gate.forms import DETAIL_CHARACTERS, summary
from graft.gate.receipt import FAILED, PASSED, find_receipt, folder_of, read_receipt, schema
from graft.report import ROWS

PUBLISHED = Path(__file__).parents[2] / "docs" / "receipt.schema.json"
Edit = Callable[[dict[str, Any]], object]


def green(tmp_path: Path) -> dict[str, Any]:
    """A receipt as a gate has written it."""
    gate(FakeEngine({"core": FakeTest(), "files": FakeTest()}), tmp_path)
    data: dict[str, Any] = json.loads((folder_of(tmp_path, CANDIDATE) / PASSED).read_text(encoding="utf-8"))
    return data


def red(tmp_path: Path, said: str) -> Receipt:
    with pytest.raises(GateFailed):
        gate(FakeEngine({"core": FakeTest(1, said)}), tmp_path)
    return read_receipt(folder_of(tmp_path, CANDIDATE) / FAILED)


def test_the_published_schema_is_the_models() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema(), "write graft.gate.receipt.schema() there"
    Draft202012Validator.check_schema(json.loads(schema()))


@pytest.mark.parametrize(
    ("edit", "fits"),
    [
        (lambda data: None, True),
        (lambda data: data.update(manifest_digest="sha256:" + "0" * 64), True),
        (lambda data: data.update(hostname="x"), False),
        (lambda data: data.update(verdict="green"), False),
        (lambda data: data.update(tier="tpu"), False),
        (lambda data: data.update(schema_version=1), False),
        (lambda data: data.update(image_id="graft:latest"), False),
        (lambda data: data.update(manifest_digest=""), False),
        (lambda data: data.update(started="yesterday"), False),
        (lambda data: data.update(seconds="1"), False),
        (lambda data: data.update(tests={}), False),
        (lambda data: data["tests"][0].update(verdict="skip"), False),
        (lambda data: data["tests"][0].pop("checks"), False),
        (lambda data: data["tests"][0]["checks"][0].update(id=""), False),
        (lambda data: data["host"].update(name="x"), False),
        (lambda data: data.pop("limits"), False),
        (lambda data: data.pop("image_id"), False),
    ],
)
def test_the_schema_and_the_model_agree_on_a_receipt(tmp_path: Path, edit: Edit, fits: bool) -> None:
    data = green(tmp_path)
    edit(data)
    assert Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8"))).is_valid(data) is fits
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    if fits:
        assert read_receipt(file).image_id == CANDIDATE
    else:
        with pytest.raises(BadInput, match="this is no receipt") as failed:
            read_receipt(file)
        assert failed.value.where == str(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 2}', "[" * 100_000, "\xff"])
def test_what_is_no_receipt_is_said_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match="this is no receipt"):
        read_receipt(file)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"seconds": 0.5', '"seconds": NaN', "seconds: Input should be a finite number"),
        ('"seconds": 0.5', '"seconds": 1e999', "seconds: Input should be a finite number"),
        ('"verdict": "pass"', '"verdict": "fail", "verdict": "pass"', "the key 'verdict' is there twice"),
    ],
)
def test_what_readers_could_read_in_two_ways_is_no_receipt(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = json.dumps({**green(tmp_path), "seconds": 0.5})
    file = tmp_path / "x.json"
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput, match=f"this is no receipt: {says}"):
        read_receipt(file)
    folder = folder_of(tmp_path, CANDIDATE)
    (folder / PASSED).write_bytes(file.read_bytes())
    assert find_receipt(tmp_path, CANDIDATE, "gate-digest") is None


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda data: data.update(verdict="fail"), "the run says fail, its tests say pass"),
        (lambda data: data.update(tests=[]), "the run says pass, its tests say fail"),
        (lambda data: data["tests"][0].update(verdict="hang"), "the run says pass, its tests say fail"),
        (lambda data: data["tests"].append(data["tests"][0]), "test core is there 2 times"),
        (lambda data: data["tests"][0].update(tier="gpu"), "test core is of the tier gpu, the run of cpu"),
        (lambda data: data["tests"][0].update(checks=[]), "test core says pass, and has no check"),
        (lambda data: data["tests"][0]["checks"][0].update(verdict="fail"), "says pass, and a check failed"),
        (lambda data: data["tests"][0].update(verdict="fail"), "test core says fail, and no check failed"),
    ],
)
def test_a_contradiction_is_seen(tmp_path: Path, edit: Edit, says: str) -> None:
    data = green(tmp_path)
    assert Receipt.model_validate_json(json.dumps(data)).contradictions() == []
    edit(data)
    assert any(says in found for found in Receipt.model_validate_json(json.dumps(data)).contradictions())
    file = tmp_path / "x.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(BadInput, match=says):
        read_receipt(file)


def test_the_summary_is_written_beside_the_receipt_and_names_what_is_red(tmp_path: Path) -> None:
    said = report("core", "fail", ("good", "pass"), ("bad", "fail"), ("odd", "waived"))
    text = summary(red(tmp_path, said))
    assert (folder_of(tmp_path, CANDIDATE) / "summary.md").read_text(encoding="utf-8") == text + "\n"
    rows = [line for line in text.splitlines() if line.startswith("| core")]
    assert rows == [
        "| core | **fail** | 3 | " + rows[0].split(" | ")[3] + " | bad |",
        "| core | bad | **fail** | about bad |",
        "| core | odd | **waived** | about odd |",
    ]
    assert CANDIDATE in text
    assert "no GPU was used" in text


HOSTILE = "a | b\n| c | d |\n</details><img src=x>`code` @everyone **bold** [link](http://x) \x1b[31m\u202e"


def test_what_a_test_says_cannot_break_the_summary(tmp_path: Path) -> None:
    """Each row keeps its cells, and nothing of it becomes Markdown, HTML or a mention."""
    checks = [{"id": f"**{HOSTILE}", "verdict": "fail", "detail": f"**{HOSTILE}"}]
    text = summary(red(tmp_path, json.dumps({"test": "core", "verdict": "fail", "checks": checks})))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for row in (line for line in tables if "everyone" in line):
        cells = row.replace("\\|", "").strip("|").split("|")
        assert len(cells) in (4, 5), row
    bare = re.sub(r"\\[\\`*_\[\]|]", "", text)
    for forbidden in ("<img", "@everyone", "[link](", "\x1b", "\u202e", "| c | d |", "**bold", "`code"):
        assert forbidden not in bare, forbidden
    assert text.count("</details>") == text.count("<details>")


def test_a_summary_stays_small(tmp_path: Path) -> None:
    checks = [{"id": f"c{n}", "verdict": "waived", "detail": "x" * 5000} for n in range(2 * ROWS)]
    checks.append({"id": "the-red-one", "verdict": "fail", "detail": ""})
    text = summary(red(tmp_path, json.dumps({"test": "core", "verdict": "fail", "checks": checks})))
    assert "x" * (DETAIL_CHARACTERS + 1) not in text
    assert "the-red-one" in text
    assert f"{ROWS + 1} more" in text
    assert len(text) < 2**20 / 2
