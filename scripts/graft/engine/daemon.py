"""The embedded daemon: one for a project, on a private socket, ended without a trace.

It runs in a PID and a mount namespace of its own, below a small init. So whatever ends the
daemon, even `kill -9`, ends containerd, the shims and every RUN process with it, and the
mounts vanish with the namespace; without that they would stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graft import proc
from graft.engine import probe
from graft.engine.model import EngineConfig, Store
from graft.errors import EngineMissing
from graft.paths import Paths

#: A candidate is ready in half the time and disk that the containerd store takes (docs/engine.md).
STORE: Store = "classic"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
#: containerd refuses longer paths of its sockets, though Linux would take 107 bytes (sun_path of unix(7)).
MAX_SOCKET = 104
LONGEST_BELOW = len("/exec/containerd/containerd-debug.sock")
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
BOOT_ID = PROC / "sys/kernel/random/boot_id"

#: Leaves the terminal and our pipes, and says who it is: boot id and /proc/<pid>/stat, so that a recycled
#: process id is told from ours. $1 pid file, $2 log, then the command.
_DETACH = """
exec </dev/null >>"$2" 2>&1
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/$$/stat
printf '%s\\n' "$boot" "$stat" >"$1.new"
mv "$1.new" "$1"
shift 2
exec "$@"
"""

#: containerd, docker and runc keep state in fixed places under /run. In our mount namespace those three are our
#: own, and the rest of /run is the host's. (Without --no-mtab, mount creates /run/mount.) $1 an empty folder
#: outside of /run, then the command.
_OWN_RUN = """
mount --no-mtab --rbind /run "$1"
mount --no-mtab -t tmpfs -o mode=0755 graft /run
for entry in "$1"/*; do
  name=${entry##*/}
  case $name in containerd | docker | docker.* | runc) continue ;; esac
  if [ -L "$entry" ]; then cp -P "$entry" "/run/$name"
  elif [ -d "$entry" ]; then mkdir "/run/$name"; mount --no-mtab --rbind "$entry" "/run/$name"
  elif [ -e "$entry" ]; then : >"/run/$name"; mount --no-mtab --bind "$entry" "/run/$name"
  fi
done
umount --no-mtab --lazy "$1"
shift
exec "$@"
"""


@dataclass(frozen=True)
class Layout:
    """Where one project's daemon keeps everything."""

    engine: Path

    @property
    def id(self) -> str:
        """Tells the engines of several checkouts apart."""
        return hashlib.sha256(str(self.engine.resolve()).encode()).hexdigest()[:12]

    @property
    def run(self) -> Path:
        """Sockets and pid file; elsewhere when the project's path is too long for a socket's address."""
        run = self.engine.resolve() / "run"
        return run if len(os.fsencode(run)) + LONGEST_BELOW <= MAX_SOCKET else Path("/run") / f"graft-{self.id}"

    @property
    def host_run(self) -> Path:
        """Empty; where the daemon's mount namespace sees the host's /run for a moment."""
        return self.engine.resolve() / "host-run"

    @property
    def socket(self) -> Path:
        return self.run / "docker.sock"

    @property
    def root(self) -> Path:
        return self.engine.resolve() / "root"

    @property
    def data(self) -> Path:
        return self.engine.resolve() / "data"

    @property
    def log(self) -> Path:
        return self.engine / "dockerd.log"

    @property
    def started(self) -> Path:
        """Who runs: boot id, then the line of /proc/<pid>/stat."""
        return self.engine / "started"

    @property
    def cgroup(self) -> str:
        return f"/graft-{self.id}"


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for another with the same number: start in clock ticks since boot."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        found = _stat(self.pid)
        return found is not None and found.start == self.start and found.state not in "ZX"


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    start: int


def running(layout: Layout) -> Process | None:
    """The daemon's outermost process, when it is the one we started in this boot; None for stale records."""
    try:
        boot, stat = layout.started.read_text().splitlines()
        pid, recorded = int(stat.split(" ", 1)[0]), _parse_stat(stat)
    except (OSError, ValueError):
        return None
    process = Process(pid, recorded.start)
    return process if boot == BOOT_ID.read_text().strip() and process.is_alive() else None


def start(paths: Paths, config: EngineConfig) -> None:
    """Start the daemon and wait until it answers. The caller holds the engine's lock.

    Raises EngineMissing with the end of the daemon's log.
    """
    layout = Layout(paths.engine)
    sweep(layout)
    for folder in (layout.run, layout.host_run, layout.data):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = paths.engine / "daemon.json"
    settings.write_text(json.dumps(daemon_settings(layout, config), indent=1) + "\n")
    if layout.log.is_file():
        layout.log.replace(layout.log.with_suffix(".log.1"))
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    init = (layout.root / "usr/bin/tini-static", "--", layout.root / "usr/sbin/dockerd", "--config-file", settings)
    words: list[str | Path] = ["setsid", "--fork", "sh", "-euc", _DETACH, "graft-engine", layout.started, layout.log]
    words += [*namespaces, "--", "sh", "-euc", _OWN_RUN, "graft-engine", layout.host_run, *init]
    proc.run(words, env=_environment(layout), timeout=START_SECONDS, error=EngineMissing, what="starting dockerd")
    _wait_until_up(layout)


