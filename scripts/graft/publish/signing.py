"""Signatures in the form of cosign: a payload that names the manifest, under the tag `sha256-<hex>.sig`.

`cosign verify --key` checks them too. The payload also names what is attached, so that no receipt, lock or bill of
material can be exchanged without breaking the signature.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graft.errors import RegistryFailed
from graft.publish.keys import PrivateKey, PublicKey
from graft.registry.blobs import BytesBlob, put_blob
from graft.registry.client import Registry, TagChanged
from graft.registry.manifest import CONFIG, Descriptor, canonical, image_manifest

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
TYPE = "cosign container image signature"
ATTACHED = "dev.graft.attached."
ROUNDS = 5


@dataclass(frozen=True)
class Claim:
    """What a signature says. time: seconds since 1970. attached: kind -> digest of its bytes."""

    repository: str
    digest: str
    by: str
    time: int
    attached: Mapping[str, str] = field(default_factory=dict)

    @property
    def payload(self) -> bytes:
        return canonical(
            {
                "critical": {
                    "identity": {"docker-reference": self.repository},
                    "image": {"docker-manifest-digest": self.digest},
                    "type": TYPE,
                },
                "optional": {
                    "creator": self.by,
                    "timestamp": self.time,
                    **{ATTACHED + kind: digest for kind, digest in self.attached.items()},
                },
            }
        )


def signature_tag(digest: str) -> str:
    return f"{digest.replace(':', '-')}.sig"


def sign(registry: Registry, claim: Claim, key: PrivateKey) -> None:
    """Add a signature to the image's. One that says the same, apart from its time, stays as it is.

    Raises RegistryFailed.
    """
    tag = signature_tag(claim.digest)
    signed = base64.b64encode(key.sign(claim.payload)).decode()
    blob = BytesBlob(claim.payload)
    put_blob(registry, blob)
    layer = Descriptor(PAYLOAD, blob.digest, blob.size, {SIGNATURE: signed})
    for _ in range(ROUNDS):
        before = registry.manifest(tag)
        others = before.layers(registry.name(tag)) if before is not None else []
        if any(_says_the_same(registry, entry, claim, key.public) for entry in others):
            return
        layers = [*others, layer]
        config = BytesBlob(
            canonical(
                {
                    "architecture": "",
                    "os": "",
                    "config": {},
                    "rootfs": {"type": "layers", "diff_ids": [entry.digest for entry in layers]},
                }
            )
        )
        put_blob(registry, config)
        try:
            registry.put_manifest(image_manifest(config.descriptor(CONFIG), layers), tag)
            return
        except TagChanged:
            # Somebody else signed at the same time: both signatures are wanted.
            continue
    raise RegistryFailed("others write the image's signatures all the time", where=registry.name(tag))


def signed_claims(registry: Registry, digest: str, key: PublicKey) -> list[Claim]:
    """What signatures by this key say of the manifest, the newest first.

    Raises RegistryFailed, which says what is there instead, when there is none.
    """
    where = registry.name(digest)
    found = registry.manifest(signature_tag(digest))
    if found is None:
        raise RegistryFailed("is not signed", where=where, cure="publish it with a key: docs/publish.md")
    claims, reasons = [], []
    for entry in found.layers(where):
        claim = _claim(registry, entry, key)
        if isinstance(claim, str):
            reasons.append(claim)
        elif claim.digest != digest:
            reasons.append(f"a signature is of another image: {claim.digest}")
        else:
            claims.append(claim)
    if not claims:
        said = "; ".join(dict.fromkeys(reasons)) or "the list of signatures is empty"
        raise RegistryFailed(
            f"no signature holds: {said}", where=where, cure="do not use it; ask who published it, or name another key"
        )
    return sorted(claims, key=lambda claim: -claim.time)


def _claim(registry: Registry, entry: Descriptor, key: PublicKey) -> Claim | str:
    """What one signature says, or why it does not count."""
    payload = registry.blob(entry.digest, entry.size, "a signature's payload")
    try:
        signature = base64.b64decode(entry.annotations.get(SIGNATURE, ""), validate=True)
    except binascii.Error:
        return "a signature is not base64"
    if not key.accepts(payload, signature):
        return f"a signature was not made by the key {key.fingerprint[:19]}, or was tampered with"
    try:
        return _parsed(json.loads(payload))
    except (ValueError, KeyError, TypeError):
        return "a signed payload is none of cosign's form"


def _parsed(data: Any) -> Claim:
    critical, optional = data["critical"], data.get("optional") or {}
    if critical["type"] != TYPE:
        raise ValueError(critical["type"])
    return Claim(
        repository=str(critical["identity"]["docker-reference"]),
        digest=str(critical["image"]["docker-manifest-digest"]),
        by=str(optional.get("creator", "")),
        time=int(optional.get("timestamp") or 0),
        attached={k.removeprefix(ATTACHED): str(v) for k, v in optional.items() if k.startswith(ATTACHED)},
    )


def _says_the_same(registry: Registry, entry: Descriptor, claim: Claim, key: PublicKey) -> bool:
    found = _claim(registry, entry, key)
    return isinstance(found, Claim) and (found.digest, found.repository, found.attached) == (
        claim.digest,
        claim.repository,
        claim.attached,
    )
