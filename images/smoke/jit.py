"""What was compiled ahead is used without a compiler, and what was not can be compiled here, for this architecture.

Three kinds of compiling happen at run time: Triton's kernels, Triton's launcher (C, with the Python headers), and
FlashInfer's modules (g++, nvcc, ninja, linked with libcudart and libcuda). One small thing of each is made and loaded.
The container has no GPU driver: the children find the linker's stub of libcuda.so.1 through LD_LIBRARY_PATH instead.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cuda_code import AOT, judge, wanted_modules
from lib import child, facts, fatbin
from lib.facts import Facts
from lib.report import Report

# 25 s on two free cores; importing FlashInfer without bytecode on busy ones takes minutes.
SECONDS = 300.0

TOOLS = ("gcc", "g++", "c++", "ninja", "nvcc")
LINK_NAMES = ("lib64/libcudart.so", "lib64/stubs/libcuda.so")

# Two JSON lines: first what was found and loaded while no compiler could be reached, then what was compiled.
FLASHINFER = r"""
import importlib, json, os, pathlib, shutil, sys
task = json.loads(sys.argv[1])
path, cuda_home = os.environ["PATH"], os.environ.pop("CUDA_HOME", None)
os.environ.pop("CUDA_PATH", None)
folders = path.split(":")
os.environ["PATH"] = ":".join(f for f in folders if not os.path.exists(os.path.join(f, "nvcc")))
os.environ["FLASHINFER_DISABLE_JIT"] = "1"
import flashinfer
ahead = {}
for name in task["modules"]:
    try:
        spec = getattr(importlib.import_module("flashinfer.jit." + name), f"gen_{name}_module")()
        library = str(spec.get_library_path())
        spec.build_and_load()
        mapped = library in pathlib.Path("/proc/self/maps").read_text()
        ahead[name] = {"aot": bool(spec.is_aot), "library": library, "mapped": mapped}
    except Exception as error:
        ahead[name] = {"error": repr(error)}
print(json.dumps({"nvcc": shutil.which("nvcc"), "ahead": ahead}), flush=True)

os.environ["PATH"] = path
os.environ.update({"CUDA_HOME": cuda_home} if cuda_home else {})
del os.environ["FLASHINFER_DISABLE_JIT"]
from flashinfer.jit import core, cpp_ext
cpp_ext.get_cuda_path.cache_clear()
spec = core.gen_jit_spec("graft_smoke", [pathlib.Path(task["source"])])
module = spec.build_and_load()
print(json.dumps({"library": str(spec.get_library_path()), "runtime": module.runtime(), "driver": module.driver()}))
"""

MODULE = r"""
#include <cuda.h>
#include <cuda_runtime.h>
#include <tvm/ffi/function.h>

__global__ void kernel(float* x) { x[threadIdx.x] *= 2.0f; }

int64_t runtime() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : -1;
}
int64_t driver() { return cuInit(0); }
void launch(int64_t x) { kernel<<<1, 32>>>(reinterpret_cast<float*>(x)); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(runtime, runtime);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(driver, driver);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch, launch);
"""

# A file, because Triton reads the source of its kernels.
TRITON = r"""
import json, pathlib, sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

