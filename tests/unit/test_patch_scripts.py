"""images/scripts/apply-patches.sh and overlay-wheel.py, as the Dockerfile's stages run them, without Docker."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from patchwork import diff, numbered, patch, text

from graft.patching import lock_entry, wheel_tree
from graft.patching.entry import context_files
from graft.patchset import Patch

ROOT = Path(__file__).resolve().parents[2]
APPLY = ROOT / "images" / "scripts" / "apply-patches.sh"
OVERLAY = ROOT / "images" / "scripts" / "overlay-wheel.py"
RUNNER = ROOT / "images" / "smoke" / "lib" / "patchtest.py"

BASE = text(numbered(1, 30))
EDIT = BASE.replace(b"line 15\n", b"line fifteen\n")
LATER = EDIT.replace(b"line 25\n", b"line 25b\n")
FILES = {
    "demo/a.py": BASE,
    "demo/d.py": b"bye\n",
    "run.sh": b"#!\n",
    ".gitattributes": b"* text eol=crlf\n",
    "w.txt": b"a\r\n",
}
DELETED, ADDED = diff(b"bye\n", None, "demo/d.py"), diff(None, b"hi\n", "demo/n.py")
PATCHES = (
    patch(diff(BASE, EDIT, "demo/a.py"), "first"),
    patch(diff(EDIT, LATER, "demo/a.py") + DELETED + ADDED, "second"),
)


class Stage:
    """A work tree and a patch context, as a stage sees them."""

    def __init__(self, folder: Path) -> None:
        self.work, self.context = folder / "work", folder / "patches"
        for path, content in FILES.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_bytes(content)
        self.entry = lock_entry("demo", self.work, PATCHES)
        self.pristine, self.result = self.entry.pristine, self.entry.result
        self.context.mkdir()
        for name, data in context_files(self.entry, PATCHES).items():
            (self.context / name).write_bytes(data)

    def apply(self, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
        given = {
            "PATH": os.environ["PATH"],
            "WORKTREE": str(self.work),
            "PATCHES": str(self.context),
            "PRISTINE_TREE": self.pristine,
            "RESULT_TREE": self.result,
        }
        return subprocess.run([shell, APPLY], env=given | env, capture_output=True, text=True, check=False)

    def files(self) -> dict[str, bytes]:
        return {p.relative_to(self.work).as_posix(): p.read_bytes() for p in self.work.rglob("*") if p.is_file()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


PATCHED = {k: v for k, v in FILES.items() if k != "demo/d.py"} | {"demo/a.py": LATER, "demo/n.py": b"hi\n"}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_all_are_applied(stage: Stage, shell: str) -> None:
    done = stage.apply(shell, SOURCE_DATE_EPOCH="1577836800")
    assert done.returncode == 0, done.stderr
    assert stage.files() == PATCHED
    assert (stage.work / "demo/a.py").stat().st_mtime == 1577836800
    assert not (stage.work / ".git").exists()


def test_modes_and_umask_do_not_matter(stage: Stage) -> None:
    for path in stage.work.rglob("*.py"):
        path.chmod(0o600)
    (stage.work / "run.sh").chmod(0o664)
    assert stage.apply().returncode == 0
    assert (stage.work / "demo/a.py").stat().st_mode & 0o777 == 0o644


def test_inside_another_repository_with_a_hostile_environment(stage: Stage, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "config", "core.autocrlf", "true"], check=True)
    (tmp_path / "config").write_text(
        "[core]\n\tautocrlf = true\n\tattributesFile = /nix\n[apply]\n\twhitespace = fix\n"
    )
    done = stage.apply(
        GIT_CONFIG_GLOBAL=str(tmp_path / "config"),
        GIT_DIR=str(tmp_path / ".git"),
        GIT_OBJECT_DIRECTORY=str(tmp_path / "nix"),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="core.autocrlf",
        GIT_CONFIG_VALUE_0="true",
    )
    assert done.returncode == 0, done.stderr
    assert stage.files().items() >= PATCHED.items()


def refused(stage: Stage, why: str) -> None:
    before = stage.files()
    done = stage.apply()
    assert done.returncode == 5
    assert why in done.stderr
    assert stage.files() == before, "nothing may change"


def test_a_tree_that_is_not_pristine(stage: Stage) -> None:
    (stage.work / "demo/a.py").write_bytes(EDIT)
    refused(stage, "demo/a.py is")
    refused(stage, "the pristine tree is")


def test_a_second_run(stage: Stage) -> None:
    assert stage.apply().returncode == 0
    refused(stage, "the pristine tree is")


def test_a_file_more(stage: Stage) -> None:
    (stage.work / "more").write_text("x")
    refused(stage, "the pristine tree is")


def test_a_patch_that_does_not_apply(stage: Stage) -> None:
    (stage.context / "second.patch").write_bytes(diff(LATER, BASE, "demo/a.py"))
    refused(stage, "second.patch does not apply; none was applied")


def test_a_changed_patch(stage: Stage) -> None:
    (stage.context / "second.patch").write_bytes(PATCHES[1].data.replace(b"25b", b"25c"))
    refused(stage, "none was applied")
    assert "demo/a.py is" in stage.apply().stderr


def test_a_shorter_series(stage: Stage) -> None:
    (stage.context / "series").write_text("first.patch\n")
    refused(stage, "none was applied")
    (stage.context / "series").write_text("")
    refused(stage, "names no patch")
    (stage.context / "series").write_text("nix.patch\n")
    refused(stage, "nix.patch is in the series but not in")


def test_links_and_repositories(stage: Stage) -> None:
    (stage.work / "link").symlink_to("run.sh")
    refused(stage, "link or a device")
    (stage.work / "link").unlink()
    (stage.work / "demo/.git").mkdir()
    refused(stage, ".git")


# The overlay.

INFO = "demo-1.0.dist-info"
WHEEL = {"demo/a.py": BASE, "demo/__init__.py": b"", "demo/b, c.py": b"x = 1\n", f"{INFO}/METADATA": b"Name: demo\n"}


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def recorded(files: dict[str, bytes]) -> str:
    lines = [f'"{n}",{digest(d)},{len(d)}' if "," in n else f"{n},{digest(d)},{len(d)}" for n, d in files.items()]
    return "".join(f"{line}\n" for line in [*lines, f"{INFO}/RECORD,,"])


class Overlaid:
    """A wheel, a site-packages it is installed in as uv does it, and its patches."""

    def __init__(self, folder: Path, patches: tuple[Patch, ...]) -> None:
        self.folder, self.site, self.out, self.context = folder, folder / "site", folder / "out", folder / "patches"
        self.wheel = folder / "demo-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name, data in (WHEEL | {f"{INFO}/RECORD": recorded(WHEEL).encode()}).items():
                archive.writestr(name, data)
        self.installed = {"../../../bin/demo": b"#!"} | WHEEL | {f"{INFO}/INSTALLER": b"uv"}
        for name, data in WHEEL.items():
            (self.site / name).parent.mkdir(parents=True, exist_ok=True)
            (self.site / name).write_bytes(data)
        self.record = self.site / INFO / "RECORD"
        self.record.write_text(recorded(self.installed))
        self.entry = lock_entry("demo", wheel_tree(self.wheel, ["demo/a.py"]), patches)
        self.context.mkdir()
        for name, content in context_files(self.entry, patches).items():
            (self.context / name).write_bytes(content)

    def make(self) -> subprocess.CompletedProcess[str]:
        argv = [
            sys.executable, OVERLAY, "--wheel", self.wheel, "--site", self.site, "--patches", self.context,
            "--pristine", self.entry.pristine, "--result", self.entry.result, "--out", self.out,
        ]  # fmt: skip
        env = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": "1577836800"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    def refused(self, why: str) -> None:
        done = self.make()
        assert done.returncode == 5
        assert why in done.stderr
        assert not self.out.exists()


WHEEL_PATCH = patch(diff(BASE, EDIT, "demo/a.py") + diff(None, b"hi\n", "demo/n.py"), "first", target="wheel")


@pytest.fixture
def overlaid(tmp_path: Path) -> Overlaid:
    return Overlaid(tmp_path, (WHEEL_PATCH,))


def test_the_overlay_holds_the_patched_files_and_the_record(overlaid: Overlaid) -> None:
    done = overlaid.make()
    assert done.returncode == 0, done.stderr
    made = {p.relative_to(overlaid.out).as_posix(): p for p in overlaid.out.rglob("*") if p.is_file()}
    assert made.keys() == {"demo/a.py", "demo/n.py", f"{INFO}/RECORD"}
    assert made["demo/a.py"].read_bytes() == EDIT
    old, new = overlaid.record.read_text().splitlines(), made[f"{INFO}/RECORD"].read_text().splitlines()
    assert [line for line in new if line not in old] == [
        f"demo/a.py,{digest(EDIT)},{len(EDIT)}",
        f"demo/n.py,{digest(b'hi' + bytes([10]))},3",
    ]
    assert [line for line in old if line not in new] == [f"demo/a.py,{digest(BASE)},{len(BASE)}"]
    assert all(p.stat().st_mode & 0o777 == 0o644 and p.stat().st_mtime == 1577836800 for p in made.values())


def test_an_installed_file_that_is_not_the_wheel_s(overlaid: Overlaid) -> None:
    (overlaid.site / "demo/a.py").write_bytes(EDIT)
    overlaid.refused("is not the wheel's file")
    (overlaid.site / "demo/a.py").unlink()
    overlaid.refused("is not the wheel's file")


def test_a_record_that_does_not_fit(overlaid: Overlaid) -> None:
    text_before = overlaid.record.read_text()
    overlaid.record.write_text(text_before + f"demo/a.py,{digest(BASE)},{len(BASE)}\n")
    overlaid.refused("does not list demo/a.py once")
    overlaid.record.write_text(text_before.replace(digest(BASE), digest(EDIT)))
    overlaid.refused("does not list demo/a.py once")
    overlaid.record.unlink()
    overlaid.refused("is not installed there")


def test_what_would_win_over_the_patched_file(overlaid: Overlaid) -> None:
    (overlaid.site / "demo/__pycache__").mkdir()
    cached = overlaid.site / "demo/__pycache__/a.cpython-311.pyc"
    cached.write_bytes(b"")
    overlaid.refused("would be used although the source changes")
    cached.unlink()
    before = overlaid.record.read_text()
    overlaid.record.write_text(before + "demo/__pycache__/a.cpython-311.pyc,,\n")
    overlaid.refused("would be used although the source changes")
    overlaid.record.write_text(before)
    (overlaid.site / "demo/a.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    overlaid.refused("compiled twin")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{0} - demo/a.py", "cannot delete"),
        ("{0} {0} demo-1.0.dist-info/METADATA", "metadata"),
        ("{0} {0} demo.pth", ".pth"),
        ("{0} {0} demo/a.cu", "built from source"),
        ("{0} {0} ../a.py", "outside"),
        ("{0} {0} /a.py", "outside"),
    ],
)
def test_paths_that_are_refused(overlaid: Overlaid, line: str, why: str) -> None:
    (overlaid.context / "touched").write_text(line.format("0" * 40) + "\n")
    overlaid.refused(why)


def test_patches_that_do_more_than_the_lock_names(overlaid: Overlaid) -> None:
    touched = overlaid.context / "touched"
    touched.write_text(touched.read_text().splitlines()[0] + "\n")
    overlaid.refused("other files than the lock names: demo/n.py")


# The runner of patch tests.

TESTS = """
import json
def helper(): raise ValueError
def test_b(): print("noise")
def test_a(): assert 1 == 2, "not equal"
def test_c(): raise KeyError("x")
def test_d(): raise SystemExit(0)
"""


def run_tests(folder: Path, source: str) -> tuple[int, list[dict[str, str]]]:
    (folder / "test_demo.py").write_text(source)
    argv = [sys.executable, RUNNER, folder / "test_demo.py"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])["tests"]


def test_the_runner_tells_failures_from_errors(tmp_path: Path) -> None:
    rc, tests = run_tests(tmp_path, TESTS)
    assert rc == 1
    assert [(t["name"], t["verdict"]) for t in tests] == [
        ("test_b", "pass"),
        ("test_a", "fail"),
        ("test_c", "error"),
        ("test_d", "error"),
    ]
    assert "not equal" in tests[1]["detail"]


@pytest.mark.parametrize(
    "source", ["", "import nix\n", "def test_x(:\n", "raise SystemExit(0)\n", "from os import path as test_p\n"]
)
def test_a_file_without_a_test_that_runs_is_an_error(tmp_path: Path, source: str) -> None:
    rc, tests = run_tests(tmp_path, source)
    assert rc == 1
    assert [t["verdict"] for t in tests] == ["error"]


def test_the_runner_passes(tmp_path: Path) -> None:
    assert run_tests(tmp_path, "def test_x():\n    assert True\n") == (
        0,
        [{"name": "test_x", "verdict": "pass", "detail": ""}],
    )
