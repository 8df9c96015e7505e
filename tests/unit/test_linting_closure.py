"""What wheels say of themselves: read from the store, kept, and never guessed where a wheel is not there."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from factories import LOCK, Data, edited, make_lock, make_project, sha

from graft.linting import Closure, Wheels
from graft.linting.closure import Conflict, Mismatch
from graft.lock import Lock
from graft.store import Store, mark_checked

BASE = make_project().bases["debian12"]


class Shelf:
    """A store with made-up wheels, and the lock that names them."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "store")
        self.kept = root / "lint"
        self.pins: list[Data] = []
        self.sources: Data = {}

    def wheel(
        self, name: str, version: str = "1.0", *lines: str, files: dict[str, str] | None = None, **more: Any
    ) -> None:
        """lines: more headers of METADATA; files: path -> hash in RECORD."""
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        record = "".join(f"{path},{digest},1\n" for path, digest in (files or {}).items())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(f"{info}/METADATA", _headers(name, version, lines))
            archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
        self.pins.append(
            self._put(name, version, f"{info.removesuffix('.dist-info')}-py3-none-any.whl", buffer.getvalue(), more)
        )

    def sdist(self, name: str, version: str, *lines: str, **more: Any) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            text = _headers(name, version, lines).encode()
            member = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        self.sources[name] = self._put(name, version, f"{name}-{version}.tar.gz", buffer.getvalue(), more)

    def _put(self, name: str, version: str, file: str, data: bytes, more: Data) -> Data:
        pin = {
            "name": name,
            "version": version,
            "file": file,
            "size": len(data),
            "sha256": sha(file),
            "uploaded": "2026-11-01",
        }
        path = self.store.root / pin["sha256"] / file
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        mark_checked(path)
        return {**pin, **more}

    @property
    def lock(self) -> Lock:
        data = edited(LOCK, lambda d: d.update(packages=self.pins, sources=self.sources, patches={}))
        return make_lock(lambda d: d.update(data))

    def closure(self) -> Closure:
        """As a new process finds it."""
        return Wheels(self.store, self.kept).closure(self.lock, BASE)


def _headers(name: str, version: str, lines: tuple[str, ...]) -> str:
    return "".join(
        f"{line}\n" for line in ("Metadata-Version: 2.3", f"Name: {name}", f"Version: {version}", *lines, "")
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def asks(text: str) -> str:
    return f"Requires-Dist: {text}"


def test_what_is_fulfilled_is_no_mismatch(shelf: Shelf) -> None:
    shelf.wheel(
        "vllm", "0.32.0", asks("torch==2.13.0"), asks("Typing_Extensions>=4"), asks("b ; python_version < '3.11'")
    )
    shelf.wheel("torch", "2.13.0")
    shelf.wheel("typing-extensions", "4.12")
    assert shelf.closure() == Closure()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torch==2.14.0", Mismatch("vllm", "torch==2.14.0", "torch", "2.13.0")),
        ("flashinfer-python==0.7", Mismatch("vllm", "flashinfer-python==0.7", "flashinfer-python", None)),
        ("x; sys_platform == 'linux'", Mismatch("vllm", "x; sys_platform == 'linux'", "x", None)),
        ("x; platform_machine == 'aarch64'", None),
        ("x; extra == 'dev'", None),
        ("x @ https://a.invalid/x.whl", None),
        ("torch (>=2.13)", None),
    ],
)
def test_a_requirement_is_held_against_what_is_installed(shelf: Shelf, line: str, found: Mismatch | None) -> None:
    shelf.wheel("vllm", "0.32.0", asks(line))
    shelf.wheel("torch", "2.13.0")
    assert shelf.closure().mismatches == ((found,) if found else ())


