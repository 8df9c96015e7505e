"""Which copies of the CUDA libraries torch really maps, and that the overridden one is the one in use.

On disk says what could be loaded, /proc/self/maps of a process that imported torch says what is. For NCCL, which a
recipe may override, both must name the same single file, and that file must answer with the locked version.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import child, facts
from lib.facts import Facts
from lib.report import Report

SECONDS = 120

# Where the loader looks beside the run paths of the wheels, which all lie under the environment's prefix.
SYSTEM_FOLDERS = (Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local"), Path("/opt"))


@dataclass(frozen=True)
class Library:
    """A library that must be mapped once. `single`: there may be no other copy on disk either.

    package: distribution name up to the CUDA suffix, whose locked version the file must be of; None: not compared.
    """

    name: str
    stem: str
    package: str | None = None
    single: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """Its file names, with those that auditwheel makes (libX-1a2b3c4d.so.2) and CMake (libX.1a2b3c4d.so.2)."""
        return re.compile(rf"{re.escape(self.stem)}([-.][0-9a-f]{{8}})?\.so(\.\d+)*")


NCCL = Library("nccl", "libnccl", package="nvidia-nccl", single=True)

LIBRARIES = (
    NCCL,
    Library("cudart", "libcudart"),
    Library("cublas", "libcublas"),
    Library("cublasLt", "libcublasLt"),
    Library("cudnn", "libcudnn"),
)

# Prints the mapped shared objects, and NCCL's version through the file that torch mapped, not a second copy of it.
PROBE = r"""
import ctypes, json, re, sys
import torch
mapped = set()
with open("/proc/self/maps") as maps:
    for line in maps:
        fields = line.rstrip("\n").split(None, 5)
        if len(fields) == 6 and re.search(r"\.so(\.|$)", fields[5]):
            mapped.add(fields[5])
nccl = {}
for path in sorted(mapped):
    if re.fullmatch(sys.argv[1], path.rsplit("/", 1)[-1]):
        number = ctypes.c_int(0)
        status = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        nccl[path] = number.value if status == 0 else None
print(json.dumps({"torch": torch.__file__, "mapped": sorted(mapped), "nccl": nccl}))
"""


@dataclass(frozen=True)
class Mapped:
    """What a process that imported torch has mapped; `nccl`: file -> its version number, None if it gave none."""

    torch: str
    paths: tuple[str, ...]
    nccl: dict[str, int | None]

    def of(self, library: Library) -> list[Path]:
        return real_files(path for path in map(Path, self.paths) if library.pattern.fullmatch(path.name))


def main() -> None:
    known = facts.load()
    report = Report("libraries")
    mapped = probe(report)
    if mapped is not None:
        check(known, report, mapped, [Path(sys.prefix), *loader_folders(os.environ)])
    report.finish()


def probe(report: Report) -> Mapped | None:
    done = child.python(PROBE, NCCL.pattern.pattern, seconds=SECONDS)
    report.check("import torch", done.ok, "torch was imported" if done.ok else done.why())
    if not done.ok:
        return None
    said = json.loads(done.stdout.splitlines()[-1])
    return Mapped(said["torch"], tuple(said["mapped"]), said["nccl"])


def check(known: Facts, report: Report, mapped: Mapped, folders: Sequence[Path]) -> None:
    inside = Path(mapped.torch).is_relative_to(known.site_packages)
    report.check("torch", inside, f"imported from {mapped.torch}")
    for library in LIBRARIES:
        files = mapped.of(library)
        names = ", ".join(map(str, files))
        report.check(f"mapped:{library.name}", len(files) == 1, names or "torch maps none")
        if library.single:
            on_disk = find(library, folders)
            where = ", ".join(map(str, on_disk)) or "there is none"
            report.check(f"disk:{library.name}", len(on_disk) == 1 and on_disk == files, where)
    check_nccl_version(known, report, mapped)


def check_nccl_version(known: Facts, report: Report, mapped: Mapped) -> None:
    """The library that torch maps says the version that the lock has for it."""
    wanted = locked_version(known, NCCL)
    said = {path: decode(number) for path, number in mapped.nccl.items()}
    report.check(
        "version:nccl",
        bool(said) and wanted is not None and all(version == wanted for version in said.values()),
        f"the lock says {wanted}; "
        + (", ".join(f"{path} says {version}" for path, version in said.items()) or "no answer"),
    )


def locked_version(known: Facts, library: Library) -> str | None:
    """The release part of the locked version of the one distribution that brings the library."""
    versions = [v for name, v in known.packages.items() if re.fullmatch(rf"{library.package}(-cu\d+)?", name)]
    if len(versions) != 1:
        return None
    release = re.match(r"\d+(\.\d+)*", versions[0])
    return release.group() if release else None


def decode(number: int | None) -> str | None:
    """NCCL's version number as people write it: 23004 is 2.30.4 (nccl.h, NCCL_VERSION)."""
    return None if number is None else f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def loader_folders(environ: os._Environ[str] | dict[str, str]) -> list[Path]:
    """Folders outside the environment that the dynamic loader may take a library from."""
    extra = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    return [*extra, *SYSTEM_FOLDERS]


def find(library: Library, folders: Iterable[Path]) -> list[Path]:
    """Every copy of the library under `folders`, links resolved."""
    found = []
    for folder in folders:
        for at, _, names in os.walk(folder):
            found += [Path(at, name) for name in names if library.pattern.fullmatch(name)]
    return real_files(found)


def real_files(paths: Iterable[Path]) -> list[Path]:
    return sorted({path.resolve() for path in paths})


if __name__ == "__main__":
    main()
