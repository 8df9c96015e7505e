"""images/smoke/files.py: green after an installation, red for each thing that can happen to it later."""

from __future__ import annotations

from pathlib import Path

import files
import pytest
from fake_site import Site, cache, failed, waived
from lib import findings
from lib.report import Report


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.install("one", "1.0", {"one/__init__.py": "ONE = 1\n", "one/data.bin": "0123456789"})
    made.install("two", "2.0", {"two.py": "TWO = 2\n", "../bin/two": "#!python\n"})
    return made


def check(site: Site) -> Report:
    report = Report("files")
    site.add_metadata()
    files.check(site.facts(), report, site.root)
    return report


def red(site: Site) -> set[str]:
    return set(failed(check(site)))


def test_an_installation_is_green(site: Site) -> None:
    cache(site.path / "one/__init__.py")
    report = check(site)
    assert not failed(report)
    assert not waived(report)


def test_a_file_edited_after_installation_is_red(site: Site) -> None:
    site.write("one/__init__.py", "ONE = 2\n")
    assert red(site) == {"changed", "changed:one/__init__.py of one"}


def test_a_file_outside_site_packages_is_compared_too(site: Site) -> None:
    site.write("../bin/two", "#!other\n")
    assert red(site) == {"changed", "changed:../bin/two of two"}


def test_a_file_cut_short_is_red(site: Site) -> None:
    site.write("one/data.bin", "01234")
    assert "RECORD says 10" in failed(check(site))["changed:one/data.bin of one"]


def test_a_missing_file_is_red(site: Site) -> None:
    (site.path / "two.py").unlink()
    assert red(site) == {"missing", "missing:two.py of two"}


def test_a_file_that_two_distributions_record_is_red(site: Site) -> None:
    site.install("three", "3.0", {"two.py": "TWO = 2\n"})
    assert red(site) == {"owned-twice", "owned-twice:two.py"}


def test_a_file_that_a_second_distribution_overwrote_is_red_twice(site: Site) -> None:
    site.install("three", "3.0", {"two.py": "TWO = 3\n"})
    assert red(site) == {"owned-twice", "owned-twice:two.py", "changed", "changed:two.py of two"}


@pytest.mark.parametrize("path", ["stray.py", "one/stray.so", "one/__pycache__/stray.cpython-311.pyc"])
def test_a_file_that_nobody_records_is_red(site: Site, path: str) -> None:
    site.write(path, "")
    assert red(site) == {"unrecorded", f"unrecorded:{path}"}


@pytest.mark.parametrize("target", ["/etc/hostname", "../bin", "gone", "stray"])
def test_a_link_to_what_nobody_records_is_red(site: Site, target: str) -> None:
    site.write("stray", "")
    (site.path / "link").symlink_to(target)
    assert {"unrecorded", "unrecorded:link"} <= red(site)


def test_a_link_to_recorded_files_is_green(site: Site) -> None:
    (site.path / "one64").symlink_to("one")
    (site.path / "one" / "link.bin").symlink_to("data.bin")
    assert not red(site)


def test_a_distribution_without_a_record_is_red(site: Site) -> None:
    (site.path / "one-1.0.dist-info" / "RECORD").unlink()
    assert "record:one-1.0.dist-info/RECORD of one" in red(site)


def test_a_file_recorded_without_a_hash_is_red(site: Site) -> None:
    record = site.path / "two-2.0.dist-info" / "RECORD"
    rows = [
        f"two.py,,{row.rsplit(',')[-1]}" if row.startswith("two.py") else row for row in record.read_text().splitlines()
    ]
    record.write_text("\n".join(rows) + "\n")
    assert red(site) == {"record", "record:two.py of two"}


def test_an_empty_site_is_red(tmp_path: Path) -> None:
    assert red(Site(tmp_path)) == {"read"}


def test_a_waiver_excuses_what_it_names(site: Site) -> None:
    site.write("one/data.bin", "01234")
    site.waive("files", "one/*.bin", "one")
    report = check(site)
    assert not failed(report)
    assert waived(report) == ["changed:one/data.bin of one"]


def test_a_waiver_excuses_nothing_else(site: Site) -> None:
    site.write("one/data.bin", "01234")
    site.write("two.py", "TWO = 3\n")
    site.waive("files", "*", "one")
    assert red(site) == {"changed", "changed:two.py of two"}


def test_a_waiver_that_nothing_needs_is_red(site: Site) -> None:
    site.waive("files", "one/data.bin", "one")
    assert failed(check(site)) == {"waivers": "nothing needs the waiver file=one/data.bin package=one: remove it"}


def test_a_waiver_of_another_check_or_architecture_is_not_ours(site: Site) -> None:
    site.waive("cuda-code", "one/data.bin")
    site.waive("files", "one/data.bin", arch="sm120")
    assert not failed(check(site))


def test_many_findings_are_listed_up_to_a_limit(site: Site) -> None:
    for number in range(findings.LISTED + 5):
        site.write(f"stray{number:03}.py", "")
    details = failed(check(site))
    assert details["unrecorded:more"] == "5 more, 0 waived"
    assert len(details) == findings.LISTED + 2


def test_every_file_is_read_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("three", "3.0", {"two.py": "TWO = 2\n"})
    read: list[str] = []
    compare_file = files.compare_file

    def counting(where: Path, file: str, entries: list[files.Entry]) -> object:
        read.append(file)
        return compare_file(where, file, entries)

    monkeypatch.setattr(files, "compare_file", counting)
    check(site)
    assert sorted(read) == sorted(set(read))
    assert "two.py" in read
