"""The conformance table: every verdict and every known trap of applying patches, one row each.

A row is a patch, the files it meets, the verdict, and the exit code of a command that has to build with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from patchwork import diff, numbered, patch, text

from graft.errors import GraftError
from graft.patching import SourceTree, Verdict, judge, lock_entry
from graft.patchset import Patch

BASE = text(numbered(1, 30))
EDIT = BASE.replace(b"line 15\n", b"line fifteen\n")
PATCH = diff(BASE, EDIT)
TWO_EDITS = EDIT.replace(b"line 25\n", b"line twentyfive\n")
CRLF = BASE.replace(b"\n", b"\r\n")
PYTHON = b"""import os


class First:
    def run(self):
        one = 1
        two = 2
        three = 3
        return one


class Second:
    def stop(self):
        four = 4
        return four
"""
PYTHON_PATCH = b"""diff --git a/demo/a.py b/demo/a.py
--- a/demo/a.py
+++ b/demo/a.py
@@ -5,5 +5,5 @@ class First:
     def run(self):
         one = 1
-        two = 2
+        two = 22
         three = 3
         return one
"""


def moved(lines: int) -> bytes:
    return text([f"new {i}\n" for i in range(lines)]) + BASE


def with_mode(old: str, new: str, path: str = "demo/a.txt") -> bytes:
    return f"diff --git a/{path} b/{path}\nold mode {old}\nnew mode {new}\n".encode()


def rename(old: str, new: str) -> bytes:
    title = f"diff --git a/{old} b/{new}\n"
    return f"{title}similarity index 100%\nrename from {old}\nrename to {new}\n".encode()


#: What a build ends with. A verdict that cannot be built is 5; what no engine may see is 2, before any verdict.
EXIT = {Verdict.EXACT: 0, Verdict.OFFSET: 0}


@dataclass(frozen=True)
class Case:
    """bases: the files that the patch was made for, where the row needs them; exit_code: if not the verdict's own.

    series: more patches that come before; record: fields of the patch's record.
    """

    name: str
    data: bytes
    verdict: Verdict
    files: dict[str, bytes] = field(default_factory=lambda: {"demo/a.txt": BASE})
    why: str = ""
    executable: frozenset[str] = frozenset()
    bases: dict[str, bytes] | None = None
    exit_code: int | None = None
    locked: dict[str, str] | None = None
    series: Sequence[Patch] = ()
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def patches(self) -> list[Patch]:
        return [*self.series, patch(self.data, **self.record)]


FROM = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
ANCHORED = diff(BASE, b"zero\n" + BASE)
TAIL = diff(BASE, BASE + b"line 31\n")
NO_NEWLINE = BASE.removesuffix(b"\n")
QUOTED = (
    diff(BASE, EDIT, "demo/X")
    .replace(b"a/demo/X", b'"a/demo/\\303\\251.txt"')
    .replace(b"b/demo/X", b'"b/demo/\\303\\251.txt"')
)
REPEATED = text("start\n", ["same\n"] * 9, "end\n")
INSERT = diff(BASE, BASE.replace(b"line 15\n", b"line 15\nonly_here = 1\n"))
INSERTED = BASE.replace(b"line 15\n", b"line 15\nonly_here = 1\n")

BINARY = (
    b"diff --git a/demo/a.txt b/demo/a.txt\nindex 0000000..1111111 100644\nGIT binary patch\nliteral 1\nIcmZQzKmY*\n\n"
)

CASES = [
    # How a hunk can be placed.
    Case("its own base", PATCH, Verdict.EXACT),
    Case("lines added above", PATCH, Verdict.OFFSET, {"demo/a.txt": moved(7)}),
    Case("lines removed above", PATCH, Verdict.OFFSET, {"demo/a.txt": text(numbered(5, 30))}),
    Case("block stands twice", PATCH, Verdict.AMBIGUOUS, {"demo/a.txt": BASE + BASE}, "2 places: lines 12, 42"),
    Case(
        "block stands twice, one of them at its line",
        PATCH,
        Verdict.AMBIGUOUS,
        {"demo/a.txt": BASE + text(numbered(12, 18))},
        "2 places",
    ),
    Case(
        "context changed",
        PATCH,
        Verdict.CONFLICT,
        {"demo/a.txt": BASE.replace(b"line 14\n", b"other\n")},
        "line 14 differs: expected 'line 14', found 'other'",
    ),
    Case("nothing of it is there", PATCH, Verdict.CONFLICT, {"demo/a.txt": b"quite\nanother\nfile\n"}, "nowhere"),
    Case("changed whitespace", PATCH, Verdict.CONFLICT, {"demo/a.txt": BASE.replace(b"line 14\n", b"line  14\n")}),
    Case("file is gone", PATCH, Verdict.GONE, {"demo/sub/a.txt": BASE}, "likely successor is demo/sub/a.txt"),
    Case("file is gone without a trace", PATCH, Verdict.GONE, {"demo/zzz.bin": b"x"}, "no such file"),
    Case(
        "one hunk of two placed",
        diff(BASE, TWO_EDITS),
        Verdict.CONFLICT,
        {"demo/a.txt": BASE.replace(b"line 25\n", b"x\n")},
    ),
    Case(
        "two hunks swapped",
        diff(BASE, TWO_EDITS),
        Verdict.RELOCATED,
        {"demo/a.txt": text(numbered(20, 30), numbered(1, 19))},
        "",
    ),
    Case(
        "moved into another class",
        PYTHON_PATCH,
        Verdict.RELOCATED,
        {"demo/a.py": PYTHON.replace(b"class First", b"class Other")},
        "made for `class First:`",
    ),
    Case("same class further down", PYTHON_PATCH, Verdict.OFFSET, {"demo/a.py": b"import re\n" + PYTHON}),
    Case(
        "class is gone",
        PYTHON_PATCH,
        Verdict.GONE,
        {"demo/a.py": PYTHON.replace(b"class First", b"class Firsts").replace(b"two = 2", b"two = two()")},
        "First is no longer defined in the file; its likely successor is Firsts",
    ),
    Case(
        "declaration of a C file changed",
        PYTHON_PATCH.replace(b"a.py", b"a.cuh").replace(b"class First:", b"void f()"),
        Verdict.RELOCATED,
        {"demo/a.cuh": PYTHON},
    ),
    # What upstream has.
    Case("upstream has it", PATCH, Verdict.MERGED, {"demo/a.txt": EDIT}),
    Case("upstream has it, further down", PATCH, Verdict.MERGED, {"demo/a.txt": b"new\n" + EDIT}),
    Case("upstream has one hunk of two", diff(BASE, TWO_EDITS), Verdict.PARTIAL, {"demo/a.txt": EDIT}),
    Case("upstream has both", diff(BASE, TWO_EDITS), Verdict.MERGED, {"demo/a.txt": TWO_EDITS}),
    Case("an inserted line is there", INSERT, Verdict.MERGED, {"demo/a.txt": INSERTED}),
    Case(
        "reverse applies, but the added line stands elsewhere too",
        INSERT,
        Verdict.CONFLICT,
        {"demo/a.txt": INSERTED + b"only_here = 1\n"},
    ),
    Case(
        "reverse applies, but the added lines say nothing",
        diff(BASE, BASE.replace(b"line 15\n", b"line 15\n}\n")),
        Verdict.CONFLICT,
        {"demo/a.txt": BASE.replace(b"line 15\n", b"line 15\n}\n")},
    ),
    Case(
        "repeated lines hide a second application",
        diff(REPEATED, REPEATED.replace(b"start\n", b"start\nsame\n"), context=1),
        Verdict.AMBIGUOUS,
        {"demo/a.txt": REPEATED},
        "second time",
    ),
    # Line ends.
    Case("CRLF file, CRLF patch", diff(CRLF, CRLF.replace(b"line 15", b"x")), Verdict.EXACT, {"demo/a.txt": CRLF}),
    Case("CRLF file, LF patch", PATCH, Verdict.CONFLICT, {"demo/a.txt": CRLF}),
    Case("LF file, CRLF patch", diff(CRLF, CRLF.replace(b"line 15", b"x")), Verdict.CONFLICT, why="CRLF"),
    Case("headers with CRLF", PATCH.replace(b"\n", b"\r\n"), Verdict.MALFORMED, why="CRLF line ends in its headers"),
    Case(
        "no newline at the end, kept",
        diff(NO_NEWLINE, NO_NEWLINE.replace(b"line 29\n", b"x\n")),
        Verdict.EXACT,
        {"demo/a.txt": NO_NEWLINE},
    ),
    Case("no newline at the end, added", diff(NO_NEWLINE, BASE), Verdict.EXACT, {"demo/a.txt": NO_NEWLINE}),
    Case(
        "no newline in the patch, one in the file",
        diff(NO_NEWLINE, NO_NEWLINE.replace(b"line 29\n", b"x\n")),
        Verdict.CONFLICT,
    ),
    Case(
        "empty context line without its blank",
        diff(BASE.replace(b"line 14\n", b"\n"), EDIT.replace(b"line 14\n", b"\n")).replace(b"\n \n", b"\n\n"),
        Verdict.EXACT,
        {"demo/a.txt": BASE.replace(b"line 14\n", b"\n")},
    ),
    # Ends of the file.
    Case("first line", ANCHORED, Verdict.EXACT),
    Case("first line, others above it now", ANCHORED, Verdict.CONFLICT, {"demo/a.txt": moved(1)}, "first line"),
    Case("last line", TAIL, Verdict.EXACT),
    Case("last line, others below it now", TAIL, Verdict.CONFLICT, {"demo/a.txt": BASE + b"more\n"}, "last line"),
    Case("whole file without context", diff(b"old\n", b"new\n"), Verdict.EXACT, {"demo/a.txt": b"old\n"}),
    # Files that come, go and move.
    Case("new file", diff(None, b"hello\n", "demo/n.py"), Verdict.EXACT),
    Case("new file exists", diff(None, b"hello\n", "demo/n.py"), Verdict.CONFLICT, {"demo/n.py": b"other\n"}, "exists"),
    Case(
        "new file exists with its bytes", diff(None, b"hello\n", "demo/n.py"), Verdict.MERGED, {"demo/n.py": b"hello\n"}
    ),
    Case("deleted file", diff(BASE, None), Verdict.EXACT),
    Case("deleted file is gone", diff(BASE, None), Verdict.GONE, {"demo/b.txt": BASE}),
    Case("deleted file has grown", diff(BASE, None), Verdict.CONFLICT, {"demo/a.txt": BASE + b"more\n"}),
    Case("mode only", with_mode("100644", "100755"), Verdict.EXACT),
    Case("mode only, it is so", with_mode("100644", "100755"), Verdict.MERGED, executable=frozenset({"demo/a.txt"})),
    Case("rename", rename("demo/a.txt", "demo/b.txt"), Verdict.EXACT),
    Case(
        "rename onto a file",
        rename("demo/a.txt", "demo/b.txt"),
        Verdict.CONFLICT,
        {"demo/a.txt": BASE, "demo/b.txt": b"x"},
    ),
    Case("rename of nothing", rename("demo/a.txt", "demo/b.txt"), Verdict.GONE, {"demo/b.txt": BASE}),
    Case("quoted UTF-8 path", QUOTED, Verdict.EXACT, {"demo/é.txt": BASE}),
    Case(
        "path with a space",
        diff(BASE, EDIT, "demo/a b.txt").replace(b"a b.txt\n+++", b"a b.txt\t\n+++"),
        Verdict.EXACT,
        {"demo/a b.txt": BASE},
    ),
    Case("binary", BINARY, Verdict.CONFLICT, why="binary", exit_code=2),
    # What is around the diff.
    Case("message above", b"Fix it\n\nBecause.\n---\n" + PATCH, Verdict.EXACT),
    Case("mail with a signature", FROM + b"Subject: x\n\n---\n" + PATCH + b"-- \n2.39.5\n\n", Verdict.EXACT),
    Case(
        "several mails",
        FROM + b"---\n" + PATCH + b"-- \n2\n\n" + FROM + b"---\n" + PATCH,
        Verdict.MALFORMED,
        why="mails",
    ),
    Case("diff quoted in the message", PATCH + b"\n---\n" + PATCH, Verdict.MALFORMED, why="stands in the message"),
    Case("hunk quoted in the message", b"As in\n@@ -1 +1 @@\n" + PATCH, Verdict.MALFORMED, why="stands in the message"),
    Case("indented quote in the message", b"As in\n  @@ -1 +1 @@\n---\n" + PATCH, Verdict.EXACT),
    Case("text below the hunk", PATCH + b"and some words\n", Verdict.MALFORMED, why="text after a hunk"),
    # What is no patch.
    Case("empty", b"", Verdict.MALFORMED, why="empty"),
    Case("words", b"hello\n", Verdict.MALFORMED, why="no `diff --git`"),
    Case("without diff --git", PATCH.partition(b"\n")[2], Verdict.MALFORMED, why="no `diff --git`"),
    Case("truncated", PATCH[:-20], Verdict.MALFORMED),
    Case("truncated at a line", PATCH.rpartition(b" line 18\n")[0], Verdict.MALFORMED, why="in the middle of a hunk"),
    Case("wrong counts", PATCH.replace(b"@@ -12,7", b"@@ -12,6"), Verdict.MALFORMED),
    Case("counts too large", PATCH.replace(b"-12,7 +12,7", b"-12,8 +12,8"), Verdict.MALFORMED),
    Case("no context", diff(BASE, EDIT, context=0), Verdict.MALFORMED, why="no context"),
    Case("insertion without context", diff(BASE, INSERTED, context=0), Verdict.MALFORMED, why="no context"),
    Case(
        "without prefixes", PATCH.replace(b"a/demo", b"demo").replace(b"b/demo", b"demo"), Verdict.MALFORMED, why="-p1"
    ),
    Case(
        "one level too many",
        diff(BASE, EDIT, "lib/demo/a.txt"),
        Verdict.GONE,
        why="path level wrong? There is demo/a.txt",
        exit_code=2,
    ),
    Case(
        "names disagree", PATCH.replace(b"+++ b/demo/a.txt", b"+++ b/demo/b.txt"), Verdict.MALFORMED, why="do not agree"
    ),
    Case("file twice", PATCH + PATCH, Verdict.MALFORMED, why="twice"),
    Case("copy", b"diff --git a/x b/y\ncopy from x\ncopy to y\n", Verdict.MALFORMED, why="copies"),
    Case("changes nothing", b"diff --git a/x b/x\n", Verdict.MALFORMED, why="changes nothing"),
    Case("half an escape", QUOTED.replace(b"\\303\\251", b"\\8"), Verdict.MALFORMED, why="unknown escape"),
    Case(
        "path is not UTF-8", diff(BASE, EDIT, "demo/X").replace(b"demo/X", b"demo/\xff"), Verdict.MALFORMED, why="UTF-8"
    ),
]


#: What upstream may do to a function, for the signs of `merged` and for three-way merges.
LOADER = b"""import os


