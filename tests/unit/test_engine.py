"""Which engine is used and why, and how a daemon that runs is told from one that ran. No daemon is started."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graft import engine
from graft.engine import daemon, model, packages, probe
from graft.errors import EngineMissing
from graft.paths import Paths


@dataclass(frozen=True)
class Config:
    keep: str = "40GB"


def programs() -> engine.Programs:
    """Asked for by the embedded engine alone."""
    return engine.Programs("some", dict)


class FakeDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers /_ping, /version and /info as Docker does."""

    daemon_threads = True
    version = "28.5.2"
    api = "1.51"
    builder = "2"
    status: Any = (("Backing Filesystem", "extfs"),)


class FakeHandler(http.server.BaseHTTPRequestHandler):
    server: FakeDaemon

    def do_GET(self) -> None:
        body = {
            "/_ping": "OK",
            "/version": json.dumps({"Version": self.server.version, "ApiVersion": self.server.api}),
            "/info": json.dumps({"DriverStatus": self.server.status}),
        }[self.path].encode()
        self.send_response(200)
        self.send_header("Builder-Version", self.server.builder)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[FakeDaemon]:
    server = FakeDaemon(str(tmp_path / "docker.sock"), FakeHandler)
    threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


CLIENT = """#!/bin/sh
case "$1 $2" in
"info --format") echo '[{"Name": "buildx", "Path": "'$BUILDX'", "Version": "v0.20.0"}]' ;;
"context inspect") test "$3" = lab && echo unix://$SOCKET ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    client = tmp_path / "bin" / "docker"
    client.parent.mkdir()
    client.write_text(CLIENT)
    client.chmod(0o755)
    return {
        "PATH": f"{client.parent}:{os.defpath}",
        "HOME": str(tmp_path / "home"),
        "DOCKER_HOST": f"unix://{tmp_path}/docker.sock",
        "BUILDX": "/opt/docker-buildx",
        "SOCKET": f"{tmp_path}/docker.sock",
    }


# The system's engine


def test_a_good_daemon_is_used(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    found = probe.system_engine(tmp_path / "config", environ)
    assert (found.kind, found.host, found.version) == ("system", environ["DOCKER_HOST"], "28.5.2")
    assert found.store == "classic"
    assert (found.config_dir / "cli-plugins" / "docker-buildx").readlink() == Path("/opt/docker-buildx")


def test_containerd_store_is_told_apart(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    system.status = [["driver-type", "io.containerd.snapshotter.v1"]]
    assert probe.system_engine(tmp_path / "config", environ).store == "containerd"


def test_debians_version_string_is_no_obstacle(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    system.version, system.api = "26.1.5+dfsg1", "1.45"
    assert probe.system_engine(tmp_path / "config", environ).version == "26.1.5+dfsg1"


@pytest.mark.parametrize(
    ("api", "builder"),
    [("1.44", "2"), ("1.24", "2"), ("1.9", "2"), ("1.51", "1"), ("1.41", ""), ("", "2"), ("x.y", "2")],
    ids=["docker-25", "old", "not-lexical", "buildkit-off", "podman", "empty", "garbage"],
)
def test_a_daemon_without_a_recent_buildkit_is_not_used(
    tmp_path: Path, system: FakeDaemon, environ: dict[str, str], api: str, builder: str
) -> None:
    system.api, system.builder = api, builder
    with pytest.raises(probe.Unsuitable, match="BuildKit"):
        probe.system_engine(tmp_path / "config", environ)


def test_no_buildx(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    (tmp_path / "bin" / "docker").write_text('#!/bin/sh\necho \'[{"Name": "compose"}]\'\n')
    with pytest.raises(probe.Unsuitable, match="no buildx"):
        probe.system_engine(tmp_path / "config", environ)


def test_buildx_that_does_not_load(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    reply = json.dumps([{"Name": "buildx", "Path": "/x", "Err": "exec format error"}])
    (tmp_path / "bin" / "docker").write_text(f"#!/bin/sh\necho '{reply}'\n")
    with pytest.raises(probe.Unsuitable, match="no buildx"):
        probe.system_engine(tmp_path / "config", environ)


def test_no_client(tmp_path: Path, system: FakeDaemon, environ: dict[str, str]) -> None:
    with pytest.raises(probe.Unsuitable, match="no docker client"):
        probe.system_engine(tmp_path / "config", {**environ, "PATH": str(tmp_path)})


def test_nothing_there_or_something_else(tmp_path: Path, environ: dict[str, str]) -> None:
    place = tmp_path / "docker.sock"
    with pytest.raises(probe.Unsuitable, match="no daemon at"):
        probe.system_engine(tmp_path / "config", environ)
    place.touch()
    with pytest.raises(probe.Unsuitable, match="is not a socket"):
        probe.system_engine(tmp_path / "config", environ)
    place.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        with pytest.raises(probe.Unsuitable, match="does not answer"):
            probe.system_engine(tmp_path / "config", environ)


def test_the_current_context_is_followed_and_docker_host_wins(
    tmp_path: Path, system: FakeDaemon, environ: dict[str, str]
) -> None:
    user = tmp_path / "home" / ".docker"
    (user / "contexts").mkdir(parents=True)
    (user / "config.json").write_text('{"currentContext": "lab", "proxies": {"default": {"httpProxy": "http://p:1"}}}')
    assert probe.system_engine(tmp_path / "config", environ).context is None
    del environ["DOCKER_HOST"]
    found = probe.system_engine(tmp_path / "config", environ)
    assert (found.context, found.host) == ("lab", f"unix://{tmp_path}/docker.sock")
    assert "DOCKER_HOST" not in found.env()
    assert found.env()["DOCKER_CONTEXT"] == "lab"
    assert (found.config_dir / "contexts").readlink() == user / "contexts"
    with pytest.raises(probe.Unsuitable, match="context 'gone'"):
        probe.system_engine(tmp_path / "config", {**environ, "DOCKER_CONTEXT": "gone"})


def test_the_users_proxies_and_credentials_stay_out_of_the_clients_configuration(
    tmp_path: Path, system: FakeDaemon, environ: dict[str, str]
) -> None:
    user = tmp_path / "home" / ".docker"
    user.mkdir(parents=True)
    (user / "config.json").write_text('{"proxies": {"default": {"httpProxy": "http://p:1"}}, "auths": {"r": {}}}')
    found = probe.system_engine(tmp_path / "config", environ)
    assert json.loads((found.config_dir / "config.json").read_text()) == {}


def test_the_environment_of_a_client_call_holds_no_proxy(
    tmp_path: Path, system: FakeDaemon, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "https_proxy", "NO_PROXY", "BUILDKIT_HOST", "BUILDX_BUILDER", "SECRET"):
        monkeypatch.setenv(name, "x")
    env = probe.system_engine(tmp_path / "config", environ).env()
    assert not [name for name, value in env.items() if value == "x"]
    assert env["DOCKER_HOST"] == environ["DOCKER_HOST"]


# Modes


@pytest.fixture
def no_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Unpacking and starting are replaced; the list tells that they were asked for."""
    calls: list[Path] = []

    def start(paths: Paths, config: object, say: object, programs: object) -> engine.Engine:
        calls.append(paths.engine)
        return engine.Engine("embedded", "unix:///x", "26.1.5", Path("/d"), Path("/c"), "classic")

    monkeypatch.setattr(engine, "_start", start)
    monkeypatch.setattr(packages, "require_host", lambda: None)
    return calls


