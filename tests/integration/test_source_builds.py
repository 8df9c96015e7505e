"""A component from git, with a submodule and a patch, compiled in the image; and builds that do what they may not."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from distribution import distribution
from redisserver import redis_server
from tiny import SOURCE, Tiny, share_engine_programs

from graft import engine
from graft.build import measured, stage_seconds
from graft.built.stamp import key_in

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from githost import GitHost, git_host
from gitwork import Work, work

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("apt-get") is None or platform.machine() != "x86_64",
        reason="the embedded engine needs root on an amd64 Debian",
    ),
]

HOST = "https://git.invalid"
FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "answer"
dynamic = ["version"]
dependencies = ["six>=1.16"]
[tool.setuptools]
packages = []
ext-modules = [{name = "answer", sources = ["answer.c"], include-dirs = ["third/number"]}]
""",
    "setup.py": """\
import os, time
from setuptools import setup
time.sleep(2)
setup(version=os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"])
""",
    "answer.c": """\
#include <Python.h>
#include "number.h"
static PyObject *answer(PyObject *self, PyObject *none) {
    return PyLong_FromLong(NUMBER);
}
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", "", -1, methods};
PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&module); }
""",
}
PATCH = """\
diff --git a/answer.c b/answer.c
--- a/answer.c
+++ b/answer.c
@@ -1,7 +1,7 @@
 #include <Python.h>
 #include "number.h"
 static PyObject *answer(PyObject *self, PyObject *none) {
-    return PyLong_FromLong(NUMBER);
+    return PyLong_FromLong(NUMBER + 1);
 }
 static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
 static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", "", -1, methods};
"""
#: Takes long enough for another build to begin beside it.
PAUSE = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "pause"
version = "1.0"
[tool.setuptools]
packages = []
py-modules = ["pause"]
""",
    "setup.py": "import time\nfrom setuptools import setup\ntime.sleep(4)\nsetup()\n",
    "pause.py": "seconds = 4\n",
}
SERIES = """\
component: answer
patches:
  - id: one-more
    title: One more
    target: source
    reason: The number is too small by one.
    origin: https://git.invalid/answer/pull/1
    upstream: inappropriate
    until: these tests
    when: {version: ">=0"}
    author: Graft maintainers
    license: MIT
    tests: [tests/test_one_more.py]
"""
PATCH_TEST = "import answer\n\n\ndef test_it():\n    assert answer.answer() == 42\n"
CORE = """\
import answer
from lib import facts
from lib.report import Report

