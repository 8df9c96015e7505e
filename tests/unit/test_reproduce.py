"""What an image is built again from, what is refused, and how two images are compared member by member."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graft import metadata
from graft.commands import reproduce
from graft.commands.session import Session, make_plan, open_session
from graft.console import Console
from graft.errors import BadInput, BuildFailed, EngineMissing
from graft.paths import Paths
from graft.plan import Plan
from graft.render import render
from graft.trial import layers
from graft.trial.layers import FileDifference, configs_differ, layers_differ
from graft.trial.reference import Base
from graft.trial.saved import Blobs, list_saved, load_saved

SOURCE = Path(__file__).parents[2]
ID = "sha256:" + "1" * 64


# Layers


def tar(members: Mapping[str, bytes], **more: Any) -> bytes:
    """A layer; `more` are attributes of its members."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in more.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def compared(one: bytes, other: bytes) -> list[FileDifference]:
    return layers._compare(1, layers._members(io.BytesIO(one)), layers._members(io.BytesIO(other)))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (tar({"a": b"1"}), tar({"a": b"1"}), {}),
        (tar({"a": b"1", "b": b""}), tar({"a": b"1"}), {"b": "only in the image"}),
        (tar({"a": b"1"}), tar({"a": b"1", "c": b""}), {"c": "only in the new build"}),
        (tar({"a": b"1"}, mtime=5), tar({"a": b"1"}, mtime=6), {"a": "mtime 5 -> 6"}),
        (tar({"a": b"1"}, mode=0o644), tar({"a": b"1"}, mode=0o755), {"a": "mode 0o644 -> 0o755"}),
        (tar({"a": b"1"}, uid=0), tar({"a": b"1"}, uid=7), {"a": "owner 0:0 -> 7:0"}),
        (
            tar({"a": b""}, type=tarfile.SYMTYPE, linkname="x"),
            tar({"a": b""}, type=tarfile.SYMTYPE, linkname="y"),
            {"a": "link x -> y"},
        ),
        (
            tar({"a": b"1"}, pax_headers={"SCHILY.xattr.user.x": "1"}),
            tar({"a": b"1"}),
            {"a": 'attributes {"SCHILY.xattr.user.x": "1"} -> {}'},
        ),
        (tar({"a": b"1", "b": b"2"}), tar({"b": b"2", "a": b"1"}), {"a": "stands at another place of the layer"}),
    ],
)
def test_a_difference_is_named_by_its_file(one: bytes, other: bytes, expected: dict[str, str]) -> None:
    assert {found.file: found.what for found in compared(one, other)} == expected


def test_content_differs_by_its_hash() -> None:
    (found,) = compared(tar({"a": b"1"}), tar({"a": b"2"}))
    assert found.what.startswith("sha256 6b86b273ff34fce19d6b804eff5a3f5747ada")


def test_of_a_record_the_entries_are_named() -> None:
    old = b"six.py,sha256=a,1\nsix-1.dist-info/uv_cache.json,sha256=b,2\n"
    new = b"six.py,sha256=a,1\nsix-1.dist-info/uv_cache.json,sha256=c,2\n"
    (found,) = compared(tar({"s/six-1.dist-info/RECORD": old}), tar({"s/six-1.dist-info/RECORD": new}))
    assert found.what.endswith("; its lines for six-1.dist-info/uv_cache.json")


def test_what_reaches_a_container_is_compared_in_the_configuration() -> None:
    one = {"Config": {"Env": ["A=1"], "Cmd": None, "Labels": {"x": "1"}}, "Created": "1", "Os": "linux"}
    other = {"Config": {"Env": ["A=2"], "Cmd": [], "Labels": {"x": "1"}}, "Created": "1", "Os": "linux"}
    assert configs_differ(one, other) == ["Env: ['A=1'] -> ['A=2']"]


# An engine that saves and loads


