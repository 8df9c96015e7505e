"""`graft store`, and what a build does with the store: what is compiled, kept, and said."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from components import wanted, wheel

from graft import build
from graft.built.store import RECORD, BuiltStore, Entry, Wanted
from graft.cli import main
from graft.commands import built, image
from graft.commands import components as wiring
from graft.commands.compiling import compiled_facts
from graft.commands.estimate import durations
from graft.commands.requirements import build_checked
from graft.commands.session import Session, make_plan, open_session
from graft.console import Console
from graft.errors import BuildFailed
from graft.hashes import digest_of
from graft.paths import Paths
from graft.plan import Plan
from graft.render import Rendered

SOURCE = Path(__file__).parents[2]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The real project, with a state of its own."""
    made = tmp_path / "project"
    made.mkdir()
    for name in ("build.yaml", "recipes", "patches", "images"):
        (made / name).symlink_to(SOURCE / name)
    return made


@pytest.fixture
def session(root: Path) -> Session:
    return open_session(Paths(root), Console(), recipe="glm-dsa", arch="sm90")


@pytest.fixture
def planned(session: Session) -> Plan:
    return make_plan(session)


@pytest.fixture
def store(session: Session) -> BuiltStore:
    return wiring.store_of(session)


@pytest.fixture
def item(planned: Plan) -> Wanted:
    return wiring.wanted_of(planned)["flashinfer"]


def add(store: BuiltStore, item: Wanted, *, days: float = 0) -> Entry:
    entry = store.add(item, [wheel(store.root.parent / "made" / item.key, item, content=os.urandom(1000))])
    past = time.time() - days * 86400
    os.utime(entry.folder / RECORD, (past, past))
    return entry


def graft(root: Path, capfd: Said, *words: str, code: int = 0) -> Any:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--project", str(root), "--recipe", "glm-dsa", "--arch", "sm90", "--json"])
    out = capfd.readouterr().out
    assert ended.value.code == code, out
    return json.loads(out)


def other(item: Wanted, **inputs: str) -> Wanted:
    named = {**item.inputs, **inputs}
    return Wanted(item.component, item.arch, digest_of(named), named)


class TestVerbs:
    """`graft store ls`, `gc` and `why`."""

    def test_ls(self, root: Path, store: BuiltStore, item: Wanted, capfd: Said) -> None:
        assert graft(root, capfd, "store", "ls")["entries"] == []
        add(store, item)
        add(store, wanted())
        told = graft(root, capfd, "store", "ls")
        assert [(e["component"], e["recipes"]) for e in told["entries"]] == [
            ("flashinfer", ["glm-dsa sm90"]),
            ("kernels", []),
        ]
        assert told["size"] > 2000

    def test_gc_keeps_what_a_recipe_names_and_what_was_of_use_lately(
        self, root: Path, store: BuiltStore, item: Wanted, capfd: Said
    ) -> None:
        named = add(store, item, days=400)
        old, new = add(store, wanted(source="old"), days=31), add(store, wanted(source="new"), days=29)
        told = graft(root, capfd, "store", "gc", "--dry-run")
        assert [e["key"] for e in told["removed"]] == [old.record.key]
        assert old.folder.exists()
        graft(root, capfd, "store", "gc")
        assert [e.folder.exists() for e in (named, old, new)] == [True, False, True]
        assert graft(root, capfd, "store", "gc", "--days", "28")["freed"] == new.size

    def test_gc_goes_on_with_the_oldest_until_it_fits(self, root: Path, store: BuiltStore, capfd: Said) -> None:
        oldest = add(store, wanted(source="a"), days=3)
        add(store, wanted(source="b"), days=1)
        big = wanted(source="c")
        store.add(big, [wheel(store.root.parent / "big", big, content=os.urandom(999_000))])
        told = graft(root, capfd, "store", "gc", "--size", "1MB")
        assert told["removed"][0]["key"] == oldest.record.key
        assert told["left"] <= 1_000_000

    def test_gc_sweeps_what_is_no_entry(self, root: Path, store: BuiltStore, capfd: Said) -> None:
        half = store.root / "kernels" / ".abc.new"
        half.mkdir(parents=True)
        assert graft(root, capfd, "store", "gc")["broken"] == [".graft/store/built/kernels/.abc.new"]
        assert not half.exists()

    def test_gc_keeps_what_may_be_of_a_recipe_that_cannot_be_planned(
        self, root: Path, store: BuiltStore, capfd: Said
    ) -> None:
        item = Wanted("flashinfer", "sm90", digest_of({"a": "b"}), {"a": "b"})
        maybe, never = add(store, item, days=99), add(store, wanted(), days=99)
        (root / "recipes").unlink()
        (root / "recipes").mkdir()
        (root / "recipes" / "glm-dsa.yaml").write_text((SOURCE / "recipes" / "glm-dsa.yaml").read_text())
        graft(root, capfd, "store", "gc")
        assert (maybe.folder.exists(), never.folder.exists()) == (True, False)
        again = add(store, wanted(), days=99)
        (root / "recipes" / "broken.yaml").write_text("recipe: [")
        graft(root, capfd, "store", "gc")
        assert again.folder.exists(), "it could be any component's"

    @pytest.mark.parametrize("words", [("--days", "-1"), ("--size", "lots"), ("--size", "0GB")])
    def test_gc_refuses_what_is_no_limit(self, root: Path, capfd: Said, words: tuple[str, str]) -> None:
        graft(root, capfd, "store", "gc", *words, code=2)

    def test_why_names_the_inputs_and_what_differs_from_the_nearest(
        self, root: Path, store: BuiltStore, item: Wanted, capfd: Said
    ) -> None:
        alone = graft(root, capfd, "store", "why", item.key[:12])
        assert alone["inputs"] == dict(item.inputs)
        assert (alone["stored"], alone["nearest"], alone["differs"]) == (False, None, [])
        far = add(store, other(item, patches="x", source="y"))
        near = add(store, other(item, patches="x"))
        told = graft(root, capfd, "store", "why", item.key[:12])
        assert (told["nearest"], told["differs"]) == (near.record.key, ["patches"])
        told = graft(root, capfd, "store", "why", far.record.key)
        assert (told["stored"], told["recipes"], told["differs"]) == (True, [], ["source"])

    @pytest.mark.parametrize("key", ["", "abc", "zzzz"])
    def test_why_wants_one_key(self, root: Path, store: BuiltStore, capfd: Said, key: str) -> None:
        graft(root, capfd, "store", "why", key, code=2)

    def test_an_input_that_only_one_of_two_has_differs(self) -> None:
        assert built.differences({"a": "1", "b": "2"}, {"b": "2", "c": "3"}) == ["a", "c"]

    @pytest.mark.parametrize("verb", ["push", "pull"])
    def test_without_a_registry_there_is_nothing_to_share(self, root: Path, capfd: Said, verb: str) -> None:
        assert "no registry is named" in graft(root, capfd, "store", verb, code=2)["what"]

    def test_plan_says_what_is_reused(self, root: Path, store: BuiltStore, item: Wanted, capfd: Said) -> None:
        before = graft(root, capfd, "plan")
        assert not before["components"]["flashinfer"]["reused"]
        add(store, item)
        after = graft(root, capfd, "plan")
        assert after["components"]["flashinfer"]["reused"]
        assert after["key"] == before["key"]


