"""The lock's entry: judged, applied by git in isolation, proven by tree ids; all patches or none."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from patchwork import diff, numbered, patch, text

from graft.errors import BadInput, PatchMismatch
from graft.patching import SourceTree, Verdict, judge, lock_entry, read_files, touched_paths, unpack_sdist, wheel_tree
from graft.patching.entry import blob_id, check_files, context_files, lock_component
from graft.patchset import PatchSet

BASE = text(numbered(1, 30))
EDIT = BASE.replace(b"line 15\n", b"line fifteen\n")
LATER = EDIT.replace(b"line 25\n", b"line 25b\n")
FIRST = patch(diff(BASE, EDIT, "demo/a.py"), "first")
OTHER = BASE.replace(b"line 20\n", b"line xx\n")
CONFLICTING = diff(OTHER, OTHER.replace(b"line 21\n", b"line 21b\n"), "demo/a.py")
SECOND = patch(diff(EDIT, LATER, "demo/a.py"), "second")


def git_tree(folder: Path) -> str:
    """The tree id that plain git gives a folder."""
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(folder.parent / "g"), "GIT_WORK_TREE": str(folder)}
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    for argv in (["init", "-q"], ["add", "-A", "-f", "."]):
        subprocess.run(["git", *argv], cwd=folder, env=env, check=True)
    done = subprocess.run(["git", "write-tree"], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def sdist(target: Path, files: dict[str, bytes], **modes: int) -> Path:
    with tarfile.open(target, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"demo-1.0/{name}")
            info.size, info.mode = len(content), modes.get(name.partition(".")[0], 0o664)
            tar.addfile(info, io.BytesIO(content))
    return target


def wheel(target: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target


def test_the_entry_of_a_wheel(tmp_path: Path) -> None:
    file = wheel(
        tmp_path / "demo-1.0-py3-none-any.whl", {"demo/a.py": BASE, "demo/b.py": b"b", "demo-1.0.dist-info/RECORD": b""}
    )
    patches = [patch(p.data, p.id, target="wheel") for p in (FIRST, SECOND)]
    entry = lock_entry("demo", wheel_tree(file, touched_paths(patches)), patches, version="1.0")
    made = tmp_path / "tree"
    (made / "demo").mkdir(parents=True)
    (made / "demo/a.py").write_bytes(BASE)
    assert entry.pristine == git_tree(made)
    (made / "demo/a.py").write_bytes(LATER)
    assert entry.result == git_tree(made)
    assert entry.target == "wheel"
    assert entry.installed == {"demo/a.py": hashlib.sha256(LATER).hexdigest()}
    assert [pin.id for pin in entry.patches] == ["first", "second"]
    first = entry.patches[0]
    assert first.sha256 == hashlib.sha256(FIRST.data).hexdigest()
    assert first.files["demo/a.py"].before == blob_id(BASE)
    assert first.files["demo/a.py"].after == blob_id(EDIT) == entry.patches[1].files["demo/a.py"].before
    assert read_files(file, "wheel", ["demo/a.py", "nix"]) == {"demo/a.py": BASE}


def test_the_entry_of_an_sdist_covers_the_whole_tree(tmp_path: Path) -> None:
    files = {
        "demo/a.py": BASE,
        "run.sh": b"#!",
        ".gitignore": b"*.py\n",
        ".gitattributes": b"* text eol=crlf\n",
        "crlf.txt": b"a\r\n",
    }
    file = sdist(tmp_path / "demo-1.0.tar.gz", files, run=0o775)
    entry = lock_entry("demo", file, [FIRST], installed_path=lambda path: f"lib/{path}")
    folder = tmp_path / "x" / "tree"
    unpack_sdist(file, folder)
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "demo/a.py").stat().st_mode & 0o777 == 0o644
    assert entry.pristine != git_tree(folder), "plain git heeds the source's .gitattributes, which must not count"
    assert lock_entry("demo", folder, [FIRST]).pristine == entry.pristine
    assert entry.installed == {"lib/demo/a.py": hashlib.sha256(EDIT).hexdigest()}
    assert read_files(file, "source", ["demo/a.py"]) == {"demo/a.py": BASE}
    crlf = patch(diff(b"a\r\n", b"b\r\n", "crlf.txt"), "crlf")
    assert lock_entry("demo", file, [crlf]).patches[0].files["crlf.txt"].before == blob_id(b"a\r\n")


def test_offsets_are_recorded() -> None:
    entry = lock_entry("demo", {"demo/a.py": b"new\n" + BASE}, [FIRST])
    assert entry.patches[0].offsets == (1,)


def test_all_or_nothing_with_a_table() -> None:
    wrong = patch(CONFLICTING, "wrong")
    with pytest.raises(PatchMismatch) as caught:
        lock_entry("demo", {"demo/a.py": BASE}, [FIRST, wrong], version="1.0")
    assert caught.value.exit_code == 5
    assert "1 of 2 patches cannot be applied to demo 1.0; none was" in caught.value.what
    rows = [line.split() for line in caught.value.what.splitlines()[2:]]
    assert rows[0][:4] == ["demo/first", "demo/a.py", "1", "exact"]
    assert rows[1][:4] == ["demo/wrong", "demo/a.py", "1", "conflict"]
    assert caught.value.where == "patches/demo/wrong.patch"
    assert "make lock" in str(caught.value.cure)


@pytest.mark.parametrize("data", [b"no patch", diff(BASE, EDIT, "demo/gone.py"), CONFLICTING])
def test_what_cannot_be_built(data: bytes) -> None:
    with pytest.raises(PatchMismatch):
        lock_entry("demo", {"demo/a.py": BASE}, [patch(data)])


def test_a_patch_cannot_be_locked_twice() -> None:
    with pytest.raises(PatchMismatch, match="merged"):
        lock_entry("demo", {"demo/a.py": BASE}, [FIRST, patch(FIRST.data, "again")])


def test_mixed_targets_and_unsafe_patches_are_bad_input() -> None:
    with pytest.raises(BadInput, match="one target"):
        lock_entry("demo", {"demo/a.py": BASE}, [FIRST, patch(SECOND.data, "second", target="wheel")])
    with pytest.raises(BadInput, match="absolute"):
        lock_entry("demo", {"demo/a.py": BASE}, [patch(diff(BASE, EDIT, "/etc/x"))])
    with pytest.raises(BadInput, match="outside the component"):
        lock_entry("demo", {"demo/a.py": BASE}, [patch(diff(None, EDIT, "other/x.py"))])


def test_a_patch_that_is_not_meant_for_the_version() -> None:
    one = patch(FIRST.data, "first", when={"version": "<2"})
    assert lock_entry("demo", {"demo/a.py": BASE}, [one], version="1.9")
    with pytest.raises(BadInput, match=r"demo/first is meant for demo <2, not for 2\.0"):
        lock_entry("demo", {"demo/a.py": BASE}, [one], version="2.0")


def test_new_deleted_renamed_files_and_modes() -> None:
    rename = b"diff --git a/demo/a.py b/demo/c.py\nsimilarity index 100%\nrename from demo/a.py\nrename to demo/c.py\n"
    mode = b"diff --git a/demo/x.sh b/demo/x.sh\nold mode 100644\nnew mode 100755\n"
    data = rename + mode + diff(None, b"hi\n", "demo/n.py") + diff(b"bye\n", None, "demo/d.py")
    files = {"demo/a.py": BASE, "demo/x.sh": b"x\n", "demo/d.py": b"bye\n", "demo/keep.py": b""}
    entry = lock_entry("demo", files, [patch(data)])
    touched = entry.patches[0].files
    assert (touched["demo/a.py"].after, touched["demo/c.py"].before) == (None, None)
    assert touched["demo/c.py"].after == blob_id(BASE)
    assert touched["demo/n.py"].after == blob_id(b"hi\n")
    assert touched["demo/d.py"].after is None
    assert touched["demo/x.sh"].before == touched["demo/x.sh"].after == blob_id(b"x\n")


def test_inside_somebody_else_s_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There `git apply` exits 0 and does nothing; and its configuration would convert line ends."""
    outer = tmp_path / "outer"
    (outer / "src" / "demo").mkdir(parents=True)
    (outer / "src/demo/a.py").write_bytes(BASE)
    subprocess.run(["git", "init", "-q", outer], check=True)
    subprocess.run(["git", "-C", outer, "config", "core.autocrlf", "true"], check=True)
    (tmp_path / "config").write_text("[core]\n\tautocrlf = true\n[apply]\n\twhitespace = fix\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIR", str(outer / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(outer / "index"))
    monkeypatch.chdir(outer / "src")
    entry = lock_entry("demo", outer / "src", [FIRST])
    assert entry.result != entry.pristine
    assert entry.patches[0].files["demo/a.py"].after == blob_id(EDIT)
    assert (outer / "src/demo/a.py").read_bytes() == BASE, "locking leaves the source as it is"
    assert not (outer / "index").exists()


def test_the_builder_s_context_and_its_check() -> None:
    entry = lock_entry("demo", {"demo/a.py": BASE}, [FIRST, SECOND])
    files = context_files(entry, [FIRST, SECOND])
    assert files["series"] == b"first.patch\nsecond.patch\n"
    assert files["touched"] == f"{blob_id(BASE)} {blob_id(LATER)} demo/a.py\n".encode()
    assert files["second.patch"] == SECOND.data
    check_files("demo", entry, [FIRST, SECOND])
    for changed in ([SECOND, FIRST], [FIRST], [FIRST, patch(SECOND.data + b"\n", "second")]):
        with pytest.raises(PatchMismatch, match=r"not the locked ones|changed after"):
            check_files("demo", entry, changed)


def test_a_component_from_its_wheel(tmp_path: Path) -> None:
    file = wheel(tmp_path / "demo-1.0-py3-none-any.whl", {"demo/a.py": BASE, "demo-1.0.dist-info/RECORD": b""})
    one = patch(FIRST.data, "first", target="wheel")
    found = PatchSet("demo", Path("patches/demo"), (one,))
    assert lock_component(found, ["first"], file).installed.keys() == {"demo/a.py"}
    with pytest.raises(BadInput, match="there is no patch demo/nix"):
        lock_component(found, ["nix"], file)


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("demo-1.0/../../x", tarfile.REGTYPE, "outside"),
        ("/demo-1.0/x", tarfile.REGTYPE, "outside"),
        ("demo-1.0/x", tarfile.SYMTYPE, "link"),
        ("demo-1.0/x", tarfile.LNKTYPE, "link"),
        ("demo-1.0/x", tarfile.FIFOTYPE, "device"),
        ("demo-1.0/.git/config", tarfile.REGTYPE, "git repository"),
        ("other/x", tarfile.REGTYPE, "more than one top"),
        ("demo-1.0/a", tarfile.REGTYPE, "twice"),
    ],
)
def test_archives_that_are_refused(tmp_path: Path, name: str, kind: bytes, why: str) -> None:
    file = tmp_path / "demo-1.0.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("demo-1.0/a"))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "a"
        tar.addfile(info)
    with pytest.raises(BadInput, match=why):
        unpack_sdist(file, tmp_path / "into")


