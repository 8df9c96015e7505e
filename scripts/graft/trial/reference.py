"""Names of images as people write them, and the image that one means on an engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft.console import Console
from graft.errors import BadInput, RegistryFailed

if TYPE_CHECKING:
    from docker import DockerClient

# The grammar of distribution's reference package, with limits of our own.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]+)?"
REFERENCE = re.compile(
    # Docker's rule: the first part is a host when it has a dot or a port, or is localhost.
    rf"(?P<repository>(?:(?=[^/]*[.:][^/]*/|localhost/){_HOST}/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
ID = re.compile(r"(?:sha256:)?(?P<hex>[0-9a-f]{12,64})")
MAX_TAG = 128
IDS = "its id, as `docker images --no-trunc` says it, or its name"


@dataclass(frozen=True)
class Reference:
    """`repository[:tag][@digest]`."""

    repository: str
    tag: str | None
    digest: str | None

    @property
    def names_registry(self) -> bool:
        """Whether its first part is a host, as Docker decides it."""
        host, slash, _ = self.repository.partition("/")
        return bool(slash) and ("." in host or ":" in host or host == "localhost")

    @property
    def tagged(self) -> str:
        return f"{self.repository}:{self.tag or 'latest'}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


@dataclass(frozen=True)
class Base:
    """An image that is there. reference: None when it was named by its id; digest: of its manifest, when known."""

    id: str
    reference: Reference | None
    digest: str | None
    attrs: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """What a label says of it: the manifest's digest in its repository, else the id."""
        return self.digest or self.id


def parse_reference(text: str, where: str) -> Reference:
    """Raises BadInput."""
    match = REFERENCE.fullmatch(text)
    if match is None or len(text) > 400:
        raise BadInput(f"{text!r} is not a reference of an image", where=where, cure="write [host/]name[:tag][@digest]")
    return Reference(match["repository"], match["tag"], match["digest"])


def check_image(text: str, where: str = "IMAGE") -> None:
    """Whether it can name an image, before an engine is asked for one: an id, or a reference that is written in full.

    A bare word could be an image; mostly it is a typing error, and starting an engine is no way to say so. Raises
    BadInput.
    """
    if not text:
        raise BadInput("no image is named", where=where, cure="[host/]name:tag, name@sha256:..., or an image's id")
    if ID.fullmatch(text):
        return
    reference = parse_reference(text, where)
    if reference.tag is None and reference.digest is None and not reference.names_registry:
        raise BadInput(
            f"{text!r} names no image: it has no tag", where=where, cure=f"write {text}:latest if that is meant"
        )


def find_base(client: DockerClient, text: str, console: Console, *, offline: bool) -> Base:
    """The image that a reference or an id means; pulled when it is not here and the reference names a registry.

    Raises BadInput when there is none or the digest is not its own, RegistryFailed when it cannot be pulled.
    """
    by_id = ID.fullmatch(text)
    if by_id is not None:
        attrs = _local(client, text)
        if attrs is not None and str(attrs["Id"]).removeprefix("sha256:").startswith(by_id["hex"]):
            return Base(str(attrs["Id"]), None, next(iter(attrs.get("RepoDigests") or ()), None), attrs)
        if text.startswith("sha256:"):
            raise BadInput(f"no image {text} is on this engine", where="IMAGE", cure=IDS)
    reference = parse_reference(text, "IMAGE")
    attrs = _find(client, reference)
    if attrs is None and by_id is not None:
        # Nobody names an image so; as a name, the advice would be to pull it.
        raise BadInput(f"no image {text} is on this engine", where="IMAGE", cure=IDS)
    if attrs is None:
        _pull(client, reference, console, offline=offline)
        attrs = _find(client, reference)
    if attrs is None:
        raise RegistryFailed(f"{text} was pulled, but is not on the engine", where=text)
    return Base(str(attrs["Id"]), reference, _digest(reference, attrs), attrs)


def _find(client: DockerClient, reference: Reference) -> Mapping[str, Any] | None:
    """The local image; with a digest, only one that has it."""
    if reference.digest is None:
        return _local(client, reference.tagged)
    pinned = _local(client, f"{reference.repository}@{reference.digest}")
    if pinned is not None:
        return pinned
    named = _local(client, reference.tagged)
    # What was built here has no manifest digest; then its id is meant.
    return named if named is not None and named["Id"] == reference.digest else None


def _local(client: DockerClient, name: str) -> Mapping[str, Any] | None:
    from docker.errors import ImageNotFound

    try:
        attrs: Mapping[str, Any] = client.images.get(name).attrs
    except ImageNotFound:
        return None
    return attrs


def _digest(reference: Reference, attrs: Mapping[str, Any]) -> str | None:
    digests = attrs.get("RepoDigests") or []
    return next((found for found in digests if found.partition("@")[0] == familiar(reference.repository)), None)


def familiar(name: str) -> str:
    """How the engine lists a name of Docker's own registry."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def _pull(client: DockerClient, reference: Reference, console: Console, *, offline: bool) -> None:
    from docker.errors import APIError

    if not reference.names_registry:
        # A typing error must not become a download from whatever registry is the default.
        raise BadInput(
            f"no image {reference} is on this engine" + (" with this digest" if reference.digest else ""),
            where="IMAGE",
            cure=f"to pull it, name its registry: docker.io/{reference}",
        )
    if offline:
        raise RegistryFailed(f"offline, and {reference} is not on this engine", where=str(reference))
    with console.step(f"pull {reference}"):
        try:
            client.images.pull(reference.repository, tag=reference.digest or reference.tag or "latest")
        except APIError as problem:
            raise RegistryFailed(
                f"{reference} cannot be pulled: {problem.explanation or problem}",
                where=str(reference),
                cure="check the reference, and docker login",
            ) from problem


def default_tag(base: Base, key: str) -> str:
    """IMAGE's repository and tag with `-graft-<key>` behind it. Raises BadInput when IMAGE gives no name."""
    reference = base.reference
    if reference is None:
        named = [tag for tag in base.attrs.get("RepoTags") or () if REFERENCE.fullmatch(tag)]
        if not named:
            raise BadInput("an image without a name gives none to what is made of it", where="IMAGE", cure="--tag")
        reference = parse_reference(named[0], "IMAGE")
    ending = f"graft-{key[:12]}"
    if reference.tag is None and reference.digest is not None:
        return f"{reference.repository}:{ending}"
    tag = f"{reference.tag or 'latest'}-{ending}"
    if len(tag) > MAX_TAG:
        raise BadInput(f"{tag} is longer than {MAX_TAG} characters, which a tag may have", where="IMAGE", cure="--tag")
    return f"{reference.repository}:{tag}"


def chosen_tag(text: str, base: Base) -> str:
    """What --tag names. Raises BadInput, also when it would hide the image that it is made from."""
    reference = parse_reference(text, "--tag")
    if reference.digest is not None:
        raise BadInput(f"{text}: a digest is a result, not a name", where="--tag")
    if familiar(reference.tagged) in (base.attrs.get("RepoTags") or ()):
        raise BadInput(f"{reference.tagged} is the image that the patches go onto", where="--tag", cure="another name")
    return reference.tagged
