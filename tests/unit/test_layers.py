"""A module imports only from layers below its own, and each kind of door is opened in one module alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import graft

ROOT = Path(graft.__file__).parent

#: Lowest first. A package (a folder) counts as one module. `graft` itself holds the version.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "graft",
        "errors",
        "paths hashes secret_shapes",
        "yamlio proc net console store durations budget sarif locks",
        "arch apt index kinds sources yamledit",
        "release",
        "project patchset",
        "component",
        "agreement",
        "recipe wheel_tags",
        "lock tags pins",
        "operators",
        "plan toolslock",
        "unlocked",
        "fetch patching render engine resolve report registry metadata bundle",
        "base build built compilecache gate gitstore reach linting",
        "trial publish",
        "inventory inspection",
        "commands",
        "cli",
        "__main__",
    )
)
#: Library -> the modules that may import it.
DOORS: Mapping[str, frozenset[str]] = {
    "subprocess": frozenset({"proc"}),
    "requests": frozenset({"net"}),
    "urllib3": frozenset({"net"}),
    "http": frozenset({"net", "engine"}),
    "urllib.request": frozenset(),
    "yaml": frozenset({"yamlio"}),
    "redis": frozenset({"compilecache"}),
}

#: docker's client raises the exceptions of requests: catching them opens no door.
CAUGHT: Mapping[str, frozenset[str]] = {"requests.exceptions": frozenset({"gate", "trial", "registry"})}


def module_of(path: Path, root: Path) -> str:
    """The module, or the package, that a file belongs to."""
    first = path.relative_to(root).parts[0]
    return "graft" if first == "__init__.py" else first.removesuffix(".py")


def imported(text: str, package: tuple[str, ...] = ("graft",)) -> Iterator[str]:
    """Full names of everything a module imports, wherever the statement stands; relative ones resolved."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def rank(module: str) -> int | None:
    return next((height for height, names in enumerate(LAYERS) if module in names), None)


def violations(module: str, text: str, package: tuple[str, ...] = ("graft",)) -> list[str]:
    """What a module imports and must not."""
    found = []
    own = rank(module)
    if own is None:
        return [f"{module} is in no layer"]
    for name in imported(text, package):
        if any(f"{name}.".startswith(f"{library}.") and module in allowed for library, allowed in CAUGHT.items()):
            continue
        for library, allowed in DOORS.items():
            if f"{name}.".startswith(f"{library}.") and module not in allowed:
                found.append(f"{module} imports {library}")
        parts = name.split(".")
        if parts[0] != "graft":
            continue
        other = parts[1] if len(parts) > 1 and rank(parts[1]) is not None else "graft"
        if len(parts) > 1 and other == "graft" and not parts[1].startswith("__"):
            found.append(f"{module} imports graft.{parts[1]}, which is in no layer")
            continue
        height = rank(other)
        assert height is not None
        if other != module and height >= own:
            found.append(f"{module} imports {other}, which is not below it")
    return found


def files(root: Path = ROOT) -> list[Path]:
    return sorted(root.rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    package = ("graft", *path.relative_to(ROOT).parts[:-1])
    assert violations(module_of(path, ROOT), path.read_text(encoding="utf-8"), package) == []


def test_no_module_is_in_two_layers() -> None:
    names = [name for layer in LAYERS for name in layer]
    assert len(names) == len(set(names))


def test_the_doors_are_used() -> None:
    for library, module in (("subprocess", "proc.py"), ("requests", "net/__init__.py"), ("yaml", "yamlio.py")):
        assert library in set(imported((ROOT / module).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("module", "text", "says"),
    [
        ("plan", "from graft.fetch import fetch", "plan imports fetch, which is not below it"),
        ("plan", "import graft.fetch", "plan imports fetch, which is not below it"),
        ("plan", "from graft import fetch", "plan imports fetch, which is not below it"),
        ("plan", "from . import fetch", "plan imports fetch, which is not below it"),
        ("plan", "from .fetch import fetch", "plan imports fetch, which is not below it"),
        ("fetch", "from graft.render import render", "fetch imports render, which is not below it"),
        ("net", "def f():\n    from graft.console import Console", "net imports console, which is not below it"),
        (
            "lock",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from graft.plan import Plan",
            "lock imports plan, which is not below it",
        ),
        ("errors", "from graft import __version__, cli", "errors imports cli, which is not below it"),
        ("cli", "from graft.surprise import x", "cli imports graft.surprise, which is in no layer"),
        ("surprise", "", "surprise is in no layer"),
        ("build", "import subprocess", "build imports subprocess"),
        ("build", "from subprocess import run", "build imports subprocess"),
        ("fetch", "import requests.adapters", "fetch imports requests"),
        ("fetch", "import http.client", "fetch imports http"),
        ("net", "from urllib.request import urlopen", "net imports urllib.request"),
        ("lock", "import yaml", "lock imports yaml"),
        ("gate", "import requests", "gate imports requests"),
        ("fetch", "from requests.exceptions import Timeout", "fetch imports requests"),
    ],
)
def test_a_planted_violation_is_seen(module: str, text: str, says: str) -> None:
    assert violations(module, text) == [says]


def test_a_relative_import_of_a_sub_package_is_resolved() -> None:
    assert violations("apt", "from ..plan import Plan", ("graft", "apt")) == ["apt imports plan, which is not below it"]
    assert violations("apt", "from .sources import Source", ("graft", "apt")) == []


def test_similar_names_are_not_confused() -> None:
    assert violations("plan", "import yamlfoo, httpx, requests_x\nfrom graft import __version__") == []
