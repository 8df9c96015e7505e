"""Which copies of the CUDA libraries a process really maps: one of each, the one the loader has to take, as locked.

The process is the image's own: the interpreter of the `vllm` command in the image's environment. /proc/self/maps says
what is mapped after torch was imported, and again after vLLM's server was. The loader's way (lib/loader.py) says what
else a name could have led to, and RECORD says whose file it is. What the library itself answers is compared too.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lib import child, facts, owners
from lib.dynamic import DynamicError, Elf
from lib.facts import Facts
from lib.loader import Library as Loader
from lib.loader import Loaded
from lib.report import Report

# vLLM's server imports most of what is installed: 25 s on two free cores, minutes on busy ones.
SECONDS = 600

# Where a library may lie beside the environment's prefix and the loader's own folders.
SYSTEM_FOLDERS = (Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local"), Path("/opt"))


@dataclass(frozen=True)
class Library:
    """A library that must be mapped once. `single`: there may be no other copy on disk either.

    asks: how it is asked for its version, one of ASKS of the probe.
    """

    name: str
    stem: str
    asks: str
    single: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """Its file names, with those that auditwheel makes (libX-1a2b3c4d.so.2) and CMake (libX.1a2b3c4d.so.2)."""
        return re.compile(rf"{re.escape(self.stem)}([-.][0-9a-f]{{8}})?\.so(\.\d+)*")


NCCL = Library("nccl", "libnccl", "ncclGetVersion", single=True)

LIBRARIES = (
    NCCL,
    Library("cudart", "libcudart", "cudaRuntimeGetVersion"),
    Library("cublas", "libcublas", "cublasGetProperty"),
    Library("cublasLt", "libcublasLt", "cublasLtGetProperty"),
    Library("cudnn", "libcudnn", "cudnnGetProperty"),
)

# Prints a JSON line after each import: the mapped shared objects, and what each of ours answers through the file that
# is mapped, not a second copy of it. None of these functions needs a device or a driver.
PROBE = r"""
import ctypes, importlib, json, re, sys
task = json.loads(sys.argv[1])

def mapped():
    with open("/proc/self/maps") as maps:
        fields = [line.rstrip("\n").split(None, 5) for line in maps]
    return sorted({f[5] for f in fields if len(f) == 6 and re.search(r"\.so(\.|$)", f[5])})

def ask(path, function):
    number, call = ctypes.c_int(0), getattr(ctypes.CDLL(path), function)
    if not function.endswith("Property"):
        return [number.value] if call(ctypes.byref(number)) == 0 else None
    parts = [number.value for which in range(3) if call(which, ctypes.byref(number)) == 0]
    return parts if len(parts) == 3 else None

for name in task["imports"]:
    module = importlib.import_module(name)
    paths = mapped()
    answers = {}
    for pattern, function in task["asks"].items():
        for path in paths:
            if re.fullmatch(pattern, path.rsplit("/", 1)[-1]):
                answers[path] = ask(path, function)
    said = {"module": name, "file": module.__file__, "mapped": paths, "answers": answers}
    print("\n" + json.dumps(said), flush=True)
