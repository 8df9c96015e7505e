"""Images compared, carried and made again: two projects of the same inputs, each with its own store and engine."""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import random
import shutil
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny import CHANNEL, INPUTS, SOURCE, Tiny, share_engine_programs

from graft.trial.layers import configs_differ, layers_differ
from graft.trial.saved import Blobs, list_saved

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]

SITE = "opt/venv/lib/python3.11/site-packages"
PATCH = "patches/six/text-of-numbers.patch"
MIB = 1 << 20
KILLS = 2


@dataclass(frozen=True)
class Both:
    """one: built here, with the network. other: the same inputs, nothing fetched; it never has a network."""

    one: Tiny
    other: Tiny
    bundle: Path
    image: str
    digest: str


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("images")
    one, other = (Tiny(folder / name) for name in ("one", "other"))
    one.root.mkdir()
    other.root.mkdir()
    try:
        one.write()
        shutil.copy(SOURCE / "images" / "smoke" / "size.py", one.root / "images" / "smoke")
        # Its .pth is imported whenever Python starts, in the step that installs it and in all later ones.
        one.edit(
            "recipes/tiny.yaml", "components:", 'components:\n  setuptools: {wheel: setuptools, version: "80.9.0"}'
        )
        share_engine_programs(one.paths)
        one.graft("lock")
        one.keep()
        for name in INPUTS:
            copy = shutil.copytree if (one.root / name).is_dir() else shutil.copy
            copy(one.root / name, other.root / name)
        reference = one.graft("image").reference
        made = json.loads(one.graft("bundle", "export", str(folder / "all.bundle"), "--contents", "all", "--json").out)
        yield Both(one, other, folder / "all.bundle", reference, made["digest"])
    finally:
        for made_project in (one, other):
            if made_project.paths.state.exists():
                made_project.graft("engine-stop")
        shutil.rmtree(folder)


def test_a_killed_import_leaves_every_tag_and_a_second_one_ends_it(both: Both) -> None:
    tiny, chosen = both.other, random.Random(4)
    for _ in range(KILLS):
        with tiny.started("bundle", "import", str(both.bundle), network=False) as process:
            time.sleep(chosen.uniform(1.0, 6.0))
            process.kill()
            process.communicate()
        if tiny.engine_processes("dockerd"):
            assert set(tiny.tags().values()) <= {both.one.image(both.image).id}
    tiny.graft("bundle", "import", str(both.bundle), "--digest", both.digest, network=False)
    assert not list(tiny.paths.state.rglob(".*.bundle"))


def test_an_image_is_carried_with_its_receipt_and_nothing_is_left_to_do(both: Both) -> None:
    tiny = both.other
    tiny.graft("bundle", "import", str(both.bundle), "--digest", both.digest, network=False)
    assert tiny.image(both.image) == both.one.image(both.image)
    assert tiny.tags()[CHANNEL] == tiny.tags()[both.image]
    again = tiny.graft("image", network=False, OFFLINE="1")
    assert "nothing to do" in again.err
    assert again.reference == both.image


def test_a_cold_build_from_the_image_alone_without_network_gives_the_same_image(both: Both) -> None:
    """In another engine, with another store, at another time: every layer has the same digest, without exception."""
    tiny = both.other
    tiny.graft("bundle", "import", str(both.bundle), network=False)
    before = tiny.tags()
    said = json.loads(tiny.graft("reproduce", both.image, "--json", network=False, OFFLINE="1").out)
    assert said["equal"], said["differences"]
    assert said["built"] == said["image"] == both.one.image(both.image).id
    assert said["gated"]
    assert tiny.receipt(said["built"])["verdict"] == "pass"
    assert tiny.tags() == before
    assert not list((tiny.paths.state / "reproduce").iterdir())
    log = (tiny.paths.logs / "tiny-sm90-runtime.log").read_text()
    assert "CACHED" not in log.replace("[internal]", ""), "nothing came from an earlier build"


