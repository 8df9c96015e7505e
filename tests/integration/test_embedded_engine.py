"""The embedded engine and the Debian base, for real: fetched, started, used, killed, stopped. Needs root and Debian."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostprograms import mmdebstrap, ready

from graft import base, engine, net, proc
from graft.apt import Archive, DebPin, pockets_of
from graft.engine import daemon
from graft.errors import BuildFailed
from graft.paths import Paths
from graft.project import load_project

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]

SOURCE = Path(__file__).parents[2]
RUNTIME = ["python3.11", "python3.11-dev", "gcc", "g++", "libc6-dev", "ca-certificates"]
BUILDER = ["git", "ccache", "make", "patchelf"]
EPOCH = 1_790_000_000


ENSURE = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from graft.paths import Paths
from hostprograms import ready
print(ready(Paths(Path(sys.argv[3]))).host)
"""


def ensure_argv(paths: Paths) -> list[str]:
    return [sys.executable, "-c", ENSURE, str(SOURCE / "scripts"), str(Path(__file__).parent), str(paths.root)]


def host_facts() -> dict[str, object]:
    """What an engine must leave as it was."""

    def tree(top: Path) -> dict[str, str]:
        files = (p for p in sorted(top.rglob("*")) if p.is_file())
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    def said(*words: str) -> str:
        if shutil.which(words[0]) is None:
            return "absent"
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    return {
        "packages": said("dpkg-query", "-W"),
        "apt": tree(Path("/etc/apt")),
        "lists": sorted(p.name for p in Path("/var/lib/apt/lists").iterdir()),
        "iptables": said("iptables-save"),
        "links": sorted(p.name for p in Path("/sys/class/net").iterdir()),
        "forward": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "run": sorted(p.name for p in Path("/run").iterdir() if not p.name.startswith("graft-")),
        "docker": [p for p in ("/var/lib/docker", "/var/lib/containerd", "/etc/docker") if Path(p).exists()],
    }


def mounts_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def wait_for(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def before() -> dict[str, object]:
    return host_facts()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory, before: dict[str, object]) -> Iterator[Paths]:
    found = Paths(tmp_path_factory.mktemp("project"))
    shutil.copytree(SOURCE / "images" / "scripts", found.scripts)
    yield found
    engine.stop(found)
    shutil.rmtree(found.root)


@pytest.fixture
def up(paths: Paths) -> engine.Engine:
    return ready(paths)


@dataclass(frozen=True)
class Debs:
    runtime: list[DebPin]
    builder: list[DebPin]
    files: dict[DebPin, Path]


@pytest.fixture(scope="module")
def debs(paths: Paths) -> Debs:
    archive = Archive(paths, pockets_of("bookworm"))
    runtime = archive.resolve(RUNTIME, essential=True)
    builder = archive.resolve(BUILDER, beyond=runtime, set="builder")
    client, files = net.session(), {}
    for pin in (*runtime, *builder):
        files[pin] = paths.store / "debs" / pin.sha256
        net.download(client, archive.urls(pin)[0], files[pin], net.Expected(pin.sha256, pin.size), what=pin.name)
    return Debs(runtime, builder, files)


@pytest.fixture(scope="module")
def rootfs(paths: Paths, debs: Debs) -> Path:
    return base.build_rootfs(
        paths, "debian12", debs.runtime, debs.files, EPOCH, print, lambda: mmdebstrap(paths), suite="bookworm"
    )


def build(
    up: engine.Engine, folder: Path, dockerfile: str, contexts: Mapping[str, Path] | None = None, tag: str = "t"
) -> str:
    """Build in `folder`; everything it printed."""
    (folder / "Dockerfile").write_text(dockerfile)
    named = [word for name, path in (contexts or {}).items() for word in ("--build-context", f"{name}={path}")]
    words = [up.docker, "buildx", "build", "--progress=plain", "--provenance=false", "-t", tag, *named, folder]
    return proc.run(words, env=up.env(), timeout=900).stderr


def tiny_root(folder: Path) -> str:
    """A context with a shell and `sleep`, and the lines of a Dockerfile that unpack it."""
    for program in ("/bin/sh", "/bin/sleep", "/usr/bin/env", "/bin/cat"):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries = [word for word in linked.split() if word.startswith("/")]
        for file in (program, *libraries):
            target = folder / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    return "FROM scratch\nCOPY . /\n"


# The engine


