"""Sources from git: fetched by commit, composed, proven; and all that can be wrong with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from githost import GitHost, git_host
from gitwork import Work, work
from packaging.version import Version

from graft.errors import BadInput, FetchFailed
from graft.gitstore import Packed, TreeStore, tree_id
from graft.gitstore.describe import stamp
from graft.patching import unpack_sdist
from graft.sources import GitSource

HOST = "https://git.invalid"
FILES = {"a.py": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "lib/b.c": "b\n", "run.sh": "#!/bin/sh\n"}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    (tmp_path / "host").mkdir(exist_ok=True)
    with git_host(tmp_path / "host") as made:
        yield made


@pytest.fixture
def trees(tmp_path: Path, host: GitHost) -> TreeStore:
    return TreeStore(tmp_path / "store", lambda url: url.replace(HOST, host.url))


@pytest.fixture
def pkg(tmp_path: Path) -> Work:
    made = work(tmp_path, "pkg")
    made.commit(FILES)
    (made.folder / "run.sh").chmod(0o755)
    (made.folder / "link").symlink_to("lib/b.c")
    made.commit({})
    made.serve()
    return made


def source(commit: str, **more: Any) -> GitSource:
    return GitSource.model_validate({"url": f"{HOST}/pkg.git", "commit": commit, **more})


def files_of(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def unpacked(packed: Packed, into: Path) -> dict[str, str]:
    into.mkdir()
    unpack_sdist(packed.file, into)
    return files_of(into)


def test_a_commit_becomes_its_own_tree(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    made = trees.git("pkg", source(pkg.head))
    assert made.packed.tree == made.merged == pkg.git("rev-parse", "HEAD^{tree}")
    assert made.packed.file == tmp_path / "store" / made.packed.sha256 / f"{made.packed.tree}.tar"
    assert (made.packed.file.stat().st_size, made.packed.file.stat().st_mtime) == (made.packed.size, 1577836800)
    assert made.date == "2023-11-14"
    assert unpacked(made.packed, tmp_path / "out") == {**FILES, "link": "b\n"}
    assert (tmp_path / "out" / "link").readlink() == Path("lib/b.c")
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out" / "a.py").stat().st_mode & 0o777 == 0o644


def test_the_tar_is_the_same_bytes_in_every_store(trees: TreeStore, pkg: Work, host: GitHost, tmp_path: Path) -> None:
    one = trees.git("pkg", source(pkg.head)).packed.file
    other = TreeStore(tmp_path / "other", lambda url: url.replace(HOST, host.url))
    assert other.git("pkg", source(pkg.head)).packed.file.read_bytes() == one.read_bytes()
    with tarfile.open(one) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(1577836800, 0, 0, "")}


def test_only_the_commit_is_fetched_and_only_once(trees: TreeStore, pkg: Work, host: GitHost) -> None:
    first = pkg.git("rev-parse", "HEAD~1")
    trees.git("pkg", source(pkg.head))
    mirror = trees.mirrors.folder(f"{HOST}/pkg")
    assert mirror == trees.mirrors.folder(f"{HOST}/pkg.git")
    assert not (mirror / "config").read_text().count("remote")
    assert os.system(f"git --git-dir {mirror} cat-file -e {first} 2>/dev/null") != 0
    seen = len(host.seen)
    assert seen > 0
    trees.git("pkg", source(pkg.head))
    assert len(host.seen) == seen


def test_offline_the_store_is_enough_and_nothing_else_is(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    offline = TreeStore(tmp_path / "store", offline=True)
    with pytest.raises(FetchFailed, match="offline, and commit") as caught:
        offline.git("pkg", source(pkg.head))
    assert "OFFLINE=1" in str(caught.value.cure)
    made = trees.git("pkg", source(pkg.head))
    made.packed.file.unlink()
    assert offline.git("pkg", source(pkg.head)) == made


def test_the_branch_has_no_say(trees: TreeStore, pkg: Work) -> None:
    before = pkg.head
    pkg.commit({"a.py": "later\n"})
    pkg.serve()
    assert trees.git("pkg", source(before, ref="main")).packed.tree == pkg.git("rev-parse", f"{before}^{{tree}}")


@pytest.fixture
def old_host(pkg: Work, host: GitHost, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Clients may ask for protocol 2; this host does not speak it."""
    monkeypatch.setattr(host, "protocol", False)
    return pkg


