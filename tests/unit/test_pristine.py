"""Pristine files are read from an archive once, and believed only when their bytes are right."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from graft.patching.pristine import PristineFiles

FILES = {"demo/a.py": b"a = 1\n", "demo/b.py": b"b = 2\n", "demo/run": b"#!/bin/sh\n"}
SHA = "0" * 64


@pytest.fixture(params=["wheel", "source"])
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    if request.param == "wheel":
        wheel = tmp_path / "demo-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as out:
            for name, data in FILES.items():
                out.writestr(name, data)
        return wheel, "wheel"
    sdist = tmp_path / "demo-1.tar.gz"
    with tarfile.open(sdist, "w:gz") as tar:
        for name, data in FILES.items():
            member = tarfile.TarInfo(f"demo-1/{name}")
            member.size, member.mode = len(data), 0o755 if name == "demo/run" else 0o644
            tar.addfile(member, io.BytesIO(data))
    return sdist, "source"


def test_the_archive_is_read_once(tmp_path: Path, archive: tuple[Path, str]) -> None:
    file, target = archive
    kept = PristineFiles(tmp_path / "kept")
    first = kept.tree(SHA, file, target, ["demo/a.py", "demo/none.py"])  # type: ignore[arg-type]
    file.unlink()
    second = kept.tree(SHA, file, target, ["demo/a.py", "demo/none.py"])  # type: ignore[arg-type]
    assert first is not None
    assert second is not None
    assert dict(first.files) == dict(second.files) == {"demo/a.py": FILES["demo/a.py"]}
    assert set(first.all_names) == set(second.all_names) == FILES.keys()


def test_other_files_need_the_archive_and_keep_what_was_there(tmp_path: Path, archive: tuple[Path, str]) -> None:
    file, target = archive
    kept = PristineFiles(tmp_path / "kept")
    kept.tree(SHA, file, target, ["demo/a.py"])  # type: ignore[arg-type]
    kept.tree(SHA, file, target, ["demo/run"])  # type: ignore[arg-type]
    file.unlink()
    both = kept.tree(SHA, file, target, ["demo/a.py", "demo/run"])  # type: ignore[arg-type]
    assert both is not None
    assert both.executable == ({"demo/run"} if target == "source" else frozenset())
    assert kept.tree(SHA, file, target, ["demo/b.py"]) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["blob", "index", "no blob", "edited index", "no text", "nothing"])
def test_what_was_damaged_is_read_again(tmp_path: Path, archive: tuple[Path, str], damage: str) -> None:
    file, target = archive
    folder = tmp_path / "kept"
    kept = PristineFiles(folder)
    kept.tree(SHA, file, target, ["demo/a.py"])  # type: ignore[arg-type]
    (blob,) = (folder / "blobs").iterdir()
    if damage == "blob":
        blob.write_bytes(b"a = 3\n")
    elif damage == "no blob":
        blob.unlink()
    else:
        index = folder / f"{SHA}.json"
        edited = index.read_text().replace('"demo/a.py": "', '"demo/a.py": null, "x": "')
        written = {"index": b"{}", "edited index": edited.encode(), "no text": b"\xff\n", "nothing": b""}
        index.write_bytes(written[damage])
    again = kept.tree(SHA, file, target, ["demo/a.py"])  # type: ignore[arg-type]
    assert again is not None
    assert again.files["demo/a.py"] == FILES["demo/a.py"]
    (folder / "blobs" / blob.name).write_bytes(b"x")
    file.unlink()
    assert kept.tree(SHA, file, target, ["demo/a.py"]) is None  # type: ignore[arg-type]