def test_two_at_once_share_one_engine(paths: Paths) -> None:
    both = [subprocess.Popen(ensure_argv(paths), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    hosts = [process.communicate(timeout=600)[0].strip().splitlines()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert hosts[0] == hosts[1]
    daemons = [p for p in daemon._ours(daemon.Layout(paths.engine)) if _program(p.pid) == "dockerd"]
    assert len(daemons) == 1


def test_a_second_time_is_quick(paths: Paths, up: engine.Engine) -> None:
    started = time.monotonic()
    assert ready(paths) == up
    assert time.monotonic() - started < 1.0
    assert up.store == "classic"
    client = up.client()
    try:
        assert client.info()["CgroupDriver"] == "cgroupfs"
    finally:
        client.close()


def test_nothing_of_the_hosts_network_reaches_a_build(
    up: engine.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "https_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "http://user:secret@proxy.invalid:1")
    printed = build(up, tmp_path, tiny_root(tmp_path) + "RUN --network=none env; cat /proc/net/dev\n")
    assert "PATH=" in printed
    assert "secret" not in printed
    assert "eth0" not in printed


def test_containers_run_and_end(up: engine.Engine, tmp_path: Path) -> None:
    build(up, tmp_path, tiny_root(tmp_path))
    words = [up.docker, "run", "--rm", "--init", "--network=none", "t", "/bin/sh", "-c", "echo hello"]
    assert proc.run(words, env=up.env(), timeout=60).stdout == "hello\n"


def test_an_interrupt_of_its_user_does_not_end_it(paths: Paths) -> None:
    engine.stop(paths)
    user = subprocess.Popen(ensure_argv(paths), stdout=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: (paths.engine / "started").is_file())
    os.killpg(user.pid, signal.SIGINT)
    user.wait(30)
    wait_for(lambda: engine.find(paths) is not None)


def test_killed_in_a_build_it_leaves_no_process_and_no_mount(paths: Paths, up: engine.Engine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(tiny_root(tmp_path) + "RUN --network=none sleep 4321\n")
    client = subprocess.Popen(
        [up.docker, "buildx", "build", "--provenance=false", tmp_path],
        env=up.env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: _sleeping("4321"))
    layout = daemon.Layout(paths.engine)
    killed = [p for p in daemon._ours(layout) if _program(p.pid) == "dockerd"]
    os.kill(killed[0].pid, signal.SIGKILL)
    client.wait(30)
    wait_for(lambda: not list(daemon._ours(layout)))
    # Gone by itself, but a busy machine needs a moment to bury it.
    wait_for(lambda: not _sleeping("4321"))
    wait_for(lambda: not mounts_below(paths.engine))
    assert layout.started.is_file(), "the record is stale now"
    again = ready(paths)
    assert again == up
    build(again, tmp_path, "FROM scratch\nCOPY . /\nRUN --network=none sleep 0\n")


def test_other_packages_are_unpacked_anew(paths: Paths, up: engine.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(paths: Paths, programs: object) -> None:
        asked.append("unpack")
        raise BuildFailed("far enough")

    monkeypatch.setattr(engine.packages, "unpack", refuse)
    other = engine.Programs("of other bytes", dict)
    with pytest.raises(BuildFailed, match="far enough"):
        engine.ensure(paths, load_project(paths.build_yaml).engine, "embedded", print, lambda: other)
    assert asked == ["unpack"]
    assert engine.find(paths) is None, "an engine of the old packages must not run on"


def test_stop_ends_its_own_and_leaves_no_trace(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, before: dict[str, object]
) -> None:
    # The second checkout has a path too long for a socket's address.
    other = Paths(tmp_path_factory.mktemp("other") / ("long" * 20))
    other.engine.mkdir(parents=True)
    up = ready(paths)
    shutil.copytree(paths.engine / "root", other.engine / "root", copy_function=os.link, symlinks=True)
    shutil.copy(paths.engine / "versions.json", other.engine)
    second = ready(other)
    try:
        assert second.host != up.host
        build(up, tmp_path, tiny_root(tmp_path))
        run = [up.docker, "run", "-d", "--network=none", "t", "/bin/sleep", "5432"]
        proc.run(run, env=up.env(), timeout=60)
        assert _sleeping("5432")

        assert engine.stop(paths)
        assert not _sleeping("5432")
        assert not list(daemon._ours(daemon.Layout(paths.engine)))
        assert not mounts_below(paths.engine)
        assert not daemon.Layout(paths.engine).run.exists()
        assert engine.find(paths) is None
        assert engine.find(other) == second, "another checkout's engine goes on"
        assert not engine.stop(paths)
    finally:
        engine.stop(other)
        shutil.rmtree(other.root)
    assert not list(daemon.CGROUPS.glob(f"*{daemon.Layout(paths.engine).cgroup}"))
    assert not Path(f"/run/graft-{daemon.Layout(other.engine).id}").exists()
    assert host_facts() == before


# The base


def test_the_same_lock_gives_the_same_bytes(paths: Paths, debs: Debs, rootfs: Path) -> None:
    first = net.file_sha256(rootfs)
    rootfs.rename(rootfs.with_suffix(".first"))
    again = base.build_rootfs(
        paths,
        "debian12",
        debs.runtime[::-1],
        dict(reversed(debs.files.items())),
        EPOCH,
        print,
        lambda: mmdebstrap(paths),
        suite="bookworm",
    )
    assert again == rootfs
    assert net.file_sha256(again) == first
    rootfs.with_suffix(".first").unlink()


def test_the_root_holds_nothing_of_the_host(rootfs: Path) -> None:
    listed = subprocess.run(["tar", "-tvf", rootfs], capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split()[5].removeprefix("./").rstrip("/") for line in listed}
    assert {"dev", "proc", "sys", "bin", "usr/bin/gcc", "usr/include/python3.11/Python.h"} <= names
    assert {"usr/share/doc/gcc-12-base/copyright", "etc/ssl/certs/ca-certificates.crt"} <= names
    unwanted = ("etc/resolv.conf", "etc/hostname", "etc/machine-id", "etc/apt", "dev/null", "var/lib/apt")
    assert not names & set(unwanted)
    assert not [name for name in names if name.startswith(("var/log/", "tmp/", "usr/share/man/"))]
    newest = time.strftime("%Y-%m-%d", time.gmtime(EPOCH))
    assert max(line.split()[3] for line in listed) <= newest
    host = [os.uname().nodename, str(SOURCE), str(rootfs.parent)]
    etc = subprocess.run(["tar", "-xOf", rootfs, "./etc"], capture_output=True, check=True).stdout
    assert not [fact for fact in host if len(fact) > 3 and fact.encode() in etc]


def test_compilers_and_python_work_in_a_build(up: engine.Engine, debs: Debs, rootfs: Path, tmp_path: Path) -> None:
    main, packed = tmp_path / "main", tmp_path / "debs"
    main.mkdir()
    packed.mkdir()
    os.link(rootfs, main / "rootfs.tar")
    for pin in debs.builder:
        os.link(debs.files[pin], packed / pin.basename)
    shutil.copy(SOURCE / "images" / "scripts" / "install-debs.sh", main)
    printed = build(
        up,
        main,
        """\
FROM scratch AS runtime
ADD rootfs.tar /
RUN --network=none set -e; cd /tmp; \\
    printf '%s\\n' '#include <Python.h>' 'int main(){Py_Initialize(); PyRun_SimpleString("print(6*7)");' \\
        'return Py_FinalizeEx();}' >e.c; \\
    gcc e.c -I/usr/include/python3.11 -lpython3.11 -o e; echo "embedded $(./e)"; \\
    printf '#include <iostream>\\nint main(){std::cout << "c++" << __cplusplus;}' >c.cc; \\
    g++ -std=c++20 c.cc -o c; ./c; echo; \\
    python3.11 -c 'import ssl, sqlite3, ctypes, lzma, bz2, hashlib; print(ssl.OPENSSL_VERSION)'; \\
    rm -r /tmp/*; dpkg --audit; test -z "$(dpkg --audit)"
FROM runtime AS builder
RUN --network=none --mount=type=bind,from=debs,target=/run/debs --mount=type=bind,target=/run/main \\
    sh /run/main/install-debs.sh /run/debs
RUN --network=none git --version && ccache --version && make --version && patchelf --version
""",
        {"debs": packed},
    )
    for wanted in ("embedded 42", "c++2020", "OpenSSL 3", "git version", "ccache version", "GNU Make", "patchelf 0"):
        assert wanted in printed, wanted
    host = proc.run(
        [up.docker, "run", "--rm", "--network=none", "t", "cat", "/etc/resolv.conf"], env=up.env(), check=False
    )
    assert "search" not in host.stdout


def test_killed_while_it_is_made_it_leaves_no_mount_and_no_tar(paths: Paths, debs: Debs) -> None:
    script = (
        "import json, signal, sys; sys.path[:0] = [sys.argv[1], sys.argv[3]]\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path\nfrom graft import base\nfrom graft.apt import DebPin\n"
        "from graft.paths import Paths\nfrom hostprograms import mmdebstrap\n"
        "pins = [DebPin.model_validate(p) for p in json.load(sys.stdin)]\n"
        "root = Paths(Path(sys.argv[2]))\nfiles = {p: root.store / 'debs' / p.sha256 for p in pins}\n"
        "base.build_rootfs(root, 'killed', pins, files, 1, print, lambda: mmdebstrap(root), suite='bookworm')\n"
    )
    user = subprocess.Popen(
        [sys.executable, "-c", script, str(SOURCE / "scripts"), str(paths.root), str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert user.stdin is not None
    user.stdin.write(f"[{','.join(pin.model_dump_json() for pin in debs.runtime)}]".encode())
    user.stdin.close()
    log = paths.logs / "rootfs-killed.log"
    wait_for(lambda: log.is_file() and "installing essential" in log.read_text(), 120)
    os.kill(user.pid, signal.SIGINT)
    user.wait(60)
    wait_for(lambda: not _mentioning("mmdebstrap", str(paths.root)))
    assert not mounts_below(paths.root)
    assert not (paths.store / "rootfs" / f"{base.rootfs_key(paths, debs.runtime, 1)}.tar").exists()
    assert not list((paths.store / "rootfs").glob("work-*"))


def test_an_incomplete_set_says_what_is_missing(paths: Paths, debs: Debs) -> None:
    without = [pin for pin in debs.runtime if pin.name != "libc6"]
    with pytest.raises(BuildFailed) as caught:
        base.build_rootfs(
            paths, "short", without, debs.files, EPOCH, print, lambda: mmdebstrap(paths), suite="bookworm"
        )
    assert "libc6" in (caught.value.tail or "")


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _sleeping(argument: str) -> bool:
    return bool(_mentioning("sleep", argument))


def _mentioning(*words: str) -> list[str]:
    """Command lines that hold all the words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if all(word in line for word in words):
                found.append(line)
    return found
