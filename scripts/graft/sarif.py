"""SARIF 2.1.0 for code review tools: one run of Graft, with the rules that its results name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from graft import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True)
class Rule:
    """text: one line. full and help: for the reader who asks, empty when there is no more to say."""

    id: str
    text: str
    full: str = ""
    help: str = ""


@dataclass(frozen=True)
class Result:
    """file: below the root; line: from 1; level: error, warning or note; suppressed: why it does not count."""

    rule: str
    level: str
    message: str
    file: str
    line: int
    suppressed: str | None = None


def document(rules: Iterable[Rule], results: Iterable[Result]) -> dict[str, Any]:
    """The whole document, as plain data."""
    driver = {"name": "graft", "version": __version__, "rules": [_rule(rule) for rule in rules]}
    run = {"tool": {"driver": driver}, "results": [_result(result) for result in results]}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    made: dict[str, Any] = {"id": rule.id, "shortDescription": {"text": rule.text}}
    if rule.full:
        made["fullDescription"] = {"text": rule.full}
    if rule.help:
        made["help"] = {"text": rule.help}
    return made


def _result(result: Result) -> dict[str, Any]:
    location = {
        "artifactLocation": {"uri": result.file, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": max(result.line, 1)},
    }
    made: dict[str, Any] = {
        "ruleId": result.rule,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"graft/v1": f"{result.file}:{result.rule}:{result.line}"},
    }
    if result.suppressed is not None:
        made["suppressions"] = [{"kind": "inSource", "justification": result.suppressed}]
    return made