def test_an_extra_that_is_asked_for_asks_for_more(shelf: Shelf) -> None:
    shelf.wheel("vllm", "0.32.0", asks("fastapi[standard]>=1"))
    shelf.wheel("fastapi", "1.0", asks("uvicorn[fast]; extra == 'standard'"), asks("email; extra == 'all'"))
    shelf.wheel("uvicorn", "1.0", asks("uvloop>=2; extra == 'fast'"))
    shelf.wheel("uvloop", "1.9")
    assert shelf.closure().mismatches == (Mismatch("uvicorn", "uvloop>=2; extra == 'fast'", "uvloop", "1.9"),)


def test_what_is_built_from_an_sdist_asks_and_fulfils(shelf: Shelf) -> None:
    shelf.wheel("vllm", "0.32.0", asks("flashinfer-python==0.7.0.post1"))
    shelf.sdist("flashinfer-python", "0.7.0.post1", asks("nccl4py>=1"))
    assert shelf.closure().mismatches == (Mismatch("flashinfer-python", "nccl4py>=1", "nccl4py", None),)


def test_an_sdist_that_says_its_build_decides_is_believed(shelf: Shelf) -> None:
    shelf.wheel("torch", "2.13.0")
    shelf.sdist("flashinfer-python", "0.7", "Dynamic: Requires-Dist", asks("never"))
    assert shelf.closure() == Closure()


def test_a_wheel_is_believed_whatever_it_says_of_its_sdist(shelf: Shelf) -> None:
    """PEP 643: in a wheel, Dynamic is a note about the sdist that it was built from. torch's wheel has it."""
    shelf.wheel("torch", "2.13.0", "Dynamic: Requires-Dist", asks("nvidia-nccl-cu13==2.29.7"))
    shelf.wheel("nvidia-nccl-cu13", "2.30.4")
    asked = "nvidia-nccl-cu13==2.29.7"
    assert shelf.closure().mismatches == (Mismatch("torch", asked, "nvidia-nccl-cu13", "2.30.4"),)


def test_what_is_there_for_builds_alone_asks_for_nothing(shelf: Shelf) -> None:
    shelf.wheel("torch", "2.13.0")
    shelf.sdist("flashinfer-python", "0.7", asks("nccl4py>=1"), alone=True)
    assert shelf.closure() == Closure()


def test_only_what_is_installed_together_is_compared(shelf: Shelf) -> None:
    shelf.wheel("a", files={"x.py": "sha256=1"}, arches=["sm90"])
    shelf.wheel("b", files={"x.py": "sha256=2"}, arches=["sm120"])
    shelf.wheel("c", "1.0", asks("d"), arches=["sm90"])
    shelf.wheel("d", arches=["sm120"])
    shelf.wheel("e", "1.0", asks("never"), use="tool")
    assert shelf.closure() == Closure(mismatches=(Mismatch("c", "d", "d", None),))


def test_two_wheels_that_write_one_file_with_different_bytes(shelf: Shelf) -> None:
    shelf.wheel("dsl-base", files={"cute/ir.so": "sha256=1", "cute/a.py": "sha256=3", "b/../c.py": "sha256=5"})
    shelf.wheel("dsl-cu13", files={"cute/ir.so": "sha256=2", "cute/a.py": "sha256=3"})
    shelf.wheel("other", files={"c.py": "sha256=6"})
    assert shelf.closure().conflicts == (
        Conflict("c.py", (("dsl-base", "sha256=5"), ("other", "sha256=6"))),
        Conflict("cute/ir.so", (("dsl-base", "sha256=1"), ("dsl-cu13", "sha256=2"))),
    )


def test_files_of_schemes_are_compared_where_they_are_installed(shelf: Shelf) -> None:
    shelf.wheel("a", files={"a-1.0.data/purelib/x.py": "sha256=1", "a-1.0.data/scripts/run": "sha256=1"})
    shelf.wheel("b", files={"x.py": "sha256=2", "run": "sha256=2", "b-1.0.data/scripts/run": "sha256=2"})
    assert [c.file for c in shelf.closure().conflicts] == ["scripts:run", "x.py"]


