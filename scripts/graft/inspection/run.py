"""Run the census in a container of an image; or outside, over the container's files, when it has no Python for it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from graft import proc
from graft.console import Console
from graft.errors import BadInput, GateFailed
from graft.inspection.model import Answer
from graft.trial.containers import Job, Put, Trials

HOME = "/graft-census"
PROGRAM = "scripts/census-image.py"
OUTPUT = f"{HOME}/answer.json"
SECONDS = 1800.0
#: Isolated from the image's own packages and settings, and leaving no bytecode.
OPTIONS = ("-I", "-S", "-B")
#: So that a Python which cannot even parse the program says so.
STARTER = """
import sys
if sys.version_info < (3, 8):
    sys.exit(3)
import runpy
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
#: 3 is the program's own word for it; the others are what container runtimes say of a program that is not there.
NO_PYTHON = (3, 126, 127)


@dataclass(frozen=True)
class Program:
    """The census: where it lies here, and path below that folder -> bytes of all it needs."""

    folder: Path
    files: Mapping[str, bytes]


def read_program(images: Path) -> Program:
    """The census program of the project's images/ folder."""
    needed = [images / PROGRAM, *sorted((images / "smoke" / "lib").glob("*.py"))]
    return Program(images, {str(path.relative_to(images)): path.read_bytes() for path in needed})


def inspect_image(
    containers: Trials, console: Console, image_id: str, program: Program, *, arches: Sequence[str], outside: bool
) -> Answer:
    """The census of an image, judged for `arches`; nothing of it is run when `outside`. Raises BadInput, GateFailed."""
    words = ["--arch", *arches]
    answer = None
    if not outside:
        answer = _inside(containers, image_id, program, words)
        if answer is None:
            console.say("the image has no Python 3.8 or newer: its files are read from outside, which takes longer")
    return _read(answer or _outside(containers, image_id, program, words))


def _inside(containers: Trials, image_id: str, program: Program, words: list[str]) -> bytes | None:
    """The answer of the image's own python3; None when it has none that will do."""
    from docker.errors import APIError

    argv = ("python3", *OPTIONS, "-c", STARTER, f"{HOME}/{PROGRAM}", "--root", "/", "--output", OUTPUT, *words)
    files = {f"{HOME}/{path}": Put(data) for path, data in program.files.items()}
    # As root: what the image's user may not read is part of the image too.
    container = containers.make(Job("census", image_id, argv, files, SECONDS, user="0"))
    try:
        ended = containers.wait(container, SECONDS)
    except APIError as problem:
        # The runtime refuses to start a program that is not there.
        if problem.status_code in (400, 404):
            return None
        raise
    else:
        if ended.exit_code in NO_PYTHON:
            return None
        if ended.exit_code != 0:
            how = f"no end after {SECONDS:g} s" if ended.exit_code is None else f"exit {ended.exit_code}"
            raise GateFailed(f"the census failed in the image: {how}", cure="--outside", tail=ended.tail())
        return containers.read(container, OUTPUT).get(Path(OUTPUT).name)
    finally:
        containers.remove(container)


def _outside(containers: Trials, image_id: str, program: Program, words: list[str]) -> bytes:
    """The answer over the container's files, by our own Python; the container is never started."""
    container = containers.make(Job("census", image_id, ("none",), {}, SECONDS))
    with tempfile.TemporaryDirectory(prefix="graft-census-") as folder:
        output = Path(folder, "answer.json")
        argv = [sys.executable, *OPTIONS, str(program.folder / PROGRAM), "--tar", "--output", str(output), *words]
        try:
            proc.run(
                argv, stdin=containers.files(container), timeout=SECONDS, error=GateFailed, what="the census failed"
            )
        finally:
            containers.remove(container)
        return output.read_bytes()


def _read(data: bytes) -> Answer:
    try:
        return Answer.model_validate_json(data)
    except ValidationError as problem:
        first = problem.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BadInput(f"the image's python3 gave no answer that can be read: {said}", cure="--outside") from None
