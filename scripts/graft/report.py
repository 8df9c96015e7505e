"""What was found about a series, for people, for pull requests (Markdown), and for code review tools (SARIF 2.1.0)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graft.console import printable
from graft.sarif import Result, Rule, document

#: What a verdict means, for the rules of a SARIF report and the legend of the documentation.
MEANING = {
    "exact": "applies where it was made",
    "offset": "applies, some lines away, in the same function or class",
    "ambiguous": "its lines stand at more than one place",
    "relocated": "its lines stand once, but in another function or class",
    "merge-clean": "does not apply, but a three-way merge places it",
    "conflict": "does not apply",
    "merged": "upstream has it",
    "partial": "upstream has a part of it",
    "gone": "its file or symbol no longer exists",
    "unused": "no recipe applies it",
    "malformed": "is no patch that Graft accepts",
}

#: Rows of a table. GitHub refuses a comment of more than 65,536 characters.
ROWS = 200


@dataclass(frozen=True)
class HunkReport:
    """One hunk. place: line of the upstream file; at_line: line of the patch file; changed: its symbol's code."""

    path: str
    number: int
    verdict: str
    place: int | None
    offset: int
    symbol: str | None
    changed: bool | None
    detail: str
    upstream: str
    at_line: int


@dataclass(frozen=True)
class PatchReport:
    """One patch. buildable: applies, is meant for the version, and git made what was judged."""

    patch: str
    file: str
    title: str
    verdict: str
    buildable: bool
    end_reached: bool | None
    end: str
    until: str
    when: str
    cure: str
    detail: str
    hunks: tuple[HunkReport, ...]


