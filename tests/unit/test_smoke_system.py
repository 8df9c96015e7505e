"""images/smoke/files.py on the whole root file system: a small Debian with a venv, and each defect planted in it."""

from __future__ import annotations

import os
from pathlib import Path

import files
import pytest
from fake_root import OURS, PEM, SITE, VENV, Root, small_root
from fake_site import cache, failed, waived
from lib import bytecode, debian, findings
from lib.facts import Patch
from lib.report import Report


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return small_root(tmp_path)


def check(root: Root) -> Report:
    report = Report("files")
    root.add_metadata()
    files.check(root.facts(), report, root.root)
    return report


def red(root: Root) -> set[str]:
    return set(failed(check(root)))


def test_an_image_as_built_is_green_and_says_which_programs_have_rights(root: Root) -> None:
    cache(root.root / "usr/lib/python3.11/os.py", "UNCHECKED_HASH")
    report = check(root)
    assert not failed(report)
    [detail] = [c["detail"] for c in report.as_dict()["checks"] if c["id"] == "read:debian"]  # type: ignore[attr-defined]
    assert detail == "3 packages, /usr/bin/su"


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        pytest.param(lambda r: r.put("usr/bin/su", "other", 0o4755), "debian-changed:/usr/bin/su", id="edited"),
        pytest.param(
            lambda r: r.put("etc/python3.11/site", "y"), "debian-changed:/etc/python3.11/site", id="configured"
        ),
        pytest.param(lambda r: (r.root / "usr/bin/su").unlink(), "debian-missing:/usr/bin/su", id="removed"),
        pytest.param(lambda r: r.debs.pop("python3.11"), "debian:python3.11", id="a-build-tool"),
        pytest.param(lambda r: r.debs.update(su="1"), "debian:su", id="not-installed"),
        pytest.param(lambda r: r.debs.update({"util-linux": "2.39"}), "debian:util-linux", id="another-version"),
        pytest.param(lambda r: r.put("usr/local/bin/cmake", "", 0o755), "unowned:/usr/local/bin/cmake", id="cmake"),
        pytest.param(lambda r: r.put(f"{VENV}/bin/nvcc", "", 0o755), f"unowned:/{VENV}/bin/nvcc", id="nvcc"),
        pytest.param(lambda r: r.put("etc/pip.conf", "[global]"), "unowned:/etc/pip.conf", id="pip-conf"),
        pytest.param(lambda r: r.put("opt/tool/lib.so"), "unowned:/opt/tool/lib.so", id="opt"),
        pytest.param(
            lambda r: (r.root / "run/graft/wheels").mkdir(parents=True), "unowned:/run/graft/wheels", id="mount"
        ),
        pytest.param(lambda r: r.put("usr/share/graft/odd"), "unowned:/usr/share/graft/odd", id="said-by-nobody"),
        pytest.param(lambda r: r.put("usr/share/graft/lock.yaml", "x"), "graft:/usr/share/graft/lock.yaml", id="lock"),
        pytest.param(
            lambda r: (r.root / "usr/share/graft/lock.yaml").unlink(), "graft:/usr/share/graft/lock.yaml", id="no-lock"
        ),
        pytest.param(lambda r: r.put("root/.cache/pip/http/a", "x" * 9), "leftover:/root/.cache/pip/http", id="pip"),
        pytest.param(lambda r: r.put("opt/.uv-cache/a"), "leftover:/opt/.uv-cache", id="uv"),
        pytest.param(lambda r: r.put("var/lib/apt/lists/x_Packages"), "leftover:/var/lib/apt/lists", id="apt-lists"),
        pytest.param(lambda r: r.put("var/cache/apt/archives/x.deb"), "leftover:/var/cache/apt/archives", id="debs"),
        pytest.param(lambda r: r.put("var/log/dpkg.log"), "leftover:/var/log", id="log"),
        pytest.param(lambda r: r.put("tmp/x.whl"), "leftover:/tmp", id="tmp"),
        pytest.param(lambda r: r.put("root/.bash_history"), "leftover:/root", id="history"),
        pytest.param(lambda r: r.put("src/vllm/setup.py"), "leftover:/src/vllm", id="source"),
        pytest.param(lambda r: r.put("usr/bin/su", "su", 0o6755), "privileged:/usr/bin/su", id="more-bits"),
        pytest.param(lambda r: (r.path / "one.py").chmod(0o4755), "privileged:one.py", id="setuid"),
        pytest.param(lambda r: r.put(f"{SITE}/../x", "", 0o2755), f"privileged:/{VENV}/lib/python3.11/x", id="setgid"),
        pytest.param(
            lambda r: (r.root / "usr/lib/python3.11/os.py").chmod(0o4755),
            "privileged:/usr/lib/python3.11/os.py",
            id="setuid-of-another-package",
        ),
        pytest.param(lambda r: (r.path / "one.py").chmod(0o666), "writable:one.py", id="writable"),
        pytest.param(lambda r: r.path.chmod(0o777), "writable:/" + SITE, id="writable-folder"),
        pytest.param(
            lambda r: r.put("etc/ssl/certs/ca-certificates.crt", OURS + PEM.format("bWluZQ")),
            "trust:/etc/ssl/certs/ca-certificates.crt",
            id="ca-in-the-bundle",
        ),
        pytest.param(
            lambda r: (r.root / "etc/ssl/certs/mine.pem").symlink_to(
                r.put("usr/local/share/ca-certificates/mine.crt", PEM.format("bWluZQ"))
            ),
            "unowned:/usr/local/share/ca-certificates/mine.crt",
            id="ca-beside-it",
        ),
        pytest.param(
            lambda r: (r.root / "usr/bin/ld").symlink_to("/opt/gone"), "unowned:/usr/bin/ld", id="a-link-to-nothing"
        ),
    ],
)
def test_each_defect_is_red(root: Root, edit: object, found: str) -> None:
    edit(root)  # type: ignore[operator]
    assert found in red(root)


