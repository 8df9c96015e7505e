"""What the verbs of publishing share: which repository, which keys, who we are."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from graft import net, proc
from graft.commands.session import Session
from graft.errors import BadInput, GraftError
from graft.publish.keys import PrivateKey, PublicKey, load_private, load_public
from graft.registry.client import Registry
from graft.registry.credentials import find_credentials
from graft.registry.reference import Reference, Repository, parse_reference, parse_repository

SIGNING_KEY, SIGNING_PASSWORD = "GRAFT_SIGNING_KEY", "GRAFT_SIGNING_PASSWORD"


def repository_of(session: Session, address: str | None) -> Repository:
    """The repository that the user or build.yaml names. Raises BadInput."""
    project = session.project
    where = "REGISTRY" if address else "build.yaml: registry.address"
    text = address or project.registry.address
    if text is None:
        raise BadInput(
            "no registry is named", where=where, cure="REGISTRY=host[:port][/path], or name one in build.yaml"
        )
    return parse_repository(text, project.repository, where)


def reference_of(session: Session, image: str, address: str | None) -> Reference:
    """An image as the user names it: in full, or a tag or digest of the project's repository. Raises BadInput."""
    if not image:
        raise BadInput(
            "no image is named", where="IMAGE", cure="IMAGE=host/path:tag, host/path@sha256:..., or a tag alone"
        )
    bare = "/" not in image
    return parse_reference(image, "IMAGE", repository_of(session, address) if bare else None)


def registry_of(repository: Repository) -> Registry:
    """The repository, with the credentials that Docker has for it. Raises BadInput and RegistryFailed."""
    return Registry(repository, net.session(), find_credentials(repository, os.environ))


def public_key(session: Session, file: Path | None) -> PublicKey | None:
    """The key to check with: the file that is given, else build.yaml's; None without one. Raises BadInput."""
    named = session.project.registry.key
    if file is None and named is None:
        return None
    return load_public(file if file is not None else session.paths.root / str(named))


def signing_key(session: Session) -> PrivateKey | None:
    """The private key from the environment; None when the project does not sign. Raises BadInput."""
    file, password = os.environ.get(SIGNING_KEY), os.environ.get(SIGNING_PASSWORD)
    public = public_key(session, None)
    if not file:
        if public is None:
            return None
        raise BadInput(
            "the project signs what it publishes, and no private key is given",
            where=SIGNING_KEY,
            cure=f"export {SIGNING_KEY}=FILE (and {SIGNING_PASSWORD}): the key that belongs to build.yaml's",
        )
    key = load_private(Path(file), password)
    if public is not None and key.public.fingerprint != public.fingerprint:
        raise BadInput(
            "the private key does not belong to the project's public key",
            where=SIGNING_KEY,
            cure="nobody could verify what it signs: use the other key, or change registry.key in build.yaml",
        )
    return key


def publisher(session: Session) -> str:
    """Who publishes, for the record: git's name and address here, else the user's name."""
    try:
        done = proc.run(["git", "var", "GIT_COMMITTER_IDENT"], cwd=session.paths.root, check=False)
    except GraftError:
        return getpass.getuser()
    name = done.stdout.partition(">")[0]
    return f"{name}>" if done.rc == 0 and name else getpass.getuser()
