"""Names of repositories and images in a registry: `host[:port]/path[:tag][@sha256:...]`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from graft.errors import BadInput

HOST = re.compile(
    r"^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$"
)
PATH = re.compile(r"^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*$")
TAG = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")
#: Docker Hub answers at another name than the one it is called by, in requests and in Docker's configuration.
HUB, HUB_API, HUB_LOGIN = "docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"
CURE = "write it as host[:port]/path, for example ghcr.io/me/vllm"


@dataclass(frozen=True)
class Repository:
    """Where images of one name lie."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def api_host(self) -> str:
        return HUB_API if self.host == HUB else self.host

    @property
    def login(self) -> str:
        """The name that `docker login` keeps its credentials under."""
        return HUB_LOGIN if self.host == HUB else self.host

    @property
    def is_loopback(self) -> bool:
        """On this machine: the only place where plain HTTP is spoken, as Docker does it."""
        name = self.host.rsplit("]", 1)[0].lstrip("[") if self.host.startswith("[") else self.host.partition(":")[0]
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"


@dataclass(frozen=True)
class Reference:
    """One image: by tag, by digest, or by both (then the digest counts)."""

    repository: Repository
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def target(self) -> str:
        """What a manifest is asked for by. Raises BadInput when neither tag nor digest is given."""
        found = self.digest or self.tag
        if found is None:
            raise BadInput(
                "neither a tag nor a digest", where=str(self), cure="write host/path:tag or host/path@sha256:..."
            )
        return found


def parse_repository(text: str, default_path: str, where: str) -> Repository:
    """`host[:port]/path`, or a host alone, whose path is then `default_path`. Raises BadInput."""
    host, slash, path = text.partition("/")
    if not HOST.match(host) or not _is_host(host):
        raise BadInput(f"{text!r} does not start with a registry's host name", where=where, cure=CURE)
    path = path if slash else default_path
    if not PATH.match(path) or len(path) > 200:
        raise BadInput(f"{path!r} is no path of a repository", where=where, cure=f"{CURE}; lower case, no tag")
    return Repository(host, path)


def parse_reference(text: str, where: str, default: Repository | None = None) -> Reference:
    """An image's name. A bare tag, or digest, is one of the `default` repository. Raises BadInput."""
    if default is not None and "/" not in text:
        if DIGEST.match(text):
            return Reference(default, digest=text)
        bare = text.removeprefix(":")
        if TAG.match(bare):
            return Reference(default, tag=bare)
    rest, at, digest = text.partition("@")
    if at and not DIGEST.match(digest):
        raise BadInput(f"{digest!r} is no digest", where=where, cure="sha256: and 64 hexadecimal digits")
    head, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        head, tag = rest, ""
    if "/" not in head:
        raise BadInput(f"{text!r} names no registry", where=where, cure="write host/path:tag or host/path@sha256:...")
    if colon and not tag and head != rest:
        raise BadInput(f"{text!r} ends with a colon and no tag", where=where)
    if tag and not TAG.match(tag):
        raise BadInput(f"{tag!r} is not a legal image tag", where=where)
    made = Reference(parse_repository(head, "", where), tag or None, digest or None)
    if not tag and not digest:
        raise BadInput(f"{text!r} has neither tag nor digest", where=where, cure="add :tag or @sha256:...")
    return made


def _is_host(text: str) -> bool:
    """As Docker tells a host from the first part of a path."""
    return "." in text or ":" in text or text == "localhost"
