"""Images of a registry are compared by what is published with them; no engine, and no layer is pulled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from distribution import FakeImage, distribution
from publishing import Release, Shop, copy_project, open_shop

from graft.commands.inventories import diff, inventory, size
from graft.commands.session import Session, open_session
from graft.console import Console
from graft.errors import RegistryFailed
from graft.gate.receipt import Check, TestResult
from graft.inventory.published import layers_of
from graft.paths import Paths


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("shop") / "project"
    copy_project(root)
    with distribution(root.with_name("registry")) as running:
        yield open_shop(root, running.host)


def session(shop: Shop) -> Session:
    return open_session(Paths(shop.root), Console(json_mode=True), recipe="glm-dsa", arch="sm90")


def with_operators(release: Release, *lines: str) -> Release:
    """The release with a gate run that found operators."""
    found = Check(id="registers:vllm/_C.so", verdict="pass", detail="\n".join(lines))
    test = TestResult(id="load", tier="cpu", verdict="pass", seconds=1.0, detail="", checks=(found,))
    return dataclasses.replace(release, receipt=release.receipt.model_copy(update={"tests": (test,)}))


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_two_published_images_by_tag_and_by_digest(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = with_operators(shop.release(1), "_C::a"), with_operators(shop.release(2), "_C::a", "_C::b")
    digests = [shop.push(release).digest for release in (first, second)]
    capsys.readouterr()
    diff(
        session(shop), f"{shop.host}/graft:{first.tag}", f"{shop.host}/graft@{digests[1]}", report="table", every=False
    )
    found = said(capsys)
    assert found["transfer"]["shared"] == 1
    assert found["transfer"]["new"] == 1
    changed = {title: section["changes"] for title, section in found["sections"].items() if section["changes"]}
    assert set(changed) == {"facts", "operators", "layers"}
    assert {change["name"] for change in changed["facts"]} == {"key", "image", "manifest"}
    assert [(c["name"], c["kind"]) for c in changed["operators"]] == [("_C::b", "added")]
    assert changed["layers"][0]["grown"] == size_of_layer(shop, digests[1], 1)


def size_of_layer(shop: Shop, digest: str, number: int) -> int:
    document = shop.registry.manifest(digest)
    assert document is not None
    return document.layers("x")[number].size


def test_a_published_image_holds_what_its_recipe_says(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    release = shop.release(3)
    shop.push(release)
    capsys.readouterr()
    diff(session(shop), "glm-dsa", f"{shop.host}/graft:{release.tag}", report="table", every=False)
    sections = said(capsys)["sections"]
    for title in ("patches", "Debian packages"):
        assert (sections[title]["changes"], sections[title]["unknown"]) == ([], "")
        assert sections[title]["same"]
    assert [c["name"] for c in sections["Python packages"]["changes"]] == ["graft-flashinfer-aot"]
    assert sections["GPU code"]["unknown"]
    size(session(shop), f"{shop.host}/graft:{release.tag}", every=False)
    assert said(capsys)["bytes"] == sum(size_of_layer(shop, release.tag, number) for number in (0, 1))


def test_what_is_not_attached_is_noted(shop: Shop) -> None:
    image = FakeImage([{"base": b"base"}], {**shop.planned.labels(), "dev.graft.key": "4" * 64})
    bare = dataclasses.replace(shop.release(4), image=image)
    receipt = bare.receipt.model_copy(update={"image_id": image.id, "key": "4" * 64})
    digest = shop.push(dataclasses.replace(bare, receipt=receipt)).digest
    found = inventory(session(shop), f"{shop.host}/graft@{digest}")
    assert found.operators is None
    assert any("its operators are not known" in note for note in found.notes)
    assert found.python is not None
    assert found.compressed


def test_what_is_not_there_is_the_registrys_error(shop: Shop) -> None:
    with pytest.raises(RegistryFailed, match="no such tag"):
        inventory(session(shop), f"{shop.host}/graft:none")


def test_a_configuration_and_a_manifest_that_disagree_are_refused() -> None:
    config = {"rootfs": {"diff_ids": ["sha256:1", "sha256:2"]}, "history": [{"created_by": "ADD rootfs.tar / "}]}
    with pytest.raises(RegistryFailed, match="names 2 layers, the manifest 1"):
        layers_of(config, [5])
    assert [layer.step for layer in layers_of(config, [5, 6])] == ["layer 1", "layer 2"]
    steps = ["ADD rootfs.tar / # buildkit", "ENV A=1", "ADD metadata.tar / # buildkit"]
    config["history"] = [{"created_by": s, "empty_layer": s.startswith("ENV")} for s in steps]
    assert [layer.step for layer in layers_of(config, [5, 6])] == ["base", "metadata"]
