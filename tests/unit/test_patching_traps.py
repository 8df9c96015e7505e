"""Traps for verdicts: sources in which a fix seems to be there, or to fit, and is not or does not; and the contrary.

Each row is a file, the same after a fix, and what upstream made of it. It is judged with the file that the patch was
made for (`pinned`) and without it (`alone`); a wrong `merged`, `exact` or `merge-clean` here costs a fix in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from patchwork import diff, patch

from graft.patching import SourceTree, Verdict, judge
from graft.patching.model import PatchVerdict

CONFLICT, MERGED, RELOCATED = Verdict.CONFLICT, Verdict.MERGED, Verdict.RELOCATED
EXACT, OFFSET, CLEAN = Verdict.EXACT, Verdict.OFFSET, Verdict.MERGE_CLEAN
PY, CU, CPP, TS = "demo/a.py", "demo/a.cu", "demo/a.cpp", "demo/a.ts"


@dataclass(frozen=True)
class Trap:
    """pinned, alone: the verdict with and without the pinned file; None: the row says nothing of it.

    why: a word of the detail, of the pinned verdict where there is one. locked: symbols of the lock.
    """

    name: str
    base: str
    fixed: str
    upstream: str
    pinned: Verdict | None
    alone: Verdict | None
    why: str = ""
    path: str = PY
    locked: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def swap(text: str, *pairs: tuple[str, str]) -> str:
    """Exchange texts that stand once: a trap whose text is not there is none."""
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def made(trap: Trap) -> bytes:
    """The patch, with what git writes behind @@."""
    lines = trap.base.encode().split(b"\n")

    def headed(match: re.Match[bytes]) -> bytes:
        above = lines[: max(int(match[1]) - 1, 0)]
        head = next((line for line in reversed(above) if re.match(rb"[A-Za-z_$]", line)), b"")
        return match[0].rstrip(b"\n") + (b" " + head[:80].rstrip() if head else b"") + b"\n"

    data = diff(trap.base.encode(), trap.fixed.encode(), trap.path)
    return re.sub(rb"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@\n", headed, data)


def judged(trap: Trap, *, pinned: bool) -> PatchVerdict:
    bases = SourceTree({trap.path: trap.base.encode()}) if pinned else None
    tree = SourceTree({trap.path: trap.upstream.encode()})
    return judge(tree, [patch(made(trap), **trap.record)], {"fix": trap.locked}, bases)[0]


# A statement is missing in the middle of a method. Upstream keeps the bug, and the fix stands somewhere else.

LOADER = """import os


class Model:
    def load(self, weights):
        names = sorted(weights)
        kept = {}
        for name in names:
            kept[name] = transform(weights[name])
        return kept

    def stop(self):
        return os.getpid()
"""
LOADED = swap(LOADER, ("        kept = {}\n", "        kept = {}\n        weights.synchronize()\n"))
BODY = LOADER[LOADER.index("        names") : LOADER.index("\n    def stop")]
FIXED_BODY = LOADED[LOADED.index("        names") : LOADED.index("\n    def stop")]
OTHER_BODY = """        kept = {}
        for name in sorted(weights):
            kept[name] = transform(weights[name])
        return kept
"""
NOTED = BODY.replace("kept = {}", "kept = {}  # by name")


def loader(body: str) -> str:
    return swap(LOADER, (BODY, body))


def deeper(body: str) -> str:
    return "".join(f"    {line}" for line in body.splitlines(keepends=True))


def in_loader(name: str, body: str, pinned: Verdict = CONFLICT, alone: Verdict = CONFLICT, why: str = "") -> Trap:
    return Trap(name, LOADER, LOADED, loader(body), pinned, alone, why, locked={f"{PY}::Model.load": "0"})


TRAPS = [
    in_loader("fix in the docstring only", f'        """It was\n\n{FIXED_BODY}        """\n{OTHER_BODY}'),
    in_loader("fix in a string only", f'        old = """It was\n\n{FIXED_BODY}        """\n{OTHER_BODY}'),
    in_loader("fix behind the return", NOTED + FIXED_BODY),
    in_loader("fix with another comment", swap(FIXED_BODY, ("kept = {}", "kept = {}  # by name")), MERGED, MERGED),
]

BRANCH = """import os


def run(x):
    if x.fast:
        a = prepare(x)
        b = execute(a)
        c = finish(b)
        return c
    log(x)
    z = slow(x)
    return z
