"""The Dockerfile of a plan, from images/Dockerfile.j2.

The templates name stages and contexts through functions, so that a name which nobody declared, or one that
nobody uses, is an error here and not a pull of that name from a registry.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError

from graft.errors import BadInput
from graft.paths import Paths
from graft.plan import Plan
from graft.unlocked import UnlockedPlan


@dataclass(frozen=True)
class Rendered:
    """A Dockerfile, the named contexts it uses, and the scripts it mounts."""

    text: str
    contexts: tuple[str, ...]
    scripts: tuple[str, ...]


def render(paths: Paths, plan: Plan | UnlockedPlan) -> Rendered:
    """Render the plan's Dockerfile.

    Raises BadInput for a template that is wrong, naming its file and line, and for names that do not fit.
    """
    names = _Names(contexts_of(plan))
    environment, current = _environment(paths.images)
    current.names, environment.globals["plan"] = names, plan
    try:
        text = environment.get_template("Dockerfile.j2").render()
    except TemplateSyntaxError as problem:
        where = f"images/{problem.name}:{problem.lineno}"
        raise BadInput(f"template error: {problem.message}", where=where) from problem
    except TemplateError as problem:
        raise BadInput(f"template error: {problem}", where="images/") from problem
    names.check(paths)
    return Rendered(text.rstrip("\n") + "\n", tuple(sorted(names.used)), tuple(sorted(names.scripts)))


class _Current:
    """The names of the rendering that goes on: templates are compiled once, and keep the functions they saw."""

    names: _Names


@functools.lru_cache(maxsize=4)
def _environment(images: Path) -> tuple[Environment, _Current]:
    current = _Current()
    environment = Environment(
        loader=FileSystemLoader(images),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals.update(
        context=lambda name: current.names.context(name),
        stage=lambda name: current.names.stage(name),
        use=lambda name: current.names.use(name),
        script_file=lambda name: current.names.script(name),
    )
    environment.filters["quoted"] = quoted
    return environment, current


def contexts_of(plan: Plan | UnlockedPlan) -> tuple[str, ...]:
    """The named contexts that a plan's Dockerfile must use, all of them."""
    if isinstance(plan, UnlockedPlan):
        return plan.contexts
    contexts = ["tools", "scripts", "smoke-tests"]
    if plan.builds or plan.overlays:
        contexts.append("builder-debs")
    contexts += [layer.context for layer in plan.layers]
    if plan.builds:
        contexts.append(plan.build_wheels.context)
    if "build-flashinfer-aot" in (stage for build in plan.builds for stage in build.stages):
        contexts.append("fatbin")
    for build in (*plan.sources, *plan.builds):
        contexts.append(build.context)
        if build.patched:
            contexts.append(f"patches-{build.name}")
    for overlay in plan.overlays:
        contexts.append(f"patches-{overlay.name}")
    return tuple(contexts)


def quoted(value: str) -> str:
    """A label's value as a Dockerfile word; `$` would be expanded."""
    return json.dumps(value, ensure_ascii=False).replace("$", "\\$")


class _Names:
    """Stages and contexts of one rendering: declared before used, used once declared."""

    def __init__(self, declared: tuple[str, ...]) -> None:
        self._declared = declared
        self._stages: dict[str, bool] = {}
        self.used: set[str] = set()
        self.scripts: set[str] = set()

    def context(self, name: str) -> str:
        if name not in self._declared:
            raise BadInput(f"the templates use context {name!r}, which nothing declares", where="images/stages")
        self.used.add(name)
        return name

    def stage(self, name: str) -> str:
        if name in self._stages or name in self._declared:
            raise BadInput(f"the name {name!r} is declared twice", where="images/stages")
        self._stages[name] = False
        return name

    def use(self, name: str) -> str:
        if name not in self._stages:
            raise BadInput(f"stage {name!r} is used before it is declared", where="images/stages")
        self._stages[name] = True
        return name

    def script(self, name: str) -> str:
        self.scripts.add(name)
        return name

    def check(self, paths: Paths) -> None:
        unused = [name for name in self._declared if name not in self.used]
        unused += [name for name, used in self._stages.items() if not used and name != "smoke"]
        if unused:
            raise BadInput(f"declared and never used: {', '.join(unused)}", where="images/stages")
        absent = [name for name in sorted(self.scripts) if not (paths.scripts / name).is_file()]
        if absent:
            raise BadInput(f"no such script: {', '.join(absent)}", where="images/scripts")
