"""The Dockerfiles of the recipes, whole; `make golden` writes them anew after a wanted change."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from graft.commands.session import any_plan, make_plan, open_session
from graft.console import Console
from graft.paths import Paths
from graft.plan import SCRIPTS_OF
from graft.render import contexts_of, render

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
#: The key is the hash of every file that enters the image; a golden file shows the shape, not the key.
KEY = re.compile(r"[0-9a-f]{64}|(?<=-)[0-9a-f]{12}\b")


REFERENCES = sorted(path.stem for path in (ROOT / "recipes" / "reference").glob("*.yaml"))
LOCKED = ["glm-dsa", "glm-dsa-lmcache"]
RECIPES = [*LOCKED, *REFERENCES]
#: Of a reference recipe the hashes are facts of the recipe; only what depends on Graft's own files is not shown.
OWN_KEY = re.compile(
    r'(?<=-sm120-)[0-9a-f]{12}\b|(?<=dev.graft.key=")[0-9a-f]{64}|(?<=stamp-wheels.py /out )[0-9a-f]{64}'
)


def rendered(arch: str, recipe: str = "glm-dsa") -> str:
    session = open_session(Paths(ROOT), Console(), recipe=recipe, arch=arch)
    return render(session.paths, any_plan(session)).text


@pytest.mark.parametrize(
    ("recipe", "arch"),
    [
        *(("glm-dsa", arch) for arch in ("sm90", "sm100", "sm120")),
        *(("glm-dsa-lmcache", arch) for arch in ("sm90", "sm120")),
        *((r, "sm120") for r in REFERENCES),
    ],
)
def test_dockerfile_is_the_golden_one(recipe: str, arch: str) -> None:
    text = (KEY if recipe in LOCKED else OWN_KEY).sub("KEY", rendered(arch, recipe))
    golden = HERE / f"{recipe}-{arch}.Dockerfile"
    if os.environ.get("GRAFT_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "run `make golden` and look at the difference"


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_run_is_without_network(recipe: str) -> None:
    runs = re.findall(r"^RUN (\S+)", rendered("sm120", recipe), re.MULTILINE)
    assert runs
    assert set(runs) == {"--network=none"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_syntax_directive_and_no_base_to_pull(recipe: str) -> None:
    session = open_session(Paths(ROOT), Console(), recipe=recipe, arch="sm120")
    text = rendered("sm120", recipe)
    assert "# syntax" not in text
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    parents = set(re.findall(r"^FROM (\S+) AS", text, re.MULTILINE))
    copied = set(re.findall(r"^COPY --from=(\S+)", text, re.MULTILINE))
    mounted = set(re.findall(r"type=bind,from=([^,]+)", text))
    contexts = set(contexts_of(any_plan(session)))
    assert parents | copied | mounted <= stages | contexts | {"scratch"}
    assert contexts - {"base-image"} <= copied | mounted


@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_that_changes_between_builds_stands_above_a_compile(recipe: str) -> None:
    text = rendered("sm120", recipe)
    assert not re.search(r"^ARG ", text, re.MULTILINE)
    assert text.index("LABEL ") > text.rindex("\nRUN ")


@pytest.mark.parametrize("recipe", RECIPES)
def test_keys_know_the_scripts_that_the_stages_mount(recipe: str) -> None:
    arch = "sm90" if recipe == "glm-dsa" else "sm120"
    session = open_session(Paths(ROOT), Console(), recipe=recipe, arch=arch)
    mounted = set(render(session.paths, any_plan(session)).scripts)
    used = {stage for stage in SCRIPTS_OF if stage != "base" and f"/{stage}.j2" in included(recipe, arch)}
    known = {script for stage in used for script in SCRIPTS_OF[stage]}
    # A base without Debian packages of its own mounts none of the scripts that install them.
    assert mounted == known if recipe == "glm-dsa" else mounted <= known


def included(recipe: str, arch: str) -> str:
    """The stage files that a rendering takes, one a line."""
    session = open_session(Paths(ROOT), Console(), recipe=recipe, arch=arch)
    planned = any_plan(session)
    names = [planned.base_stage, planned.foundation_stage, "packages", "runtime", "smoke"]
    names += [planned.builder_stage] if planned.needs_builder else []
    names += ["overlay"] if planned.overlays else []
    names += [name for build in (*planned.sources, *planned.builds) for name in build.stages]
    return "".join(f"/{name}.j2\n" for name in names)


@pytest.mark.parametrize("stage", sorted(SCRIPTS_OF))
def test_the_table_of_scripts_is_what_the_stage_names(stage: str) -> None:
    template = (ROOT / "images" / "stages" / f"{stage}.j2").read_text(encoding="utf-8")
    named = set(re.findall(r'script\("([^"]+)"\)', template))
    installs = {"install-wheels.sh"} if re.search(r"\binstall(?:_component)?\(", template) else set()
    assert stage == "base" or named | installs == set(SCRIPTS_OF[stage])


def test_every_stage_file_is_in_the_table_of_scripts() -> None:
    assert {path.stem for path in (ROOT / "images" / "stages").glob("*.j2")} == set(SCRIPTS_OF)


def test_only_sm120_installs_b12x() -> None:
    assert "wheels-b12x" not in rendered("sm90")
    assert "wheels-b12x" in rendered("sm120")


def test_render_prints_the_dockerfile_on_stdout() -> None:
    from graft.commands.show import show_render

    session = open_session(Paths(ROOT), Console(), recipe="glm-dsa", arch="sm90")
    out = io.StringIO()
    with redirect_stdout(out):
        show_render(session)
    assert out.getvalue() == rendered("sm90")
    assert set(contexts_of(make_plan(session))) >= {"wheels-torch", "tools", "smoke-tests"}
