"""/usr/share/graft: what an image says of itself, and the plan that can be made from it again.

Nothing in it that the key does not know: another byte under the same key would move an immutable tag.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from graft.arch import ArchRow, select
from graft.errors import BadInput
from graft.hashes import digest_of
from graft.lock import Lock, lock_text, plain, requirements_text
from graft.operators import OperatorList
from graft.paths import Paths
from graft.plan import ImageSources, Plan, image_env, plan
from graft.project import Base, BuildKind, Project
from graft.recipe import Constraint, Recipe
from graft.store import CHECKED_MTIME
from graft.yamlio import Document, Model, dump, parse, validate

HOME = "/usr/share/graft"
#: Where the templates and scripts that made the image lie below HOME; their names there are those below images/.
IMAGES = "images/"
#: What of a recipe says how its image is tested, not what it is made from.
GATE_FIELDS = ("smoke", "waivers", "size_budget", "profiles")
IMAGE_FILE = re.compile(
    r"Dockerfile\.j2|(?:stages|macros)/[a-z0-9-]+\.j2|scripts/[a-z0-9-]+\.(?:sh|py)|smoke/lib/fatbin\.py"
)
PATCH_FILE = re.compile(r"patches/[a-z0-9][a-z0-9-]*/[a-z0-9]+(?:-[a-z0-9]+)*\.patch")
#: GB for a compiler of a build kind that this project does not know. It changes no byte.
MEMORY_GB = 4


class Facts(Model):
    """build.yaml in an image: what of the project's facts makes it."""

    arches: dict[str, ArchRow]
    bases: dict[str, Base]
    toolkit: list[str]
    groups: dict[str, list[str]]


