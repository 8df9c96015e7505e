"""images/smoke/abi.py: green on files that fit, red on each defect, with who needs what and who should have it."""

from __future__ import annotations

import importlib.machinery
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import abi
import pytest
from fake_site import Site, failed, waived
from lib import families
from lib.dynamic import Need
from lib.loader import Library
from lib.report import Report
from shared_objects import compile_library, rpath, runpath

TAG = importlib.machinery.EXTENSION_SUFFIXES[0]
MODULE = "int PyInit_ext(void) { return 0; }\n"


class Image:
    """site-packages with a torch of three libraries, and an extension that is linked with it as vLLM's are."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.path = self.site.path
        self.libc10 = self.path / "torch/lib/libc10.so"

    def fill(self) -> None:
        self.library("torch/lib/libc10.so", "int _ZN3c104initEv(void) { return 1; }")
        self.library("torch/lib/libtorch_global_deps.so", needs=[self.libc10], flags=rpath("$ORIGIN"))
        self.library(f"torch/_C{TAG}", needs=[self.libc10], flags=rpath("$ORIGIN/lib"))
        self.extension()

    def library(self, name: str, code: str = "", **settings: object) -> Path:
        return compile_library(self.path / name, code, **settings)  # type: ignore[arg-type]

    def extension(self, code: str = "", name: str = "ext/_C.abi3.so", **settings: object) -> Path:
        uses = "extern int _ZN3c104initEv(void); int f(void) { return _ZN3c104initEv(); }\n"
        return self.library(name, MODULE + uses + code, **{"needs": [self.libc10], **settings})

    def report(self) -> Report:
        report = Report("abi")
        abi.check(self.site.facts(), report, Library(platform.machine(), {}), Path(sys.executable))
        return report

    def red(self) -> dict[str, str]:
        return failed(self.report())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Image(tmp_path_factory.mktemp("compiled"))
    made.fill()
    return made.path


@pytest.fixture
def image(compiled: Path, tmp_path: Path) -> Image:
    made = Image(tmp_path / "venv")
    shutil.copytree(compiled, made.path, dirs_exist_ok=True)
    return made


def test_an_image_that_fits_is_green(image: Image) -> None:
    report = image.report()
    assert not failed(report)
    assert "4 files" in str(report.as_dict())


def test_no_files_at_all_is_red(tmp_path: Path) -> None:
    report = Report("abi")
    abi.check(Site(tmp_path).facts(), report, Library(platform.machine(), {}), Path(sys.executable))
    assert set(failed(report)) == {"files"}


def test_an_extension_linked_against_another_torch_is_red(image: Image) -> None:
    image.extension("extern int _ZN3c105otherEv(void); int g(void) { return _ZN3c105otherEv(); }")
    text = image.red()["symbol:ext/_C.abi3.so"]
    assert "_ZN3c105otherEv" in text
    assert "libc10.so should have it and does not" in text


def test_a_symbol_of_a_library_that_is_not_linked_is_red_and_says_so(image: Image) -> None:
    image.library("torch/lib/libtorch_cpu.so", "int aoti_torch_get(void) { return 1; }")
    image.library(f"torch/_C{TAG}", needs=[image.path / "torch/lib/libtorch_cpu.so"], flags=rpath("$ORIGIN/lib"))
    image.extension("extern int aoti_torch_get(void); int g(void) { return aoti_torch_get(); }", needs=[])
    assert "libtorch_cpu.so has it, and no library" in image.red()["symbol:ext/_C.abi3.so"]


def test_a_weak_symbol_may_be_missing(image: Image) -> None:
    image.extension("extern int nowhere(void) __attribute__((weak)); int g(void) { return nowhere ? nowhere() : 0; }")
    assert not image.red()


def test_symbols_of_python_and_of_torch_s_process_are_there(image: Image) -> None:
    image.extension("extern int Py_Initialize(void); int g(void) { return Py_Initialize(); }")
    assert not image.red()


def test_a_library_that_is_nowhere_is_red(image: Image) -> None:
    gone = image.library("ext/libgone.so.7", "int gone(void) { return 1; }")
    image.extension("extern int gone(void); int g(void) { return gone(); }", needs=[image.libc10, gone])
    gone.unlink()
    red = image.red()
    assert set(red) == {"library:ext/_C.abi3.so"}
    assert "libgone.so.7 (no library of that name" in red["library:ext/_C.abi3.so"]


def test_a_run_path_that_misses_its_library_is_red_and_its_symbols_are_still_looked_for(image: Image) -> None:
    beside = image.library("other/lib/libbeside.so", "int beside(void) { return 1; }")
    code = "extern int beside(void); int g(void) { return beside(); }"
    image.extension(code, needs=[image.libc10, beside], flags=runpath("$ORIGIN/../other"))
    red = image.red()
    assert "other/lib/libbeside.so has that name" in red["library:ext/_C.abi3.so"]
    assert set(red) == {"library:ext/_C.abi3.so"}
    image.library("other/lib/libbeside.so", "int renamed(void) { return 1; }")
    assert set(image.red()) == {"library:ext/_C.abi3.so", "symbol:ext/_C.abi3.so"}
    image.library("other/lib/libbeside.so", "int beside(void) { return 1; }")
    image.extension(code, needs=[image.libc10, beside], flags=runpath("$ORIGIN/../other/lib"))
    assert not image.red()


def test_a_library_that_only_works_where_it_is_brought_in(image: Image) -> None:
    """As torch's own libnvshmem, which uses libc10_cuda without naming it."""
    inner = image.library("ext/libinner.so", "extern int outer(void); int inner(void) { return outer(); }")
    outer = image.library("ext/libouter.so", "int outer(void) { return 1; }")
    assert set(image.red()) == {"symbol:ext/libinner.so"}
    image.extension(needs=[image.libc10, inner, outer], flags=rpath("$ORIGIN"))
    assert not image.red()
    image.extension(name="ext/_D.abi3.so", needs=[image.libc10, inner], flags=rpath("$ORIGIN"))
    assert set(image.red()) == {"symbol:ext/libinner.so"}