def test_a_host_that_gives_out_refs_alone(old_host: Work, trees: TreeStore) -> None:
    before = old_host.head
    old_host.commit({"a.py": "later\n"})
    old_host.serve()
    with pytest.raises(FetchFailed, match="gives out none by its id") as caught:
        trees.git("pkg", source(before))
    assert "`ref`" in str(caught.value.cure)
    made = trees.git("pkg", source(before, ref="main"))
    assert made.packed.tree == old_host.git("rev-parse", f"{before}^{{tree}}")


def test_a_branch_that_was_moved_by_force(old_host: Work, trees: TreeStore) -> None:
    lost = old_host.head
    new = old_host.commit({"a.py": "other\n"}, on="HEAD~1")
    old_host.serve(main=new)
    with pytest.raises(FetchFailed, match=f"main is now {new}") as caught:
        trees.git("pkg", source(lost, ref="main"))
    assert "moved by force" in str(caught.value.cure)
    with pytest.raises(FetchFailed, match="has neither commit"):
        trees.git("pkg", source(lost, ref="gone"))


@pytest.mark.parametrize("commit", ["f" * 40, "0" * 40])
def test_a_commit_that_does_not_exist(trees: TreeStore, pkg: Work, commit: str) -> None:
    with pytest.raises(FetchFailed, match=f"no commit {commit}") as caught:
        trees.git("pkg", source(commit))
    assert "only in a fork" in str(caught.value.cure)
    assert not list(trees.root.glob("*/*.tar"))


def test_what_is_no_commit_is_named_as_what_it_is(trees: TreeStore, pkg: Work) -> None:
    pkg.git("tag", "-a", "v1", "-m", "x")
    pkg.serve(main=pkg.head)
    tag, tree = pkg.git("rev-parse", "v1"), pkg.git("rev-parse", "HEAD^{tree}")
    assert tag != pkg.head
    for name in (tag, tree):
        for _ in range(2):
            with pytest.raises(BadInput, match="and no commit") as caught:
                trees.git("pkg", source(name))
            assert (pkg.head in str(caught.value.cure)) == (name == tag)
    trees.git("pkg", source(pkg.head))


@pytest.mark.parametrize("damage", ["shallow", "objects", "HEAD"])
def test_a_mirror_that_git_cannot_read_is_named(trees: TreeStore, pkg: Work, damage: str) -> None:
    trees.git("pkg", source(pkg.head))
    more = pkg.commit({"d.py": "d\n"})
    pkg.serve(main=more)
    (mirror,) = (path for path in trees.root.rglob("*.git") if path.is_dir())
    if damage == "objects":
        shutil.rmtree(mirror / damage)
    else:
        (mirror / damage).write_text("no such thing\n")
    with pytest.raises(FetchFailed, match="cannot read what was fetched") as caught:
        trees.git("pkg", source(more))
    assert caught.value.where == str(mirror)
    shutil.rmtree(mirror)
    trees.git("pkg", source(more))


def test_no_repository_and_no_host(trees: TreeStore, pkg: Work, host: GitHost) -> None:
    with pytest.raises(FetchFailed, match=f"no git repository answers at {HOST}/other.git") as caught:
        trees.git("pkg", source(pkg.head, url=f"{HOST}/other.git"))
    assert host.url not in str(caught.value.tail)
    host.page = b"<html>please log in</html>"
    with pytest.raises(FetchFailed, match=r"no git repository answers|could not be asked"):
        trees.git("pkg", source(pkg.head))
    silent = TreeStore(trees.root, lambda url: url.replace(HOST, "http://127.0.0.1:9"))
    with pytest.raises(FetchFailed, match="could not be asked") as caught:
        silent.git("pkg", source(pkg.head))
    assert "127.0.0.1:9" not in f"{caught.value.what} {caught.value.cure}"


# Composition


def two_heads(pkg: Work) -> tuple[str, str, str]:
    base = pkg.head
    one = pkg.commit({"a.py": FILES["a.py"].replace("1\n", "one\n")}, on=base)
    two = pkg.commit({"a.py": FILES["a.py"].replace("9\n", "nine\n"), "c.py": "c\n"}, on=base)
    pkg.serve(**{"main": base, "one": one, "refs/pull/1/head": one, "refs/pull/2/head": two})
    return base, one, two


