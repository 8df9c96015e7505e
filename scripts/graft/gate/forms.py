"""A receipt as CI systems read it: JUnit XML, and a Markdown summary for a job's page or a pull request."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from collections.abc import Mapping

from graft.gate.receipt import Compiled, Receipt
from graft.report import markdown_table, markdown_text

JUNIT, SUMMARY = "junit.xml", "summary.md"

# Control characters that XML 1.0 cannot hold, not even escaped.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A detail can hold the end of a program's output; the receipt has all of it. GitHub cuts a summary at 1 MiB.
DETAIL_CHARACTERS = 400


def forms(receipt: Receipt) -> Mapping[str, str]:
    """File name -> text of everything that is written beside a receipt."""
    return {JUNIT: junit(receipt), SUMMARY: summary(receipt) + "\n"}


def junit(receipt: Receipt) -> str:
    """One suite for each smoke test, one case for each check; a test that gave no checks is one case in error."""
    root = xml.Element("testsuites", name=f"{receipt.recipe}-{receipt.arch}", time=f"{receipt.seconds:.1f}")
    for test in receipt.tests:
        suite = xml.SubElement(root, "testsuite", name=test.id, time=f"{test.seconds:.1f}", timestamp=receipt.started)
        for check in test.checks:
            case = xml.SubElement(suite, "testcase", classname=f"gate.{test.id}", name=_text(check.id))
            if check.verdict == "fail":
                xml.SubElement(case, "failure", message=_text(check.detail))
            elif check.verdict == "waived":
                xml.SubElement(case, "skipped", message=_text(f"waived: {check.detail}"))
        if test.verdict not in ("pass", "fail"):
            case = xml.SubElement(suite, "testcase", classname=f"gate.{test.id}", name=test.verdict)
            xml.SubElement(case, "error", message=_text(test.detail))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite.findall("testcase"))))
    xml.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def summary(receipt: Receipt) -> str:
    """Markdown: the verdict and the tests, what did not pass, and what the run was made with and cannot have seen."""
    tests = [
        (_cell(test.id), _strong(test.verdict), str(len(test.checks)), f"{test.seconds:.1f}", _cell(test.detail))
        for test in receipt.tests
    ]
    checks = [
        (_cell(test.id), _cell(check.id), _strong(check.verdict), _cell(check.detail))
        # What is red first: it must not fall behind the cut.
        for wanted in ("fail", "waived")
        for test in receipt.tests
        for check in test.checks
        if check.verdict == wanted
    ]
    facts = [
        ("image id", receipt.image_id),
        ("manifest digest", receipt.manifest_digest or "not known before a push"),
        ("key", receipt.key),
        ("lock", receipt.lock_digest),
        ("gate", receipt.gate_digest),
        ("engine", receipt.engine),
        ("host", f"{receipt.host.system}, {receipt.host.machine}, {receipt.host.cpus} CPUs"),
        ("started", receipt.started),
        *((f"compiled {c.component}", _compiled(c)) for c in receipt.compiled),
    ]
    lines = [f"### Gate of {markdown_text(title(receipt))}: {_strong(receipt.verdict)}", ""]
    lines += [*markdown_table(("test", "verdict", "checks", "seconds", "detail"), tests), ""]
    if checks:
        lines += ["<details><summary>Checks that did not pass</summary>", ""]
        lines += [*markdown_table(("test", "check", "verdict", "detail"), checks), "", "</details>", ""]
    lines += ["<details><summary>What ran, and what it cannot have seen</summary>", ""]
    lines += [
        *markdown_table(("what", "value"), [(name, _cell(value)) for name, value in facts]),
        "",
        *(f"- {markdown_text(limit)}" for limit in receipt.limits),
    ]
    return "\n".join([*lines, "", "</details>"])


def title(receipt: Receipt) -> str:
    """`glm-dsa on sm90, cpu tier`."""
    return f"{receipt.recipe} on {receipt.arch}, {receipt.tier} tier"


def _cell(text: str) -> str:
    return markdown_text(text if len(text) <= DETAIL_CHARACTERS else f"{text[:DETAIL_CHARACTERS]} ...")


def _strong(verdict: str) -> str:
    return verdict if verdict == "pass" else f"**{verdict}**"


def _text(text: str) -> str:
    return NOT_XML.sub("?", text)


def _compiled(facts: Compiled) -> str:
    said = f"{facts.seconds:.0f} s, {facts.jobs} at once, largest process {facts.peak_gb:.1f} GiB"
    if facts.hits is None or facts.misses is None:
        return said
    shared = f" ({facts.shared} by way of Redis)" if facts.shared else ""
    return f"{said}, {facts.hits} of {facts.hits + facts.misses} objects from the compile cache{shared}"