def test_a_module_of_tvm_ffi_is_loaded_where_that_is_there_for_everybody(image: Image) -> None:
    code = "extern int TVMFFIBacktrace(void); int {name}(void) {{ return TVMFFIBacktrace(); }}"
    image.library("tvm_ffi/lib/libtvm_ffi.so", "int TVMFFIBacktrace(void) { return 0; }")
    image.library("flashinfer/norm.so", code.format(name="__tvm_ffi_norm"))
    assert not image.red()
    image.library("flashinfer/norm.so", code.format(name="norm"))
    assert set(image.red()) == {"symbol:flashinfer/norm.so"}
    image.library("flashinfer/norm.so", code.format(name="__tvm_ffi_norm"))
    image.library("tvm_ffi/lib/libtvm_ffi.so", "int TVMFFIOther(void) { return 0; }")
    assert "libtvm_ffi.so should have it and does not" in image.red()["symbol:flashinfer/norm.so"]


def test_the_driver_s_libraries_may_be_absent_and_their_symbols_too(image: Image) -> None:
    driver = image.library("stub/libcuda.so.1", "int cuInit(void) { return 1; }")
    code = "extern int cuInit(void); extern int {name}(void); int g(void) { return cuInit() + {name}(); }"
    image.extension(code.replace("{name}", "cuCtxCreate_v4"), needs=[image.libc10, driver])
    driver.unlink()
    report = image.report()
    assert not failed(report)
    assert "2 left to the driver" in str(report.as_dict())
    image.extension(code.replace("{name}", "cudaMalloc"), needs=[image.libc10])
    red = image.red()["symbol:ext/_C.abi3.so"]
    assert "cuInit (libcuda.so.1 should have it" in red
    assert "cudaMalloc (libcudart.so should have it" in red


def newer(image: Image, version: str, library: str) -> None:
    """An extension built with a newer library than the image has: it asks for a version that is not defined."""
    code = "int moved(void) { return 1; }"
    theirs = compile_library(image.path.parent / "build" / library, code, versions={version: ["moved"]})
    image.extension("extern int moved(void); int g(void) { return moved(); }", needs=[image.libc10, theirs])


@pytest.mark.parametrize(
    ("version", "library"),
    [("GLIBC_2.99", "libc.so.6"), ("GLIBCXX_3.4.99", "libstdc++.so.6"), ("CXXABI_1.9", "libstdc++.so.6")],
)
def test_a_newer_version_of_the_c_libraries_is_red(image: Image, version: str, library: str) -> None:
    newer(image, version, library)
    red = image.red()
    assert set(red) == {"version:ext/_C.abi3.so"}
    assert f"{version} ({library} should define it" in red["version:ext/_C.abi3.so"]


def test_the_wrong_machine_is_red(image: Image) -> None:
    data = bytearray(image.extension().read_bytes())
    data[18:20] = struct.pack("<H", 183)
    (image.path / "ext/_C.abi3.so").write_bytes(data)
    assert "built for aarch64" in image.red()["machine:ext/_C.abi3.so"]


@pytest.mark.parametrize("tag", ["cpython-39-x86_64-linux-gnu", "cpython-311-aarch64-linux-gnu", "pypy39-pp73", "abi4"])
def test_an_extension_for_another_python_is_red(image: Image, tag: str) -> None:
    image.extension(name=f"ext/_E.{tag}.so")
    # What is no tag is a name: this Python would take it for the module `_E.abi4`.
    assert set(image.red()) == ({f"python:ext/_E.{tag}.so"} if tag != "abi4" else set())


