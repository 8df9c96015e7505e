"""What a set of files needs and the image does not have: libraries, symbols, versions, the right machine and Python.

Each file is opened, as the loader would and without loading anything, in a process that has imported torch, because
that is how extensions find torch's libraries. One that fails alone is looked at again in the reach of those that bring
it in: many libraries are only ever loaded by another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lib.dynamic import DynamicError, Elf, Need
from lib.families import DRIVER, TVM_MODULE, owner
from lib.loader import Library, Loaded, Process

Kind = Literal["unreadable", "machine", "python", "library", "version", "symbol"]

#: The part of an extension module's file name that says for which Pythons it was built.
PYTHON_TAG = re.compile(r"\.((?:cpython|pypy|graalpy|cp)[^./]*|abi3[^./]*)\.so$")


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong with `file`: `name` is what it needs, `text` says who should have it."""

    file: Path
    kind: Kind
    name: str
    text: str


@dataclass(frozen=True)
class _Opened:
    """A file in its process: what it can reach, and what it lacks there."""

    process: Process
    loaded: Loaded
    libraries: tuple[str, ...]
    symbols: tuple[Need, ...]

    @property
    def complete(self) -> bool:
        return not self.libraries and not self.symbols


class Closure:
    """The files of an image, each opened in a process that starts as `base`.

    roots: what `base` opened itself; suffixes: the ends of names of extension modules that this Python imports.
    tvm: the process of a module of tvm_ffi, and what that opens for everybody.
    """

    def __init__(
        self,
        library: Library,
        base: Process,
        roots: Sequence[Loaded],
        suffixes: Sequence[str],
        tvm: Process,
    ) -> None:
        self._library = library
        self._base = base
        self._tvm = tvm
        self._roots = tuple(roots)
        self._suffixes = tuple(suffixes)
        self._named: dict[str, list[Path]] = {}
        self._opened: dict[Path, _Opened] = {}
        #: Symbols that are left to the driver.
        self.of_driver: set[str] = set()
        #: Strong symbols that were looked for.
        self.looked_for = 0

    def check(self, files: Iterable[Path]) -> list[Finding]:
        """Everything that is wrong with these files, sorted. Links resolved before: each file stands once."""
        findings: list[Finding] = []
        ready: list[Elf] = []
        for file in files:
            try:
                elf = self._library.elf(file)
            except (DynamicError, OSError) as error:
                findings.append(Finding(file, "unreadable", "elf", str(error)))
                continue
            wrong = self._misfits(elf)
            findings += wrong
            if not any(finding.kind == "machine" for finding in wrong) and elf.dynamic:
                ready.append(elf)
                self._named.setdefault(elf.name, []).append(file)
        for elf in ready:
            self._opened[elf.path] = self._open(elf)
        users = self._users()
        for elf in ready:
            findings += self._judge(elf, users)
        return sorted(findings)

    def _misfits(self, elf: Elf) -> list[Finding]:
        """Built for another machine, or for another Python."""
        here = self._library.machine
        if elf.machine != here:
            return [Finding(elf.path, "machine", elf.machine, f"built for {elf.machine}, this image is {here}")]
        tag = PYTHON_TAG.search(elf.path.name)
        if tag is not None and f".{tag[1]}.so" not in self._suffixes:
            text = f"built for {tag[1]}; this Python imports {', '.join(self._suffixes)}"
            return [Finding(elf.path, "python", tag[1], text)]
        return []

    def _open(self, elf: Elf) -> _Opened:
        # A program starts anew; everything else comes into a process that has torch.
        base = self._tvm if self._is_tvm_module(elf) else self._base
        process = Process(self._library, None if elf.interpreter else base)
        loaded = process.open(elf.path, everywhere=elf.interpreter is not None)
        return self._look(process, loaded, loaded)

    def _is_tvm_module(self, elf: Elf) -> bool:
        """Whether tvm_ffi loads this file: what it gives is only read where it asks for something of tvm_ffi."""
        if not any(need.name.startswith("TVMFFI") for need in elf.needs):
            return False
        return any(name.startswith(TVM_MODULE) for name in self._library.exports(elf.path).symbols)

    def _look(self, process: Process, top: Loaded, loaded: Loaded) -> _Opened:
        """What `loaded` lacks when `top` was opened and brought it in."""
        libraries = [name for name, found in process.needed(loaded) if found is None]
        strong = [need for need in loaded.elf.needs if not need.weak]
        missing = process.missing(top, strong)
        if top is loaded:
            self.looked_for += len(strong)
        beyond = {name for other in process.scope(top) for name, found in process.needed(other) if found is None}
        driver = [need for need in missing if owner(need) in DRIVER and owner(need) in beyond]
        self.of_driver |= {need.name for need in driver}
        symbols = tuple(need for need in missing if need not in driver)
        return _Opened(process, loaded, tuple(name for name in libraries if name not in DRIVER), symbols)

    def _users(self) -> Mapping[Path, list[_Opened]]:
        """file -> those that bring it in and are brought in by nobody, as extension modules are."""
        scopes = {
            path: [loaded.elf.path for loaded in opened.process.scope(opened.loaded)][1:]
            for path, opened in self._opened.items()
        }
        brought_in = {path for scope in scopes.values() for path in scope}
        users: dict[Path, list[_Opened]] = {}
        for path, scope in scopes.items():
            if path not in brought_in:
                for other in scope:
                    users.setdefault(other, []).append(self._opened[path])
        return users

    def _judge(self, elf: Elf, users: Mapping[Path, list[_Opened]]) -> list[Finding]:
        opened = self._opened[elf.path]
        if not opened.complete:
            opened = self._in_reach_of_others(elf, opened, users)
        findings = self._versions(opened)
        absent = {finding.name for finding in findings}
        if elf.interpreter and not Path(elf.interpreter).exists():
            findings.append(Finding(elf.path, "library", elf.interpreter, "the program's interpreter is not there"))
        symbols = [need for need in opened.symbols if need.version not in absent]
        nowhere = set()
        for name in opened.libraries:
            there = self._named.get(name, [])
            if len(there) == 1:
                symbols = [need for need in symbols if not self._library.exports(there[0]).answer(need)]
                text = f"not on the loader's way from here; {there[0]} has that name"
            else:
                nowhere.add(name)
                text = "no library of that name on the loader's way" + (f", {len(there)} elsewhere" if there else "")
            findings.append(Finding(elf.path, "library", name, text))
        for need in symbols:
            should = owner(need)
            # What only a library that is not there can have is said with that library.
            if not nowhere or (should is not None and should not in nowhere):
                findings.append(Finding(elf.path, "symbol", str(need), self._whose(opened.process, need, should)))
        return findings

    def _whose(self, process: Process, need: Need, should: str | None) -> str:
        """Who should have a symbol that is nowhere in reach."""
        if should is None:
            return "no library in reach has it"
        for path in process.files:
            if path.name.startswith(should) and self._library.exports(path).answer(need):
                return f"{should} has it, and no library that this file names leads there"
        return f"{should} should have it and does not"

    def _in_reach_of_others(self, elf: Elf, alone: _Opened, users: Mapping[Path, list[_Opened]]) -> _Opened:
        """How the file does where it is brought in: in torch's process, or by every one of its users."""
        if elf.path in self._base.files:
            places = [(self._base, root) for root in self._roots if self._reaches(self._base, root, elf.path)]
        else:
            places = [(user.process, user.loaded) for user in users.get(elf.path, [])]
        for process, top in places:
            there = self._look(process, top, process.file(elf.path))
            if not there.complete:
                return there
        return there if places else alone

    @staticmethod
    def _reaches(process: Process, top: Loaded, path: Path) -> bool:
        return any(loaded.elf.path == path for loaded in process.scope(top))

    def _versions(self, opened: _Opened) -> list[Finding]:
        """Symbol versions, as GLIBC_2.38, that the library here does not define."""
        answering = dict(opened.process.needed(opened.loaded))
        findings = []
        for need in opened.loaded.elf.version_needs:
            found = answering.get(need.file)
            if need.weak or found is None:
                continue
            defined = self._library.exports(found.elf.path).versions
            # The loader says a word about a library that defines none, and goes on.
            if defined and need.version not in defined:
                text = f"{need.file} should define it; {found.elf.path} does not"
                findings.append(Finding(opened.loaded.elf.path, "version", need.version, text))
        return findings
