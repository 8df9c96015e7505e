"""Key pairs for signatures: ECDSA on P-256 in PEM files, which cosign and openssl read as well."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from graft.errors import BadInput
from graft.registry.manifest import digest_of_bytes

COSIGN_SEALED = b"ENCRYPTED SIGSTORE PRIVATE KEY"
CURE = "graft key new makes a pair"


@dataclass(frozen=True)
class PublicKey:
    """What signatures are checked with."""

    key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """sha256 of the key in DER, as `openssl pkey -pubin -outform DER | sha256sum` gives it."""
        der = self.key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return digest_of_bytes(der)

    def accepts(self, data: bytes, signature: bytes) -> bool:
        try:
            self.key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """What signs; never printed."""

    key: ec.EllipticCurvePrivateKey

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """An ASN.1 DER signature over sha256, as cosign makes it."""
        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))


def load_public(path: Path) -> PublicKey:
    """A public key file. Raises BadInput."""
    try:
        key = serialization.load_pem_public_key(_bytes(path))
    except (ValueError, TypeError) as problem:
        raise BadInput("is no public key in PEM form", where=str(path), cure=CURE) from problem
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput("is not an ECDSA key", where=str(path), cure=CURE)
    return PublicKey(key)


def load_private(path: Path, password: str | None) -> PrivateKey:
    """A private key file, opened with its password. Raises BadInput."""
    data = _bytes(path)
    if COSIGN_SEALED in data:
        raise BadInput("is sealed in cosign's own form", where=str(path), cure=f"use a key in PKCS #8; {CURE}")
    try:
        key = serialization.load_pem_private_key(data, password.encode() if password else None)
    except TypeError as problem:
        said = "has a password" if not password else "has no password, and GRAFT_SIGNING_PASSWORD gives one"
        raise BadInput(said, where=str(path), cure="GRAFT_SIGNING_PASSWORD holds the password of the key") from problem
    except ValueError as problem:
        raise BadInput("is no private key, or the password is wrong", where=str(path), cure=CURE) from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput("is not an ECDSA key", where=str(path), cure=CURE)
    return PrivateKey(key)


def new_pair(private: Path, public: Path, password: str | None) -> PublicKey:
    """Write a new pair, over nothing; the private file is for its owner alone. Raises BadInput."""
    for path in (private, public):
        if path.exists():
            raise BadInput("is there already", where=str(path), cure="name another file, or move it away")
    made = PrivateKey(ec.generate_private_key(ec.SECP256R1()))
    sealed: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        sealed = serialization.BestAvailableEncryption(password.encode())
    pem = made.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
    for path in (private, public):
        path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    public.write_bytes(
        made.public.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return made.public


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise BadInput(f"the key cannot be read: {problem.strerror}", where=str(path), cure=CURE) from problem