def test_a_folder_that_everybody_may_write_to_but_not_delete_from_is_green(root: Root) -> None:
    (root.root / "tmp").mkdir(mode=0o777)
    (root.root / "tmp").chmod(0o1777)
    assert red(root) == {"unowned", "unowned:/tmp"}
    root.deb("base-files", "12", {"/tmp/.x": ""})
    assert not red(root)


def test_setgid_on_a_folder_gives_no_rights(root: Root) -> None:
    (root.root / "var/mail").mkdir()
    (root.root / "var/mail").chmod(0o2775)
    assert not red(root)


def test_what_dpkg_was_told_to_leave_out_is_not_missing(root: Root) -> None:
    root.deb("docs", "1", {"/usr/share/doc/docs/manual": "x", "/usr/share/doc/docs/copyright": "y"})
    (root.root / "usr/share/doc/docs/manual").unlink()
    assert not red(root)
    (root.root / "usr/share/doc/docs/copyright").unlink()
    assert red(root) == {"debian-missing", "debian-missing:/usr/share/doc/docs/copyright"}


def test_a_diverted_file_is_owned_where_it_lies(root: Root) -> None:
    (root.root / "var/lib/dpkg/diversions").write_text("/bin/sh\n/bin/sh.distrib\ndash\n")
    root.deb("bash", "5", {"/bin/sh": "bash"})
    (root.root / "usr/bin/sh").rename(root.root / "usr/bin/sh.distrib")
    root.deb("dash", "1", {"/bin/sh": "dash"})
    assert not red(root)
    assert debian.read(root.root).owners["usr/bin/sh.distrib"] == "bash"


def test_what_is_mounted_or_made_for_the_container_is_not_the_images(root: Root) -> None:
    for path in ("proc/1/maps", "sys/x", "dev/null", ".dockerenv", "etc/resolv.conf", "smoke/lib/odd.py"):
        root.put(path, "", 0o666)
    assert not red(root)


def test_a_leftover_is_one_finding_for_each_folder_and_can_be_waived(root: Root) -> None:
    for name in ("a", "b", "c"):
        root.put(f"root/.cache/{name}", "12345")
    assert failed(check(root))["leftover:/root/.cache"] == "a cache: 3 files, 15 bytes"
    root.waive("files", "/root/.cache")
    report = check(root)
    assert not failed(report)
    assert waived(report) == ["leftover:/root/.cache"]


def same_size_and_time(source: Path, text: str) -> None:
    before = source.stat()
    assert before.st_size == len(text)
    source.write_text(text)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_bytecode_that_python_would_run_instead_of_an_edited_source_is_red(root: Root) -> None:
    source = root.path / "one.py"
    stale = cache(source)
    same_size_and_time(source, "ONE = 2\n")
    assert f"bytecode:{stale.relative_to(root.path)}" in red(root)


@pytest.mark.parametrize("mode", ["CHECKED_HASH", "UNCHECKED_HASH"])
def test_bytecode_with_the_hash_of_another_source_is_red(root: Root, mode: str) -> None:
    source = root.root / "usr/lib/python3.11/os.py"
    stale = cache(source, mode)
    assert bytecode.why_stale(stale) is None
    same_size_and_time(source, "name = 'other'\n")
    assert "another source" in str(bytecode.why_stale(stale))
    assert f"bytecode:/{stale.relative_to(root.root)}" in red(root)


def test_bytecode_of_a_patched_module_is_compared_in_full(root: Root) -> None:
    source, other = root.path / "one.py", root.root / "other.py"
    other.write_text("ONE = 2\n")
    made = cache(source, "UNCHECKED_HASH")
    made.write_bytes(made.read_bytes()[: bytecode.HEADER_BYTES] + cache(other).read_bytes()[bytecode.HEADER_BYTES :])
    other.unlink()
    cache_of_other = root.root / "__pycache__"
    for file in cache_of_other.iterdir():
        file.unlink()
    cache_of_other.rmdir()
    assert not red(root)
    root.patches.append(Patch("one", "fix", "test_fix.py", {"one.py": "0" * 64}))
    assert red(root) == {"bytecode", f"bytecode:{made.relative_to(root.path)}"}


@pytest.mark.parametrize(
    ("name", "data"),
    [("one.cpython-310.pyc", b""), ("one.cpython-311.pyc", b"\0" * 40), ("one.cpython-311.pyc", b"")],
)
def test_bytecode_of_another_python_is_red(root: Root, name: str, data: bytes) -> None:
    (root.path / "__pycache__").mkdir()
    (root.path / "__pycache__" / name).write_bytes(data)
    assert red(root) == {"bytecode", f"bytecode:__pycache__/{name}"}


def test_many_leftovers_are_counted(root: Root) -> None:
    for number in range(findings.LISTED + 2):
        root.put(f"opt/tool/{number}")
    assert failed(check(root))["unowned:more"] == "2 more, 0 waived"