def test_a_damaged_file_is_red(image: Image) -> None:
    (image.path / "ext/_C.abi3.so").write_bytes(b"\x7fELF\x02\x01 and no more")
    assert "cut off" in image.red()["unreadable:ext/_C.abi3.so"]


def test_a_program_without_its_interpreter_or_library_is_red(image: Image) -> None:
    beside = image.library("ext/libbeside.so", "int beside(void) { return 1; }")
    program, code = image.path / "ext/tool", "int beside(void); int main(void) { return beside(); }"
    for loader, where, red in (
        ("", "$ORIGIN", set()),
        ("", "$ORIGIN/nowhere", {"library:ext/tool"}),
        ("-Wl,--dynamic-linker=/no/ld.so", "$ORIGIN", {"library:ext/tool"}),
    ):
        words = ["gcc", "-x", "c", "-", "-x", "none", str(beside), "-o", str(program), *rpath(where)]
        subprocess.run([*words, *filter(None, [loader])], input=code.encode(), check=True, capture_output=True)
        assert set(image.red()) == red


def two_missing(image: Image) -> None:
    image.extension("extern int one(void), two(void); int g(void) { return one() + two(); }")


def test_a_waiver_names_the_file_and_what_it_misses(image: Image) -> None:
    two_missing(image)
    image.site.waive("abi", "ext/_C.abi3.so/one")
    assert "two (no library" in image.red()["symbol:ext/_C.abi3.so"]
    assert "one" not in image.red()["symbol:ext/_C.abi3.so"].replace("nobody", "")
    image.site.waive("abi", "ext/*/tw?")
    report = image.report()
    assert not failed(report)
    assert waived(report) == ["symbol:ext/_C.abi3.so"]


def test_a_waiver_of_another_distribution_does_not_count(image: Image) -> None:
    image.site.install("mine", "1", {"ext/__init__.py": ""})
    record = image.path / "mine-1.dist-info/RECORD"
    record.write_text(record.read_text() + "ext/_C.abi3.so,,\n")
    two_missing(image)
    image.site.waive("abi", "ext/*", package="other")
    assert set(image.red()) == {"symbol:ext/_C.abi3.so", "waivers"}
    image.site.waivers.clear()
    image.site.waive("abi", "ext/*", package="mine")
    assert not image.red()


def test_a_waiver_that_nothing_needs_is_red(image: Image) -> None:
    image.site.waive("abi", "ext/_C.abi3.so/one")
    assert "ext/_C.abi3.so/one" in image.red()["waivers"]


def test_a_link_is_not_a_second_file(image: Image) -> None:
    (image.path / "ext/_link.abi3.so").symlink_to("_C.abi3.so")
    assert "4 files" in str(image.report().as_dict())


def test_long_lists_are_shortened(image: Image) -> None:
    names = [f"missing_{number}" for number in range(9)]
    image.extension("".join(f"extern int {n}(void); int g{n}(void) {{ return {n}(); }}\n" for n in names))
    text = image.red()["symbol:ext/_C.abi3.so"]
    assert "missing_4 and 4 more" in text
    assert "missing_5" not in text


@pytest.mark.parametrize(
    ("symbol", "library"),
    [
        ("cuMemAlloc_v2", "libcuda.so.1"),
        ("nvmlInit_v2", "libnvidia-ml.so.1"),
        ("cudaMalloc", "libcudart.so"),
        ("__cudaRegisterFatBinary", "libcudart.so"),
        ("cublasLtMatmul", "libcublasLt.so"),
        ("cublasCreate_v2", "libcublas.so"),
        ("cudnnCreate", "libcudnn.so"),
        ("ncclAllReduce", "libnccl.so"),
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", "libc10_cuda.so"),
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "libc10.so"),
        ("_ZNK3c106Device3strEv", "libc10.so"),
        ("_ZN2at4_ops3add4callERKNS_6TensorES4_", "libtorch_cpu.so"),
        ("_ZN5torch7LibraryD1Ev", "libtorch_cpu.so"),
        ("aoti_torch_get_sizes", "libtorch_cpu.so"),
        ("_Z16THPVariable_WrapN2at10TensorBaseE", "libtorch_python.so"),
        ("PyObject_Call", "python"),
        ("_Py_Dealloc", "python"),
        ("_ZNSs4_Rep9_S_createEmmRKSaIcE", "libstdc++.so.6"),
        ("_ZTVN10__cxxabiv120__si_class_type_infoE", "libstdc++.so.6"),
        ("_Znwm", "libstdc++.so.6"),
        ("TVMFFIErrorSetRaised", "libtvm_ffi.so"),
        ("uv_loop_new", None),
    ],
)
def test_whose_a_symbol_is(symbol: str, library: str | None) -> None:
    assert families.owner(Need(symbol)) == library


def test_a_version_says_whose_a_symbol_is() -> None:
    assert families.owner(Need("memcpy", "GLIBC_2.14", "libc.so.6")) == "libc.so.6"
