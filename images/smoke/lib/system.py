"""The whole root file system in one walk: who owns each file, what a build left behind, and modes that give rights.

A file is owned by a Debian package, by a distribution (its RECORD), by the venv, by Graft, or is one that the scripts
of Debian's packages write. Links to owned files add no bytes and need no owner.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lib import bytecode, debian
from lib.findings import Finding

KINDS: Mapping[str, str] = {
    "unowned": "every file outside of site-packages belongs to a package or is known",
    "leftover": "nothing of the build is left",
    "bytecode": "cached bytecode is that of its source",
    "privileged": "no program but Debian's own changes its user or group or has capabilities",
    "writable": "nobody but its owner can write to a file or folder",
    "trust": "no certificate but Debian's is trusted",
}

#: The engine's, not the image's: mounted, or made for each container.
VIRTUAL = ("proc", "sys", "dev", ".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")

#: What a build leaves: it changes no program, and may name the machine. The first that fits says what it is.
LEFTOVERS: Mapping[str, str] = {
    "var/log/*": "a log",
    "var/cache/apt*": "apt's cache",
    "var/lib/apt*": "apt's lists of packages",
    "var/cache/*/archives*": "downloaded packages",
    "tmp/*": "a temporary file",
    "var/tmp/*": "a temporary file",
    "run/*": "a file of a running system",
    "opt/.uv-cache*": "uv's cache",
    "*/.cache/*": "a cache",
    "*/.local/*": "a user's own files",
    "*/.config/*": "a user's configuration",
    "*/.ccache/*": "ccache's cache",
    "ccache/*": "ccache's cache",
    "*/.nv/*": "the CUDA driver's cache of compiled kernels",
    "*/.triton/*": "Triton's cache of compiled kernels",
    "*/.*_history": "a shell's or a program's history",
    "*/.git/*": "a git repository",
    "src/*": "the source of a build",
    "out/*": "the result of a build",
}

#: Written by the scripts of Debian's packages and by dpkg, or (dpkg's options) by Graft while it makes the base.
BY_SCRIPTS = (
    *("etc/shells", "etc/ld.so.cache", "etc/environment", "etc/profile", "etc/motd", "etc/ca-certificates.conf"),
    *("etc/nsswitch.conf", "etc/inputrc", "etc/fstab", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"),
    *("etc/subuid", "etc/subgid", "etc/dpkg/dpkg.cfg.d/graft", "etc/pam.d/common-*", "etc/security/opasswd"),
    *("etc/ssl/certs/ca-certificates.crt", "root/.bashrc", "root/.profile", "usr/share/info/dir"),
    *("var/cache/debconf/*.dat", "var/lib/shells.state", "var/lib/python/*_installed", "var/lib/pam/*"),
    *("var/lib/systemd/deb-systemd-helper-enabled/*", "var/lib/dpkg/*"),
)
#: As BY_SCRIPTS, empty folders.
FOLDERS = (
    *("mnt", "media", "opt", "srv", "home", "etc/opt", "usr/lib64", "usr/local", "usr/local/*", "run/lock"),
    *("var/mail", "var/opt", "var/local", "var/log", "var/spool/mail", "var/lib/python"),
)
#: What `uv venv` makes, beside links to the interpreter.
VENV = ("pyvenv.cfg", "CACHEDIR.TAG", ".gitignore", ".lock", "bin/activate*", "bin/deactivate.bat", "bin/pydoc.bat")

#: path -> (setuid and setgid bits, package): Debian's own programs that may have them.
PRIVILEGED: Mapping[str, tuple[int, str]] = {
    "usr/bin/su": (stat.S_ISUID, "util-linux"),
    "usr/bin/newgrp": (stat.S_ISUID, "login"),
    "usr/bin/mount": (stat.S_ISUID, "mount"),
    "usr/bin/umount": (stat.S_ISUID, "mount"),
    **{f"usr/bin/{name}": (stat.S_ISUID, "passwd") for name in ("passwd", "chfn", "chsh", "gpasswd")},
    "usr/bin/chage": (stat.S_ISGID, "passwd"),
    "usr/bin/expiry": (stat.S_ISGID, "passwd"),
    "usr/sbin/unix_chkpwd": (stat.S_ISGID, "libpam-modules-bin"),
}
CERTIFICATES = "usr/share/ca-certificates"
BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class System:
    """A root file system and who owns what. Paths are relative to `root`, without a leading slash.

    site, venv: site-packages and the venv around it; recorded: the files that distributions record outside of site;
    graft: files of Graft's own; apart: folders that are no part of the image (the smoke tests, mounts).
    patched: sources that a patch touched: what Python cached of them is compared in full.
    """

    root: Path
    site: str
    venv: str
    recorded: Collection[str]
    debian: debian.Debian
    graft: Collection[str] = ()
    apart: Collection[str] = ()
    patched: Collection[str] = ()
    owned_folders: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in (*self.recorded, *self.graft, self.site):
            self.owned_folders.update(str(parent) for parent in Path(path).parents)

    def named(self, path: str) -> str:
        """A path as findings and waivers name it: relative to site-packages, or absolute."""
        inside = path.removeprefix(f"{self.site}/")
        return f"/{path}" if inside == path else inside

    def is_owned(self, path: str) -> bool:
        """Whether a file that is no link has an owner."""
        if path in self.debian.owners or path in self.recorded or path in self.graft:
            return True
        below = path.removeprefix(f"{self.venv}/")
        return fits(path, BY_SCRIPTS) or (below != path and fits(below, VENV))

    def is_owned_link(self, path: str) -> bool:
        """A link is owned itself, or leads to something that is, inside of the root."""
        if self.is_owned(path):
            return True
        end = debian.end_of(self.root, path)
        return self.is_owned(end) or end in self.owned_folders or is_below(end, self.site) or fits(end, FOLDERS)


def fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def mounts(root: Path) -> set[str]:
    """What is mounted below a root, from /proc/self/mountinfo (proc(5))."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines() if root == Path("/") else []
    return {line.split()[4].encode().decode("unicode_escape").lstrip("/") for line in lines} - {""}


