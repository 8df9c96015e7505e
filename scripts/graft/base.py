"""The base image's root file system, made by mmdebstrap from exactly the locked Debian packages.

The packages come from a local repository of the locked files, so apt has nothing to choose and
no network to ask. mmdebstrap and its perl are unpacked below `.graft`, never installed. The
same lock gives the same bytes: the tar is sorted, its times are clamped to the epoch, and the
finishing script removes what depends on the host or on the moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graft import proc
from graft.apt import Archive, DebPin
from graft.errors import BadInput, BuildFailed, EngineMissing
from graft.hashes import file_sha256
from graft.locks import alone
from graft.paths import Paths

Say = Callable[[str], None]

#: Raised when the way a root file system is made changes its bytes.
FORMAT = 1
TOOLS = re.compile(r"mmdebstrap|perl|perl-base|perl-modules-5\.\d+|libperl5\.\d+(t64)?")
SETUP, FINISH = "rootfs-setup.sh", "rootfs-finish.sh"

#: Documentation, translations and the like stay out, and 57 MB of which nothing here makes use; licences stay in.
#: dpkg keeps the rules in the image, so they hold for the packages of the builder too.
DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/bug/*",
    "path-exclude=/usr/share/doc-base/*",
    "path-exclude=/usr/bin/*-lto-dump-*",
    "path-exclude=/usr/lib/python3*/config-*/libpython*.a",
    "force-unsafe-io",
)
#: Mounts and processes end with the first of them, whatever ends it. mount(8) writes into /run: not the host's.
_ALONE = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
    *("sh", "-euc", 'mount --no-mtab -t tmpfs graft /run; exec "$@"', "graft-base"),
)
TIMEOUT_SECONDS = 1800.0


def rootfs_key(paths: Paths, pins: Sequence[DebPin], epoch: int) -> str:
    """Hash of everything that decides the root file system's bytes."""
    facts = {
        "format": FORMAT,
        "packages": sorted((p.name, p.version, p.architecture, p.sha256) for p in pins),
        "dpkg": DPKG_OPTIONS,
        "scripts": {name: file_sha256(paths.scripts / name) for name in (SETUP, FINISH)},
        "epoch": epoch,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def build_rootfs(
    paths: Paths,
    name: str,
    pins: Sequence[DebPin],
    debs: Mapping[DebPin, Path],
    epoch: int,
    say: Say,
    tools: Callable[[], Mapping[DebPin, Path]],
    *,
    suite: str,
) -> Path:
    """rootfs.tar of a base, from the store when it is there.

    name:  the base's name in build.yaml, for messages. suite: the Debian release it is made of.
    pins:  all packages of the root file system; debs: their files, already verified.
    epoch: seconds since 1970 that no file's time exceeds.
    tools: brings the packages of `bootstrap_pins` here; asked for when they have to be unpacked.
    Raises BadInput (a file is missing, an incomplete set), EngineMissing (this host cannot run mmdebstrap),
    BuildFailed, Interrupted; none leaves a half tar or a mount.
    """
    if not pins:
        raise BadInput(f"base {name}: the lock names no packages", cure="make lock")
    absent = [pin.name for pin in pins if pin not in debs or not debs[pin].is_file()]
    if absent:
        raise BadInput(f"base {name}: {len(absent)} packages are not in the store, first {absent[0]}")
    folder = paths.store / "rootfs"
    key = rootfs_key(paths, pins, epoch)
    done = folder / f"{key}.tar"
    if done.is_file():
        return done
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / "lock", "another build of a root file system", say):
        if done.is_file():
            return done
        for stale in folder.glob("work-*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = folder / f"work-{os.getpid()}"
        work.mkdir()
        try:
            programs = _unpacked(paths, suite, tools())
            say(f"base {name}: root file system from {len(pins)} packages of Debian {suite}")
            _repository(work / "debs", pins, debs)
            _bootstrap(paths, programs, work, pins, epoch, name)
            _with_dev(work / "bare.tar", work / "rootfs.tar", epoch)
            (work / "rootfs.tar").replace(done)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return done


def bootstrap_pins(archive: Archive) -> list[DebPin]:
    """mmdebstrap and the perl of the same release, as the archive has them now."""
    return [pin for pin in archive.resolve(["mmdebstrap"], set="builder") if TOOLS.fullmatch(pin.name)]


def _unpacked(paths: Paths, suite: str, debs: Mapping[DebPin, Path]) -> Path:
    """The folder of mmdebstrap and perl, unpacked from exactly these packages. The caller holds a lock."""
    for program in ("apt-get", "dpkg", "dpkg-deb", "tar", "unshare", "chroot"):
        if shutil.which(program, path=_path()) is None:
            raise EngineMissing(
                f"a base of Debian packages is made with {program}, which this host lacks",
                cure="build on a Debian or Ubuntu host",
            )
    if platform.machine() != "x86_64":
        raise EngineMissing("a base of Debian packages is made of amd64 programs", cure="build on an x86_64 host")
    root = paths.state / "bootstrap" / suite
    versions = {pin.name: {"version": pin.version, "sha256": pin.sha256} for pin in sorted(debs, key=lambda p: p.name)}
    record = json.dumps(versions, indent=1) + "\n"
    if (root / "versions.json").is_file() and (root / "versions.json").read_text() == record:
        return root
    fresh = root.with_name(f"{suite}.new")
    for old in (root, fresh):
        shutil.rmtree(old, ignore_errors=True)
    fresh.mkdir(parents=True)
    for pin, deb in debs.items():
        proc.run(["dpkg-deb", "-x", deb, fresh], what=f"unpacking {pin.name}")
    (fresh / "versions.json").write_text(record)
    fresh.rename(root)
    return root


def _repository(folder: Path, pins: Sequence[DebPin], debs: Mapping[DebPin, Path]) -> None:
    """A flat repository (`Packages` and links to the files) that apt can read."""
    folder.mkdir()
    stanzas = []
    for pin in sorted(pins, key=lambda p: p.name):
        (folder / pin.basename).symlink_to(debs[pin].resolve())
        control = proc.run(["dpkg-deb", "-f", debs[pin]], what=f"reading {pin.name}").stdout.strip()
        stanzas.append(f"{control}\nFilename: ./{pin.basename}\nSize: {pin.size}\nSHA256: {pin.sha256}\n")
    (folder / "Packages").write_text("\n".join(stanzas), encoding="utf-8")


def _bootstrap(paths: Paths, tools: Path, work: Path, pins: Sequence[DebPin], epoch: int, name: str) -> None:
    mode = "root" if os.geteuid() == 0 else "unshare"
    words: list[str | Path] = [
        *(_ALONE if mode == "root" else ()),
        tools / "usr/bin/perl",
        tools / "usr/bin/mmdebstrap",
        f"--mode={mode}",
        "--variant=essential",
        "--format=tar",
        "--architectures=amd64",
        f"--include={','.join(sorted(pin.name for pin in pins))}",
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        f"--setup-hook={paths.scripts / SETUP}",
        f"--customize-hook={paths.scripts / FINISH}",
        # Unpacking device nodes needs privileges, and a container runtime makes its own.
        "--skip=output/dev",
        # The finishing script removes all of apt's traces, these two would miss them.
        "--skip=cleanup/apt,cleanup/mmdebstrap",
        "",
        work / "bare.tar",
        f"deb [trusted=yes] copy:{work / 'debs'} ./",
    ]
    log = paths.logs / f"rootfs-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    proc.run(
        words,
        cwd=work,
        env=_environment(tools, work, epoch),
        timeout=TIMEOUT_SECONDS,
        log=log,
        error=BuildFailed,
        what=f"base {name}: mmdebstrap failed",
        cure=f"the whole log is in {paths.relative(log)}; a set that is incomplete is locked anew by: make lock",
    )


