"""What runs in containers of trials, run here: try-patch.py, probe-installed.py, apply-onto.py, and skipped tests."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import py_compile
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graft.trial.bytecode import Bytecode

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "images" / "scripts"
RUNNER = ROOT / "images" / "smoke" / "lib" / "patchtest.py"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run(script: Path, job: Path, **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], **env}
    return subprocess.run([sys.executable, script, job], env=given, capture_output=True, text=True, check=False)


# try-patch.py


class Trial:
    """A module, its test, and a job that says which bytes are tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = folder / "site" / "demo.py"
        self.test = folder / "test_demo.py"
        self.module.parent.mkdir()
        self.module.write_text("VALUE = 1\n")
        self.test.write_text("import demo\ndef test_value():\n    assert demo.VALUE == 1\n")

    def run(self, files: Mapping[str, str | None], *, is_put: bool = True, **env: str) -> tuple[int, str]:
        job = self.folder / "job.json"
        said = {"files": dict(files), "is_put": is_put, "runner": str(RUNNER), "test": str(self.test)}
        job.write_text(json.dumps(said))
        done = run(SCRIPTS / "try-patch.py", job, PYTHONPATH=str(self.module.parent), **env)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def stale(module: Path, **options: Any) -> Path:
    """Bytecode of other source that the module's time and size still fit."""
    before = module.stat()
    text = module.read_text()
    module.write_text(text.replace("1", "2"))
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    cached = Path(py_compile.compile(str(module), doraise=True, **options))
    module.write_text(text)
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    return cached


def test_the_test_runs_on_the_bytes_that_the_job_names(trial: Trial) -> None:
    code, said = trial.run({str(trial.module): sha256(b"VALUE = 1\n")})
    assert code == 0
    assert json.loads(said.splitlines()[-1])["tests"][0]["verdict"] == "pass"


@pytest.mark.parametrize("digest", [sha256(b"other"), None])
def test_on_other_bytes_nothing_runs(trial: Trial, digest: str | None) -> None:
    code, said = trial.run({str(trial.module): digest}, is_put=False)
    assert code == 3
    assert "tests" not in said
    assert str(trial.module) in said
    assert trial.module.is_file(), "what was not put there is not taken away"


def test_what_must_not_be_there_goes(trial: Trial) -> None:
    extra = trial.module.with_name("extra.py")
    extra.write_text("")
    code, _ = trial.run({str(trial.module): sha256(b"VALUE = 1\n"), str(extra): None})
    assert (code, extra.exists()) == (0, False)


def test_bytecode_that_would_win_over_what_was_put_goes(trial: Trial) -> None:
    stale(trial.module)
    files = {str(trial.module): sha256(b"VALUE = 1\n")}
    assert trial.run(files, is_put=False)[0] == 1, "the bytecode is stale and still taken"
    assert trial.run(files)[0] == 0


def test_and_so_does_bytecode_below_a_prefix(trial: Trial) -> None:
    prefix = trial.folder / "prefix"
    place = prefix / str(trial.module.parent).lstrip("/") / f"demo.{sys.implementation.cache_tag}.pyc"
    stale(trial.module, cfile=str(place))
    files = {str(trial.module): sha256(b"VALUE = 1\n")}
    assert trial.run(files, is_put=False, PYTHONPYCACHEPREFIX=str(prefix))[0] == 1
    assert trial.run(files, PYTHONPYCACHEPREFIX=str(prefix))[0] == 0


@pytest.mark.parametrize(
    "source",
    [
        "import unittest\ndef test_x():\n    raise unittest.SkipTest('no GPU')\n",
        "import unittest\n@unittest.skip('no GPU')\ndef test_x():\n    assert 0\n",
        "import unittest\nraise unittest.SkipTest('no GPU')\n",
        "class Skipped(BaseException): pass\ndef test_x():\n    raise Skipped('no GPU')\n",
    ],
)
def test_a_skipped_test_is_no_pass(trial: Trial, source: str) -> None:
    trial.test.write_text(source)
    code, said = trial.run({})
    tests = json.loads(said.splitlines()[-1])["tests"]
    assert (code, [t["verdict"] for t in tests]) == (1, ["skip"])
    assert "no GPU" in tests[0]["detail"]


def test_an_assertion_outside_of_a_test_is_an_error(trial: Trial) -> None:
    trial.test.write_text("assert 0\n")
    assert json.loads(trial.run({})[1].splitlines()[-1])["tests"][0]["verdict"] == "error"


