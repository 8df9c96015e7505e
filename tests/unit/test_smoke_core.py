"""images/smoke/core.py: green on an image as planned, red for each defect."""

from __future__ import annotations

from pathlib import Path

import core
import pytest
from fake_site import Site, failed
from lib.report import Report

VLLM = {
    "vllm/__init__.py": "__version__ = '0.32.0'\n",
    "vllm/_version.py": "__commit_id__ = commit_id = 'g5df63a720'\n",
}
COMMIT = "5df63a720"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.install("vllm", "0.32.0", VLLM)
    made.install("Some.Package", "1.0", {"some.py": ""})
    made.component("vllm", "vllm", "0.32.0", COMMIT)
    return made


def packages(site: Site, *more: Path) -> dict[str, str]:
    report = Report("core")
    core.check_packages(site.facts(), report, [str(site.path), *map(str, more)])
    return failed(report)


def components(site: Site) -> dict[str, str]:
    report = Report("core")
    core.check_components(site.facts(), report, [str(site.path)])
    return failed(report)


def environment(site: Site, **env: str) -> dict[str, str]:
    report = Report("core")
    core.check_env(site.facts(), report, b"\0".join(f"{k}={v}".encode() for k, v in env.items()) + b"\0")
    return failed(report)


def test_an_image_as_planned_is_green(site: Site) -> None:
    site.env = {"PATH": "/opt/venv/bin", "VLLM_NO_USAGE_STATS": "1"}
    assert not packages(site)
    assert not components(site)
    assert not environment(site, PATH="/opt/venv/bin", VLLM_NO_USAGE_STATS="1", HOSTNAME="x", HOME="/root")


def test_an_extra_package_is_red(site: Site) -> None:
    site.install("stowaway", "1.0", {})
    del site.packages["stowaway"]
    assert packages(site) == {"packages": "stowaway 1.0 is not in the lock"}


def test_a_missing_package_is_red(site: Site) -> None:
    site.packages["gone"] = "1.0"
    assert packages(site) == {"packages": "gone 1.0 is missing"}


def test_a_wrong_version_is_red(site: Site) -> None:
    site.packages["Some.Package"] = "1.1"
    assert packages(site) == {"packages": "some-package is 1.0, the lock says 1.1"}


def test_a_package_that_is_there_twice_is_red(site: Site, tmp_path: Path) -> None:
    other = Site(tmp_path / "other")
    other.install("some-package", "1.0", {})
    assert packages(site, other.path) == {"packages": "some-package is installed 2 times: 1.0, 1.0"}


def test_a_component_in_another_version_is_red(site: Site) -> None:
    site.component("vllm", "vllm", "0.33.0", COMMIT)
    assert set(components(site)) == {"version:vllm"}


def test_a_component_that_is_not_installed_is_red(site: Site) -> None:
    site.component("b12x", "b12x", "1.5.1")
    assert set(components(site)) == {"version:b12x"}


@pytest.mark.parametrize("commit", ["0123456789", "5df63a", "5df63a721", "g"])
def test_another_commit_is_red(site: Site, commit: str) -> None:
    site.component("vllm", "vllm", "0.32.0", commit)
    assert set(components(site)) == {"commit:vllm"}


def test_the_full_commit_and_its_abbreviation_are_the_same(site: Site) -> None:
    site.component("vllm", "vllm", "0.32.0", COMMIT + "0" * 31)
    assert not components(site)


def test_a_component_that_records_no_commit_is_red(site: Site) -> None:
    site.write("vllm/_version.py", "__version__ = '0.32.0'\n")
    assert components(site) == {"commit:vllm": f"the recipe says {COMMIT}, no file records a commit"}


def test_an_extra_variable_is_red_and_its_value_is_not_shown(site: Site) -> None:
    site.env = {"PATH": "/bin"}
    assert environment(site, PATH="/bin", HTTPS_PROXY="secret") == {"environment": "HTTPS_PROXY is not in the plan"}


def test_a_missing_or_changed_variable_is_red(site: Site) -> None:
    site.env = {"PATH": "/opt/venv/bin", "HOME": "/root"}
    assert environment(site, PATH="/bin") == {"environment": "HOME is not set; PATH is not '/opt/venv/bin'"}
