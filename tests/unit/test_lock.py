"""The lock: what is refused, what makes it stale, and that its bytes depend on its content alone."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import pytest
import yaml
from factories import (
    LOCK,
    RECIPE,
    Data,
    Edit,
    edited,
    file_pin,
    make_lock,
    make_project,
    make_recipe,
    package,
    sha,
    write_project,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.errors import BadInput, GraftError, LockStale
from graft.lock import (
    FORMAT,
    check_fresh,
    inputs_of,
    load_lock,
    lock_text,
    plain,
    requirements_text,
    write_atomic,
    write_lock,
)
from graft.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A project with a lock."""
    made = write_project(tmp_path)
    write_lock(made, make_lock())
    return made


def refused(paths: Paths, kind: type[GraftError] = BadInput) -> GraftError:
    with pytest.raises(kind) as caught:
        load_lock(paths, "toy")
    assert caught.value.where
    return caught.value


def rewrite(paths: Paths, edit: Edit) -> None:
    """Edit the lock and give it a fitting digest again."""
    data = yaml.safe_load(paths.lock("toy").read_text())
    data.pop("digest")
    paths.lock("toy").write_text(lock_text(edited(data, edit)))


def test_what_is_written_is_read_back(paths: Paths) -> None:
    assert load_lock(paths, "toy") == make_lock()


def test_both_files_are_the_same_bytes_each_time(paths: Paths) -> None:
    before = [paths.lock("toy").read_bytes(), paths.requirements("toy").read_bytes()]
    write_lock(paths, load_lock(paths, "toy"))
    assert [paths.lock("toy").read_bytes(), paths.requirements("toy").read_bytes()] == before
    assert before[0].endswith(f"digest: {make_lock().digest}\n".encode())


def test_no_address_is_in_a_lock(paths: Paths) -> None:
    text = paths.lock("toy").read_text() + paths.requirements("toy").read_text()
    assert "://" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (sha(package(LOCK, "vllm")["file"]), sha("other")),
        ("version: 0.32.0", "version: 0.31.0"),
        (
            "size: 1000\n  sha256: " + sha(package(LOCK, "torch")["file"]),
            "size: 1001\n  sha256: " + sha(package(LOCK, "torch")["file"]),
        ),
        ("use: build", "use: tool"),
    ],
)
def test_an_edit_by_hand_is_seen(paths: Paths, old: str, new: str) -> None:
    text = paths.lock("toy").read_text()
    assert old in text
    paths.lock("toy").write_text(text.replace(old, new, 1))
    problem = refused(paths)
    assert (problem.exit_code, problem.where) == (2, "recipes/locks/toy.lock.yaml")
    assert problem.what == "the lock was edited by hand: its digest does not fit"
    assert problem.cure == "git checkout recipes/locks/toy.lock.yaml, or make lock RECIPE=toy"


def test_a_merge_conflict_is_refused_with_its_line(paths: Paths) -> None:
    lines = paths.lock("toy").read_text().splitlines()
    paths.lock("toy").write_text("\n".join([*lines[:4], "<<<<<<< HEAD", *lines[4:]]))
    # YAML knows it at the end of the line.
    assert str(refused(paths).where).endswith("toy.lock.yaml:6")


def test_a_missing_lock_is_stale_and_says_what_to_run(tmp_path: Path) -> None:
    problem = refused(write_project(tmp_path), LockStale)
    assert (problem.exit_code, problem.what, problem.where, problem.cure) == (
        3,
        "recipe toy has no lock",
        "recipes/locks/toy.lock.yaml",
        "make lock RECIPE=toy",
    )


def test_the_lock_of_another_recipe_is_refused(paths: Paths) -> None:
    rewrite(paths, lambda lock: lock.update(recipe="other"))
    assert refused(paths).what == "this is the lock of recipe 'other'"


def test_a_newer_format_is_refused_before_its_fields_are_looked_at(paths: Paths) -> None:
    rewrite(paths, lambda lock: lock.update(lock=FORMAT + 1, news="x"))
    problem = refused(paths)
    assert problem.what == f"the lock has format {FORMAT + 1}, this Graft reads {FORMAT}"
    assert problem.cure == "use a newer Graft"


@pytest.mark.parametrize("text", ["", "edited\n"])
def test_edited_requirements_are_refused(paths: Paths, text: str) -> None:
    paths.requirements("toy").write_text(text)
    problem = refused(paths)
    assert (problem.what, problem.where) == (
        "requirements.txt does not fit the lock",
        "recipes/locks/toy.requirements.txt",
    )


def test_requirements_that_are_not_text_are_refused(paths: Paths) -> None:
    paths.requirements("toy").write_bytes(b"\xff")
    assert refused(paths).what == "requirements.txt does not fit the lock"


def test_missing_requirements_are_stale(paths: Paths) -> None:
    paths.requirements("toy").unlink()
    assert refused(paths, LockStale).what == "recipes/locks/toy.requirements.txt is missing"


