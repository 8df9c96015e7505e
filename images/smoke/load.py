"""Every extension of torch, vLLM and FlashInfer loads without a driver, with the operators that were recorded.

The driver's libraries are stubs, made here for exactly the functions that files of the image need. A stub that is
called writes that down: loading must not start CUDA, or a process could not fork, nor pick its device, afterwards.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from abi import elf_files
from cuda_code import AOT
from lib import child, dynamic, facts, operators, owners, stubs
from lib.dynamic import DynamicError, Elf
from lib.facts import Facts, WaiverBook
from lib.families import TVM_MODULE
from lib.report import Report

SECONDS = 300.0
#: Released and built with torch, though no recipe names them.
TORCH_FAMILY = {"torchvision", "torchaudio"}
#: What `import torch` registers, in the list of operators.
TORCH = "torch"
#: The Python code of tvm_ffi asks torch for devices when it is imported (_optional_torch_c_dlpack.py), which starts
#: CUDA's runtime for good: the calls of libraries that are loaded later would not be seen.
QUIET = {"TVM_FFI_DISABLE_TORCH_C_DLPACK": "1"}

#: file below site-packages -> its distributions.
Owned = Mapping[str, Sequence[str]]
Kind = Literal["module", "tvm", "library"]

# A JSON line for each file, so that one that ends the process is known, and one for all operators. A module is loaded
# by its own name and without its package, whose Python code would load half of what is installed. A file that calls the
# driver is the last one: CUDA's runtime asks the driver once, and of what is loaded later no call would be seen.
LOAD = r"""
import ctypes, importlib.machinery, importlib.util, json, os, sys
task = json.loads(sys.argv[1])
import torch

def operators():
    return set(torch._C._dispatch_get_all_op_names())

def module(path, name):
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    loader.exec_module(importlib.util.module_from_spec(spec))

def tvm(path, functions):
    import tvm_ffi
    loaded = tvm_ffi.load_module(path)
    for function in functions:
        loaded.get_function(function)
    kept.append(loaded)

def mapped(path):
    with open("/proc/self/maps") as maps:
        return any(line.rstrip("\n").endswith(" " + path) for line in maps)

def calls():
    with open(os.environ[task["calls"]]) as file:
        return file.read().split()

kept, made = [], {"torch": sorted(operators())}
print("\n" + json.dumps({"file": "torch", "calls": calls()}), flush=True)
done = 0
for file in task["files"]:
    before, called, error = operators(), len(calls()), None
    try:
        if mapped(file["path"]):
            pass
        elif file["kind"] == "module":
            module(file["path"], file["name"])
        elif file["kind"] == "tvm":
            tvm(file["path"], file["functions"])
        else:
            ctypes.CDLL(file["path"])
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    made[file["file"]] = sorted(operators() - before)
    print("\n" + json.dumps({"file": file["file"], "error": error, "calls": calls()[called:]}), flush=True)
    done += 1
    if len(calls()) > called:
        break

def kernels(name):
    return [key for key in task["keys"] if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]

