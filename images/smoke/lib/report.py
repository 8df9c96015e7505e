"""The one way a smoke test ends: its checks as a single JSON line, the last line on stdout.

The host reads `{"test", "verdict", "checks": [{"id", "verdict", "detail"}]}`; anything else it
finds (no line, two lines, no check at all) is red.
"""

from __future__ import annotations

import json
import sys
from typing import Literal, NoReturn

Verdict = Literal["pass", "fail", "waived"]


class Report:
    """Collects the checks of one smoke test; a test without a check fails."""

    def __init__(self, test: str) -> None:
        self.test = test
        self._checks: dict[str, tuple[Verdict, str]] = {}

    def check(self, id: str, ok: bool, detail: str, *, waived: bool = False) -> bool:
        """Note one check under an id that is unique in this test; `waived` excuses a finding, it never hides a pass."""
        if id in self._checks:
            raise ValueError(f"check {id!r} was reported twice")
        verdict: Verdict = "pass" if ok else "waived" if waived else "fail"
        self._checks[id] = (verdict, detail)
        if verdict != "pass":
            # For people who look at the container's log; the host reads stdout only.
            print(f"{self.test}: {verdict}: {id}: {detail}", file=sys.stderr, flush=True)
        return ok

    @property
    def verdict(self) -> Literal["pass", "fail"]:
        if not self._checks:
            return "fail"
        return "fail" if any(verdict == "fail" for verdict, _ in self._checks.values()) else "pass"

    def as_dict(self) -> dict[str, object]:
        """The report as the host reads it."""
        checks = [{"id": id, "verdict": verdict, "detail": detail} for id, (verdict, detail) in self._checks.items()]
        return {"test": self.test, "verdict": self.verdict, "checks": checks}

    def finish(self) -> NoReturn:
        """Print the JSON line and exit: 0 on pass, 1 on fail."""
        sys.stderr.flush()
        print(json.dumps(self.as_dict()), flush=True)
        raise SystemExit(0 if self.verdict == "pass" else 1)
