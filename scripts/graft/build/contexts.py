"""The named contexts of a build: folders of hard links into the store, so they cost no space and keep fixed times."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graft import metadata
from graft.paths import Paths
from graft.plan import SMOKE_FILES, Layer, Plan
from graft.render import Rendered
from graft.store import CHECKED_MTIME, Store


@dataclass(frozen=True)
class Inputs:
    """What the contexts are made from, beside the store.

    pristine: component -> file below site-packages -> original bytes of every file that a patch touches.
    patches:  component -> file name -> bytes of what apply-patches.sh reads.
    """

    rootfs: Path
    builder_debs: Sequence[Path]
    pristine: Mapping[str, Mapping[str, bytes]]
    patches: Mapping[str, Mapping[str, bytes]]


def prepare_contexts(paths: Paths, plan: Plan, rendered: Rendered, store: Store, inputs: Inputs) -> Path:
    """Lay out all contexts of a plan below one folder, replacing what lay there; returns the folder.

    `<folder>/main` is the main context, `<folder>/Dockerfile` the rendered file, everything else a named context.
    """
    folder = paths.contexts / f"{plan.recipe.recipe}-{plan.arch.name}"
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    _link(inputs.rootfs, fresh / "main" / "rootfs.tar")
    for layer in plan.layers:
        _layer(fresh, layer, store)
    if plan.builds:
        _layer(fresh, plan.build_wheels, store)
    if "fatbin" in rendered.contexts:
        for name in ("__init__.py", "fatbin.py"):
            _copy(paths.smoke / "lib" / name, fresh / "fatbin" / name)
    for build in (*plan.sources, *plan.builds):
        _link(store.path(build.source), fresh / build.context / build.source.file)
    for deb in inputs.builder_debs:
        _link(deb, fresh / "builder-debs" / deb.name)
    _tools(fresh, plan, store)
    for script in rendered.scripts:
        _copy(paths.scripts / script, fresh / "scripts" / script)
    for component, files in inputs.patches.items():
        for name, data in files.items():
            _bytes(fresh / f"patches-{component}" / name, data)
    _write(fresh / "Dockerfile", rendered.text)
    described = metadata.files(paths, plan, rendered.text)
    _bytes(fresh / "main" / "metadata.tar", metadata.archive(described))
    _smoke(paths, plan, inputs, fresh / "smoke-tests")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in described.items()}
    _write(fresh / "smoke-tests" / "metadata.json", _json(digests))
    # Times of folders reach layers as well.
    for path in [fresh, *fresh.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
            os.utime(path, (CHECKED_MTIME, CHECKED_MTIME))
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return folder


def place_built(folder: Path, name: str, wheels: Iterable[Path]) -> None:
    """Lay out the wheels of a component as the context that stands in for the stage `built-<name>`."""
    target = folder / f"built-{name}"
    shutil.rmtree(target, ignore_errors=True)
    for wheel in wheels:
        _link(wheel, target / wheel.name)
    target.chmod(0o755)
    os.utime(target, (CHECKED_MTIME, CHECKED_MTIME))


def _layer(folder: Path, layer: Layer, store: Store) -> None:
    target = folder / layer.context
    for package in layer.packages:
        _link(store.path(package), target / package.file)
    lines = [f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in layer.packages]
    _write(target / "requirements.txt", "".join(lines))


def _tools(folder: Path, plan: Plan, store: Store) -> None:
    """uv alone, out of its locked wheel."""
    with zipfile.ZipFile(store.path(plan.lock.tool("uv"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith("/scripts/uv"))
        target = folder / "tools" / "uv"
        target.parent.mkdir(parents=True)
        data = wheel.read(member)
    target.write_bytes(data)
    _stamp(target, data, 0o755)


def _smoke(paths: Paths, plan: Plan, inputs: Inputs, target: Path) -> None:
    for source in sorted(path for pattern in SMOKE_FILES for path in paths.smoke.glob(pattern)):
        _copy(source, target / source.relative_to(paths.smoke))
    facts = plan.facts()
    _write(target / "facts.json", _json(facts))
    for fact in facts["patches"]:
        _copy(paths.patches / fact["component"] / "tests" / Path(fact["test"]).name, target / fact["test"])
    for component, files in inputs.pristine.items():
        for path, data in files.items():
            _bytes(target / "pristine" / component / path, data)


def _json(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)


def _copy(source: Path, target: Path) -> None:
    _bytes(target, source.read_bytes())


def _write(target: Path, text: str) -> None:
    _bytes(target, text.encode())


def _bytes(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    _stamp(target, data)


def _stamp(target: Path, data: bytes, mode: int = 0o644) -> None:
    """A fixed mode, and a time that differs with the content, but only below the second.

    BuildKit sends a file of a context again only when its size or time is another one: with one time for all, it
    would go on with the old bytes after an edit that keeps the size. Layers hold whole seconds.
    """
    target.chmod(mode)
    time = CHECKED_MTIME * 1_000_000_000 + int(hashlib.sha256(data).hexdigest()[:7], 16)
    os.utime(target, ns=(time, time))
