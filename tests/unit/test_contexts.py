"""Build contexts: what BuildKit sees of an edit, and what the image says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_plan

from graft import build, metadata
from graft.build.command import secrets_of
from graft.build.contexts import _bytes
from graft.console import Console
from graft.render import Rendered
from graft.store import CHECKED_MTIME


def test_an_edit_that_keeps_the_size_has_another_time(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("one", "same", "other")}
    for name, data in (("one", b"1"), ("same", b"1"), ("other", b"2")):
        _bytes(files[name], data)
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
    assert {name: file.read_text() for name, file in secrets_of(plan, tmp_path, {}).items()} == {
        "graft-job-gb-flashinfer-aot": "4"
    }
    files = secrets_of(plan, tmp_path, {"flashinfer": 3})
    assert files["graft-jobs-flashinfer"].read_text() == "3"
    words = build.command_of(plan, Rendered("", (), ()), tmp_path, Path("docker"), "runtime", files).argv
    assert f"id=graft-jobs-flashinfer,src={tmp_path}/graft-jobs-flashinfer" in words
    assert f"id=graft-job-gb-flashinfer-aot,src={tmp_path}/graft-job-gb-flashinfer-aot" in words


def test_a_shared_cache_is_a_context_a_secret_and_one_more_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Dockerfile that the image holds is the same; only the one that takes wheels out differs."""
    commands: list[build.BuildCommand] = []
    monkeypatch.setattr("graft.build.components.run", lambda command, *rest: commands.append(command))
    plan, rendered = make_plan(), Rendered("FROM scratch\n", (), ())

    def compile_with(shared: dict[str, bool] | None) -> tuple[str, str]:
        out = build.build_components(
            tmp_path, rendered, plan, Path("docker"), {}, ["flashinfer"], Console(), tmp_path / "log", shared=shared
        )
        assert build.new_entries(Path(out), "flashinfer") == tmp_path / "out/.ccache/flashinfer"
        return commands[-1].dockerfile.read_text(), " ".join(commands[-1].argv)

    text, words = compile_with(None)
    assert "ccache" not in text + words
    copied = text + "COPY --from=build-flashinfer /ccache-new* /.ccache/flashinfer/\n"
    for shared in ({"flashinfer": False}, {"flashinfer": True}):
        text, words = compile_with(shared)
        assert text == copied
        assert f"id=graft-ccache-flashinfer,src={tmp_path}/graft-ccache-flashinfer" in words
        assert (f"--build-context ccache-flashinfer={tmp_path}/ccache-flashinfer" in words) == shared["flashinfer"]