def files(paths: Paths, plan: Plan, dockerfile: str) -> dict[str, bytes]:
    """The files of /usr/share/graft: with these and the labels the image can be made again.

    Raises BadInput when a template or script was changed since the plan was made.
    """
    texts = {
        "lock.yaml": lock_text(plain(plan.lock)),
        "requirements.txt": requirements_text(plan.lock),
        "recipe.yaml": dump(recipe_facts(plan), "What of the recipe makes this image."),
        "build.yaml": dump(project_facts(plan), "What of build.yaml makes this image."),
        "Dockerfile": dockerfile,
        "manifest.json": _json(plan.manifest()),
        "key.json": _json({"key": plan.image.key, "inputs": dict(plan.image.inputs)}),
    }
    made = {name: text.encode() for name, text in texts.items()}
    made |= {f"patches/{ref}.patch": (paths.patches / f"{ref}.patch").read_bytes() for ref in plan.patch_refs}
    for name, digest in plan.files.items():
        data = made[f"{IMAGES}{name}"] = (paths.images / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            where = paths.relative(paths.images / name)
            raise BadInput("changed while this command ran", where=where, cure="run the same command again")
    return made


def archive(found: Mapping[str, bytes]) -> bytes:
    """The tar that puts the files of an image below HOME; the same files give the same bytes."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        places = {f"{HOME.strip('/')}/{name}": data for name, data in found.items()}
        folders = {str(parent) for place in places for parent in PurePosixPath(place).parents} - {"."}
        for name in sorted({*places, *folders}):
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.uname, entry.gname = CHECKED_MTIME, "root", "root"
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(places[name]), 0o644
                tar.addfile(entry, io.BytesIO(places[name]))
    return sink.getvalue()


def recipe_facts(plan: Plan) -> dict[str, Any]:
    """The recipe without what is the gate's (tests, waivers), another architecture's, or a comment."""
    recipe = plan.recipe
    data = recipe.model_dump(mode="json", include={"recipe", "summary", "base", "cuda", "env"})
    components = recipe.components_on(plan.arch.name)
    data["arch"] = plan.arch.name
    data["components"] = {
        name: c.model_dump(mode="json", exclude_defaults=True, exclude={"allow"}) for name, c in components.items()
    }
    data["constraints"] = sorted(constraint.require for constraint in recipe.constraints)
    data["patches"] = list(plan.patch_refs)
    return data


def project_facts(plan: Plan) -> dict[str, Any]:
    """build.yaml without what changes no byte: addresses, memory, the engine, names, other architectures and bases."""
    base = plan.base.model_dump(mode="json", exclude_defaults=True)
    if "bootstrap" in base:
        base["bootstrap"].pop("snapshot", None)
    there = {package.name for layer in plan.layers for package in layer.packages}
    groups = {name: sorted(there & set(members)) for name, members in plan.project.groups.items()}
    return {
        "arches": {plan.arch.name: plan.arch.row.model_dump(mode="json", exclude_defaults=True)},
        "bases": {plan.recipe.base: base},
        "toolkit": sorted(plan.project.toolkit),
        "groups": {name: members for name, members in groups.items() if members},
    }


def plan_of(
    found: Mapping[str, bytes],
    project: Project,
    where: str,
    gate: Recipe | None = None,
    tests: ImageSources | None = None,
    operators: OperatorList | None = None,
) -> Plan:
    """The plan that the files of an image make again; its key is the image's own when nothing is missing.

    found:   path below /usr/share/graft -> bytes. where: the image, for messages.
    project: this host's: its engine, index, memory and names, none of which changes a byte.
    gate:    a recipe whose smoke tests, waivers and budget are this one's; tests: the hashes of those tests;
             operators: what is recorded for it.
    Raises BadInput for an image that Graft did not make, or that does not hold what it is made from.
    """
    recipe_data = _document(found, "recipe.yaml", where).data
    facts = validate(_document(found, "build.yaml", where), Facts)
    lock = validate(_document(found, "lock.yaml", where), Lock)
    if digest_of(plain(lock)) != lock.digest:
        raise BadInput("the lock in the image was edited: its digest does not fit", where=where)
    try:
        recipe = _recipe(recipe_data, gate)
        host = _project(project, facts, recipe)
        arch = select(host.arches, str(recipe_data["arch"]))
        recorded = operators.of(arch.name) if operators is not None else None
        return plan(host, recipe, lock, arch, image_env(host, recipe, arch), _sources(found, tests), operators=recorded)
    except (ValidationError, KeyError, TypeError, StopIteration) as problem:
        raise BadInput(f"what the image says of itself does not fit together: {problem}", where=where) from None


def image_files(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """The templates and scripts of an image: name below images/ -> bytes."""
    return {name.removeprefix(IMAGES): data for name, data in found.items() if name.startswith(IMAGES)}


def _document(found: Mapping[str, bytes], name: str, where: str) -> Document:
    if name not in found:
        raise BadInput(
            f"the image does not say what it is made from: there is no {HOME}/{name}",
            where=where,
            cure="only images that Graft built can be made again",
        )
    odd = [n for n in image_files(found) if not IMAGE_FILE.fullmatch(n)]
    odd += [n for n in found if n.startswith("patches/") and not PATCH_FILE.fullmatch(n)]
    if odd:
        raise BadInput(f"{HOME} holds a file that Graft does not write: {odd[0]}", where=where)
    return parse(found[name], Path(where) / name)


def _recipe(data: dict[str, Any], gate: Recipe | None) -> Recipe:
    facts = {k: v for k, v in data.items() if k not in ("arch", "constraints")}
    because = "recorded in the image"
    constraints = tuple(Constraint(require=require, because=because) for require in data["constraints"])
    made = Recipe.model_validate({**facts, "arches": (data["arch"],), "constraints": constraints, "smoke": ("core",)})
    if gate is None:
        return made
    return made.model_copy(update={name: getattr(gate, name) for name in GATE_FIELDS})


def _project(project: Project, facts: Facts, recipe: Recipe) -> Project:
    kinds = {c.build for c in recipe.components.values() if c.build is not None}
    unknown = {kind: BuildKind(requires=(), memory_gb=MEMORY_GB) for kind in kinds if kind not in project.builds}
    return project.model_copy(
        update={
            "recipe": recipe.recipe,
            "arch": recipe.arches[0],
            "arches": facts.arches,
            "bases": facts.bases,
            "toolkit": tuple(facts.toolkit),
            "groups": {name: tuple(members) for name, members in facts.groups.items()},
            "builds": {**project.builds, **unknown},
        }
    )


def _sources(found: Mapping[str, bytes], tests: ImageSources | None) -> ImageSources:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in image_files(found).items()}

    def below(prefix: str) -> dict[str, str]:
        return {name.removeprefix(prefix): digest for name, digest in hashes.items() if name.startswith(prefix)}

    templates = {name: digest for name, digest in hashes.items() if name.endswith(".j2")}
    own = below("smoke/")
    smoke = own if tests is None else {**tests.smoke, **own}
    return ImageSources(templates, below("scripts/"), smoke, tests.patch_tests if tests else {})


def _json(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"