class TestBuild:
    """Compiling, with an engine that only writes down."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "contexts").mkdir()
        return tmp_path / "contexts"

    def compile(
        self,
        session: Session,
        planned: Plan,
        folder: Path,
        found: dict[str, Entry] | None = None,
        host: str = "tcp://none",
    ) -> None:
        engine = cast("Any", SimpleNamespace(docker=Path("docker"), host=host, env=lambda: {}))
        rendered = Rendered("FROM scratch\n", (), ())
        build_checked(session, planned, engine, rendered, folder, found or {})

    def engine(
        self,
        monkeypatch: pytest.MonkeyPatch,
        item: Wanted,
        content: bytes,
        *,
        fails: bool = False,
        says: tuple[str, ...] = (),
    ) -> list[str]:
        """Gives wheels instead of running a program; returns the targets it was asked for."""
        asked: list[str] = []

        def run(command: build.BuildCommand, env: object, console: object, log: Path, jobs: object) -> None:
            asked.append(command.dockerfile.read_text().partition("AS components\n")[2])
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("#9 [built-flashinfer 1/1] COPY\n#9 DONE 0.1s\n" if fails else "")
            if fails and len(asked) == 1:
                raise BuildFailed("the build of another one failed")
            assert command.output is not None
            wheel(command.output / "flashinfer", item, content=content, says=says)

        monkeypatch.setattr(build.components, "run", run)
        return asked

    def test_what_was_compiled_is_stored_and_stands_in_for_its_stage(
        self, session: Session, planned: Plan, store: BuiltStore, item: Wanted, folder: Path, monkeypatch: Any
    ) -> None:
        asked = self.engine(monkeypatch, item, b"first")
        self.compile(session, planned, folder)
        assert asked == ["COPY --from=built-flashinfer / /flashinfer/\n"]
        entry = store.find(item)
        assert entry is not None
        (placed,) = (folder / "built-flashinfer").iterdir()
        assert placed.samefile(next(iter(entry.wheels())))
        self.compile(session, planned, folder, {"flashinfer": entry})
        assert len(asked) == 1

    def test_a_wheel_that_the_lock_is_not_enough_for_makes_no_image_and_is_not_compiled_again(
        self, session: Session, planned: Plan, store: BuiltStore, item: Wanted, folder: Path, monkeypatch: Any
    ) -> None:
        asked = self.engine(monkeypatch, item, b"code", says=("Requires-Dist: never-locked>=2",))
        with pytest.raises(BuildFailed, match=r"flashinfer: kernels-1\.0-py3-none-any\.whl asks for never-locked>=2"):
            self.compile(session, planned, folder)
        entry = store.find(item)
        assert entry is not None
        with pytest.raises(BuildFailed, match="never-locked") as caught:
            self.compile(session, planned, folder, {"flashinfer": entry})
        assert len(asked) == 1
        assert caught.value.exit_code == 6

    @pytest.mark.parametrize("no_cache", [False, True])
    @pytest.mark.parametrize("asks", ["never-locked", "torch"])
    def test_an_image_is_only_made_of_wheels_that_the_lock_is_enough_for(
        self,
        session: Session,
        planned: Plan,
        item: Wanted,
        folder: Path,
        monkeypatch: Any,
        asks: str,
        no_cache: bool,
    ) -> None:
        self.engine(monkeypatch, item, b"code", says=(f"Requires-Dist: {asks}",))
        made: list[str] = []

        def target(command: build.BuildCommand, env: object, console: object, log: Path, jobs: object) -> None:
            made.append(command.target)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
            command.metadata.write_text('{"containerimage.digest": "sha256:1"}')

        monkeypatch.setattr("graft.build.command.run", target)
        monkeypatch.setattr("graft.build.prepare_contexts", lambda *_: folder)
        monkeypatch.setattr("graft.fetch.fetch", lambda *_, **__: 0)
        monkeypatch.setattr(image, "_inputs", lambda *_: None)
        engine = cast("Any", SimpleNamespace(docker=Path("docker"), host="tcp://none", kind="system", env=lambda: {}))
        if asks == "torch":
            assert image.build(session, planned, engine, no_cache=no_cache) == ("sha256:1", "sha256:1")
            assert made == ["runtime", "smoke"]
        else:
            with pytest.raises(BuildFailed, match="the lock has no never-locked"):
                image.build(session, planned, engine, no_cache=no_cache)
            # By the Dockerfile in one go the wheels are there when the image is; it gets no test and no tag.
            assert made == (["runtime"] if no_cache else [])

    def test_a_component_that_was_finished_is_kept_when_another_one_fails(
        self, session: Session, planned: Plan, store: BuiltStore, item: Wanted, folder: Path, monkeypatch: Any
    ) -> None:
        asked = self.engine(monkeypatch, item, b"done", fails=True)
        with pytest.raises(BuildFailed, match="another one"):
            self.compile(session, planned, folder)
        assert len(asked) == 2
        assert store.find(item) is not None

    def test_what_takes_turns_is_kept_turn_by_turn(
        self, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The long one is built after the other, with all compilers; when it fails, the other one stays."""
        session = dataclasses.replace(
            open_session(Paths(root), Console(), recipe="glm-dsa-lmcache", arch="sm90"), jobs=2
        )
        planned = make_plan(session)
        both = wiring.wanted_of(planned)
        durations(session).note({"component flashinfer sm90": 100.0, "component lmcache sm90": 2000.0})
        asked: list[tuple[dict[str, int], list[str]]] = []

        def run(command: build.BuildCommand, env: object, console: object, log: Path, jobs: dict[str, int]) -> None:
            replaced = [word for word in command.argv if word.startswith("built-")]
            asked.append((jobs, [word.partition("=")[0] for word in replaced]))
            [name] = jobs
            log.parent.mkdir(parents=True, exist_ok=True)
            if name == "lmcache" and len(asked) == 2:
                raise BuildFailed("the compiler found an error")
            with log.open("a") as said:
                said.write(f"#9 [build-{name} 2/2] RUN\n")
                said.write('#9 7.5 graft-measured: {"seconds": 7.4, "jobs": 2, "peak_gb": 1.0, "started": 1.0}\n')
            assert command.output is not None
            wheel(command.output / name, both[name], content=name.encode())

        monkeypatch.setattr(build.components, "run", run)
        with pytest.raises(BuildFailed, match="found an error"):
            self.compile(session, planned, folder, host="unix:///there")
        assert asked == [({"flashinfer": 2}, []), ({"lmcache": 2}, ["built-flashinfer"])]
        assert [fact["component"] for fact in compiled_facts(session, planned)] == ["flashinfer"]
        found = wiring.find(session, planned)
        assert list(found) == ["flashinfer"]
        self.compile(session, planned, folder, found, host="unix:///there")
        assert list(wiring.find(session, planned)) == ["flashinfer", "lmcache"]
        assert {f["component"]: f["seconds"] for f in compiled_facts(session, planned)} == {
            "flashinfer": 7.4,
            "lmcache": 7.4,
        }

    def test_a_context_takes_the_place_of_the_stage(self, planned: Plan, tmp_path: Path) -> None:
        words = build.command_of(
            planned, Rendered("", (), ()), tmp_path, Path("docker"), "runtime", {}, replaced=["built-flashinfer"]
        ).argv
        assert f"built-flashinfer={tmp_path}/built-flashinfer" in words

    def test_files_alone_have_no_image_id(self, planned: Plan, tmp_path: Path) -> None:
        command = build.command_of(planned, Rendered("", (), ()), tmp_path, Path("docker"), "components", {})
        words = dataclasses.replace(command, output=tmp_path / "out").argv
        assert f"type=local,dest={tmp_path}/out" in words
        assert "--metadata-file" not in words
