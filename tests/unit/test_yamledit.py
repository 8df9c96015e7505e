"""Values are exchanged in place; what cannot be done safely is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import BadInput
from graft.yamledit import with_values
from graft.yamlio import dump, parse

PATH = Path("recipes/toy.yaml")
TEXT = b"""# Words about 0.32.0.
components:
  torch: {wheel: torch, version: "2.13.0"}   # not 0.32.0
  vllm:
    wheel: vllm
    version: '0.32.0'  # 0.32.0 is the pin
    commit: 5df63a720
"""


def test_only_the_value_changes() -> None:
    at = ("components", "vllm", "version")
    made = with_values(TEXT, PATH, {at: "0.33.0", ("components", "vllm", "commit"): "1234567"})
    assert made == TEXT.replace(b"'0.32.0'", b"'0.33.0'").replace(b"5df63a720", b'"1234567"')


def test_a_value_in_a_flow_mapping() -> None:
    made = with_values(TEXT, PATH, {("components", "torch", "version"): "2.14.0"})
    assert made == TEXT.replace(b'"2.13.0"', b'"2.14.0"')


def test_the_same_value_is_no_edit() -> None:
    assert with_values(TEXT, PATH, {("components", "torch", "version"): "2.13.0"}) == TEXT


def test_a_value_over_several_lines_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be edited"):
        with_values(b"a: >-\n  one\n  two\n", PATH, {("a",): "three"})


VERSIONS = st.from_regex(r"[1-9]\.[0-9]{1,2}\.[0-9]", fullmatch=True)


@given(st.lists(VERSIONS, min_size=2, max_size=5), VERSIONS, st.data())
def test_all_else_stays(versions: list[str], new: str, data: st.DataObject) -> None:
    plain = {"components": {f"c{n}": {"version": v, "wheel": f"w{n}"} for n, v in enumerate(versions)}}
    raw = dump(plain, "Versions.").encode()
    which = data.draw(st.integers(0, len(versions) - 1))
    made = with_values(raw, PATH, {("components", f"c{which}", "version"): new})
    plain["components"][f"c{which}"]["version"] = new
    assert parse(made, PATH).data == plain