@dataclass(frozen=True)
class SeriesReport:
    """A series against one version. notes: overlaps and undeclared dependencies, a sentence each."""

    component: str
    pinned: str
    against: str
    patches: tuple[PatchReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def buildable(self) -> bool:
        return all(patch.buildable for patch in self.patches)

    def as_dict(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {**asdict(self), "buildable": self.buildable}


def counted(hunks: Sequence[HunkReport]) -> str:
    """The verdicts of hunks, for one cell: `2 exact`, `1 merged, 1 offset +4`."""
    groups: dict[str, int] = {}
    for hunk in hunks:
        name = f"{hunk.verdict} {hunk.offset:+d}" if hunk.verdict == "offset" else hunk.verdict
        groups[name] = groups.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in groups.items())


def text(report: SeriesReport) -> str:
    """Plain lines for a terminal or a log."""
    lines = [f"{report.component} {report.pinned} -> {report.against}"]
    for patch in report.patches:
        lines += ["", f"{patch.patch}: {patch.verdict}{'' if patch.buildable else ', cannot be built'}"]
        lines += [f"  {patch.detail}"] if patch.detail else []
        lines += [f"  {line}" for hunk in patch.hunks for line in _hunk_lines(hunk)]
        lines.append(f"  end: {_end(patch)}; {patch.end}")
        lines += [f"  when: {patch.when}"] if patch.when else []
        lines += [f"  cure: {patch.cure}"] if patch.cure else []
    return "\n".join([*lines, *(["", *report.notes] if report.notes else [])])


def _hunk_lines(hunk: HunkReport) -> Iterable[str]:
    number = f" #{hunk.number}" if hunk.number else ""
    place = f" line {hunk.place}" if hunk.place is not None else ""
    symbol = f" in {hunk.symbol}" if hunk.symbol else ""
    changed = ", whose code changed" if hunk.changed else ""
    offset = f" ({hunk.offset:+d})" if hunk.verdict == "offset" else ""
    yield f"{hunk.path}{number}: {hunk.verdict}{place}{offset}{symbol}{changed}"
    if hunk.detail:
        yield f"  why: {hunk.detail}"
    if hunk.upstream:
        yield f"  upstream {hunk.upstream}"


def _end(patch: PatchReport) -> str:
    return {True: "reached", False: "not reached", None: "cannot be judged"}[patch.end_reached]


def markdown(report: SeriesReport) -> str:
    """A comment for a pull request."""
    good = sum(patch.buildable for patch in report.patches)
    lines = [
        f"### Patches of {report.component}: {report.pinned} → {report.against}",
        "",
        f"{good} of {len(report.patches)} can be built.",
        "",
        "| patch | verdict | hunks | end | what to do |",
        "|---|---|---|---|---|",
    ]
    for patch in report.patches:
        end = {True: "**reached**", False: "not reached", None: "?"}[patch.end_reached]
        verdict = patch.verdict if patch.buildable else f"**{patch.verdict}**"
        cells = (f"`{patch.patch}`", verdict, counted(patch.hunks), end, markdown_text(patch.cure) or "–")
        lines.append(f"| {' | '.join(cells)} |")
    for patch in report.patches:
        lines += ["", f"<details><summary>{markdown_text(patch.patch)}: {markdown_text(patch.title)}</summary>", ""]
        lines += [f"- {markdown_text(line.strip())}" for hunk in patch.hunks for line in _hunk_lines(hunk)]
        lines += [f"- {markdown_text(patch.detail)}"] if patch.detail else []
        lines += [f"- until: {markdown_text(patch.until)} ({markdown_text(patch.end)})"]
        lines += [f"- {markdown_text(patch.when)}"] if patch.when else []
        lines += ["", "</details>"]
    lines += ["", *(f"- {markdown_text(note)}" for note in report.notes)] if report.notes else []
    return "\n".join(lines)


def markdown_text(value: str) -> str:
    """Text of a patch, of upstream or of a test, on one line, as text of a Markdown list or table.

    Markdown renders HTML, and `|` would end a cell.
    """
    plain = printable(" ".join(value.split()))
    escaped = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return "".join(f"\\{c}" if c in "\\`*_[]|" else c for c in escaped)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], limit: int = ROWS) -> Iterable[str]:
    """The lines of a table. The cells hold Markdown: what is text was escaped. More than `limit` rows are counted."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows[:limit])
    if rows[limit:]:
        yield f"| {len(rows) - limit} more {'| ' * (len(columns) - 1)}|"


def comment(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A comment for a pull request: a heading, a table and sentences, all of them text."""
    cells = [[markdown_text(cell) for cell in row] for row in rows]
    lines = [f"### {markdown_text(title)}", "", *(markdown_table(columns, cells) if rows else ())]
    return "\n".join([*lines, "", *(f"- {markdown_text(note)}" for note in notes)])


def sarif(reports: Sequence[SeriesReport]) -> dict[str, Any]:
    """SARIF 2.1.0: a result for each hunk that does not apply as it is, and for each end that is reached."""
    results = [result for report in reports for patch in report.patches for result in _results(report, patch)]
    used = sorted({result.rule for result in results})
    return document([Rule(rule, _rule_text(rule)) for rule in used], results)


def _rule_text(rule: str) -> str:
    named = {"end-reached": "the patch has served", "not-meant": "the patch is not meant for this version"}
    return named.get(rule) or f"the patch {MEANING[rule]}"


def _results(report: SeriesReport, patch: PatchReport) -> Iterable[Result]:
    against = f"{report.component} {report.against}"
    for hunk in patch.hunks:
        if hunk.verdict != "exact":
            level = "note" if hunk.verdict == "offset" else "error"
            said = ". ".join(part for part in (*_hunk_lines(hunk), patch.cure) if part)
            yield Result(hunk.verdict, level, f"{against}: {said}", patch.file, hunk.at_line)
    if not patch.hunks or (patch.verdict not in {hunk.verdict for hunk in patch.hunks} and not patch.buildable):
        yield Result(patch.verdict, "error", f"{against}: {patch.detail or MEANING[patch.verdict]}", patch.file, 1)
    if patch.when:
        yield Result("not-meant", "error", f"{against}: {patch.when}", patch.file, 1)
    if patch.end_reached:
        yield Result("end-reached", "warning", f"{against}: {patch.end}. Until: {patch.until}", patch.file, 1)
