"""The inventory of an image in a registry, by what is published with it: no layer is pulled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graft.errors import BadInput, GateFailed, RegistryFailed
from graft.gate import found_operators, parse_receipt
from graft.hashes import digest_of
from graft.inventory.imaged import facts_of, patches_of, said_of
from graft.inventory.model import Component, Inventory, Layer
from graft.inventory.planned import built_of, debian_of, python_of
from graft.lock import Lock, plain
from graft.publish.evidence import attached
from graft.publish.verify import Resolved, resolve
from graft.registry.client import Registry
from graft.registry.reference import Reference
from graft.yamlio import parse, validate


def of_published(name: str, registry: Registry, reference: Reference) -> Inventory:
    """What is known of an image without its layers: configuration, labels, attached lock and receipt.

    Sizes are of downloads: locked files, and layers as they are compressed in the registry.
    Raises RegistryFailed: not there, for another platform, or a lock that is not the one of its labels.
    """
    found = resolve(registry, reference)
    config = found.config.get("config") or {}
    notes = ["its GPU code is not known: it lies in layers, and none is pulled"]
    lock = _lock(registry, found, str(reference), notes)
    arch = found.labels.get("dev.graft.arch", "")
    return Inventory(
        name,
        "image",
        {**facts_of(found.labels, found.image_id), "manifest": found.document.digest.removeprefix("sha256:")[:12]},
        "download",
        components=components_of(found.labels),
        patches=patches_of(found.labels),
        python=None if lock is None else python_of(lock, arch, built_of(lock)),
        debian=None if lock is None else debian_of(lock),
        env=dict(sorted(entry.partition("=")[::2] for entry in config.get("Env") or ())),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        operators=_operators(registry, found, notes),
        layers=layers_of(found.config, [layer.size for layer in found.document.layers(str(reference))]),
        compressed=True,
        notes=notes,
    )


def components_of(labels: Mapping[str, str]) -> dict[str, Component] | None:
    """Versions and commits by the labels, sorted by name; None for an image that Graft did not make."""
    if "dev.graft.recipe" not in labels:
        return None
    prefix, ending = "dev.graft.component.", ".version"
    names = sorted(n[len(prefix) : -len(ending)] for n in labels if n.startswith(prefix) and n.endswith(ending))
    return {
        name: Component(labels[f"{prefix}{name}{ending}"], labels.get(f"{prefix}{name}.commit"), "", "")
        for name in names
    }


def layers_of(config: Mapping[str, Any], sizes: Sequence[int]) -> tuple[Layer, ...]:
    """The layers, lowest first; sizes: bytes of each as it is compressed. Raises RegistryFailed."""
    digests = (config.get("rootfs") or {}).get("diff_ids") or []
    if len(digests) != len(sizes):
        raise RegistryFailed(f"the configuration names {len(digests)} layers, the manifest {len(sizes)}")
    steps = [str(s.get("created_by", "")) for s in config.get("history") or () if not s.get("empty_layer")]
    said = said_of(steps) if len(steps) == len(sizes) else [f"layer {n}" for n in range(1, len(sizes) + 1)]
    return tuple(Layer(d, size, words) for d, size, words in zip(digests, sizes, said, strict=True))


def _lock(registry: Registry, found: Resolved, where: str, notes: list[str]) -> Lock | None:
    """The attached lock, held to the digest in the image's label."""
    try:
        data = attached(registry, found.document.digest, "lock")
    except RegistryFailed as problem:
        notes.append(f"its packages are not known: it {problem.what}")
        return None
    lock = validate(parse(data, Path(where)), Lock)
    if f"sha256:{digest_of(plain(lock))}" != found.labels.get("dev.graft.lock"):
        raise RegistryFailed("the attached lock is not the one of the image's label", where=where)
    return lock


def _operators(registry: Registry, found: Resolved, notes: list[str]) -> dict[str, tuple[str, ...]] | None:
    """What the attached receipt says of this very image."""
    try:
        receipt = parse_receipt(attached(registry, found.document.digest, "receipt"), "receipt")
        if receipt.image_id != found.image_id:
            raise RegistryFailed("has the receipt of another image attached")
        return found_operators(receipt)
    except (BadInput, RegistryFailed, GateFailed) as problem:
        notes.append(f"its operators are not known: {problem.what}")
        return None
