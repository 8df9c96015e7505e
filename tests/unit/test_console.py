"""What goes to which stream, and that people's text is never taken as markup."""

from __future__ import annotations

import json

import pytest

from graft.console import Console, size
from graft.errors import ERRORS, BadInput, GraftError


def test_the_result_alone_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with console.step("work [1]"):
        console.say("[bold]said[/bold]")
    console.warn("careful [x]")
    console.table("T", ["a"], [["[red]cell"]])
    console.result("graft:x", {"ref": "graft:x"})
    out, err = capsys.readouterr()
    assert out == "graft:x\n"
    for part in ("• work [1]", "✓ work [1]", "[bold]said[/bold]", "warning: careful [x]", "[red]cell"):
        assert part in err


def test_an_error_shows_its_cause_place_and_cure(capsys: pytest.CaptureFixture[str]) -> None:
    Console().error(BadInput("bad [thing]", where="r.yaml:3", cure="fix [it]", tail="last\nline [/x]"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "  | last\n  | line [/x]\nerror: r.yaml:3: bad [thing]\n  what to do: fix [it]\n"


def test_json_mode(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json_mode=True)
    console.result("x", {"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    console = Console(json_mode=True)
    console.error(BadInput("bad", where="w"))
    said = json.loads(capsys.readouterr().out)
    assert said == {"error": "BadInput", "exit_code": 2, "what": "bad", "where": "w", "cure": None, "tail": None}


def test_a_failing_step_is_not_ticked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput), Console().step("work"):
        raise BadInput("no")
    assert "✓" not in capsys.readouterr().err


def test_one_class_per_exit_code() -> None:
    assert [kind.exit_code for kind in ERRORS] == [2, 3, 4, 5, 6, 7, 8, 9, 130]
    assert all(issubclass(kind, GraftError) for kind in ERRORS)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_020_000_000, "4.0 GB")])
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_verdict_that_ends_in_an_error_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json_mode=True)
    console.result("two of three", {"good": 2})
    console.error(GraftError("one is bad"))
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"good": 2}
    assert "one is bad" in captured.err
