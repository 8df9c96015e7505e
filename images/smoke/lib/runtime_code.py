"""Kernels that are compiled when they are called: no file holds them yet, so they are counted by their sources.

Which compiler makes them for which device is decided at run time; the census states them and judges nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath

# The decorator that starts a kernel, by the names under which its module is imported in this field.
DECORATOR = re.compile(rb"@(triton|tl|gluon|cute|ct|cuda|T)\.(jit|kernel|prim_func)\b")
WORDS = (b".jit", b".kernel", b".prim_func")
COMPILERS = {
    (b"triton", b"jit"): "Triton",
    (b"tl", b"jit"): "Triton",
    (b"gluon", b"jit"): "Triton",
    (b"cute", b"kernel"): "CuTe DSL",
    (b"ct", b"kernel"): "cuTile",
    (b"T", b"prim_func"): "TileLang",
    (b"cuda", b"jit"): "Numba",
}
CUDA_SOURCES = (".cu", ".cuh")
SITE = ("site-packages", "dist-packages")
# Python files are small; what is larger is data, and not worth its time.
MAX_BYTES = 4 << 20


def is_source(path: str) -> bool:
    """Whether a file of this name is looked at by kernels()."""
    return path.endswith((".py", *CUDA_SOURCES))


def kernels(path: str, text: bytes) -> Counter[tuple[str, str]]:
    """(package, compiler) -> kernels in one source; of CUDA C++, the number of files."""
    if path.endswith(CUDA_SOURCES):
        return Counter({(package_of(path), "CUDA C++ files"): 1})
    found: Counter[tuple[str, str]] = Counter()
    if any(word in text for word in WORDS):
        for match in DECORATOR.finditer(text):
            compiler = COMPILERS.get((match[1], match[2]))
            alone = not text[text.rfind(b"\n", 0, match.start()) + 1 : match.start()].strip()
            if compiler is not None and alone:
                found[package_of(path), compiler] += 1
    return found


def package_of(path: str) -> str:
    """The folder or module below site-packages that a file belongs to; elsewhere its folder."""
    parts = PurePosixPath(path).parts
    for index, part in enumerate(parts[:-1]):
        if part in SITE:
            return PurePosixPath(parts[index + 1]).stem
    return str(PurePosixPath(path).parent)