class Loader:
    one = 1
    two = 2

    def load(self, weights):
        names = sorted(weights)
        pending: dict = {}
        for name in names:
            self.take(name, pending)
        return pending

    def take(self, name, pending):
        pending[name] = os.stat(name)


def main():
    return Loader()
"""
FIXED = LOADER.replace(
    b"        pending: dict = {}\n",
    b"        # Kept between two calls.\n        pending = self.__dict__.setdefault('_pending', {})\n",
)
LOADER_PATCH = diff(LOADER, FIXED, "demo/a.py").replace(b"@@\n", b"@@ class Loader:\n", 1)
OTHER_COMMENT = FIXED.replace(
    b"# Kept between two calls.", b"# The halves may come in two calls,\n        # so keep them."
)
HEADER = b"""#pragma once
template <typename T>
__global__ void First(T* out, const float* scale) {
  const int one = 1;
  const int two = 2;
  const float inverse = 1.0f / scale[0];
  extern __shared__ float smem[];
  asm volatile("griddepcontrol.wait;");
  out[0] = inverse;
}

template <typename T>
__global__ void Second(T* out) {
  out[0] = 1;
}
"""
HEADER_FIXED = HEADER.replace(b"  const float inverse = 1.0f / scale[0];\n", b"").replace(
    b'wait;");\n', b'wait;" ::: "memory");\n  const float inverse = 1.0f / scale[0];\n'
)
HEADER_PATCH = diff(HEADER, HEADER_FIXED, "demo/a.cuh", 2).replace(
    b"@@\n", b"@@ __global__ void First(T* out, const float* scale) {\n", 1
)
IN_OTHER_WORDS = HEADER.replace(b"  const float inverse = 1.0f / scale[0];\n", b"").replace(
    b'wait;");\n  out[0] = inverse', b'wait;" ::: "memory");\n  float scale_val = 1.f / scale[0];\n  out[0] = scale_val'
)
GONE = {"ends": {"gone": [{"file": "demo/a.cuh", "text": "const float inverse = 1.0f / scale[0];"}]}}
METHOD = "demo/a.py::Loader.load"
MOVED_BLOCK = LOADER.replace(b"    def load(self", b"    def fetch(self")

CASES += [
    # Signs that upstream has it.
    Case(
        "upstream has it with another comment", LOADER_PATCH, Verdict.MERGED, {"demo/a.py": OTHER_COMMENT}, "comments"
    ),
    Case(
        "upstream has it with other blanks in C",
        HEADER_PATCH,
        Verdict.MERGED,
        {"demo/a.cuh": HEADER_FIXED.replace(b"inverse = 1.0f", b"inverse  =  1.0f  /* later */")},
        "comments",
    ),
    Case(
        "other indentation is other Python",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.py": FIXED.replace(b"        pending = self", b"          pending = self")},
    ),
    Case(
        "what it adds stands in a comment only",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {
            "demo/a.py": LOADER.replace(
                b"pending: dict = {}", b"pending = {}  # self.__dict__.setdefault('_pending', {})"
            )
        },
    ),
    Case(
        "what it adds stands in a string only",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {
            "demo/a.py": FIXED.replace(b"        # Kept", b'        """\n        # Kept').replace(
                b", {})\n", b', {})\n        """\n'
            )
        },
    ),
    Case(
        "code behind #if 0 is not there",
        HEADER_PATCH,
        Verdict.CONFLICT,
        {
            "demo/a.cuh": HEADER_FIXED.replace(b"  asm", b"#if 0\n  asm").replace(
                b"  out[0] = inverse", b"#endif\n  out[0] = 2"
            )
        },
    ),
    Case(
        "upstream has the lines, but in another method",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {
            "demo/a.py": LOADER.replace(b"        pending: dict = {}\n", b"        pending = {}\n").replace(
                b"        pending[name] =",
                b"        pending = self.__dict__.setdefault('_pending', {})\n        pending[name] =",
            )
        },
        locked={METHOD: "0"},
    ),
    Case(
        "upstream has the lines, but what it removes is still there",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.py": FIXED.replace(b"        for name", b"        pending: dict = {}\n        for name")},
    ),
    Case(
        "the whole function is the patched one",
        LOADER_PATCH,
        Verdict.MERGED,
        {
            "demo/a.py": b"# words\n"
            + FIXED.replace(b"sorted(weights)", b"sorted( weights )").replace(b"'_pending', {}", b"'_pending',  {}")
        },
        "the patched one",
        bases={"demo/a.py": LOADER},
    ),
    Case(
        "in other words, and the record says what must be gone",
        HEADER_PATCH,
        Verdict.MERGED,
        {"demo/a.cuh": IN_OTHER_WORDS},
        "what the record names",
        record=GONE,
    ),
    Case("in other words, and the record says nothing", HEADER_PATCH, Verdict.CONFLICT, {"demo/a.cuh": IN_OTHER_WORDS}),
    Case(
        "what the record names is gone, but nothing of the patch is there",
        HEADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.cuh": HEADER.replace(b"const float inverse = 1.0f / scale[0];", b"float inverse = load(scale);")},
        record=GONE,
    ),
    Case(
        "what the record names never stood there",
        HEADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.cuh": IN_OTHER_WORDS},
        bases={"demo/a.cuh": HEADER},
        record={"ends": {"gone": [{"file": "demo/a.cuh", "text": "some other text"}]}},
    ),
    Case(
        "upstream has one of two files",
        LOADER_PATCH + HEADER_PATCH,
        Verdict.PARTIAL,
        {"demo/a.py": OTHER_COMMENT, "demo/a.cuh": HEADER},
    ),
    Case(
        "upstream has one of two files, the other does not fit",
        LOADER_PATCH + HEADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.py": OTHER_COMMENT, "demo/a.cuh": HEADER.replace(b"extern", b"external")},
    ),
    # Where a three-way merge says more.
    Case(
        "context changed beside it, with the base",
        LOADER_PATCH,
        Verdict.MERGE_CLEAN,
        {"demo/a.py": LOADER.replace(b"self.take(name, pending)", b"self.take(name, pending, 1)")},
        bases={"demo/a.py": LOADER},
    ),
    Case(
        "context changed beside it, without the base",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.py": LOADER.replace(b"self.take(name, pending)", b"self.take(name, pending, 1)")},
    ),
    Case(
        "upstream changed the same line, with the base",
        LOADER_PATCH,
        Verdict.CONFLICT,
        {"demo/a.py": LOADER.replace(b"pending: dict = {}", b"pending: dict[str, object] = {}")},
        bases={"demo/a.py": LOADER},
    ),
    Case(
        "stands twice, whatever a merge says",
        LOADER_PATCH,
        Verdict.AMBIGUOUS,
        {"demo/a.py": LOADER + LOADER.replace(b"import os\n", b"")},
        "2 places",
        bases={"demo/a.py": LOADER},
    ),
    Case(
        "class renamed, with the base",
        LOADER_PATCH.replace(b" class Loader:", b""),
        Verdict.GONE,
        {
            "demo/a.py": LOADER.replace(b"class Loader", b"class Reader").replace(
                b"pending: dict = {}", b"pending = dict()"
            )
        },
        "Loader.load is no longer defined in the file; its likely successor is Reader.load",
        bases={"demo/a.py": LOADER},
    ),
    Case(
        "method renamed, with the lock",
        LOADER_PATCH,
        Verdict.GONE,
        {"demo/a.py": MOVED_BLOCK.replace(b"pending: dict = {}", b"pending = dict()")},
        "Loader.load is no longer defined in the file; its likely successor is Loader.fetch",
        locked={METHOD: "0"},
        bases={"demo/a.py": LOADER},
    ),
    Case("a file that Python cannot parse", LOADER_PATCH, Verdict.EXACT, {"demo/a.py": LOADER + b"def broken(:\n"}),
    # Series.
    Case(
        "on what an earlier patch leaves",
        diff(EDIT, TWO_EDITS),
        Verdict.EXACT,
        series=[patch(PATCH, "first")],
    ),
    Case("the same patch twice", PATCH, Verdict.MERGED, series=[patch(PATCH, "first")]),
    Case(
        "two patches of one place",
        diff(BASE, BASE.replace(b"line 16\n", b"x\n")),
        Verdict.CONFLICT,
        series=[patch(PATCH, "first")],
    ),
    # What no engine may see: the verdict would be one thing, the exit code is 2 before it counts.
    Case("absolute path", diff(BASE, EDIT, "/etc/passwd"), Verdict.GONE, exit_code=2),
    Case("path above the source", diff(BASE, EDIT, "demo/../../x"), Verdict.GONE, exit_code=2),
    Case("path with a backslash", QUOTED.replace(b"\\303\\251", b"a\\\\b"), Verdict.GONE, exit_code=2),
    Case("path with a control character", QUOTED.replace(b"\\303\\251", b"a\\nb"), Verdict.GONE, exit_code=2),
    Case("path below .git", diff(None, b"hello\n", "demo/.GIT/hooks/x"), Verdict.EXACT, exit_code=2),
    Case("symbolic link", diff(None, b"x\n", "demo/n").replace(b"100644", b"120000"), Verdict.EXACT, exit_code=2),
    Case("submodule", diff(None, b"x\n", "demo/n").replace(b"100644", b"160000"), Verdict.EXACT, exit_code=2),
    Case("mode 777", with_mode("100755", "100777"), Verdict.MERGED, exit_code=2),
    Case("paths that differ in case", PATCH + diff(BASE, EDIT, "demo/A.txt"), Verdict.GONE, exit_code=2),
    Case("outside of the component", diff(None, b"x\n", "other/n.py"), Verdict.EXACT, exit_code=2),
    Case("build script", diff(None, b"x\n", "setup.py"), Verdict.EXACT, exit_code=2),
    Case("build script, allowed", diff(None, b"x\n", "setup.py"), Verdict.EXACT, record={"allows": ["build-files"]}),
    Case("HTML", b"<!DOCTYPE html><html>404</html>", Verdict.MALFORMED, exit_code=2),
    Case(
        "kernel in a wheel",
        HEADER_PATCH,
        Verdict.EXACT,
        {"demo/a.cuh": HEADER},
        exit_code=2,
        record={"target": "wheel"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    tree = SourceTree(case.files, case.executable)
    bases = SourceTree(case.bases) if case.bases is not None else None
    verdict = judge(tree, case.patches, {"fix": case.locked or {}}, bases)[-1]
    said = " | ".join([verdict.detail, *(hunk.detail for hunk in verdict.hunks)])
    assert verdict.verdict is case.verdict, said
    assert case.why in said
    assert bool(verdict.result) == verdict.verdict.is_applicable
    assert exit_code(case) == (EXIT.get(case.verdict, 5) if case.exit_code is None else case.exit_code)


def exit_code(case: Case) -> int:
    """Of a real application: the safety gate, the verdicts, and git, whose tree has to be the judged one."""
    try:
        lock_entry("demo", SourceTree(case.files, case.executable), case.patches)
    except GraftError as problem:
        return problem.exit_code
    return 0


def test_the_table_is_large_and_names_its_rows_once() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 60
    assert len(names) == len(set(names))
    assert {case.verdict for case in CASES} == set(Verdict) - {Verdict.UNUSED}


def test_verdicts_are_the_documented_ones() -> None:
    words = "exact offset ambiguous relocated merge-clean conflict merged partial gone unused malformed"
    assert {v.value for v in Verdict} == set(words.split())


def test_every_hunk_is_reported_with_its_place() -> None:
    verdict = judge({"demo/a.txt": moved(4)}, [patch(diff(BASE, TWO_EDITS))])[0]
    assert [(h.number, h.line, h.offset, h.verdict) for h in verdict.hunks] == [
        (1, 16, 4, Verdict.OFFSET),
        (2, 26, 4, Verdict.OFFSET),
    ]
    assert verdict.result == {"demo/a.txt": moved(4)[: -len(BASE)] + TWO_EDITS}


def test_a_patch_is_judged_on_what_the_ones_before_it_leave() -> None:
    second = patch(diff(EDIT, TWO_EDITS), "second")
    assert [v.verdict for v in judge({"demo/a.txt": BASE}, [patch(PATCH), second])] == [Verdict.EXACT] * 2
    third = patch(diff(EDIT, EDIT.replace(b"fifteen", b"15th")), "third")
    assert judge({"demo/a.txt": BASE}, [third])[0].verdict is Verdict.CONFLICT
    assert judge({"demo/a.txt": BASE}, [patch(PATCH), third])[1].verdict is Verdict.EXACT


def test_the_symbol_around_a_hunk_and_its_fingerprint() -> None:
    def hunk(content: bytes):  # type: ignore[no-untyped-def]
        return judge({"demo/a.py": content}, [patch(PYTHON_PATCH)])[0].hunks[0]

    here = hunk(PYTHON)
    assert here.symbol == "First.run"
    assert hunk(PYTHON.replace(b"class First:", b"# new\nclass First:  # words")).fingerprint == here.fingerprint
    assert hunk(PYTHON.replace(b"def run(self)", b"def run(self, x)")).verdict is Verdict.CONFLICT
    wider = PYTHON.replace(b"        return one\n", b"        return one\n        print()\n")
    assert hunk(wider).verdict is Verdict.EXACT
    assert hunk(wider).fingerprint != here.fingerprint


def test_a_hunk_that_moved_into_another_method_is_found_with_the_lock() -> None:
    inner = b"    def before(self):\n        pass\n\n"
    source = PYTHON.replace(b"    def run", inner + b"    def run")
    data = PYTHON_PATCH.replace(b"     def run(self):\n", b"").replace(b"@@ -5,5 +5,5 @@", b"@@ -6,4 +6,4 @@")
    assert judge({"demo/a.py": source}, [patch(data)])[0].verdict is Verdict.OFFSET
    assert (
        judge({"demo/a.py": source}, [patch(data)], {"fix": {"demo/a.py::First.run": "0"}})[0].verdict is Verdict.OFFSET
    )
    other = source.replace(b"def run", b"def walk")
    moved_to = judge({"demo/a.py": other}, [patch(data)], {"fix": {"demo/a.py::First.run": "0"}})[0]
    assert moved_to.verdict is Verdict.RELOCATED
    assert "First.run" in moved_to.hunks[0].detail


def test_nothing_is_changed_by_judging() -> None:
    files = {"demo/a.txt": BASE}
    judge(files, [patch(PATCH)])
    assert files == {"demo/a.txt": BASE}