def test_damaged_archives_are_bad_input(tmp_path: Path) -> None:
    good = sdist(tmp_path / "a.tar.gz", {"x": os.urandom(9000)}).read_bytes()
    for data in (b"", b"hello", good[: len(good) // 2]):
        (tmp_path / "b.tar.gz").write_bytes(data)
        with pytest.raises(BadInput):
            unpack_sdist(tmp_path / "b.tar.gz", tmp_path / "into" / str(len(data)))
        with pytest.raises(BadInput):
            wheel_tree(tmp_path / "b.tar.gz", [])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=25), st.data())
def test_git_and_the_judgement_agree(words: list[str], data: st.DataObject) -> None:
    """`lock_entry` raises when git makes other bytes than were judged."""
    old = [f"{word} {i // 2}\n" for i, word in enumerate(words)]
    at = data.draw(st.integers(0, len(old) - 1))
    new = [*old[:at], *data.draw(st.lists(st.sampled_from(["x\n", "y\n"]), max_size=3)), *old[at + 1 :]]
    above, below = (data.draw(st.lists(st.sampled_from(["p\n", "q\n"]), max_size=3)) for _ in range(2))
    assume(old != new)
    one = patch(diff(text(old), text(new), "demo/a.txt"))
    tree = SourceTree({"demo/a.txt": text(above, old, below)})
    judged = judge(tree, [one])[0]
    if judged.verdict.is_applicable:
        entry = lock_entry("demo", tree, [one])
        assert entry.patches[0].files["demo/a.txt"].after == blob_id(judged.result["demo/a.txt"] or b"")
    else:
        assert judged.verdict in (Verdict.AMBIGUOUS, Verdict.CONFLICT, Verdict.MERGED)
