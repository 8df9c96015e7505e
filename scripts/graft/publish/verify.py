"""Is a published image what it says: signature, receipt, lock and labels, each held against the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graft.errors import BadInput, RegistryFailed
from graft.gate import Receipt, parse_receipt
from graft.hashes import digest_of
from graft.publish.evidence import KINDS, Kind, attached, is_passing
from graft.publish.keys import PublicKey
from graft.publish.signing import Claim, signed_claims
from graft.registry.client import Registry
from graft.registry.manifest import Document
from graft.registry.reference import Reference
from graft.yamlio import parse

#: The only platform that Graft makes images for.
PLATFORM = ("linux", "amd64")
ASK = "do not use it; ask who published it"


@dataclass(frozen=True)
class Verified:
    """A published image that is what it says. claim: None when no signature was asked for."""

    reference: Reference
    document: Document
    image_id: str
    labels: Mapping[str, str]
    receipt: Receipt
    claim: Claim | None
    key: PublicKey | None
    lock: bytes

    @property
    def digest(self) -> str:
        return self.document.digest

    @property
    def by_digest(self) -> Reference:
        return Reference(self.reference.repository, digest=self.digest)

    @property
    def tag(self) -> str:
        """Its immutable tag, as the image itself says it."""
        return self.labels.get("org.opencontainers.image.version", "")


@dataclass(frozen=True)
class Resolved:
    """An image in a registry, its bytes held to their digests, nothing else of it checked yet."""

    document: Document
    image_id: str
    config: Mapping[str, Any]
    labels: Mapping[str, str]


def resolve(registry: Registry, reference: Reference) -> Resolved:
    """Find an image. Raises RegistryFailed: no such tag, a digest that does not fit, another platform, not Graft's."""
    where = str(reference)
    document = registry.manifest(reference.target)
    if document is None:
        what = "digest" if reference.digest else "tag"
        raise RegistryFailed(f"there is no such {what}", where=where, cure="graft history shows what was published")
    if document.is_index:
        raise RegistryFailed("is a list of images for several platforms, and Graft publishes none", where=where)
    config = document.config(where)
    data = registry.blob(config.digest, config.size, "the image's configuration")
    try:
        content = json.loads(data)
        platform = (content["os"], content["architecture"])
        labels = content.get("config", {}).get("Labels") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RegistryFailed("is no image: its configuration cannot be read", where=where) from None
    if platform != PLATFORM:
        raise RegistryFailed(f"is an image for {'/'.join(platform)}, not for {'/'.join(PLATFORM)}", where=where)
    return Resolved(document, config.digest, content, labels)


def verify(registry: Registry, reference: Reference, key: PublicKey | None, *, unsigned: bool = False) -> Verified:
    """Check everything that can be checked without pulling a layer.

    unsigned: do without a signature; the caller has been asked for that by name.
    Raises RegistryFailed with the reason, BadInput when there is no key to check with.
    """
    if key is None and not unsigned:
        raise BadInput(
            "no key to check signatures with",
            where="build.yaml: registry.key",
            cure="name the publisher's public key there, or with --key FILE; --unsigned does without (UNSIGNED=1)",
        )
    found = resolve(registry, reference)
    where = f"{reference.repository}@{found.document.digest}"
    claim = None if key is None else signed_claims(registry, found.document.digest, key)[0]
    if claim is not None:
        if claim.repository != str(reference.repository):
            raise RegistryFailed(f"was signed as an image of {claim.repository}", where=where, cure=ASK)
        lacking = [kind for kind in KINDS if kind not in claim.attached]
        if lacking:
            raise RegistryFailed(f"the signature does not cover the {lacking[0]}", where=where, cure=ASK)
    documents: dict[Kind, bytes] = {
        kind: attached(registry, found.document.digest, kind, claim.attached[kind] if claim else None) for kind in KINDS
    }
    receipt = _receipt(documents["receipt"], found, where)
    _lock(documents["lock"], found, receipt, where)
    _statement(documents["provenance"], found, where)
    _bill(documents["sbom"], found, where)
    return Verified(reference, found.document, found.image_id, found.labels, receipt, claim, key, documents["lock"])


def _receipt(data: bytes, found: Resolved, where: str) -> Receipt:
    """A passing receipt, of exactly this image."""
    try:
        receipt = parse_receipt(data, where)
    except BadInput as problem:
        raise RegistryFailed(f"the receipt cannot be read: {problem.what}", where=where, cure=ASK) from problem
    labels = found.labels
    for what, said, real in (
        ("image", receipt.image_id, found.image_id),
        ("manifest", receipt.manifest_digest, found.document.digest),
        ("recipe", receipt.recipe, labels.get("dev.graft.recipe")),
        ("architecture", receipt.arch, labels.get("dev.graft.arch")),
        ("key", receipt.key, labels.get("dev.graft.key")),
        ("lock", f"sha256:{receipt.lock_digest}", labels.get("dev.graft.lock")),
    ):
        if said != real:
            raise RegistryFailed(f"the receipt is of another {what}: {said}, not {real}", where=where, cure=ASK)
    if not is_passing(receipt):
        raise RegistryFailed("the receipt is not one of a passed gate", where=where, cure=ASK)
    return receipt


def _lock(data: bytes, found: Resolved, receipt: Receipt, where: str) -> None:
    """The lock that the image's label and the receipt name, whole."""
    try:
        content = parse(data, Path("lock")).data
    except BadInput as problem:
        raise RegistryFailed(f"the lock cannot be read: {problem.what}", where=where, cure=ASK) from problem
    body = {name: value for name, value in content.items() if name != "digest"} if isinstance(content, dict) else {}
    digest = digest_of(body)
    if digest != receipt.lock_digest or content.get("digest") != digest:
        raise RegistryFailed(
            f"the lock is not the one that the image names: {digest}, not {receipt.lock_digest}", where=where, cure=ASK
        )


def _statement(data: bytes, found: Resolved, where: str) -> None:
    try:
        digests = [subject["digest"]["sha256"] for subject in json.loads(data)["subject"]]
    except (ValueError, KeyError, TypeError):
        raise RegistryFailed("the provenance cannot be read", where=where, cure=ASK) from None
    if digests != [found.document.digest.removeprefix("sha256:")]:
        raise RegistryFailed("the provenance is of another image", where=where, cure=ASK)


def _bill(data: bytes, found: Resolved, where: str) -> None:
    try:
        (entry,) = json.loads(data)["metadata"]["component"]["hashes"]
        digest = entry["content"]
    except (ValueError, KeyError, TypeError):
        raise RegistryFailed("the bill of material cannot be read", where=where, cure=ASK) from None
    if digest != found.document.digest.removeprefix("sha256:"):
        raise RegistryFailed("the bill of material is of another image", where=where, cure=ASK)