"""
EXECUTED = ("b = execute(a)\n", "b = execute(a)\n        synchronize(b)\n")
BRANCH_FIXED = swap(BRANCH, EXECUTED)


def below(header: str) -> str:
    """The fixed code once more, under another header."""
    return (
        f"    {header}\n        a = prepare(x)\n        b = execute(a)\n        synchronize(b)\n        c = finish(b)\n"
        "        return c\n    log(x)\n"
    )


GUARD = """def check(cfg):
    size = cfg.size
    name = cfg.name
    if cfg.dcp > 1:
        raise ValueError("DCP is not supported by this backend")
    backend = pick(cfg)
    return backend
"""
RAISES = '    if cfg.dcp > 1:\n        raise ValueError("DCP is not supported by this backend")\n'
UNGUARDED = swap(GUARD, (RAISES, ""))
GUARDED_ABOVE = swap(
    UNGUARDED,
    ("cfg):\n    size", 'cfg):\n    if cfg.dcp_size > 1:\n        raise OSError("DCP is not supported")\n    size'),
)
REWORKED = swap(
    GUARD,
    (RAISES, "    world = cfg.world_size\n    options = cfg.backend_options\n"),
    ("    backend = pick(cfg)\n", "    backend = pick(cfg)\n    backend.enable_dcp(world)\n"),
)
LAID_OUT_ANEW = swap(
    GUARD,
    (
        RAISES,
        "    world = cfg.world_size\n    options = cfg.backend_options\n    if cfg.dcp > 1 and world:\n"
        '        raise ValueError(\n            "DCP is not "\n            "supported by this backend"\n        )\n',
    ),
)
GONE_TEXT = {"ends": {"gone": [{"file": PY, "text": 'raise ValueError("DCP is not supported by this backend")'}]}}
ASSERTED = '''def f(a):
    """Doc."""
    prepare_it(a)
    assert_all_good(a, strict=True)
    finish_it(a)
    return a
'''
CALL = "    assert_all_good(a, strict=True)\n"
RELAXED = swap(ASSERTED, (CALL, ""))
PROMPT = '''def prompt(a):
    """Doc."""
    text = """Host: x
Accept: y
body of request"""
    one = a
    two = a
    return text
'''
BLANK = ("Accept: y\n", "Accept: y\n\n")
CALLED = ("one = a\n", "one = transform_it(a)\n")

TRAPS += [
    *[
        Trap(
            f"fix below `{header}` only",
            BRANCH,
            BRANCH_FIXED,
            swap(BRANCH, ("execute(a)\n", "execute(a)  # fast path\n"), ("    log(x)\n", below(header))),
            CONFLICT,
            CONFLICT,
            locked={f"{PY}::run": "0"},
        )
        for header in (
            "elif x.medium:",
            "else:",
            "if False:",
            "while 0:",
            "for x in ():",
            "with x.medium:",
            "def inner(x):",
            "def run(x):",
            "class Run:",
        )
    ],
    Trap("removed guard is worded anew above", GUARD, UNGUARDED, GUARDED_ABOVE, CONFLICT, CONFLICT),
    Trap("removed guard is laid out anew", GUARD, REWORKED, LAID_OUT_ANEW, CONFLICT, CONFLICT, record=GONE_TEXT),
    Trap(
        "removed call has moved into a branch",
        ASSERTED,
        RELAXED,
        swap(RELAXED, ("    prepare_it", f"    if a.debug or True:\n    {CALL}    prepare_it")),
        CONFLICT,
        CONFLICT,
    ),
    Trap(
        "removed call goes over two lines",
        ASSERTED,
        RELAXED,
        swap(RELAXED, ("    prepare_it", "    assert_all_good(\n        a, strict=True)\n    prepare_it")),
        CONFLICT,
        CONFLICT,
    ),
    Trap(
        "removed call is in a helper now",
        ASSERTED,
        RELAXED,
        f"def g(a):\n{CALL}\n\n" + swap(RELAXED, ("    prepare_it", "    g(a)\n    prepare_it")),
        CONFLICT,
        CONFLICT,
    ),
    Trap("removed call is gone", ASSERTED, RELAXED, RELAXED, MERGED, None, "the patched one"),
    Trap(
        "half of the fix is a blank line in a string",
        PROMPT,
        swap(PROMPT, BLANK, CALLED),
        swap(PROMPT, CALLED),
        CONFLICT,
        CONFLICT,
    ),
    Trap(
        "the same in a method",
        "class A:\n" + deeper(PROMPT).replace("    Accept", "Accept").replace("    body", "body"),
        "class A:\n"
        + deeper(swap(PROMPT, BLANK, CALLED))
        .replace("    Accept", "Accept")
        .replace("    body", "body")
        .replace("    \n", "\n"),
        "class A:\n" + deeper(swap(PROMPT, CALLED)).replace("    Accept", "Accept").replace("    body", "body"),
        CONFLICT,
        CONFLICT,
    ),
    Trap(
        "the whole fix stands in a string, without its blank line",
        swap(PROMPT, ("one = a", "one = bbbb")),
        swap(PROMPT, ("one = a", "one = bbbb"), ("Accept: y\n", "Accept: yes-please\n\n")),
        swap(PROMPT, ("one = a", "one = bbbb"), ("Accept: y\n", "Accept: yes-please\n")),
        CONFLICT,
        CONFLICT,
    ),
]

# Names that are not unique: a property and its setter, definitions under an `if`, classes with equal methods.

PROPERTY = '''class Model:
    def __init__(self):
        self.a = 1

    @property
    def value(self):
        """Get."""
        first = self.one
        second = self.two
        return first

    @value.setter
    def value(self, new):
        """Set."""
        check(new)
        register(new)
        store(self, new)
        self.x = new
        self.y = new
'''
FLUSHED = swap(PROPERTY, ("store(self, new)\n", "store(self, new)\n        flush_everything()\n"))
STEPS = """        one(a)
        two(a)
        three(a)
        four(a)
        five(a)
        six(a)
