"""The wheels of components alone: what is compiled is stored before an image is made of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graft.build.command import command_of, run, secrets_of
from graft.console import Console
from graft.plan import Plan
from graft.render import Rendered

#: Beside the image's Dockerfile: with the stage that takes the wheels out.
COMPONENTS_FILE = "Dockerfile.components"
#: Where images/scripts/buildrun.py has ccache put what other machines may have.
NEW = "/ccache-new"
#: Below what the build gives back; no component can have this name.
ENTRIES = ".ccache"


def build_components(
    folder: Path,
    rendered: Rendered,
    plan: Plan,
    docker: Path,
    env: Mapping[str, str],
    names: Sequence[str],
    console: Console,
    log: Path,
    *,
    jobs: Mapping[str, int] | None = None,
    built: Collection[str] = (),
    shared: Mapping[str, bool] | None = None,
) -> str:
    """Build the wheels of components, at once where they do not need each other; returns the folder with one for each.

    The Dockerfile is the image's with one stage more, which no image holds.
    jobs: component -> compiler processes at once; what is not in it takes what cores and free memory allow there.
    shared: where machines share their compile cache, component -> whether `shared_context` has entries for it. What
    the build has for the others is then in `new_entries`.
    Raises as `build_target` does, and OutOfMemory when compilers were killed for it.
    """
    sharing = [name for name in names if name in (shared or {})]
    text = f"{rendered.text}\nFROM scratch AS components\n{_copies(names, sharing)}"
    (folder / COMPONENTS_FILE).write_text(text, encoding="utf-8")
    brought = [name for name, has in (shared or {}).items() if has]
    replaced = [f"built-{name}" for name in built] + [shared_context(folder, name).name for name in brought]
    secrets = secrets_of(plan, folder, jobs or {}, sharing)
    command = command_of(plan, rendered, folder, docker, "components", secrets, replaced=replaced)
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    run(replace(command, dockerfile=folder / COMPONENTS_FILE, output=out), env, console, log, jobs or {})
    return str(out)


def shared_context(folder: Path, name: str) -> Path:
    """The context that takes the place of the empty stage with what ccache may read for a component."""
    return folder / f"ccache-{name}"


def new_entries(out: Path, name: str) -> Path:
    """Where the entries lie that the build of a component has for other machines; absent when there is none."""
    return out / ENTRIES / name


def _copies(names: Iterable[str], sharing: Iterable[str]) -> str:
    wheels = [f"COPY --from=built-{name} / /{name}/\n" for name in names]
    # The pattern fits nothing where a step of an earlier build shared nothing; the name alone would be an error.
    entries = [f"COPY --from=build-{name} {NEW}* /{ENTRIES}/{name}/\n" for name in sharing]
    return "".join([*wheels, *entries])
