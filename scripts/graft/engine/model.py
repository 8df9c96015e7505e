"""What an engine is, for those who use one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.apt import DebPin

Kind = Literal["system", "embedded"]
Mode = Literal["auto", "system", "embedded"]
Store = Literal["classic", "containerd"]
#: How long the Engine API may be silent. Before the first byte of an image that it saves, the classic store writes all
#: of it to its disk: minutes for 9 GB. The SDK's own limit is 60 s.
ANSWER_SECONDS = 1800

#: What a Docker client may need from our environment. Proxies are not in it: nothing of the host's network
#: settings may reach a build, and the client talks to a socket.
_PASSED = ("HOME", "USER", "TERM", "TMPDIR", "SSH_AUTH_SOCK", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@dataclass(frozen=True)
class Programs:
    """The Debian packages that hold the engine's programs.

    identity: hash of their bytes; files: brings them here (may raise FetchFailed).
    """

    identity: str
    files: Callable[[], Mapping[DebPin, Path]]


class EngineConfig(Protocol):
    """`engine:` of build.yaml."""

    @property
    def keep(self) -> str:
        """How much build cache garbage collection leaves, as Docker writes sizes (`40GB`)."""


@dataclass(frozen=True)
class Engine:
    """A Docker daemon that answers, and the client to use with it.

    host:       `unix:///...`, `tcp://...` or `ssh://...`.
    docker:     the client program; config_dir: the DOCKER_CONFIG folder whose `cli-plugins` holds docker-buildx.
    store:      where images lie: `classic` (overlay2) or `containerd`.
    """

    kind: Kind
    host: str
    version: str
    docker: Path
    config_dir: Path
    store: Store
    context: str | None = None

    def env(self) -> dict[str, str]:
        """The whole environment of a client call."""
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        address = {"DOCKER_CONTEXT": self.context} if self.context else {"DOCKER_HOST": self.host}
        return {
            **passed,
            **address,
            "PATH": os.pathsep.join((str(self.docker.parent), os.environ.get("PATH", os.defpath))),
            "LC_ALL": "C.UTF-8",
            "DOCKER_CONFIG": str(self.config_dir),
            "DOCKER_BUILDKIT": "1",
            "DOCKER_CLI_HINTS": "false",
            # The default provenance gives every build another digest, a cached one too.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        }

    def client(self) -> DockerClient:
        """The Engine API. The caller closes it."""
        # Imported here because it takes 0.3 s, which a build with nothing to do does not have.
        import docker
        from docker.utils import kwargs_from_env

        settings = kwargs_from_env(environment={**os.environ, "DOCKER_HOST": self.host})
        settings["base_url"] = self.host
        return docker.DockerClient(**settings, use_ssh_client=self.host.startswith("ssh://"), timeout=ANSWER_SECONDS)
