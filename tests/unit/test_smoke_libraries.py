"""images/smoke/libraries.py: each CUDA library once, the locked one, on every way that the loader can take."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import libraries
import pytest
from fake_site import Site, failed, waived
from lib.facts import Component
from lib.loader import Library as Loader
from lib.report import Report
from libraries import LIBRARIES, NCCL, Mapped
from shared_objects import compile_library, rpath, runpath

FILES = {
    "cudart": "nvidia/cu13/lib/libcudart.so.13",
    "cublas": "nvidia/cu13/lib/libcublas.so.13",
    "cublasLt": "nvidia/cu13/lib/libcublasLt.so.13",
    "cudnn": "nvidia/cudnn/lib/libcudnn.so.9",
    "nccl": "nvidia/nccl/lib/libnccl.so.2",
}
PACKAGES = {
    "nvidia-cuda-runtime": ("13.0.96", ["cudart"]),
    "nvidia-cublas": ("13.1.1.3", ["cublas", "cublasLt"]),
    "nvidia-cudnn-cu13": ("9.20.0.48", ["cudnn"]),
    "nvidia-nccl-cu13": ("2.30.4", ["nccl"]),
}
ANSWERS = {"cudart": [13000], "cublas": [13, 1, 1], "cublasLt": [13, 1, 1], "cudnn": [9, 20, 0], "nccl": [23004]}


class Image:
    """site-packages with the libraries, and what a process that imported torch, and then a server, has mapped."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        for package, (version, names) in PACKAGES.items():
            self.site.install(package, version, {FILES[name]: name for name in names})
        self.site.components["nccl"] = Component("nvidia-nccl-cu13", "2.30.4", None, "torch", ())
        self.paths = {name: str(self.site.path / file) for name, file in FILES.items()}
        self.mapped = [*self.paths.values(), "/usr/lib/x86_64-linux-gnu/libc.so.6"]
        self.later: list[str] = []
        self.answers: dict[str, list[int] | None] = {self.paths[name]: answer for name, answer in ANSWERS.items()}
        self.torch = str(self.site.write("torch/__init__.py", ""))

    def report(self, *folders: Path, loader: Loader | None = None) -> Report:
        report = Report("libraries")
        first = Mapped("torch", self.torch, tuple(self.mapped), self.answers)
        last = Mapped("server", self.torch, (*self.mapped, *self.later), self.answers)
        libraries.check(self.site.facts(), report, [first, last], [self.site.root, *folders], loader)
        return report

    def red(self, *folders: Path, loader: Loader | None = None) -> dict[str, str]:
        return failed(self.report(*folders, loader=loader))


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
    (image.site.path / FILES["nccl"]).unlink()
    image.mapped.remove(image.paths["nccl"])
    assert set(image.red()) == {"mapped:nccl", "disk:nccl", "version:nccl", "overrides:nccl"}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("nccl", [22907], "2.29.7"),
        ("cudart", [12080], "12.8"),
        ("cudart", [13030], "13.3"),
        ("cudnn", [9, 2, 0], "9.2.0"),
        ("nccl", None, "nothing"),
        ("cudnn", None, "nothing"),
    ],
)
def test_a_library_that_answers_with_another_version_is_red(
    image: Image, name: str, answer: list[int] | None, says: str
) -> None:
    image.answers[image.paths[name]] = answer
    red = image.red()
    assert set(red) == {f"version:{name}"}
    assert f"says {says}" in red[f"version:{name}"]


def test_cublas_of_another_version_than_cublaslt_is_red(image: Image) -> None:
    """As where one of two distributions that hold both was overwritten by the other."""
    image.answers[image.paths["cublasLt"]] = [13, 2, 0]
    assert set(image.red()) == {"version:cublasLt", "pair:cublas"}


def test_cublas_and_cublaslt_of_two_folders_are_red(image: Image) -> None:
    other = str(image.site.write("other/libcublasLt.so.13", "cublasLt"))
    image.mapped[image.mapped.index(image.paths["cublasLt"])] = other
    image.answers[other] = [13, 1, 1]
    assert {"pair:cublas", "version:cublasLt"} <= set(image.red())


@pytest.mark.parametrize("name", list(FILES))
def test_a_library_of_no_locked_distribution_is_red(image: Image, name: str) -> None:
    package = next(package for package, (_, names) in PACKAGES.items() if name in names)
    del image.site.packages[package]
    assert "no locked package" in image.red()[f"version:{name}"]


