"""images/smoke/load.py: real shared objects are loaded with a stand-in for torch; red for each defect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import load
import pytest
from cuda_code import AOT
from fake_site import Site, checks_of, failed, waived
from lib import operators, owners, stubs
from lib.dynamic import read
from lib.report import Report
from shared_objects import compile_library, runpath

# Operators are lines of a file: name and keys. Libraries add theirs when they are loaded.
TORCH = """
import os

def lines():
    with open(os.environ["FAKE_OPERATORS"]) as file:
        return [line.split() for line in file]

class _C:
    @staticmethod
    def _dispatch_get_all_op_names():
        return [words[0] for words in lines()]

    @staticmethod
    def _dispatch_has_kernel_for_dispatch_key(name, key):
        return any(key in words[1:] for words in lines() if words[0] == name)

class cuda:
    @staticmethod
    def is_initialized():
        return "FAKE_CUDA" in os.environ
"""
TVM = """
import ctypes, os
if "TVM_FFI_DISABLE_TORCH_C_DLPACK" not in os.environ:
    raise RuntimeError("asks torch for devices")

class Module:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def get_function(self, name):
        return getattr(self.library, "__tvm_ffi_" + name)

load_module = Module
"""
REGISTERS = """
extern void *fopen(const char *, const char *); extern int fputs(const char *, void *); extern int fclose(void *);
extern char *getenv(const char *);
__attribute__((constructor)) static void registers(void) {{
  void *file = fopen(getenv("FAKE_OPERATORS"), "a");
  fputs("{lines}", file);
  fclose(file);
}}
"""
MODULE = """
extern void *PyModule_Create2(void *, int);
struct {{ long count; void *type, *init; long index; void *copy; const char *name, *doc; long size; void *rest[5]; }}
  definition = {{1, 0, 0, 0, 0, "{name}", 0, -1}};
void *PyInit_{name}(void) {{ return PyModule_Create2(&definition, 1013); }}
"""
CALLS_DRIVER = """
extern int cuInit(unsigned);
__attribute__((constructor)) static void calls(void) { cuInit(0); }
"""
USES_DRIVER = "extern int cuTensorMapEncodeTiled(void); int f(void) { return cuTensorMapEncodeTiled(); }\n"

Run = Callable[..., Report]


def registers(*lines: str) -> str:
    return REGISTERS.format(lines="".join(f"{line}\\n" for line in lines))


class Image:
    """site-packages with a torch, an extension module of vLLM, one of torchvision's libraries, a FlashInfer module."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = Site(root)
        self.path = self.site.path
        for name in ("torch", "vllm"):
            self.site.component(name, name, "1")

    def fill(self) -> None:
        self.driver = self.library(
            "stub/libcuda.so.1", "int cuInit(unsigned x) { return x; } int cuTensorMapEncodeTiled(void) { return 0; }"
        )
        self.site.install("torch", "1", {"torch/__init__.py": TORCH, "torch/lib/libtorch_late.so": ""})
        self.site.install("vllm", "1", {"vllm/_C.abi3.so": "", "vllm/__init__.py": "raise RuntimeError('imported')"})
        self.site.install("torchvision", "1", {"torchvision/image.so": ""})
        self.site.install("other", "1", {"other/broken.so": ""})
        self.site.install("apache-tvm-ffi", "1", {"tvm_ffi/__init__.py": TVM})
        self.extension()
        self.library("torch/lib/libtorch_late.so")
        self.library("torchvision/image.so", registers("image::decode CPU"))
        self.library("other/broken.so", "extern int nowhere(void); int *f = (int *)nowhere;")
        self.library(
            f"{AOT}/norm/norm.so", "int __tvm_ffi_rmsnorm(void) { return 0; } int __tvm_ffi_add(void) { return 0; }"
        )
        shutil.rmtree(self.path / "stub")

    def library(self, name: str, code: str = "", needs: tuple[Path, ...] = ()) -> Path:
        """needs: libraries beside it are found by the loader, others are the driver's."""
        return compile_library(self.path / name, code, needs=needs, flags=runpath("$ORIGIN:$ORIGIN/../torchvision"))

    def extension(self, code: str = "", *lines: str) -> None:
        """vLLM's extension: what it registers, and what else it does when it is loaded."""
        lines = lines or ("_C::norm CUDA Meta", "_C::shape CompositeExplicitAutograd")
        driver = compile_library(
            self.root / "stub/libcuda.so.1",
            "int cuInit(unsigned x) {} int cuTensorMapEncodeTiled(void) {} int cuNew(void) {}",
        )
        self.library("vllm/_C.abi3.so", MODULE.format(name="_C") + USES_DRIVER + registers(*lines) + code, (driver,))
        shutil.rmtree(self.root / "stub")