source = triton.compiler.ASTSource(fn=double, signature={"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                                   constexprs={"BLOCK": 128})
kernel = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
pathlib.Path(sys.argv[2]).write_bytes(kernel.asm["cubin"])
target = [line.split()[1].rstrip(",") for line in kernel.asm["ptx"].splitlines() if line.startswith(".target")]
print(json.dumps({"ptx": target}), flush=True)

from triton.backends.nvidia.driver import CudaUtils
print(json.dumps({"launcher": callable(CudaUtils().launch)}))
"""


def main() -> None:
    known = facts.load()
    report = Report("jit")
    with tempfile.TemporaryDirectory(prefix="graft-jit-") as name:
        work = Path(name)
        toolkit = check_toolkit(report, os.environ)
        env = child_env(known, work, toolkit)
        with ThreadPoolExecutor(2) as pool:
            flashinfer = pool.submit(run_flashinfer, known, work, env)
            triton = pool.submit(run_triton, known, work, env)
        check_ahead(known, report, flashinfer.result())
        check_module(known, report, flashinfer.result())
        check_triton(known, report, triton.result(), work / "double.cubin")
    report.finish()


def check_toolkit(report: Report, env: Mapping[str, str]) -> Path:
    """The programs and link names that compiling at run time needs; nothing that poses as the driver's library."""
    toolkit = Path(env.get("CUDA_HOME") or "/nonexistent")
    missing = [name for name in TOOLS if shutil.which(name, path=env.get("PATH", "")) is None]
    missing += [f"$CUDA_HOME/{name}" for name in LINK_NAMES if not (toolkit / name).exists()]
    report.check(
        "tools", not missing, f"missing: {', '.join(missing)}" if missing else f"{', '.join(TOOLS)}, link names"
    )
    posing = sorted(str(path) for path in toolkit.rglob("libcuda.so.*"))
    report.check(
        "driver",
        not posing,
        f"would hide the driver: {', '.join(posing)}" if posing else "the stub is for linking only",
    )
    return toolkit


def child_env(known: Facts, work: Path, toolkit: Path) -> dict[str, str]:
    """The image's environment, with every cache in `work`, and the stub in the driver's place."""
    driver = work / "driver"
    driver.mkdir()
    (driver / "libcuda.so.1").symlink_to(toolkit / "lib/stubs/libcuda.so")
    return {
        "HOME": str(work),
        "TMPDIR": str(work),
        "XDG_CACHE_HOME": str(work / "cache"),
        "FLASHINFER_WORKSPACE_BASE": str(work),
        "FLASHINFER_CUDA_ARCH_LIST": known.torch_arch_list,
        "TRITON_HOME": str(work),
        "TRITON_CACHE_DIR": str(work / "triton"),
        "TRITON_LIBCUDA_PATH": str(driver),
        "LD_LIBRARY_PATH": str(driver),
    }


def run_flashinfer(known: Facts, work: Path, env: Mapping[str, str]) -> child.Finished:
    source = work / "graft_smoke.cu"
    source.write_text(MODULE)
    task = {"modules": sorted(wanted_modules(known)), "source": str(source)}
    return child.python(FLASHINFER, json.dumps(task), seconds=SECONDS, env=env)


def run_triton(known: Facts, work: Path, env: Mapping[str, str]) -> child.Finished:
    program = work / "double.py"
    program.write_text(TRITON)
    code = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    number = known.arch.removeprefix("sm")
    return child.python(code, str(program), number, str(work / "double.cubin"), seconds=SECONDS, env=env)


def answers(done: child.Finished) -> dict[str, Any]:
    """All JSON lines of a child as one mapping; libraries may print other lines between them."""
    merged: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            merged |= json.loads(line)
    return merged


def check_ahead(known: Facts, report: Report, done: child.Finished) -> None:
    """Each module of the recipe was found compiled in site-packages, and that very file was loaded."""
    found = answers(done)
    report.check("no-compiler", found.get("nvcc", "") is None, f"nvcc in the child: {found.get('nvcc', done.why())}")
    for name in sorted(wanted_modules(known)):
        got = found.get("ahead", {}).get(name, {"error": done.why()})
        want = str(known.site_packages / AOT / name / f"{name}.so")
        ok = got.get("aot") is True and got.get("library") == want and got.get("mapped") is True
        report.check(f"ahead:{name}", ok, f"loaded {want}, with the stub as driver" if ok else f"not {want}: {got}")


def check_module(known: Facts, report: Report, done: child.Finished) -> None:
    """FlashInfer compiled, linked and loaded a new module, with code for the architecture only."""
    found = answers(done)
    if "library" not in found:
        report.check("flashinfer", False, done.why())
        return
    ok, detail = judge(Path(found["library"]), known.arch)
    # 34, CUDA_ERROR_STUB_LIBRARY, is the stub's answer: the module was linked with libcuda and calls it.
    linked = found.get("runtime", 0) // 1000 == int(known.cuda.split(".")[0]) and found.get("driver") == 34
    report.check(
        "flashinfer", ok and linked, f"{detail}; runtime {found.get('runtime')}, driver stub {found.get('driver')}"
    )


def check_triton(known: Facts, report: Report, done: child.Finished, cubin: Path) -> None:
    """Triton compiled a kernel for the architecture, and its launcher, and loaded the launcher."""
    found = answers(done)
    try:
        target = fatbin.cubin_target(cubin.read_bytes())
    except (fatbin.FatbinError, OSError) as error:
        report.check("triton", False, f"{error}; {done.why()}")
    else:
        ok = target == known.arch and found.get("ptx") == [known.nvcc_arch]
        report.check("triton", ok, f"cubin for {target} from PTX for {found.get('ptx')}, wanted {known.nvcc_arch}")
    ok = done.ok and found.get("launcher") is True
    report.check("triton-launcher", ok, "compiled with gcc, loaded with the stub as driver" if ok else done.why())


if __name__ == "__main__":
    main()
