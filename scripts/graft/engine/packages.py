"""The embedded engine's programs: Debian's packages, unpacked below `.graft/engine/root`, never installed."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from pathlib import Path

from graft import proc
from graft.engine.model import Programs
from graft.errors import EngineMissing
from graft.paths import Paths

OS_RELEASE = Path("/etc/os-release")
INSTALL_DOCKER = {
    "debian": "sudo apt-get install docker.io docker-cli docker-buildx (Debian 13 and newer)",
    "ubuntu": "sudo apt-get install docker.io docker-buildx",
    "fedora": "sudo dnf install moby-engine docker-buildx && sudo systemctl start docker",
    "arch": "sudo pacman -S docker docker-buildx && sudo systemctl start docker",
    "alpine": "sudo apk add docker docker-cli-buildx && sudo service docker start",
}
INSTALL_ANYWHERE = "install Docker: https://docs.docker.com/engine/install/"
PROGRAMS = ("usr/sbin/dockerd", "usr/bin/containerd", "usr/sbin/runc", "usr/bin/docker", "usr/bin/tini-static")


def require_host(uid: int | None = None, os_release: Path = OS_RELEASE, machine: str | None = None) -> None:
    """Can this host run the embedded engine? Raises EngineMissing with the commands that install Docker here."""
    ids = _distribution(os_release)
    cure = next((INSTALL_DOCKER[i] for i in ids if i in INSTALL_DOCKER), INSTALL_ANYWHERE)
    if not {"debian", "ubuntu"} & set(ids):
        raise EngineMissing("the embedded engine needs a host of the Debian family", cure=cure)
    if (machine or platform.machine()) != "x86_64":
        raise EngineMissing("the embedded engine is made of amd64 packages", cure=cure)
    if (os.geteuid() if uid is None else uid) != 0:
        raise EngineMissing("the embedded engine needs root", cure=f"{cure} && sudo usermod -aG docker $USER")
    for program in ("apt-get", "dpkg-deb", "unshare", "setsid"):
        if shutil.which(program) is None:
            raise EngineMissing(f"the embedded engine needs {program}, which this host lacks", cure=cure)


def is_unpacked(engine: Path, identity: str) -> bool:
    """Is `root` there, and made of these packages?"""
    try:
        recorded = json.loads((engine / "versions.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(recorded.get("key") == identity) and all((engine / "root" / p).exists() for p in PROGRAMS)


def unpack(paths: Paths, programs: Programs) -> None:
    """Unpack the packages; `versions.json` records what they are.

    The caller holds the engine's lock, and no engine of an older unpack runs.
    Raises FetchFailed, EngineMissing (the programs do not run here).
    """
    engine = paths.engine
    fresh = engine / "root.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    files = programs.files()
    for pin, deb in files.items():
        proc.run(["dpkg-deb", "-x", deb, fresh], error=EngineMissing, what=f"unpacking {pin.name} {pin.version}")
    _check_programs(fresh)
    # In this order, so that a kill in between leaves a root that is unpacked again.
    (engine / "versions.json").unlink(missing_ok=True)
    shutil.rmtree(engine / "root", ignore_errors=True)
    fresh.rename(engine / "root")
    recorded = {pin.name: {"version": pin.version, "sha256": pin.sha256} for pin in files}
    document = {"key": programs.identity, "packages": dict(sorted(recorded.items()))}
    draft = engine / "versions.json.new"
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(engine / "versions.json")


def _check_programs(root: Path) -> None:
    """Each program must load here: a package of a newer suite may need a newer libc than the host's."""
    for program in PROGRAMS:
        if not (root / program).exists():
            raise EngineMissing(
                f"the engine packages hold no {Path(program).name}", cure="check engine: packages: in build.yaml"
            )
        proc.run(
            [root / program, "--version"],
            timeout=60,
            error=EngineMissing,
            what=f"{Path(program).name} of the engine packages does not run on this host",
            cure="name another Debian suite for it in build.yaml (engine: packages:), or install Docker",
        )


def _distribution(os_release: Path) -> list[str]:
    """ID and ID_LIKE of os-release(5), the most exact first."""
    fields = {}
    with contextlib.suppress(OSError):
        for line in os_release.read_text().splitlines():
            name, _, value = line.partition("=")
            fields[name] = value.strip().strip("\"'")
    return [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
