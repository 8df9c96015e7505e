"""images/smoke/patches.py: green when the patch is in and its test needs it, red for each way it can be missing."""

from __future__ import annotations

import hashlib
import os
import py_compile
from pathlib import Path

import pytest
from fake_site import Site, failed
from lib.facts import Patch
from lib.report import Report

import patches

MODULE, HEADER = "toy/value.py", "toy/data/include/value.h"
PRISTINE, PATCHED = "VALUE = 1\n", "VALUE = 2\n"
TEST = "from toy import value\n\ndef test_value():\n    assert value.VALUE == 2\n"
HEADER_TEST = (
    "from pathlib import Path\nimport toy\n\n"
    "def test_header():\n"
    "    assert '2' in (Path(toy.__file__).parent / 'data/include/value.h').read_text()\n"
)


class Image:
    """A package with a patched module and a patched header, and the tests of both patches."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = Site(root)
        self.site.install("toy", "1.0", {"toy/__init__.py": "", MODULE: PATCHED, HEADER: PATCHED})
        self.monkeypatch = monkeypatch
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        self.search(self.site.path)
        self.patch("module", MODULE, TEST)
        self.patch("header", HEADER, HEADER_TEST)

    def search(self, *folders: Path) -> None:
        self.monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))

    def patch(self, id: str, path: str, test: str) -> None:
        digest = hashlib.sha256(PATCHED.encode()).hexdigest()
        self.site.patches.append(Patch("toy", id, f"patch-tests/toy/test_{id}.py", {path: digest}))
        self.smoke(f"patch-tests/toy/test_{id}.py", test)
        self.smoke(f"pristine/toy/{path}", PRISTINE)

    def smoke(self, path: str, text: str) -> None:
        place = self.site.root / "smoke" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def red(self) -> dict[str, str]:
        report = Report("patches")
        patches.check(self.site.facts(), report)
        return failed(report)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    return Image(tmp_path / "image", monkeypatch)


def test_patches_that_are_in_and_needed_are_green(image: Image) -> None:
    module = image.site.path / MODULE
    os.utime(module, (1577836800, 1577836800))
    before = (module.read_bytes(), module.stat().st_mtime_ns, module.stat().st_mode)
    assert not image.red()
    assert (module.read_bytes(), module.stat().st_mtime_ns, module.stat().st_mode) == before
    assert sorted(path.name for path in module.parent.iterdir()) == ["__init__.py", "__pycache__", "data", "value.py"]
    assert not patches.stale_bytecode(module)
    assert not image.red(), "a second run must see the same image"


def test_a_patch_that_was_not_applied_is_red(image: Image) -> None:
    image.site.write(MODULE, PRISTINE)
    assert set(image.red()) == {f"hash:{MODULE}", "green:toy/module"}


def test_a_missing_file_is_red(image: Image) -> None:
    (image.site.path / HEADER).unlink()
    assert {f"hash:{HEADER}", "green:toy/header"} <= set(image.red())


def test_a_test_that_passes_without_its_patch_is_red(image: Image) -> None:
    image.smoke("patch-tests/toy/test_module.py", "def test_nothing():\n    assert True\n")
    assert "it proves nothing" in image.red()["red:toy/module"]


def test_a_test_that_only_stumbles_without_its_patch_is_red(image: Image) -> None:
    image.smoke("patch-tests/toy/test_module.py", TEST.replace("assert value.VALUE == 2", "{2: 'x'}[value.VALUE]"))
    assert set(image.red()) == {"red:toy/module"}


@pytest.mark.parametrize("text", ["", "import missing_module\n", "def test_x(:\n", "import os\nos._exit(0)\n"])
def test_a_test_file_that_tests_nothing_is_red(image: Image, text: str) -> None:
    image.smoke("patch-tests/toy/test_module.py", text)
    assert set(image.red()) == {"green:toy/module", "red:toy/module"}


def test_a_test_that_hangs_is_red(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "TEST_SECONDS", 1.0)
    image.site.patches[:] = image.site.patches[:1]
    image.smoke("patch-tests/toy/test_module.py", "import time\n\ndef test_x():\n    time.sleep(60)\n")
    assert "time limit" in image.red()["green:toy/module"]


def test_a_second_copy_that_is_imported_instead_is_red(image: Image, tmp_path: Path) -> None:
    other = Site(tmp_path / "other")
    other.install("toy", "1.0", {"toy/__init__.py": "", MODULE: PATCHED})
    image.search(other.path, image.site.path)
    assert {f"imported:{MODULE}", f"single:{MODULE}"} <= set(image.red())


def test_a_second_copy_further_back_is_red(image: Image, tmp_path: Path) -> None:
    other = Site(tmp_path / "other")
    other.install("toy", "1.0", {HEADER: PRISTINE})
    image.search(image.site.path, other.path)
    assert set(image.red()) == {f"single:{HEADER}"}


def test_a_compiled_twin_is_red(image: Image) -> None:
    image.site.write("toy/value.abi3.so", "not even a library")
    assert f"imported:{MODULE}" in image.red()


def test_bytecode_of_the_pristine_source_is_red_although_its_time_and_size_match(image: Image) -> None:
    module = image.site.write(MODULE, PRISTINE)
    os.utime(module, (1577836800, 1577836800))
    py_compile.compile(str(module), doraise=True)
    image.site.write(MODULE, PATCHED)
    os.utime(module, (1577836800, 1577836800))
    red = image.red()
    assert f"bytecode:{MODULE}" in red
    assert "green:toy/module" in red, "Python really takes such bytecode"


def test_bytecode_that_is_never_checked_is_red_when_stale(image: Image) -> None:
    module = image.site.write(MODULE, PRISTINE)
    py_compile.compile(str(module), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    image.site.write(MODULE, PATCHED)
    assert f"bytecode:{MODULE}" in image.red()


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_bytecode_of_the_patched_source_is_green_and_survives(
    image: Image, mode: py_compile.PycInvalidationMode
) -> None:
    cached = Path(py_compile.compile(str(image.site.path / MODULE), doraise=True, invalidation_mode=mode) or "")
    before = cached.read_bytes()
    assert not image.red()
    assert cached.read_bytes() == before


def test_a_patch_that_touches_no_installed_file_is_red(image: Image) -> None:
    image.site.patches[0] = Patch("toy", "module", "patch-tests/toy/test_module.py", {})
    assert "changes:toy/module" in image.red()


def test_no_patch_at_all_is_red(image: Image) -> None:
    image.site.patches.clear()
    assert set(image.red()) == {"patches"}


def test_a_file_that_a_patch_adds_is_gone_for_the_red_half(image: Image) -> None:
    image.site.write("toy/added.py", PATCHED)
    image.patch(
        "added",
        "toy/added.py",
        "def test_x():\n    import toy\n    from importlib.util import find_spec\n"
        "    assert find_spec('toy.added') is not None\n",
    )
    (image.site.root / "smoke" / "pristine" / "toy" / "toy" / "added.py").unlink()
    assert not image.red()
    assert (image.site.path / "toy/added.py").read_text() == PATCHED
