"""`patch test` and `patch onto` in a real engine: a tiny project, and an image made of it. Needs root and Debian."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_elf
import pytest
from docker import DockerClient
from nightly import CACHED, CONFIG, MODE, RECORD, SITE, USER, layers_files, make_nightly, record_line, tar_of, with_file
from tiny import PATCH_TEST, SERIES, Tiny, ended, share_engine_programs, wait_for
from web import Answer, Web, web

from graft.resolve import uv_program

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]

PATCH_FILE = "patches/six/text-of-numbers.patch"
TEST_FILE = "patches/six/tests/test_text_of_numbers.py"
NAME = "six/text-of-numbers"
#: What a second patch would be: it changes a line of the first one, and its test needs the first one.
SECOND_PATCH = """\
diff --git a/six.py b/six.py
--- a/six.py
+++ b/six.py
@@ -932,7 +932,7 @@ def ensure_str(s, encoding="utf-8", errors="strict"):
     # Optimization: Fast return for the common case.
     if type(s) is str:
         return s
     if type(s) is int:
-        return "%d" % s
+        return "#%d" % s
     if PY2 and isinstance(s, text_type):
         return s.encode(encoding, errors)
"""
SECOND_TEST = "import six\n\n\ndef test_with_a_hash():\n    assert six.ensure_str(42) == '#42'\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    root = tmp_path_factory.mktemp("tiny") / "project"
    root.mkdir()
    made = Tiny(root)
    made.write()
    share_engine_programs(made.paths)
    try:
        made.graft("lock")
        made.keep()
        yield made
    finally:
        if made.paths.state.exists():
            made.graft("engine-stop")
        shutil.rmtree(root.parent)


@pytest.fixture(scope="module")
def reference(project: Tiny) -> str:
    """The image of the project."""
    return project.graft("image").reference


@dataclass(frozen=True)
class Nightly:
    name: str
    id: str
    six: bytes


@pytest.fixture(scope="module")
def made_nightly(project: Tiny, reference: str) -> Nightly:
    with zipfile.ZipFile(project.stored("six-*.whl")) as wheel:
        six = wheel.read("six.py")
    return Nightly("nightly:v1", make_nightly(project, reference, "nightly:v1", six), six)


@pytest.fixture
def tiny(project: Tiny, reference: str) -> Iterator[Tiny]:
    """The project with its own inputs again; no container, half image or name of a base is left after a test."""
    project.reset()
    shutil.rmtree(project.paths.state / "patch-tests", ignore_errors=True)
    before = images(project)
    yield project
    assert not project.containers()
    assert not list(project.paths.contexts.glob("onto-*"))
    new = {id: tags for id, tags in images(project).items() if id not in before}
    assert all(tags and not tags[0].startswith("graft-onto-base") for tags in new.values()), new


@pytest.fixture
def nightly(tiny: Tiny, made_nightly: Nightly) -> Iterator[Nightly]:
    yield made_nightly
    with tiny.client() as client:
        for name in [n for n in tiny.tags() if n.startswith(("nightly:v1-", "other:", "mine:", "127."))]:
            client.images.remove(name)
    shutil.rmtree(tiny.paths.receipts, ignore_errors=True)


def images(tiny: Tiny) -> dict[str, list[str]]:
    with tiny.client() as client:
        return {str(image.id): image.tags for image in client.images.list(all=True)}


def tried(tiny: Tiny, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """The patches that `patch test --json` reports."""
    data: dict[str, Any] = json.loads(tiny.graft("patch", "test", *words, "--json", code=code).out)
    return list(data["patches"])


def write_test(tiny: Tiny, text: str) -> None:
    (tiny.root / TEST_FILE).write_text(text)


def add_second(tiny: Tiny, after: str = "    after: [text-of-numbers]\n") -> None:
    record = SERIES.partition("patches:\n")[2].replace("text-of-numbers", "with-a-hash").replace("text_of", "with_a")
    record = record.replace("test_with_a_numbers", "test_with_a_hash") + after
    (tiny.root / "patches/six/series.yaml").write_text(SERIES + record)
    (tiny.root / "patches/six/with-a-hash.patch").write_text(SECOND_PATCH)
    (tiny.root / "patches/six/tests/test_with_a_hash.py").write_text(SECOND_TEST)


# patch test


def test_red_and_green_are_kept_for_the_same_bytes(tiny: Tiny) -> None:
    first = tried(tiny, "--all")
    assert [(p["patch"], p["verdict"], p["known"]) for p in first] == [(NAME, "red-green", False)]
    assert (first[0]["red"]["failed"], first[0]["green"]["passed"]) == (1, 1)
    kept = tiny.paths.state / "patch-tests" / f"{first[0]['key']}.json"
    assert json.loads(kept.read_text())["verdict"] == "red-green"
    again = tiny.graft("patch", "test", NAME)
    assert again.reference == "1 of 1 patches are red-green"
    assert "known" in again.err
    assert "try 1 patches" not in again.err
    assert not tried(tiny, NAME, "--rerun")[0]["known"]
    write_test(tiny, PATCH_TEST + "\n# another byte\n")
    assert not tried(tiny, NAME)[0]["known"]


def test_an_edited_patch_is_tried_in_the_image_of_before(tiny: Tiny) -> None:
    before = images(tiny)
    tiny.edit(PATCH_FILE, '"%d" % s', '"%d!" % s')
    tiny.graft("plan", code=3)
    assert tried(tiny, NAME, code=5)[0]["verdict"] == "red-red"
    write_test(tiny, PATCH_TEST.replace('"42"', '"42!"'))
    assert tried(tiny, NAME)[0]["verdict"] == "red-green"
    assert images(tiny) == before


@pytest.mark.parametrize(
    ("text", "verdict", "says"),
    [
        ("import six\ndef test_x():\n    assert six.ensure_str('a') == 'a'\n", "green-green", "does not prove"),
        ("import six\ndef test_x():\n    assert six.ensure_str('a') == 'b'\n", "red-red", "fails with the patch"),
        ("import six\ndef test_x():\n    assert six.ensure_str(42) == '42'\n", "error", "TypeError"),
        ("import nothing\ndef test_x():\n    assert 0\n", "error", "ModuleNotFoundError"),
        ("assert 0\ndef test_x():\n    assert 0\n", "error", "AssertionError"),
        ("import os\ndef test_x():\n    os._exit(0)\n", "error", "exit 0"),
        ("import os\ndef test_x():\n    os.kill(os.getpid(), 11)\n", "error", "exit 139"),
        ("import unittest\ndef test_x():\n    raise unittest.SkipTest('no GPU')\n", "skipped", "no GPU"),
        (
            "import six\ndef test_x():\n    try: said = six.ensure_str(42)\n    except TypeError: said = None\n"
            "    assert said is None\n",
            "green-red",
            "fails with it",
        ),
    ],
)
def test_what_is_no_proof_is_said_and_exits_5(tiny: Tiny, text: str, verdict: str, says: str) -> None:
    write_test(tiny, text)
    ran = tiny.graft("patch", "test", NAME, code=5)
    assert ran.reference == "0 of 1 patches are red-green"
    assert f"{NAME} ({verdict})" in ran.err
    assert says in " ".join(ran.err.split())


def test_an_error_is_tried_again(tiny: Tiny) -> None:
    write_test(tiny, "import nothing\n")
    assert tried(tiny, NAME, code=5)[0]["verdict"] == "error"
    assert not tried(tiny, NAME, code=5)[0]["known"]


def test_red_has_what_the_patch_comes_after(tiny: Tiny) -> None:
    add_second(tiny)
    # The test of the second fails with a TypeError, not an assertion, where the first is not there.
    assert [p["verdict"] for p in tried(tiny, NAME, "six/with-a-hash")] == ["red-green", "red-green"]


def test_the_files_of_a_dropped_patch_are_pristine_again(tiny: Tiny) -> None:
    shutil.copytree(tiny.root / "patches/six", tiny.root / "patches/idna")
    shutil.rmtree(tiny.root / "patches/six")
    folder = tiny.root / "patches/idna"
    text = SERIES.replace("component: six", "component: idna").replace("==1.17.0", "==3.10")
    (folder / "series.yaml").write_text(text)
    (folder / "text-of-numbers.patch").write_text(
        "diff --git a/idna/package_data.py b/idna/package_data.py\n"
        "--- a/idna/package_data.py\n+++ b/idna/package_data.py\n"
        '@@ -1 +1,2 @@\n __version__ = "3.10"\n+GRAFT = 1\n'
    )
    (folder / "tests/test_text_of_numbers.py").write_text(
        "import idna.package_data, six\n\n\ndef test_it():\n    try:\n        six.ensure_str(42)\n"
        "    except TypeError:\n        pass\n    else:\n        raise RuntimeError('six is patched')\n"
        "    assert hasattr(idna.package_data, 'GRAFT')\n"
    )
    tiny.edit("recipes/tiny.yaml", "patches: [six/", "patches: [idna/")
    assert tried(tiny, "--all")[0]["verdict"] == "red-green"


def test_without_an_image_of_the_environment_it_is_bad_input(tiny: Tiny) -> None:
    tiny.edit("recipes/tiny.yaml", 'TINY: "1"', 'TINY: "2"')
    ran = tiny.graft("patch", "test", "--all", code=2)
    assert "make image ARCH=sm90 RECIPE=tiny" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--all"),
        (("--all", NAME), "--all"),
        (("six/other",), "no patch six/other"),
        (("other/x",), "no component 'other'"),
    ],
)
def test_arguments_that_name_no_patch(tiny: Tiny, words: tuple[str, ...], says: str) -> None:
    assert says in tiny.graft("patch", "test", *words, code=2).err


def test_a_patch_that_does_not_apply_is_an_error_of_its_own(tiny: Tiny) -> None:
    tiny.edit(PATCH_FILE, "     if type(s) is str:\n", "     if type(s) is text:\n")
    found = tried(tiny, NAME, code=5)
    assert found[0]["verdict"] == "error"
    assert "conflict" in found[0]["detail"]


def test_an_interrupt_leaves_nothing(tiny: Tiny) -> None:
    write_test(tiny, "import time\ndef test_x():\n    time.sleep(4321)\n")
    with tiny.started("patch", "test", NAME) as process:
        wait_for(lambda: len(tiny.gate_containers()) == 2, process)
        process.send_signal(signal.SIGINT)
        ended(process, 130)
    assert not tiny.containers()


def test_what_a_killed_run_left_is_removed(tiny: Tiny) -> None:
    write_test(tiny, "import time\ndef test_x():\n    time.sleep(4321)\n")
    with tiny.started("patch", "test", NAME) as process:
        wait_for(lambda: len(tiny.gate_containers()) == 2, process)
        process.kill()
        process.wait(60)
    assert len(tiny.containers()) == 2
    write_test(tiny, PATCH_TEST)
    assert "removed 2 containers" in tiny.graft("patch", "test", NAME).err


QUICK = """
import sys
from graft.cli import main
from graft.trial import red_green
red_green.TEST_SECONDS = 3.0
main(sys.argv[1:])
"""


def test_a_test_that_does_not_end_is_an_error(tiny: Tiny) -> None:
    write_test(tiny, "import time\ndef test_x():\n    time.sleep(4321)\n")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "scripts"), "ENGINE": "embedded"}
    words = ["-c", QUICK, "patch", "test", NAME]
    done = subprocess.run([sys.executable, *words], cwd=tiny.root, env=env, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert "no end after 3 s" in " ".join(done.stderr.split())


# patch onto


def onto(tiny: Tiny, image: str, *words: str, code: int = 0, patch: str = NAME) -> dict[str, Any]:
    ran = tiny.graft("patch", "onto", image, "--component", "six", patch, *words, "--json", code=code)
    data: dict[str, Any] = json.loads(ran.out)
    return data


def test_a_nightly_gets_the_patch_and_nothing_else(tiny: Tiny, nightly: Nightly) -> None:
    made = onto(tiny, nightly.name)
    name = made["reference"]
    assert name == f"nightly:v1-graft-{made['key'][:12]}"
    assert tiny.tags()[name] == made["image_id"] != nightly.id

    old, new = tiny.image(nightly.name), tiny.image(name)
    assert new.layers[:-1] == old.layers
    assert new.env == old.env
    added = {k: v for k, v in new.labels.items() if k not in old.labels}
    sha256 = hashlib.sha256((tiny.root / PATCH_FILE).read_bytes()).hexdigest()
    assert added == {
        "dev.graft.onto.base": nightly.id,
        "dev.graft.onto.component": "six",
        "dev.graft.onto.version": "1.17.0",
        "dev.graft.onto.patches": f"{NAME}@sha256:{sha256}",
        "dev.graft.onto.key": made["key"],
    }
    assert new.labels["mine"] == "a $b"
    with tiny.client() as client:
        config = client.images.get(name).attrs["Config"]
        for field in ("User", "Entrypoint", "Cmd", "ExposedPorts"):
            assert config[field] == CONFIG[field]
        files = layers_files(client, name)[-1]
    plain = {n for n, member in files.items() if not member.isdir()}
    site = SITE.lstrip("/")
    assert plain == {f"{site}/six.py", RECORD.lstrip("/"), f"{site}/__pycache__/.wh.six.cpython-311.pyc"}
    six = files[f"{site}/six.py"]
    assert (six.uid, six.gid, six.mode & 0o777) == (USER, USER, MODE)
    # The only other file is the folder's own.
    assert {n for n, member in files.items() if member.isdir()} <= {
        *(str(p) for p in Path(f"{site}/__pycache__/x").parents),
        *(str(p) for p in Path(RECORD.lstrip("/")).parents),
        "run",
    }

    found = tiny.read_in(name, f"{SITE}/six.py", RECORD)
    assert b'return "%d" % s' in found[f"{SITE}/six.py"]
    lines = found[RECORD].decode().splitlines()
    assert [line for line in lines if line.startswith("six.py,")] == [record_line("six.py", found[f"{SITE}/six.py"])]
    assert not [line for line in lines if line.startswith(CACHED)]
    receipt = json.loads((tiny.root / made["receipt"]).read_text())
    assert receipt["image_id"] == made["image_id"]
    assert receipt["patches"][0]["verdict"] == "red-green"

    again = tiny.graft("patch", "onto", nightly.name, "--component", "six", "text-of-numbers")
    assert "nothing to do" in again.err
    assert again.reference == name
    assert onto(tiny, nightly.name, "--tag", "mine:own")["image_id"] == made["image_id"]
    # A receipt that is gone is made again, under the same name and id.
    (tiny.root / made["receipt"]).unlink()
    assert onto(tiny, nightly.name)["image_id"] == made["image_id"]


def test_python_in_the_image_finds_what_record_says(tiny: Tiny, nightly: Nightly) -> None:
    name = onto(tiny, nightly.name)["reference"]
    check = (
        "import importlib.metadata as m, hashlib, base64, six\n"
        "bad = []\n"
        "for f in m.files('six'):\n"
        "    p = f.locate()\n"
        "    if f.hash and base64.urlsafe_b64encode(hashlib.sha256(p.read_bytes()).digest()).rstrip(b'=').decode()"
        " != f.hash.value: bad.append(str(f))\n"
        "    if f.size and p.stat().st_size != f.size: bad.append(str(f))\n"
        "print(six.ensure_str(42), bad)\n"
    )
    with tiny.client() as client:
        said = client.containers.run(name, entrypoint=["python3", "-c", check], remove=True, network_mode="none")
    assert said.decode().split() == ["42", "[]"]


def test_patches_that_follow_each_other_go_on_together(tiny: Tiny, nightly: Nightly) -> None:
    add_second(tiny)
    write_test(tiny, PATCH_TEST.replace('said == "42"', 'said in ("42", "#42")'))
    made = onto(tiny, nightly.name, "six/with-a-hash")
    assert [p["verdict"] for p in made["patches"]] == ["red-green", "red-green"]
    alone = onto(tiny, nightly.name, patch="six/with-a-hash", code=2)
    assert "comes after text-of-numbers" in alone["what"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("import six\ndef test_x():\n    assert six\n", "green-green"),
        ("def test_x():\n    assert 0\n", "red-red"),
        ("import nothing\n", "error"),
    ],
)
def test_without_a_proof_nothing_is_tagged_or_left(tiny: Tiny, nightly: Nightly, text: str, verdict: str) -> None:
    write_test(tiny, text)
    before = images(tiny)
    failed = onto(tiny, nightly.name, code=5)
    assert f"{NAME} ({verdict})" in failed["what"]
    assert images(tiny) == before
    assert not list(tiny.paths.receipts.glob("*/onto.json"))


def test_files_that_are_not_pristine(tiny: Tiny, nightly: Nightly) -> None:
    edited = nightly.six + b"# by hand\n"
    with tiny.client() as client:
        with_file(client, nightly.name, "other:edited", {f"{SITE}/six.py": edited})
    what = onto(tiny, "other:edited", code=5)["what"]
    for data in (edited, nightly.six):
        assert hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() in what
    assert "six.py is not pristine" in what
    made = onto(tiny, nightly.name)["reference"]
    assert "patched already" in onto(tiny, made, "--tag", "other:twice", code=5)["what"]
    assert "other:twice" not in tiny.tags()


def test_what_would_win_over_the_patched_file(tiny: Tiny, nightly: Nightly) -> None:
    with tiny.client() as client:
        with_file(client, nightly.name, "other:twin", {f"{SITE}/six.cpython-311-x86_64-linux-gnu.so": b""})
        with_file(client, nightly.name, "other:copy", {"/usr/lib/python3.11/six.py": nightly.six})
        record = tiny.read_in(nightly.name, RECORD)[RECORD]
        lines = b"".join(line for line in record.splitlines(True) if not line.startswith(b"six.py,"))
        with_file(client, nightly.name, "other:record", {RECORD: lines})
    assert "compiled twin" in onto(tiny, "other:twin", code=5)["what"]
    assert "/usr/lib/python3.11" in onto(tiny, "other:copy", code=5)["what"]
    assert "listed 0 times in RECORD" in onto(tiny, "other:record", code=5)["what"]


def test_a_version_that_the_patch_is_not_meant_for(tiny: Tiny, nightly: Nightly) -> None:
    tiny.edit("patches/six/series.yaml", "==1.17.0", "<1.17")
    failed = onto(tiny, nightly.name, code=5)
    assert "is meant for six <1.17" in failed["what"]
    assert "1.17.0" in failed["what"]


def test_another_version_is_compared_with_the_index(tiny: Tiny, nightly: Nightly, reference: str) -> None:
    tiny.edit("patches/six/series.yaml", "==1.17.0", ">=1.16")
    target = tiny.root.parent / "six-1.16"
    subprocess.run([uv_program(), "pip", "install", "--target", target, "--no-deps", "six==1.16.0"], check=True)
    six = (target / "six.py").read_bytes()
    make_nightly(tiny, reference, "other:sixteen", six, "1.16.0")
    offline = onto(tiny, "other:sixteen", "--offline", code=4)
    assert "six 1.16.0" in offline["what"]
    assert onto(tiny, "other:sixteen")["version"] == "1.16.0"
    with tiny.client() as client:
        with_file(client, "other:sixteen", "other:edited", {f"{SITE}/six.py": six + b"\n"})
    assert "six 1.16.0 has" in onto(tiny, "other:edited", code=5)["what"]


def test_a_version_that_no_index_has(tiny: Tiny, nightly: Nightly, reference: str) -> None:
    """A nightly: its files can be those that the lock knows, and nothing else can say that they are pristine."""
    tiny.edit("patches/six/series.yaml", "==1.17.0", ">=1.17")
    make_nightly(tiny, reference, "other:nightly", nightly.six, "1.17.1.dev3+g1234567")
    assert onto(tiny, "other:nightly")["version"] == "1.17.1.dev3+g1234567"
    make_nightly(tiny, reference, "other:changed", nightly.six + b"\n", "1.17.1.dev3+g1234567")
    assert "the index has no six 1.17.1.dev3" in onto(tiny, "other:changed", code=5)["what"]


@pytest.mark.parametrize(
    ("image", "words", "says"),
    [
        ("nightly:v2", (), "no image nightly:v2 is on this engine"),
        ("nightly:v1", ("--python", "/usr/bin/python9"), "has no program /usr/bin/python9"),
        ("nightly:v1", ("--python", "/usr/bin/python3.11"), "six is not installed"),
        ("nightly:v1", ("--tag", "nightly:v1"), "is the image that the patches go onto"),
        ("nightly:v1", ("--tag", "Nightly:v1"), "is not a reference"),
        ("nightly:v1@sha256:" + "0" * 64, (), "with this digest"),
        ("sha256:" + "0" * 64, (), "no image"),
        ("127.0.0.1:9/nightly:v1", ("--offline",), "offline"),
    ],
)
def test_images_that_cannot_be_taken(
    tiny: Tiny, nightly: Nightly, image: str, words: tuple[str, ...], says: str
) -> None:
    failed = onto(tiny, image, *words, code=8 if "offline" in says else 2)
    assert says in failed["what"]


def test_an_image_by_its_id(tiny: Tiny, nightly: Nightly) -> None:
    made = onto(tiny, nightly.id)
    assert made["reference"].startswith("nightly:v1-graft-")
    assert onto(tiny, nightly.id.removeprefix("sha256:")[:12])["key"] == made["key"]
    assert onto(tiny, f"nightly:v1@{nightly.id}")["key"] == made["key"]
    with tiny.client() as client:
        nameless = with_file(client, nightly.name, "", {"/extra": b""})
        try:
            assert "has no name" in onto(tiny, nameless, code=2)["what"]
        finally:
            client.images.remove(nameless)


def test_an_image_of_a_registry(tiny: Tiny, nightly: Nightly) -> None:
    with tiny.client() as client, web() as registry:
        digest = publish(client, nightly.name, registry)
        host = registry.url.removeprefix("http://")
        made = onto(tiny, f"{host}/nightly@{digest}")
        assert made["base"] == f"{host}/nightly@{digest}"
        assert made["reference"] == f"{host}/nightly:graft-{made['key'][:12]}"
        refused = onto(tiny, f"{host}/other:v1", code=8)
        assert f"{host}/other:v1 cannot be pulled" in refused["what"]


def publish(client: DockerClient, image: str, registry: Web) -> str:
    """Serve an image as a registry does, under the name `nightly`; returns the digest of its manifest."""
    registry.server.RequestHandlerClass.do_HEAD = registry.server.RequestHandlerClass.do_GET  # type: ignore[attr-defined]
    registry.serve("/v2/", Answer(b"{}", kind="application/json"))
    blobs: list[dict[str, Any]] = []
    with tarfile.open(fileobj=io.BytesIO(b"".join(client.images.get(image).save()))) as tar:
        listed = json.loads(read_member(tar, "manifest.json"))[0]
        for name in (listed["Config"], *listed["Layers"]):
            data = read_member(tar, name)
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            registry.serve(f"/v2/nightly/blobs/{digest}", Answer(data))
            blobs.append({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": len(data)})
    config = {**blobs[0], "mediaType": "application/vnd.oci.image.config.v1+json"}
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": blobs[1:]}).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for name in ("v1", digest):
        answer = Answer(manifest, kind=kind, headers={"Docker-Content-Digest": digest})
        registry.serve(f"/v2/nightly/manifests/{name}", answer)
    return digest


def read_member(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    assert stream is not None
    return stream.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_while_it_tests_it_leaves_nothing(tiny: Tiny, nightly: Nightly, number: signal.Signals) -> None:
    write_test(tiny, "import time\ndef test_x():\n    time.sleep(4321)\n")
    before = images(tiny)
    with tiny.started("patch", "onto", nightly.name, "--component", "six", NAME) as process:
        wait_for(lambda: len(tiny.gate_containers()) == 2, process)
        process.send_signal(number)
        if number == signal.SIGINT:
            ended(process, 130)
        else:
            process.wait(60)
    if number == signal.SIGKILL:
        assert tiny.containers()
        assert images(tiny) != before
        write_test(tiny, "import nothing\n")
        onto(tiny, nightly.name, code=5)
    assert images(tiny) == before
    assert not tiny.containers()


# inspect


def test_the_gpu_code_of_images(tiny: Tiny, reference: str) -> None:
    """By the image's own Python, from outside, and of an image that has none; what is found is the same."""
    library, kernel = "/usr/lib/libgpu.so", gpu_elf.gpu_library("sm_90a", "compute_90")
    with tiny.client() as client:
        full = with_file(client, reference, "", {library: kernel})
        made = client.api.import_image_from_data(tar_of({library: kernel}))
        bare = json.loads(made.splitlines()[-1])["status"]
        older = with_file(client, reference, "", {library: gpu_elf.gpu_library("sm_80")})
    try:
        inside = json.loads(tiny.graft("inspect", full, "--arch", "sm90", "--json").out)
        assert [(h["path"], h["judged"]["sm90"]["rules"]) for h in inside["holdings"]] == [(library, ["a"])]
        assert inside["elf_files"] > 100
        outside = json.loads(tiny.graft("inspect", full, "--arch", "sm90", "--json", "--outside").out)
        assert outside["holdings"] == inside["holdings"]
        without = tiny.graft("inspect", bare, "--json")
        assert json.loads(without.out)["holdings"] == inside["holdings"]
        assert "no Python 3.8" in without.err
        assert "no code that is sure to run on sm90" in tiny.graft("inspect", older, "--arch", "sm90", code=7).err
        assert "nothing:here" in tiny.graft("inspect", "nothing:here", code=2).err
    finally:
        with tiny.client() as client:
            for image in (full, older, bare):
                client.images.remove(image, force=True)
