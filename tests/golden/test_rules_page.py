"""docs/rules.md says what the rules say; `make golden` writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

from graft.linting.model import RULES
from graft.linting.page import GROUPS, page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_equals_the_rules() -> None:
    if os.environ.get("GRAFT_UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make golden` and look at the difference"


def test_every_group_has_a_heading_and_every_heading_a_rule() -> None:
    assert {rule.group for rule in RULES.values()} == set(GROUPS)
