"""What an image says of itself is enough to plan it again, key and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft import metadata
from graft.commands.session import make_plan, open_session
from graft.console import Console
from graft.errors import BadInput
from graft.paths import Paths
from graft.plan import Plan
from graft.render import render

ROOT = Path(__file__).parents[2]
PATHS = Paths(ROOT)


def planned(arch: str = "sm90") -> Plan:
    return make_plan(open_session(PATHS, Console(), recipe="glm-dsa", arch=arch))


def recorded(plan: Plan) -> dict[str, bytes]:
    return metadata.files(PATHS, plan, render(PATHS, plan).text)


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
def test_an_image_alone_gives_the_same_plan_and_the_same_files_again(arch: str) -> None:
    plan = planned(arch)
    found = recorded(plan)
    assert "images/scripts/rootfs-finish.sh" in found, "the base is made on the host, by scripts too"
    other = plan.project.model_copy(update={"recipe": "none", "repository": "other", "builds": {}, "groups": {}})
    again = metadata.plan_of(found, other, "image")
    assert again.image.inputs == plan.image.inputs
    assert again.labels() == plan.labels()
    assert metadata.files(PATHS, again, render(PATHS, again).text) == found


def test_a_template_that_was_edited_meanwhile_is_refused(tmp_path: Path) -> None:
    plan = planned()
    moved = Paths(tmp_path)
    for source in (ROOT / "patches").rglob("*.patch"):
        target = moved.patches / source.relative_to(ROOT / "patches")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    for name in plan.files:
        target = moved.images / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((PATHS.images / name).read_bytes() + (b" " if name == "stages/base.j2" else b""))
    with pytest.raises(BadInput, match="changed while") as problem:
        metadata.files(moved, plan, "")
    assert problem.value.where == "images/stages/base.j2"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("build.yaml", None, "there is no /usr/share/graft/build.yaml"),
        ("recipe.yaml", None, "there is no /usr/share/graft/recipe.yaml"),
        ("lock.yaml", b"lock: 2\n", "missing key"),
        ("recipe.yaml", b"recipe: glm-dsa\n", "does not fit together"),
        ("images/../../etc/cron.d/x", b"", "a file that Graft does not write: ../../etc/cron.d/x"),
        ("patches/vllm/../x.patch", b"", "a file that Graft does not write"),
    ],
)
def test_an_image_that_does_not_say_it_is_refused(name: str, data: bytes | None, says: str) -> None:
    plan = planned()
    found = recorded(plan)
    found.pop(name, None)
    if data is not None:
        found[name] = data
    with pytest.raises(BadInput) as problem:
        metadata.plan_of(found, plan.project, "image")
    assert says in problem.value.what


def test_a_lock_that_was_edited_in_the_image_is_refused() -> None:
    plan = planned()
    found = recorded(plan)
    found["lock.yaml"] = found["lock.yaml"].replace(b"recipe: glm-dsa", b"recipe: glm-dsb", 1)
    with pytest.raises(BadInput, match="was edited"):
        metadata.plan_of(found, plan.project, "image")
