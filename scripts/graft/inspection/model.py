"""What images/scripts/census-image.py answers. The rules behind the verdicts: docs/gpu-code.md."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from packaging.utils import canonicalize_name

from graft.recipe import Waiver
from graft.yamlio import Model

SITES = ("/site-packages/", "/dist-packages/")


class Code(Model):
    """One kind of entry in one section of a file. arch: as nvcc spells it (sm_90a, compute_90, lto_90)."""

    where: str
    kind: Literal["cubin", "ptx", "lto", "other"]
    arch: str
    relocatable: bool
    count: int


class Fatbins(Model):
    """How many fatbins of a file hold the same."""

    holds: str
    count: int


class Judged(Model):
    """A file on one architecture. fatbins: verdict -> how many; text: all of it in words."""

    verdict: Literal["covered", "ptx-only", "missing", "link", "no-kernel"]
    rules: tuple[str, ...]
    fatbins: dict[str, int]
    text: str

    @property
    def red(self) -> bool:
        return self.verdict in ("ptx-only", "missing")

    @property
    def mark(self) -> str:
        """The verdict in a few letters; an empty one: it is not judged."""
        covered = "".join(rule[0] for rule in self.rules)
        return {"covered": covered, "ptx-only": "PTX", "missing": "-", "link": "", "no-kernel": ""}[self.verdict]


class FileCode(Model):
    """One file with GPU code. packages: the distributions that record it; judged: by the name of the architecture."""

    path: str
    bytes: int
    form: Literal["library", "object", "archive", "cubin", "fatbin"]
    packages: tuple[str, ...]
    code: tuple[Code, ...]
    fatbins: tuple[Fatbins, ...]
    holds: str
    judged: dict[str, Judged]


class Unreadable(Model):
    """A file whose GPU code cannot be read to its end."""

    path: str
    why: str
    packages: tuple[str, ...]


class Runtime(Model):
    """Kernels that are compiled when they are called."""

    package: str
    compiler: str
    count: int


class Answer(Model):
    """The census of one image. denied: files and folders that could not be opened."""

    files: int
    elf_files: int
    denied: int
    holdings: tuple[FileCode, ...]
    unreadable: tuple[Unreadable, ...]
    runtime: tuple[Runtime, ...]

    def red(self, arch: str, waivers: Sequence[Waiver]) -> list[str]:
        """The files that have nothing for the architecture, or cannot be read, and that no waiver excuses."""
        bad: list[FileCode | Unreadable] = [*(file for file in self.holdings if file.judged[arch].red)]
        bad += self.unreadable
        return [file.path for file in bad if excuse(file, waivers) is None]


def excuse(file: FileCode | Unreadable, waivers: Sequence[Waiver]) -> Waiver | None:
    """The waiver for a file, by the gate's rule: its place below site-packages, or its whole path, and its package."""
    name = file.path[len(site_of(file.path)) :]
    packages = {canonicalize_name(package) for package in file.packages}
    for waiver in waivers:
        of_package = waiver.package is None or canonicalize_name(waiver.package) in packages
        if of_package and fnmatchcase(name, waiver.file):
            return waiver
    return None


def site_of(path: str) -> str:
    """The part of a path up to and with site-packages/; empty for one that lies elsewhere."""
    cuts = [path.rindex(site) + len(site) for site in SITES if site in path]
    return path[: max(cuts, default=0)]