known = facts.load()
report = Report("core")
report.check("answer", answer.answer() == 42, f"{answer.answer()} from {answer.__file__}")
report.check("version", known.packages["answer"] == "1.2+gabc", known.packages["answer"])
report.finish()
"""


@dataclass(frozen=True)
class Built:
    """The project, the repositories of its components, and the host that serves them."""

    tiny: Tiny
    answer: Work
    pause: Work
    host: GitHost

    def recipe(self, commit: str, others: Mapping[str, object] | None = None, **more: object) -> None:
        component = {
            "git": {"url": f"{HOST}/answer.git", "commit": commit, "ref": "main"},
            "version": "1.2+gabc",
            "build": "python",
            "provides": "answer",
            **more,
        }
        data = {
            "recipe": "tiny",
            "summary": "A component from git",
            "base": "debian12",
            "cuda": "13.0",
            "arches": ["sm90"],
            "components": {"answer": component, **(others or {})},
            "patches": ["answer/one-more"],
            "smoke": ["core"],
        }
        (self.tiny.root / "recipes" / "tiny.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The project, locked; one engine for all tests, ended and removed with everything at the end."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "host").mkdir()
    number, answer, pause = work(folder, "number"), work(folder, "answer"), work(folder, "pause")
    pause.commit(PAUSE)
    pause.serve()
    number.commit({"number.h": "#define NUMBER 41\n"})
    number.serve()
    answer.commit(FILES)
    answer.add_submodule("third/number", "../number.git", number.head)
    answer.serve()
    root = folder / "project"
    root.mkdir()
    tiny = Tiny(root)
    with git_host(folder / "host") as host:
        tiny.write()
        data = yaml.safe_load((root / "build.yaml").read_text())
        data["bases"]["debian12"]["builder"] = ["git", "gcc", "libc6-dev", "python3.11-dev", "ccache"]
        data["builds"] = {"python": {"requires": ["setuptools>=77", "packaging>=24"], "memory_gb": 1}}
        data["mirrors"] = {f"{HOST}/": f"{host.url}/"}
        (root / "build.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        shutil.rmtree(root / "patches")
        for name, text in (("series.yaml", SERIES), ("one-more.patch", PATCH), ("tests/test_one_more.py", PATCH_TEST)):
            path = root / "patches" / "answer" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (root / "images" / "smoke" / "core.py").write_text(CORE)
        share_engine_programs(tiny.paths)
        made = Built(tiny, answer, pause, host)
        made.recipe(answer.head)
        try:
            tiny.graft("lock")
            yield made
        finally:
            if tiny.paths.state.exists():
                tiny.graft("engine-stop")
            shutil.rmtree(root)


def test_a_component_from_git_is_built_once_and_found_again(built: Built) -> None:
    tiny, commit = built.tiny, built.answer.head
    lock = yaml.safe_load(tiny.paths.lock("tiny").read_text())
    pin = lock["sources"]["answer"]
    assert pin["git"]["commit"] == commit
    assert pin["git"]["merged"] == built.answer.git("rev-parse", "HEAD^{tree}")
    assert [s["path"] for s in pin["git"]["submodules"]] == ["third/number"]
    assert pin["requires"] == ["six>=1.16"]
    assert "six" in [p["name"] for p in lock["packages"]]
    assert lock["patches"]["answer"][0]["pristine"] == pin["tree"]
    assert built.host.url not in tiny.paths.lock("tiny").read_text()

    first = tiny.graft("image")
    assert tiny.image(first.reference).labels["dev.graft.component.answer.commit"] == commit
    log = tiny.paths.logs / "tiny-sm90-runtime.log"
    assert "build-answer" in stage_seconds(tiny.paths.logs / "tiny-sm90-components.log")
    # Without the host, the index and the network: everything is in the store, and all steps are in the cache.
    seen = len(built.host.seen)
    again = tiny.graft("image", "--rerun-gate", OFFLINE="1")
    assert again.reference == first.reference
    assert stage_seconds(log) == {}
    assert len(built.host.seen) == seen
    assert tiny.graft("lock", "--check", OFFLINE="1").reference


def test_components_build_at_once_and_unchanged_ones_do_not(built: Built) -> None:
    """Said by the builds in the engine's own log. What was compiled before comes from the compile cache."""
    tiny, answer, good = built.tiny, built.answer, built.answer.head
    log = tiny.paths.logs / "tiny-sm90-components.log"
    pause = {"git": {"url": f"{HOST}/pause.git", "commit": built.pause.head}, "version": "1.0"}
    pause |= {"build": "python", "provides": "pause", "requires": []}
    try:
        tiny.graft("image")
        more = answer.commit({"NOTES": "of no matter for the compiler\n"})
        answer.serve()
        built.recipe(more, {"pause": pause})
        tiny.graft("lock")
        said = tiny.graft("image")
        first, second = (measured(log)[name] for name in ("answer", "pause"))
        assert first.started < second.started + second.seconds
        assert second.started < first.started + first.seconds
        assert "compiled answer: " in said.err
        assert ", 1 of 1 objects from the compile cache" in said.err, said.err
        # Two cores or more are shared, one is not.
        [_, jobs] = re.findall(r"compiled \w+: \d+ s with (\d+) job", said.err)
        assert int(jobs) <= max(1, len(os.sched_getaffinity(0)) // 2)
        receipt = json.loads(tiny.graft("receipt", "show", "--json", said.reference).out)
        assert {c["component"] for r in receipt["receipts"] for c in r["receipt"]["compiled"]} == {"answer", "pause"}

        pause["git"] = {"url": f"{HOST}/pause.git", "commit": built.pause.commit({"pause.py": "seconds = 5\n"})}
        built.pause.serve()
        built.recipe(more, {"pause": pause})
        tiny.graft("lock")
        tiny.graft("image")
        assert {name for name in stage_seconds(log) if name.startswith("build-")} == {"build-pause"}
    finally:
        answer.git("checkout", "--quiet", good)
        built.recipe(good)
        tiny.graft("lock")


def test_what_is_in_the_store_is_not_compiled_again(built: Built, tmp_path: Path) -> None:
    """Neither after the engine forgot everything, nor on a host that has a registry alone; the image is the same."""
    tiny = built.tiny
    tiny.graft("image")
    # By the Dockerfile as it stands, which compiles.
    before = tiny.image(tiny.graft("image", "--no-cache").reference)
    assert "build-answer" in stage_seconds(tiny.paths.logs / "tiny-sm90-runtime.log")
    planned = json.loads(tiny.graft("plan", "--json").out)["components"]["answer"]
    assert planned["reused"]
    mine = tiny.paths.store / "built" / "answer" / planned["key"]
    (wheel,) = mine.glob("*.whl")
    assert key_in(wheel) == planned["key"]
    components = tiny.paths.logs / "tiny-sm90-components.log"
    components.unlink()
    running = engine.find(tiny.paths)
    assert running is not None
    with distribution(tmp_path / "registry") as registry:
        build_yaml = tiny.root / "build.yaml"
        kept = build_yaml.read_text()
        data = yaml.safe_load(kept)
        data["store"] = {"registry": f"{registry.host}/shared"}
        build_yaml.write_text(yaml.safe_dump(data, sort_keys=False))
        try:
            assert "shared answer" in tiny.graft("image", "--rerun-gate").err
            shutil.rmtree(tiny.paths.store / "built")
            assert not json.loads(tiny.graft("plan", "--json").out)["components"]["answer"]["reused"]
            pruned = [running.docker, "buildx", "prune", "--all", "--force"]
            subprocess.run(pruned, env=running.env(), check=True, capture_output=True)
            again = tiny.graft("image", "--rerun-gate")
        finally:
            build_yaml.write_text(kept)
    assert "took answer" in again.err
    ran = stage_seconds(tiny.paths.logs / "tiny-sm90-runtime.log")
    assert "packages" in ran, "the engine forgot everything"
    assert not {"build-answer", "source-answer", "stamped-answer"} & ran.keys()
    assert not components.exists()
    after = tiny.image(again.reference)
    assert (after.layers, after.id) == (before.layers, before.id)
    assert mine.is_dir()


MANY = """\
import os
from setuptools import Extension, setup
setup(
    version=os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"],
    ext_modules=[Extension("answer", ["answer.c", "two.c", "three.c"], include_dirs=["third/number"])],
)
"""


def test_what_another_machine_compiled_comes_by_way_of_redis(built: Built, tmp_path: Path) -> None:
    """A machine without it fills Redis, one with an empty ccache takes all of it, and the wheel is the same."""
    tiny, answer, good = built.tiny, built.answer, built.answer.head
    log = tiny.paths.logs / "tiny-sm90-components.log"
    project = FILES["pyproject.toml"].partition("ext-modules")[0]
    more = {"setup.py": MANY, "pyproject.toml": project, "two.c": "int two;\n", "three.c": "int three;\n"}
    build_yaml = tiny.root / "build.yaml"
    kept = build_yaml.read_text()
    password = "a-password-of-redis"

    def compiled() -> tuple[bytes, int | None, int | None, int | None]:
        key = json.loads(tiny.graft("plan", "--json").out)["components"]["answer"]["key"]
        (wheel,) = (tiny.paths.store / "built" / "answer" / key).glob("*.whl")
        took = measured(log)["answer"]
        return wheel.read_bytes(), took.hits, took.misses, took.shared

    def forget() -> None:
        shutil.rmtree(tiny.paths.store / "built", ignore_errors=True)
        log.unlink(missing_ok=True)
        running = engine.find(tiny.paths)
        if running is None:
            return
        pruned = [running.docker, "buildx", "prune", "--force", "--filter", "type=exec.cachemount"]
        subprocess.run(pruned, env=running.env(), check=True, capture_output=True)

    try:
        built.recipe(answer.commit(more))
        answer.serve()
        tiny.graft("lock")
        with redis_server(tmp_path / "redis", password=password) as server:
            data = yaml.safe_load(kept)
            data["compile_cache"] = {"redis": server.url}
            build_yaml.write_text(yaml.safe_dump(data, sort_keys=False))
            forget()
            filled = tiny.graft("image", "--rerun-gate", GRAFT_REDIS_PASSWORD=password)
            cold = compiled()
            assert cold[1:] == (0, 3, 0)
            assert "answer: 6 new entries for the shared compile cache" in filled.err, filled.err

            forget()
            taken = tiny.graft("image", "--rerun-gate", GRAFT_REDIS_PASSWORD=password)
            assert "3 of 3 objects from the compile cache (3 by way of Redis)" in taken.err
            assert compiled() == (cold[0], 3, 0, 3)
            receipt = json.loads(tiny.graft("receipt", "show", "--json", taken.reference).out)
            assert [c["shared"] for r in receipt["receipts"] for c in r["receipt"]["compiled"]] == [3]
            said = filled.err + taken.err + json.dumps(receipt)
            said += "".join(path.read_text(errors="replace") for path in tiny.paths.logs.rglob("*") if path.is_file())
            said += "".join(path.read_text() for path in tiny.paths.receipts.rglob("*") if path.is_file())
            said += str(tiny.image(taken.reference))
            with tiny.client() as client:
                said += json.dumps(client.api.history(taken.reference))
            for secret in (server.url, f"127.0.0.1:{server.port}", password):
                assert secret not in said

            # A cut entry is a miss; the others are still found.
            stored = server.client()
            # ccache's form: two bytes that say what it is, its version, and 0 for an object; before it, our sha256.
            values = {key: bytes(stored.get(key) or b"") for key in stored.scan_iter() if b":index" not in key}  # type: ignore[arg-type]
            first = min(key for key, value in values.items() if value[35] == 0)
            stored.set(first, values[first][:-9])
            forget()
            again = tiny.graft("image", "--rerun-gate", GRAFT_REDIS_PASSWORD=password)
            assert "1 entries of the shared compile cache are damaged" in again.err
            assert compiled() == (cold[0], 2, 1, 2)
    finally:
        build_yaml.write_text(kept)
        answer.git("checkout", "--quiet", good)
        built.recipe(good)
        tiny.graft("lock")


def test_a_build_may_not_do_everything(built: Built) -> None:
    """A download, a file outside of the output, a wheel that wants more than there is: exit 6, and why in one line."""
    tiny, answer = built.tiny, built.answer
    good = answer.head
    setup = FILES["setup.py"]
    wrong = {
        "import urllib.request\nurllib.request.urlopen('https://files.invalid/x.tar.gz')\n": "wanted to download",
        "open('/opt/venv/lib/surprise', 'w').close()\n": "it wrote outside of its output: /opt/venv/lib/surprise",
    }
    try:
        for line, says in wrong.items():
            commit = answer.commit({"setup.py": line + setup})
            answer.serve()
            built.recipe(commit)
            tiny.graft("lock")
            refused = tiny.graft("image", code=6)
            assert "the build of answer failed: " in refused.err
            assert says in refused.err, refused.err

        # What the builder does not hold is compared on the host: the recipe says one thing, the wheel another.
        newer = FILES["pyproject.toml"].replace("six>=1.16", "six>=99")
        commit = answer.commit({"setup.py": setup, "pyproject.toml": newer})
        answer.serve()
        built.recipe(commit, requires=["six"])
        tiny.graft("lock")
        refused = tiny.graft("image", code=6)
        assert "asks for six>=99, and the lock has six 1." in refused.err, refused.err
        assert stage_seconds(tiny.paths.logs / "tiny-sm90-components.log"), "it was compiled, and is in the store"
        assert "reused answer" in tiny.graft("image", code=6).err
    finally:
        answer.git("checkout", "--quiet", good)
        built.recipe(good)
        tiny.graft("lock")


def test_plan_and_render_say_where_it_comes_from(built: Built) -> None:
    planned = built.tiny.graft("plan")
    assert "answer" in planned.err
    said = json.loads(built.tiny.graft("plan", "--json").out)
    assert "answer" in said["components"]
    text = built.tiny.graft("render").out
    assert "FROM builder AS source-answer" in text
    assert "--needs six" in text
    assert str(SOURCE) not in text
