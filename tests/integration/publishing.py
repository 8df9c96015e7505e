"""A project with its own registry, keys and made-up images, for the tests of publishing. No engine."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from distribution import FakeImage

from graft import net
from graft.commands.push import evidence
from graft.commands.session import Session, make_plan, open_session
from graft.console import Console
from graft.gate import Receipt
from graft.gate.receipt import Check, Host, TestResult
from graft.paths import Paths
from graft.plan import Plan
from graft.publish.keys import PrivateKey, PublicKey, load_private, load_public, new_pair
from graft.publish.push import Publication, Published, publish
from graft.registry.client import Registry
from graft.registry.credentials import Credentials
from graft.registry.images import Memory
from graft.registry.reference import Repository

SOURCE = Path(__file__).parents[2]
BY = "A Publisher <publisher@example.invalid>"
CHANNEL, STABLE, HISTORY = "glm-dsa-sm90", "glm-dsa-sm90-stable", "graft-history-glm-dsa-sm90"


def copy_project(root: Path) -> None:
    """The real project's files, a pair of keys, and build.yaml with the public one."""
    root.mkdir(parents=True)
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (SOURCE / "build.yaml").read_text(encoding="utf-8")
    assert text.count("  key: null ") == 1
    (root / "build.yaml").write_text(text.replace("  key: null ", "  key: keys/release.pub "), encoding="utf-8")
    new_pair(root.with_name("private.pem"), root / "keys" / "release.pub", None)


@dataclass(frozen=True)
class Release:
    """A made-up image and what belongs to it. number: releases of other numbers are other images."""

    image: FakeImage
    receipt: Receipt
    tag: str


@dataclass(frozen=True)
class Shop:
    """A project that publishes to one repository."""

    root: Path
    host: str
    planned: Plan
    credentials: Credentials | None = None

    @property
    def session(self) -> Session:
        return open_session(Paths(self.root), Console(), recipe="glm-dsa", arch="sm90")

    @property
    def repository(self) -> Repository:
        return Repository(self.host, "graft")

    @property
    def registry(self) -> Registry:
        """A new client, which waits for nothing."""
        return Registry(self.repository, net.session(), self.credentials, pause=lambda seconds: None)

    @property
    def private(self) -> PrivateKey:
        return load_private(self.root.with_name("private.pem"), None)

    @property
    def public(self) -> PublicKey:
        return load_public(self.root / "keys" / "release.pub")

    def release(self, number: int, *, content: bytes = b"content", padding: int = 0) -> Release:
        """The image of one key; other content is another image under the same key."""
        key = f"{number:012d}" + "0" * 52
        tag = f"glm-dsa-sm90-{key[:12]}"
        labels = {**self.planned.labels(), "dev.graft.key": key, "org.opencontainers.image.version": tag}
        layers = [
            {"base": b"base" * 5000},
            {"app": content + str(number).encode(), "pad": random.Random(number).randbytes(padding)},
        ]
        image = FakeImage(layers, labels)
        receipt = Receipt(
            schema_version=2,
            tier="cpu",
            image_id=image.id,
            manifest_digest=None,
            recipe="glm-dsa",
            arch="sm90",
            key=key,
            lock_digest=self.planned.lock.digest,
            gate_digest="1" * 64,
            started="2026-12-01T10:00:00Z",
            seconds=1.0,
            host=Host(system="Linux", kernel="6.1", machine="x86_64", cpus=2, memory_gb=4.0),
            engine="none",
            verdict="pass",
            tests=(
                TestResult(
                    id="core",
                    tier="cpu",
                    verdict="pass",
                    seconds=1.0,
                    detail="",
                    checks=(Check(id="version", verdict="pass", detail=""),),
                ),
            ),
            limits=("no GPU was used",),
        )
        return Release(image, receipt, tag)

    def push(
        self, release: Release, *, signed: bool = True, registry: Registry | None = None, memory: Path | None = None
    ) -> Published:
        """Publish a release as `graft push` does, without an engine."""
        session = self.session
        publication = Publication(
            source=release.image,
            receipt=release.receipt,
            tag=release.tag,
            channels=(CHANNEL,),
            evidence=lambda image, digest, final: evidence(
                session, self.planned, str(self.repository), image, digest, final
            ),
            by=BY,
        )
        key = self.private if signed else None
        folder = Memory(memory or self.root / ".graft" / "publish", "zstd")
        return publish(registry or self.registry, publication, key, folder, "zstd", session.console, threads=2)


def open_shop(root: Path, host: str, credentials: Credentials | None = None) -> Shop:
    """The project that lies in `root`."""
    session = open_session(Paths(root), Console(), recipe="glm-dsa", arch="sm90")
    return Shop(root, host, make_plan(session), credentials)


def child_push(root: str, host: str, number: int) -> None:
    """In a process of its own, which a test may kill."""
    with _quiet(root):
        shop = open_shop(Path(root), host)
        shop.push(shop.release(number, padding=200_000))


def child_graft(root: str, words: list[str]) -> None:
    """A verb in a process of its own, which a test may kill."""
    from graft.cli import main

    with _quiet(root):
        main(words)


@contextlib.contextmanager
def _quiet(root: str) -> Iterator[None]:
    os.chdir(root)
    with Path(root).with_name("child.log").open("a") as log, contextlib.redirect_stdout(log):
        sys.stderr = log
        yield
