"""images/smoke/lib/collect.py: which texts of an image come out of it, and in what form."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest
from fake_root import SITE, VENV, Root, small_root
from lib import collect, debian, system


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return small_root(tmp_path)


def texts(root: Root) -> set[str]:
    whole = system.System(root.root, SITE, VENV, (), debian.read(root.root), apart={"smoke"})
    return set(collect.texts(whole))


def test_what_no_package_brought_comes_out(root: Root) -> None:
    root.put("root/.netrc", "x")
    root.put("smoke/core.py", "x")
    root.put("usr/share/graft/Dockerfile", "x")
    root.put("proc/1/environ", "x")
    found = texts(root)
    assert {"etc/passwd", "root/.netrc", "usr/share/graft/Dockerfile", f"{VENV}/pyvenv.cfg", f"{VENV}/bin/one"} <= found
    assert not found & {"smoke/core.py", "proc/1/environ", "usr/bin/su", "etc/python3.11/site"}
    assert not [path for path in found if path.startswith("var/lib/dpkg")]


def test_of_site_packages_only_what_installers_write(root: Root) -> None:
    info = f"{SITE}/one-1.0.dist-info"
    root.put(f"{info}/direct_url.json", "{}")
    root.put(f"{info}/INSTALLER", "uv")
    root.put(f"{SITE}/one/INSTALLER", "of the package itself")
    assert {path for path in texts(root) if path.startswith(SITE)} == {f"{info}/direct_url.json", f"{info}/INSTALLER"}


def test_programs_of_wheels_are_left_out_and_scripts_are_not(root: Root) -> None:
    root.put(f"{VENV}/bin/ninja", "\x7fELF\0")
    root.put(f"{VENV}/bin/vllm", "#!/opt/venv/bin/python")
    root.put(f"{VENV}/external/ffmpeg.tar.xz", "\0")
    root.put("etc/odd.bin", "a\0b")
    found = texts(root)
    assert f"{VENV}/bin/vllm" in found
    assert "etc/odd.bin" in found
    assert not found & {f"{VENV}/bin/ninja", f"{VENV}/external/ffmpeg.tar.xz"}


def test_a_line_holds_a_file_or_says_that_it_is_too_big(root: Root) -> None:
    place = root.put("etc/x", "y" * 100)
    line = json.loads(collect.line_of(place, "/etc/x", 1000))
    assert line["file"] == "/etc/x"
    assert zlib.decompress(base64.b64decode(line["data"])).decode() == "y" * 100
    assert json.loads(collect.line_of(place, "/etc/x", 10)) == {"file": "/etc/x", "bytes": 100}
    place.write_text("y" * (collect.FILE_BYTES + 1))
    assert json.loads(collect.line_of(place, "/etc/x", 10**9)) == {"file": "/etc/x", "bytes": collect.FILE_BYTES + 1}