def _with_dev(bare: Path, target: Path, epoch: int) -> None:
    """The archive with an empty /dev in front: a runtime that had to make the folder would leave it in a layer."""
    entry = tarfile.TarInfo("./dev")
    entry.type, entry.mode, entry.mtime, entry.uname, entry.gname = tarfile.DIRTYPE, 0o755, epoch, "root", "root"
    with bare.open("rb") as source, target.open("wb") as sink:
        sink.write(entry.tobuf(tarfile.USTAR_FORMAT))
        shutil.copyfileobj(source, sink, 1 << 20)


def _environment(tools: Path, work: Path, epoch: int) -> dict[str, str]:
    lib = tools / "usr/lib/x86_64-linux-gnu"
    perl = [tools / "usr/share/perl5", *(tools / "usr/share/perl").glob("5.*.*"), *(lib / "perl").glob("5.*.*")]
    return {
        "PATH": _path(tools),
        "PERL5LIB": os.pathsep.join(map(str, [*perl, lib / "perl-base"])),
        "SOURCE_DATE_EPOCH": str(epoch),
        "TMPDIR": str(work),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/nonexistent",
        "DEBIAN_FRONTEND": "noninteractive",
    }


def _path(tools: Path | None = None) -> str:
    """mmdebstrap's helper mmtarfilter is a Python program: ours runs it."""
    own = [str(tools / "usr/bin")] if tools is not None else []
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return os.pathsep.join([str(Path(sys.executable).parent), *system, *own])
