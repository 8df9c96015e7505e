"""A tiny project with the real templates and scripts: a Debian base with Python, three small wheels and one patch.

Its main job takes seconds where the real recipe takes many minutes. Below `images/` all but the smoke tests is real.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from docker import DockerClient

from graft import engine
from graft.engine import daemon
from graft.gate.containers import OWNER_LABEL
from graft.paths import Paths

SOURCE = Path(__file__).parents[2]
CHANNEL = "graft:tiny-sm90"
#: What people write; a test may change it, and it comes back before the next test.
INPUTS = ("build.yaml", "recipes", "patches", "images")

RECIPE = """\
recipe: tiny
summary: Three small wheels, one of them patched
base: debian12
cuda: "13.0"
arches: [sm90]
components:
  six:       {wheel: six, version: "1.17.0"}
  packaging: {wheel: packaging, version: "24.2"}
  idna:      {wheel: idna, version: "3.10"}
patches: [six/text-of-numbers]
env: {TINY: "1"}
smoke: [core, patches]
"""

SERIES = """\
component: six
patches:
  - id: text-of-numbers
    title: Text of numbers
    target: wheel
    reason: ensure_str refuses numbers, and the tests want something that a patch can change.
    origin: https://github.com/benjaminp/six/issues/1
    upstream: inappropriate
    until: these tests
    when: {version: "==1.17.0"}
    author: Graft maintainers
    license: MIT
    tests: [tests/test_text_of_numbers.py]
"""

PATCH = """\
diff --git a/six.py b/six.py
--- a/six.py
+++ b/six.py
@@ -932,5 +932,7 @@ def ensure_str(s, encoding="utf-8", errors="strict"):
     # Optimization: Fast return for the common case.
     if type(s) is str:
         return s
+    if type(s) is int:
+        return "%d" % s
     if PY2 and isinstance(s, text_type):
         return s.encode(encoding, errors)
"""

PATCH_TEST = """\
import six


def test_a_number_becomes_text():
    try:
        said = six.ensure_str(42)
    except TypeError:
        said = None
    assert said == "42"
"""

CORE = """\
import importlib.metadata
import os

from lib import facts
from lib.report import Report

known = facts.load()
report = Report("core")
for name, version in known.packages.items():
    found = importlib.metadata.version(name)
    report.check(f"version:{name}", found == version, f"{found}, the lock says {version}")