"""
SYNCED = swap(STEPS, ("        three(a)\n", "        three(a)\n        synchronize(a)\n"))


def python_pair(first: str, second: str, tail: str = "") -> tuple[str, str, str, str]:
    """Two functions with these heads: steps in the first, the fix there, the steps and the fix in the second."""
    text = f"import x\n\n{first}{{}}\n{second}{{}}{tail}"
    idle = "        return 1\n"
    return text.format(STEPS, idle), text.format(SYNCED, idle), text.format(idle, STEPS), text.format(idle, SYNCED)


def pair_traps(
    name: str,
    texts: tuple[str, str, str, str],
    path: str,
    *,
    moved: Verdict | None = RELOCATED,
    only: Verdict | None = CONFLICT,
    locked: str = "",
) -> list[Trap]:
    """moved, only: the two verdicts without the pinned file. locked: the symbol that the lock names."""
    base, fixed, other, elsewhere = texts
    lock = {f"{path}::{locked}": "0"} if locked else {}
    return [
        Trap(f"{name}: the code moved to the other", base, fixed, other, RELOCATED, moved, "made for", path, lock),
        Trap(f"{name}: the fix is in the other only", base, fixed, elsewhere, CONFLICT, only, "", path, lock),
    ]


UNDER_IF = python_pair("if x.cuda:\n    def run(a):\n", "else:\n    def run(a):\n")
ACCESSORS = python_pair(
    "class A:\n    @property\n    def value(self, a=None):\n", "    @value.setter\n    def value(self, a):\n"
)
TWO_CLASSES = python_pair("class A:\n    def run(self, a):\n", "class B:\n    def run(self, a):\n")
NEW_SYNTAX = python_pair(
    "class A:\n    def run(self, a):\n",
    "    def stop(self, a):\n",
    "\n\ntype X[T] = list[T]\n\n\ndef last(a):\n    return a\n",
)


def braces(first: str, second: str, between: str, end: str, indent: str = "    ") -> tuple[str, str, str, str]:
    """The same in a language with braces."""
    steps = "".join(f"{indent}{word}(a);\n" for word in ("one", "two", "three", "four", "five"))
    synced = steps.replace("three(a);\n", f"three(a);\n{indent}synchronize(a);\n")
    idle = f"{indent}return 1;\n"
    close = f"{indent[:-2]}}}\n"
    made_of = [(steps, idle), (synced, idle), (idle, steps), (idle, synced)]
    a, b, c, d = (f"{first}{one}{close}{between}{second}{two}{close}{end}" for one, two in made_of)
    return a, b, c, d


CLASSES = braces(
    "#include <a.h>\n\nclass Alpha {\npublic:\n  int run(int a) {\n",
    "class Beta {\npublic:\n  int run(int a) {\n",
    "};\n\n",
    "};\n",
)
ONE_CLASS = braces("#include <a.h>\n\nclass Alpha {\n  int run(int a) {\n", "  int other(int a) {\n", "", "};\n")
SCRIPT = braces("class A {\n  run(a) {\n", "  stop(a) {\n", "", "}\n")
LONG = "template_like_long_return_type_name_for_headings_xxxxxxxxxxxxxxxxxxxxx run_kernel_abc("
OVERLOADS = braces(f"{LONG}int a) {{\n", f"{LONG}float a) {{\n", "\n", "", "  ")
LABELS = braces("void alpha(int a) {\n  if (a) goto done;\ndone:\n", "void beta(int a) {\ndone:\n", "\n", "", "  ")
KERNELS = braces(
    "#pragma once\ntemplate <typename T>\n__global__ void first(T* a) {\n",
    "template <typename T>\n__global__ void second(T* a) {\n",
    "\n",
    "",
    "  ",
)

TRAPS += [
    # Alone it cannot be told which of the two it is.
    Trap("setter: upstream has it", PROPERTY, FLUSHED, FLUSHED, MERGED, CONFLICT),
    Trap("setter: it stands further down", PROPERTY, FLUSHED, f"# a\n{PROPERTY}", OFFSET, OFFSET),
    Trap(
        "setter: it changed, and is not gone",
        PROPERTY,
        FLUSHED,
        swap(PROPERTY, ("store(self, new)", "store(self, new, 1)")),
        CONFLICT,
        CONFLICT,
        "differs",
    ),
    *pair_traps("setter and getter", ACCESSORS, PY, locked="A.value"),
    *pair_traps("definitions under an if", UNDER_IF, PY, locked="run"),
    *pair_traps("classes of a stub", TWO_CLASSES, "demo/a.pyi"),
    *pair_traps("classes of Cython", TWO_CLASSES, "demo/a.pyx"),
    *pair_traps("methods beside syntax of a newer Python", NEW_SYNTAX, PY, locked="A.run"),
    *pair_traps("classes of C++", CLASSES, CPP, moved=None),
    *pair_traps("methods of C++", ONE_CLASS, CPP, moved=None),
    *pair_traps("methods of TypeScript", SCRIPT, TS, moved=None),
    *pair_traps("overloads with long names", OVERLOADS, CPP, moved=None),
    *pair_traps("functions with labels", LABELS, "demo/a.c", moved=None, only=None),
    *pair_traps("kernels of CUDA", KERNELS, CU),
]

# Code outside of functions, and functions that are new.

IMPORTS = """x = 1
if True:
    import aa0
    import aa1
    import aaa
    import bbb
    import ccc
    import ddd
    import eee
    import fff