class Engine:
    """The calls of Docker's client that are used, over tars in memory."""

    def __init__(self, images: Mapping[str, list[bytes]], *, form: str = "classic") -> None:
        self.form = form
        self.configs = {name: self._config(made) for name, made in images.items()}
        self.layers = dict(images)
        self.loaded: list[str] = []
        self.api = SimpleNamespace(get_image=self._save, load_image=self._load)
        self.images = SimpleNamespace(get=self._get)

    def id(self, name: str) -> str:
        return f"sha256:{digest(self.configs[name])}"

    def _config(self, made: list[bytes]) -> bytes:
        return json.dumps({"rootfs": {"diff_ids": [f"sha256:{digest(layer)}" for layer in made]}}).encode()

    def _name(self, image: str) -> str:
        return next(name for name in self.configs if image in (name, self.id(name)))

    def _get(self, image: str) -> Any:
        name = self._name(image)
        diff_ids = json.loads(self.configs[name])["rootfs"]["diff_ids"]
        return SimpleNamespace(id=self.id(name), attrs={"RootFS": {"Layers": diff_ids}})

    def _save(self, image: str, chunk_size: int = 0) -> Iterator[bytes]:
        name = self._name(image)
        blobs = {digest(layer): layer for layer in self.layers[name]}
        if self.form == "compressed":
            blobs = {digest(layer + b"z"): layer + b"z" for layer in self.layers[name]}
        config = digest(self.configs[name])
        files = {f"blobs/sha256/{key}": data for key, data in sorted({**blobs, config: self.configs[name]}.items())}
        manifest = [{"Config": f"blobs/sha256/{config}", "Layers": [f"blobs/sha256/{key}" for key in blobs]}]
        data = tar({**files, "manifest.json": json.dumps(manifest).encode() if self.form != "none" else b"[]"})
        for start in range(0, len(data), 777):
            yield data[start : start + 777]

    def _load(self, chunks: Iterator[bytes]) -> Iterator[dict[str, str]]:
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            self.loaded = archive.getnames()
        yield {"stream": "ok"} if self.form != "refuses" else {"error": "no space"}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


LAYERS = [tar({"base": b"0" * 3000}), tar({"a": b"1"})]


def test_only_layers_that_differ_are_read_and_counted_from_the_lowest() -> None:
    engine = Engine({"one": LAYERS, "other": [LAYERS[0], tar({"a": b"1"}, mtime=9), tar({"b": b""})]})
    found = layers_differ(engine, "one", "other")  # type: ignore[arg-type]
    with pytest.raises(EngineMissing):
        layers_differ(Engine({"one": LAYERS, "other": LAYERS[:1]}, form="compressed"), "one", "other")  # type: ignore[arg-type]
    assert found == [FileDifference(2, "a", "mtime 0 -> 9"), FileDifference(3, "b", "only in the new build")]


def test_an_image_is_listed_read_and_loaded_by_its_blobs() -> None:
    engine = Engine({"one": LAYERS})
    saved = list_saved(engine, engine.id("one"))  # type: ignore[arg-type]
    assert saved.layers == tuple(f"blobs/sha256/{digest(layer)}" for layer in LAYERS)
    assert {blob.sha256 for blob in saved.blobs} == {digest(engine.configs["one"]), *map(digest, LAYERS)}
    blobs = Blobs(engine, saved.id)  # type: ignore[arg-type]
    read = [(blob.name, b"".join(blobs.chunks(blob.name))) for blob in saved.blobs]
    assert all(name.endswith(digest(data)) for name, data in read)
    load_saved(engine, saved.id, saved.layers, ((n, len(d), iter([d])) for n, d in read))  # type: ignore[arg-type]
    assert engine.loaded == [*(name for name, _ in read), "manifest.json"]


