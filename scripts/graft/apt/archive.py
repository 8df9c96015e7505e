"""Debian packages by exact version, through an apt configuration that shares nothing with the host's.

State, cache, sources and preferences lie in one folder under `.graft/apt`; the status file is
empty, so a resolution never depends on what this host has installed. From the host come only
the transport settings (proxies, CAs, credentials in auth.conf) and the mirror's address.
Signatures are verified by apt itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from filelock import FileLock

from graft import proc
from graft.apt.sources import ARCHITECTURE, HOST_ETC, Mirrors, host_mirrors, is_security
from graft.errors import BadInput, FetchFailed, GraftError
from graft.paths import Paths
from graft.yamlio import Model

FRESH_SECONDS = 6 * 3600
UPDATE_SECONDS = 900.0
RESOLVE_SECONDS = 120.0
RELOCK = "make lock NEW_BASE=1"
#: When a locked file is gone, lists older than this may still name it.
SUSPECT_SECONDS = 300

DebSet = Literal["runtime", "builder"]


class DebPin(Model):
    """One locked Debian package.

    file: path below the archive's root (`pool/main/...`), as the signed index names it. size in bytes.
    set:  `runtime` is in every image, `builder` only in the stages that compile.
    """

    name: str
    version: str
    architecture: str
    file: str
    size: int
    sha256: str
    set: DebSet = "runtime"

    @property
    def basename(self) -> str:
        """The file's name as apt would store it: unique, because it holds the epoch."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


