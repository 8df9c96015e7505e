"""images/smoke/lib/verdicts.py: what a file's code means on a device, and how that is said."""

from __future__ import annotations

from pathlib import Path

import gpu_elf
import pytest
from lib import census, verdicts
from lib.verdicts import Judgement


def judged(tmp_path: Path, data: bytes, arch: str = "sm90") -> Judgement:
    (tmp_path / "f").write_bytes(data)
    return verdicts.judge(census.read(tmp_path / "f"), arch)


@pytest.mark.parametrize(
    ("archs", "arch", "verdict", "rules"),
    [
        (["sm_90", "sm_90a", "compute_80"], "sm90", "covered", ("a", "exact")),
        (["sm_80", "sm_120f"], "sm120", "covered", ("family",)),
        (["sm_80", "sm_120f"], "sm86", "covered", ("same major",)),
        (["sm_80", "compute_80"], "sm90", "ptx-only", ("PTX",)),
        (["sm_100f"], "sm90", "missing", ()),
    ],
)
def test_verdict_and_rules(tmp_path: Path, archs: list[str], arch: str, verdict: str, rules: tuple[str, ...]) -> None:
    got = judged(tmp_path, gpu_elf.gpu_library(*archs), arch)
    assert (got.verdict, got.rules, got.red) == (verdict, rules, verdict != "covered")


def test_parts_of_a_covered_file_are_told_apart(tmp_path: Path) -> None:
    parts = (["sm_80", "sm_90"], ["sm_80", "compute_80"], ["sm_80"], ["lto_90"])
    got = judged(tmp_path, gpu_elf.elf({".nv_fatbin": b"".join(gpu_elf.container(*archs) for archs in parts)}))
    assert got.fatbins == {"covered": 1, "link": 1, "missing": 1, "ptx-only": 1}
    text = "covered for sm90 (exact); 4 fatbins: 1 covered, 1 link, 1 missing, 1 ptx-only"
    assert verdicts.text(got, "sm90") == text


def test_what_a_file_holds_in_words(tmp_path: Path) -> None:
    data = {".nv_fatbin": gpu_elf.container("compute_120", "sm_100f", "sm_90a"), ".rodata": gpu_elf.container("lto_75")}
    relocatable = {"__nv_relfatbin": gpu_elf.container("sm_90", "sm_90")}
    (tmp_path / "f").write_bytes(gpu_elf.elf({**data, **relocatable}))
    held = verdicts.held_in(census.read(tmp_path / "f"))
    assert held == "sm_90a, sm_100f, sm_90 (r), compute_120; in .rodata lto_75"


def test_an_arch_of_another_form(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="form sm90"):
        judged(tmp_path, gpu_elf.gpu_library("sm_90"), "90")
