"""images/smoke/libraries.py: one NCCL, the locked one, and each CUDA library mapped once."""

from __future__ import annotations

from pathlib import Path

import libraries
import pytest
from fake_site import Site, failed
from lib.report import Report
from libraries import NCCL, Mapped

NAMES = {
    "cudart": "nvidia/cu13/lib/libcudart.so.13",
    "cublas": "nvidia/cu13/lib/libcublas.so.13",
    "cublasLt": "nvidia/cu13/lib/libcublasLt.so.13",
    "cudnn": "nvidia/cudnn/lib/libcudnn.so.9",
    "nccl": "nvidia/nccl/lib/libnccl.so.2",
}


class Image:
    """site-packages with the libraries, and what a process that imported torch has mapped of them."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.site.install("nvidia-nccl-cu13", "2.30.4", {})
        self.mapped = [str(self.site.write(path, name)) for name, path in NAMES.items()]
        self.mapped.append("/usr/lib/x86_64-linux-gnu/libc.so.6")
        self.nccl: dict[str, int | None] = {str(self.site.path / NAMES["nccl"]): 23004}
        self.torch = str(self.site.write("torch/__init__.py", ""))

    def red(self, *folders: Path) -> dict[str, str]:
        report = Report("libraries")
        mapped = Mapped(self.torch, tuple(self.mapped), self.nccl)
        libraries.check(self.site.facts(), report, mapped, [self.site.root, *folders])
        return failed(report)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path / "venv")


def test_an_image_as_planned_is_green(image: Image) -> None:
    assert not image.red()


def test_a_second_nccl_on_disk_is_red(image: Image, tmp_path: Path) -> None:
    second = tmp_path / "usr" / "libnccl.so.2.29.7"
    second.parent.mkdir()
    second.touch()
    assert str(second) in image.red(second.parent)["disk:nccl"]


def test_a_link_to_the_same_nccl_is_no_second_one(image: Image) -> None:
    (image.site.path / "nvidia/nccl/lib/libnccl.so").symlink_to("libnccl.so.2")
    assert not image.red()


def test_other_libraries_of_nccl_are_not_nccl(image: Image) -> None:
    image.site.write("nccl/ep/lib/libnccl_ep.so", "")
    image.site.write("nvidia/nccl/lib/libnccl_device.bc", "")
    assert not image.red()


def test_no_nccl_is_red(image: Image) -> None:
    (image.site.path / NAMES["nccl"]).unlink()
    image.mapped = [path for path in image.mapped if not path.endswith("libnccl.so.2")]
    image.nccl = {}
    assert set(image.red()) == {"mapped:nccl", "disk:nccl", "version:nccl"}


def test_an_nccl_of_another_version_is_red(image: Image) -> None:
    image.nccl = dict.fromkeys(image.nccl, 22907)
    assert "says 2.29.7" in image.red()["version:nccl"]


def test_an_nccl_that_gives_no_version_is_red(image: Image) -> None:
    image.nccl = dict.fromkeys(image.nccl, None)
    assert set(image.red()) == {"version:nccl"}


def test_an_nccl_that_the_lock_does_not_know_is_red(image: Image) -> None:
    image.site.packages.clear()
    assert set(image.red()) == {"version:nccl"}


def test_torch_from_elsewhere_is_red(image: Image, tmp_path: Path) -> None:
    image.torch = str(tmp_path / "torch" / "__init__.py")
    assert set(image.red()) == {"torch"}


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("cudart", "torchvision.libs/libcudart.faf08d9a.so.13"),
        ("cudart", "pynvvideocodec/libcudart-c64a25f3.so.12.3.101"),
        ("cublas", "other/libcublas.so.12"),
        ("cublasLt", "other/libcublasLt.so.13"),
        ("cudnn", "other/libcudnn.so.9"),
        ("nccl", "other/libnccl.so.2"),
    ],
)
def test_a_library_mapped_twice_is_red(image: Image, name: str, second: str) -> None:
    image.mapped.append(str(image.site.write(second, "")))
    assert f"mapped:{name}" in image.red()


def test_the_version_number_is_read_as_nccl_writes_it() -> None:
    assert [libraries.decode(number) for number in (23004, 22907, 23102)] == ["2.30.4", "2.29.7", "2.31.2"]


def test_the_loader_path_of_the_environment_is_searched(tmp_path: Path) -> None:
    folders = libraries.loader_folders({"LD_LIBRARY_PATH": f"{tmp_path}:"})
    assert folders[0] == tmp_path
    (tmp_path / "libnccl.so.2").touch()
    assert libraries.find(NCCL, folders[:1]) == [(tmp_path / "libnccl.so.2").resolve()]


def test_what_is_mapped_is_asked_of_a_process_that_imported_torch(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(image.site.path))
    report = Report("libraries")
    mapped = libraries.probe(report)
    assert mapped is not None
    assert mapped.torch == image.torch
    assert any("libc" in path for path in mapped.paths)
    assert not mapped.nccl


def test_a_torch_that_cannot_be_imported_is_red(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(image.site.path))
    image.site.write("torch/__init__.py", "raise ImportError('libnccl.so.2: cannot open')")
    report = Report("libraries")
    assert libraries.probe(report) is None
    assert "cannot open" in failed(report)["import torch"]