WANTED = {
    "torch": ["aten::add CPU CUDA", "aten::view CompositeImplicitAutograd"],
    "vllm/_C.abi3.so": ["_C::norm CUDA Meta", "_C::shape CompositeExplicitAutograd"],
    "torchvision/image.so": ["image::decode CPU"],
    f"{AOT}/norm/norm.so": ["add", "rmsnorm"],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Image(tmp_path_factory.mktemp("compiled"))
    made.fill()
    return made.path


@pytest.fixture
def image(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    made = Image(tmp_path / "venv")
    shutil.copytree(compiled, made.path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", str(made.path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("FAKE_OPERATORS", str(tmp_path / "operators"))
    return made


@pytest.fixture
def run(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the whole smoke test, with a list of operators that was recorded or none."""

    def run(recorded: dict[str, list[str]] | None = None) -> Report:
        (tmp_path / "operators").write_text("aten::add CPU CUDA\naten::view CompositeImplicitAutograd\n")
        known = asdict(image.site.facts()) | {"operators": recorded}
        del known["root"]
        (tmp_path / "facts.json").write_text(json.dumps(known, default=str))
        monkeypatch.setenv("GRAFT_FACTS", str(tmp_path / "facts.json"))
        with pytest.raises(SystemExit) as ended:
            load.main()
        said = json.loads(capsys.readouterr().out.splitlines()[-1])
        report = Report("load")
        for check in said["checks"]:
            report.check(check["id"], check["verdict"] == "pass", check["detail"], waived=check["verdict"] == "waived")
        assert ended.value.code == (1 if failed(report) else 0)
        return report

    return run


def found(report: Report) -> dict[str, list[str]]:
    """What is recorded of a run."""
    return {
        check["id"].removeprefix(operators.CHECK): check["detail"].splitlines()
        for check in checks_of(report)
        if check["id"].startswith(operators.CHECK)
    }


def test_everything_loads_and_what_it_registers_is_listed(run: Run) -> None:
    report = run()
    assert not failed(report)
    assert found(report) == WANTED
    ids = [check["id"] for check in checks_of(report)]
    # Torch's own last, what belongs to nobody whom the recipe names not at all, and no package is imported.
    assert [id for id in ids if id.startswith("load:")] == [
        "load:torch",
        f"load:{AOT}/norm/norm.so",
        "load:torchvision/image.so",
        "load:vllm/_C.abi3.so",
        "load:torch/lib/libtorch_late.so",
    ]
    assert "1 functions of libcuda.so.1" in str(checks_of(report)[0])


def test_the_recorded_operators_are_green(run: Run) -> None:
    report = run(WANTED)
    assert not failed(report)
    assert {"lost", "new"} <= {check["id"] for check in checks_of(report)}


@pytest.mark.parametrize(
    ("lines", "red"),
    [
        (["_C::norm CUDA Meta"], {"lost": "vllm/_C.abi3.so: _C::shape;"}),
        (["_C::norm Meta", "_C::shape CompositeExplicitAutograd"], {"lost": "_C::norm for CUDA;"}),
        (["_C::norm CUDA CPU Meta", "_C::shape CompositeExplicitAutograd"], {"new": "_C::norm for CPU;"}),
        (["_C::norm CUDA Meta", "_C::shape CompositeExplicitAutograd", "_C::more CPU"], {"new": "_C::more;"}),
        (["_C::shapes CPU", "_C::norm CUDA Meta"], {"lost": "_C::shape;", "new": "_C::shapes;"}),
    ],
)
def test_a_lost_or_new_operator_or_kernel_is_red(image: Image, run: Run, lines: list[str], red: dict[str, str]) -> None:
    image.extension("", *lines)
    wrong = failed(run(WANTED))
    assert set(wrong) == set(red)
    for id, text in red.items():
        assert text in wrong[id]
        assert "make lock OPERATORS=1" in wrong[id]


def test_a_lost_file_and_a_lost_function_of_flashinfer_are_red(image: Image, run: Run) -> None:
    image.library(f"{AOT}/norm/norm.so", "int __tvm_ffi_add(void) { return 0; }")
    assert f"{AOT}/norm/norm.so: rmsnorm" in failed(run(WANTED))["lost"]
    (image.path / "torchvision/image.so").unlink()
    assert "torchvision/image.so: image::decode" in failed(run(WANTED))["lost"]


def test_an_extension_that_does_not_load_is_red(image: Image, run: Run) -> None:
    image.extension("extern int _ZN3c103oldEv(void); int *f2 = (int *)_ZN3c103oldEv;")
    assert "undefined symbol: _ZN3c103oldEv" in failed(run())["load:vllm/_C.abi3.so"]
    image.site.waive("load", "vllm/_C.abi3.so")
    assert waived(run()) == ["load:vllm/_C.abi3.so"]


def test_a_module_without_its_function_is_loaded_as_a_library(image: Image, run: Run) -> None:
    image.library("vllm/_C.abi3.so", registers("_C::norm CUDA Meta", "_C::shape CompositeExplicitAutograd"))
    assert not failed(run(WANTED))


def test_a_call_to_the_driver_is_red(image: Image, run: Run) -> None:
    image.extension(CALLS_DRIVER)
    red = failed(run())
    assert set(red) == {"driver:vllm/_C.abi3.so:cuInit"}
    image.site.waive("load", "vllm/_C.abi3.so/cuInit", package="vllm")
    report = run()
    assert not failed(report)
    assert waived(report) == ["driver:vllm/_C.abi3.so:cuInit"]


def test_what_is_loaded_after_a_call_to_the_driver_is_seen_as_well(image: Image, run: Run) -> None:
    """As CUDA's runtime does it, the library that both need asks the driver once in a process."""
    driver = compile_library(image.root / "stub/libcuda.so.1", "int cuInit(unsigned x) { return x; }")
    once = "extern int cuInit(unsigned); static int done; void start(void) { if (!done++) cuInit(0); }"
    runtime = image.library("torchvision/libruntime.so", once, (driver,))
    start = "extern void start(void); __attribute__((constructor)) static void starts(void) { start(); }"
    for name in ("torchvision/image.so", "vllm/_C.abi3.so"):
        needed = "decode CPU" if name.startswith("torchvision") else "norm CUDA Meta"
        image.library(name, f"{start} {registers(f'x::{needed}')}", (runtime,))
    shutil.rmtree(image.root / "stub")
    report = run()
    assert set(failed(report)) == {"driver:torchvision/image.so:cuInit", "driver:vllm/_C.abi3.so:cuInit"}
    assert found(report) == {
        **WANTED,
        "torchvision/image.so": ["x::decode CPU"],
        "vllm/_C.abi3.so": ["x::norm CUDA Meta"],
    }


def test_cuda_that_was_started_is_red(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA", "1")
    assert set(failed(run())) == {"cuda"}


def test_a_file_that_ends_the_process_is_named(image: Image, run: Run) -> None:
    image.extension("extern void abort(void); __attribute__((constructor)) static void ends(void) { abort(); }")
    red = failed(run(WANTED))
    assert set(red) == {"load:vllm/_C.abi3.so", "load:torch/lib/libtorch_late.so", "operators"}
    assert "exit -6" in red["load:vllm/_C.abi3.so"]
    assert "vllm/_C.abi3.so ended it" in red["load:torch/lib/libtorch_late.so"]


def test_a_torch_that_cannot_be_imported_is_red(image: Image, run: Run) -> None:
    (image.path / "torch/__init__.py").write_text("raise ImportError('libc10.so: cannot open')")
    red = failed(run())
    assert "cannot open" in red["load:torch"]
    assert "operators" in red


def test_no_compiler_is_red(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin/gcc"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no gcc here >&2\nexit 4\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent))
    assert "no gcc here" in failed(run())["stub"]


def test_a_waiver_that_nothing_needs_is_red(image: Image, run: Run) -> None:
    image.site.waive("load", "vllm/_C.abi3.so/cuInit")
    assert set(failed(run())) == {"waivers"}


def test_the_stub_has_what_linked_files_need_and_nothing_else(image: Image) -> None:
    image.extension("extern int cuNew(void); int g(void) { return cuNew(); }")
    image.library("other/unlinked.so", "extern int cuElsewhere(void); int g(void) { return cuElsewhere(); }")
    elves = [read(image.path / name) for name in ("vllm/_C.abi3.so", "other/unlinked.so", "torchvision/image.so")]
    assert stubs.wanted(elves) == {"libcuda.so.1": ["cuNew", "cuTensorMapEncodeTiled"]}


def test_nothing_to_stub_is_fine(image: Image, run: Run) -> None:
    image.library("vllm/_C.abi3.so", MODULE.format(name="_C"))
    assert "nothing needs the driver" in str(checks_of(run())[0])


def test_owners_are_read_from_record(image: Image) -> None:
    owned = owners.of(image.path)
    assert owned["vllm/_C.abi3.so"] == ("vllm",)
    assert owned["tvm_ffi/__init__.py"] == ("apache-tvm-ffi",)
