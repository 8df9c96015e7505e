"""Trees in a lock: what they need at run time, where they are asked for, and what is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from factories import PROJECT, RECIPE, Data, edited, make_project, write_project
from githost import GitHost, git_host
from gitwork import Work, work
from web import Answer, Web, web

from graft.commands.online import remote_refs
from graft.commands.session import Session, open_session
from graft.commands.trees import bring_trees, lock_trees, requires_of
from graft.console import Console
from graft.errors import BadInput, FetchFailed
from graft.gitstore import keep, newest_day
from graft.linting import ProjectFacts, RecipeFacts
from graft.linting.remote_rules import pin_moved
from graft.lock import inputs_of
from graft.recipe import Component, Recipe
from graft.yamlio import read

HOST = "https://git.invalid"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    (tmp_path / "host").mkdir()
    with git_host(tmp_path / "host") as made:
        yield made


@pytest.fixture
def files() -> Iterator[Web]:
    with web() as made:
        yield made


@pytest.fixture
def pkg(tmp_path: Path, host: GitHost) -> Work:
    made = work(tmp_path, "pkg")
    made.commit({"pyproject.toml": '[project]\nname = "pkg"\nversion = "1"\ndependencies = ["numpy>=2", "attrs"]\n'})
    made.git("tag", "v1.2.3")
    made.commit({"b.py": ""})
    made.serve()
    return made


def session(tmp_path: Path, *mirrors: tuple[str, str], offline: bool = False) -> Session:
    data = edited(PROJECT, lambda p: p.update(mirrors=dict(mirrors)))
    root = tmp_path / "project"
    if not root.exists():
        write_project(root, data)
    return open_session(write_paths(root, data), Console(), recipe="toy", offline=offline)


def write_paths(root: Path, data: Data) -> Any:
    import yaml

    from graft.paths import Paths

    paths = Paths(root)
    paths.build_yaml.write_text(yaml.safe_dump(data, sort_keys=False))
    return paths


def recipe_with(**components: Data) -> Recipe:
    return Recipe.model_validate(edited(RECIPE, lambda r: r["components"].update(components)))


def git_component(commit: str, **more: Any) -> Data:
    return {"git": {"url": f"{HOST}/pkg.git", "commit": commit}, "build": "python", "provides": "pkg", **more}


def test_a_tree_is_locked_and_brought_again(tmp_path: Path, host: GitHost, pkg: Work) -> None:
    here = session(tmp_path, (f"{HOST}/", f"{host.url}/"))
    recipe = recipe_with(pkg=git_component(pkg.head))
    made = lock_trees(here, recipe, None)
    pin = made["pkg"]
    assert pin.git is not None
    assert (pin.tree, pin.git.commit) == (pkg.git("rev-parse", "HEAD^{tree}"), pkg.head)
    assert pin.requires == ("attrs", "numpy>=2")
    assert (pin.name, pin.version) == ("pkg", f"1.2.4.dev1+g{pkg.head[:9]}")
    given = recipe_with(pkg=git_component(pkg.head, version="1.2"))
    assert lock_trees(here, given, None)["pkg"].version == "1.2"
    source = {"git": {"url": f"{HOST}/pkg.git", "commit": pkg.head}}
    assert lock_trees(here, recipe_with(pkg=source), None)["pkg"].version == f"0+g{pkg.head[:9]}"
    assert here.store.has(pin)
    here.store.path(pin).unlink()
    offline = session(tmp_path, offline=True)
    bring_trees(offline, recipe, made)
    assert here.store.has(pin)
    with pytest.raises(FetchFailed, match="the lock says"):
        bring_trees(offline, recipe, {"pkg": pin.model_copy(update={"tree": "e" * 40, "sha256": "e" * 64})})


def archive(members: Mapping[str, bytes], **links: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            tar.addfile(info, io.BytesIO(data))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return stream.getvalue()


def test_an_archive_is_locked_by_its_hash_and_its_tree(tmp_path: Path, files: Web) -> None:
    data = archive({"math-1/a.h": b"a\n", "math-1/sub/b.h": b"b\n"})
    files.serve("/math-1.tar.gz", Answer(data, sized=False))
    here = session(tmp_path, ("https://files.invalid", files.url))
    source = {"url": "https://files.invalid/math-1.tar.gz", "sha256": hashlib.sha256(data).hexdigest()}
    recipe = recipe_with(
        math={"archive": source, "version": "1.0", "build": "python", "provides": "math", "requires": []}
    )
    made = lock_trees(here, recipe, None)["math"]
    assert made.archive is not None
    assert (made.archive.file, made.archive.size) == ("math-1.tar.gz", len(data))
    assert (made.uploaded, made.requires, made.origin) == ("2023-11-14", (), "archive math-1.tar.gz")
    source["sha256"] = "0" * 64
    wrong = recipe_with(
        math={"archive": source, "version": "1.0", "build": "python", "provides": "math", "requires": []}
    )
    with pytest.raises(FetchFailed, match=f"wrong bytes: sha256 {made.archive.sha256}; the recipe says 0000"):
        lock_trees(here, wrong, None)
    with pytest.raises(FetchFailed, match=r"offline, and math-1\.tar\.gz is not in the store"):
        lock_trees(session(tmp_path, offline=True), wrong, None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (archive({"a.h": b"a"}), "lies outside of a top folder"),
        (archive({"one/a.h": b"a", "two/a.h": b"a"}), "does not hold one top folder with files, but one, two"),
        (archive({"one/../../x": b"a"}), "lies outside of a top folder"),
        (archive({"/one/x": b"a"}), "lies outside of a top folder"),
        (archive({"one/.git/config": b"a"}), "belongs to a git repository"),
        (archive({"one/l/x": b"a"}, **{"one/l": "/etc"}), "lies below something that is no folder"),
        (b"no archive at all", "no tar file that can be read"),
        (archive({"one/a": b"a" * 9000})[:60], "no tar file that can be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",
)
def test_an_archive_that_is_no_source_is_refused(tmp_path: Path, files: Web, data: bytes, says: str) -> None:
    files.serve("/x.tar.gz", Answer(data))
    here = session(tmp_path, ("https://files.invalid/", files.url))
    source = {"url": "https://files.invalid/x.tar.gz", "sha256": hashlib.sha256(data).hexdigest()}
    recipe = recipe_with(x={"archive": source, "version": "1.0", "build": "python", "provides": "x", "requires": []})
    with pytest.raises(BadInput, match=says):
        lock_trees(here, recipe, None)
    assert not list(here.paths.store.glob("*/*.tar"))


def odd(kind: bytes = tarfile.REGTYPE, target: str = "", **headers: str) -> bytes:
    """An archive with a file and, beside it, what tarfile itself does not expect."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("one/a"))
        folder = tarfile.TarInfo("one/folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        info = tarfile.TarInfo("one/b")
        info.type, info.linkname, info.pax_headers = kind, target, headers
        tar.addfile(info)
    return stream.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        odd(tarfile.LNKTYPE, "one/gone"),
        odd(tarfile.LNKTYPE, "/etc/passwd"),
        odd(tarfile.LNKTYPE, "one/b"),
        odd(tarfile.LNKTYPE, "one/folder"),
        odd(mtime="1e15"),
        odd(mtime="nan"),
        odd(mtime="inf"),
        odd(**{"GNU.sparse.map": "0,1,x"}),
    ],
)
def test_links_to_nothing_and_numbers_that_are_none_are_bad_input(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.tar"
    file.write_bytes(data)

    def stored() -> None:
        keep(tmp_path / "store", file, "x")
        newest_day(file, "x")

    with pytest.raises(BadInput, match="no tar file that can be read") as caught:
        stored()
    assert caught.value.cure


# What it needs at run time


def component(**more: Any) -> Component:
    return Component.model_validate(git_component("a" * 40, **more))


def tree(tmp_path: Path, **members: str) -> Path:
    file = tmp_path / "tree.tar"
    with tarfile.open(file, "w") as tar:
        for name, text in {"x": "", **{n.replace("__", "."): t for n, t in members.items()}}.items():
            info = tarfile.TarInfo(f"tree/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return file


DYNAMIC = '[project]\nname = "x"\ndynamic = ["dependencies"]\n'
INFO = "Metadata-Version: 2.2\nName: x\nVersion: 1\nRequires-Dist: torch\n"


def test_the_recipe_says_it_before_the_tree_does(tmp_path: Path) -> None:
    file = tree(tmp_path, pyproject__toml='[project]\nname = "x"\ndependencies = ["attrs"]\n')
    assert requires_of("x", component(), file) == ("attrs",)
    assert requires_of("x", component(requires=["numpy", "cffi>=1"]), file) == ("cffi>=1", "numpy")
    assert requires_of("x", component(requires=[]), file) == ()
    assert requires_of("x", component(build="make"), tree(tmp_path)) == ()


def test_the_metadata_of_an_sdist_counts_where_it_is_static(tmp_path: Path) -> None:
    file = tree(tmp_path, pyproject__toml=DYNAMIC, **{"PKG-INFO": INFO})
    assert requires_of("x", component(), file) == ("torch",)


@pytest.mark.parametrize(
    "members",
    [
        {"pyproject__toml": DYNAMIC},
        {"pyproject__toml": "[build-system]\nrequires = []\n"},
        {"setup__py": "raise SystemExit('nobody runs this')"},
        {"PKG-INFO": INFO.replace("2.2", "2.1")},
        {"PKG-INFO": INFO + "Dynamic: Requires-Dist\n"},
    ],
)
def test_what_only_running_it_would_say_is_asked_of_the_recipe(tmp_path: Path, members: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="does not say what it needs at run time") as caught:
        requires_of("x", component(), tree(tmp_path, **members))
    assert "components.x.requires" in str(caught.value.cure)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('dependencies = "numpy"', "are no list"),
        ('dependencies = ["numpy", "numpy >> 2"]', "not all requirements"),
        ("dependencies = [1]", "not all requirements"),
        ('dependencies = ["a @ https://x.invalid/a"]', "asks for a @ https://x.invalid/a, which no index has"),
        ("dynamic = 3", "is not as PEP 621 has it"),
        ('dynamic = "dependencies"', "is not as PEP 621 has it"),
    ],
)
def test_what_a_tree_says_wrongly_comes_into_no_lock(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        requires_of("x", component(), tree(tmp_path, pyproject__toml=f'[project]\nname = "x"\n{text}\n'))
    assert "components.x.requires" in str(caught.value.cure)


@pytest.mark.parametrize(
    "members", [{"pyproject__toml": "project = 3\n"}, {"PKG-INFO": INFO.replace("torch", "torch >> 2")}]
)
def test_nor_does_what_is_no_metadata(tmp_path: Path, members: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"PEP 621|not all requirements"):
        requires_of("x", component(), tree(tmp_path, **members))


@pytest.mark.parametrize("text", ["numpy >> 2", "x @ https://x.invalid/y", "-r file"])
def test_a_requirement_has_a_grammar(text: str) -> None:
    with pytest.raises(ValueError, match=r"requirement|component of its own"):
        component(requires=[text])


# The inputs of a lock, and where this host asks


def test_notes_make_no_lock_stale_and_commits_do() -> None:
    def inputs(**git: Any) -> str:
        data = git_component("a" * 40)
        data["git"] |= git
        return inputs_of(make_project(), recipe_with(pkg=data), {})["packages"]

    plain = inputs()
    assert inputs(ref="main") == plain
    assert inputs(commit="b" * 40) != plain
    assert inputs(submodules={"x": None}) != plain
    one = inputs(pulls=[{"number": 1, "head": "c" * 40, "note": "why"}])
    assert one != plain
    assert inputs(pulls=[{"number": 2, "head": "c" * 40}]) == one
    assert inputs(pulls=[{"head": "d" * 40}]) != one


def test_mirrors_replace_the_longest_beginning() -> None:
    mirrors = {"https://git.invalid/": "http://one.invalid", "https://git.invalid/org": "file:///two/"}
    project = make_project(lambda p: p.update(mirrors=mirrors))
    assert project.address_of("https://git.invalid/x.git") == "http://one.invalid/x.git"
    assert project.address_of("https://git.invalid/org/x.git") == "file:///two/x.git"
    assert project.address_of("https://git.invalid/orgs/x.git") == "http://one.invalid/orgs/x.git"
    assert project.address_of("https://other.invalid/x") == "https://other.invalid/x"
    for wrong in (
        {"http://x.invalid/": "http://y"},
        {"https://x.invalid/": "ssh://y"},
        {"https://u:p@x.invalid": "http://y"},
    ):
        with pytest.raises(ValueError, match="https"):
            make_project(lambda p, wrong=wrong: p.update(mirrors=wrong))


# What hosts say today


def test_hosts_are_asked_what_the_names_beside_commits_are(tmp_path: Path, host: GitHost, pkg: Work) -> None:
    base = pkg.head
    head = pkg.commit({"a": "a"}, on=base)
    pkg.git("tag", "--annotate", "v1", "-m", "x", base)
    pkg.serve(**{"main": base, "moved": head, "refs/pull/1/head": head, "refs/pull/2/head": base})
    pkg.git("push", "--quiet", pkg.bare, "v1")
    here = session(tmp_path, (f"{HOST}/", f"{host.url}/"))

    def one(ref: str, **git: Any) -> Data:
        return {"git": {"url": f"{HOST}/pkg.git", "commit": base, "ref": ref, **git}}

    pulls = [{"number": 1, "head": head}, {"number": 2, "head": "1" * 40}, {"number": 3, "head": "2" * 40}]
    components = {"a": one("main"), "b": one("moved"), "c": one("v1"), "d": one("gone", pulls=pulls)}
    components["e"] = {"git": {"url": "https://silent.invalid/x.git", "commit": base, "ref": "main"}}
    found = remote_refs(here, recipe_with(**components))
    assert [(r.component, r.name, r.now) for r in found[:-1]] == [
        ("a", "ref main", base),
        ("b", "ref moved", head),
        ("c", "ref v1", base),
        ("d", "ref gone", None),
        ("d", "pull 1", head),
        ("d", "pull 2", base),
        ("d", "pull 3", None),
    ]
    assert "could not be asked" in found[-1].problem
    facts = RecipeFacts(ProjectFacts(here.paths, here.project, read(here.paths.build_yaml)), "toy", remote=found)
    said = {(hit.level, hit.message.partition(";")[0]) for hit in pin_moved(facts)}
    assert ("note", f"b: ref moved is {head[:12]} now") in said
    assert (None, f"d: pull 2 is {base[:12]} now") in said
    assert {(None, "d: ref gone is gone"), (None, "d: pull 3 is gone")} < said
    assert len(said) == 5
    offline = remote_refs(session(tmp_path, offline=True), recipe_with(a=one("main")))
    assert "offline" in offline[0].problem
