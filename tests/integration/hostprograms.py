"""The embedded engine of a folder that is no whole project: by build.yaml and the locks of this repository."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from graft.apt import DebPin
from graft.commands.programs import bootstrap_programs, ready_engine
from graft.commands.session import Session, open_session
from graft.console import Console
from graft.engine import Engine, Mode
from graft.paths import Paths

SOURCE = Path(__file__).parents[2]
NEEDED = ("build.yaml", "recipes/locks/_tools.lock.yaml")


def ready(paths: Paths, mode: Mode = "embedded") -> Engine:
    """As `make engine` would give it."""
    return ready_engine(_session(paths, mode))


def mmdebstrap(paths: Paths, suite: str = "bookworm") -> Mapping[DebPin, Path]:
    """The packages that make a root file system, in the store of `paths`."""
    return bootstrap_programs(_session(paths, "embedded"), suite)


def _session(paths: Paths, mode: Mode) -> Session:
    for name in NEEDED:
        target = paths.root / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, target)
    return open_session(paths, Console(), mode=mode)