made = {file: [[name, kernels(name)] for name in names] for file, names in made.items()}
started = torch.cuda.is_initialized()
print("\n" + json.dumps({"operators": made, "initialized": started, "done": done}), flush=True)
# How a process without a driver ends is of no interest, and the libraries' last functions would be of that.
os._exit(0)
"""


@dataclass(frozen=True)
class File:
    """One file to load. file: its path below site-packages; functions: what a module of tvm_ffi gives."""

    file: str
    path: str
    kind: Kind
    name: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """What loading gave: file -> why it failed, None when it did not; file -> calls to the driver; all operators."""

    errors: Mapping[str, str | None]
    calls: Mapping[str, Sequence[str]]
    operators: Mapping[str, Sequence[str]] | None
    initialized: bool


def main() -> None:
    known = facts.load()
    report = Report("load")
    site = known.site_packages.resolve()
    elves = [elf for path in sorted(elf_files(site)) if (elf := readable(path)) is not None]
    owned = owners.of(site)
    files = loadable_files(known, owned, elves)
    with tempfile.TemporaryDirectory(prefix="graft-load-") as name:
        folder = Path(name)
        libraries = stubs.wanted(elves)
        failed = stubs.build(folder, libraries)
        counts = ", ".join(f"{len(functions)} functions of {library}" for library, functions in libraries.items())
        report.check("stub", failed is None, failed.why() if failed else counts or "nothing needs the driver")
        if failed is None:
            check(known, report, owned, load(files, folder))
    report.finish()


def readable(path: Path) -> Elf | None:
    """What cannot be read is the business of `abi`."""
    try:
        return dynamic.read(path)
    except (DynamicError, OSError):
        return None


def loadable_files(known: Facts, owned: Owned, elves: Iterable[Elf]) -> list[File]:
    """The libraries of the recipe's components and of torch's family, and what is compiled here.

    torch's own come last, because most of them are there by then.
    """
    site = known.site_packages.resolve()
    wanted = {facts.normalise(item.distribution) for item in known.components.values()} | TORCH_FAMILY
    found = []
    for elf in elves:
        file = elf.path.relative_to(site).as_posix()
        mine = file.startswith(f"{AOT}/") or wanted & set(owned.get(file, ()))
        if mine and elf.dynamic and elf.interpreter is None:
            found.append(file_of(file, elf.path))
    return sorted(found, key=lambda file: (file.file.startswith(f"{TORCH}/"), file.file))


def file_of(file: str, path: Path) -> File:
    """How a file is loaded, by what it gives."""
    given = dynamic.read_exports(path).symbols
    stem = path.name.partition(".")[0]
    name = f"{file.rpartition('/')[0].replace('/', '.')}.{stem}".lstrip(".")
    functions = tuple(sorted(symbol.removeprefix(TVM_MODULE) for symbol in given if symbol.startswith(TVM_MODULE)))
    if f"PyInit_{stem}" in given:
        return File(file, str(path), "module", name)
    return File(file, str(path), "tvm" if functions else "library", name, functions)


def load(files: Sequence[File], folder: Path) -> Loaded:
    """Load the files in the image's Python, with the stubs of `folder` in the driver's place.

    One process loads them all, but for what comes after a file that calls the driver: that gets a process of its own.
    """
    calls = folder / "calls"
    way = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    env = {"LD_LIBRARY_PATH": ":".join(way), stubs.CALLS: str(calls), **QUIET}
    found: list[Loaded] = []
    rest = list(files)
    while rest or not found:
        calls.write_text("")
        task = {"files": [asdict(file) for file in rest], "calls": stubs.CALLS, "keys": operators.KEYS}
        done = child.python(LOAD, json.dumps(task), seconds=SECONDS, env=env)
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
        last: dict[str, Any] = next((one for one in said if "operators" in one), {})
        # A process that says no end has ended at a file, and what comes after that one is not tried.
        taken = rest[: last.get("done", len(rest))] if last else rest
        found.append(loaded_of(taken, said, last, done))
        rest = rest[len(taken) :]
    return together(found)


def together(found: Sequence[Loaded]) -> Loaded:
    """What several processes said, as of one. What each of them loads first, torch, is there more than once."""
    errors: dict[str, str | None] = {}
    calls: dict[str, Sequence[str]] = {}
    made: dict[str, Sequence[str]] | None = {}
    for one in found:
        errors |= {name: error for name, error in one.errors.items() if errors.get(name) is None}
        calls |= {name: [*calls.get(name, ()), *names] for name, names in one.calls.items()}
        made = None if made is None or one.operators is None else {**one.operators, **made}
    return Loaded(errors, calls, made, any(one.initialized for one in found))


def loaded_of(
    files: Sequence[File], said: Sequence[Mapping[str, Any]], last: Mapping[str, Any], done: child.Finished
) -> Loaded:
    """What a process said of the files that it had to load. It ended at the first one that it says nothing of."""
    by_file = {one["file"]: one for one in said if "file" in one}
    silent = [name for name in (TORCH, *(file.file for file in files)) if name not in by_file]
    errors: dict[str, str | None] = {name: one.get("error") for name, one in by_file.items()}
    errors |= {name: done.why() if name == silent[0] else f"not tried, because {silent[0]} ended it" for name in silent}
    made = last.get("operators")
    if made is not None:
        functions = {file.file: [(name, ()) for name in file.functions] for file in files}
        made = {name: operators.lines([*found, *functions.get(name, [])]) for name, found in made.items()}
    return Loaded(errors, {name: one["calls"] for name, one in by_file.items()}, made, last.get("initialized", False))


def check(known: Facts, report: Report, owned: Owned, loaded: Loaded) -> None:
    """Everything loaded, the driver was left alone, and the operators are the recorded ones."""
    book = known.waivers_of("load")
    for file, error in loaded.errors.items():
        waiver = book.find(file, owned.get(file, ())) if error is not None else None
        detail = "loaded" if error is None else error + (f"; waived: {waiver.reason}" if waiver else "")
        report.check(f"load:{file}", error is None, detail, waived=waiver is not None)
    check_driver(report, book, owned, loaded)
    unused = [str(waiver) for waiver in book.unused()]
    report.check("waivers", not unused, f"needed by nothing: {'; '.join(unused)}" if unused else "all are needed")
    whole = loaded.operators is not None
    report.check("operators", whole, operators.summary(loaded.operators) if whole else "the process did not list them")
    if loaded.operators is not None:
        for file, lines in loaded.operators.items():
            if lines:
                # The evidence, which `graft` records from the receipt.
                report.check(f"{operators.CHECK}{file}", True, "\n".join(lines))
        operators.compare(report, known.operators, loaded.operators)


def check_driver(report: Report, book: WaiverBook, owned: Owned, loaded: Loaded) -> None:
    """No function of the driver was called."""
    called = [(file, name) for file, names in loaded.calls.items() for name in dict.fromkeys(names)]
    waivers = {pair: book.find("/".join(pair), owned.get(pair[0], ())) for pair in called}
    for (file, name), waiver in waivers.items():
        detail = f"{file} calls {name} when it is loaded" + (f"; waived: {waiver.reason}" if waiver else "")
        report.check(f"driver:{file}:{name}", False, detail, waived=waiver is not None)
    report.check("cuda", not loaded.initialized, "torch has started CUDA" if loaded.initialized else "not started")


if __name__ == "__main__":
    main()
