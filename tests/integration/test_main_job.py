"""The main job on a tiny project: green, red, interrupted, killed, twice at once. Needs root and Debian."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from distribution import distribution
from tiny import CHANNEL, Ran, Tiny, ended, is_running, share_engine_programs, wait_for
from web import Answer, web

from graft.gate.receipt import folder_of
from graft.lock import lock_text

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]

#: An interrupt is answered within this; most of it is for a busy machine.
PROMPT_SECONDS = 20.0
SITE = "/opt/venv/lib/python3.11/site-packages"
PATCH = "patches/six/text-of-numbers.patch"
SLOW_TEST = "import time\nprint('started', flush=True)\ntime.sleep(4321)\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """The project, locked; one engine for all tests, ended and removed with everything at the end."""
    root = tmp_path_factory.mktemp("tiny") / "project"
    root.mkdir()
    made = Tiny(root)
    made.write()
    share_engine_programs(made.paths)
    try:
        made.graft("lock")
        made.keep()
        yield made
        refused = made.graft("clean", code=2)
        assert "not confirmed" in refused.err
        assert made.paths.store.is_dir()
        assert made.graft("clean", "--yes").reference == "removed"
        assert not made.paths.state.exists()
        assert not made.engine_processes("dockerd")
    finally:
        if made.paths.state.exists():
            made.graft("engine-stop")
        shutil.rmtree(root.parent)


@pytest.fixture(scope="module")
def first(project: Tiny) -> Ran:
    """The first `graft image` on a fresh project."""
    return project.graft("image")


@pytest.fixture
def tiny(project: Tiny, first: Ran) -> Iterator[Tiny]:
    """The project with its own inputs again; whatever a test did, nothing half made and no container is left."""
    project.reset()
    yield project
    assert not project.leftovers()
    assert not project.containers()


def new_candidate(tiny: Tiny, value: str) -> None:
    """Another image, by an environment variable: a layer of no size, and no need to lock."""
    tiny.edit("recipes/tiny.yaml", 'TINY: "1"', f'TINY: "{value}"')


# Green


def test_the_lock_is_the_same_bytes_again(tiny: Tiny) -> None:
    files = [tiny.paths.lock("tiny"), tiny.paths.requirements("tiny")]
    before = [file.read_bytes() for file in files]
    again = tiny.graft("lock")
    assert "the lock is fresh" in again.err
    assert again.reference == "recipes/locks/tiny.lock.yaml"
    assert [file.read_bytes() for file in files] == before
    for file in files:
        file.unlink()
    assert "has no lock" in tiny.graft("image", code=3).err
    tiny.graft("lock")
    assert [file.read_bytes() for file in files] == before


def test_the_result_is_one_line_and_two_tags(tiny: Tiny, first: Ran) -> None:
    assert re.fullmatch(r"graft:tiny-sm90-[0-9a-f]{12}", first.reference)
    assert first.out.endswith(f"{first.reference}\n")
    tags = tiny.tags()
    assert tags[CHANNEL] == tags[first.reference]
    for step in ("fetch", "build runtime", "build smoke", "gate"):
        assert f"✓ {step}" in first.err


def test_the_image_says_what_it_is_and_nothing_of_the_host(tiny: Tiny, first: Ran) -> None:
    image = tiny.image(first.reference)
    digest = yaml.safe_load(tiny.paths.lock("tiny").read_text())["digest"]
    assert image.labels["org.opencontainers.image.version"] == first.reference.partition(":")[2]
    assert image.labels["dev.graft.recipe"] == "tiny"
    assert image.labels["dev.graft.arch"] == "sm90"
    assert image.labels["dev.graft.key"][:12] == first.reference[-12:]
    assert image.labels["dev.graft.lock"] == f"sha256:{digest}"
    assert image.labels["dev.graft.component.six.version"] == "1.17.0"
    patch = tiny.root / PATCH
    sha256 = hashlib.sha256(patch.read_bytes()).hexdigest()
    assert image.labels["dev.graft.patch.six.text-of-numbers"] == f"sha256:{sha256}"

    found = tiny.read_in(first.reference, "/usr/share/graft", f"{SITE}/six.py")
    metadata = "/usr/share/graft"
    assert found[f"{metadata}/lock.yaml"] == tiny.paths.lock("tiny").read_bytes()
    assert found[f"{metadata}/requirements.txt"] == tiny.paths.requirements("tiny").read_bytes()
    assert found[f"{metadata}/patches/six/text-of-numbers.patch"] == patch.read_bytes()
    assert found[f"{metadata}/Dockerfile"].decode() == tiny.graft("render").out
    manifest = json.loads(found[f"{metadata}/manifest.json"])
    assert manifest["files"] == {"six.py": hashlib.sha256(found[f"{SITE}/six.py"]).hexdigest()}
    assert b'return "%d" % s' in found[f"{SITE}/six.py"]

    names = {entry.partition("=")[0] for entry in image.env}
    assert {"PATH", "TINY", "CUDA_HOME"} <= names
    assert not [name for name in names if re.search(r"proxy|cert|ca_bundle|index", name, re.IGNORECASE)]
    of_the_host = [str(tiny.root), os.uname().nodename]
    of_the_host += [v for k, v in os.environ.items() if k.lower().endswith(("_proxy", "_index_url")) and len(v) > 3]
    said = b"\n".join(found.values()) + json.dumps([image.env, dict(image.labels)]).encode()
    assert not [text for text in of_the_host if text.encode() in said]


def test_the_receipt_is_of_this_image(tiny: Tiny, first: Ran) -> None:
    image_id = tiny.tags()[first.reference]
    receipt = tiny.receipt(image_id)
    assert receipt["image_id"] == image_id
    assert receipt["verdict"] == "pass"
    assert [test["id"] for test in receipt["tests"]] == ["core", "patches", "image-config"]
    assert (tiny.paths.receipts / image_id[7:19] / "junit.xml").is_file()


def test_a_second_time_there_is_nothing_to_do(tiny: Tiny, first: Ran) -> None:
    before, started = tiny.tags(), time.time()
    logs = {log: log.stat().st_mtime_ns for log in tiny.paths.logs.iterdir()}
    again = tiny.graft("image")
    assert "nothing to do" in again.err
    assert again.reference == first.reference
    assert tiny.tags() == before
    assert {log: log.stat().st_mtime_ns for log in tiny.paths.logs.iterdir()} == logs
    with tiny.client() as client:
        events = list(client.events(since=int(started), until=int(time.time()) + 1, decode=True))
    assert not [event for event in events if event["Type"] == "container"]


def test_the_gate_runs_again_when_asked(tiny: Tiny, first: Ran) -> None:
    before = tiny.tags()
    image_id = before[first.reference]
    earlier = tiny.receipt(image_id)
    again = tiny.graft("image", "--rerun-gate")
    assert again.reference == first.reference
    assert "gate of" in again.err
    assert tiny.receipt(image_id)["started"] > earlier["started"]
    assert tiny.graft("smoke").reference == first.reference
    assert tiny.tags() == before


def test_what_is_no_input_of_the_image_does_not_move_its_immutable_tag(tiny: Tiny, first: Ran) -> None:
    before = tiny.tags()[first.reference]
    tiny.edit("recipes/tiny.yaml", "smoke: [core, patches]", "smoke: [patches, core]  # another order")
    tiny.edit("build.yaml", "keep: 5GB", "keep: 6GB")
    again = tiny.graft("image")
    assert "gate of" in again.err, "the list of tests is an input of the gate"
    assert again.reference == first.reference
    assert tiny.tags()[first.reference] == before


def test_an_edited_patch_changes_only_the_layers_after_the_packages(tiny: Tiny, first: Ran) -> None:
    before = tiny.tags()
    tiny.edit(PATCH, '+        return "%d" % s', '+        return "%i" % s')
    assert "stale: patches" in tiny.graft("image", code=3).err
    tiny.graft("lock")
    made = tiny.graft("image")
    after = tiny.tags()
    assert made.reference != first.reference
    assert after[first.reference] == before[first.reference]
    assert after[CHANNEL] == after[made.reference] != before[CHANNEL]
    old, new = tiny.image(first.reference).layers, tiny.image(made.reference).layers
    # The base, the venv and one layer for each wheel; then the overlay and the metadata.
    assert len(old) == len(new)
    assert old[:5] == new[:5]
    assert old[5] != new[5]
    log = (tiny.paths.logs / "tiny-sm90-runtime.log").read_text()
    assert not re.search(r"install-(wheels|debs)\.sh[^\n]*\n#\d+ DONE", log), "only the overlay was made again"

    tiny.reset()
    back = tiny.graft("image")
    assert back.reference == first.reference
    assert tiny.tags()[CHANNEL] == before[CHANNEL], "the channel is the image that was asked for last"


# Red


@pytest.mark.parametrize(
    ("name", "script", "verdict"),
    [
        ("fail", "from lib.report import Report\nr = Report('core')\nr.check('sum', False, '3')\nr.finish()\n", "fail"),
        ("hang", SLOW_TEST, "hang"),
        ("silent", "print('all is well')\n", "no-report"),
        ("crash", "import os\nos.abort()\n", "crash"),
    ],
    ids=["fail", "hang", "silent", "crash"],
)
def test_a_red_gate_tags_nothing(tiny: Tiny, name: str, script: str, verdict: str) -> None:
    before = tiny.tags()
    new_candidate(tiny, name)
    (tiny.root / "images/smoke/core.py").write_text(script)
    red = tiny.graft("image", code=7, quick_gate=True)
    assert red.out == ""
    assert f"nothing was tagged: core ({verdict})" in red.err
    candidate = re.search(r"candidate (sha256:[0-9a-f]{64})", red.err)
    assert candidate
    assert "run -it" in red.err, "how to look inside"
    assert tiny.tags() == before
    assert tiny.receipt(candidate[1], "receipt-failed.json")["verdict"] == "fail"
    assert not (tiny.paths.receipts / candidate[1][7:19] / "receipt.json").exists()
    with tiny.client() as client:
        assert client.images.get(candidate[1]).tags == [], "it is there, to be looked at"


def test_a_gate_that_turns_red_for_a_tagged_image_leaves_its_tags(tiny: Tiny, first: Ran) -> None:
    before = tiny.tags()
    (tiny.root / "images/smoke/core.py").write_text("print('all is well')\n")
    said = json.loads(tiny.graft("image", "--json", code=7).out)
    assert (said["error"], said["exit_code"]) == ("GateFailed", 7)
    assert tiny.tags() == before
    tiny.reset()
    assert tiny.graft("image").reference == first.reference


def test_a_patch_that_no_longer_applies_leaves_the_lock(tiny: Tiny) -> None:
    before = [tiny.paths.lock("tiny").read_bytes(), tiny.paths.requirements("tiny").read_bytes()]
    tiny.edit(PATCH, "     if PY2 and isinstance(s, text_type):", "     if PY2 and isinstance(s, binary_type):")
    refused = tiny.graft("lock", code=5)
    assert refused.out == ""
    for said in ("six/text-of-numbers", "six.py", "hunk", "verdict", "make lock"):
        assert said in refused.err
    assert [tiny.paths.lock("tiny").read_bytes(), tiny.paths.requirements("tiny").read_bytes()] == before


def test_the_stage_proves_the_locked_tree(tiny: Tiny) -> None:
    before = tiny.tags()
    body = yaml.safe_load(tiny.paths.lock("tiny").read_text())
    del body["digest"]
    body["patches"]["six"][0]["result"] = "0123456789" * 4
    tiny.paths.lock("tiny").write_text(lock_text(body))
    refused = tiny.graft("image", code=5)
    assert refused.out == ""
    assert "locked is 0123456789" in refused.err
    assert tiny.tags() == before


@pytest.mark.parametrize("damaged", ["truncated", "flipped"])
def test_a_damaged_file_of_the_store_is_fetched_again(tiny: Tiny, damaged: str) -> None:
    # Of the host's programs an engine that was there already may have needed none.
    tiny.graft("fetch")
    file = tiny.stored("idna-*.whl")
    whole = file.read_bytes()
    wrong = whole[:1000] if damaged == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1])
    file.write_bytes(wrong)
    offline = tiny.graft("image", "--rerun-gate", code=4, OFFLINE="1")
    assert "not in the store: idna 3.10" in offline.err
    assert "OFFLINE=1" in offline.err
    assert not file.exists(), "a damaged file is not kept"
    file.write_bytes(wrong)
    again = tiny.graft("fetch")
    assert "fetch 1 files" in again.err
    assert file.read_bytes() == whole
    assert "nothing to do" in tiny.graft("image", OFFLINE="1").err


def test_no_system_engine(tiny: Tiny) -> None:
    refused = tiny.graft("image", code=9, ENGINE="system", DOCKER_HOST=f"unix://{tiny.root}/none.sock")
    assert "what to do" in refused.err
    assert "ENGINE=embedded" in refused.err


# Interrupted, killed, and two at once


@pytest.mark.parametrize("pace", ["slow", "stalled"])
def test_ctrl_c_while_fetching(tiny: Tiny, pace: str) -> None:
    file = tiny.stored("uv-*.whl")
    whole = file.read_bytes()
    part = file.with_name(file.name + ".part")
    with web() as server:
        tiny.edit("build.yaml", "index: null", f"index: {server.url}/simple")
        page = f'<a href="../../{file.name}#sha256={file.parent.name}">{file.name}</a>'
        server.serve("/simple/uv/", Answer(page.encode(), kind="text/html"))
        hindered = Answer(whole, pace=0.2) if pace == "slow" else Answer(whole, cut=1_000_000, stall=True)
        server.serve(f"/{file.name}", hindered)
        file.unlink()
        with tiny.started("fetch", no_proxy="127.0.0.1") as process:
            wait_for(lambda: part.is_file() and part.stat().st_size > 200_000, process)
            os.killpg(process.pid, signal.SIGINT)
            ended(process, 130, PROMPT_SECONDS)
        assert not file.exists()
        kept = part.stat().st_size
        server.serve(f"/{file.name}", Answer(whole))
        tiny.graft("fetch", no_proxy="127.0.0.1")
        asked = server.ranges(f"/{file.name}")[-1]
    assert asked == f"bytes={kept}-", "it goes on where it stopped"
    assert file.read_bytes() == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_while_building(tiny: Tiny, first: Ran, number: signal.Signals) -> None:
    before = tiny.tags()
    step = slow_step(tiny, 4000 + number)
    with tiny.started("image") as process:
        wait_for(lambda: is_running(*step), process)
        end(process, number)
    assert tiny.tags() == before
    tiny.reset()
    again = tiny.graft("image")
    assert again.reference == first.reference
    if number == signal.SIGKILL:
        # Nobody could end its client, and the next run is not held up by it.
        for client in tiny.clients():
            os.kill(client, signal.SIGKILL)
    wait_for(lambda: not is_running(*step), seconds=30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_in_the_gate(tiny: Tiny, number: signal.Signals) -> None:
    before = tiny.tags()
    core = tiny.root / "images/smoke/core.py"
    green = core.read_text()
    new_candidate(tiny, number.name)
    core.write_text(SLOW_TEST)
    with tiny.started("image") as process:
        wait_for(tiny.gate_containers, process)
        end(process, number)
    if number != signal.SIGKILL:
        assert not tiny.containers()
    assert tiny.tags() == before
    core.write_text(green)
    made = tiny.graft("image")
    assert tiny.tags()[CHANNEL] == tiny.tags()[made.reference]


def test_the_engine_dies_during_the_build(tiny: Tiny, first: Ran) -> None:
    before = tiny.tags()
    step = slow_step(tiny, 4000)
    with tiny.started("image") as process:
        wait_for(lambda: is_running(*step), process)
        (daemon,) = tiny.engine_processes("dockerd")
        os.kill(daemon, signal.SIGKILL)
        failed = ended(process, 6, 60)
    assert failed.out == ""
    assert "the engine went away during the build" in failed.err
    tiny.reset()
    new_candidate(tiny, "recovered")
    made = tiny.graft("image")
    assert "engine: Docker" in made.err, "it was started again"
    assert tiny.tags() == {**before, made.reference: tiny.tags()[made.reference], CHANNEL: tiny.tags()[CHANNEL]}
    tiny.reset()
    assert tiny.graft("image").reference == first.reference


def test_two_at_once_make_one_image(tiny: Tiny) -> None:
    new_candidate(tiny, "two")
    with tiny.started("image") as one, tiny.started("image") as other:
        made = [ended(one, 0), ended(other, 0)]
    assert made[0].reference == made[1].reference
    assert len(tiny.engine_processes("dockerd")) == 1
    assert tiny.tags()[CHANNEL] == tiny.tags()[made[0].reference]


def slow_step(tiny: Tiny, seconds: int) -> tuple[str, str]:
    """Make the installation of wheels last so long; returns the command line that runs then."""
    script = tiny.paths.scripts / "install-wheels.sh"
    script.write_text(f"{script.read_text()}\nsleep {seconds}\n")
    return "sleep", str(seconds)


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal as a terminal or a service manager would, and see that it is answered soon."""
    if number == signal.SIGKILL:
        process.kill()
        process.communicate(timeout=PROMPT_SECONDS)
        return
    os.killpg(process.pid, number)
    stopped = ended(process, 130, PROMPT_SECONDS)
    assert stopped.out == ""
    assert "interrupted" in stopped.err


