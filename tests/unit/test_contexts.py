"""Build contexts: what BuildKit sees of an edit, and what the image says of itself."""

from __future__ import annotations

from pathlib import Path

from factories import make_plan

from graft import build, metadata
from graft.render import Rendered
from graft.store import CHECKED_MTIME


def test_an_edit_that_keeps_the_size_has_another_time(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("one", "same", "other")}
    for name, data in (("one", b"1"), ("same", b"1"), ("other", b"2")):
        build._bytes(files[name], data)
    times = {name: file.stat().st_mtime_ns for name, file in files.items()}
    assert times["one"] == times["same"] != times["other"]
    assert {time // 1_000_000_000 for time in times.values()} == {CHECKED_MTIME}, "layers hold whole seconds"


def test_the_recipe_in_the_image_changes_only_with_the_key() -> None:
    def gate_only(data: dict[str, object]) -> None:
        data["smoke"] = ["core", "files"]
        data["waivers"] = [{"check": "files", "file": "a.py", "reason": "known", "until": "later"}]

    plain, other = make_plan(), make_plan(recipe=gate_only)
    assert plain.image.key == other.image.key
    assert metadata.recipe_facts(plain) == metadata.recipe_facts(other)
    changed = make_plan(recipe=lambda data: data["env"].update(MORE="1"))
    assert changed.image.key != plain.image.key
    assert metadata.recipe_facts(changed) != metadata.recipe_facts(plain)


def test_the_compilers_are_bounded_by_secrets_and_not_by_the_key(tmp_path: Path) -> None:
    plan = make_plan()
    assert {name: file.read_text() for name, file in build._secrets(plan, tmp_path, {}).items()} == {
        "graft-job-gb-flashinfer-aot": "4"
    }
    files = build._secrets(plan, tmp_path, {"flashinfer": 3})
    assert files["graft-jobs-flashinfer"].read_text() == "3"
    words = build._command(plan, Rendered("", (), ()), tmp_path, Path("docker"), "runtime", files).argv
    assert f"id=graft-jobs-flashinfer,src={tmp_path}/graft-jobs-flashinfer" in words
    assert f"id=graft-job-gb-flashinfer-aot,src={tmp_path}/graft-job-gb-flashinfer-aot" in words
