"""What is installed in somebody's image: asked by a program in a container of it, and judged here."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from pydantic import ValidationError

from graft.errors import BadInput, PatchMismatch
from graft.patching.safety import COMPILED_SOURCES
from graft.trial.containers import Job, Put, Trials
from graft.trial.red_green import HOME
from graft.yamlio import Model

PROBE_SECONDS = 300.0
#: What the shell and container runtimes say of a program that is not there, or that cannot be executed.
NO_PROGRAM = (126, 127)
#: Build kind -> distributions of what was compiled from the headers that the component installs.
COMPILED_INTO: Mapping[str, tuple[str, ...]] = {"flashinfer-aot": ("flashinfer-jit-cache", "graft-flashinfer-aot")}


class FileFacts(Model):
    """One installed file: git blob id (None: there is none), and what could win over it.

    is_link: it, or a folder on the way, is a symbolic link. recorded: its hashes in RECORD. cached: there is bytecode
    of it. twins: compiled modules of its name. copies: files of the same name elsewhere on sys.path.
    """

    blob: str | None
    is_link: bool
    executable: bool
    recorded: list[str]
    cached: bool
    twins: list[str]
    copies: list[str]


class Installed(Model):
    """A distribution as it is installed. `root` is its site-packages, `record` lies below it."""

    python: str
    executable: str
    others: dict[str, str]
    found: list[str]
    root: str
    version: str
    record: str | None
    packages: dict[str, str | None]
    files: dict[str, FileFacts]


def probe(
    containers: Trials,
    image: str,
    python: str,
    distribution: str,
    paths: Sequence[str],
    script: bytes,
    others: Sequence[str],
) -> tuple[Installed, dict[str, bytes]]:
    """What is installed in an image, and the bytes of its RECORD and of those of `paths` that are there.

    All paths are below site-packages. others: distributions that are looked for beside.
    Raises BadInput when there is no such Python or distribution.
    """
    asked = {"distribution": distribution, "paths": list(paths), "others": list(others)}
    files = {f"{HOME}/probe/probe.py": Put(script), f"{HOME}/probe/job.json": Put(json.dumps(asked).encode())}
    argv = (python, f"{HOME}/probe/probe.py", f"{HOME}/probe/job.json")
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    container = containers.make(Job("probe", image, argv, files, PROBE_SECONDS, env))
    try:
        ended = _run(containers, container, python)
        found = _answer(ended, distribution, python)
        wanted = [path for path, facts in found.files.items() if facts.blob is not None and not facts.is_link]
        wanted += [found.record] if found.record is not None else []
        read = {p: containers.read(container, f"{found.root}/{p}").get(PurePosixPath(p).name, b"") for p in wanted}
    finally:
        containers.remove(container)
    return found, read


def _run(containers: Trials, container: str, python: str) -> str:
    from docker.errors import APIError

    cure = "name the image's interpreter that has it installed with --python, as an absolute path"
    try:
        ended = containers.wait(container, PROBE_SECONDS)
    except APIError as problem:
        # The runtime refuses to start a program that is not there.
        if problem.status_code in (400, 404):
            raise BadInput(f"the image has no program {python}", where="--python", cure=cure) from problem
        raise
    if ended.exit_code in NO_PROGRAM:
        raise BadInput(f"the image has no program {python}", where="--python", cure=cure, tail=ended.tail())
    if ended.exit_code != 0:
        raise BadInput(f"{python} of the image cannot say what is installed", where="--python", tail=ended.tail())
    return ended.stdout


def _answer(stdout: str, distribution: str, python: str) -> Installed:
    try:
        data = json.loads(stdout.splitlines()[-1])
        if not data["found"]:
            raise BadInput(
                f"{distribution} is not installed for {python} of the image (Python {data['python']})",
                where="--python",
                cure="name the image's interpreter that has it installed",
            )
        return Installed.model_validate(data)
    except (IndexError, ValueError, KeyError, TypeError, ValidationError) as problem:
        raise BadInput(f"{python} of the image gave no answer that can be read: {problem}", where="--python") from None


def check_installed(found: Installed, component: str) -> None:
    """Raises PatchMismatch unless the files are what Python uses, each once, and RECORD lists them."""
    if len(found.found) > 1:
        raise PatchMismatch(
            f"{component} is installed {len(found.found)} times: {', '.join(found.found)}",
            cure="remove all but one in the image",
        )
    if found.record is None:
        raise PatchMismatch(
            f"{component} {found.version} has no RECORD below {found.root}: it was not installed from a wheel"
        )
    for name, origin in found.packages.items():
        if origin is None or not PurePosixPath(origin).is_relative_to(found.root):
            raise PatchMismatch(f"Python imports {name} from {origin}, not from {found.root}")
    for path, facts in found.files.items():
        why = _odd(path, facts)
        if why:
            raise PatchMismatch(f"{path} {why}", where=found.root)


def _odd(path: str, facts: FileFacts) -> str | None:
    if facts.is_link:
        return "is a symbolic link, or lies behind one"
    if facts.blob is not None and len(facts.recorded) != 1:
        return f"is listed {len(facts.recorded)} times in RECORD"
    if facts.twins:
        return f"has a compiled twin, {facts.twins[0]}"
    if facts.copies:
        return f"is there a second time, at {facts.copies[0]}"
    return None


def recorded_names(record: bytes) -> list[str]:
    """Every file that RECORD lists, below site-packages."""
    return [row[0] for row in csv.reader(record.decode("utf-8", "replace").splitlines()) if row]


def check_paths(paths: Mapping[str, str | None], deleted: Sequence[str], compiled: Mapping[str, str]) -> None:
    """Raises PatchMismatch for a patch whose effect a layer of files could not have.

    paths: of the source -> below site-packages. A header that is installed to be compiled at run time may be patched,
    unless what was compiled from it is installed too (compiled: distribution -> version). What no patch on a wheel may
    touch is refused before, by `graft.patching.safety`.
    """
    for path, where in paths.items():
        if where is None:
            raise PatchMismatch(f"{path} is not installed: the component must be built from source", cure="make image")
        if path in deleted:
            raise PatchMismatch(f"{path} is deleted by the patch; a layer on an image can only change and add files")
        if path.endswith(COMPILED_SOURCES) and compiled:
            also = ", ".join(f"{name} {version}" for name, version in compiled.items())
            raise PatchMismatch(
                f"{path} is compiled into {also}, which is installed: the patch would not reach it", cure="make image"
            )