def test_heads_are_merged_in_order_and_the_tree_is_proven(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    base, one, two = two_heads(pkg)
    pulls = [{"number": 1, "head": one}, {"number": 2, "head": two}]
    made = trees.git("pkg", source(base, pulls=pulls))
    assert made.heads == (one, two)
    assert unpacked(made.packed, tmp_path / "out")["a.py"] == "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
    pkg.git("checkout", "--quiet", "--detach", base)
    pkg.git("merge", "--quiet", one, "-m", "x")
    pkg.git("merge", "--quiet", two, "-m", "x")
    tree = pkg.git("rev-parse", "HEAD^{tree}")
    assert made.packed.tree == tree
    assert trees.git("pkg", source(base, pulls=pulls, tree=tree)) == made
    with pytest.raises(FetchFailed, match=f"give tree {tree}, the recipe says {'e' * 40}") as caught:
        trees.git("pkg", source(base, pulls=pulls, tree="e" * 40))
    assert caught.value.cure


def test_the_builder_composes_the_same_tree(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    """checkout-git.sh, for recipes without a lock, and this agree."""
    base, one, two = two_heads(pkg)
    made = trees.git("pkg", source(base, pulls=[{"number": 1, "head": one}, {"number": 2, "head": two}]))
    context = tmp_path / "context"
    shutil.copytree(pkg.bare, context / "repo.git")
    script = Path(__file__).parents[2] / "images" / "scripts" / "checkout-git.sh"
    env = {"PATH": os.environ["PATH"], "COMMIT": base, "HEADS": f"{one} {two}", "TREE": made.merged}
    done = subprocess.run(
        ["bash", script, context, tmp_path / "out"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_heads_that_do_not_merge_name_the_files(trees: TreeStore, pkg: Work) -> None:
    base = pkg.head
    one = pkg.commit({"a.py": FILES["a.py"].replace("5\n", "five\n")}, on=base)
    two = pkg.commit({"a.py": FILES["a.py"].replace("5\n", "V\n")}, on=base)
    pkg.serve(main=base, one=one, two=two)
    with pytest.raises(BadInput, match=r"pull 2 at .* does not merge onto what comes before it: a\.py") as caught:
        trees.git("pkg", source(base, pulls=[{"number": 1, "head": one}, {"number": 2, "head": two}]))
    assert caught.value.cure
    assert not list(trees.root.glob("*/*.tar"))


def test_a_head_of_another_repository(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    base = pkg.head
    fork = Work(pkg.folder, tmp_path / "host" / "fork.git")
    head = fork.commit({"new.py": "n\n"}, on=base)
    fork.serve(main=head)
    pkg.git("branch", "--force", "main", base)
    pkg.serve(main=base)
    with pytest.raises(FetchFailed, match="pkg head") as caught:
        trees.git("pkg", source(base, pulls=[{"head": head}]))
    assert "give the fork's url" in str(caught.value.cure)
    made = trees.git("pkg", source(base, pulls=[{"head": head, "url": f"{HOST}/fork.git"}]))
    assert unpacked(made.packed, tmp_path / "out")["new.py"] == "n\n"


def test_a_pull_request_that_was_moved_by_force(trees: TreeStore, pkg: Work) -> None:
    base, one, two = two_heads(pkg)
    pkg.serve(**{"main": base, "refs/pull/1/head": two})
    pkg.git("gc", "--quiet", "--prune=now", cwd=pkg.bare)
    with pytest.raises(FetchFailed, match=f"refs/pull/1/head is now {two}") as caught:
        trees.git("pkg", source(base, pulls=[{"number": 1, "head": one}]))
    assert f"pin {two}" in str(caught.value.cure)


def test_a_history_of_its_own_does_not_merge(trees: TreeStore, pkg: Work) -> None:
    base = pkg.head
    pkg.git("checkout", "--quiet", "--orphan", "alone")
    alone = pkg.commit({"z": "z\n"})
    pkg.serve(main=base, alone=alone)
    with pytest.raises(BadInput, match="has no history in common"):
        trees.git("pkg", source(base, pulls=[{"head": alone}]))


def test_a_commit_after_a_shallow_fetch_gets_its_history(trees: TreeStore, pkg: Work) -> None:
    base, one, _ = two_heads(pkg)
    trees.git("pkg", source(base))
    assert (trees.mirrors.folder(f"{HOST}/pkg.git") / "shallow").exists()
    assert trees.git("pkg", source(base, pulls=[{"head": one}])).heads == (one,)


def test_a_branch_must_descend_from_its_base(trees: TreeStore, pkg: Work) -> None:
    base, one, two = two_heads(pkg)
    assert trees.git("pkg", source(one, base=base)).packed.tree
    with pytest.raises(BadInput, match="does not descend from its base") as caught:
        trees.git("pkg", source(one, base=two))
    assert caught.value.cure


# Submodules


@pytest.fixture
def nested(tmp_path: Path, pkg: Work) -> Work:
    """pkg with a submodule that has one itself; one address is relative."""
    inner, outer = work(tmp_path, "inner"), work(tmp_path, "outer")
    inner.commit({"inner.h": "inner\n"})
    inner.serve()
    outer.commit({"outer.h": "outer\n"})
    outer.add_submodule("deep/inner", "../inner.git", inner.head)
    outer.serve()
    pkg.add_submodule("3rdparty/outer", f"{HOST}/outer.git", outer.head)
    pkg.serve()
    return pkg


def test_submodules_are_what_the_commit_says_at_any_depth(trees: TreeStore, nested: Work, tmp_path: Path) -> None:
    made = trees.git("pkg", source(nested.head))
    found = unpacked(made.packed, tmp_path / "out")
    assert found["3rdparty/outer/outer.h"] == "outer\n"
    assert found["3rdparty/outer/deep/inner/inner.h"] == "inner\n"
    assert [s.path for s in made.submodules] == ["3rdparty/outer", "3rdparty/outer/deep/inner"]
    assert made.merged == nested.git("rev-parse", "HEAD^{tree}")
    assert made.merged != made.packed.tree


def test_a_submodule_that_is_gone_can_come_from_elsewhere_or_stay_out(
    trees: TreeStore, nested: Work, host: GitHost, tmp_path: Path
) -> None:
    (host.root / "inner.git").rename(host.root / "moved.git")
    path = "3rdparty/outer/deep/inner"
    with pytest.raises(FetchFailed, match=f"pkg submodule {path}: no git repository answers") as caught:
        trees.git("pkg", source(nested.head))
    assert f"submodules: {{{path}: URL}}" in str(caught.value.cure)
    moved = trees.git("pkg", source(nested.head, submodules={path: f"{HOST}/moved.git"}))
    left = trees.git("pkg", source(nested.head, submodules={path: None}))
    assert moved.packed.tree != left.packed.tree
    assert left.submodules[1].tree is None
    assert f"{path}/inner.h" not in unpacked(left.packed, tmp_path / "out")
    with pytest.raises(BadInput, match="3rdparty/other is no submodule of it") as wrong:
        trees.git("pkg", source(nested.head, submodules={path: None, "3rdparty/other": None}))
    assert path in str(wrong.value.cure)


def test_a_commit_of_a_submodule_that_is_nowhere(trees: TreeStore, pkg: Work) -> None:
    pkg.add_submodule("sub", f"{HOST}/pkg.git", "e" * 40)
    pkg.serve()
    with pytest.raises(FetchFailed, match=r"pkg submodule sub: .* has no commit e"):
        trees.git("pkg", source(pkg.head))


@pytest.mark.parametrize(
    "url",
    ["git@git.invalid:x/y.git", "ssh://git.invalid/x", "file:///etc", "ext::sh -c id", "https://u:p@git.invalid/x"],
)
def test_an_address_that_git_would_take_elsewhere_is_not_asked(
    trees: TreeStore, pkg: Work, host: GitHost, url: str
) -> None:
    pkg.add_submodule("sub", url, "e" * 40)
    pkg.serve()
    with pytest.raises(BadInput, match="submodule sub has the address") as caught:
        trees.git("pkg", source(pkg.head))
    assert "submodules: {sub: <url>}" in str(caught.value.cure)


def test_a_submodule_without_an_address(trees: TreeStore, pkg: Work) -> None:
    pkg.git("update-index", "--add", "--cacheinfo", f"160000,{'e' * 40},sub")
    pkg.git("commit", "--quiet", "-m", "x")
    pkg.serve()
    with pytest.raises(BadInput, match=r"sub is a submodule, and \.gitmodules does not say"):
        trees.git("pkg", source(pkg.head))


# What a repository may hold


def test_lfs_pointers_are_refused(trees: TreeStore, pkg: Work) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    pkg.commit({"big.bin": pointer, "two.bin": pointer})
    pkg.serve()
    with pytest.raises(BadInput, match=r"big\.bin and 1 more is a Git LFS pointer") as caught:
        trees.git("pkg", source(pkg.head))
    assert "Graft fetches nothing of LFS" in str(caught.value.cure)
    assert not list(trees.root.glob("*/*.tar"))


def test_attributes_of_the_source_decide_nothing(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    hostile = "* text eol=crlf ident filter=bad\nsecret.c export-ignore\na.py export-subst working-tree-encoding=x\n"
    files = {".gitattributes": hostile, "a.py": "$Id$ $Format:%H$\n", "secret.c": "s\n"}
    (pkg.folder / ".git" / "info").mkdir(exist_ok=True)
    (pkg.folder / ".git" / "info" / "attributes").write_text("* -text -ident -filter -working-tree-encoding\n")
    pkg.commit(files)
    pkg.serve()
    made = trees.git("pkg", source(pkg.head))
    assert made.packed.tree == pkg.git("rev-parse", "HEAD^{tree}")
    assert unpacked(made.packed, tmp_path / "out").items() >= files.items()


def test_configuration_of_the_host_and_of_the_mirror_decides_nothing(
    trees: TreeStore, pkg: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    config = tmp_path / "config"
    config.write_text(f"[core]\n\tfsmonitor = touch {ran}\n\tsshCommand = touch {ran}\n[merge]\n\trenames = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "bad")
    hook = pkg.bare / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    assert trees.git("pkg", source(pkg.head)).packed.tree == pkg.git("rev-parse", "HEAD^{tree}")
    assert not ran.exists()


@pytest.mark.parametrize("path", [b".git/config", b"../x", b".GIT/x", b"a/../b"])
def test_paths_that_leave_the_tree_are_refused(trees: TreeStore, pkg: Work, path: bytes) -> None:
    blob = pkg.git("hash-object", "-w", "--stdin", stdin=b"x")
    folder, _, name = path.rpartition(b"/")

    def made(mode: bytes, name: bytes, sha: str) -> str:
        data = mode + b" " + name + b"\0" + bytes.fromhex(sha)
        return pkg.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=data)

    tree = made(b"100644", name, blob)
    for part in reversed(folder.split(b"/")):
        tree = made(b"40000", part, tree)
    commit = pkg.git("commit-tree", tree, "-m", "x")
    pkg.serve(main=commit)
    with pytest.raises(BadInput, match="a path that git refuses"):
        trees.git("pkg", source(commit))


def test_names_of_any_bytes(trees: TreeStore, pkg: Work, tmp_path: Path) -> None:
    odd = os.fsdecode(b'caf\xe9 "x"\n' + b"y" * 120)
    pkg.commit({odd: "odd\n"})
    pkg.serve()
    made = trees.git("pkg", source(pkg.head))
    assert made.packed.tree == pkg.git("rev-parse", "HEAD^{tree}")
    assert unpacked(made.packed, tmp_path / "out")[odd] == "odd\n"


def test_tree_ids_are_gits_own(pkg: Work) -> None:
    pkg.commit({"lib.x": "1", "lib-y": "2", "lib/z/deep": "3"})
    listed = pkg.git("ls-tree", "-r", "--full-tree", "HEAD").splitlines()
    files = {path: (facts.split()[0], facts.split()[2]) for facts, path in (line.split("\t") for line in listed)}
    assert tree_id(files) == pkg.git("rev-parse", "HEAD^{tree}")


# The grammar of what a recipe may say


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": "main"},
        {"submodules": {"../x": None}},
        {"submodules": {"x": "git@host:y"}},
        {"submodules": {"/x": None}},
    ],
)
def test_what_a_recipe_may_not_say(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a"):
        source("a" * 40, **wrong)


def test_a_shallow_repository_is_enough_for_a_commit_and_not_for_a_merge(
    trees: TreeStore, pkg: Work, host: GitHost
) -> None:
    _, one, two = two_heads(pkg)
    pkg.git("clone", "--quiet", "--bare", "--depth=1", "--branch=one", f"file://{pkg.bare}", host.root / "short.git")
    url = f"{HOST}/short.git"
    assert trees.git("pkg", source(one, url=url)).packed.tree == pkg.git("rev-parse", f"{one}^{{tree}}")
    with pytest.raises(FetchFailed, match=f"gives out commit {one} without its history"):
        trees.git("pkg", source(one, url=url, pulls=[{"head": two, "url": f"{HOST}/pkg.git"}]))


def test_what_a_host_says_of_its_refs(trees: TreeStore, pkg: Work) -> None:
    _, one, _ = two_heads(pkg)
    refs = trees.mirrors.remote_refs(f"{HOST}/pkg.git", ["refs/pull/1/head", "main", "gone"])
    assert refs == {"refs/pull/1/head": one, "refs/heads/main": pkg.git("rev-parse", "HEAD~1")}


@dataclass(frozen=True)
class Tagged:
    """A repository with tags: on two commits of a line, one of them annotated, aside, and some without version."""

    work: Work
    first: str
    second: str
    head: str


@pytest.fixture
def tagged(pkg: Work) -> Tagged:
    first = pkg.head
    pkg.git("tag", "v1.2.3")
    pkg.git("tag", "nightly-2026-01-01")
    second = pkg.commit({"b.py": "1\n"})
    pkg.git("tag", "--annotate", "-m", "x", "v1.3.0rc1")
    pkg.git("tag", "1.3.0rc0")
    pkg.git("tag", "nightly")
    head = [pkg.commit({"b.py": f"{n}\n"}) for n in range(2, 5)][-1]
    pkg.commit({"aside.py": "x\n"}, on=first)
    pkg.git("tag", "v9.0")
    pkg.git("checkout", "--quiet", "main")
    pkg.serve()
    return Tagged(pkg, first, second, head)


def test_the_version_comes_from_the_nearest_tag_before_the_commit(trees: TreeStore, tagged: Tagged) -> None:
    def version(commit: str) -> str | None:
        return trees.git("pkg", source(commit), versioned=True).version

    assert version(tagged.first) == "1.2.3"
    assert version(tagged.second) == "1.3.0rc1", "the highest of the versions on one commit; of an annotated tag too"
    assert version(tagged.head) == f"1.3.0rc2.dev3+g{tagged.head[:9]}"
    assert trees.git("pkg", source(tagged.head)).version is None


def test_a_version_says_that_heads_were_merged(trees: TreeStore, tagged: Tagged) -> None:
    pulls = [{"number": 1, "head": tagged.second}]
    made = trees.git("pkg", source(tagged.first, pulls=pulls), versioned=True)
    assert made.version == f"1.2.3+g{tagged.first[:9]}.m{made.merged[:9]}"


def test_without_a_tag_that_is_a_version_one_has_to_be_given(trees: TreeStore, pkg: Work) -> None:
    pkg.git("tag", "nightly")
    pkg.serve()
    with pytest.raises(BadInput, match=r"pkg: no tag of https://git\.invalid/pkg\.git before commit") as caught:
        trees.git("pkg", source(pkg.head), versioned=True)
    assert "give components.pkg.version" in str(caught.value.cure)


def test_without_history_a_version_has_to_be_given(trees: TreeStore, tagged: Tagged, host: GitHost) -> None:
    """A shallow repository on the host; and no host at all."""
    shallow = host.root / "shallow.git"
    tagged.work.git("clone", "--quiet", "--bare", "--depth=1", "--branch=main", f"file://{tagged.work.bare}", shallow)
    with pytest.raises(FetchFailed, match="without its history") as caught:
        trees.git("pkg", source(tagged.head, url=f"{HOST}/shallow.git"), versioned=True)
    assert "components.pkg.version" in str(caught.value.cure)
    trees.git("pkg", source(tagged.head), versioned=True)
    offline = TreeStore(trees.root, lambda url: url, offline=True)
    assert offline.git("pkg", source(tagged.head)).version is None
    with pytest.raises(FetchFailed, match="offline") as caught:
        offline.git("pkg", source(tagged.head), versioned=True)
    assert "components.pkg.version" in str(caught.value.cure)


@pytest.mark.parametrize(
    ("tag", "distance", "version"),
    [
        ("1.2.3", 0, "1.2.3"),
        ("1.2.3", 4, "1.2.4.dev4+gabc"),
        ("2.0", 1, "2.1.dev1+gabc"),
        ("2.0rc1", 2, "2.0rc2.dev2+gabc"),
        ("1.2.post1", 2, "1.2.post2.dev2+gabc"),
        ("1.3.dev7", 2, "1.3.dev9+gabc"),
    ],
)
def test_a_version_lies_after_its_tag_and_before_the_next(tag: str, distance: int, version: str) -> None:
    made = stamp(Version(tag), distance, "gabc")
    assert made == version
    assert str(Version(made)) == made
    assert Version(tag) <= Version(made)
