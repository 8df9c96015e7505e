"""Debian's docker-registry and cosign for the tests: fetched as the engine's packages are, never installed.

Also an image as `docker save` gives it, made of nothing, so that no engine is needed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from filelock import FileLock

from graft import net, proc
from graft.apt import Archive, pockets_of
from graft.paths import Paths
from graft.registry.manifest import canonical, digest_of_bytes

SOURCE = Path(__file__).parents[2]
USER, PASSWORD = "graft", "a-test-password"
#: bcrypt of the password above, which is all that docker-registry reads.
HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuukvYklUfnuUBF63ESy2SqVoti7eMfK2C\n"


def program(name: str) -> Path:
    """A program of Debian's package of the same name, below .graft; fetched when it is not there yet."""
    home = SOURCE / ".graft" / "test-programs" / name
    found = home / "root" / "usr" / "bin" / name
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):
        if not found.is_file():
            # Fetched below an own folder: the project's state is not the tests'.
            archive = Archive(Paths(home), pockets_of("trixie"))
            (pin,) = (found for found in archive.newest([name]) if found.name == name)
            deb = home / "debs" / pin.basename
            net.download(net.session(), archive.urls(pin)[0], deb, net.Expected(pin.sha256, pin.size), what=pin.name)
            fresh = home / "root.new"
            shutil.rmtree(fresh, ignore_errors=True)
            proc.run(["dpkg-deb", "-x", deb, fresh])
            fresh.rename(home / "root")
            shutil.rmtree(home / "debs")
    return found


@dataclass
class Distribution:
    """A running registry. root: its storage."""

    host: str
    root: Path
    process: subprocess.Popen[bytes]
    log: Path

    def repository_files(self, path: str) -> Path:
        return self.root / "docker" / "registry" / "v2" / "repositories" / path

    def tags(self, path: str) -> dict[str, str]:
        """Every tag and the digest that it points to, from the registry's own files."""
        folder = self.repository_files(path) / "_manifests" / "tags"
        links = sorted(folder.glob("*/current/link")) if folder.is_dir() else []
        return {link.parents[1].name: link.read_text() for link in links}

    def blob_file(self, digest: str) -> Path:
        hex_digest = digest.removeprefix("sha256:")
        return self.root / "docker" / "registry" / "v2" / "blobs" / "sha256" / hex_digest[:2] / hex_digest / "data"


@contextlib.contextmanager
def distribution(
    folder: Path,
    *,
    tls: tuple[Path, Path] | None = None,
    password: bool = False,
    read_only: bool = False,
    storage: Path | None = None,
) -> Iterator[Distribution]:
    """A registry on the loopback address, ended with all it started. tls: certificate and key."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    root = storage or folder / "data"
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {
            "filesystem": {"rootdirectory": str(root)},
            "maintenance": {"readonly": {"enabled": read_only}},
            "delete": {"enabled": False},
        },
        "http": {"addr": f"127.0.0.1:{port}", "secret": "of the tests"},
    }
    if tls:
        config["http"] = {**config["http"], "tls": {"certificate": str(tls[0]), "key": str(tls[1])}}  # type: ignore[dict-item]
    if password:
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    file, log = folder / "config.yml", folder / "log"
    file.write_text(yaml.safe_dump(config))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [program("docker-registry"), "serve", file], stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        wait_for_port(port, process, log)
        yield Distribution(f"127.0.0.1:{port}", root, process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text())


@dataclass(frozen=True)
class FakeImage:
    """An image of a few files, as the engine would stream it. layers: each is file name -> content."""

    layers: Sequence[Mapping[str, bytes]]
    labels: Mapping[str, str] = field(default_factory=dict)
    os: str = "linux"
    architecture: str = "amd64"
    cut: int | None = None
    named_by_config: bool = True

    @property
    def tars(self) -> list[bytes]:
        return [tar_of(layer) for layer in self.layers]

    @property
    def diff_ids(self) -> list[str]:
        return [digest_of_bytes(tar) for tar in self.tars]

    @property
    def config(self) -> bytes:
        return canonical(
            {
                "architecture": self.architecture,
                "os": self.os,
                "config": {"Labels": dict(self.labels)},
                "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
            }
        )

    @property
    def id(self) -> str:
        return digest_of_bytes(self.config)

    def saved(self) -> bytes:
        blobs = {digest_of_bytes(data): data for data in (*self.tars, self.config)}
        names = {digest: f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in blobs}
        listing = [{"Config": names[self.id], "RepoTags": None, "Layers": [names[d] for d in self.diff_ids]}]
        files = {names[digest]: blobs[digest] for digest in sorted(blobs)}
        return tar_of({**files, "manifest.json": json.dumps(listing).encode()})

    def stream(self) -> Iterator[bytes]:
        whole = self.saved()
        whole = whole if self.cut is None else whole[: self.cut]
        for start in range(0, len(whole), 50_000):
            yield whole[start : start + 50_000]


def tar_of(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A folder on a disk of its own, which is full soon."""
    folder = Path(tempfile.mkdtemp(prefix="graft-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "graft-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