"""


@dataclass(frozen=True)
class Mapped:
    """What a process has mapped after an import; answers: file -> version number(s) it says, None where it refuses."""

    module: str
    file: str
    paths: tuple[str, ...]
    answers: Mapping[str, Sequence[int] | None] = field(default_factory=dict)

    def of(self, library: Library) -> list[Path]:
        return real_files(path for path in map(Path, self.paths) if library.pattern.fullmatch(path.name))


def main() -> None:
    known = facts.load()
    report = Report("libraries")
    python = interpreter(known, report, os.environ)
    found = probe(report, python, imports_of(known))
    if found:
        loader = Loader(platform.machine(), os.environ)
        check(known, report, found, [Path(sys.prefix), *loader_folders(os.environ)], loader)
    report.finish()


def imports_of(known: Facts) -> tuple[str, ...]:
    """What the process imports, in this order: torch, and the module that `vllm serve` runs."""
    return ("torch", *(("vllm.entrypoints.openai.api_server",) if "vllm" in known.components else ()))


def interpreter(known: Facts, report: Report, environ: Mapping[str, str]) -> str:
    """The Python that the image's default entrypoint runs, read from its first line."""
    if "vllm" not in known.components:
        return sys.executable
    command = shutil.which("vllm", path=environ.get("PATH", ""))
    first = first_line(Path(command)) if command else b""
    found = first.removeprefix(b"#!").strip().decode("utf-8", "replace") if first.startswith(b"#!") else ""
    same = bool(found) and Path(found).exists() and Path(found).parent == Path(sys.executable).parent
    report.check("entrypoint", same, f"{command or 'vllm is not on PATH'} runs {found or 'no interpreter'}")
    return found if same else sys.executable


def first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(1000)


def probe(report: Report, python: str, imports: Sequence[str]) -> list[Mapped]:
    task = {"imports": list(imports), "asks": {library.pattern.pattern: library.asks for library in LIBRARIES}}
    done = child.run([python, "-P", "-c", PROBE, json.dumps(task)], seconds=SECONDS)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"module"')]
    said = [json.loads(line) for line in lines]
    found = [Mapped(one["module"], one["file"], tuple(one["mapped"]), one["answers"]) for one in said]
    for name, one in zip(imports, [*found, *[None] * len(imports)], strict=False):
        report.check(f"import {name}", one is not None, f"from {one.file}" if one else done.why())
    return found


def check(
    known: Facts, report: Report, found: Sequence[Mapped], folders: Sequence[Path], loader: Loader | None = None
) -> None:
    """The last of `found` has everything mapped that the earlier ones had."""
    book = known.waivers_of("libraries")
    first, last = found[0], found[-1]
    inside = Path(first.file).is_relative_to(known.site_packages)
    report.check("torch", inside, f"imported from {first.file}")
    site = known.site_packages.resolve()
    owned = {site / file: packages for file, packages in owners.of(site).items()}
    main_copies: dict[str, Path] = {}
    for library in LIBRARIES:
        own = first.of(library)
        report.check(f"mapped:{library.name}", len(own) == 1, ", ".join(map(str, own)) or f"{first.module} maps none")
        if own:
            main_copies[library.name] = own[0]
        for other in [path for path in last.of(library) if path not in own]:
            name = relative(other, site)
            waiver = book.find(name, owned.get(other, ()))
            detail = f"{last.module} maps {other} as well" + (f"; waived: {waiver.reason}" if waiver else "")
            report.check(f"mapped:{library.name}:{name}", False, detail, waived=waiver is not None)
        if library.single:
            on_disk = find(library, folders)
            where = ", ".join(map(str, on_disk)) or "there is none"
            report.check(f"disk:{library.name}", len(on_disk) == 1 and on_disk == own, where)
        check_version(known, report, library, own, last, owned)
    check_pair(report, last, main_copies)
    check_overrides(known, report, main_copies, owned)
    if loader is not None:
        check_way(report, loader, Path(sys.executable).resolve(), first, main_copies)
    unused = [str(waiver) for waiver in book.unused()]
    report.check("waivers", not unused, f"needed by nothing: {'; '.join(unused)}" if unused else "all are needed")


def check_version(
    known: Facts,
    report: Report,
    library: Library,
    own: Sequence[Path],
    mapped: Mapped,
    owned: Mapping[Path, Sequence[str]],
) -> None:
    """The mapped file belongs to a locked distribution, and answers with its version."""
    wrong, right = [], []
    for path in own:
        packages = [name for name in owned.get(path, ()) if name in known.packages]
        answer = decode(library.asks, mapped.answers.get(str(path)))
        locked = known.packages[packages[0]] if len(packages) == 1 else None
        text = f"{path} of {', '.join(packages) or 'no locked package'} {locked or ''} says {answer or 'nothing'}"
        fits = locked is not None and answer is not None and is_release_of(answer, locked)
        (right if fits else wrong).append(text)
    report.check(f"version:{library.name}", bool(right) and not wrong, "; ".join([*wrong, *right]) or "none is mapped")