class Archive:
    """Debian's archive in some pockets (`bookworm`, `bookworm-security`, ...), seen through a private apt.

    snapshot: address of a snapshot archive that is asked when the mirrors no longer have a file; may hold
    `{archive}`, which becomes `debian` or `debian-security`.
    """

    def __init__(
        self, paths: Paths, pockets: Sequence[str], *, mirrors: Mirrors | None = None, snapshot: str | None = None
    ) -> None:
        for pocket in pockets:
            if not re.fullmatch(r"[a-z][a-z0-9-]*(/updates)?", pocket):
                raise BadInput(f"not the name of a Debian suite: {pocket!r}")
        self.pockets = tuple(pockets)
        self.mirrors = mirrors if mirrors is not None else host_mirrors()
        self.snapshot = snapshot
        self._require_mirrors()
        key = hashlib.sha256(repr(self.pockets).encode()).hexdigest()[:8]
        self.folder = paths.state / "apt" / f"{self.pockets[0].replace('/', '-')}-{key}"

    def _require_mirrors(self) -> None:
        """Raises FetchFailed when apt's sources on this host name no archive for one of the pockets."""
        for pocket in self.pockets:
            kind = "security archive" if is_security(pocket) else "archive"
            if not (self.mirrors.security if is_security(pocket) else self.mirrors.main):
                raise FetchFailed(
                    f"apt's sources on this host name no Debian {kind}, and {pocket} is needed",
                    where=str(HOST_ETC),
                    cure="add one to apt's sources; any suite will do",
                )

    def update(self, max_age: float = FRESH_SECONDS) -> bool:
        """Refresh the package lists when they are older than `max_age` seconds; True when it did.

        Raises FetchFailed, with the mirror's address taken out of apt's words.
        """
        with FileLock(self._prepared() / "lock"):
            if self._is_fresh(max_age):
                return False
            done = None
            for main in self.mirrors.main:
                self._write_configuration(main)
                done = self._apt("apt-get", "-q", "update", "--error-on=any", timeout=UPDATE_SECONDS)
                if done.rc == 0:
                    self._stamp.write_text(self._identity())
                    return True
            assert done is not None
            raise FetchFailed(
                f"apt could not read Debian's package lists for {', '.join(self.pockets)}",
                cure="check that `apt-get update` works on this host, then run the same command again",
                tail=self._without_addresses(done.stdout + done.stderr),
            )

    def resolve(
        self,
        packages: Sequence[str],
        *,
        essential: bool = False,
        set: DebSet = "runtime",
        beyond: Sequence[DebPin] = (),
    ) -> list[DebPin]:
        """`packages` (names, or name=version) and all they depend on, as pins sorted by name.

        essential: also Debian's Essential packages, as a root file system needs.
        beyond:    pins that are there already; the answer is what comes on top, and they stay as they are.
        Raises FetchFailed (no lists), BadInput (no such package, or one that cannot be installed).
        """
        self.update()
        have = {pin.name: pin for pin in beyond}
        words = [*packages, *(f"{p.name}={p.version}" for p in beyond), *(self._essential() if essential else [])]
        done = self._apt("apt-get", "-qq", "--print-uris", "--no-install-recommends", "install", "--", *words)
        if done.rc != 0:
            raise BadInput(
                f"Debian {self.pockets[0]} cannot give: {' '.join(packages)}",
                cure="check the package names and versions in build.yaml",
                tail=self._without_addresses(done.stdout + done.stderr),
            )
        chosen = sorted(_printed(done.stdout))
        changed = [have[n] for n, v, _ in chosen if n in have and have[n].version != v]
        if changed:
            raise BadInput(f"{' '.join(packages)} needs another version of {changed[0].name} than {changed[0].version}")
        return self._pins([c for c in chosen if c[0] not in have], set)

    def urls(self, pin: DebPin) -> list[str]:
        """Where the file may be fetched from, best first; a snapshot archive last, where one is named."""
        security = pin.file.startswith("pool/updates/")
        main, other = self.mirrors.main, self.mirrors.security
        roots = [*other, *main] if security else [*main, *other]
        if self.snapshot:
            names = ("debian-security", "debian") if security else ("debian", "debian-security")
            roots += [self.snapshot.replace("{archive}", name) for name in names]
        path = quote(pin.file, safe="/+~:")
        return list(dict.fromkeys(f"{root.rstrip('/')}/{path}" for root in roots))

    def available_versions(self, name: str) -> list[str]:
        """The versions that the archive offers now, best first; empty when it has no such package."""
        self.update()
        done = self._apt("apt-cache", "show", "--", name)
        return list(dict.fromkeys(record["Version"] for record in _records(done.stdout) if "Version" in record))

    def explain_missing(self, pin: DebPin, cure: str = f"lock the base anew: {RELOCK}") -> GraftError:
        """Why a locked package cannot be had: what the archive has now, and the command that locks anew (`cure`)."""
        try:
            self.update(SUSPECT_SECONDS)
            now = self.available_versions(pin.name)
            has = f"it has {', '.join(now)}" if now else "it has no version of it"
        except FetchFailed:
            has = "what it has could not be asked"
        snapshot = "" if self.snapshot else ", or name a snapshot archive in build.yaml (bases: bootstrap: snapshot)"
        return FetchFailed(
            f"Debian's mirror no longer serves {pin.name} {pin.version}, which is locked; {has}",
            where=pin.file,
            cure=f"{cure}{snapshot}",
        )

    def newest(self, packages: Sequence[str]) -> list[DebPin]:
        """The packages (not what they depend on) as the archive has them now, sorted by name.

        Raises FetchFailed (no lists), BadInput (no such package).
        """
        self.update()
        return self._pins([(name, "", ARCHITECTURE) for name in packages], "builder")

    def _essential(self) -> list[str]:
        """The pattern of Essential packages. A root that is born merged has no use for the tool that merges one."""
        merged = "usr-is-merged"
        return ["?essential", *([merged] if self.available_versions(merged) else [])]

    @property
    def _stamp(self) -> Path:
        return self.folder / "updated"

    def _is_fresh(self, max_age: float) -> bool:
        try:
            age = time.time() - self._stamp.stat().st_mtime
            return 0 <= age < max_age and self._stamp.read_text() == self._identity()
        except FileNotFoundError:
            return False

    def _identity(self) -> str:
        """Hash of what the lists came from: other mirrors or another keyring mean other lists."""
        return hashlib.sha256(repr((self.pockets, self.mirrors)).encode()).hexdigest()

    def _prepared(self) -> Path:
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise FetchFailed(
                "this host has no apt, which finds and verifies Debian's packages",
                cure="lock on a Debian or Ubuntu host; a lock that is complete builds anywhere",
            )
        for name in ("lists/partial", "cache/archives/partial", "etc/empty"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        return self.folder

    def _write_configuration(self, main: str) -> None:
        """Two files, because of the order in which apt reads: APT_CONFIG, apt.conf.d, Dir::Etc::main (apt.conf(5)).

        The host's apt.conf.d comes in between for its Acquire settings; what else it says, hooks
        above all (`docker-clean` empties the host's cache after each update), is cleared again.
        """
        here, etc = self.folder, self.folder / "etc"
        keyring = self.mirrors.keyring
        if not keyring.is_file():
            raise FetchFailed(
                f"no keyring of Debian's archive at {keyring}",
                cure="install the package debian-archive-keyring",
            )
        lines = [
            f"deb [arch={ARCHITECTURE} signed-by={keyring}] "
            f"{self.mirrors.security[0] if is_security(pocket) else main} {pocket} main\n"
            for pocket in self.pockets
        ]
        _write_private(etc / "sources.list", "".join(lines))
        host_main = HOST_ETC / "apt.conf"
        own = [
            *([f'#include "{host_main}";'] if host_main.is_file() else []),
            *(f"#clear {tree};" for tree in ("APT", "DPkg", "Apt", "Unattended-Upgrade", "Dir::Cache")),
            f'Dir::Cache "{here}/cache";',
            'Dir::Cache::archives "archives/";',
            'Dir::Cache::pkgcache "pkgcache.bin";',
            'Dir::Cache::srcpkgcache "srcpkgcache.bin";',
            # apt calls itself essential; an image that installs nothing later does without it.
            'pkgCacheGen::ForceEssential ",";',
            f'APT::Architecture "{ARCHITECTURE}";',
            f'APT::Architectures {{ "{ARCHITECTURE}"; }};',
            'APT::Install-Recommends "false";',
            'APT::Install-Suggests "false";',
            # The sandbox user cannot enter a project below somebody's home.
            'APT::Sandbox::User "root";',
            'Acquire::Languages "none";',
            'Acquire::GzipIndexes "false";',
            'Acquire::ForceHash "SHA256";',
            'Acquire::Retries "5";',
            "#clear Acquire::IndexTargets::deb::DEP-11;",
            "#clear Acquire::IndexTargets::deb::DEP-11-icons;",
            "",
        ]
        _write_private(etc / "last.conf", "\n".join(own))
        first = [
            f'Dir::State "{here}";',
            f'Dir::State::lists "{here}/lists";',
            f'Dir::State::status "{here}/status";',
            f'Dir::Cache "{here}/cache";',
            f'Dir::Etc "{etc}";',
            'Dir::Etc::sourcelist "sources.list";',
            f'Dir::Etc::sourceparts "{etc}/empty";',
            f'Dir::Etc::preferences "{etc}/none";',
            f'Dir::Etc::preferencesparts "{etc}/empty";',
            f'Dir::Etc::trusted "{etc}/none";',
            f'Dir::Etc::trustedparts "{etc}/empty";',
            f'Dir::Etc::netrc "{HOST_ETC}/auth.conf";',
            f'Dir::Etc::netrcparts "{HOST_ETC}/auth.conf.d";',
            f'Dir::Etc::parts "{HOST_ETC}/apt.conf.d";',
            f'Dir::Etc::main "{etc}/last.conf";',
            "",
        ]
        _write_private(etc / "first.conf", "\n".join(first))

    def _apt(self, *words: str, cwd: Path | None = None, timeout: float = RESOLVE_SECONDS) -> proc.Completed:
        env = {**os.environ, "APT_CONFIG": str(self.folder / "etc" / "first.conf"), "LC_ALL": "C"}
        return proc.run(words, env=env, cwd=cwd, timeout=timeout, error=FetchFailed, check=False)

    def _pins(self, wanted: Sequence[tuple[str, str, str]], set: DebSet) -> list[DebPin]:
        """Index records of (name, version, architecture); an empty version means the best there is."""
        if not wanted:
            return []
        words = [f"{name}={version}" if version else name for name, version, _ in wanted]
        done = self._apt("apt-cache", "show", "--no-all-versions", "--", *words)
        found = {record["Package"]: record for record in _records(done.stdout)}
        absent = [name for name, _, _ in wanted if name not in found]
        if absent:
            raise BadInput(f"Debian {self.pockets[0]} has no package {absent[0]}", cure="check the name in build.yaml")
        return sorted((_pin(found[name], set) for name, _, _ in wanted), key=lambda pin: pin.name)

    def _without_addresses(self, text: str) -> str:
        """apt's words without mirror, proxy or credentials: logs are shared."""
        addresses = [*self.mirrors.main, *self.mirrors.security, *_proxies()]
        hosts = {urlsplit(address).hostname for address in addresses}
        text = re.sub(r"\b[a-z0-9+]+://\S*?(?=/(?:dists|pool)/|[\s'\"]|$)", "<mirror>", text)
        for address in addresses:
            text = text.replace(address, "<mirror>")
        for host in sorted(filter(None, hosts), key=len, reverse=True):
            text = text.replace(host, "<host>")
        return "\n".join(text.splitlines()[-proc.TAIL_LINES :])


def _proxies() -> Iterator[str]:
    for name, value in os.environ.items():
        if name.lower().endswith("_proxy") and "://" in value:
            yield value


def _write_private(path: Path, text: str) -> None:
    """A file for its owner only, because a mirror's address may hold a password."""
    path.touch(mode=0o600)
    path.write_text(text)


def _printed(text: str) -> Iterator[tuple[str, str, str]]:
    """(name, version, architecture) from `apt-get --print-uris`: 'address' name_version_arch.deb size hash."""
    for line in text.splitlines():
        match = re.match(r"'[^']*' (\S+)_(\S+)_(\S+)\.deb \d+", line)
        if match:
            yield match[1], unquote(match[2]), match[3]


def _records(text: str) -> Iterator[dict[str, str]]:
    """The one-line fields of index records; folded ones (descriptions) are left out."""
    for paragraph in text.split("\n\n"):
        fields = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith((" ", "\t")))
        record = {name: value.strip() for name, _, value in fields}
        if "Package" in record:
            yield record


def _pin(record: dict[str, str], set: DebSet) -> DebPin:
    missing = [name for name in ("Version", "Filename", "Size", "SHA256") if name not in record]
    if missing:
        raise FetchFailed(f"the package lists have no {missing[0]} for {record['Package']}")
    return DebPin(
        name=record["Package"],
        version=record["Version"],
        architecture=record["Architecture"],
        file=record["Filename"],
        size=int(record["Size"]),
        sha256=record["SHA256"],
        set=set,
    )
