"""Libraries that stand in for the driver's: they let files be loaded, and write down every call.

Each has exactly the functions that files of the image ask the driver for, so a file that asks for more does not load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import child
from lib.dynamic import Elf
from lib.families import DRIVER, owner

#: The file that calls are appended to, one name a line.
CALLS = "GRAFT_STUB_CALLS"
COMPILE_SECONDS = 60.0

# 34 is CUDA_ERROR_STUB_LIBRARY (cuda.h): what NVIDIA's own stub answers.
HEAD = f"""\
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int called(const char *name) {{
  const char *path = getenv("{CALLS}");
  int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (file < 0) abort();
  if (write(file, name, strlen(name)) < 0) abort();
  close(file);
  return 34;
}}
"""


def wanted(elves: Iterable[Elf]) -> dict[str, list[str]]:
    """library of the driver -> the functions that files which are linked with it need, sorted."""
    found: dict[str, set[str]] = {}
    for elf in elves:
        for library in set(elf.needed) & set(DRIVER):
            found.setdefault(library, set()).update(need.name for need in elf.needs if owner(need) == library)
    return {library: sorted(names) for library, names in sorted(found.items())}


def source(names: Iterable[str]) -> str:
    """C source of a library with these functions. The arguments are left alone, which the calling convention allows."""
    return HEAD + "".join(f'int {name}(void) {{ return called("{name}\\n"); }}\n' for name in names)


def build(folder: Path, libraries: Mapping[str, Iterable[str]]) -> child.Finished | None:
    """Compile the stubs into a folder with the image's gcc; the compiler that failed, None when all are there."""
    for name, functions in libraries.items():
        code = folder / f"{name}.c"
        code.write_text(source(functions))
        done = child.run(
            ["gcc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{name}", "-o", str(folder / name), str(code)],
            seconds=COMPILE_SECONDS,
        )
        if not done.ok:
            return done
    return None
