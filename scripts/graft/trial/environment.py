"""The image that patches are tried in: any that was built of the same environment, whatever patches it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graft.errors import BadInput
from graft.plan import Plan
from graft.trial.containers import Job, Trials
from graft.trial.onto import KEY_LABEL

if TYPE_CHECKING:
    from docker import DockerClient

MANIFEST = "/usr/share/graft/manifest.json"


def find_image(client: DockerClient, planned: Plan) -> str:
    """The id of the newest image of the plan's environment, by its labels. Raises BadInput when there is none.

    Tagged by Graft, or without a tag (a candidate whose gate was red); not what somebody made from one.
    """
    wanted = {
        "dev.graft.recipe": planned.recipe.recipe,
        "dev.graft.arch": planned.arch.name,
        "dev.graft.environment": f"sha256:{planned.environment.key}",
    }
    labels = [f"{name}={value}" for name, value in wanted.items()]
    found = [image.attrs for image in client.images.list(filters={"label": labels})]
    own = [attrs for attrs in found if is_own(attrs, planned.project.repository)]
    if not own:
        raise BadInput(
            f"no image of {planned.recipe.recipe} for {planned.arch.name} with the environment of its lock is on "
            "this engine, and patches are tried in one",
            cure=f"make image ARCH={planned.arch.name} RECIPE={planned.recipe.recipe} "
            "(an image of an older Graft does not say what its environment is; it is built anew from the cache)",
        )
    return str(max(own, key=lambda attrs: (bool(attrs.get("RepoTags")), attrs.get("Created", "")))["Id"])


def is_own(attrs: Mapping[str, Any], repository: str) -> bool:
    """Whether Graft built this image, and nobody built on it."""
    labels = attrs["Config"].get("Labels") or {}
    if KEY_LABEL in labels:
        return False
    tags = attrs.get("RepoTags") or []
    return not tags or f"{repository}:{labels.get('org.opencontainers.image.version')}" in tags


def patched_files(containers: Trials, image: str) -> list[str]:
    """The files, below site-packages, that are not pristine in an image. Raises BadInput."""
    made = containers.make(Job("manifest", image, ("true",), {}, 0.0))
    try:
        read = containers.read(made, MANIFEST)
    finally:
        containers.remove(made)
    try:
        return sorted(json.loads(read["manifest.json"])["files"])
    except (KeyError, ValueError, TypeError):
        raise BadInput(f"{MANIFEST} of image {image[7:19]} cannot be read", cure="make image") from None