"""
IMPORTED = swap(IMPORTS, ("    import bbb\n", "    import bbb\n    import synchronize_it\n"))
IN_GO = swap(IMPORTS, ("if True:\n", "\n\ndef go():\n"))
TWO = """import os


def first(a):
    one = a
    return one


def last(a):
    return a
"""
FIRST = "def first(a):\n    one(a)\n    two(a)\n    three(a)\n    four(a)\n    return a\n\n\n"
NEW = "def helper_function(b):\n    return b + os.sep\n\n\ndef last"
WITH_NEW = swap(TWO, ("def last", NEW))
TOP = """if True:
    import aaa
    import bbb
    import ccc
    import ddd


def go():
    return 1
"""

TRAPS += [
    Trap("module code moved into a function", IMPORTS, IMPORTED, IN_GO, RELOCATED, None, "outside of functions"),
    Trap(
        "function code moved to the module",
        IN_GO,
        swap(IN_GO, ("    import bbb\n", "    import bbb\n    import synchronize_it\n")),
        swap(IMPORTS, ("if True:\n", "\n\ndef go():\n    return 1\n\n\nif x:\n")),
        RELOCATED,
        None,
        "made for go",
    ),
    Trap(
        "a merge would put module code into a function",
        TOP,
        swap(TOP, ("    import bbb\n", "    import bbb\n    import synchronize_it\n")),
        '"""Doc."""\n\n\ndef go():\n' + TOP[TOP.index("    import") : TOP.index("\n\ndef")] + "    return 1\n",
        CONFLICT,
        CONFLICT,
        "put it into go",
    ),
    Trap(
        "a merge would put it into another function",
        FIRST + "def second(a):\n    return 0\n",
        swap(FIRST, ("    two(a)\n", "    two(a)\n    synchronize(a)\n")) + "def second(a):\n    return 0\n",
        swap(FIRST, ("first", "second"), ("four(a)", "four(a, 2)")) + "def first(a):\n    return 0\n",
        CONFLICT,
        CONFLICT,
        "put it into second",
    ),
    Trap("a new function is there", TWO, WITH_NEW, WITH_NEW, MERGED, MERGED),
    Trap("a new function is there, further down", TWO, WITH_NEW, f"# c\n{WITH_NEW}", MERGED, MERGED),
    Trap(
        "a new function is there, its neighbour changed",
        TWO,
        WITH_NEW,
        swap(WITH_NEW, ("one = a", "one = a + 0")),
        MERGED,
        MERGED,
    ),
]

# Where the pre-image stands, but not as code that runs under the same conditions.

GO = '''def run(self):
    """Doc."""
    aa(self)
    bb(self)
    cc(self)
    dd(self)
    ee(self)
    ff(self)
    gg(self)
    return 1
'''
GONE_ON = swap(GO, ("    cc(self)\n", "    cc(self)\n    synchronize(self)\n"))
IN_DOC = swap(GO, ('"""Doc."""', '"""Doc.'), ("    return 1\n", '    return 1\n    """\n    return other(self)\n'))
RUN = """#include <a.h>