report.check("env", os.environ.get("TINY") is not None, "the recipe's environment")
report.finish()
"""

#: `graft`, with a time limit for each smoke test that a test can wait for.
QUICK_GATE = """
import dataclasses, sys
from graft import gate
from graft.cli import main
real = gate.smoke_tests
gate.smoke_tests = lambda folder, names: [dataclasses.replace(t, seconds=4.0) for t in real(folder, names)]
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Ran:
    """One call of graft that ended."""

    code: int
    out: str
    err: str

    @property
    def reference(self) -> str:
        """The one line on stdout."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        return lines[0]


@dataclass(frozen=True)
class Image:
    """What the engine says of an image."""

    id: str
    layers: list[str]
    labels: Mapping[str, str]
    env: list[str]


class Tiny:
    """The project in a folder, with its own state and its own engine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths(root)
        self._kept = root.with_name(root.name + ".kept")

    def write(self) -> None:
        """The project's files, as people would write them."""
        data = yaml.safe_load((SOURCE / "build.yaml").read_text(encoding="utf-8"))
        data |= {"recipe": "tiny", "arch": "sm90", "toolkit": [], "groups": {}, "builds": {}}
        data["arches"] = {"sm90": data["arches"]["sm90"]}
        data["bases"]["debian12"] |= {"runtime": ["python3.11", "ca-certificates"], "builder": ["git"]}
        data["engine"]["keep"] = "5GB"
        self._write("build.yaml", yaml.safe_dump(data, sort_keys=False))
        self._write("recipes/tiny.yaml", RECIPE)
        self._write("patches/six/series.yaml", SERIES)
        self._write("patches/six/text-of-numbers.patch", PATCH)
        self._write("patches/six/tests/test_text_of_numbers.py", PATCH_TEST)
        for part in ("stages", "macros", "scripts"):
            shutil.copytree(SOURCE / "images" / part, self.root / "images" / part)
        shutil.copy(SOURCE / "images" / "Dockerfile.j2", self.root / "images")
        self.paths.locks.mkdir()
        shutil.copy(Paths(SOURCE).tools_lock, self.paths.tools_lock)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE / "images" / "smoke" / "lib", self.root / "images" / "smoke" / "lib", ignore=ignore)
        shutil.copy(SOURCE / "images" / "smoke" / "patches.py", self.root / "images" / "smoke")
        self._write("images/smoke/core.py", CORE)

    def keep(self) -> None:
        """Remember all inputs, the lock too, for `reset`."""
        self._kept.mkdir()
        for name in INPUTS:
            source = self.root / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self._kept / name)

    def reset(self) -> None:
        """All inputs as they were kept."""
        for name in INPUTS:
            target, kept = self.root / name, self._kept / name
            if kept.is_dir():
                shutil.rmtree(target)
                shutil.copytree(kept, target)
            else:
                shutil.copy(kept, target)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in one file."""
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        (self.root / name).write_text(text.replace(old, new), encoding="utf-8")

    def _write(self, name: str, text: str) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    # Running graft

    def graft(self, *words: str, code: int = 0, quick_gate: bool = False, network: bool = True, **env: str) -> Ran:
        """Run a verb to its end; `code` is the exit status that is expected."""
        with self.started(*words, quick_gate=quick_gate, network=network, **env) as process:
            return ended(process, code)

    @contextmanager
    def started(
        self, *words: str, quick_gate: bool = False, network: bool = True, **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        """A running verb, in a process group of its own as a shell would start it; gone at the end.

        network: without it there is not even a loopback interface, for the engine that it starts as well.
        """
        program = ["-c", QUICK_GATE] if quick_gate else ["-m", "graft"]
        alone = [] if network else ["unshare", "--net", "--"]
        own = {k: v for k, v in os.environ.items() if k not in ("ARCH", "RECIPE", "JOBS", "OFFLINE", "ENGINE")}
        process = subprocess.Popen(
            [*alone, sys.executable, *program, *words],
            cwd=self.root,
            env={**own, "PYTHONPATH": str(SOURCE / "scripts"), "ENGINE": "embedded", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A background job of a shell ignores it, and so would everything it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # Looking at what is there

    @contextmanager
    def client(self) -> Iterator[DockerClient]:
        found = engine.find(self.paths)
        assert found is not None, "the engine does not run"
        with closing(found.client()) as client:
            yield client

    def tags(self) -> dict[str, str]:
        """Every reference and the image it points to."""
        with self.client() as client:
            return {tag: str(image.id) for image in client.images.list() for tag in image.tags}

    def image(self, reference: str) -> Image:
        with self.client() as client:
            attrs: Any = client.images.get(reference).attrs
        config = attrs["Config"]
        return Image(attrs["Id"], attrs["RootFS"]["Layers"], config["Labels"], config["Env"])

    def containers(self) -> list[str]:
        """All containers, running or not, of gates or of anything else."""
        with self.client() as client:
            return [str(found["Id"]) for found in client.api.containers(all=True)]

    def gate_containers(self) -> list[str]:
        with self.client() as client:
            return [str(f["Id"]) for f in client.api.containers(filters={"label": OWNER_LABEL})]

    def read_in(self, reference: str, *files: str) -> dict[str, bytes]:
        """Files of an image, by their path."""
        found: dict[str, bytes] = {}
        with self.client() as client:
            made = client.api.create_container(reference)["Id"]
            try:
                for file in files:
                    chunks, _ = client.api.get_archive(made, file)
                    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
                        for member in tar.getmembers():
                            stream = tar.extractfile(member)
                            if stream is not None:
                                found[str(Path(file).parent / member.name)] = stream.read()
            finally:
                client.api.remove_container(made, force=True)
        return found

    def leftovers(self) -> list[str]:
        """Files and folders that only exist while something is made."""
        halves = ("*.part", "*.new", "*.debs", "work-*", ".*.lock.yaml.*", ".*.requirements.txt.*")
        places = (self.paths.state / "contexts", self.paths.store, self.paths.locks, self.paths.receipts)
        return [str(path) for place in places for half in halves for path in place.rglob(half)]

    def engine_processes(self, program: str) -> list[int]:
        """Ids of this engine's processes that run a program."""
        found = []
        for process in daemon._ours(daemon.Layout(self.paths.engine)):
            with suppress(OSError):
                if (Path("/proc") / str(process.pid) / "comm").read_text().strip() == program:
                    found.append(process.pid)
        return found

    def clients(self) -> list[int]:
        """Ids of the Docker clients that run for this project."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                program = (entry / "exe").readlink()
                if program.name in ("docker", "docker-buildx") and program.is_relative_to(self.root.resolve()):
                    found.append(int(entry.name))
        return found

    def stored(self, pattern: str) -> Path:
        """The one file of the store whose name fits."""
        found = [path for path in self.paths.store.glob(f"*/{pattern}") if path.suffix != ".lock"]
        assert len(found) == 1, found
        return found[0]

    def receipt(self, image_id: str, name: str = "receipt.json") -> dict[str, Any]:
        folder = self.paths.receipts / image_id.removeprefix("sha256:")[:12]
        data: dict[str, Any] = json.loads((folder / name).read_text())
        return data


def ended(process: subprocess.Popen[str], code: int, seconds: float = 280) -> Ran:
    """Wait for a verb's end and compare its exit status; what a user sees is never a traceback."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, f"exit {process.returncode}, wanted {code}\n{out}\n{err}"
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


def wait_for(
    condition: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120
) -> None:
    """Until it holds; fails when the process ends before, or it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"it ended before, exit {process.returncode}\n{out}\n{err}")
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def is_running(*words: str) -> bool:
    """Whether a process with exactly this command line runs anywhere, in a container too."""
    wanted = "\0".join(words).encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cmdline").read_bytes() == wanted:
                    return True
    return False


def share_engine_programs(paths: Paths) -> None:
    """Links to the programs that the checkout's own engine has unpacked already; without them they are fetched."""
    there = SOURCE / ".graft" / "engine"
    if not (there / "versions.json").is_file():
        return
    paths.engine.mkdir(parents=True)
    try:
        shutil.copytree(there / "root", paths.engine / "root", copy_function=os.link, symlinks=True)
        shutil.copy(there / "versions.json", paths.engine)
    except (OSError, shutil.Error):
        # Another file system, or somebody unpacks there at this moment.
        shutil.rmtree(paths.engine)
