"""recipes/locks/_tools.lock.yaml: the Debian packages whose programs run on the host, by content hash.

Those of the embedded engine and of what makes a root file system. All recipes share them, and no byte of them enters
an image; they are locked so that two machines build with the same programs. The name is one that no recipe can have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from graft.apt import DebPin
from graft.errors import BadInput, LockStale
from graft.hashes import digest_of
from graft.lock import Sha256, refuse_newer, write_atomic
from graft.paths import Paths
from graft.project import Project, Suite
from graft.yamlio import Model, dump, parse, validate

FORMAT = 1
HEADER = "Made by `make lock`; do not edit. It names the Debian packages of which Graft runs programs on the host."
CURE = "make lock"
#: What makes it anew from what the archive has now.
RELOCK = "make lock NEW_TOOLS=1"

Pins = Annotated[tuple[DebPin, ...], Field(min_length=1, strict=False)]


class ToolsLock(Model):
    """Debian suite -> packages, for each of the two uses. inputs: hash of what they were chosen for."""

    tools: int
    inputs: Sha256
    engine: dict[Suite, Pins]
    bootstrap: dict[Suite, Pins]
    digest: Sha256

    @property
    def packages(self) -> dict[str, str]:
        """`suite/name` -> version of everything."""
        both = (*self.engine.items(), *self.bootstrap.items())
        return {f"{suite}/{pin.name}": pin.version for suite, pins in both for pin in pins}


def bootstrap_suites(project: Project) -> tuple[str, ...]:
    """The Debian releases that bases of build.yaml are made of."""
    return tuple(sorted({base.bootstrap.suite for base in project.bases.values() if base.bootstrap is not None}))


def tools_inputs(project: Project) -> str:
    """Hash of what build.yaml asks for."""
    engine = {suite: sorted(names) for suite, names in project.engine.packages.items()}
    return digest_of({"engine": engine, "bootstrap": list(bootstrap_suites(project))})


def make_tools_lock(
    project: Project, engine: Mapping[str, Sequence[DebPin]], bootstrap: Mapping[str, Sequence[DebPin]]
) -> ToolsLock:
    """The lock of what was resolved for each suite."""
    body = {
        "tools": FORMAT,
        "inputs": tools_inputs(project),
        "engine": {suite: _plain(pins) for suite, pins in sorted(engine.items())},
        "bootstrap": {suite: _plain(pins) for suite, pins in sorted(bootstrap.items())},
    }
    return ToolsLock.model_validate({**body, "digest": digest_of(body)})


def load_tools(paths: Paths, project: Project) -> ToolsLock:
    """Raises LockStale when it is missing or made for another build.yaml, BadInput when it is not what was written."""
    path = paths.tools_lock
    where = paths.relative(path)
    check_file(paths)
    if not path.exists():
        raise LockStale("the programs that Graft runs on the host are not locked", where=where, cure=CURE)
    document = parse(path.read_bytes(), path)
    found = document.data.get("tools") if isinstance(document.data, dict) else None
    refuse_newer(found, FORMAT, "the lock of the host's programs", where)
    lock = validate(document, ToolsLock)
    if digest_of({key: value for key, value in document.data.items() if key != "digest"}) != lock.digest:
        raise BadInput(
            "the lock was edited by hand: its digest does not fit", where=where, cure=f"git checkout {where}, or {CURE}"
        )
    if lock.inputs != tools_inputs(project):
        raise LockStale(
            "the programs that Graft runs on the host are locked for another build.yaml (engine: packages, bases)",
            where=where,
            cure=CURE,
        )
    return lock


def check_file(paths: Paths) -> None:
    """Raises BadInput when something stands in the lock's place that is no file, as a folder or a link to nothing."""
    path = paths.tools_lock
    if os.path.lexists(path) and not path.is_file():
        where = paths.relative(path)
        raise BadInput("this is no file", where=where, cure=f"remove it; then git checkout {where}, or {CURE}")


def write_tools(paths: Paths, lock: ToolsLock) -> None:
    """Replace the file in one step."""
    paths.locks.mkdir(parents=True, exist_ok=True)
    write_atomic(paths.tools_lock, dump(lock.model_dump(mode="json"), HEADER))


def _plain(pins: Sequence[DebPin]) -> list[dict[str, Any]]:
    return [pin.model_dump(mode="json") for pin in sorted(pins, key=lambda pin: pin.name)]
