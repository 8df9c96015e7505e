"""What a module imports whenever it is imported, followed without running anything: the import closure of a command.

Only what surely runs counts: statements of a module's and its classes' bodies. What stands in a function, below a
condition, or in a `try` that catches the failure may rightly be absent.
"""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True, order=True)
class Broken:
    """An import that no module answers: the file that has it, the line, and the module."""

    file: str
    line: int
    module: str


@dataclass
class Closure:
    """What was found: modules that were followed, modules of others that are there, and what is missing."""

    followed: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    broken: set[Broken] = field(default_factory=set)


class Finder:
    """Finds modules on a path, importing none: importlib's own find_spec would import their packages."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = list(path)
        self.find = functools.cache(self._find)

    def _find(self, name: str) -> importlib.machinery.ModuleSpec | None:
        parent, _, tail = name.rpartition(".")
        if not parent:
            return importlib.machinery.PathFinder.find_spec(name, self._path)
        above = self.find(parent)
        # By its last part: with the full name, a namespace package asks for its parent among imported modules.
        if above is None or above.submodule_search_locations is None:
            return None
        return importlib.machinery.PathFinder.find_spec(tail, list(above.submodule_search_locations))

    def is_there(self, name: str) -> bool:
        top = name.partition(".")[0]
        return top in sys.stdlib_module_names or top in sys.builtin_module_names or self.find(name) is not None


def closure(roots: Iterable[str], packages: Sequence[str], finder: Finder) -> Closure:
    """Follow `roots` through the modules of `packages`; a module of anybody else has to be there, and is not followed.

    roots: modules, or `module:function` for what a function of it imports when it is called.
    """
    found = Closure()
    waiting: list[tuple[str, str | None]] = []
    for root in roots:
        module, _, function = root.partition(":")
        waiting += [(module, None), *([(module, function)] if function else [])]
    done: set[tuple[str, str | None]] = set()
    while waiting:
        module, function = waiting.pop()
        if (module, function) in done:
            continue
        done.add((module, function))
        spec = finder.find(module)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            if spec is None:
                found.broken.add(Broken("the command", 0, module))
            continue
        found.followed.add(module)
        waiting += [(parent, None) for parent in parents(module)]
        for line, name, required in imported(Path(spec.origin), module, spec.origin.endswith("__init__.py"), function):
            if not finder.is_there(name):
                if required:
                    found.broken.add(Broken(spec.origin, line, name))
            elif name.partition(".")[0] in packages:
                waiting.append((name, None))
            else:
                found.others.add(name)
    return found


def parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def imported(file: Path, module: str, is_package: bool, function: str | None = None) -> Iterator[tuple[int, str, bool]]:
    """(line, module, whether it must exist) of each import that surely runs; `from x import y` may name a module y."""
    tree = ast.parse(file.read_bytes(), str(file))
    body: Sequence[ast.stmt] = tree.body
    if function is not None:
        body = next((n.body for n in body if isinstance(n, ast.FunctionDef) and n.name == function), [])
    for node in surely(body):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module, is_package)
            yield node.lineno, base, True
            yield from ((node.lineno, f"{base}.{alias.name}", False) for alias in node.names if alias.name != "*")


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    above = parts[: len(parts) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def surely(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body that run whenever it does, before anything that returns."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from surely(node.body)
        elif isinstance(node, ast.With):
            if not any("suppress" in ast.unparse(item.context_expr) for item in node.items):
                yield from surely(node.body)
        elif isinstance(node, ast.Try):
            if not any(catches(handler) for handler in node.handlers):
                yield from surely([*node.body, *node.orelse])
            yield from surely(node.finalbody)
        else:
            yield node
            if isinstance(node, ast.Return | ast.Raise):
                return


def catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {name.id for name in ast.walk(handler.type) if isinstance(name, ast.Name)}
    return bool(names & CATCHES)
