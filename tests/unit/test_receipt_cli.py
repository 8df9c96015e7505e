"""`graft receipt show` and `verify`: what they print and how they end, in a copy of the real project."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from docker.errors import ImageNotFound
from gate_engine import FACTS, FakeEngine, FakeTest, gate, report

from graft import cli
from graft.commands import receipt_show, receipt_verify
from graft.commands.session import make_plan, open_session
from graft.console import Console
from graft.errors import EngineMissing, GateFailed
from graft.gate import ReceiptFacts
from graft.gate.receipt import folder_of
from graft.paths import Paths

SOURCE = Path(__file__).parents[2]
IMAGE = "sha256:" + "a" * 64
VARIABLES = ("ARCH", "RECIPE", "JOBS", "ENGINE", "OFFLINE")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Engine:
    """An engine that holds one image, under the names it is asked for."""

    host = "unix:///e"

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels, self.names, self.id = labels, {IMAGE, "graft:glm-dsa-sm90"}, IMAGE

    def client(self) -> Engine:
        return self

    def close(self) -> None:
        pass

    @property
    def images(self) -> Engine:
        return self

    def get(self, name: str) -> Engine:
        if name not in self.names:
            raise ImageNotFound("no such image")
        return self


class Place(NamedTuple):
    """A project with a receipt of its plan, and the engine that holds the image."""

    root: Path
    engine: Engine
    run: Callable[..., Ended]
    facts: ReceiptFacts

    def forbid_engine(self) -> None:
        self.engine.client = None  # type: ignore[method-assign,assignment]

    @property
    def file(self) -> Path:
        return folder_of(Paths(self.root).receipts, IMAGE) / "receipt.json"

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        data = json.loads(self.file.read_text(encoding="utf-8"))
        change(data)
        self.file.write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "project"
    root.mkdir()
    shutil.copy(SOURCE / "build.yaml", root)
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def place(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    paths = Paths(made)
    shutil.rmtree(paths.state, ignore_errors=True)
    planned = make_plan(open_session(paths, Console()))
    facts = ReceiptFacts(
        recipe=planned.recipe.recipe,
        arch=planned.arch.name,
        key=planned.image.key,
        lock_digest=planned.lock.digest,
        gate_digest=planned.gate.key,
        engine=FACTS.engine,
        look_inside=FACTS.look_inside,
    )
    gate(FakeEngine({"core": FakeTest(), "files": FakeTest()}), paths.receipts, facts=facts)
    engine = Engine(planned.labels())
    for module in (receipt_show, receipt_verify):
        monkeypatch.setattr(module, "ready_engine", lambda session: engine)
    monkeypatch.chdir(made)
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()

    def run(*words: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            cli.main(["receipt", *words])
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    yield Place(made, engine, run, facts)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("which", [[], [IMAGE], ["a" * 12], ["graft:glm-dsa-sm90"], ["FILE"]])
def test_a_receipt_is_found_by_plan_id_reference_or_file(place: Place, which: list[str]) -> None:
    words = [str(place.file) if word == "FILE" else word for word in which]
    ended = place.run("show", *words)
    assert (ended.code, ended.out) == (0, f"{IMAGE} cpu pass\n"), ended.err
    assert re.search(r"^core .*pass", ended.err, re.MULTILINE)
    assert "not seen: no GPU was used" in ended.err


def test_show_has_json_and_markdown(place: Place) -> None:
    [found] = json.loads(place.run("show", "--json").out)["receipts"]
    assert found == {"file": str(place.file), "receipt": json.loads(place.file.read_text(encoding="utf-8"))}
    text = place.run("show", "--report", "md").out
    assert text == place.file.with_name("summary.md").read_text(encoding="utf-8")
    assert text.startswith("### Gate of glm-dsa on sm90, cpu tier: pass\n")


def test_show_shows_both_tiers(place: Place) -> None:
    with pytest.raises(GateFailed):
        gate(FakeEngine({"core": FakeTest(139, "")}), Paths(place.root).receipts, facts=place.facts, tier="gpu")
    assert place.run("show").out == f"{IMAGE} cpu pass\n{IMAGE} gpu fail\n"
    assert place.run("show", "--tier", "gpu").out == f"{IMAGE} gpu fail\n"
    assert place.run("verify", "--tier", "cpu").code == 0
    assert place.run("verify", "--tier", "gpu").code == 7


def test_show_of_an_id_needs_no_engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(receipt_show, "ready_engine")
    assert place.run("show").code == place.run("show", IMAGE).code == place.run("show", str(place.file)).code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "graft:nothing"], "no image 'graft:nothing' in the engine"),
        (["show", "sha256:" + "b" * 64], "no gate has run in sha256:bbb"),
        (["show", "a" * 12 + "b" * 52], "no gate has run in"),
        (["show", "nothing.json"], "there is no file nothing.json"),
        (["show", "build.yaml"], "this is no receipt"),
        (["verify", "build.yaml"], "this is no receipt"),
        (["show", "nothing"], "there is no file 'nothing', and 'nothing' names no image: it has no tag"),
        (["show", ""], "IMAGE.FILE: no image or file is named"),
        (["verify", "A B"], "there is no file 'A B', and 'A B' is not a reference"),
        (["verify", "graft:nothing"], "no image 'graft:nothing' in the engine"),
        (["show", "--arch", "sm100"], "graft:glm-dsa-sm100-[0-9a-f]{12} has no receipt here"),
        (["show", "--report", "html"], "invalid choice"),
        (["show", "--arch", "sm91"], "sm91"),
        (["show", "--tier", "gpu"], "no receipt of the gpu tier.*\\n.*make smoke-gpu"),
        (["verify", "--tier", "tpu"], "invalid choice"),
        (["show", "one", "two"], "unrecognized arguments"),
        (["prove"], "invalid choice"),
        ([], "receipt_verb|VERB"),
    ],
)
def test_bad_input_ends_with_2(place: Place, words: list[str], says: str) -> None:
    if not any(":" in word for word in words):
        # What no engine can know better is said without one.
        place.forbid_engine()
    ended = place.run(*words)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert re.search(says, ended.err), ended.err
    assert "Traceback" not in ended.err


def test_verify_of_a_sound_receipt(place: Place) -> None:
    ended = place.run("verify")
    assert (ended.code, ended.out) == (0, f"verified: {IMAGE} cpu pass\n"), ended.err
    data = json.loads(place.run("verify", str(place.file), "--json").out)
    assert data["verified"] is True
    assert [check["what"] for check in data["checks"]] == ["verdict", "image", "labels", "tests"]


def remove_label(place: Place) -> None:
    del place.engine.labels["dev.graft.key"]


def red_test(data: dict[str, Any]) -> None:
    data["tests"][0].update(verdict="fail", checks=[{"id": "x", "verdict": "fail", "detail": ""}])
    data["verdict"] = "fail"


@pytest.mark.parametrize(
    ("change", "what", "says"),
    [
        (lambda p: p.edit(red_test), "verdict", "red: core"),
        (lambda p: p.engine.names.clear(), "image", "the engine has no image"),
        (lambda p: setattr(p.engine, "id", "sha256:" + "b" * 64), "image", "the engine's is sha256:bbb"),
        (lambda p: p.edit(lambda d: d.update(key="0" * 64)), "labels", "dev.graft.key is"),
        (lambda p: p.edit(lambda d: d.update(lock_digest="0" * 64)), "labels", "dev.graft.lock is"),
        (remove_label, "labels", "dev.graft.key is not set"),
        (lambda p: p.edit(lambda d: d.update(arch="sm100")), "labels", "dev.graft.arch is sm90"),
        (lambda p: p.edit(lambda d: d.update(gate_digest="0" * 64)), "tests", "stale: other tests"),
        (lambda p: p.edit(lambda d: d.update(recipe="gone")), "tests", "stale: which tests would run today"),
    ],
)
def test_a_receipt_that_does_not_hold_ends_with_7(
    place: Place, change: Callable[[Place], object], what: str, says: str
) -> None:
    change(place)
    ended = place.run("verify", str(place.file))
    assert (ended.code, ended.out.split(":")[0]) == (7, "not verified"), ended.err
    assert "make smoke" in ended.err
    failed = [c for c in json.loads(place.run("verify", str(place.file), "--json").out)["checks"] if not c["ok"]]
    assert any(check["what"] == what and says in check["detail"] for check in failed), failed


def test_a_red_receipt_of_gpus_is_not_verified_either(place: Place) -> None:
    said = report("core", "fail")
    with pytest.raises(GateFailed):
        gate(FakeEngine({"core": FakeTest(1, said)}), Paths(place.root).receipts, facts=place.facts, tier="gpu")
    ended = place.run("verify")
    assert ended.code == 7
    assert "verdict: red: core" in ended.err


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_what_no_gate_wrote_is_refused_before_an_engine_is_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.delattr(receipt_verify, "ready_engine")
    place.edit(lambda d: d["tests"][0].update(verdict="fail"))
    ended = place.run(verb, str(place.file))
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "this is no receipt: the run says pass, its tests say fail" in ended.err


def test_what_a_receipt_says_does_not_reach_the_terminal_as_orders(place: Place) -> None:
    place.edit(lambda d: (d["tests"][0].update(detail="\x1b[2J\u202ex"), d.update(limits=["\x1b]0;y\x07"])))
    ended = place.run("show", str(place.file))
    assert ended.code == 0, ended.err
    assert "?[2J?x" in ended.err
    assert not set(ended.out + ended.err) & set("\x1b\x07\u202e")


def test_verify_needs_an_engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(session: object) -> Engine:
        raise EngineMissing("no engine")

    monkeypatch.setattr(receipt_verify, "ready_engine", none)
    assert place.run("verify").code == 9


def test_a_damaged_receipt_of_one_tier_does_not_hide_the_other(place: Place) -> None:
    place.file.with_name("receipt-gpu.json").write_text("{}", encoding="utf-8")
    ended = place.run("show")
    assert (ended.code, ended.out) == (0, f"{IMAGE} cpu pass\n")
    assert "receipt-gpu.json: this is no receipt" in ended.err


def test_a_damaged_receipt_of_another_image_is_said_and_hides_nothing(place: Place) -> None:
    other = place.file.parents[1] / "bbbbbbbbbbbb" / "receipt.json"
    other.parent.mkdir()
    other.write_text('{"schema_version": 1}', encoding="utf-8")
    ended = place.run("show")
    assert (ended.code, ended.out) == (0, f"{IMAGE} cpu pass\n")
    assert "bbbbbbbbbbbb/receipt.json: this is no receipt" in ended.err
