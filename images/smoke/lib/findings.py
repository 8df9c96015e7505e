"""What a smoke test finds in files, judged against the recipe's waivers, a check for each kind and each finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.facts import WaiverBook
from lib.report import Report

# More than this many findings of one kind are counted, not listed.
LISTED = 40


@dataclass(frozen=True)
class Finding:
    """file: below site-packages, or an absolute path outside of it; packages: the distributions it is about."""

    kind: str
    file: str
    packages: tuple[str, ...]
    detail: str


def report_kinds(report: Report, kinds: Mapping[str, str], findings: Sequence[Finding], book: WaiverBook) -> None:
    """A check for each kind (name -> what it proves), and one for each finding of it: waived, or failed."""
    for kind, meaning in kinds.items():
        report_kind(report, kind, meaning, [finding for finding in findings if finding.kind == kind], book)


def report_kind(report: Report, kind: str, meaning: str, findings: Sequence[Finding], book: WaiverBook) -> None:
    judged = [(finding, book.find(finding.file, finding.packages)) for finding in findings]
    open_ones = [finding for finding, waiver in judged if waiver is None]
    waived = len(judged) - len(open_ones)
    report.check(kind, not open_ones, f"{meaning}: {len(open_ones)} exceptions, {waived} waived")
    judged.sort(key=lambda pair: (pair[1] is not None, pair[0].file, pair[0].packages))
    for finding, waiver in judged[:LISTED]:
        reason = f"; waived: {waiver.reason} (until {waiver.until})" if waiver else ""
        by = "" if len(finding.packages) != 1 else f" of {finding.packages[0]}"
        report.check(f"{kind}:{finding.file}{by}", False, finding.detail + reason, waived=waiver is not None)
    if judged[LISTED:]:
        more = [waiver is not None for _, waiver in judged[LISTED:]]
        report.check(f"{kind}:more", False, f"{len(more)} more, {sum(more)} waived", waived=all(more))


def report_waivers(report: Report, book: WaiverBook) -> None:
    unused = book.unused()
    detail = "; ".join(f"nothing needs the waiver {waiver}: remove it" for waiver in unused)
    report.check("waivers", not unused, detail or f"all {len(book.waivers)} waivers are needed")
