"""Credentials from Docker's own configuration: what `docker login` wrote, or the helper that it names."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graft import proc
from graft.errors import BadInput, RegistryFailed
from graft.registry.reference import Repository

HELPER_SECONDS = 60.0
#: What a helper says when it has nothing, in the words of docker-credential-helpers.
NOTHING = "credentials not found"
#: The user name that stands for an identity token.
TOKEN_USER = "<token>"


@dataclass(frozen=True)
class Credentials:
    """A user with a password, or an identity token (an OAuth2 refresh token); never printed."""

    user: str
    secret: str = field(repr=False)

    @property
    def is_token(self) -> bool:
        return self.user == TOKEN_USER

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()

    def for_docker(self) -> dict[str, str]:
        """As the Engine API takes them."""
        return {"identitytoken": self.secret} if self.is_token else {"username": self.user, "password": self.secret}


def find_credentials(repository: Repository, env: Mapping[str, str]) -> Credentials | None:
    """What Docker would use for this registry; None when it has nothing.

    env: where DOCKER_CONFIG, HOME and PATH are looked up.
    Raises BadInput (the file cannot be read as what it should be) and RegistryFailed (a helper failed).
    """
    folder = (
        Path(env["DOCKER_CONFIG"])
        if env.get("DOCKER_CONFIG")
        else Path(env.get("HOME") or "~").expanduser() / ".docker"
    )
    file = folder / "config.json"
    config = _read(file)
    helper = _mapping(config, "credHelpers", file).get(repository.login) or config.get("credsStore")
    if helper:
        found = _ask(str(helper), repository.login, env)
        if found is not None:
            return found
    for name, entry in _mapping(config, "auths", file).items():
        if _same_host(name, repository.login) and isinstance(entry, dict):
            found = _from_entry(entry, f"{file}: auths: {name}")
            if found is not None:
                return found
    return None


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise BadInput(f"cannot be read: {problem.strerror}", where=str(file)) from problem
    except ValueError as problem:
        # The parser's message may hold a piece of the file.
        raise BadInput("is not valid JSON", where=str(file), cure="docker login writes it anew") from problem
    if not isinstance(data, dict):
        raise BadInput("is not Docker's configuration", where=str(file))
    return data


def _mapping(config: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = config.get(key) or {}
    if not isinstance(found, dict):
        raise BadInput(f"{key} is no mapping", where=str(file))
    return found


def _same_host(written: str, wanted: str) -> bool:
    """Old versions wrote whole addresses."""
    if written == wanted:
        return True
    bare = written.removeprefix("https://").removeprefix("http://")
    return bare.partition("/")[0] == wanted and not wanted.startswith("https://")


def _from_entry(entry: Mapping[str, Any], where: str) -> Credentials | None:
    if entry.get("identitytoken"):
        return Credentials(TOKEN_USER, str(entry["identitytoken"]))
    if entry.get("username") and entry.get("password"):
        return Credentials(str(entry["username"]), str(entry["password"]))
    if not entry.get("auth"):
        return None
    try:
        user, colon, secret = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user, colon, secret = "", "", ""
    if not colon:
        raise BadInput("auth is not base64 of user:password", where=where, cure="docker login writes it anew")
    return Credentials(user, secret.rstrip("\0"))


def _ask(helper: str, server: str, env: Mapping[str, str]) -> Credentials | None:
    """docker-credential-<helper> get: the server on stdin, JSON on stdout."""
    if not helper.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise BadInput(f"{helper!r} is no name of a credential helper", where="Docker's config.json")
    program = f"docker-credential-{helper}"
    done = proc.run(
        [_which(program, env), "get"],
        env=dict(env),
        stdin=server.encode(),
        timeout=HELPER_SECONDS,
        error=RegistryFailed,
        what=f"{program} cannot be run",
        check=False,
    )
    if done.rc != 0:
        if NOTHING in (done.stdout + done.stderr).lower():
            return None
        # Its stderr may be shown, its stdout may hold a secret.
        raise RegistryFailed(f"{program} failed (exit {done.rc})", tail=done.stderr, cure="docker login")
    try:
        answer = json.loads(done.stdout)
        return Credentials(str(answer["Username"]), str(answer["Secret"]))
    except (ValueError, KeyError, TypeError):
        raise RegistryFailed(f"{program} did not answer as a credential helper does", cure="docker login") from None


def _which(program: str, env: Mapping[str, str]) -> Path:
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        found = Path(folder) / program
        if folder and os.access(found, os.X_OK) and found.is_file():
            return found
    raise RegistryFailed(
        f"Docker's config.json names the credential helper {program}, which is not on PATH",
        cure="install it, or take it out of Docker's config.json",
    )
