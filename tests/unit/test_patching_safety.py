"""What is refused before any engine sees a patch."""

from __future__ import annotations

import pytest
from patchwork import diff, record

from graft.errors import BadInput
from graft.patching import check_safety, parse
from graft.patching.safety import MAX_BYTES, MAX_HUNKS, check_paths

OLD, NEW = b"one\ntwo\nthree\n", b"one\n2\nthree\n"
GOOD = diff(OLD, NEW, "demo/a.py")


def new_file(mode: str, path: str = "demo/n.py") -> bytes:
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n".encode()


def renamed(old: str, new: str) -> bytes:
    return f"diff --git a/{old} b/{new}\nrename from {old}\nrename to {new}\n".encode()


def quoted(path: str) -> bytes:
    return diff(OLD, NEW, "X").replace(b"a/X", f'"a/{path}"'.encode()).replace(b"b/X", f'"b/{path}"'.encode())


BINARY = b"diff --git a/demo/x b/demo/x\nindex 0000..1111 100644\nBinary files a/demo/x and b/demo/x differ\n"

REFUSED = [
    ("absolute path", diff(OLD, NEW, "/etc/passwd"), "absolute"),
    ("home", diff(OLD, NEW, "~root/x"), "absolute"),
    ("drive", diff(OLD, NEW, "C:/x"), "absolute"),
    ("parent", diff(OLD, NEW, "demo/../../x"), "`..`"),
    ("parent at the end", diff(OLD, NEW, "demo/.."), "`..`"),
    ("dot", diff(OLD, NEW, "demo/./x"), "`.`"),
    ("empty part", diff(OLD, NEW, "demo//x"), "empty part"),
    ("backslash", quoted("demo\\\\x"), "backslash"),
    ("newline", quoted("demo/\\n"), "control"),
    ("escape", quoted("demo/\\033[31m"), "control"),
    ("right-to-left override", diff(OLD, NEW, "demo/a\u202eyp.txt"), "control"),
    ("zero width", diff(OLD, NEW, "demo/.g\u200dit/x"), "control"),
    ("long path", diff(OLD, NEW, "d/" * 600 + "x"), "longer"),
    (".git", diff(OLD, NEW, ".git/config"), ".git folder"),
    (".GIT", diff(OLD, NEW, "demo/.GIT/hooks/x"), ".git folder"),
    (".git with dots", diff(OLD, NEW, "demo/.git. ./x"), ".git folder"),
    ("git~1", diff(OLD, NEW, "demo/GIT~1/x"), ".git folder"),
    ("symlink", new_file("120000"), "symbolic link"),
    ("submodule", new_file("160000"), "submodule"),
    ("setuid", new_file("104755"), "mode 104755"),
    ("group writable", new_file("100664"), "mode 100664"),
    ("mode of an existing file", b"diff --git a/demo/x b/demo/x\nold mode 100644\nnew mode 100777\n", "mode 100777"),
    ("case collision", diff(OLD, NEW, "demo/a.py") + diff(OLD, NEW, "demo/A.py"), "case"),
    ("Unicode collision", diff(OLD, NEW, "demo/\u00e9") + diff(OLD, NEW, "demo/e\u0301"), "Unicode"),
    ("rename out of the source", renamed("demo/a.py", "../a.py"), "`..`"),
    ("binary", BINARY, "binary"),
    ("HTML", b"<!DOCTYPE html><html><body>404</body></html>", "HTML"),
    ("HTML after blanks", b"\xef\xbb\xbf\n  <html>\ndiff --git a/x b/x\n", "HTML"),
    ("too large", b"x" * (MAX_BYTES + 1), "16 MiB"),
    ("too many hunks", None, "2000 hunks"),
    ("setup.py", diff(OLD, NEW, "setup.py"), "build-files"),
    ("pyproject", diff(OLD, NEW, "sub/pyproject.toml"), "build-files"),
    ("conftest", diff(OLD, NEW, "tests/conftest.py"), "build-files"),
    ("sitecustomize", diff(OLD, NEW, "sitecustomize.py"), "build-files"),
    ("CI", diff(OLD, NEW, ".github/workflows/x.yml"), "build-files"),
    ("CMake", diff(OLD, NEW, "cmake/utils.cmake"), "build-files"),
]