@pytest.mark.parametrize(
    "edit",
    [
        lambda lock: lock["packages"][0].update(sha256="A" * 64),
        lambda lock: lock["packages"][0].update(file="../../etc/passwd"),
        lambda lock: lock["packages"][0].update(file="a b.whl"),
        lambda lock: lock["packages"][0].update(size=0),
        lambda lock: lock["packages"][0].update(url="x"),
        lambda lock: lock["packages"][0].update(use="other"),
        lambda lock: lock["inputs"].update(others=sha("x")),
        lambda lock: lock["patches"]["vllm"][0].update(result="x"),
        lambda lock: lock["patches"]["vllm"][0].update(patches=[]),
        lambda lock: lock.update(packages=[]),
    ],
)
def test_values_of_another_form_are_refused_with_their_line(paths: Paths, edit: Edit) -> None:
    rewrite(paths, edit)
    problem = refused(paths)
    assert str(problem.where).rpartition(":")[2].isdigit()
    assert "edited by hand" not in problem.what


def test_requirements_are_pips_format_with_hashes() -> None:
    text = requirements_text(make_lock())
    assert f"torch==2.13.0 \\\n    --hash=sha256:{sha(package(LOCK, 'torch')['file'])}\n" in text
    assert "# only on sm120\nb12x==1.5.1 \\\n" in text
    assert "# component flashinfer, from source\nflashinfer-python==0.7.0.post1 \\\n" in text
    assert "ninja" not in text
    assert "\nuv==" not in text


def test_a_source_of_others_is_nothing_that_pip_installs() -> None:
    lock = make_lock(lambda d: d["sources"].update(headers={**file_pin("flashinfer-python", "0.6.1"), "alone": True}))
    text = requirements_text(lock)
    assert "# component headers, 0.6.1, the source of flashinfer-python alone\n" in text
    assert "flashinfer-python==0.6.1" not in text
    assert plain(lock)["sources"]["headers"]["alone"] is True
    assert "alone" not in plain(lock)["sources"]["flashinfer"]


def test_writing_replaces_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    done = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(50):
        write_atomic(path, "new" * 100_000)
        write_atomic(path, "old")
    done.set()
    looking.join()
    assert seen <= {"old", "new" * 100_000}
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_between_both_files_is_seen(paths: Paths) -> None:
    newer = make_lock(lambda lock: package(lock, "vllm").update(sha256=sha("newer")))
    write_atomic(paths.requirements("toy"), requirements_text(newer))
    assert refused(paths).cure == "make lock RECIPE=toy"


def test_plain_data_is_what_the_digest_is_of() -> None:
    lock = make_lock()
    assert "digest" not in plain(lock)
    assert f"digest: {lock.digest}\n" in lock_text(plain(lock))


def test_the_lock_serves_each_architecture_its_wheels() -> None:
    lock = make_lock()
    here, there = ({p.name for p in lock.image_packages(arch)} for arch in ("sm90", "sm120"))
    assert there - here == {"b12x"}
    assert here.isdisjoint({"ninja", "uv", "flashinfer-python"})
    assert lock.tool("uv").version == "0.13.9"
    assert lock.epoch == 1_793_577_600


STALE: list[tuple[str, Edit, str]] = [
    ("recipe", lambda r: r["components"]["vllm"].update(version="0.33.0"), "components, versions"),
    ("recipe", lambda r: r["components"].pop("b12x"), "components, versions"),
    ("recipe", lambda r: r["components"]["b12x"].update(arches=["sm90"]), "components, versions"),
    ("recipe", lambda r: r["components"]["nccl"].pop("overrides"), "components, versions"),
    ("recipe", lambda r: r["components"].update(fi=r["components"].pop("flashinfer")), "components, versions"),
    ("recipe", lambda r: r["constraints"][0].update(require="cuda-python==12.*"), "components, versions"),
    ("recipe", lambda r: r.update(arches=["sm90"]), "components, versions"),
    ("recipe", lambda r: r.update(cuda="12.9"), "components, versions"),
    ("recipe", lambda r: r.update(patches=["vllm/defaults"]), "patches"),
    ("project", lambda p: p["bases"]["debian12"].update(python="3.12"), "components, versions"),
    ("project", lambda p: p["bases"]["debian12"].update(glibc="2.40"), "components, versions"),
    ("project", lambda p: p["toolkit"].append("nvidia-nvvm"), "components, versions"),
    ("project", lambda p: p["builds"]["flashinfer-aot"]["requires"].append("cmake"), "components, versions"),
    ("project", lambda p: p["bases"]["debian12"]["runtime"].append("g++"), "the base's packages"),
    ("project", lambda p: p["bases"]["debian12"]["builder"].append("make"), "the base's packages"),
    ("project", lambda p: p["bases"]["debian12"]["bootstrap"].update(suite="trixie"), "the base's packages"),
    ("project", lambda p: p["bases"]["debian12"]["bootstrap"]["pockets"].pop(), "the base's packages"),
    ("facts", lambda f: f.update(vllm="edited"), "patches"),
]


