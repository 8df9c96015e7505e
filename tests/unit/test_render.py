"""Rendering: names are declared, used and unique, and values are quoted."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_plan

from graft.commands.session import image_sources
from graft.errors import BadInput
from graft.paths import Paths
from graft.render import contexts_of, quoted, render

STAGES = 'FROM scratch AS {{ stage("base") }}\nFROM {{ use("base") }} AS {{ stage("smoke") }}\n'


def write(root: Path, dockerfile: str, uses: str | None = None) -> Paths:
    """A project whose templates are this Dockerfile and a use of every context."""
    paths = Paths(root)
    (paths.images / "stages").mkdir(parents=True, exist_ok=True)
    paths.scripts.mkdir(exist_ok=True)
    every = "".join(f'{{{{ context("{name}") }}}}\n' for name in contexts_of(make_plan()))
    (paths.images / "stages/all.j2").write_text(every if uses is None else uses)
    (paths.images / "Dockerfile.j2").write_text(dockerfile + '{% include "stages/all.j2" %}\n')
    return paths


def refused(paths: Paths) -> BadInput:
    with pytest.raises(BadInput) as caught:
        render(paths, make_plan())
    assert caught.value.exit_code == 2
    assert str(caught.value.where).startswith("images/")
    return caught.value


def test_names_that_fit_are_rendered(tmp_path: Path) -> None:
    paths = write(tmp_path, STAGES + 'RUN {{ script_file("a.sh") }}\n')
    (paths.scripts / "a.sh").touch()
    made = render(paths, make_plan())
    assert made.text.startswith("FROM scratch AS base\nFROM base AS smoke\nRUN a.sh\n")
    assert made.text.endswith("\n")
    assert not made.text.endswith("\n\n")
    assert made.contexts == tuple(sorted(contexts_of(make_plan())))
    assert made.scripts == ("a.sh",)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ('{{ context("nobody") }}\n', "the templates use context 'nobody', which nothing declares"),
        ('FROM {{ use("later") }}\n', "stage 'later' is used before it is declared"),
        ('FROM x AS {{ stage("base") }}\n', "the name 'base' is declared twice"),
        ('FROM x AS {{ stage("tools") }}\n', "the name 'tools' is declared twice"),
        ('FROM x AS {{ stage("idle") }}\n', "declared and never used: idle"),
        ('{{ script_file("gone.sh") }}\n', "no such script: gone.sh"),
        ("{{ nothing }}\n", "template error: 'nothing' is undefined"),
        ("{{ plan.nothing }}\n", "has no attribute 'nothing'"),
        ('{% include "stages/gone.j2" %}\n', "template error: stages/gone.j2"),
    ],
)
def test_a_name_that_does_not_fit_is_refused(tmp_path: Path, extra: str, says: str) -> None:
    problem = refused(write(tmp_path, STAGES + extra))
    assert says in f"{problem.what}".replace("'stages/gone.j2' not found in search path", "stages/gone.j2")


def test_a_declared_context_that_no_stage_uses_is_refused(tmp_path: Path) -> None:
    assert refused(write(tmp_path, STAGES, uses="")).what.startswith("declared and never used: tools, ")


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    problem = refused(write(tmp_path, STAGES, uses="a\n{% if %}\n"))
    assert problem.where == "images/stages/all.j2:2"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain words", '"plain words"'),
        ('a "b"', r'"a \"b\""'),
        ("$HOME ${X} $(id)", r'"\$HOME \${X} \$(id)"'),
        ("a\\b", r'"a\\b"'),
        ("ünïcode", '"ünïcode"'),
    ],
)
def test_a_labels_value_is_one_word_that_expands_to_itself(value: str, word: str) -> None:
    assert quoted(value) == word


def test_contexts_follow_the_plan() -> None:
    contexts = contexts_of(make_plan("sm120"))
    assert {"wheels-cuda", "wheels-torch", "wheels-b12x", "patches-flashinfer", "patches-vllm"} <= set(contexts)
    assert "wheels-b12x" not in contexts_of(make_plan("sm90"))
    assert len(contexts) == len(set(contexts))


def test_sources_are_hashes_of_the_files_that_make_images(tmp_path: Path) -> None:
    paths = write(tmp_path, STAGES)
    before = image_sources(paths)
    assert set(before.templates) == {"Dockerfile.j2", "stages/all.j2"}
    (paths.images / "README").touch()
    assert image_sources(paths) == before
    (paths.scripts / "a.sh").touch()
    after = image_sources(paths)
    assert (set(after.scripts), after.templates) == ({"a.sh"}, before.templates)
    (paths.images / "stages/all.j2").write_text("edited")
    assert image_sources(paths).templates != before.templates
