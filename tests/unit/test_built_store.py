"""The store of built components: what is a hit, what is removed, what is an error, and who may write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from components import STAMP, wanted, wheel

from graft.built.stamp import key_in
from graft.built.store import RECORD, BuiltStore, Entry, parse_record
from graft.errors import BuildFailed, FetchFailed
from graft.hashes import file_sha256

ITEM = wanted()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> BuiltStore:
    return BuiltStore(tmp_path / "built", said.append)


@pytest.fixture
def entry(store: BuiltStore, tmp_path: Path) -> Entry:
    return store.add(ITEM, [wheel(tmp_path / "out", ITEM)])


def only_wheel(entry: Entry) -> Path:
    (path,) = entry.wheels()
    return path


class TestStamp:
    """The key inside a wheel."""

    def test_nothing_else_of_the_wheel_changes(self, tmp_path: Path) -> None:
        plain, stamped = wheel(tmp_path / "a", None), wheel(tmp_path / "b", ITEM)
        assert key_in(plain) is None
        assert key_in(stamped) == ITEM.key
        before, after = plain.read_bytes(), stamped.read_bytes()
        assert after[: len(before) - 2] == before[:-2]
        with zipfile.ZipFile(plain) as first, zipfile.ZipFile(stamped) as archive:
            assert archive.namelist() == first.namelist()
            assert archive.testzip() is None

    def test_twice_is_refused(self, tmp_path: Path) -> None:
        wheel(tmp_path, ITEM)
        done = subprocess.run([sys.executable, STAMP, tmp_path, "0" * 64], capture_output=True, text=True)
        assert done.returncode == 1
        assert "does not end as a zip file without a comment does" in done.stderr

    @pytest.mark.parametrize("key", ["", "abc", "g" * 64])
    def test_no_key_is_refused(self, tmp_path: Path, key: str) -> None:
        wheel(tmp_path, None)
        assert subprocess.run([sys.executable, STAMP, tmp_path, key], capture_output=True).returncode == 1

    def test_no_wheel_is_refused(self, tmp_path: Path) -> None:
        assert subprocess.run([sys.executable, STAMP, tmp_path, ITEM.key], capture_output=True).returncode == 1

    def test_what_is_no_wheel_has_no_key(self, tmp_path: Path) -> None:
        (tmp_path / "a.whl").write_bytes(b"graft-key: " + b"0" * 64)
        assert key_in(tmp_path / "a.whl") is None
        assert key_in(tmp_path / "none.whl") is None


def test_what_was_added_is_found(store: BuiltStore, entry: Entry, said: list[str]) -> None:
    assert store.has(ITEM)
    found = store.find(ITEM)
    assert found == entry
    (file,) = entry.record.files
    assert file.sha256 == file_sha256(only_wheel(entry))
    assert entry.record.inputs == ITEM.inputs
    assert parse_record((entry.folder / RECORD).read_bytes()) == entry.record
    assert store.find(wanted(source="other")) is None
    assert said == []


def test_a_hit_is_of_use_now(store: BuiltStore, entry: Entry) -> None:
    os.utime(entry.folder / RECORD, (1, 1))
    store.find(ITEM)
    assert entry.used > 1_000_000_000


def test_a_wheel_without_change_is_not_read_again(store: BuiltStore, entry: Entry) -> None:
    """Its time says that it was checked; two builds of one size have two times, which BuildKit goes by."""
    path = only_wheel(entry)
    time = path.stat().st_mtime_ns
    os.utime(path)
    assert store.find(ITEM) is not None
    assert path.stat().st_mtime_ns == time
    item = wanted(source="other")
    other = store.add(item, [wheel(path.parents[3] / "out2", item, content=b"edoc")])
    assert only_wheel(other).stat().st_size == path.stat().st_size
    assert only_wheel(other).stat().st_mtime_ns != time


class TestDamaged:
    """Removed and said, so that it is built again."""

    def cut(self, entry: Entry) -> None:
        path = only_wheel(entry)
        path.write_bytes(path.read_bytes()[:-30])

    def flip(self, entry: Entry) -> None:
        path = only_wheel(entry)
        data = bytearray(path.read_bytes())
        data[50] ^= 1
        path.write_bytes(data)

    def lose(self, entry: Entry) -> None:
        only_wheel(entry).unlink()

    def cut_record(self, entry: Entry) -> None:
        path = entry.folder / RECORD
        path.write_bytes(path.read_bytes()[:-30])

    def lose_record(self, entry: Entry) -> None:
        (entry.folder / RECORD).unlink()

    def other_format(self, entry: Entry) -> None:
        path = entry.folder / RECORD
        path.write_text(path.read_text().replace('"format": 1', '"format": 2'))

    def other_inputs(self, entry: Entry) -> None:
        path = entry.folder / RECORD
        path.write_text(path.read_text().replace('"source": "one"', '"source": "two"'))

    def link_to_itself_for_record(self, entry: Entry) -> None:
        (entry.folder / RECORD).unlink()
        (entry.folder / RECORD).symlink_to(RECORD)

    def link_to_itself_for_wheel(self, entry: Entry) -> None:
        path = only_wheel(entry)
        path.unlink()
        path.symlink_to(path.name)

    def file_for_folder(self, entry: Entry) -> None:
        shutil.rmtree(entry.folder)
        entry.folder.write_text("x")

    def link_to_nowhere_for_folder(self, entry: Entry) -> None:
        shutil.rmtree(entry.folder)
        entry.folder.symlink_to("nowhere")

    def leave(self, entry: Entry) -> None:
        path = entry.folder / RECORD
        path.write_text(path.read_text().replace('"name": "kernels', '"name": "../../kernels'))

    def link(self, entry: Entry) -> None:
        path = only_wheel(entry)
        path.rename(entry.folder.parent / path.name)
        path.symlink_to(entry.folder.parent / path.name)

    def pipe(self, entry: Entry) -> None:
        only_wheel(entry).unlink()
        os.mkfifo(entry.folder / entry.record.files[0].name)

    def folder_of_record(self, entry: Entry) -> None:
        (entry.folder / RECORD).unlink()
        (entry.folder / RECORD).mkdir()

    def pipe_of_record(self, entry: Entry) -> None:
        (entry.folder / RECORD).unlink()
        os.mkfifo(entry.folder / RECORD)

    @pytest.mark.parametrize(
        ("what", "says"),
        [
            ("link", "is no plain file"),
            ("pipe", "is no plain file"),
            ("folder_of_record", "component.json is none"),
            ("pipe_of_record", "component.json is none"),
            ("cut", "bytes of"),
            ("flip", "has other bytes"),
            ("lose", "is not there"),
            ("cut_record", "component.json is none"),
            ("lose_record", "there is no component.json"),
            ("other_format", "component.json is none"),
            ("other_inputs", "component.json is none"),
            ("leave", "component.json is none"),
            ("link_to_itself_for_record", "component.json is none"),
            ("link_to_itself_for_wheel", "is no plain file"),
            ("file_for_folder", "there is no component.json"),
            ("link_to_nowhere_for_folder", "there is no component.json"),
        ],
    )
    def test_it(self, store: BuiltStore, entry: Entry, said: list[str], what: str, says: str) -> None:
        getattr(self, what)(entry)
        assert [found.folder for found in store.entries()] == ([] if RECORD in says else [entry.folder])
        assert store.find(ITEM) is None
        assert not os.path.lexists(entry.folder)
        (line,) = said
        assert says in line
        assert line.startswith(f"kernels {ITEM.key[:12]} in the store is damaged")

    @pytest.mark.parametrize(
        "what",
        [
            "folder_of_record",
            "pipe_of_record",
            "link_to_itself_for_record",
            "file_for_folder",
            "link_to_nowhere_for_folder",
            "lose_record",
        ],
    )
    def test_it_is_listed_as_broken_gives_way_and_can_be_removed(
        self, store: BuiltStore, entry: Entry, tmp_path: Path, what: str
    ) -> None:
        getattr(self, what)(entry)
        assert list(store.entries()) == []
        assert store.broken() == [entry.folder]
        made = store.add(ITEM, [wheel(tmp_path / "again", ITEM)])
        assert store.find(ITEM) == made
        getattr(self, what)(entry)
        store.remove(store.broken())
        assert not os.path.lexists(entry.folder)

    def test_of_a_link_the_link_alone_is_removed(self, store: BuiltStore, entry: Entry, tmp_path: Path) -> None:
        elsewhere = entry.folder.rename(tmp_path / "elsewhere")
        entry.folder.symlink_to(elsewhere)
        store.remove([found.folder for found in store.entries()])
        assert not os.path.lexists(entry.folder)
        assert (elsewhere / RECORD).is_file()
        entry.folder.symlink_to(elsewhere)
        (elsewhere / RECORD).write_text("{")
        assert store.find(ITEM) is None
        assert (elsewhere / RECORD).is_file()

    @pytest.mark.parametrize("link", [False, True])
    def test_what_lies_in_the_place_of_a_components_folder_gives_way(
        self, store: BuiltStore, tmp_path: Path, link: bool
    ) -> None:
        store.root.mkdir()
        place = store.root / ITEM.component
        place.symlink_to("nowhere") if link else place.write_text("x")
        assert store.find(ITEM) is None
        assert store.add(ITEM, [wheel(tmp_path / "out", ITEM)]) == store.find(ITEM)

    def test_where_somebody_pulls_to_is_not_swept(self, store: BuiltStore, entry: Entry) -> None:
        (store.root / ".pull-kernels").mkdir()
        (store.root / ".pull-kernels" / "kernels-1.0-py3-none-any.whl").write_bytes(b"x")
        assert store.broken() == []


class TestAnotherKey:
    """Somebody put another build in its place: an error, and neither a hit nor removed."""

    @pytest.mark.parametrize("inside", [wanted(source="other"), None], ids=["another", "none"])
    def test_in_a_wheel_that_the_record_names(self, store: BuiltStore, entry: Entry, tmp_path: Path, inside) -> None:  # type: ignore[no-untyped-def]
        path = only_wheel(entry)
        before = entry.record.files[0]
        path.write_bytes(wheel(tmp_path / "other", inside).read_bytes())
        record = entry.folder / RECORD
        text = record.read_text().replace(before.sha256, file_sha256(path))
        record.write_text(text.replace(f'"size": {before.size}', f'"size": {path.stat().st_size}'))
        with pytest.raises(FetchFailed, match=r"it has (the|no) key .*and was to be kernels"):
            store.find(ITEM)
        assert entry.folder.exists()

    def test_in_the_record(self, store: BuiltStore, entry: Entry) -> None:
        item = wanted(source="other")
        entry.folder.rename(entry.folder.with_name(item.key))
        with pytest.raises(FetchFailed, match="it has kernels"):
            store.find(item)

    def test_in_what_is_added(self, store: BuiltStore, tmp_path: Path) -> None:
        with pytest.raises(FetchFailed, match="has no key inside"):
            store.add(ITEM, [wheel(tmp_path / "out", None)])
        assert store.find(ITEM) is None


def test_a_file_that_the_record_does_not_name_is_no_wheel_of_the_entry(store: BuiltStore, entry: Entry) -> None:
    (entry.folder / "surprise-1.0-py3-none-any.whl").write_bytes(b"x")
    found = store.find(ITEM)
    assert found is not None
    assert list(found.wheels()) == [only_wheel(entry)]


def test_no_wheel_is_no_entry(store: BuiltStore) -> None:
    with pytest.raises(BuildFailed, match="made no wheel"):
        store.add(ITEM, [])


def test_the_first_one_stays(store: BuiltStore, entry: Entry, tmp_path: Path) -> None:
    assert store.add(ITEM, [wheel(tmp_path / "later", ITEM, content=b"later")]) == entry


def test_a_damaged_one_is_replaced(store: BuiltStore, entry: Entry, tmp_path: Path) -> None:
    only_wheel(entry).write_bytes(b"x")
    made = store.add(ITEM, [wheel(tmp_path / "again", ITEM, content=b"again")])
    assert store.find(ITEM) == made


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from components import wanted, wheel
from graft.built.store import BuiltStore
made = [wheel(Path(sys.argv[3]), wanted(), content=sys.argv[3].encode() * 1000)]
print(BuiltStore(Path(sys.argv[2])).add(wanted(), made).record.files[0].sha256)
"""


