"""Bundles: the same bytes from the same contents, all or nothing on the way in, and no path out of their folders."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from factories import (
    PROJECT,
    RECIPE,
    Data,
    edited,
    locked_trees,
    make_lock,
    make_project,
    make_recipe,
    with_trees,
    write_project,
)

from graft import bundle
from graft.apt import DebPin
from graft.bundle import Index, Member, member_of
from graft.commands import bundles
from graft.commands.session import Session, make_plan, open_session, wanted
from graft.console import Console
from graft.errors import BadInput, FetchFailed, GraftError
from graft.lock import write_lock
from graft.store import mark_checked
from graft.toolslock import make_tools_lock, write_tools

KILLS = 20


def content(name: str) -> bytes:
    return f"the bytes of {name}\n".encode() * 50


def deb(name: str) -> DebPin:
    file = f"pool/main/{name}_1_amd64.deb"
    found = {"size": len(content(file)), "sha256": hashlib.sha256(content(file)).hexdigest()}
    return DebPin(name=name, version="1", architecture="amd64", file=file, set="builder", **found)  # type: ignore[arg-type]


def filled(pin: Data) -> None:
    data = content(pin["file"])
    pin.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())


def with_trees_only(recipe: Data) -> None:
    with_trees(recipe)
    recipe["patches"] = []


def make(root: Path, *, full: bool) -> Session:
    """A project, locked; with all its files in the store, or with none."""
    paths = write_project(root, PROJECT, {"toy": edited(RECIPE, with_trees_only)})
    for name in ("smoke/core.py", "scripts/install-wheels.sh", "stages/base.j2", "Dockerfile.j2"):
        place = paths.images / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content(name))
        place.chmod(0o755 if name.endswith(".sh") else 0o644)

    def lock(data: Data) -> None:
        locked_trees(data)
        data["patches"] = {}
        for pin in [*data["packages"], *data["sources"].values(), *data["base"]["packages"]]:
            filled(pin)

    write_lock(paths, make_lock(lock, project=make_project(), recipe=make_recipe(with_trees_only)))
    write_tools(paths, make_tools_lock(make_project(), {"trixie": [deb("docker.io")]}, {"bookworm": [deb("perl")]}))
    session = open_session(paths, Console(json_mode=True), recipe="toy", arch="sm90", offline=True)
    if full:
        for item in files_of(session):
            place = session.store.path(item)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content(item.file))
            mark_checked(place)
    return session


def files_of(session: Session) -> list[Any]:
    plan = make_plan(session)
    trees = [build.source for build in (*plan.sources, *plan.builds) if build.source.tree]
    assert len(trees) == 4
    return [*(item.pin for item in (*wanted(session, plan), *bundles.wanted_tools(session))), *trees]


@pytest.fixture
def full(tmp_path: Path) -> Session:
    return make(tmp_path / "full", full=True)


@pytest.fixture
def empty(tmp_path: Path) -> Session:
    return make(tmp_path / "empty", full=False)


@pytest.fixture
def file(full: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    target = tmp_path / "toy.bundle"
    bundles.export(full, target, "build")
    capsys.readouterr()
    return target


def state(session: Session) -> dict[str, bytes]:
    root = session.paths.root
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def lacking(session: Session) -> int:
    return len({pin.sha256 for pin in files_of(session) if not session.store.has(pin)})


def test_a_build_from_a_bundle_lacks_nothing_and_has_the_same_key(full: Session, empty: Session, file: Path) -> None:
    assert lacking(empty) == len({p.sha256 for p in files_of(empty)})
    bundles.load(empty, file, None)
    assert lacking(empty) == 0
    assert make_plan(empty).image.key == make_plan(full).image.key
    assert {p.sha256 for p in files_of(empty)} == {p.parent.name for p in empty.paths.store.glob("*/*")}


def test_the_same_contents_are_the_same_bytes(full: Session, file: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "another place", full=True)
    again = tmp_path / "again.bundle"
    bundles.export(other, again, "build")
    assert again.read_bytes() == file.read_bytes()


def test_tar_reads_it_and_its_list_comes_first(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(file) as tar:
        members = tar.getmembers()
        first = tar.extractfile(members[0])
        assert first is not None
        text = first.read()
    index = bundle.read_index(file)
    assert members[0].name == f"graft-bundle-{hashlib.sha256(text).hexdigest()}.json"
    assert [member.name for member in members[1:]] == [member.path for member in index.members]
    assert {(m.uid, m.gid, m.mode, m.mtime) for m in members} == {(0, 0, 0o644, 1577836800)}
    assert {m.path for m in index.members if m.path.startswith("project/")} == {
        "project/build.yaml",
        "project/recipes/toy.yaml",
        *(f"project/recipes/locks/{name}" for name in ("toy.lock.yaml", "toy.requirements.txt", "_tools.lock.yaml")),
        *(f"project/images/{n}" for n in ("smoke/core.py", "scripts/install-wheels.sh", "stages/base.j2")),
        "project/images/Dockerfile.j2",
    }


def test_a_second_import_takes_nothing(empty: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundles.load(empty, file, None)
    assert json.loads(capsys.readouterr().out)["new"] > 0
    before = state(empty)
    bundles.load(empty, file, bundle.read_index(file).digest)
    assert json.loads(capsys.readouterr().out)["new"] == 0
    assert state(empty) == before


def test_a_damaged_file_of_the_store_is_replaced(empty: Session, file: Path) -> None:
    bundles.load(empty, file, None)
    place = next(p for p in empty.paths.store.glob("*/vllm-*"))
    whole = place.read_bytes()
    place.write_bytes(b"x" * len(whole))
    bundles.load(empty, file, None)
    assert place.read_bytes() == whole


def refused(session: Session, source: Path, error: type[GraftError], digest: str | None = None) -> GraftError:
    """The error of an import that must take nothing."""
    before = state(session)
    with pytest.raises(error) as problem:
        bundles.load(session, source, digest)
    assert state(session) == before
    return problem.value


def test_one_cut_short_anywhere_takes_nothing(empty: Session, file: Path) -> None:
    data = file.read_bytes()
    chosen = random.Random(1)
    # The last two blocks are the end of the archive: without the first of them it is cut short too.
    cuts = [511, 512, 700, len(data) - 1024, *(chosen.randrange(1024, len(data) - 1024) for _ in range(20))]
    for cut in cuts:
        file.write_bytes(data[:cut])
        problem = refused(empty, file, FetchFailed)
        assert problem.exit_code == 4
        assert "cut short" in problem.what
        assert "nothing of it was taken" in problem.what


def test_one_flipped_bit_anywhere_takes_nothing(empty: Session, file: Path) -> None:
    data = file.read_bytes()
    index = bundle.read_index(file)
    chosen = random.Random(2)
    spots = [chosen.randrange(512, len(data) - 1024) for _ in range(40)]
    found = 0
    for spot in spots:
        wrong = bytearray(data)
        wrong[spot] ^= 1
        file.write_bytes(bytes(wrong))
        if _is_whole(file):
            continue
        found += 1
        assert refused(empty, file, GraftError).exit_code in (2, 4)
    file.write_bytes(data)
    assert bundle.read_index(file) == index
    assert found > 20, "only what fills a block up may differ"


def _is_whole(file: Path) -> bool:
    try:
        bundle.verify(file, lambda count: None)
    except GraftError:
        return False
    return True


def test_another_bundle_than_the_named_one_is_refused(empty: Session, file: Path) -> None:
    problem = refused(empty, file, FetchFailed, "sha256:" + "0" * 64)
    assert "this is bundle sha256:" in problem.what


def test_another_project_is_refused_before_anything_is_read(empty: Session, file: Path) -> None:
    with (empty.paths.images / "scripts/install-wheels.sh").open("a") as script:
        script.write("# edited\n")
    problem = refused(empty, file, BadInput)
    assert "another images/scripts/install-wheels.sh: what is built from it would not be the same" in problem.what


def test_a_project_file_that_is_missing_is_brought(empty: Session, file: Path) -> None:
    empty.paths.lock("toy").unlink()
    script = empty.paths.scripts / "install-wheels.sh"
    script.unlink()
    bundles.load(empty, file, None)
    assert lacking(empty) == 0
    assert script.stat().st_mode & 0o777 == 0o755
    assert empty.paths.lock("toy").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("data", [b"", b"not a tar\n" * 200, b"\0" * 4096])
def test_what_is_no_bundle_is_refused(empty: Session, tmp_path: Path, data: bytes) -> None:
    other = tmp_path / "other.bundle"
    other.write_bytes(data)
    assert refused(empty, other, GraftError).exit_code in (2, 4)
    plain = tmp_path / "plain.tar"
    with tarfile.open(plain, "w") as tar:
        tar.add(other, "file")
    assert "no bundle of Graft" in refused(empty, plain, BadInput).what
    for data in (b"", b"graft-bundle", bytes(range(256)) * 9, b"PK"):
        plain.write_bytes(data)
        assert "no bundle of Graft" in refused(empty, plain, BadInput).what
    assert "no such bundle" in refused(empty, tmp_path / "none", BadInput).what


def forge(file: Path, edit: Callable[[Data], object], extra: bytes = b"") -> None:
    """A bundle whose list says something else, with a name that fits the list."""
    members = [(m, b"".join(chunks)) for m, chunks in bundle.members(file)]
    data = bundle.read_index(file).model_dump(mode="json")
    edit(data)
    text = json.dumps(data).encode()
    name = f"graft-bundle-{hashlib.sha256(text).hexdigest()}.json"
    parts = [bundle.header(name, len(text)), bundle.padded(text)]
    for (member, content_of), entry in zip(members, data["members"], strict=True):
        path = entry["path"] if len(entry["path"]) < 400 else member.path
        parts += [bundle.header(path, len(content_of)), bundle.padded(content_of)]
    file.write_bytes(b"".join(parts) + extra + b"\0" * 1024)


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "project/../outside",
        "/etc/passwd",
        "project/.git/hooks/post-checkout",
        "project/scripts/graft/cli.py",
        "project/Makefile",
        "store/" + "0" * 64 + "/x.whl",
        "store/x.whl",
        "receipts/a/b/c",
        "anything",
    ],
)
def test_a_path_that_no_bundle_has_is_refused(empty: Session, file: Path, path: str) -> None:
    forge(file, lambda data: data["members"][0].update(path=path))
    assert "its list of contents" in refused(empty, file, BadInput).what


def test_a_path_twice_and_another_format_are_refused(empty: Session, file: Path) -> None:
    whole = file.read_bytes()
    forge(file, lambda data: data["members"][1].update(data["members"][0]))
    assert "a path that no bundle has" in refused(empty, file, BadInput).what
    file.write_bytes(whole)
    forge(file, lambda data: data.update(format=2))
    assert "cannot be read" in refused(empty, file, BadInput).what
    file.write_bytes(whole)
    forge(file, lambda data: data, extra=bundle.header("more", 0))
    assert "goes on after its last file" in refused(empty, file, FetchFailed).what


def test_an_export_without_a_whole_store_writes_nothing(empty: Session, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="offline"):
        bundles.export(empty, tmp_path / "x.bundle", "build")
    assert not list(tmp_path.glob("*x.bundle*"))


def test_a_file_that_changes_meanwhile_leaves_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "kept.bundle").write_bytes(b"an older one")
    member = member_of("receipts/a/b", b"1234")
    index = Index(format=1, recipe="r", arch="a", key="0" * 64, lock="0" * 64, image=None, members=(member,))
    with pytest.raises(FetchFailed, match="not what the list says"):
        bundle.write(tmp_path / "kept.bundle", index, lambda m: iter([b"1235"]), lambda count: None)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.bundle"]
    assert (tmp_path / "kept.bundle").read_bytes() == b"an older one"


def test_no_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    member = Member(path="receipts/a/b", size=10**18, sha256="0" * 64)
    index = Index(format=1, recipe="r", arch="a", key="0" * 64, lock="0" * 64, image=None, members=(member,))
    with pytest.raises(BadInput, match="GB are free"):
        bundle.write(tmp_path / "x.bundle", index, lambda m: iter([]), lambda count: None)
    assert not list(tmp_path.iterdir())


def test_big_and_long_members_keep_their_size_and_name(tmp_path: Path) -> None:
    name = "store/" + "0" * 64 + "/" + "x" * 200
    for size in (0, 1, 9 * 10**9):
        found = tarfile.TarInfo.frombuf(bundle.header("image/a", 5), "utf-8", "strict")
        assert found.size == 5
        raw = tmp_path / "raw"
        raw.write_bytes(bundle.header(name, size))
        reader = bundle._Reader.__new__(bundle._Reader)
        with raw.open("rb") as stream:
            reader._where, reader._stream = "raw", stream
            header = reader._header()
        assert header is not None
        assert (header.name, header.size) == (name, size)


# Killed


def lines_until_end(run: Callable[[], None]) -> int:
    """How many lines of the two modules a run has."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _silent()
        seen = _traced(0)
        run()
        sys.settrace(None)
        os.write(write, str(len(seen)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as told:
        return int(told.read())


def killed_at(line: int, run: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        _silent()
        _traced(line)
        run()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def _silent() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _traced(line: int) -> list[None]:
    seen: list[None] = []
    files = (bundle.__file__, bundles.__file__)

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.append(None)
            if len(seen) == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    return seen


def points(run: Callable[[], None]) -> Iterator[int]:
    chosen = random.Random(3)
    total = lines_until_end(run)
    assert total > KILLS
    yield from (chosen.randrange(1, total) for _ in range(KILLS))


def test_killed_anywhere_an_export_leaves_the_old_bundle_or_the_new_one(full: Session, tmp_path: Path) -> None:
    target = tmp_path / "x.bundle"
    run = lambda: bundles.export(full, target, "build")  # noqa: E731
    chosen = list(points(run))
    whole = target.read_bytes()
    for line in chosen:
        target.write_bytes(b"an older one")
        killed_at(line, run)
        assert target.read_bytes() in (b"an older one", whole)
    run()
    assert target.read_bytes() == whole
    assert [p.name for p in tmp_path.glob("*x.bundle*")] == ["x.bundle"], "what a killed one left is used up"


def test_killed_anywhere_an_import_leaves_whole_files_and_a_second_one_ends_it(tmp_path: Path, file: Path) -> None:
    counted = make(tmp_path / "counted", full=False)
    for number, line in enumerate(points(lambda: bundles.load(counted, file, None))):
        session = make(tmp_path / str(number), full=False)
        pins = {pin.sha256: pin for pin in files_of(session)}
        killed_at(line, lambda session=session: bundles.load(session, file, None))  # type: ignore[misc]
        for place in session.paths.store.glob("*/[!.]*"):
            assert hashlib.sha256(place.read_bytes()).hexdigest() == place.parent.name == pins[place.parent.name].sha256
        bundles.load(session, file, None)
        assert lacking(session) == 0
        assert not list(session.paths.root.rglob(".*.bundle")), "what the killed one left is used up"
        assert make_plan(session).image.key == bundle.read_index(file).key