# Bytecode from one container to the next


def bytecode_tar(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("bytecode/site"))
        for name in names:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    return out.getvalue()


def test_only_bytecode_of_the_image_s_own_files_is_kept(tmp_path: Path) -> None:
    other = Bytecode(tmp_path, "sha256:" + "2" * 64, ("/site",))
    other.keep("demo", [bytecode_tar("bytecode/site/a.cpython-311.pyc")], [])
    made = Bytecode(tmp_path, "sha256:" + "1" * 64, ("/site", "/usr/lib"))
    names = [
        "bytecode/site/demo/own.cpython-311.pyc",
        "bytecode/site/demo/put.cpython-311.pyc",
        "bytecode/site/demo/put.cpython-311.opt-1.pyc",
        "bytecode/site/demo/putter.cpython-311.pyc",
        "bytecode/site/demo/text.txt",
        "bytecode/usr/lib/python3.11/ast.cpython-311.pyc",
        "bytecode/graft-trial/test/test_demo.cpython-311.pyc",
        "bytecode/sites/x.cpython-311.pyc",
    ]
    made.keep("demo", [bytecode_tar(*names)], ["/site/demo/put.py", "/graft-trial/job.json"])
    with tarfile.open(made.file("demo")) as tar:
        assert tar.getnames() == [names[0], names[3], names[5]]
    assert [file.name for file in tmp_path.iterdir()] == [made.file("demo").name], "no other image's, nothing half made"