def test_a_wheel_for_another_python_is_named(shelf: Shelf) -> None:
    shelf.wheel("old", "1.0", "Requires-Python: <3.11")
    shelf.wheel("new", "1.0", "Requires-Python: >=3.12")
    shelf.wheel("fits", "1.0", "Requires-Python: >=3.9,!=3.9.7")
    shelf.wheel("exact", "1.0", "Requires-Python: >=3.11.4")
    assert shelf.closure().pythons == (("old", "<3.11"), ("new", ">=3.12"))


def test_what_is_not_at_hand_is_named_and_the_rest_is_judged(shelf: Shelf) -> None:
    shelf.wheel("vllm", "0.32.0", asks("torch==9"))
    shelf.wheel("torch", "2.13.0")
    shelf.wheel("gone")
    pin = shelf.lock.packages[2]
    shelf.store.path(pin).unlink()
    found = shelf.closure()
    assert found.unread == (pin.file,)
    assert [m.wanted for m in found.mismatches] == ["torch"]


@pytest.mark.parametrize("spoil", ["size", "touched", "no zip"])
def test_a_file_that_is_not_as_fetch_left_it_is_not_read(shelf: Shelf, spoil: str) -> None:
    shelf.wheel("torch", "2.13.0")
    path = shelf.store.path(shelf.lock.packages[0])
    if spoil == "touched":
        path.touch()
    else:
        path.write_bytes(b"x" * (path.stat().st_size - (spoil == "size")))
        mark_checked(path)
    before = path.read_bytes()
    assert shelf.closure().unread == (path.name,)
    assert path.read_bytes() == before, "lint changes nothing in the store"


def test_what_was_read_once_is_known_without_the_wheel(shelf: Shelf) -> None:
    shelf.wheel("vllm", "0.32.0", asks("torch==9"), "Requires-Python: >=3.12", files={"x": "sha256=1"})
    shelf.wheel("torch", "2.13.0", files={"x": "sha256=2"})
    first = shelf.closure()
    for pin in shelf.lock.packages:
        shelf.store.path(pin).unlink()
    assert shelf.closure() == first
    for path in shelf.kept.glob("lock-*.json"):
        path.unlink()
    assert shelf.closure() == first, "each wheel is known for itself, for the next lock"
    assert (len(first.mismatches), len(first.conflicts), len(first.pythons)) == (1, 1, 1)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 0}'])
def test_what_was_kept_and_is_damaged_is_read_again(shelf: Shelf, damage: str) -> None:
    shelf.wheel("vllm", "0.32.0", asks("torch==9"))
    shelf.wheel("torch", "2.13.0")
    first = shelf.closure()
    for path in shelf.kept.iterdir():
        path.write_text(damage)
    assert shelf.closure() == first


def test_nothing_is_kept_for_a_lock_of_which_nothing_is_there(shelf: Shelf) -> None:
    shelf.wheel("torch", "2.13.0")
    shelf.store.path(shelf.lock.packages[0]).unlink()
    assert len(shelf.closure().unread) == 1
    assert not shelf.kept.exists()


def test_a_folder_that_cannot_be_written_costs_only_time(shelf: Shelf) -> None:
    shelf.wheel("torch", "2.13.0", asks("x"))
    shelf.kept.write_text("a file")
    assert len(shelf.closure().mismatches) == 1


def test_another_version_of_one_wheel_is_another_answer(shelf: Shelf) -> None:
    shelf.wheel("vllm", "0.32.0", asks("torch==2.14.0"))
    shelf.wheel("torch", "2.13.0")
    assert len(shelf.closure().mismatches) == 1
    shelf.pins.pop()
    shelf.wheel("torch", "2.14.0")
    assert shelf.closure() == Closure()
    assert all(json.loads(path.read_text())["format"] == 2 for path in shelf.kept.iterdir())
