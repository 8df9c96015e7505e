"""The Dockerfiles of the default recipe, whole; `make golden` writes them anew after a wanted change."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from graft.commands.session import make_plan, open_session
from graft.console import Console
from graft.paths import Paths
from graft.plan import SCRIPTS_OF
from graft.render import contexts_of, render

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
#: The key is the hash of every file that enters the image; a golden file shows the shape, not the key.
KEY = re.compile(r"[0-9a-f]{64}|(?<=-)[0-9a-f]{12}\b")


def rendered(arch: str) -> str:
    session = open_session(Paths(ROOT), Console(), recipe="glm-dsa", arch=arch)
    return render(session.paths, make_plan(session)).text


@pytest.mark.parametrize("arch", ["sm90", "sm100", "sm120"])
def test_dockerfile_is_the_golden_one(arch: str) -> None:
    text = KEY.sub("KEY", rendered(arch))
    golden = HERE / f"glm-dsa-{arch}.Dockerfile"
    if os.environ.get("GRAFT_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "run `make golden` and look at the difference"


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
def test_every_run_is_without_network(arch: str) -> None:
    runs = re.findall(r"^RUN (\S+)", rendered(arch), re.MULTILINE)
    assert runs
    assert set(runs) == {"--network=none"}


def test_no_syntax_directive_and_no_base_to_pull() -> None:
    text = rendered("sm90")
    assert "# syntax" not in text
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    parents = set(re.findall(r"^FROM (\S+) AS", text, re.MULTILINE))
    assert parents <= stages | {"scratch"}


def test_keys_know_the_scripts_that_the_stages_mount() -> None:
    session = open_session(Paths(ROOT), Console(), recipe="glm-dsa", arch="sm90")
    mounted = set(render(session.paths, make_plan(session)).scripts)
    known = {script for stage, scripts in SCRIPTS_OF.items() if stage != "base" for script in scripts}
    assert mounted == known
    for stage, scripts in SCRIPTS_OF.items():
        template = (ROOT / "images" / "stages" / f"{stage}.j2").read_text(encoding="utf-8")
        named = set(re.findall(r'script\("([^"]+)"\)', template))
        installs = {"install-wheels.sh"} if "install(" in template.replace("import install", "") else set()
        assert stage == "base" or named | installs == set(scripts), stage


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
    assert set(contexts_of(make_plan(session))) >= {"wheels-torch", "tools", "metadata"}
