"""The Docker engine that builds: the system's when it is good enough, else one of Debian's packages.

What was measured and why it is done so: docs/engine.md.
"""

from __future__ import annotations

import http.client
import shutil
import time
from collections.abc import Callable

from filelock import FileLock

from graft.engine import daemon, packages, probe
from graft.engine.model import Engine, EngineConfig, Kind, Mode, Programs, Store
from graft.errors import EngineMissing
from graft.locks import alone
from graft.paths import Paths

__all__ = ["Engine", "EngineConfig", "Kind", "Mode", "Programs", "Store", "ensure", "find", "stop"]

Say = Callable[[str], None]
LOW_DISK_BYTES = 20_000_000_000


def ensure(paths: Paths, config: EngineConfig, mode: Mode, say: Say, programs: Callable[[], Programs]) -> Engine:
    """A daemon that answers. Quick when there is one; else the embedded engine is unpacked and started.

    programs: those of the embedded engine; not asked for when the system's can be used.
    Raises EngineMissing (none, and none can be started here), FetchFailed (its packages), and what `programs` raises.
    """
    if mode == "embedded":
        return _embedded(paths, config, say, programs)
    try:
        return probe.system_engine(paths.engine / "system-config")
    except probe.Unsuitable as reason:
        if mode == "system":
            raise EngineMissing(
                f"the system's engine cannot be used: {reason}",
                cure="start Docker 26 or newer with buildx, or run with ENGINE=embedded",
            ) from reason
        return _embedded(paths, config, say, programs, f"the system's engine cannot be used ({reason})")


def find(paths: Paths) -> Engine | None:
    """The embedded engine of this project, when it runs and answers."""
    layout = daemon.Layout(paths.engine)
    if daemon.running(layout) is None:
        return None
    try:
        version = probe.version(layout.socket)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return Engine(
        kind="embedded",
        host=f"unix://{layout.socket}",
        version=version,
        docker=layout.root / "usr/bin/docker",
        config_dir=paths.engine.resolve() / "config",
        store=daemon.STORE,
    )


def stop(paths: Paths) -> bool:
    """End the embedded engine of this project and all it started; images and cache stay. True when one ran."""
    if not paths.engine.is_dir():
        return False
    with FileLock(paths.engine / "lock"):
        return daemon.stop(daemon.Layout(paths.engine))


def _embedded(
    paths: Paths, config: EngineConfig, say: Say, programs: Callable[[], Programs], because: str = ""
) -> Engine:
    wanted = programs()
    found = _current(paths, wanted.identity)
    if found is not None:
        return found
    try:
        packages.require_host()
    except EngineMissing as problem:
        if not because:
            raise
        raise EngineMissing(f"{because}, and {problem.what}", cure=problem.cure) from problem
    paths.engine.mkdir(parents=True, exist_ok=True)
    with alone(paths.engine / "lock", "another start of the engine", say):
        # Somebody else may have started it while we waited.
        found = _current(paths, wanted.identity) or _busy(paths, wanted.identity)
        if found is not None:
            return found
        if because:
            say(f"engine: {because}; using the embedded one")
        return _start(paths, config, say, wanted)


def _current(paths: Paths, identity: str) -> Engine | None:
    """The running engine, when it is made of these packages."""
    return find(paths) if packages.is_unpacked(paths.engine, identity) else None


def _busy(paths: Paths, identity: str) -> Engine | None:
    """An engine that runs and is slow to answer: it may serve somebody's build, so it is waited for, not ended.

    None when there is none, or nobody can reach it (its project was moved). Raises EngineMissing.
    """
    layout = daemon.Layout(paths.engine)
    end = time.monotonic() + daemon.START_SECONDS
    while packages.is_unpacked(paths.engine, identity) and daemon.running(layout) is not None:
        found = find(paths)
        if found is not None:
            return found
        if time.monotonic() > end:
            if not layout.socket.exists():
                return None
            raise EngineMissing(
                f"the embedded engine runs but has not answered for {daemon.START_SECONDS:.0f} s",
                where=str(layout.log),
                cure="make engine-stop, then run the same command again",
            )
        time.sleep(0.1)
    return None


def _start(paths: Paths, config: EngineConfig, say: Say, programs: Programs) -> Engine:
    layout = daemon.Layout(paths.engine)
    if daemon.stop(layout):
        say("engine: ended what was left of an earlier one, or of other packages")
    if not packages.is_unpacked(paths.engine, programs.identity):
        packages.unpack(paths, programs)
    probe.write_client_config(
        paths.engine.resolve() / "config", layout.root / "usr/libexec/docker/cli-plugins/docker-buildx"
    )
    free = shutil.disk_usage(paths.engine).free
    if free < LOW_DISK_BYTES:
        say(f"engine: only {free / 1e9:.0f} GB free on the disk of {paths.engine}; an image needs about 20 GB")
    daemon.start(paths, config)
    found = find(paths)
    if found is None:
        raise EngineMissing("the embedded engine started and ended at once", where=str(layout.log))
    say(f"engine: Docker {found.version} started in {paths.relative(paths.engine)}")
    return found
