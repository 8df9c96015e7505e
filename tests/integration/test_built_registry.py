"""Built components in a registry: shared, taken, held to key and hash; and a build that goes on without it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from distribution import Distribution, free_port
from faults import Fault, faulty

from graft import net
from graft.built import remote
from graft.built.store import BuiltStore, Entry
from graft.commands import components as verbs
from graft.commands.session import Session, make_plan, open_session
from graft.console import Console
from graft.errors import FetchFailed, RegistryFailed
from graft.paths import Paths
from graft.plan import Plan
from graft.project import StoreConfig
from graft.registry.client import Registry
from graft.registry.reference import Repository

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from components import wanted, wheel

ITEM = wanted()


def client(host: str) -> Registry:
    return Registry(Repository(host, "components"), net.session(), pause=lambda seconds: None)


@pytest.fixture
def here(tmp_path: Path) -> BuiltStore:
    return BuiltStore(tmp_path / "here")


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    return BuiltStore(tmp_path / "there").add(ITEM, [wheel(tmp_path / "out", ITEM, content=bytes(range(256)) * 200)])


def test_what_one_host_shares_another_one_takes(
    running: Distribution, here: BuiltStore, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = client(running.host)
    assert remote.pull(registry, here, ITEM, tmp_path / "work") is None
    assert remote.push(registry, entry)
    assert running.tags("components").keys() == {f"kernels-sm90-{ITEM.key}"}
    # In pieces, as a large one is.
    monkeypatch.setattr(remote, "PIECE", 10_000)
    taken = remote.pull(registry, here, ITEM, tmp_path / "work")
    assert taken is not None
    assert taken.record == entry.record
    assert here.find(ITEM) == taken
    assert not (tmp_path / "work").exists()


def test_the_first_one_under_a_key_stays(running: Distribution, entry: Entry, tmp_path: Path) -> None:
    registry = client(running.host)
    assert remote.push(registry, entry)
    before = running.tags("components")
    other = BuiltStore(tmp_path / "third").add(ITEM, [wheel(tmp_path / "out3", ITEM, content=b"other")])
    assert not remote.push(registry, entry)
    assert not remote.push(registry, other)
    assert running.tags("components") == before


@pytest.mark.parametrize("cut", [True, False])
def test_damaged_bytes_are_no_hit(
    running: Distribution, here: BuiltStore, entry: Entry, tmp_path: Path, *, cut: bool
) -> None:
    registry = client(running.host)
    remote.push(registry, entry)
    blob = running.blob_file(f"sha256:{entry.record.files[0].sha256}")
    data = bytearray(blob.read_bytes())
    data[100] ^= 1
    blob.write_bytes(data[:-1] if cut else data)
    with pytest.raises(RegistryFailed):
        remote.pull(registry, here, ITEM, tmp_path / "work")
    assert here.find(ITEM) is None
    assert not (tmp_path / "work").exists()


def test_another_key_inside_is_an_error(
    running: Distribution, here: BuiltStore, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = client(running.host)
    monkeypatch.setattr("graft.built.store.check_key", lambda *args: None)
    liar = BuiltStore(tmp_path / "liar").add(ITEM, [wheel(tmp_path / "lie", wanted(source="other"))])
    monkeypatch.undo()
    remote.push(registry, liar)
    with pytest.raises(FetchFailed, match="and was to be kernels") as caught:
        remote.pull(registry, here, ITEM, tmp_path / "work")
    assert running.host in str(caught.value.where)
    assert here.find(ITEM) is None


def test_an_artifact_of_another_component_is_refused(
    running: Distribution, here: BuiltStore, entry: Entry, tmp_path: Path
) -> None:
    registry = client(running.host)
    remote.push(registry, entry)
    document = registry.manifest(remote.tag_of("kernels", "sm90", ITEM.key))
    assert document is not None
    item = wanted("other")
    registry.put_manifest(document, remote.tag_of("other", "sm90", item.key))
    with pytest.raises(RegistryFailed, match="it is kernels sm90"):
        remote.pull(registry, here, item, tmp_path / "work")


class TestBuild:
    """What a build does with it, and without it."""

    @pytest.fixture
    def session(self, tmp_path: Path) -> Session:
        root = tmp_path / "project"
        root.mkdir()
        for name in ("build.yaml", "recipes", "patches", "images"):
            (root / name).symlink_to(Path(__file__).parents[2] / name)
        return open_session(Paths(root), Console(), recipe="glm-dsa", arch="sm90")

    @pytest.fixture
    def planned(self, session: Session) -> Plan:
        return make_plan(session)

    def with_registry(self, session: Session, host: str) -> Session:
        project = session.project.model_copy(update={"store": StoreConfig(registry=f"{host}/components")})
        return dataclasses.replace(session, project=project)

    def add(self, session: Session, planned: Plan, tmp_path: Path) -> Entry:
        (item,) = verbs.wanted_of(planned).values()
        return verbs.store_of(session).add(item, [wheel(tmp_path / "made", item)])

    def test_it_is_pulled_before_and_pushed_after(
        self, session: Session, planned: Plan, running: Distribution, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        shared = self.with_registry(session, running.host)
        assert verbs.find(shared, planned) == {}
        made = self.add(session, planned, tmp_path)
        verbs.share(shared, planned)
        verbs.share(shared, planned)
        assert capfd.readouterr().err.count("shared flashinfer") == 1
        verbs.store_of(session).remove([made.folder])
        assert verbs.reused(session, planned) == frozenset()
        assert verbs.find(shared, planned).keys() == {"flashinfer"}
        assert "took flashinfer" in capfd.readouterr().err
        assert verbs.reused(session, planned) == {"flashinfer"}
        # What is here is not asked for.
        assert verbs.find(self.with_registry(session, "127.0.0.1:1"), planned).keys() == {"flashinfer"}

    def test_a_registry_that_is_down_is_said_once(
        self,
        session: Session,
        planned: Plan,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(verbs, "LONGEST_PAUSE", 0.0)
        down = self.with_registry(session, f"127.0.0.1:{free_port()}")
        assert verbs.find(down, planned) == {}
        said = capfd.readouterr().err
        assert said.count("warning:") == 1
        assert "built components are not looked for there" in said
        self.add(session, planned, tmp_path)
        verbs.share(down, planned)
        assert capfd.readouterr().err.count("built components are not shared") == 1

    def test_damage_is_said_and_built_again(
        self, session: Session, planned: Plan, running: Distribution, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        shared = self.with_registry(session, running.host)
        made = self.add(session, planned, tmp_path)
        verbs.share(shared, planned)
        blob = running.blob_file(f"sha256:{made.record.files[0].sha256}")
        blob.write_bytes(blob.read_bytes()[:-1] + b"x")
        verbs.store_of(session).remove([made.folder])
        assert verbs.find(shared, planned) == {}
        assert capfd.readouterr().err.count("warning:") == 1

    def test_offline_asks_nobody(self, session: Session, planned: Plan, running: Distribution, tmp_path: Path) -> None:
        offline = dataclasses.replace(self.with_registry(session, running.host), offline=True)
        assert verbs.find(offline, planned) == {}
        self.add(session, planned, tmp_path)
        verbs.share(offline, planned)
        assert running.tags("components") == {}

    def test_a_cut_answer_is_asked_for_again(
        self, session: Session, planned: Plan, running: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verbs, "LONGEST_PAUSE", 0.0)
        made = self.add(session, planned, tmp_path)
        verbs.share(self.with_registry(session, running.host), planned)
        verbs.store_of(session).remove([made.folder])
        with faulty(running.host) as proxy:
            proxy.faults = [Fault("cut-answer", "GET .*/blobs/", count=10, times=2)]
            assert verbs.find(self.with_registry(session, proxy.host), planned).keys() == {"flashinfer"}