REFUSED_IN_WHEELS = [
    ("metadata", diff(OLD, NEW, "demo-1.0.dist-info/METADATA"), "metadata"),
    ("entry points", diff(OLD, NEW, "demo-1.0.dist-info/entry_points.txt"), "metadata"),
    ("scripts", diff(OLD, NEW, "demo-1.0.data/scripts/x"), "metadata"),
    (".pth", diff(OLD, NEW, "demo.pth"), ".pth"),
    ("kernel", diff(OLD, NEW, "demo/a.cu"), "built from source"),
    ("kernel header", diff(OLD, NEW, "demo/a.cuh"), "built from source"),
    ("C++", diff(OLD, NEW, "demo/a.cpp"), "built from source"),
    ("header", diff(OLD, NEW, "demo/a.h"), "built from source"),
    ("library", diff(OLD, NEW, "demo/a.so"), "compiled"),
    ("bytecode", diff(OLD, NEW, "demo/__pycache__/a.cpython-311.pyc"), "compiled"),
    ("deletion", diff(OLD, None, "demo/a.py"), "not remove"),
    ("rename", renamed("demo/a.py", "demo/b.py"), "not remove"),
    ("mode", b"diff --git a/demo/x b/demo/x\nold mode 100644\nnew mode 100755\n", "modes"),
]


def many_hunks() -> bytes:
    hunks = "".join(f"@@ -{i * 4 + 1},3 +{i * 4 + 1},3 @@\n a\n-b\n+c\n d\n" for i in range(MAX_HUNKS + 1))
    return f"diff --git a/demo/a b/demo/a\n--- a/demo/a\n+++ b/demo/a\n{hunks}".encode()


@pytest.mark.parametrize(("data", "why"), [(d, w) for _, d, w in REFUSED], ids=[n for n, _, _ in REFUSED])
def test_refused(data: bytes | None, why: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_safety(many_hunks() if data is None else data, record())
    assert why in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.startswith("fix.patch")


@pytest.mark.parametrize(
    ("data", "why"), [(d, w) for _, d, w in REFUSED_IN_WHEELS], ids=[n for n, _, _ in REFUSED_IN_WHEELS]
)
def test_refused_in_a_wheel(data: bytes, why: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_safety(data, record(target="wheel", allows=["build-files"]))
    assert why in caught.value.what


def test_what_a_record_may_allow() -> None:
    check_safety(diff(OLD, NEW, "setup.py"), record(allows=["build-files"]))
    check_safety(BINARY, record(allows=["binary"]))


def test_names_in_a_hunk_are_not_paths() -> None:
    check_safety(diff(b"-- /etc/x\nb\n", b"++ /etc/y\nb\n", "demo/a.sql"), record())


def test_good_patches_pass() -> None:
    check_safety(GOOD, record())
    check_safety(GOOD, record(target="wheel"))
    check_safety(diff(OLD, NEW, "demo/.gitignore"), record())
    check_safety(b"no patch at all", record())


NAMES = ["demo/a.py", "demo/b.cpython-311-x86_64-linux-gnu.so", "demo/b.py", "demo-1.0.dist-info/RECORD", "single.py"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (diff(None, NEW, "other/n.py"), "outside the component"),
        (diff(None, NEW, "demo/A.py"), "differ only in case"),
        (diff(OLD, NEW, "demo/b.py"), "compiled twin"),
    ],
)
def test_what_only_the_component_shows(data: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        check_paths(parse(data), record(target="wheel"), NAMES)


def test_paths_inside_the_component() -> None:
    for path in ("demo/a.py", "demo/new.py", "single.py"):
        check_paths(parse(diff(OLD, NEW, path)), record(target="wheel"), NAMES)