def check_pair(report: Report, mapped: Mapped, copies: Mapping[str, Path]) -> None:
    """cuBLAS calls into cuBLASLt past its public functions: both are of one version and lie together."""
    said = {
        name: decode("cublasGetProperty", mapped.answers.get(str(copies[name])))
        for name in ("cublas", "cublasLt")
        if name in copies
    }
    same = len(said) == 2 and None not in said.values() and len(set(said.values())) == 1
    together = len({copies[name].parent for name in said}) == 1
    report.check(
        "pair:cublas", same and together, ", ".join(f"{copies[n]} says {v}" for n, v in said.items()) or "none"
    )


def check_overrides(
    known: Facts, report: Report, copies: Mapping[str, Path], owned: Mapping[Path, Sequence[str]]
) -> None:
    """A component that overrides another one's copy brings the library that is in use."""
    for name, component in known.components.items():
        if component.overrides is None:
            continue
        mine = [path for path in copies.values() if facts.normalise(component.distribution) in owned.get(path, ())]
        report.check(
            f"overrides:{name}",
            bool(mine),
            f"{', '.join(map(str, mine))} of {component.distribution} {component.version} is in use"
            if mine
            else f"nothing of {component.distribution} is mapped, so {component.overrides} uses another copy",
        )


def check_way(report: Report, loader: Loader, python: Path, mapped: Mapped, copies: Mapping[str, Path]) -> None:
    """Wherever the loader looks for one of these names, for any file that is mapped, it finds the same one file."""
    places: dict[str, set[Path]] = {name: set() for name in copies}
    asked: dict[str, int] = dict.fromkeys(copies, 0)
    sonames = {loader.elf(path).name: name for name, path in copies.items()}
    for elf in elves(loader, [python, *map(Path, mapped.paths)]):
        # Python code opens libraries by their bare names, which is asked from the program.
        for soname in sonames if elf.path == python else elf.needed:
            if soname in sonames:
                asked[sonames[soname]] += 1
                places[sonames[soname]] |= set(loader.all(soname, Loaded(elf, None)))
    for name, found in places.items():
        others = sorted(found - {copies[name]})
        report.check(
            f"way:{name}",
            not others,
            f"{asked[name]} files name it; the loader can also reach {', '.join(map(str, others))}"
            if others
            else f"{asked[name]} files name it, and all of them reach {copies[name]} alone",
        )


def elves(loader: Loader, paths: Iterable[Path]) -> Iterator[Elf]:
    """The files that can be read: a mapping may be of a file that is gone, or of none."""
    for path in paths:
        with contextlib.suppress(DynamicError, OSError):
            yield loader.elf(path)


def decode(function: str, numbers: Sequence[int] | None) -> str | None:
    """A version as people write it.

    cublasGetProperty and its like give three numbers; cudart says 13000 for 13.0 (cuda_runtime_api.h), NCCL 23004 for
    2.30.4 (nccl.h, NCCL_VERSION).
    """
    if not numbers:
        return None
    number = numbers[0]
    if function == "cudaRuntimeGetVersion":
        return f"{number // 1000}.{number % 1000 // 10}"
    if function == "ncclGetVersion":
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return ".".join(map(str, numbers))


def is_release_of(answer: str, locked: str) -> bool:
    """Whether a locked version, as 13.1.1.3, is of the release that a library answers with, as 13.1.1."""
    release = re.match(r"\d+(\.\d+)*", locked)
    return release is not None and f"{release.group()}.".startswith(f"{answer}.")


def relative(path: Path, site: Path) -> str:
    return path.relative_to(site).as_posix() if path.is_relative_to(site) else str(path)


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
