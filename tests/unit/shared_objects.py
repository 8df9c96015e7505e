"""Small shared objects, compiled by the host's gcc, for the tests of what the dynamic loader does."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def compile_library(
    path: Path,
    code: str = "",
    *,
    needs: Sequence[Path] = (),
    soname: str | None = None,
    flags: Sequence[str] = (),
    versions: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """A shared object of C code; versions: symbol version -> symbols, as a linker's version script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_name(f"{path.name}.c")
    source.write_text(code)
    words = ["gcc", "-shared", "-fPIC", "-O0", "-w", "-nostdlib", "-Wl,--allow-shlib-undefined", "-o", str(path)]
    words += [f"-Wl,-soname,{soname or path.name}", *flags]
    if versions is not None:
        script = path.with_name(f"{path.name}.map")
        script.write_text("".join(f"{name} {{ global: {'; '.join(names)}; }};\n" for name, names in versions.items()))
        words.append(f"-Wl,--version-script={script}")
    subprocess.run([*words, str(source), "-Wl,--no-as-needed", *map(str, needs)], check=True, capture_output=True)
    source.unlink()
    return path


def runpath(folder: str) -> list[str]:
    return ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{folder}"]


def rpath(folder: str) -> list[str]:
    return ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{folder}"]