def test_an_override_that_is_not_in_use_is_red(image: Image) -> None:
    """The library is there, torch maps its own copy."""
    own = str(image.site.write("torch/lib/libnccl.so.2", "nccl"))
    image.mapped[image.mapped.index(image.paths["nccl"])] = own
    image.answers[own] = [23004]
    red = image.red()
    assert "torch uses another copy" in red["overrides:nccl"]
    assert "disk:nccl" in red


def test_torch_from_elsewhere_is_red(image: Image, tmp_path: Path) -> None:
    image.torch = str(tmp_path / "torch" / "__init__.py")
    assert set(image.red()) == {"torch"}


SECOND = [
    ("cudart", "torchvision.libs/libcudart.faf08d9a.so.13"),
    ("cudart", "pynvvideocodec/libcudart-c64a25f3.so.12.3.101"),
    ("cublas", "other/libcublas.so.12"),
    ("cublasLt", "other/libcublasLt.so.13"),
    ("cudnn", "other/libcudnn.so.9"),
    ("nccl", "other/libnccl.so.2"),
]


@pytest.mark.parametrize(("name", "second"), SECOND)
def test_a_library_mapped_twice_is_red(image: Image, name: str, second: str) -> None:
    image.mapped.append(str(image.site.write(second, "")))
    assert f"mapped:{name}" in image.red()


@pytest.mark.parametrize(("name", "second"), SECOND)
def test_a_second_copy_that_only_the_server_maps_is_red_until_it_is_waived(
    image: Image, name: str, second: str
) -> None:
    image.later.append(str(image.site.write(second, "")))
    assert f"mapped:{name}:{second}" in image.red()
    image.site.waive("libraries", second)
    report = image.report()
    assert f"mapped:{name}:{second}" in waived(report)
    assert set(failed(report)) <= {"disk:nccl"}


def test_a_waiver_that_nothing_needs_is_red(image: Image) -> None:
    image.site.waive("libraries", "torchvision.libs/*")
    assert set(image.red()) == {"waivers"}


@pytest.mark.parametrize(
    ("function", "numbers", "text"),
    [
        ("ncclGetVersion", [23004], "2.30.4"),
        ("ncclGetVersion", [22907], "2.29.7"),
        ("cudaRuntimeGetVersion", [13000], "13.0"),
        ("cudaRuntimeGetVersion", [12080], "12.8"),
        ("cudnnGetProperty", [9, 20, 0], "9.20.0"),
        ("cudnnGetProperty", None, None),
    ],
)
def test_version_numbers_are_read_as_their_makers_write_them(
    function: str, numbers: list[int] | None, text: str | None
) -> None:
    assert libraries.decode(function, numbers) == text


def test_a_release_is_compared_by_its_parts() -> None:
    assert libraries.is_release_of("13.1.1", "13.1.1.3")
    assert libraries.is_release_of("2.30.4", "2.30.4+cu13")
    assert not libraries.is_release_of("9.2", "9.20.0.48")
    assert not libraries.is_release_of("13.1.1.3", "13.1.1")


@pytest.fixture
def compiled(image: Image) -> Image:
    """The libraries as real files, and one that names them all, with a run path as torch's has."""
    for name, path in image.paths.items():
        compile_library(Path(path), f"int {name}(void) {{ return 1; }}")
    folders = ":".join(
        f"$ORIGIN/../../{folder}" for folder in ("nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia/nccl/lib")
    )
    user = compile_library(
        image.site.path / "torch/lib/libtorch_cuda.so",
        needs=[Path(p) for p in image.paths.values()],
        flags=rpath(folders),
    )
    image.mapped += [str(user), "/memfd:gone.so (deleted)"]
    return image


def test_the_loader_has_one_choice(compiled: Image) -> None:
    report = compiled.report(loader=Loader(platform.machine(), {}, Path("/nonexistent")))
    assert not failed(report)
    assert "2 files name it" in str(report.as_dict())


@pytest.mark.parametrize("name", list(FILES))
def test_the_wrong_library_first_on_the_path_is_red(compiled: Image, name: str, tmp_path: Path) -> None:
    wrong = compile_library(tmp_path / "wrong" / Path(FILES[name]).name)
    red = compiled.red(loader=Loader(platform.machine(), {"LD_LIBRARY_PATH": str(wrong.parent)}, Path("/nonexistent")))
    assert set(red) == {f"way:{name}"}
    assert str(wrong) in red[f"way:{name}"]