int run(int a) {
  begin(a);
  int first = prepare(a);
  int second = execute(first);
  int third = finish(second);
  int fourth = more(third);
  return fourth;
}
"""
RUN_FIXED = swap(RUN, ("execute(first);\n", "execute(first);\n  synchronize_stream(second);\n"))
RUN_BODY = RUN[RUN.index("  begin") : RUN.index("}")]
RUN_FIXED_BODY = RUN_FIXED[RUN_FIXED.index("  begin") : RUN_FIXED.index("}")]
RUN_NOTED = swap(RUN_BODY, ("execute(first);", "execute(first);  // fast"))


def run_with(body: str) -> str:
    return swap(RUN, (RUN_BODY, body))


def conditional(name: str, first: str, second: str, end: str) -> list[Trap]:
    only = run_with(f"{first}\n{RUN_FIXED_BODY}{second}\n{RUN_NOTED}{end}")
    dead = run_with(f"{first}\n{RUN_BODY}{second}\n  return fused(a);\n{end}")
    return [
        Trap(f"{name}: the fix is there only, the bug lives", RUN, RUN_FIXED, only, CONFLICT, CONFLICT, "", CU),
        Trap(f"{name}: all of the old code is there", RUN, RUN_FIXED, dead, RELOCATED, None, "these lines stand", CU),
    ]


def section(name: str, ports: str = "    - http-port\n") -> str:
    return f"{name}:\n  image: one\n  command: go\n  ports:\n{ports}  restart: never\n  volumes: x\n  user: me\n"


COMPOSE = section("alpha") + "beta:\n  image: two\n"
TLS = "    - http-port\n    - tlsport\n"

TRAPS += [
    Trap("old code in the docstring only", GO, GONE_ON, IN_DOC, RELOCATED, None, "a comment or a string"),
    Trap(
        "old code in a string only",
        GO,
        GONE_ON,
        swap(IN_DOC, ('"""Doc.', 'x = """Doc.')),
        RELOCATED,
        None,
        "a comment or a string",
    ),
    *conditional("#if 0", "#if 0", "#else", "#endif\n"),
    *conditional("#ifdef", "#ifdef USE_ROCM", "#else", "#endif\n"),
    *conditional("#if version", "#if CUDA_VERSION < 12000", "#else", "#endif\n"),
    Trap(
        "comment: all of the old code is there",
        RUN,
        RUN_FIXED,
        run_with(f"/*\n{RUN_BODY}*/\n  return fused(a);\n"),
        RELOCATED,
        None,
        "these lines stand",
        CU,
    ),
    Trap(
        "the fix is in another section",
        COMPOSE,
        section("alpha", TLS) + "beta:\n  image: two\n",
        section("alpha", "    - http-port  # plain\n") + section("beta", TLS),
        CONFLICT,
        CONFLICT,
        path="demo/a.yaml",
    ),
    Trap(
        "a merge would add what stands below already",
        GO,
        GONE_ON,
        swap(GO, ("    aa(self)", "    aa2(self)"), ("    gg(self)\n", "    gg(self)\n    synchronize(self)\n")),
        CONFLICT,
        None,
        "stands in line 10 already",
    ),
    Trap(
        "it fits, and what it adds stands below already",
        GO,
        GONE_ON,
        swap(GO, ("    gg(self)\n", "    gg(self)\n    synchronize(self)\n")),
        EXACT,
        EXACT,
        "look: code that it adds stands in line 10 already",
    ),
    Trap(
        "the code stands in another method of the class",
        f"class M:\n{deeper(GO)}",
        f"class M:\n{deeper(GONE_ON)}",
        f"class M:\n{deeper(swap(GO, ('def run', 'def walk')))}",
        RELOCATED,
        RELOCATED,
        "made for M.run, but these lines stand in M.walk",
        locked={f"{PY}::M.run": "0"},
    ),
    Trap(
        "an include guard hides nothing",
        f"#ifndef A_H\n#define A_H\n{RUN}#endif\n",
        f"#ifndef A_H\n#define A_H\n{RUN_FIXED}#endif\n",
        f"#ifndef A_H\n#define A_H\n{RUN_FIXED.replace('execute(first);', 'execute(first);  // slow')}#endif\n",
        MERGED,
        MERGED,
        path="demo/a.h",
    ),
]

CASES = [(trap, pinned) for trap in TRAPS for pinned in (True, False) if (trap.pinned if pinned else trap.alone)]


# Definitions that no longer count, or that stand in another namespace.

LATER = swap(GO, ("    cc(self)\n", "    cc(self)  # later\n"))
INCLUDE = "#include <a.h>\n\n"
LIVE = "}\nint run(int a) {\n  return fused(a);\n}\n"
UNDER_NT = f"import os\n\nif os.name == 'nt':\n{deeper(GONE_ON)}else:\n{deeper(LATER)}"
NEVER = f"if False:\n{deeper(GONE_ON)}\n\ndef run2(self):\n    return 1\n\n\nrun = run2\n"
AGAIN = f"{GO}\n\ndef run(self):\n    return fused(self)\n"
TRAPS += [
    Trap("fixed under one condition, live under another", GO, GONE_ON, UNDER_NT, CONFLICT, CONFLICT),
    Trap("fixed where it is never defined", GO, GONE_ON, NEVER, CONFLICT, None),
    Trap("fixed, and defined again below without it", GO, GONE_ON, f"{GONE_ON}\n\n{LATER}", CONFLICT, CONFLICT),
    Trap("it fits a definition that another one replaces", GO, GONE_ON, AGAIN, RELOCATED, None, "not defined as often"),
    Trap(
        "fixed in another namespace only",
        RUN,
        RUN_FIXED,
        f"{INCLUDE}namespace old {{\n{RUN_FIXED[len(INCLUDE) :]}{LIVE}",
        CONFLICT,
        None,
        path=CU,
    ),
    Trap(
        "it fits in another namespace only",
        RUN,
        RUN_FIXED,
        f"{INCLUDE}namespace old {{\n{RUN[len(INCLUDE) :]}{LIVE}",
        RELOCATED,
        None,
        "old::run",
        path=CU,
    ),
    Trap("fixed below a label of another function", LABELS[0], LABELS[1], LABELS[3], None, CONFLICT, path="demo/a.c"),
    Trap("fixed in another method, with the class alone", ACCESSORS[0], ACCESSORS[1], ACCESSORS[3], None, CONFLICT),
    Trap("the same in newer syntax", NEW_SYNTAX[0], NEW_SYNTAX[1], NEW_SYNTAX[3], None, CONFLICT),
]


@pytest.mark.parametrize(
    ("trap", "pinned"), CASES, ids=[f"{trap.name}, {'pinned' if pinned else 'alone'}" for trap, pinned in CASES]
)
def test_trap(trap: Trap, pinned: bool) -> None:
    verdict = judged(trap, pinned=pinned)
    said = " | ".join([verdict.detail, *(hunk.detail for hunk in verdict.hunks)])
    assert verdict.verdict is (trap.pinned if pinned else trap.alone), said
    if pinned or trap.pinned is None:
        assert trap.why in said
    assert bool(verdict.result) == verdict.verdict.is_applicable
    assert not verdict.merged or verdict.verdict in (CLEAN, Verdict.PARTIAL)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_each_fix_fits_its_own_file(trap: Trap) -> None:
    """Else a trap could be avoided for another reason than the one that it is there for."""
    itself = judge(SourceTree({trap.path: trap.base.encode()}), [patch(made(trap))])[0]
    assert itself.verdict is EXACT
    assert itself.result == {trap.path: trap.fixed.encode()}


def test_names_of_traps_are_unique() -> None:
    names = [trap.name for trap in TRAPS]
    assert len(names) == len(set(names))
