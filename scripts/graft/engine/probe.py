"""Questions to a Docker daemon on a unix socket, and to the clients on this host."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graft import proc
from graft.engine.model import Engine, Store
from graft.errors import EngineMissing

#: API 1.45 came with Docker 26.0, the first with BuildKit 0.13. Debian's daemon reports its BuildKit as
#: `v0.0.0+unknown` and others carry distribution suffixes, while the API version is always plain.
MIN_API = (1, 45)
DEFAULT_SOCKET = "unix:///var/run/docker.sock"
PROBE_SECONDS = 5.0
CLIENT_SECONDS = 30.0


class Unsuitable(Exception):
    """Why the system's engine cannot be used, in one clause."""


@dataclass(frozen=True)
class Answer:
    """What a daemon says of itself."""

    version: str
    api: tuple[int, int]
    buildkit: bool
    store: Store


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise


def ping(path: Path, timeout: float = PROBE_SECONDS) -> bool:
    """Does a daemon answer on this socket?"""
    try:
        return _get(str(path), "/_ping", timeout)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def version(path: Path, timeout: float = PROBE_SECONDS) -> str:
    """The version of the daemon on a socket. Raises OSError, HTTPException or ValueError."""
    return str(json.loads(_get(str(path), "/version", timeout)[2]).get("Version", ""))


def ask(path: Path, timeout: float = PROBE_SECONDS) -> Answer:
    """Version, API, BuildKit and image store of the daemon on a socket.

    Raises OSError or HTTPException when nothing, or something else, listens there.
    """
    status, headers, _ = _get(str(path), "/_ping", timeout)
    if status != 200:
        raise http.client.HTTPException(f"HTTP {status}")
    server = json.loads(_get(str(path), "/version", timeout)[2])
    info = json.loads(_get(str(path), "/info", timeout)[2])
    return Answer(
        version=str(server.get("Version", "")),
        api=_api(str(server.get("ApiVersion", ""))),
        buildkit=headers.get("Builder-Version") == "2",
        store=_store(info.get("DriverStatus")),
    )


def system_engine(config_dir: Path, environ: Mapping[str, str] = os.environ) -> Engine:
    """The engine that this host's Docker client would use.

    config_dir becomes its DOCKER_CONFIG: the user's own may hold proxies, which clients pass to builds.
    Raises Unsuitable.
    """
    client = shutil.which("docker", path=environ.get("PATH"))
    if client is None:
        raise Unsuitable("no docker client on PATH")
    user = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/root")) / ".docker")
    context = _context(user, environ)
    host = _context_host(Path(client), context, environ) if context else environ.get("DOCKER_HOST") or DEFAULT_SOCKET
    answer = _answer(Path(client), host, context, environ)
    if answer.api < MIN_API or not answer.buildkit:
        raise Unsuitable(f"the daemon at {host} is {answer.version}; BuildKit 0.13 comes with Docker 26")
    plugin = _buildx(Path(client), user, environ)
    _write_config(config_dir, user, plugin)
    return Engine("system", host, answer.version, Path(client), config_dir, answer.store, context)


def _get(path: str, target: str, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def _api(text: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _store(driver_status: Any) -> Store:
    rows = driver_status if isinstance(driver_status, list) else []
    return "containerd" if ["driver-type", "io.containerd.snapshotter.v1"] in rows else "classic"


def _context(user: Path, environ: Mapping[str, str]) -> str | None:
    """The name of a context that is not the default one; DOCKER_HOST wins over both, as in the client."""
    if environ.get("DOCKER_HOST"):
        return None
    name = environ.get("DOCKER_CONTEXT") or _user_config(user).get("currentContext")
    return str(name) if name and name != "default" else None


def _user_config(user: Path) -> dict[str, Any]:
    try:
        read = json.loads((user / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _context_host(client: Path, context: str, environ: Mapping[str, str]) -> str:
    words = (client, "context", "inspect", context, "--format", "{{.Endpoints.docker.Host}}")
    done = proc.run(words, env=environ, timeout=CLIENT_SECONDS, error=EngineMissing, check=False)
    if done.rc != 0:
        raise Unsuitable(f"the docker context {context!r} cannot be read")
    return done.stdout.strip()


def _answer(client: Path, host: str, context: str | None, environ: Mapping[str, str]) -> Answer:
    if not host.startswith("unix://"):
        return _answer_by_client(client, host, context, environ)
    path = Path(host.removeprefix("unix://"))
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise Unsuitable(f"{path} is not a socket")
        return ask(path)
    except FileNotFoundError as problem:
        raise Unsuitable(f"no daemon at {host}") from problem
    except PermissionError as problem:
        raise Unsuitable(f"this user may not use the daemon at {host}") from problem
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise Unsuitable(f"the daemon at {host} does not answer") from problem


def _answer_by_client(client: Path, host: str, context: str | None, environ: Mapping[str, str]) -> Answer:
    """For tcp and ssh, whose TLS and keys the client knows how to use."""
    env = {**environ, **({} if context else {"DOCKER_HOST": host})}
    replies = []
    for words in (["version", "--format", "{{json .Server}}"], ["info", "--format", "{{json .DriverStatus}}"]):
        done = proc.run([client, *words], env=env, timeout=CLIENT_SECONDS, error=EngineMissing, check=False)
        try:
            replies.append(json.loads(done.stdout))
        except ValueError as problem:
            raise Unsuitable(f"the daemon at {host} does not answer") from problem
    server, driver_status = replies
    if not isinstance(server, dict):
        raise Unsuitable(f"the daemon at {host} does not answer")
    return Answer(
        version=str(server.get("Version", "")),
        api=_api(str(server.get("ApiVersion", ""))),
        buildkit=True,
        store=_store(driver_status),
    )


def _buildx(client: Path, user: Path, environ: Mapping[str, str]) -> Path:
    """The docker-buildx plugin that the client finds. Raises Unsuitable."""
    env = {**environ, "DOCKER_CONFIG": str(user)}
    words = (client, "info", "--format", "{{json .ClientInfo.Plugins}}")
    done = proc.run(words, env=env, timeout=CLIENT_SECONDS, error=EngineMissing, check=False)
    try:
        plugins = json.loads(done.stdout) or []
    except ValueError:
        plugins = []
    for plugin in plugins:
        if plugin.get("Name") == "buildx" and not plugin.get("Err") and plugin.get("Path"):
            return Path(plugin["Path"])
    raise Unsuitable("the docker client has no buildx")


def _write_config(config_dir: Path, user: Path, plugin: Path) -> None:
    """A DOCKER_CONFIG with buildx and the user's contexts, and without proxies and credentials."""
    write_client_config(config_dir, plugin)
    contexts = config_dir / "contexts"
    if (user / "contexts").is_dir():
        link(contexts, user / "contexts")


def write_client_config(config_dir: Path, plugin: Path) -> None:
    """An empty client configuration whose only plugin is buildx; written once."""
    (config_dir / "cli-plugins").mkdir(parents=True, exist_ok=True)
    if not (config_dir / "config.json").is_file():
        (config_dir / "config.json").write_text("{}\n")
    link(config_dir / "cli-plugins" / "docker-buildx", plugin)


def link(name: Path, target: Path) -> None:
    """A symbolic link that points to `target`, replaced in one step when it pointed elsewhere."""
    if name.is_symlink() and name.readlink() == target:
        return
    fresh = name.with_name(f"{name.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(name)