@pytest.mark.parametrize(("part", "edit", "says"), STALE)
def test_each_real_input_makes_the_lock_stale_and_is_named(tmp_path: Path, part: str, edit: Edit, says: str) -> None:
    edits = {name: [edit] if name == part else [] for name in ("project", "recipe", "facts")}
    inputs = inputs_of(make_project(*edits["project"]), make_recipe(*edits["recipe"]), edited({}, *edits["facts"]))
    with pytest.raises(LockStale) as caught:
        check_fresh(Paths(tmp_path), make_lock(), inputs)
    problem = caught.value
    assert problem.what.startswith(f"the lock is stale: {says}")
    assert (problem.exit_code, problem.cure) == (3, "make lock RECIPE=toy")


def test_all_stale_parts_are_named(tmp_path: Path) -> None:
    project = make_project(lambda p: p["bases"]["debian12"]["runtime"].append("g++"))
    with pytest.raises(LockStale) as caught:
        check_fresh(Paths(tmp_path), make_lock(), inputs_of(project, make_recipe(), {"vllm": "edited"}))
    assert "the base's packages; patches changed" in caught.value.what


FRESH: list[tuple[str, Edit]] = [
    ("recipe", lambda r: r.update(summary="other")),
    ("recipe", lambda r: r["env"].update(A="b")),
    ("recipe", lambda r: r.update(smoke=["core", "jit"])),
    ("recipe", lambda r: r["constraints"][0].update(because="other")),
    ("recipe", lambda r: r["components"]["vllm"].update(commit="1234567")),
    ("recipe", lambda r: r["components"]["flashinfer"].update(modules=["rope"])),
    ("recipe", lambda r: r.update(arches=["sm120", "sm90"])),
    ("project", lambda p: p["engine"].update(keep="1GB")),
    ("project", lambda p: p.update(index="https://example.invalid/simple")),
    ("project", lambda p: p["builds"]["python"].update(requires=["x"])),
    ("project", lambda p: p["bases"]["debian12"]["bootstrap"].update(snapshot="https://example.invalid")),
]


@pytest.mark.parametrize(("part", "edit"), FRESH)
def test_what_resolves_to_nothing_else_leaves_the_lock_fresh(tmp_path: Path, part: str, edit: Edit) -> None:
    project = make_project(*[edit] if part == "project" else [])
    recipe = make_recipe(*[edit] if part == "recipe" else [])
    check_fresh(Paths(tmp_path), make_lock(), inputs_of(project, recipe, {}))


def shuffled(data: object, draw: st.DataObject) -> object:
    """The same data with the keys of every mapping in another order."""
    if isinstance(data, dict):
        keys = draw.draw(st.permutations(list(data)))
        return {key: shuffled(data[key], draw) for key in keys}
    return [shuffled(item, draw) for item in data] if isinstance(data, list) else data


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_order_of_keys_is_no_input(draw: st.DataObject) -> None:
    from graft.recipe import Recipe

    recipe = Recipe.model_validate(shuffled(copy.deepcopy(RECIPE), draw))
    facts: Data = {"vllm": {"a": 1, "b": 2}}
    again = shuffled(facts, draw)
    assert isinstance(again, dict)
    assert inputs_of(make_project(), recipe, again) == inputs_of(make_project(), make_recipe(), facts)


VERSION = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda v: f"{v[0]}.{v[1]}")


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(RECIPE["components"])), VERSION, VERSION)
def test_inputs_are_equal_exactly_when_versions_are(name: str, one: str, other: str) -> None:
    def at(version: str) -> dict[str, str]:
        recipe = make_recipe(lambda r: r["components"][name].update(version=version))
        return {str(part): value for part, value in inputs_of(make_project(), recipe, {}).items()}

    assert (at(one) == at(other)) == (one == other)


def packages_input(edit: Edit) -> str:
    return inputs_of(make_project(), make_recipe(edit), {})["packages"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r["components"]["torch"].update(index="second"),
        lambda r: r["components"]["flashinfer"].update(build_requires=["ninja"]),
        lambda r: r["components"].update(headers={"sdist": "headers", "version": "1.0"}),
        lambda r: r["components"].update(
            x={"git": {"url": "https://a.invalid/x", "commit": "1" * 40}, "build": "python", "provides": "x"}
        ),
        lambda r: r["components"].update(x={"apt": ["libx"], "version": "1-1"}),
        lambda r: r["components"].update(
            x={"image": {"reference": "a.invalid/x", "paths": ["/w"]}, "provides": "x", "version": "1.0"}
        ),
    ],
)
def test_where_a_component_comes_from_is_an_input_of_the_lock(edit: Edit) -> None:
    assert packages_input(edit) != packages_input(lambda r: None)


def test_what_a_recipe_says_of_its_release_is_no_input_of_the_lock() -> None:
    def edit(recipe: Data) -> None:
        recipe.update(tags=["a:{recipe}"], release="r1", date="2026-01-01", launch={"args": ["--x"]})

    assert inputs_of(make_project(), make_recipe(edit), {}) == inputs_of(make_project(), make_recipe(), {})
