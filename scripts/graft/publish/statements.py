"""What an image is made of, for other people's tools: CycloneDX 1.6 and an in-toto statement with SLSA provenance.

Pure: from the plan and the patches alone, without a time of its own, so that a second push writes the same bytes.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from graft import __version__
from graft.apt import DebPin
from graft.lock import FilePin
from graft.patchset import Patch
from graft.plan import Plan

#: Of our serial numbers; made once, by chance.
NAMESPACE = uuid.UUID("6f1b7a2e-52c4-4f0c-9a5e-0d6c1c9a7f3b")
BUILD_TYPE = "https://graft.dev/build/v1"
#: The record's `upstream` in CycloneDX's words.
PATCH_TYPES = {"backport": "backport", "submitted": "cherry-pick"}


def sbom(planned: Plan, image_id: str, digest: str, patches: Mapping[str, Sequence[Patch]]) -> bytes:
    """The bill of material. patches: component -> those in this image, in order."""
    root = f"image:{image_id}"
    by_distribution = {planned.recipe.components[name].distribution: (name, chosen) for name, chosen in patches.items()}
    components = []
    for pin in python_files(planned):
        entry = _python(pin)
        if pin.name in by_distribution:
            name, chosen = by_distribution[pin.name]
            entry["pedigree"] = _pedigree(planned, name, chosen)
        components.append(entry)
    components += [_debian(pin, planned.lock.base.suite) for pin in debian_packages(planned)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": f"{planned.lock.date}T00:00:00Z",
            "tools": {"components": [{"type": "application", "name": "graft", "version": __version__}]},
            "component": {
                "type": "container",
                "bom-ref": root,
                "name": f"{planned.recipe.recipe}-{planned.arch.name}",
                "version": planned.image.short,
                "description": planned.recipe.summary,
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
                "properties": [
                    {"name": "dev.graft.key", "value": planned.image.key},
                    {"name": "dev.graft.lock", "value": f"sha256:{planned.lock.digest}"},
                    {"name": "dev.graft.image-id", "value": image_id},
                ],
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [entry["bom-ref"] for entry in components]}],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def provenance(planned: Plan, repository: str, digest: str, started: str) -> bytes:
    """What was built from what, as an in-toto statement. started: of the gate's run, UTC."""
    materials: list[FilePin | DebPin] = [*python_files(planned), *planned.lock.base.packages]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": repository, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"recipe": planned.recipe.recipe, "arch": planned.arch.name},
                "internalParameters": {"key": planned.image.key, "inputs": dict(planned.image.inputs)},
                "resolvedDependencies": [
                    {"name": "lock", "digest": {"sha256": planned.lock.digest}},
                    *(
                        {"uri": _purl(pin, planned.lock.base.suite), "digest": {"sha256": pin.sha256}}
                        for pin in materials
                    ),
                    *(
                        {"name": f"patch:{name}/{pin.id}", "digest": {"sha256": pin.sha256}}
                        for name, entry in planned.patched().items()
                        for pin in entry.patches
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": "https://graft.dev/graft", "version": {"graft": __version__}},
                "metadata": {"invocationId": planned.image.key, "finishedOn": started},
            },
        },
    }
    return (json.dumps(statement, indent=1) + "\n").encode()


def python_files(planned: Plan) -> list[FilePin]:
    """The image's wheels and the sources that components are built from."""
    built = [build.source for build in planned.builds]
    names = {pin.name for pin in built}
    wheels = [pin for pin in planned.lock.image_packages(planned.arch.name) if pin.name not in names]
    return sorted([*wheels, *built], key=lambda pin: (pin.name, pin.file))


def debian_packages(planned: Plan) -> list[DebPin]:
    """The base's packages that are in the image."""
    return [pin for pin in planned.lock.base.packages if pin.set == "runtime"]


def _purl(pin: FilePin | DebPin, suite: str) -> str:
    """A package URL."""
    version = quote(pin.version, safe=".-")
    if isinstance(pin, DebPin):
        return f"pkg:deb/debian/{quote(pin.name, safe='')}@{version}?arch={pin.architecture}&distro={suite}"
    return f"pkg:pypi/{pin.name}@{version}?file_name={quote(pin.file, safe='')}"


def _component(pin: FilePin | DebPin, suite: str) -> dict[str, Any]:
    purl = _purl(pin, suite)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": pin.name,
        "version": pin.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": pin.sha256}],
    }


def _python(pin: FilePin) -> dict[str, Any]:
    return _component(pin, "")


def _debian(pin: DebPin, suite: str) -> dict[str, Any]:
    return _component(pin, suite)


def _pedigree(planned: Plan, component: str, patches: Sequence[Patch]) -> dict[str, Any]:
    """Where a patched component comes from: its commit, and each patch with its bytes, reason and origin."""
    pinned = planned.recipe.components[component]
    found: dict[str, Any] = {
        "patches": [
            {
                "type": PATCH_TYPES.get(patch.record.upstream, "unofficial"),
                "diff": {
                    "text": {
                        "contentType": "text/x-diff",
                        "encoding": "base64",
                        "content": base64.b64encode(patch.data).decode(),
                    }
                },
                "resolves": [
                    {
                        "type": "defect",
                        "id": f"{component}/{patch.id}",
                        "name": patch.record.title,
                        "description": patch.record.reason,
                        "source": {"url": patch.record.origin},
                    }
                ],
            }
            for patch in patches
        ],
        "notes": f"upstream {pinned.version}, patched by Graft",
    }
    commit = pinned.git.commit if pinned.git is not None else pinned.commit
    if commit is not None:
        found["commits"] = [{"uid": commit}]
    return found
