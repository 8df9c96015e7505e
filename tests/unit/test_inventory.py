"""What recipes, locks and images hold, and how two of them differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_lock, make_open, make_plan, package

from graft.gate.receipt import Receipt, write_receipt
from graft.inventory import Change, Component, Inventory, Layer, Package, compare
from graft.inventory.imaged import layers_of, operators_of
from graft.inventory.planned import entrypoint_of, of_lock, of_plan
from graft.inventory.text import markdown, rows, size_rows, summary

DOCKERFILE = 'FROM x AS runtime\nENTRYPOINT ["vllm", "serve"]\nFROM runtime AS smoke\nENTRYPOINT []\n'


def image(name: str = "a", **more: Any) -> Inventory:
    made: dict[str, Any] = {
        "components": {"vllm": Component("0.32.0", "5df63a720", "wheel", "vllm")},
        "patches": {"vllm/defaults": "a" * 64},
        "python": {"vllm": Package("0.32.0", 1000), "six": Package("1.17.0", 10)},
        "debian": {"bash": Package("5.2", 100)},
        "env": {"A": "1"},
        "entrypoint": ("vllm", "serve"),
        "gpu": {"vllm/_C.so": ["sm_90a"]},
        "operators": {"vllm/_C.so": ["_C::rms_norm"]},
        "layers": (Layer("sha256:" + "1" * 64, 900, "base"), Layer("sha256:" + "2" * 64, 110, "overlay vllm")),
    }
    return Inventory(name, "image", {"arch": "sm90"}, "installed", **{**made, **more})


def changes(before: Inventory, after: Inventory) -> dict[str, list[Change]]:
    return {section.title: list(section.changes) for section in compare(before, after).sections if section.changes}


def test_equal_ones_differ_in_nothing_and_a_puller_needs_nothing() -> None:
    found = compare(image("a"), image("b"))
    assert found.is_empty
    assert found.transfer is not None
    assert (found.transfer.new, found.transfer.new_bytes, found.transfer.shared_bytes) == (0, 0, 1010)
    assert all(section.same for section in found.sections)


@pytest.mark.parametrize(
    ("more", "title", "change"),
    [
        (
            {"components": {"vllm": Component("0.33.0", None, "wheel", "vllm")}},
            "components",
            Change("vllm", "0.32.0 (5df63a720)", "0.33.0"),
        ),
        ({"patches": {}}, "patches", Change("vllm/defaults", "a" * 12, None)),
        ({"patches": {"vllm/defaults": "b" * 64}}, "patches", Change("vllm/defaults", "a" * 12, "b" * 12)),
        ({"debian": {"bash": Package("5.3", 130)}}, "Debian packages", Change("bash", "5.2", "5.3", 30)),
        ({"env": {"A": "1", "B": "2"}}, "environment", Change("B", None, "2")),
        ({"entrypoint": ("bash",)}, "entrypoint", Change("entrypoint", "vllm serve", "bash")),
        ({"gpu": {"vllm/_C.so": ["sm_90a", "sm_120a"]}}, "GPU code", Change("vllm/_C.so", "sm_90a", "sm_90a sm_120a")),
        ({"operators": {"vllm/_C.so": []}}, "operators", Change("_C::rms_norm", "vllm/_C.so", None)),
    ],
)
def test_each_kind_of_change_is_named(more: dict[str, Any], title: str, change: Change) -> None:
    assert changes(image(), image(**more)) == {title: [change]}


def test_a_package_that_grew_says_by_how_much() -> None:
    found = changes(image(), image(python={"vllm": Package("0.33.0", 1500), "new": Package("1", 7)}))
    assert found["Python packages"] == [
        Change("vllm", "0.32.0", "0.33.0", 500),
        Change("new", None, "1", 7),
        Change("six", "1.17.0", None, -10),
    ]
    assert found["size by component"] == [Change("vllm", "1000", "1500", 500)]


def test_the_layers_that_a_puller_needs_are_those_it_does_not_have() -> None:
    edited = (*image().layers[:1], Layer("sha256:" + "3" * 64, 120, "overlay vllm"))  # type: ignore[index]
    found = compare(image("a"), image("b", layers=edited))
    assert found.transfer is not None
    assert (found.transfer.new, found.transfer.new_bytes, found.transfer.shared) == (1, 120, 1)
    assert "who has a needs 1 layers, 120 B, for b; 1 layers, 900 B, are shared" in summary(found)[0]


@pytest.mark.parametrize(
    ("of", "title"),
    [("python", "Python packages"), ("gpu", "GPU code"), ("operators", "operators"), ("layers", "layers")],
)
def test_what_one_side_does_not_know_is_said_and_not_guessed(of: str, title: str) -> None:
    found = compare(image("a"), image("b", **{of: None}))
    section = next(s for s in found.sections if s.title == title)
    assert (section.changes, section.unknown) == ((), "not known of b")
    assert f"{title}: not known of b" in summary(found)


def test_sizes_of_downloads_are_not_compared_with_installed_ones() -> None:
    other = replace(image("b", python={"vllm": Package("0.33.0", 9)}), size_kind="download")
    found = {s.title: s for s in compare(image("a"), other).sections}
    assert found["Python packages"].changes[0] == Change("vllm", "0.32.0", "0.33.0", None)
    assert found["size by component"].unknown


def test_a_recipe_is_what_its_plan_says() -> None:
    plan = make_plan("sm90")
    found = of_plan("toy", plan, DOCKERFILE)
    assert found.components is not None
    assert list(found.components) == ["torch", "nccl", "flashinfer", "vllm"]
    assert str(found.components["vllm"]) == "0.32.0 (5df63a720)"
    assert found.patches is not None
    assert list(found.patches) == ["vllm/defaults", "flashinfer/norm-wait"]
    assert found.python is not None
    assert found.python["flashinfer-python"].version == "0.7.0.post1"
    assert found.python["graft-flashinfer-aot"].version == "0.7.0.post1+sm90a"
    assert "b12x" not in found.python
    assert "ninja" not in found.python, "the builder's packages are not in the image"
    assert found.debian is not None
    assert list(found.debian) == ["gcc"]
    assert found.entrypoint == ("vllm", "serve")
    assert (found.gpu, found.layers) == (None, None)


def test_two_recipes_differ_in_what_was_edited() -> None:
    before = of_plan("toy", make_plan(), DOCKERFILE)
    after = of_plan("toy", make_plan(recipe=lambda r: r["env"].update(A="1")), DOCKERFILE)
    found = changes(before, after)
    assert found.pop("facts")[0].name == "key"
    assert found == {"environment": [Change("A", None, "1")]}


def test_a_recipe_without_a_lock_has_components_and_no_packages() -> None:
    found = of_plan("open", make_open(), DOCKERFILE)
    assert found.components is not None
    assert found.components["numba"].version == "0.65.0"
    assert found.python is None
    assert found.notes


def test_a_lock_alone_has_packages_and_patches() -> None:
    found = of_lock("x", make_lock(), "sm90")
    again = of_lock("y", make_lock(lambda lock: package(lock, "vllm").update(version="0.33.0")), "sm90")
    assert found.patches is not None
    assert set(found.patches) == {"vllm/defaults", "flashinfer/norm-wait", "b12x/tiles"}
    assert changes(found, again)["Python packages"][0].name == "vllm"


def test_the_entrypoint_is_that_of_the_published_stage() -> None:
    assert entrypoint_of(DOCKERFILE) == ("vllm", "serve")
    assert entrypoint_of("FROM x\n") is None


SETTLED = " && touch --date=@1577836800 /etc /run /tmp # buildkit"
HISTORY = [
    {"CreatedBy": "LABEL a=b", "Size": 0},
    {"CreatedBy": "WORKDIR /root", "Size": 0},
    {"CreatedBy": "ENV A=1", "Size": 0},
    {"CreatedBy": "ADD metadata.tar / # buildkit", "Size": 63},
    {"CreatedBy": "COPY /out/ /opt/venv/lib/python3.11/site-packages/ # buildkit", "Size": 35},
    *[
        {"CreatedBy": f"RUN /bin/sh -c bash /run/graft/scripts/install-wheels.sh{SETTLED}", "Size": size}
        for size in (7, 6, 5, 4, 3, 2, 1)
    ],
    {"CreatedBy": "ADD rootfs.tar / # buildkit", "Size": 97},
]


def test_layers_have_the_names_of_what_made_them() -> None:
    digests = [f"sha256:{number}" for number in range(11)]
    layers, why = layers_of(HISTORY, digests, make_plan("sm90"))
    assert why == ""
    assert layers is not None
    assert [layer.step for layer in layers] == [
        *("base", "venv", "wheels cuda", "cuda-links", "wheels torch", "wheels python", "wheels vllm"),
        *("compiled flashinfer", "overlay vllm", "metadata", "workdir"),
    ]
    assert [layer.size for layer in layers] == [97, 1, 2, 3, 4, 5, 6, 7, 35, 63, 0]
    assert [layer.digest for layer in layers] == digests
    layers, _ = layers_of(HISTORY, digests, None)
    assert layers is not None
    assert [layer.step for layer in layers][:2] == ["base", "install-wheels.sh"], "without its plan, BuildKit's words"


def test_layers_whose_steps_cannot_be_told_apart_have_no_sizes() -> None:
    layers, why = layers_of(HISTORY, ["sha256:1"], None)
    assert layers is None
    assert "steps for 1 layers" in why


def test_sizes_name_components_first() -> None:
    assert [row[:3] for row in size_rows(image())] == [
        ("vllm", "Python", "vllm"),
        ("", "Debian", "bash"),
        ("", "Python", "six"),
    ]


def test_release_notes_name_what_people_ask_for_and_fold_the_rest() -> None:
    after = image(
        "b",
        components={"vllm": Component("0.33.0", "1234567", "wheel", "vllm")},
        patches={"vllm/defaults": "a" * 64, "vllm/new": "c" * 64},
        python={"vllm": Package("0.33.0", 1500), "six": Package("1.17.0", 10)},
    )
    text = markdown(compare(image("a"), after), {"vllm/new": "Scales <b>survive</b> @all"})
    assert text.startswith("## a → b\n")
    assert "- **vllm** 0.32.0 (5df63a720) → 0.33.0 (1234567)" in text
    assert "- **vllm/new** added: Scales &lt;b&gt;survive&lt;/b&gt; &#64;all (cccccccccccc)" in text
    assert "<details><summary>Python packages: 1 differ, 1 are the same</summary>" in text
    assert "| vllm | 0.32.0 | 0.33.0 | +500 B |" in text
    assert "Nothing" not in text
    assert "Nothing that can be compared differs." in markdown(compare(image("a"), image("b")), {})


def test_text_of_an_image_cannot_drive_a_terminal() -> None:
    evil = image("b", env={"A": "1", "B": "\x1b[2J`x`|<script>"})
    text = markdown(compare(image("a"), evil), {})
    assert "\x1b" not in text
    assert "<script>" not in text
    assert rows(next(s for s in compare(image("a"), evil).sections if s.changes))


def receipt(image_id: str, checks: list[dict[str, str]]) -> Receipt:
    red = any(check["verdict"] == "fail" for check in checks)
    test = {"id": "load", "tier": "cpu", "verdict": "fail" if red else "pass", "seconds": 1.0, "detail": ""}
    host = {"system": "s", "kernel": "k", "machine": "m", "cpus": 1, "memory_gb": 1.0}
    data = {"schema_version": 2, "tier": "cpu", "image_id": image_id, "manifest_digest": None, "recipe": "toy"}
    data |= {"arch": "sm90", "key": "k", "lock_digest": "l", "gate_digest": "g", "started": "2026-12-01T00:00:00Z"}
    data |= {"seconds": 1.0, "host": host, "engine": "e", "verdict": test["verdict"], "limits": []}
    return Receipt.model_validate_json(json.dumps({**data, "tests": [{**test, "checks": checks}]}))


def test_the_operators_of_an_image_are_those_of_its_own_receipt(tmp_path: Path) -> None:
    found = {"id": "registers:vllm/_C.so", "verdict": "pass", "detail": "_C::a CPU\n_C::b CUDA"}
    image_id = "sha256:" + "5" * 64
    made = receipt(image_id, [found])
    assert operators_of(tmp_path, image_id) is None, "no receipt"
    write_receipt(tmp_path, made, {})
    assert operators_of(tmp_path, image_id) == {"vllm/_C.so": ("_C::a CPU", "_C::b CUDA")}
    assert operators_of(tmp_path, image_id[:-1] + "6") is None, "of another image with the same first digits"
    write_receipt(tmp_path, receipt(image_id, [{**found, "id": "loads:vllm/_C.so", "verdict": "fail"}]), {})
    assert operators_of(tmp_path, image_id) is None, "what did not load registers nothing"