def test_an_engine_that_saves_in_another_form_or_does_not_load_is_said() -> None:
    engine = Engine({"one": LAYERS}, form="none")
    with pytest.raises(EngineMissing, match="a form that Graft does not know"):
        list_saved(engine, engine.id("one"))  # type: ignore[arg-type]
    full = Engine({"one": LAYERS}, form="refuses")
    with pytest.raises(BadInput, match="no space"):
        load_saved(full, full.id("one"), (), iter([]))  # type: ignore[arg-type]


# What is built


@pytest.fixture
def session(tmp_path: Path) -> Session:
    root = tmp_path / "project"
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE / "build.yaml", root)
    (root / ".graft").mkdir()
    return open_session(Paths(root), Console(json_mode=True), recipe="glm-dsa", arch="sm90")


def recorded(session: Session) -> tuple[Plan, dict[str, bytes]]:
    plan = make_plan(session)
    return plan, metadata.files(session.paths, plan, render(session.paths, plan).text)


def base(plan: Plan, **labels: str) -> Base:
    return Base(ID, None, None, {"Config": {"Labels": {"dev.graft.key": plan.image.key, **labels}}})


def planned(session: Session, found: Mapping[str, bytes], image: Base) -> Plan:
    return reproduce._planned(session, found, "x", image, reproduce._recipe_here(session, found))


def test_the_plan_is_the_images_and_the_gate_is_this_checkouts(session: Session) -> None:
    plan, found = recorded(session)
    again = planned(session, found, base(plan))
    assert again.image.key == plan.image.key
    assert again.gate.inputs["smoke"] == plan.gate.inputs["smoke"]
    assert again.gate.inputs["patch tests"] == plan.gate.inputs["patch tests"]
    assert again.waivers == plan.waivers
    assert plan.operators
    assert again.operators == plan.operators
    assert again.gate.key == plan.gate.key


def test_the_gate_of_an_image_made_again_records_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its project has neither recipe nor list, and what holds is this checkout's."""
    session.paths.operators("glm-dsa").unlink()
    plan, found = recorded(session)
    assert planned(session, found, base(plan)).operators is None
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("graft.trial.reference.find_base", lambda *args, **more: base(plan))
    monkeypatch.setattr("graft.trial.containers.trials", lambda *args: contextlib.nullcontext())
    monkeypatch.setattr("graft.inventory.imaged.read_metadata", lambda *args: found)
    monkeypatch.setattr(reproduce, "ready_engine", lambda session: SimpleNamespace(client=io.BytesIO))
    monkeypatch.setattr(reproduce, "build", lambda *args, **more: (ID, ID))
    monkeypatch.setattr(reproduce, "gate", lambda *args, **more: asked.append(more))
    reproduce.reproduce(session, "x:1", trust=False, without_gate=False)
    assert asked == [{"rerun": True, "record": False}]


def test_the_inputs_come_from_the_image_and_only_the_tests_from_here(session: Session) -> None:
    plan, found = recorded(session)
    script = session.paths.scripts / "make-venv.sh"
    script.write_text("of this checkout\n")
    shutil.rmtree(session.paths.patches / "flashinfer" / "tests" / "__pycache__", ignore_errors=True)
    with reproduce._project(session, plan, found, base(plan)) as paths:
        assert (paths.scripts / "make-venv.sh").read_bytes() == found["images/scripts/make-venv.sh"]
        assert (paths.scripts / "rootfs-setup.sh").stat().st_mode & 0o100, "mmdebstrap starts it by its name"
        for ref in plan.patch_refs:
            assert (paths.patches / f"{ref}.patch").read_bytes() == found[f"patches/{ref}.patch"]
        assert (paths.smoke / "core.py").read_bytes() == (session.paths.smoke / "core.py").read_bytes()
        assert paths.store.resolve() == session.paths.store.resolve()
        assert render(paths, plan).text.encode() == found["Dockerfile"]
    assert not list((session.paths.state / "reproduce").iterdir())


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda found: found.clear(), "does not say which recipe"),
        (lambda found: found.update({"recipe.yaml": found["recipe.yaml"].replace(b'"1"', b'"2"')}), "env differs"),
        (lambda found: found.pop("images/stages/base.j2"), "stages differs"),
        (lambda found: found.update({"key.json": b"{}", "images/stages/base.j2": b""}), "key.json cannot be read"),
    ],
)
def test_an_image_that_is_not_what_it_says_is_refused(
    session: Session, edit: Callable[[dict[str, bytes]], object], says: str
) -> None:
    plan, found = recorded(session)
    assert b'"1"' in found["recipe.yaml"] or b"'1'" in found["recipe.yaml"]
    found["recipe.yaml"] = found["recipe.yaml"].replace(b"'1'", b'"1"')
    edit(found)
    with pytest.raises(BadInput) as problem:
        planned(session, found, base(plan))
    assert says in problem.value.what


