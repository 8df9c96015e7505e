"""The layer that `graft patch onto` puts on an image: built by BuildKit, with nothing else of the image changed.

Everything that exists only while it is made lies in one work folder, named after this process: the next run finds
there what a killed one left on the engine.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graft import proc
from graft.build import BuildCommand, image_id
from graft.engine import Engine
from graft.errors import BadInput, BuildFailed
from graft.gate.containers import is_dead, owner
from graft.hashes import digest_of
from graft.patching import SourceTree
from graft.render import quoted
from graft.store import CHECKED_MTIME
from graft.trial.containers import Put
from graft.trial.probe import Installed
from graft.trial.red_green import sha256
from graft.trial.reference import Base

if TYPE_CHECKING:
    from docker import DockerClient

#: FROM takes an image id for a name: the base gets one of its own for the time of the build.
BASE_NAME = "graft-onto-base"
SCRIPTS = ("apply-onto.py", "overlay-wheel.py")
CONFIG = (
    *("Env", "User", "WorkingDir", "Entrypoint", "Cmd", "Shell"),
    *("ExposedPorts", "Volumes", "Healthcheck", "StopSignal"),
)


@dataclass(frozen=True)
class Layer:
    """What is put over an image.

    files: path below site-packages -> (the file as it is there, as it will be). tree: the pristine files by their path
    in the source; places: that path -> below site-packages.
    """

    base: Base
    installed: Installed
    files: Mapping[str, tuple[Put, Put]]
    labels: Mapping[str, str]
    tree: SourceTree
    places: Mapping[str, str]

    @property
    def user(self) -> str:
        return str(self.base.attrs["Config"].get("User") or "")

    @property
    def epoch(self) -> int:
        """When the base was made, in seconds since 1970: the layer is newer than its files, and always the same."""
        text = str(self.base.attrs.get("Created") or "")
        try:
            made = datetime.datetime.fromisoformat(text[:19] + "+00:00").timestamp()
        except ValueError:
            made = 0.0
        return int(made) + 1 if made > CHECKED_MTIME else CHECKED_MTIME

    def dockerfile(self, base: str) -> str:
        """The image's own Python does all in one RUN in exec form: it may have no shell."""
        words = [self.installed.executable, "-I", "-B", "/run/graft/apply-onto.py", "/run/graft/job.json"]
        run = f"RUN --network=none --mount=type=bind,from=layer,target=/run/graft {json.dumps(words)}"
        lines = [f"FROM {base} AS onto"]
        if self.user:
            lines += ["USER 0", run, f"USER {quoted(self.user)}"]
        else:
            lines.append(run)
        lines.append(" ".join(["LABEL", *(f"{name}={quoted(value)}" for name, value in sorted(self.labels.items()))]))
        return "".join(f"{line}\n" for line in lines)

    def job(self) -> dict[str, Any]:
        """What images/scripts/apply-onto.py reads."""
        return {
            "root": self.installed.root,
            "record": self.installed.record,
            "time": self.epoch,
            "files": {
                path: {"before": _digest(before), "after": _digest(after), "executable": after.executable}
                for path, (before, after) in sorted(self.files.items())
            },
        }


def check_base(base: Base) -> None:
    """Raises BadInput for an image on which nothing can be built as it is."""
    config = base.attrs["Config"]
    if config.get("OnBuild"):
        raise BadInput("the image has ONBUILD triggers, which would run in the layer", where=base.id)
    if not base.attrs.get("RepoTags") and not base.attrs.get("RepoDigests"):
        # It gets a name for the build; taking the only name away would remove the image itself.
        raise BadInput("the image has no name", where=base.id, cure=f"docker tag {base.id[7:19]} NAME")


@contextlib.contextmanager
def work_folder(contexts: Path, client: DockerClient) -> Iterator[Path]:
    """A folder of this run; gone at the end with all that it says is on the engine, as is that of a killed run."""
    contexts.mkdir(parents=True, exist_ok=True)
    for left in contexts.glob("onto-*"):
        if is_dead(left.name.removeprefix("onto-")):
            _clear(left, client)
    folder = contexts / f"onto-{owner()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        _clear(folder, client)


def build_layer(layer: Layer, folder: Path, scripts: Path, engine: Engine, client: DockerClient, log: Path) -> str:
    """Build; the id of the candidate, which has no name. Raises BuildFailed, also when the image changed otherwise."""
    from docker.errors import APIError

    main, context = folder / "main", folder / "layer"
    main.mkdir()
    for path, (_, after) in layer.files.items():
        assert after.data is not None
        _write(context / "files" / path, after.data)
    for name in SCRIPTS:
        _write(context / name, (scripts / name).read_bytes())
    _write(context / "job.json", json.dumps(layer.job(), sort_keys=True).encode())
    base = f"{BASE_NAME}:{folder.name.removeprefix('onto-')}"
    _write(folder / "Dockerfile", layer.dockerfile(base).encode())
    command = BuildCommand(
        engine.docker,
        folder / "Dockerfile",
        main,
        {"layer": context},
        "onto",
        layer.epoch,
        folder / "candidate.json",
        {},
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        client.images.get(layer.base.id).tag(BASE_NAME, tag=base.partition(":")[2])
    except APIError as problem:
        raise BuildFailed(f"the engine does not name the image: {problem}", where=layer.base.id) from problem
    done = proc.run(command.argv, env=engine.env(), log=log, check=False, what="build of the layer")
    if done.rc != 0:
        tail = "\n".join(done.stderr.splitlines()[-proc.TAIL_LINES :])
        raise BuildFailed("the layer could not be built", where=str(log), tail=tail)
    made = image_id(command.metadata)
    check_same(layer, client.images.get(made).attrs)
    return made


def check_same(layer: Layer, made: Mapping[str, Any]) -> None:
    """Raises BuildFailed unless the image is the base, one layer and our labels, and else configured as the base."""
    base = layer.base.attrs
    below, layers = base["RootFS"]["Layers"], made["RootFS"]["Layers"]
    if layers[: len(below)] != below or len(layers) != len(below) + 1:
        raise BuildFailed("what was built is not the image and one layer", where=layer.base.id)
    wanted = {**base["Config"], "Labels": {**(base["Config"].get("Labels") or {}), **layer.labels}}
    for name in (*CONFIG, "Labels"):
        if (made["Config"].get(name) or None) != (wanted.get(name) or None):
            raise BuildFailed(
                f"{name} of the image would become {made['Config'].get(name)}, it is {wanted.get(name)}",
                where=layer.base.id,
            )


def onto_key(facts: Mapping[str, Any], scripts: Path) -> str:
    """The key of a patched image: all that decides its bytes, known before anything is looked at in a container."""
    return digest_of({"format": 1, **facts, "scripts": {n: sha256((scripts / n).read_bytes()) for n in SCRIPTS}})


def _digest(put: Put) -> str | None:
    return None if put.data is None else sha256(put.data)


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _clear(folder: Path, client: DockerClient) -> None:
    """Take the base's name away, the candidate unless it has got a name, and the folder."""
    from docker.errors import APIError, ImageNotFound

    with contextlib.suppress(ImageNotFound):
        client.api.remove_image(f"{BASE_NAME}:{folder.name.removeprefix('onto-')}", noprune=True)
    candidate = folder / "candidate.json"
    if candidate.is_file():
        # 409: it is used by a container that somebody else started, or has more than one name.
        with contextlib.suppress(APIError):
            made = client.images.get(image_id(candidate))
            if not made.tags:
                client.api.remove_image(str(made.id), noprune=True)
    shutil.rmtree(folder, ignore_errors=True)
