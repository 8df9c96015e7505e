"""What of this host must not be in an image: proxies, secrets, index, mirror and registry names, CAs, folders.

Gathered when a gate runs, compared in memory, never printed, written or sent into a container: what is said of a value
that was found is where it comes from.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from graft.errors import GraftError
from graft.secret_shapes import shapes_in

PROXY = re.compile(r"(?:https?|ftp|all)_proxy", re.IGNORECASE)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
ADDRESS = re.compile(r"INDEX|FIND_LINKS|MIRROR|REGISTRY|TRUSTED_HOST", re.IGNORECASE)
#: uv writes an index as name=address.
NAMED = re.compile(r"^[A-Za-z0-9_.-]+=(?=[a-z]+://)")
CERTIFICATES = Path("/usr/local/share/ca-certificates")
#: A word that is shorter, or made of letters alone, is somewhere in every image.
SHORTEST = 6
SECRET_SHORTEST = 12
#: Folders that every image has too.
COMMON_FOLDERS = frozenset({"/", "/root", "/home", "/tmp", "/opt", "/srv", "/usr", "/var", "/usr/local", "/usr/src"})


@dataclass(frozen=True)
class HostValue:
    """One value that must not be found. name: where it comes from, for people; text: never shown."""

    name: str
    text: str = field(repr=False)


class Finder:
    """Looks for host values and for what looks like a secret."""

    def __init__(self, values: Iterable[HostValue]) -> None:
        self._names: dict[str, str] = {}
        for value in values:
            self._names.setdefault(value.text.lower(), value.name)
        # The longest first: of two that begin alike, the one that is there is said.
        words = "|".join(re.escape(text) for text in sorted(self._names, key=len, reverse=True))
        self._values = re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])") if words else None

    @property
    def names(self) -> list[str]:
        return sorted(set(self._names.values()))

    def find(self, text: str) -> list[str]:
        """What is in a text, by name, never by value; sorted, each once."""
        found = set(shapes_in(text))
        if self._values is not None:
            found |= {self._names[match[0]] for match in self._values.finditer(text.lower())}
        return sorted(found)


def host_values(
    root: Path,
    named: Mapping[str, str | None],
    *,
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    etc: Path = Path("/etc/apt"),
    certificates: Path = CERTIFICATES,
    host: str | None = None,
) -> list[HostValue]:
    """The values of this host. root: of the project; named: addresses in build.yaml, by key (`index` among them)."""
    env = os.environ if env is None else env
    home = Path.home() if home is None else home
    found = [
        *_of_env(env),
        *_of_addresses(named, env, home, etc),
        *_of_registries(env, home),
        *_of_folders({"the folder of the project": root, "the home folder": home}),
        *_of_certificates(certificates),
        HostValue("the name of this host", socket.gethostname() if host is None else host),
    ]
    return [value for value in found if _can_be_told(value.text)]


def _can_be_told(text: str) -> bool:
    return len(text) >= SHORTEST and not text.isalpha()


def _of_env(env: Mapping[str, str]) -> Iterator[HostValue]:
    for name, value in sorted(env.items()):
        if PROXY.fullmatch(name) or ADDRESS.search(name):
            for address in value.split():
                yield from _of_url(f"the value of {name}", NAMED.sub("", address))
        elif SECRET.search(name) and len(value) >= SECRET_SHORTEST and "/" not in value[:1]:
            yield HostValue(f"the value of {name}", value)


def _of_url(name: str, address: str) -> Iterator[HostValue]:
    """Host, and user with password, of a URL; the host alone says whose it is."""
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        yield HostValue(name, address)
        return
    if parts.password:
        yield HostValue(f"{name} (its password)", parts.password)
    # An address of the machine itself, or a name without a domain, says something with its port only.
    is_plain = host in ("127.0.0.1", "::1", "0.0.0.0") or "." not in host
    if host and not is_plain:
        yield HostValue(name, host)
    elif host and port:
        yield HostValue(name, f"{host}:{port}")


def _of_addresses(
    named: Mapping[str, str | None], env: Mapping[str, str], home: Path, etc: Path
) -> Iterator[HostValue]:
    # Here: both open HTTP's door, and verbs that only look import this package.
    from graft.apt import host_sources
    from graft.index import discover, pip_builtin

    for key, address in named.items():
        if address:
            yield from _of_url(f"build.yaml's {key}", address)
    try:
        addresses = discover(None, env, home).urls
    except GraftError:
        # A configuration that cannot be read has not been used for this image either.
        addresses = ()
    for address in addresses:
        # The one that pip asks when nobody says another is everybody's.
        if address != pip_builtin():
            yield from _of_url("a package index of this host", address)
    for source in host_sources(etc):
        yield from _of_url("an archive of this host's apt", source.uri)


def _of_registries(env: Mapping[str, str], home: Path) -> Iterator[HostValue]:
    """Registries that the user has logged in to: their names are in Docker's configuration."""
    file = Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8")).get("auths", {})
    except (OSError, ValueError, AttributeError):
        return
    for address in known:
        # Docker's own registry is everybody's.
        if "docker.io" not in address:
            yield from _of_url("a registry of Docker's configuration", address)


def _of_folders(folders: Mapping[str, Path]) -> Iterator[HostValue]:
    for name, folder in folders.items():
        if str(folder) not in COMMON_FOLDERS:
            yield HostValue(name, str(folder))


def _of_certificates(folder: Path) -> Iterator[HostValue]:
    """A line of each certificate that somebody added to this host: the last full one, inside of the signature."""
    for file in sorted(folder.rglob("*.crt")) if folder.is_dir() else ():
        lines = [line.strip() for line in file.read_text("ascii", errors="replace").splitlines()]
        full = [line for line in lines if len(line) == 64 and "-" not in line]
        if full:
            yield HostValue("a certificate that was added to this host", full[-1])