# Publish


def test_what_has_not_passed_is_not_pushed(tiny: Tiny, tmp_path: Path) -> None:
    with distribution(tmp_path / "registry") as registry:
        there = {"REGISTRY": f"{registry.host}/graft"}
        new_candidate(tiny, "never built")
        assert "is not built" in tiny.graft("push", code=7, **there).err
        candidate = tiny.image(tiny.graft("image").reference).id
        shutil.rmtree(folder_of(tiny.paths.receipts, candidate))
        assert "no passing receipt" in tiny.graft("push", code=7, **there).err
        assert registry.tags("graft") == {}


def test_what_has_passed_is_pushed_verified_and_pulled(tiny: Tiny, first: Ran, tmp_path: Path) -> None:
    with distribution(tmp_path / "registry") as registry:
        there = {"REGISTRY": f"{registry.host}/graft"}
        tiny.graft("key", "new", "--private", str(tmp_path / "private.pem"), "--public", str(tiny.root / "release.pub"))
        tiny.edit("build.yaml", "key: null", "key: release.pub")
        assert "no private key is given" in tiny.graft("push", code=2, **there).err
        there["GRAFT_SIGNING_KEY"] = str(tmp_path / "private.pem")
        pushed = json.loads(tiny.graft("push", "--json", **there).out)
        image_id = tiny.tags()[first.reference]
        assert pushed["image_id"] == image_id
        tag = first.reference.partition(":")[2]
        tags = registry.tags("graft")
        assert tags[tag] == tags["tiny-sm90"] == pushed["digest"]
        again = json.loads(tiny.graft("push", "--json", **there).out)
        assert (again["digest"], again["new_bytes"], again["moved"]) == (pushed["digest"], 0, [])

        forget(tiny)
        pulled = tiny.graft("pull", **there)
        assert pulled.reference == f"{registry.host}/graft@{pushed['digest']}"
        assert f"run --gpus all -p 8000:8000 {pulled.reference}" in pulled.err
        assert tiny.tags() == {f"{registry.host}/graft:{tag}": image_id}

        # A layer that is damaged in the registry never becomes an image here.
        forget(tiny)
        with tiny.client() as client:
            # The build cache holds layers too, and what is there is not downloaded.
            client.api.prune_builds(all=True)
        manifest = json.loads(registry.blob_file(pushed["digest"]).read_bytes())
        largest = max(manifest["layers"], key=lambda layer: layer["size"])
        layer = registry.blob_file(largest["digest"])
        data = bytearray(layer.read_bytes())
        data[len(data) // 2] ^= 1
        layer.write_bytes(data)
        assert "the engine cannot pull it" in tiny.graft("pull", code=8, **there).err
        assert tiny.tags() == {}


def forget(tiny: Tiny) -> None:
    """No image is left in the engine."""
    with tiny.client() as client:
        for image in client.images.list():
            client.images.remove(image.id, force=True)