def test_system_mode_never_falls_back(tmp_path: Path, no_system: None, started: list[Path]) -> None:
    with pytest.raises(EngineMissing, match="no d") as caught:
        engine.ensure(Paths(tmp_path), Config(), "system", print, programs)
    assert "ENGINE=embedded" in (caught.value.cure or "")
    assert not started


def test_auto_falls_back_and_says_so(tmp_path: Path, no_system: None, started: list[Path]) -> None:
    said: list[str] = []
    assert engine.ensure(Paths(tmp_path), Config(), "auto", said.append, programs).kind == "embedded"
    assert started
    assert "cannot be used" in said[0]
    assert "embedded" in said[0]


def test_auto_uses_a_good_daemon(
    tmp_path: Path,
    system: FakeDaemon,
    environ: dict[str, str],
    started: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert engine.ensure(Paths(tmp_path), Config(), "auto", print, programs).kind == "system"
    assert engine.ensure(Paths(tmp_path), Config(), "embedded", print, programs).kind == "embedded"
    assert len(started) == 1


OS_RELEASE = {
    "debian": "ID=debian\n",
    "ubuntu": 'ID=ubuntu\nID_LIKE="debian"\n',
    "mint": 'ID=linuxmint\nID_LIKE="ubuntu debian"\n',
    "fedora": "ID=fedora\n",
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "nothing": "",
}


@pytest.mark.parametrize("name", ["debian", "ubuntu", "mint"])
def test_debian_family_as_root_is_enough(tmp_path: Path, name: str) -> None:
    release = tmp_path / "os-release"
    release.write_text(OS_RELEASE[name])
    packages.require_host(uid=0, os_release=release, machine="x86_64")


@pytest.mark.parametrize(
    ("name", "uid", "machine", "cure"),
    [
        ("debian", 1000, "x86_64", "apt-get install docker.io docker-cli docker-buildx"),
        ("ubuntu", 1000, "x86_64", "apt-get install docker.io docker-buildx"),
        ("mint", 1000, "x86_64", "apt-get install docker.io docker-buildx"),
        ("fedora", 0, "x86_64", "dnf install"),
        ("rocky", 0, "x86_64", "dnf install"),
        ("nothing", 0, "x86_64", "docs.docker.com"),
        ("debian", 0, "aarch64", "apt-get install"),
    ],
)
def test_elsewhere_the_error_says_how_to_install_docker(
    tmp_path: Path, name: str, uid: int, machine: str, cure: str
) -> None:
    release = tmp_path / "os-release"
    release.write_text(OS_RELEASE[name])
    with pytest.raises(EngineMissing) as caught:
        packages.require_host(uid=uid, os_release=release, machine=machine)
    assert cure in (caught.value.cure or "")


def test_auto_on_a_host_that_can_do_neither_says_both(
    tmp_path: Path, no_system: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    with pytest.raises(EngineMissing, match=r"system's engine cannot be used.*needs root"):
        engine.ensure(Paths(tmp_path), Config(), "auto", print, programs)


# What is unpacked


def test_other_packages_are_another_unpack(tmp_path: Path) -> None:
    for program in packages.PROGRAMS:
        (tmp_path / "root" / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / program).touch()
    assert not packages.is_unpacked(tmp_path, "one")
    (tmp_path / "versions.json").write_text(json.dumps({"key": "one"}))
    assert packages.is_unpacked(tmp_path, "one")
    assert not packages.is_unpacked(tmp_path, "other")
    (tmp_path / "root" / packages.PROGRAMS[0]).unlink()
    assert not packages.is_unpacked(tmp_path, "one")


# Who runs


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[daemon.Layout]:
    (tmp_path / ".graft" / "engine").mkdir(parents=True)
    found = daemon.Layout(tmp_path / ".graft" / "engine")
    yield found
    # Below /run when the folder of this test has a long path.
    shutil.rmtree(found.run, ignore_errors=True)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def record(layout: daemon.Layout, pid: int, boot: str | None = None, start: int | None = None) -> None:
    line = Path(f"/proc/{pid}/stat").read_text().rstrip("\n")
    if start is not None:
        head, _, tail = line.rpartition(")")
        fields = tail.split()
        fields[19] = str(start)
        line = f"{head}) {' '.join(fields)}"
    layout.started.write_text(f"{boot or daemon.BOOT_ID.read_text().strip()}\n{line}\n")


def test_the_recorded_process_is_found(layout: daemon.Layout, sleeper: subprocess.Popen[bytes]) -> None:
    assert daemon.running(layout) is None
    record(layout, sleeper.pid)
    found = daemon.running(layout)
    assert found is not None
    assert found.pid == sleeper.pid


def test_stale_records_are_recognised(layout: daemon.Layout, sleeper: subprocess.Popen[bytes]) -> None:
    record(layout, sleeper.pid, boot="of-another-boot")
    assert daemon.running(layout) is None
    record(layout, sleeper.pid, start=1)
    assert daemon.running(layout) is None, "a recycled process id"
    for text in ("", "\n", "x\ny\n", "boot\n12 (sh) S 1\n", "a\nb\nc\n"):
        layout.started.write_text(text)
        assert daemon.running(layout) is None
    record(layout, sleeper.pid)
    sleeper.kill()
    while Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
        pass
    assert daemon.running(layout) is None, "a zombie"
    sleeper.wait()
    assert daemon.running(layout) is None


def test_stop_leaves_a_recycled_process_alone(
    layout: daemon.Layout, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    record(layout, sleeper.pid, start=1)
    layout.run.mkdir(parents=True)
    (layout.run / "docker.sock").touch()
    assert not engine.stop(Paths(tmp_path))
    assert sleeper.poll() is None
    assert not layout.started.exists()
    assert not layout.run.exists()


def test_a_socket_that_nobody_listens_on_is_not_an_engine(
    layout: daemon.Layout, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    record(layout, sleeper.pid)
    layout.run.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(layout.socket))
    assert engine.find(Paths(tmp_path)) is None


def test_sweep_ends_programs_of_this_engine_only(layout: daemon.Layout, sleeper: subprocess.Popen[bytes]) -> None:
    own = layout.root / "usr" / "bin" / "sleep"
    own.parent.mkdir(parents=True)
    own.write_bytes(Path("/bin/sleep").read_bytes())
    own.chmod(0o755)
    left = subprocess.Popen([own, "60"])
    assert daemon.sweep(layout)
    assert left.wait() == -9
    assert sleeper.poll() is None
    assert not daemon.sweep(layout)


def test_names_with_spaces_and_brackets() -> None:
    line = "77 (a b) c) R 5 " + " ".join(str(n) for n in range(5, 55))
    found = daemon._parse_stat(line)
    assert (found.state, found.parent, found.start) == ("R", 5, 22)


def test_no_engine_no_stop(tmp_path: Path) -> None:
    assert not engine.stop(Paths(tmp_path))
    assert not (tmp_path / ".graft").exists()


# Settings


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    near = daemon.Layout(Path("/p/.graft/engine"))
    assert near.socket == Path("/p/.graft/engine/run/docker.sock")
    far = daemon.Layout(Path("/") / ("x" * 90) / ".graft" / "engine")
    assert str(far.run).startswith("/run/graft-")
    longest = "/run/exec/containerd/containerd-debug.sock"
    for length in range(60, 90):
        layout = daemon.Layout(Path("/" + "x" * (length - len("/engine") - 1)) / "engine")
        own = f"{layout.engine}{longest}"
        # Measured: containerd starts with a path of 104 bytes, and refuses one of 105.
        assert (layout.run == layout.engine / "run") is (len(own) <= 104)
        assert len(f"{layout.run}/exec/containerd/containerd-debug.sock") <= 104
    assert far.run != daemon.Layout(Path("/") / ("y" * 90) / ".graft" / "engine").run


def test_the_daemon_touches_no_network_of_the_host(layout: daemon.Layout) -> None:
    settings = daemon.daemon_settings(layout, Config(keep="7GB"))
    assert settings["bridge"] == "none"
    assert [settings[name] for name in ("iptables", "ip6tables", "ip-forward", "ip-masq")] == [False] * 4
    assert settings["builder"] == {"gc": {"enabled": True, "defaultKeepStorage": "7GB"}}
    own = [settings[name] for name in ("data-root", "exec-root", "pidfile")]
    assert all(str(value).startswith((str(layout.engine.resolve()), str(layout.run))) for value in own)


def test_the_reason_of_a_failed_start_is_the_end_of_the_log(
    layout: daemon.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.log.write_text("first\n" * 100 + "overlay2 is not supported\n")
    layout.started.write_text("gone\n")
    with pytest.raises(EngineMissing) as caught:
        daemon._wait_until_up(layout)
    assert (caught.value.tail or "").endswith("overlay2 is not supported")


def test_an_engine_may_be_silent_for_minutes_while_it_saves_an_image(
    tmp_path: Path, system: FakeDaemon, environ: dict[str, str]
) -> None:
    """Measured: the classic store is, for an image of 9 GB; the client of the SDK gives up after one."""
    with contextlib.closing(probe.system_engine(tmp_path / "config", environ).client()) as client:
        assert client.api.timeout == model.ANSWER_SECONDS >= 1800
