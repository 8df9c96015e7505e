"""Reports about a series: what they show, and that no text of a patch or of upstream becomes markup."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from graft.patching import Verdict
from graft.report import (
    MEANING,
    ROWS,
    HunkReport,
    PatchReport,
    SeriesReport,
    comment,
    counted,
    markdown,
    sarif,
    text,
)

HUNK = HunkReport("demo/a.py", 1, "exact", 4, 0, "Model.load", False, "", "", 12)
PATCH = PatchReport(
    "demo/fix",
    "patches/demo/fix.patch",
    "A fix",
    "exact",
    True,
    False,
    "it ends with 2",
    "version 2",
    "",
    "",
    "",
    (HUNK,),
)
SERIES = SeriesReport("demo", "1.0", "2.0", (PATCH,))


def with_hunks(*verdicts: str, **more: object) -> SeriesReport:
    hunks = tuple(replace(HUNK, number=n, verdict=v) for n, v in enumerate(verdicts, 1))
    return replace(SERIES, patches=(replace(PATCH, hunks=hunks, **more),))  # type: ignore[arg-type]


def results(report: SeriesReport) -> list[tuple[str, str, int]]:
    run = sarif([report])["runs"][0]
    return [
        (r["ruleId"], r["level"], r["locations"][0]["physicalLocation"]["region"]["startLine"]) for r in run["results"]
    ]


def test_every_verdict_has_a_meaning() -> None:
    assert set(MEANING) == {str(verdict) for verdict in Verdict}


def test_hunks_are_counted_by_verdict() -> None:
    moved = replace(HUNK, verdict="offset", offset=7)
    assert counted([HUNK, HUNK, moved]) == "2 exact, 1 offset +7"


def test_a_series_without_trouble_has_no_results() -> None:
    found = sarif([SERIES])
    assert (found["version"], found["runs"][0]["results"]) == ("2.1.0", [])
    assert SERIES.buildable


def test_each_hunk_that_does_not_apply_is_an_error_where_it_stands() -> None:
    report = with_hunks("exact", "offset", "conflict", "merged", verdict="conflict", buildable=False)
    assert results(report) == [("offset", "note", 12), ("conflict", "error", 12), ("merged", "error", 12)]
    rules = {rule["id"] for rule in sarif([report])["runs"][0]["tool"]["driver"]["rules"]}
    assert rules == {"offset", "conflict", "merged"}
    assert not report.buildable


def test_what_has_no_hunks_is_an_error_of_the_file() -> None:
    assert results(with_hunks(verdict="malformed", buildable=False)) == [("malformed", "error", 1)]


def test_an_end_and_a_range_are_results_of_their_own() -> None:
    report = with_hunks("exact", end_reached=True, when="its `when` is <2", buildable=False)
    assert results(report) == [("not-meant", "error", 1), ("end-reached", "warning", 1)]


def test_the_text_says_everything() -> None:
    report = with_hunks("conflict", verdict="conflict", buildable=False, cure="make it anew", when="not meant")
    report = replace(report, notes=("a and b both change c",))
    said = text(report)
    for part in ("demo 1.0 -> 2.0", "demo/fix: conflict, cannot be built", "make it anew", "not meant", "both change"):
        assert part in said


@given(st.text(max_size=60))
def test_nothing_of_a_patch_becomes_markup_or_leaves_its_cell(words: str) -> None:
    hunk = replace(HUNK, detail=words, upstream=words, symbol=words)
    report = replace(SERIES, patches=(replace(PATCH, title=words, cure=words, until=words, hunks=(hunk,)),))
    plain = markdown(report)
    assert plain.count("<") == plain.count("<details>") + plain.count("</details>") + plain.count("<summary>") + (
        plain.count("</summary>")
    )
    rows = [line for line in plain.split("\n") if line.startswith("| `demo/fix`")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 6
    json.dumps(sarif([report]))


def test_a_comment_is_text_in_a_table_of_a_bounded_size() -> None:
    rows = [("a | b", "<script>", "@everyone\n| x |")] + [("1", "2", "3")] * ROWS
    lines = comment("Plan of [x](y)", ("one", "two", "three"), rows, ["`note`"]).splitlines()
    assert lines[0] == r"### Plan of \[x\](y)"
    assert lines[2:5] == [
        "| one | two | three |",
        "|---|---|---|",
        r"| a \| b | &lt;script&gt; | &#64;everyone \| x \| |",
    ]
    assert lines[-3:] == ["| 1 more | | |", "", r"- \`note\`"]
    assert sum(line.startswith("| 1 |") for line in lines) == ROWS - 1


def test_a_comment_without_rows_has_no_table() -> None:
    assert comment("Lint", ("a",), [], ["nothing"]) == "### Lint\n\n\n- nothing"