def stop(layout: Layout) -> bool:
    """End the daemon, gracefully at first, and everything that belongs to it. True when one was running."""
    outer = running(layout)
    if outer is not None:
        inner = _children(outer.pid)
        # `unshare` ignores SIGTERM while it waits; its child, the namespace's init, hands it to dockerd.
        for process in inner or [outer]:
            _signal(process, signal.SIGTERM)
        if not _gone(outer, STOP_SECONDS):
            for process in (*inner, outer):
                _signal(process, signal.SIGKILL)
            _gone(outer, STOP_SECONDS)
    left = sweep(layout)
    return outer is not None or left


def sweep(layout: Layout) -> bool:
    """End what a crash may have left of this project's engine, and remove its traces; True when there was any."""
    left = list(_ours(layout))
    for process in left:
        _signal(process, signal.SIGKILL)
    for process in left:
        _gone(process, STOP_SECONDS)
    layout.started.unlink(missing_ok=True)
    _remove_cgroups(layout)
    shutil.rmtree(layout.run, ignore_errors=True)
    return bool(left)


def daemon_settings(layout: Layout, config: EngineConfig) -> dict[str, object]:
    """daemon.json. The daemon changes no network setting of the host, and builds need none."""
    return {
        "hosts": [f"unix://{layout.socket}"],
        "data-root": str(layout.data),
        "exec-root": str(layout.run / "exec"),
        "pidfile": str(layout.run / "dockerd.pid"),
        "group": "root",
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-forward": False,
        "ip-masq": False,
        "userland-proxy": False,
        # Of containerd's store it is the name of the snapshotter.
        "storage-driver": "overlayfs" if STORE == "containerd" else "overlay2",
        "features": {"containerd-snapshotter": STORE == "containerd"},
        # The tree /graft-<id> holds every container and RUN process; systemd is not asked, it may not be there.
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": layout.cgroup,
        "init-path": str(layout.root / "usr/bin/tini-static"),
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": config.keep}},
        "shutdown-timeout": 10,
        "log-level": "warn",
    }


def _environment(layout: Layout) -> dict[str, str]:
    """Our programs first; proxies and CAs are the host's, for push and pull. No RUN sees any of it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.lower().endswith("_proxy") or name in ("SSL_CERT_FILE", "SSL_CERT_DIR")
    }
    own = [str(layout.root / "usr/sbin"), str(layout.root / "usr/bin")]
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {**kept, "PATH": os.pathsep.join(own + system), "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp", "HOME": "/root"}


def _wait_until_up(layout: Layout) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if probe.ping(layout.socket):
            return
        outer = running(layout)
        if outer is None and layout.started.is_file():
            break
        time.sleep(0.05)
    tail = _tail(layout.log)
    stop(layout)
    raise EngineMissing(
        "the embedded engine did not start", where=str(layout.log), cure="see its log; or install Docker", tail=tail
    )


def _tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-proc.TAIL_LINES :])
    except OSError:
        return ""


def _ours(layout: Layout) -> Iterator[Process]:
    """Processes of this engine: those in its cgroup, and those whose program lies in its root."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            program = str((entry / "exe").readlink())
            groups = (entry / "cgroup").read_text().splitlines()
            mine = program.startswith(f"{layout.root}/") or any(
                group.split(":", 2)[2].startswith(layout.cgroup + "/") for group in groups
            )
            found = _stat(int(entry.name))
            # The client is a program of ours too, but it belongs to whoever called it.
            if mine and found is not None and Path(program).name not in ("docker", "docker-buildx"):
                yield Process(int(entry.name), found.start)


def _remove_cgroups(layout: Layout) -> None:
    name = layout.cgroup.removeprefix("/")
    for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        for folder, _, _ in os.walk(top, topdown=False):
            # One that still holds a process cannot be removed; the next sweep tries again.
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _children(pid: int) -> list[Process]:
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and stat.parent == pid:
                found.append(Process(int(entry.name), stat.start))
    return found


def _signal(process: Process, number: signal.Signals) -> None:
    if process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _gone(process: Process, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while process.is_alive():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _stat(pid: int) -> _Stat | None:
    try:
        return _parse_stat((PROC / str(pid) / "stat").read_text())
    except (OSError, ValueError):
        return None


def _parse_stat(line: str) -> _Stat:
    """proc_pid_stat(5); the program's name may hold spaces and brackets, so count from the last one."""
    fields = line.rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError("not a line of /proc/<pid>/stat")
    return _Stat(state=fields[0], parent=int(fields[1]), start=int(fields[19]))