def test_a_second_library_on_a_run_path_is_red(compiled: Image) -> None:
    second = compile_library(compiled.site.path / "other/lib/libcudnn.so.9")
    user = compile_library(
        compiled.site.path / "other/user.so", needs=[second], flags=runpath("$ORIGIN/lib:$ORIGIN/../nvidia/cudnn/lib")
    )
    compiled.mapped.append(str(user))
    red = compiled.red(loader=Loader(platform.machine(), {}, Path("/nonexistent")))
    assert str(second) in red["way:cudnn"]


def test_the_loader_path_of_the_environment_is_searched(tmp_path: Path) -> None:
    folders = libraries.loader_folders({"LD_LIBRARY_PATH": f"{tmp_path}:"})
    assert folders[0] == tmp_path
    (tmp_path / "libnccl.so.2").touch()
    assert libraries.find(NCCL, folders[:1]) == [(tmp_path / "libnccl.so.2").resolve()]


def entry(path: Path, first: str) -> dict[str, str]:
    path.mkdir(exist_ok=True)
    (path / "vllm").write_text(f"{first}\nimport vllm\n")
    (path / "vllm").chmod(0o755)
    return {"PATH": str(path)}


def test_the_interpreter_is_that_of_the_entrypoint(image: Image, tmp_path: Path) -> None:
    image.site.component("vllm", "vllm", "1")
    report = Report("libraries")
    environ = entry(tmp_path / "bin", f"#!{sys.executable}")
    assert libraries.interpreter(image.site.facts(), report, environ) == sys.executable
    assert not failed(report)


@pytest.mark.parametrize("first", ["#!/usr/bin/env python3", "#!/nonexistent/python", "\x7fELF"])
def test_an_entrypoint_of_another_interpreter_is_red(image: Image, tmp_path: Path, first: str) -> None:
    image.site.component("vllm", "vllm", "1")
    report = Report("libraries")
    libraries.interpreter(image.site.facts(), report, entry(tmp_path / "bin", first))
    assert set(failed(report)) == {"entrypoint"}


def test_no_entrypoint_is_red(image: Image, tmp_path: Path) -> None:
    image.site.component("vllm", "vllm", "1")
    report = Report("libraries")
    libraries.interpreter(image.site.facts(), report, {"PATH": str(tmp_path)})
    assert "not on PATH" in failed(report)["entrypoint"]


LIBRARY = """
int ncclGetVersion(int* v) { *v = 23004; return 0; }
int cudnnGetProperty(int part, int* v) { int p[] = {9, 20, 0}; *v = p[part]; return 0; }
int cublasGetProperty(int part, int* v) { return 1; }
"""


def test_a_process_is_asked_after_each_import(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    for name in ("libnccl.so.2", "libcudnn.so.9", "libcublas.so.13"):
        compile_library(folder / name, LIBRARY)
    (folder / "first.py").write_text(
        f"import ctypes; ctypes.CDLL({str(folder / 'libnccl.so.2')!r}); print('{{noise}}')"
    )
    others = "; ".join(f"ctypes.CDLL({str(folder / name)!r})" for name in ("libcudnn.so.9", "libcublas.so.13"))
    (folder / "second.py").write_text(f"import ctypes; {others}")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    report = Report("libraries")
    first, second = libraries.probe(report, sys.executable, ["first", "second"])
    assert not failed(report)
    assert (first.file, first.answers) == (str(folder / "first.py"), {str(folder / "libnccl.so.2"): [23004]})
    assert second.of(LIBRARIES[4]) == [folder / "libcudnn.so.9"]
    assert second.answers[str(folder / "libcudnn.so.9")] == [9, 20, 0]
    assert second.answers[str(folder / "libcublas.so.13")] is None


def test_an_import_that_fails_is_red_and_the_one_before_it_counts(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(image.site.path))
    image.site.write("server.py", "raise ImportError('libnccl.so.2: cannot open')")
    report = Report("libraries")
    found = libraries.probe(report, sys.executable, ["torch", "server"])
    assert [one.module for one in found] == ["torch"]
    assert "cannot open" in failed(report)["import server"]


def test_the_server_s_own_module_is_imported_where_vllm_is_in_the_recipe(image: Image) -> None:
    assert libraries.imports_of(image.site.facts()) == ("torch",)
    image.site.component("vllm", "vllm", "1")
    assert libraries.imports_of(image.site.facts()) == ("torch", "vllm.entrypoints.openai.api_server")
