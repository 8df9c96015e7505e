"""The main job and publishing in an engine that keeps images in containerd's store, as newer Docker does by default."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from distribution import distribution
from tiny import Ran, Tiny, share_engine_programs

from graft.engine import daemon
from graft.project import load_project

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]


@dataclass(frozen=True)
class Host:
    """A project, and the daemon that is its host's: `docker` finds it by the environment alone."""

    tiny: Tiny
    env: Mapping[str, str]

    def graft(self, *words: str, **env: str) -> Ran:
        return self.tiny.graft(*words, **self.env, **env)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A locked project beside a daemon with that store."""
    tiny = Tiny(tmp_path / "project")
    tiny.root.mkdir()
    try:
        tiny.write()
        share_engine_programs(tiny.paths)
        tiny.graft("lock")
        # Once it has run, the programs and a client's configuration are in place.
        tiny.graft("engine")
        tiny.graft("engine-stop")
        monkeypatch.setattr(daemon, "STORE", "containerd")
        daemon.start(tiny.paths, load_project(tiny.paths.build_yaml).engine)
        layout = daemon.Layout(tiny.paths.engine)
        env = {
            "ENGINE": "system",
            "DOCKER_HOST": f"unix://{layout.socket}",
            "DOCKER_CONFIG": str(tiny.paths.engine / "config"),
            "PATH": f"{layout.root}/usr/bin:{os.environ['PATH']}",
        }
        yield Host(tiny, env)
    finally:
        tiny.graft("engine-stop")
        shutil.rmtree(tiny.root)


def test_an_image_is_built_gated_published_and_pulled(host: Host, tmp_path: Path) -> None:
    tiny = host.tiny
    reference = host.graft("image").reference
    candidate = tiny.tags()[reference]
    receipt = tiny.receipt(candidate)
    assert receipt["verdict"] == "pass"
    assert receipt["engine"].startswith("system Docker")
    assert "containerd image store" in receipt["engine"]
    again = host.graft("image")
    assert "nothing to do" in again.err
    assert again.reference == reference
    with distribution(tmp_path / "registry") as registry:
        there = {"REGISTRY": f"{registry.host}/graft"}
        tiny.graft("key", "new", "--private", str(tmp_path / "private.pem"), "--public", str(tiny.root / "release.pub"))
        tiny.edit("build.yaml", "key: null", "key: release.pub")
        there["GRAFT_SIGNING_KEY"] = str(tmp_path / "private.pem")
        pushed = json.loads(host.graft("push", "--json", **there).out)
        tag = reference.partition(":")[2]
        assert registry.tags("graft")[tag] == pushed["digest"]
        # The identity everywhere is the configuration's digest; this store calls the image by its manifest.
        assert pushed["image_id"] != candidate
        with tiny.client() as client:
            for image in client.images.list():
                client.images.remove(image.id, force=True)
        pulled = host.graft("pull", **there)
        assert pulled.reference == f"{registry.host}/graft@{pushed['digest']}"
        assert f"{registry.host}/graft:{tag}" in tiny.tags()
        assert host.graft("verify", pulled.reference, **there).reference == pulled.reference
