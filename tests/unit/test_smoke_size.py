"""The gate's test of the size budget: kept and broken, in a made-up image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import size
from fake_site import Site, checks_of, failed
from lib.facts import Budget
from lib.report import Report


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / "root")
    made.install("vllm", "0.32.0", {"vllm/__init__.py": "x" * 1000})
    made.install("flashinfer-python", "0.7.0", {"flashinfer/__init__.py": "y" * 300})
    made.install("graft-flashinfer-aot", "0.7.0", {"aot/norm.so": "z" * 5000})
    return made


def run(site: Site, total: int | None, components: Mapping[str, tuple[int, tuple[str, ...]]]) -> Report:
    site.budget = Budget(total, components)
    report = Report("size")
    size.check(site.facts(), report, site.root)
    return report


def bytes_of(site: Site, *names: str) -> int:
    return size.installed_bytes(site.path, names)[0]


def test_within_its_budget(site: Site) -> None:
    flashinfer = ("flashinfer-python", "graft-flashinfer-aot")
    limits = {"vllm": (bytes_of(site, "vllm"), ("vllm",)), "flashinfer": (9000, flashinfer)}
    report = run(site, size.tree_bytes(site.root), limits)
    assert failed(report) == {}
    assert [check["id"] for check in checks_of(report)] == ["component:vllm", "component:flashinfer", "total"]


def test_one_byte_too_much_is_red(site: Site) -> None:
    report = run(site, size.tree_bytes(site.root) - 1, {"vllm": (bytes_of(site, "vllm") - 1, ("vllm",))})
    assert set(failed(report)) == {"component:vllm", "total"}
    assert "too much" in failed(report)["total"]


def test_what_is_compiled_for_a_component_counts(site: Site) -> None:
    limits = {"flashinfer": (bytes_of(site, "flashinfer-python"), ("flashinfer-python", "graft-flashinfer-aot"))}
    assert set(failed(run(site, None, limits))) == {"component:flashinfer"}


def test_the_size_is_that_of_the_files_and_not_what_record_says(site: Site) -> None:
    limit = bytes_of(site, "vllm")
    site.write("vllm/__init__.py", "x" * 1001)
    assert set(failed(run(site, None, {"vllm": (limit, ("vllm",))}))) == {"component:vllm"}


def test_a_component_that_is_not_there_does_not_pass_as_small(site: Site) -> None:
    report = run(site, None, {"torch": (1000, ("torch",))})
    assert "not installed: torch" in failed(report)["component:torch"]


def test_hard_links_count_once_and_links_and_mounted_things_not_at_all(site: Site) -> None:
    before = size.tree_bytes(site.root)
    os.link(site.path / "vllm/__init__.py", site.root / "same")
    (site.root / "link").symlink_to(site.path / "vllm/__init__.py")
    for name in size.APART:
        (site.root / name).mkdir()
        (site.root / name / "file").write_text("x" * 100)
    assert size.tree_bytes(site.root) == before
    deeper = site.path / "proc"
    deeper.mkdir()
    (deeper / "file").write_text("x" * 100)
    assert size.tree_bytes(site.root) == before + 100, "only at the top they are the kernel's"


def test_no_budget_is_no_pass(site: Site) -> None:
    assert run(site, None, {}).verdict == "fail"
