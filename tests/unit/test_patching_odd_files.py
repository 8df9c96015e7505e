"""Odd files, trees, clones and archives: for each a verdict or an error with a cure, and no endless work."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import patch_project
import pytest
from factories import Data
from patch_project import FILES, FIRST, VERSION, canonical, git, text
from patchwork import diff, numbered, patch
from test_patch_check import CODE, FIX, SOURCE, checked, folder, locked, run, verdicts

import graft.commands.patch_check as patch_check
from graft.errors import BadInput, PatchMismatch
from graft.patching import SourceTree, Verdict, folder_tree, judge
from graft.patching.blocks import find
from graft.patching.clone import at_commit
from graft.patching.ends import end_of
from graft.patching.hints import successor_of_file
from graft.patching.parse import parse
from graft.patching.sources import read_wheel_members
from graft.patchset import Ends

# Files that are no ordinary Python.

RUN = b'''def run(a):
    """Doc."""
    one = a
    two = 2
    three = 3
    four = 4
    five = 5
    return one
'''
CHAIN = b"def pick(a):\n    if a == 0:\n        return 0\n" + b"".join(
    b"    elif a == %d:\n        return %d\n" % (n, n) for n in range(1, 1500)
)
#: Name -> the first line, and what stands above the function.
ODD = {
    "Latin-1 with a cookie": (b"# -*- coding: latin-1 -*-\n", b'NAME = "\xe9"\n'),
    "a cookie that names no encoding": (b"# coding: foo\n", b""),
    "a cookie of another encoding": (b"# coding: utf-16\n", b""),
    "1500 elif": (b"# x\n", CHAIN),
    "brackets in brackets": (b"# x\n", b"X = " + b"(" * 250 + b"1" + b")" * 250 + b"\n"),
    "a chain of unary operators": (b"# x\n", b"X = " + b"not " * 100_000 + b"1\n"),
    "carriage returns inside of lines": (b"# x\n", b"X = '''" + b"1\r" * 50 + b"'''\n"),
    "syntax of a newer Python": (b"# x\n", b"type X[T] = list[T]\n"),
    "no syntax at all": (b"# x\n", b"def broken(:\n"),
    "a byte order mark": (b"\xef\xbb\xbf# x\n", b""),
    "a form feed": (b"\x0c\n", b""),
}


def odd_patch(base: bytes) -> bytes:
    """Made of text that a diff can be written of, and put back."""
    made = diff(
        base.decode("latin-1").encode(),
        base.replace(b"three = 3\n", b"three = 33\n").decode("latin-1").encode(),
        "demo/a.py",
    )
    return made.decode().encode("latin-1")


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_has_a_verdict_and_a_symbol(name: str) -> None:
    first, above = ODD[name]
    body = RUN.replace(b"five = 5", b"five = '\xe9'") if name.startswith("Latin") else RUN
    base = first + above + body
    one = patch(odd_patch(base))
    (exact,) = judge({"demo/a.py": base}, [one])
    assert (exact.verdict, exact.hunks[0].symbol) == (Verdict.EXACT, "run")
    shifted = first + b"import os\n" + above + body
    (offset,) = judge({"demo/a.py": shifted}, [one], None, SourceTree({"demo/a.py": base}))
    assert (offset.verdict, offset.hunks[0].symbol) == (Verdict.OFFSET, "run")
    there = base.replace(b"    three = 3\n", b"    # Why.\n    three = 33\n")
    (merged,) = judge({"demo/a.py": there}, [one], None, SourceTree({"demo/a.py": base}))
    assert merged.verdict is Verdict.MERGED


def test_a_symbol_is_counted_as_git_counts_lines() -> None:
    body = b"".join(b"    %s(a)\n" % word for word in (b"aa", b"bb", b"cc", b"dd", b"ee", b"ff"))
    base = b"X = '''" + b"a\r" * 9 + b"'''\n\n\ndef one(a):\n" + body + b"\n\ndef two(a):\n    return a\n"
    (verdict,) = judge({"demo/a.py": base}, [patch(diff(base, base.replace(b"cc(a)", b"cc(a, 1)"), "demo/a.py"))])
    assert (verdict.verdict, verdict.hunks[0].symbol) == (Verdict.EXACT, "one")


def test_the_verbs_read_latin_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = b"# -*- coding: latin-1 -*-\nimport os\n\n\n" + RUN.replace(b"five = 5", b"five = '\xe9'")
    files = {**FILES, "vllm/m.py": old}
    fix = canonical({"vllm/m.py": old}, {"vllm/m.py": old.replace(b"three = 3", b"three = 33")})
    project = locked(patch_project.make(tmp_path / "p", {"fix": (fix, {})}, files=files))
    assert run(project, capsys, "status")[0] == 0
    code, data = checked(project, capsys, folder(tmp_path, {"vllm/m.py": old}))
    assert (code, data["patches"][0]["hunks"][0]["symbol"]) == (0, "run")


# Patches that no tree can take.

NEW = b'hello = "world"\n'


@pytest.mark.parametrize(
    ("files", "path", "why"),
    [
        ({"demo/a.txt": b"x\n"}, "demo/a.txt/x.py", "demo/a.txt is a file"),
        ({"demo/sub/x.py": b"1\n"}, "demo/sub", "demo/sub is a folder"),
    ],
)
def test_a_new_file_where_none_can_be(files: dict[str, bytes], path: str, why: str) -> None:
    (verdict,) = judge(files, [patch(diff(None, NEW, path))])
    assert verdict.verdict is Verdict.CONFLICT
    assert why in verdict.hunks[0].detail
    moved = f"diff --git a/demo/z b/{path}\nsimilarity index 100%\nrename from demo/z\nrename to {path}\n"
    (verdict,) = judge({**files, "demo/z": NEW}, [patch(moved)])
    assert verdict.verdict is Verdict.CONFLICT
    assert why in verdict.hunks[0].detail


@pytest.mark.parametrize("mode", ["new file mode 100644", "deleted file mode 100644"])
def test_a_renamed_file_is_not_new(mode: str) -> None:
    head = f"diff --git a/demo/m.py b/demo/z.py\nsimilarity index 100%\n{mode}\n"
    (verdict,) = judge({"demo/m.py": NEW}, [patch(head + "rename from demo/m.py\nrename to demo/z.py\n")])
    assert verdict.verdict is Verdict.MALFORMED
    assert "cannot be new or deleted" in verdict.detail


def test_a_quoted_path_may_end_with_a_tab() -> None:
    old, new = b"one\n", b"two\n"
    made = (
        diff(old, new, "demo/X")
        .replace(b"a/demo/X", b'"a/demo/\\303\\251"')
        .replace(b"b/demo/X", b'"b/demo/\\303\\251"')
    )
    made = made.replace(b'\\251"\n+++', b'\\251"\t\n+++').replace(b'\\251"\n@@', b'\\251"\t\n@@')
    assert parse(made).paths == ("demo/é",)


# Reports.

ESCAPES = b"def zz(): \x1b[31mRED\x1b[0m ` | <img src=x> @team \xe2\x80\xae [a](http://x)\r\x08"


@pytest.mark.parametrize("how", [[], ["--report", "md"], ["--sarif"], ["--json"]])
def test_what_a_patch_says_cannot_speak_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    old = b"x = 1\n" * 3 + b"class Model:\n" + b"".join(b"    a%d = 1111\n" % n for n in range(6))
    plain = canonical({"vllm/m.py": old}, {"vllm/m.py": old.replace(b"a3 = 1111", b"a3 = 2222")})
    start, _, rest = plain.partition(b"@@ class")
    evil = start + b"@@ " + ESCAPES + rest[rest.index(b"\n") :]
    assert evil != plain
    kernel = (
        b"#include <a>\n\nint run(int a) /* \x1b]0;pwn\x07 */ {\n"
        + b"".join(b"  f%d(a);\n" % n for n in range(6))
        + b"}\n"
    )
    other = canonical({"vllm/k.cu": kernel}, {"vllm/k.cu": kernel.replace(b"f3(a)", b"f3(b)")})
    files = {**FILES, "vllm/m.py": old, "vllm/k.cu": kernel}
    project = patch_project.make(tmp_path / "p", {"first": (evil, {}), "other": (other, {})}, files=files, source=True)
    against = folder(tmp_path, {"vllm/m.py": old, "vllm/k.cu": kernel})
    code, out, err = run(project, capsys, "check", "vllm", "--against", against, *how)
    assert code == 5
    assert "RED" in out
    assert not {"\x1b", "\x07", "\x08", "\r", "\u202e"} & set(out + err)


# `graft patch check`.


def test_what_git_refuses_is_said_of_the_one_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = locked(patch_project.make(tmp_path / "p", {"first": (FIRST, {}), "fix": (FIX, {})}, files=SOURCE))

    def refusing(component: str, tree: SourceTree, patches: list[Any], *more: Any) -> None:
        raise PatchMismatch("git found another tree", where=str(patches[-1].path))

    monkeypatch.setattr(patch_check, "lock_entry", refusing)
    code, data = checked(project, capsys, folder(tmp_path, {}))
    assert code == 5
    assert {p["patch"]: p["buildable"] for p in data["patches"]} == {"vllm/first": True, "vllm/fix": False}
    assert "git refuses it: git found another tree" in data["patches"][1]["cure"]


OLD_WAY = canonical(text(), text(l7="seven the old way"))
NEW_WAY = canonical(text(), text(l7="seven the new way"))


def test_alternatives_of_two_architectures_can_be_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series: dict[str, tuple[bytes, Data]] = {
        "old": (OLD_WAY, {"when": {"arches": ["sm90"]}}),
        "new": (NEW_WAY, {"when": {"arches": ["sm120"]}}),
    }
    project = patch_project.make(tmp_path / "p", series)
    code, data = checked(project, capsys, VERSION)
    assert (code, verdicts(data)) == (0, {"vllm/old": "exact", "vllm/new": "exact"})


def test_alternatives_of_two_versions_do_not_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series: dict[str, tuple[bytes, Data]] = {
        "old": (OLD_WAY, {"when": {"version": "<0.32"}}),
        "new": (NEW_WAY, {"when": {"version": ">=0.32"}}),
    }
    project = patch_project.make(tmp_path / "p", series)
    _, data = checked(project, capsys, VERSION)
    assert verdicts(data) == {"vllm/old": "exact", "vllm/new": "exact"}
    assert [patch["buildable"] for patch in data["patches"]] == [False, True]


@pytest.mark.parametrize("against", ["x" * 5000, "a\0b", "\udcff", "a/" * 3000, "/dev/null", "LOOP"])
def test_what_is_no_folder_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], against: str) -> None:
    project = patch_project.make(tmp_path / "p")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    code, _, err = run(project, capsys, "check", "vllm", f"--against={loop if against == 'LOOP' else against}")
    assert (code, "no version and no folder" in err.replace("\n", " ")) == (2, True)


def test_the_lock_of_another_text_of_a_patch_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = CODE + b"\n    def stop(self):\n" + b"".join(b"        a%d = 1\n" % n for n in range(9))
    fix, stop = (
        canonical({"vllm/m.py": more}, {"vllm/m.py": more.replace(*words)})
        for words in ((b"kept = {}", b"kept = dict()"), (b"a6 = 1", b"a6 = 2"))
    )
    project = locked(patch_project.make(tmp_path / "p", {"fix": (fix, {})}, files={**SOURCE, "vllm/m.py": more}))
    project.put("fix", stop)
    (wheel,) = project.paths.store.glob("*/*.whl")
    wheel.unlink()
    code, data = checked(project, capsys, folder(tmp_path, {"vllm/m.py": b"import os\n" + more}), "--offline")
    assert (code, verdicts(data)) == (0, {"vllm/fix": "offset"})


# Trees on disk.


def test_a_linked_file_of_a_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree" / "demo").mkdir(parents=True)
    (tmp_path / "tree" / "demo" / "real.py").write_bytes(NEW)
    (tmp_path / "tree" / "demo" / "a.py").symlink_to("real.py")
    (tmp_path / "tree" / "linked").symlink_to("demo")
    for path in ("demo/a.py", "linked/real.py"):
        with pytest.raises(BadInput, match="symbolic link"):
            folder_tree(tmp_path / "tree", [path])
    assert folder_tree(tmp_path / "tree", ["demo/real.py"]).files == {"demo/real.py": NEW}


def test_links_that_go_round_are_names(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "a.py").write_bytes(NEW)
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "demo" / "up").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    assert folder_tree(tmp_path, ["demo/a.py"]).all_names == {"demo/a.py", "demo/up", "loop", "self"}


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Path]:
    """1500 folders in each other, which pytest could not remove."""
    top = tmp_path / "nested"
    inner = top
    for _ in range(1500):
        inner.mkdir()
        inner = inner / "d"
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


def test_folders_in_folders(nested: Path) -> None:
    (nested / "a.py").write_bytes(NEW)
    assert folder_tree(nested, ["a.py"]).all_names == {"a.py"}


# Archives.


def test_a_damaged_member_of_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo/a.py", NEW)
        archive.writestr("demo/b.py", b"b = 2\n")
    wheel.write_bytes(wheel.read_bytes().replace(b"world", b"w0rld"))
    assert read_wheel_members(wheel, ["demo/b.py"]) == {"demo/b.py": b"b = 2\n"}
    with pytest.raises(BadInput, match=r"demo/a\.py cannot be read") as found:
        read_wheel_members(wheel, ["demo/a.py"])
    assert "downloaded again" in str(found.value.cure)


# Clones.


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, list[str]]:
    """Five commits."""
    top = tmp_path / "clone"
    top.mkdir()
    git(top, "init", "--quiet")
    commits = []
    for number in range(5):
        (top / "a.txt").write_bytes(b"%d\n" % number)
        git(top, "add", "--all")
        git(top, "commit", "--quiet", "--message", "x")
        commits.append(git(top, "rev-parse", "HEAD"))
    for allowed in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        git(top, "config", allowed, "true")
    return top, commits


def test_a_cut_history_says_nothing(tmp_path: Path, clone: tuple[Path, list[str]]) -> None:
    top, commits = clone
    assert at_commit(top, commits[1], [], commits[:3]).history == dict(zip(commits, [True, True, False], strict=False))
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{top}", "shallow")
    shallow = tmp_path / "shallow"
    assert at_commit(shallow, commits[4], [], commits[:1]).history == {commits[0]: None}
    git(shallow, "fetch", "--quiet", "--depth=1", "origin", commits[0])
    assert at_commit(shallow, commits[4], [], [commits[0], commits[4]]).history == {commits[0]: None, commits[4]: True}


def test_an_id_of_something_else_is_said_to_be_that(clone: tuple[Path, list[str]]) -> None:
    top, commits = clone
    git(top, "tag", "--annotate", "--message", "x", "v1", commits[0])
    for spelled, kind in (("v1", "tag"), ("HEAD^{tree}", "tree"), ("HEAD:a.txt", "blob")):
        found = git(top, "rev-parse", spelled)
        with pytest.raises(BadInput, match=f"{found} is a {kind}, no commit"):
            at_commit(top, found, ["a.txt"])


@pytest.mark.parametrize("without", ["blob:none", "tree:0"])
def test_a_clone_that_lacks_files_says_how_to_get_them(
    tmp_path: Path, clone: tuple[Path, list[str]], without: str
) -> None:
    top, commits = clone
    git(tmp_path, "clone", "--quiet", "--no-checkout", f"--filter={without}", f"file://{top}", "part")
    with pytest.raises(BadInput, match="lacks a part") as found:
        at_commit(tmp_path / "part", commits[0], ["a.txt"])
    assert "--refetch" in str(found.value.cure)


@pytest.mark.parametrize("written", [b"gitdir: a\0b", b"gitdir: " + b"x" * 5000, b"\xff\xfe", b"gitdir: .git", b""])
def test_a_damaged_git_file_is_no_repository(tmp_path: Path, written: bytes) -> None:
    (tmp_path / ".git").write_bytes(written)
    with pytest.raises(BadInput, match="no git repository"):
        at_commit(tmp_path, "a" * 40, [])


def test_a_damaged_worktree_is_no_repository(clone: tuple[Path, list[str]]) -> None:
    top, commits = clone
    (top / ".git" / "commondir").write_bytes(b"a\0b")
    with pytest.raises(BadInput, match="no git repository"):
        at_commit(top, commits[0], [])


def test_links_that_go_round_are_no_repository(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / ".git").symlink_to(".git")
    for place in ("loop", "top"):
        with pytest.raises(BadInput, match="no git repository"):
            at_commit(tmp_path / place, "a" * 40, [])


# What a patch works around.


def test_a_text_that_is_laid_out_anew_is_still_there() -> None:
    ends = Ends.model_validate({"gone": [{"file": "a.txt", "text": "one guard (text, here)"}]})
    pinned = SourceTree({"a.txt": b"x one guard (text, here) y\n"})
    assert end_of(ends, None, SourceTree({"a.txt": b"x one guard\n  (text,\n   here) y\n"}), pinned).reached is False
    assert end_of(ends, None, SourceTree({"a.txt": b"x\n"}), pinned).reached is True


def test_a_file_that_is_gone_leaves_it_open() -> None:
    ends = Ends.model_validate({"gone": [{"file": name, "text": "the guard text"} for name in ("a.txt", "b.txt")]})
    pinned = SourceTree({"a.txt": b"the guard text\n", "b.txt": b"the guard text\n"})
    assert end_of(ends, None, SourceTree({"a.txt": b"\n"}), pinned).reached is None
    assert end_of(ends, None, SourceTree({"a.txt": b"\n", "b.txt": b"\n"}), pinned).reached is True


# Merges.


def test_each_merged_hunk_says_where_it_is() -> None:
    lines = numbered(1, 300)

    def edited(**changed: str) -> bytes:
        return "".join(changed.get(f"l{n}", line) for n, line in enumerate(lines, 1)).encode()

    base, fixed = edited(), edited(l21="twenty-one\n", l251="two hundred\n")
    upstream = edited(l19="other\n", l249="another\n")
    (verdict,) = judge({"demo/a.txt": upstream}, [patch(diff(base, fixed))], None, SourceTree({"demo/a.txt": base}))
    assert [(h.verdict, h.line) for h in verdict.hunks] == [(Verdict.MERGE_CLEAN, 21), (Verdict.MERGE_CLEAN, 251)]


# Work grows with the files, not with their square.


def work(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def tracer(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def conflict_in_json(size: int) -> Callable[[], object]:
    """One conflict in a file whose lines repeat."""
    entry = '    {\n      "BLOCK": 64,\n      "M": %d,\n      "WARPS": 4\n    },\n'
    old = "".join(entry % n for n in range(size)).encode()
    line = b'      "M": %d,\n' % (size // 2)
    one = patch(diff(old, old.replace(line, b'      "M": 99988877,\n'), "demo/a.json"))
    upstream = old.replace(line, b'      "M": -7,\n')

    def judged() -> None:
        (verdict,) = judge({"demo/a.json": upstream}, [one], None, SourceTree({"demo/a.json": old}))
        assert verdict.verdict is Verdict.CONFLICT

    return judged


def many_hunks(size: int) -> Callable[[], object]:
    """A hunk for every 40 lines of one class."""
    old = "class Table:\n" + "".join(f"    name_{n} = compute({n}, 'abc')\n" for n in range(size))
    new = "".join(
        line.replace("'abc'", "'xyz'") if n % 40 == 20 else line for n, line in enumerate(old.splitlines(keepends=True))
    )
    one = patch(diff(old.encode(), new.encode(), "demo/a.py").replace(b"@@\n", b"@@ class Table:\n"))
    other = SourceTree({"demo/a.py": old.encode() + b"# more\n"})

    def judged() -> None:
        (verdict,) = judge(other, [one], None, SourceTree({"demo/a.py": old.encode()}))
        assert verdict.verdict is Verdict.EXACT

    return judged


@pytest.mark.parametrize(("case", "size"), [(conflict_in_json, 150), (many_hunks, 400)])
def test_twice_the_file_is_about_twice_the_work(case: Callable[[int], Callable[[], object]], size: int) -> None:
    assert work(case(2 * size)) < 3 * work(case(size))


def test_a_block_that_stands_everywhere_is_not_counted_to_the_end() -> None:
    assert len(find(b"\n" * 20_000, [b"\n"] * 10)) <= 200
    hunk = b"@@ -1000,2002 +1000,2001 @@\n \n-\n" + b" \n" * 2000
    data = b"diff --git a/demo/a.txt b/demo/a.txt\n--- a/demo/a.txt\n+++ b/demo/a.txt\n" + hunk
    (verdict,) = judge({"demo/a.txt": b"\n" * 20_000}, [patch(data)])
    assert verdict.verdict is Verdict.AMBIGUOUS


def test_a_file_that_is_gone_is_not_looked_for_everywhere() -> None:
    def tree(size: int) -> SourceTree:
        return SourceTree({f"demo/layers/module_{n}/kernel_{n % 97}.py": b"x" for n in range(size)})

    large, small = tree(4000), tree(40)
    lost = "demo/layer/module_7/kernl_7x.py"
    assert work(lambda: successor_of_file(large, lost)) < 100 * work(lambda: successor_of_file(small, lost))
    assert work(lambda: successor_of_file(large, lost)) < 100_000
    assert "demo/layers/module_7/kernel_7.py" in successor_of_file(large, "demo/layers/module_7/kernel_7x.py")