def test_a_file_that_was_changed_in_an_image_is_named(both: Both) -> None:
    with both.one.client() as client:
        container = client.api.create_container(both.image)["Id"]
        try:
            changed = io.BytesIO()
            with tarfile.open(fileobj=changed, mode="w") as tar:
                member = tarfile.TarInfo(f"{SITE}/six.py")
                member.size = 4
                tar.addfile(member, io.BytesIO(b"evil"))
            client.api.put_archive(container, "/", changed.getvalue())
            other = client.api.commit(container)["Id"]
        finally:
            client.api.remove_container(container, force=True)
        try:
            found = {d.file: d.what for d in layers_differ(client, client.images.get(both.image).id, other)}
            attrs = [client.images.get(image).attrs for image in (both.image, other)]
            assert found[f"{SITE}/six.py"] == "only in the new build"
            assert [line.partition(":")[0] for line in configs_differ(*attrs)] == ["Created"]
        finally:
            client.images.remove(other)


def test_a_patch_edit_makes_a_puller_download_less_than_a_mebibyte(both: Both) -> None:
    tiny = both.one
    tiny.edit(PATCH, '+        return "%d" % s', '+        return "%i" % s')
    tiny.graft("lock")
    edited = tiny.graft("image").reference
    try:
        said = json.loads(tiny.graft("diff", both.image, edited, "--json").out)
        assert said["transfer"]["new"] == 2, "the overlay and the metadata"
        assert [c["name"] for c in said["sections"]["patches"]["changes"]] == ["six/text-of-numbers"]
        assert said["sections"]["Python packages"]["changes"] == []
        with tiny.client() as client:
            there = set(client.images.get(both.image).attrs["RootFS"]["Layers"])
            saved = list_saved(client, client.images.get(edited).id)
            blobs = Blobs(client, saved.id)
            new = [b.name for b in saved.blobs if b.name in saved.layers and f"sha256:{b.sha256}" not in there]
            assert len(new) == 2
            compressed = sum(len(gzip.compress(b"".join(blobs.chunks(name)), 6)) for name in new)
        assert 1000 < compressed < MIB
        assert said["transfer"]["new_bytes"] < MIB
    finally:
        tiny.reset()


def test_another_version_moves_the_layer_of_its_own_wheel_alone(both: Both) -> None:
    """What is installed after it is built anew and has the same bytes, so the same digest."""
    tiny = both.one
    tiny.edit("recipes/tiny.yaml", 'wheel: packaging, version: "24.2"', 'wheel: packaging, version: "24.1"')
    try:
        tiny.graft("lock")
        bumped = tiny.graft("image").reference
        said = json.loads(tiny.graft("diff", both.image, bumped, "--json").out)
        new = [change["name"] for change in said["sections"]["layers"]["changes"] if change["kind"] == "added"]
        assert new == ["wheels packaging", "metadata"]
        assert [c["name"] for c in said["sections"]["Python packages"]["changes"]] == ["packaging"]
    finally:
        tiny.reset()


def test_an_image_holds_what_its_recipe_says(both: Both) -> None:
    said = json.loads(both.one.graft("diff", "tiny", both.image, "--json").out)
    assert said["equal"], "components, patches, packages and environment are those of the recipe and its lock"
    assert {t for t, s in said["sections"].items() if s["unknown"]} == {
        "GPU code",
        "operators",
        "size by component",
        "layers",
    }


def test_the_sizes_of_layers_and_packages(both: Both) -> None:
    said = json.loads(both.one.graft("size", both.image, "--json").out)
    steps = [layer["step"] for layer in said["layers"]]
    assert steps == [
        *("base", "venv", "wheels setuptools", "wheels six", "wheels packaging", "wheels idna"),
        *("overlay six", "metadata", "workdir"),
    ]
    assert said["bytes"] == sum(layer["bytes"] for layer in said["layers"])
    (idna,) = (layer["bytes"] for layer in said["layers"] if layer["step"] == "wheels idna")
    assert said["components"]["idna"] == idna, "a wheel's layer is its files and nothing else"


def test_the_gate_holds_the_size_budget(both: Both) -> None:
    tiny = both.one
    total = json.loads(tiny.graft("size", both.image, "--json").out)["bytes"]
    try:
        tiny.edit("recipes/tiny.yaml", "smoke: [core, patches]", "smoke: [core, size]\nsize_budget: {total: 1GB}")
        assert tiny.graft("image").reference == both.image
        below = total // 1000 - 200
        tiny.edit("recipes/tiny.yaml", "total: 1GB", f"total: {below}kB")
        red = tiny.graft("image", code=7)
        assert "size (fail)" in red.err
        assert "GB too much" in red.err
    finally:
        tiny.reset()
        tiny.graft("image")