# probe-installed.py and apply-onto.py


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Site:
    """A folder in which a distribution is installed from a wheel, with bytecode."""

    INFO = "demo-1.0.dist-info"

    def __init__(self, folder: Path) -> None:
        self.root = folder / "site"
        self.context = folder / "context"
        self.files = {"demo/__init__.py": b"", "demo/a.py": b"A = 1\n", "demo/b, c.txt": b"text\n"}
        for path, data in self.files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(data)
        (self.root / "demo/a.py").chmod(0o640)
        self.cached = Path(py_compile.compile(str(self.root / "demo/a.py"), doraise=True))
        self.record = self.root / self.INFO / "RECORD"
        self.record.parent.mkdir()
        (self.record.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: De_mo\nVersion: 1.0\n")
        rows = [[path, digest(data), str(len(data))] for path, data in self.files.items()]
        rows += [[self.cached.relative_to(self.root).as_posix(), "", ""], [f"{self.INFO}/RECORD", "", ""]]
        with self.record.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)

    def probe(self, *paths: str, name: str = "de.mo", **env: str) -> dict[str, Any]:
        job = self.root.parent / "probe.json"
        job.write_text(json.dumps({"distribution": name, "paths": paths, "others": ["de_mo", "absent"]}))
        done = run(SCRIPTS / "probe-installed.py", job, **{"PYTHONPATH": str(self.root), **env})
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def apply(self, new: Mapping[str, bytes], **changes: Any) -> subprocess.CompletedProcess[str]:
        files = {}
        for path, data in new.items():
            place = self.context / "files" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            old = self.root / path
            before = sha256(old.read_bytes()) if old.is_file() else None
            files[path] = {"before": before, "after": sha256(data), "executable": False}
        job = {
            "root": str(self.root),
            "record": f"{self.INFO}/RECORD",
            "time": 1_900_000_000,
            "files": files,
            **changes,
        }
        (self.context / "job.json").write_text(json.dumps(job))
        for name in ("apply-onto.py", "overlay-wheel.py"):
            (self.context / name).write_bytes((SCRIPTS / name).read_bytes())
        return run(self.context / "apply-onto.py", self.context / "job.json")

    def recorded(self) -> dict[str, list[str]]:
        with self.record.open(newline="") as stream:
            return {row[0]: row[1:] for row in csv.reader(stream)}

    def everything(self) -> dict[str, bytes]:
        return {p.relative_to(self.root).as_posix(): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_probe_says_what_python_would_use(site: Site) -> None:
    found = site.probe("demo/a.py", "demo/new.py")
    assert (found["version"], found["root"], found["record"]) == ("1.0", str(site.root), f"{site.INFO}/RECORD")
    assert found["found"] == [str(site.root)]
    assert (
        found["others"] == {"demo": "1.0"} or found["others"] == {"de-mo": "1.0"} or not found["others"].get("absent")
    )
    assert found["packages"] == {"demo": str(site.root / "demo/__init__.py")}
    data = site.files["demo/a.py"]
    a, new = found["files"]["demo/a.py"], found["files"]["demo/new.py"]
    assert a["blob"] == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    assert a["recorded"] == [digest(data)]
    assert (a["cached"], a["is_link"], a["executable"], a["twins"], a["copies"]) == (True, False, False, [], [])
    assert (new["blob"], new["recorded"], new["cached"]) == (None, [], False)


def test_the_probe_sees_what_could_win(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "demo").mkdir(parents=True)
    (other / "demo/a.py").write_text("")
    (site.root / "demo/a.cpython-311-x86_64-linux-gnu.so").write_text("")
    found = site.probe("demo/a.py", PYTHONPATH=f"{site.root}:{other}")["files"]["demo/a.py"]
    assert found["copies"] == [str(other / "demo/a.py")]
    assert found["twins"] == ["a.cpython-311-x86_64-linux-gnu.so"]
    link = site.root / "demo/link.py"
    link.symlink_to("a.py")
    assert site.probe("demo/link.py")["files"]["demo/link.py"]["is_link"]
    (site.root / "linked").symlink_to("demo")
    assert site.probe("linked/a.py")["files"]["linked/a.py"]["is_link"]


def test_the_probe_finds_no_distribution(site: Site) -> None:
    assert site.probe("demo/a.py", name="absent")["found"] == []


def test_files_record_and_bytecode_are_exchanged(site: Site) -> None:
    twin = site.root.parent / "twin.py"
    os.link(site.root / "demo/a.py", twin)
    folder = (site.root / "demo").stat().st_mtime_ns
    done = site.apply({"demo/a.py": b"A = 22\n", "demo/sub/new.py": b"N = 1\n"})
    assert done.returncode == 0, done.stderr
    assert (site.root / "demo/a.py").read_bytes() == b"A = 22\n"
    assert (site.root / "demo/a.py").stat().st_mode & 0o777 == 0o640
    assert (site.root / "demo/sub/new.py").stat().st_mode & 0o777 == 0o644
    assert int((site.root / "demo/a.py").stat().st_mtime) == 1_900_000_000
    assert (site.root / "demo").stat().st_mtime_ns == folder
    assert twin.read_bytes() == b"A = 1\n", "a hard link keeps its bytes"
    assert not site.cached.exists()
    recorded = site.recorded()
    assert recorded["demo/a.py"] == [digest(b"A = 22\n"), "7"]
    assert recorded["demo/sub/new.py"] == [digest(b"N = 1\n"), "6"]
    assert recorded["demo/b, c.txt"] == [digest(b"text\n"), "5"]
    assert not [path for path in recorded if path.endswith(".pyc")]
    assert sorted(recorded) == sorted({*site.files, "demo/sub/new.py", f"{site.INFO}/RECORD"})
    assert not [path for path in site.everything() if ".graft-" in path]


def test_a_record_without_a_last_line_end_gets_one(site: Site) -> None:
    site.record.write_bytes(site.record.read_bytes().rstrip(b"\n"))
    assert site.apply({"demo/new.py": b"N\n"}).returncode == 0
    assert site.recorded()["demo/new.py"] == [digest(b"N\n"), "2"]


def test_execution_is_as_the_patch_says(site: Site) -> None:
    digests = {"before": sha256(b"A = 1\n"), "after": sha256(b"A = 2\n")}
    assert site.apply({"demo/a.py": b"A = 2\n"}, files={"demo/a.py": {**digests, "executable": True}}).returncode == 0
    assert (site.root / "demo/a.py").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "files",
    [
        {"demo/a.py": {"before": sha256(b"other"), "after": sha256(b"A = 2\n"), "executable": False}},
        {"demo/a.py": {"before": None, "after": sha256(b"A = 2\n"), "executable": False}},
        {"demo/a.py": {"before": sha256(b"A = 1\n"), "after": sha256(b"other"), "executable": False}},
    ],
)
def test_other_bytes_than_the_job_s_change_nothing(site: Site, files: dict[str, Any]) -> None:
    before = site.everything()
    done = site.apply({"demo/a.py": b"A = 2\n", "demo/b, c.txt": b"changed\n"}, files=files)
    assert done.returncode == 5
    assert "demo/a.py" in done.stderr
    assert site.everything() == before


def test_without_a_record_it_fails(site: Site) -> None:
    site.record.unlink()
    assert site.apply({"demo/a.py": b"A = 2\n"}).returncode == 5