def test_scripts_of_the_image_run_only_when_they_are_this_checkouts_or_trusted(session: Session) -> None:
    _, found = recorded(session)
    reproduce._check_trust(session, found, "x", trust=False)
    (session.paths.scripts / "rootfs-setup.sh").write_text("other\n")
    with pytest.raises(BadInput, match=r"another images/scripts/rootfs-setup\.sh than this checkout"):
        reproduce._check_trust(session, found, "x", trust=False)
    reproduce._check_trust(session, found, "x", trust=True)


def test_a_recipe_that_is_not_here_needs_no_gate(session: Session) -> None:
    _, found = recorded(session)
    session.paths.recipe("glm-dsa").unlink()
    with pytest.raises(BadInput) as problem:
        reproduce._recipe_here(session, found)
    assert "--no-gate" in str(problem.value.cure)


def test_equal_is_said_and_different_is_an_error(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    plan, _ = recorded(session)
    engine = Engine({"one": LAYERS, "other": [LAYERS[0], tar({"a": b"2"})]})
    image = Base(engine.id("one"), None, None, {"Config": {}})
    reproduce._judge(session, engine, "x", image, image.id, plan, gated=True)  # type: ignore[arg-type]
    said = json.loads(capsys.readouterr().out)
    assert (said["equal"], said["built"]) == (True, image.id)
    real = engine.images.get

    def get(name: str, env: str = "") -> Any:
        attrs = {**real(name).attrs, "Config": {"Env": [env]} if env and name == engine.id("other") else {}}
        text = "RUN a" if name == image.id else "COPY b"
        return SimpleNamespace(id=real(name).id, attrs=attrs, history=lambda: [{"CreatedBy": text}])

    engine.images.get = lambda name: get(name, "A=1")
    with pytest.raises(BuildFailed, match="1 files of 1 layers differ, and 1 entries of the configuration"):
        reproduce._judge(session, engine, "x", image, engine.id("other"), plan, gated=True)  # type: ignore[arg-type]
    said = json.loads(capsys.readouterr().out)
    assert not said["equal"]
    assert [(d["layer"], d["file"]) for d in said["differences"]] == [(2, "a")]

    # The one exception: BuildKit's words for what made a layer, where everything else is the same.
    engine.layers["other"] = engine.layers["one"]
    engine.images.get = lambda name: SimpleNamespace(**{**vars(get(name)), "attrs": real("one").attrs | {"Config": {}}})
    reproduce._judge(session, engine, "x", image, engine.id("other"), plan, gated=True)  # type: ignore[arg-type]
    said = json.loads(capsys.readouterr().out)
    assert said["equal"]
    assert said["exceptions"] == {"history": ["step 1 RUN a -> COPY b"]}
    engine.images.get = lambda name: SimpleNamespace(
        **{**vars(get(image.id)), "attrs": real("one").attrs | {"Config": {}}}
    )
    with pytest.raises(BuildFailed, match="0 files of 0 layers"):
        reproduce._judge(session, engine, "x", image, engine.id("other"), plan, gated=True)  # type: ignore[arg-type]