def check(system: System) -> Iterator[Finding]:
    """Everything of KINDS that a walk over the root finds; leftovers of one folder are one finding."""
    leftovers: dict[tuple[str, str], list[int]] = {}
    for path, entry in walk(system):
        status = entry.stat(follow_symlinks=False)
        if not entry.is_symlink():
            yield from modes(system, path, entry, status)
        source = bytecode.source_of(Path(path)) if path.endswith(".pyc") else None
        if source is not None:
            yield from stale(system, path, str(source))
        if is_below(path, system.site) or (source is not None and system.is_owned(str(source))):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from empty_folder(system, path, entry)
        elif not (system.is_owned_link(path) if entry.is_symlink() else system.is_owned(path)):
            what = next((what for pattern, what in LEFTOVERS.items() if fits(path, (pattern,))), None)
            if what is None:
                yield Finding("unowned", f"/{path}", (), "no package brought it")
            else:
                leftovers.setdefault((str(Path(path).parent), what), []).append(status.st_size)
    for (folder, what), sizes in leftovers.items():
        yield Finding("leftover", f"/{folder}", (), f"{what}: {len(sizes)} files, {sum(sizes)} bytes")
    yield from trust(system)


def stale(system: System, path: str, source: str) -> Iterator[Finding]:
    why = bytecode.why_stale(system.root / path, compare=source in system.patched)
    if why is not None:
        yield Finding("bytecode", system.named(path), (), why)


def walk(system: System) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below the root but what is apart, sorted within each folder; links are not followed."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(system.root / folder) as entries:
            for entry in sorted(entries, key=lambda found: found.name):
                path = f"{folder}/{entry.name}".lstrip("/")
                if path in system.apart or path in VIRTUAL:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                yield path, entry


def empty_folder(system: System, path: str, entry: os.DirEntry[str]) -> Iterator[Finding]:
    if path in system.debian.owners or path in system.owned_folders or fits(path, FOLDERS):
        return
    if next(Path(entry.path).iterdir(), None) is None:
        yield Finding("unowned", f"/{path}", (), "an empty folder that no package brought")


def modes(system: System, path: str, entry: os.DirEntry[str], status: os.stat_result) -> Iterator[Finding]:
    mode = status.st_mode
    is_folder = stat.S_ISDIR(mode)
    if mode & stat.S_IWOTH and not (is_folder and mode & stat.S_ISVTX):
        yield Finding("writable", system.named(path), (), f"mode {stat.S_IMODE(mode):04o}: everybody can write to it")
    if is_folder:
        # On a folder, setgid passes the group on to new files and gives no rights.
        return
    bits = mode & (stat.S_ISUID | stat.S_ISGID)
    if bits and (bits, system.debian.owners.get(path)) != PRIVILEGED.get(path):
        yield Finding(
            "privileged", system.named(path), (), f"mode {stat.S_IMODE(mode):04o}, and it is none of Debian's"
        )
    if mode & 0o111 and "security.capability" in os.listxattr(entry.path, follow_symlinks=False):
        yield Finding("privileged", system.named(path), (), "it has capabilities of its own")


def privileged(system: System) -> list[str]:
    """Debian's programs that run as another user or group."""
    found = (path for path in PRIVILEGED if path in system.debian.owners and (system.root / path).exists())
    return sorted(p for p in found if (system.root / p).stat().st_mode & (stat.S_ISUID | stat.S_ISGID))


def trust(system: System) -> Iterator[Finding]:
    """The bundle that OpenSSL reads holds Debian's certificates alone; single ones are links, judged as such."""
    bundle = system.root / BUNDLE
    if not bundle.is_file():
        return
    known: set[str] = set()
    for file in sorted((system.root / CERTIFICATES).rglob("*.crt")):
        if str(file.relative_to(system.root)) in system.debian.owners:
            known |= certificates(file)
    others = len(certificates(bundle) - known)
    if others:
        yield Finding(
            "trust", f"/{BUNDLE}", (), f"{others} certificates that the package ca-certificates does not bring"
        )


def certificates(file: Path) -> set[str]:
    """The bodies of a PEM file, without white space."""
    return {"".join(body.split()) for body in _PEM.findall(file.read_text("ascii", errors="replace"))}