def test_of_writers_at_once_one_wins_and_all_have_its_bytes(store: BuiltStore, tmp_path: Path) -> None:
    here = Path(__file__).parent
    words = [sys.executable, "-c", WRITER, str(here), str(store.root)]
    env = {**os.environ, "PYTHONPATH": str(here.parents[1] / "scripts")}
    writers = [
        subprocess.Popen([*words, str(tmp_path / str(number))], env=env, stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    told = {writer.communicate(timeout=60)[0] for writer in writers}
    assert [writer.returncode for writer in writers] == [0] * 4
    found = store.find(ITEM)
    assert found is not None
    assert told == {f"{found.record.files[0].sha256}\n"}


KILLED = WRITER.replace(
    "made = ",
    """import os, signal
from graft.built import store
def mark(path, sha256):
    os.kill(os.getpid(), signal.SIGKILL)
store.mark = mark
made = """,
)


def test_what_a_killed_writer_left_is_no_entry_and_is_swept(store: BuiltStore, tmp_path: Path) -> None:
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": str(here.parents[1] / "scripts")}
    words = [sys.executable, "-c", KILLED, str(here), str(store.root), str(tmp_path / "half")]
    assert subprocess.run(words, env=env, capture_output=True).returncode == -signal.SIGKILL
    (half,) = (store.root / "kernels").iterdir()
    assert half.name.endswith(".new")
    assert store.find(ITEM) is None
    assert list(store.entries()) == []
    made = store.add(ITEM, [wheel(tmp_path / "again", ITEM)])
    assert list((store.root / "kernels").iterdir()) == [made.folder]


def test_all_entries_are_listed_but_what_is_none(store: BuiltStore, entry: Entry, tmp_path: Path) -> None:
    item = wanted("other")
    store.add(item, [wheel(tmp_path / "more", item)])
    (store.root / "kernels" / "broken").mkdir()
    (store.root / "kernels" / "broken" / RECORD).write_text("{")
    assert [e.record.component for e in store.entries()] == ["kernels", "other"]
    assert store.broken() == [store.root / "kernels" / "broken"]
    store.remove([entry.folder])
    assert [e.record.component for e in store.entries()] == ["other"]
